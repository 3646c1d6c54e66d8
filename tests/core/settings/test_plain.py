"""What the framework gets."""

import msgspec

from app.plugins import args as plain
from app.settings.args import ARGS
from tests.core.settings.kit import loaded


def config_of(body):
    (profile,) = loaded(body).to_plain()
    return profile.plugin_config


def test_every_in_tree_plugin_has_its_default_arguments():
    assert config_of("") == {
        "DefaultPreemption": plain.DefaultPreemptionArgs(),
        "DynamicResources": plain.DynamicResourcesArgs(),
        "InterPodAffinity": plain.InterPodAffinityArgs(),
        "NodeAffinity": plain.NodeAffinityArgs(),
        "NodeResourcesBalancedAllocation": plain.BalancedAllocationArgs(),
        "NodeResourcesFit": plain.NodeResourcesFitArgs(),
        "PodTopologySpread": plain.PodTopologySpreadArgs(),
        "VolumeBinding": plain.VolumeBindingArgs(),
    }
    assert config_of("").keys() == ARGS.keys()


def test_arguments_are_handed_over():
    config = config_of("""\
        profiles:
        - pluginConfig:
          - {name: DefaultPreemption, args: {minCandidateNodesPercentage: 5, minCandidateNodesAbsolute: 7}}
          - {name: DynamicResources, args: {filterTimeout: 0s, bindingTimeout: 1.5s}}
          - {name: InterPodAffinity, args: {hardPodAffinityWeight: 3, ignorePreferredTermsOfExistingPods: true}}
          - name: NodeAffinity
            args:
              addedAffinity:
                requiredDuringSchedulingIgnoredDuringExecution:
                  nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [a]}]}]
          - {name: NodeResourcesBalancedAllocation, args: {resources: [{name: e.com/a}]}}
          - name: NodeResourcesFit
            args:
              ignoredResources: [e.com/a]
              ignoredResourceGroups: [f.com]
              scoringStrategy:
                type: RequestedToCapacityRatio
                resources: [{name: cpu, weight: 3}]
                requestedToCapacityRatio: {shape: [{utilization: 0, score: 1}, {utilization: 100, score: 10}]}
          - name: PodTopologySpread
            args:
              defaultingType: List
              defaultConstraints:
              - {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 3,
                 nodeAffinityPolicy: Ignore, nodeTaintsPolicy: Honor, matchLabelKeys: [app]}
          - {name: VolumeBinding, args: {bindTimeoutSeconds: 0}}
          - {name: Mine, args: {any: [thing]}}
        """)
    assert config == {
        "DefaultPreemption": plain.DefaultPreemptionArgs(5, 7),
        "DynamicResources": plain.DynamicResourcesArgs(0.0, 1.5),
        "InterPodAffinity": plain.InterPodAffinityArgs(3, True),
        "NodeAffinity": plain.NodeAffinityArgs(
            {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["a"]}
                            ],
                        }
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [],
            }
        ),
        "NodeResourcesBalancedAllocation": plain.BalancedAllocationArgs(
            (plain.ResourceSpec("e.com/a"),)
        ),
        "NodeResourcesFit": plain.NodeResourcesFitArgs(
            frozenset({"e.com/a"}),
            frozenset({"f.com"}),
            "RequestedToCapacityRatio",
            (plain.ResourceSpec("cpu", 3),),
            (plain.UtilizationShapePoint(0, 1), plain.UtilizationShapePoint(100, 10)),
        ),
        "PodTopologySpread": plain.PodTopologySpreadArgs(
            "List",
            (
                plain.DefaultConstraint(
                    max_skew=2,
                    topology_key="zone",
                    when_unsatisfiable="DoNotSchedule",
                    min_domains=3,
                    node_affinity_policy="Ignore",
                    node_taints_policy="Honor",
                    match_label_keys=("app",),
                ),
            ),
        ),
        "VolumeBinding": plain.VolumeBindingArgs(0),
        "Mine": {"any": ["thing"]},
    }


def test_extenders_resources_replace_the_ignored_ones_in_every_profile():
    profiles = loaded("""\
        profiles:
        - schedulerName: a
          pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [e.com/mine], ignoredResourceGroups: [g]}}]
        - schedulerName: b
        extenders:
        - urlPrefix: http://a
          filterVerb: f
          managedResources: [{name: e.com/a, ignoredByScheduler: true}, {name: e.com/b}]
        - {urlPrefix: http://b, filterVerb: f, managedResources: [{name: e.com/c, ignoredByScheduler: true}]}
        """).to_plain()
    fits = [profile.plugin_config["NodeResourcesFit"] for profile in profiles]
    assert [fit.ignored_resources for fit in fits] == [frozenset({"e.com/a", "e.com/c"})] * 2
    assert fits[0].ignored_resource_groups == {"g"}


def test_the_percentage_of_a_profile_wins_and_zero_is_adaptive():
    profiles = loaded("""\
        percentageOfNodesToScore: 30
        profiles:
        - {schedulerName: a}
        - {schedulerName: b, percentageOfNodesToScore: 50}
        - {schedulerName: c, percentageOfNodesToScore: 0}
        """).to_plain()
    assert [profile.percentage_of_nodes_to_score for profile in profiles] == [30, 50, None]
    assert loaded().to_plain()[0].percentage_of_nodes_to_score is None


def test_profiles_are_frozen():
    (profile,) = loaded().to_plain()
    assert all(isinstance(value, msgspec.Struct) for value in profile.plugin_config.values())
    assert profile == loaded().to_plain()[0]


def test_certificates_are_decoded():
    ((extender, _),) = loaded("""\
        extenders:
        - {urlPrefix: https://a, filterVerb: f, tlsConfig: {caData: Y2E=, certData: Y2VydA==, keyData: a2V5}}
        """).settings.extenders
    tls = extender.tls_config
    assert (tls.ca_pem, tls.cert_pem, tls.key_pem) == (b"ca", b"cert", b"key")
    assert tls.has_ca
