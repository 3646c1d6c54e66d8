"""Files of v1beta1, v1beta2 and v1beta3."""

import pytest

from app.settings.load import load
from app.settings.problems import ConfigurationError
from tests.core.settings.kit import beta, mistakes, short

KEP_SAMPLE = """\
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: "http://127.0.0.1:12345/api/scheduler"
  filterVerb: "filter"
  preemptVerb: "preempt"
  prioritizeVerb: "prioritize"
  bindVerb: "bind"
  enableHttps: false
  nodeCacheCapable: false
  managedResources:
  - name: opaqueFooResource
    ignoredByScheduler: true
  ignorable: false
"""


def said(version):
    return f"1: apiVersion: {version} is no longer served by kube-scheduler; it is read as v1: write kubescheduler.config.k8s.io/v1"


def weights(version):
    return (
        f"1: apiVersion: the default score weights of {version} are kept: TaintToleration 1 (v1: 3), "
        "NodeAffinity 1 (v1: 2), InterPodAffinity 1 (v1: 2); list them in multiPoint to say which you want"
    )


def converted(version, body):
    """The profiles as plain values, and what was said about the file beside the two standing remarks."""
    loaded = load(beta(version, body))
    remarks = [short(problem) for problem in loaded.warnings]
    standing = {said(version), weights(version)}
    return loaded.to_plain(), [remark for remark in remarks if remark not in standing]


def score(version, body):
    (profile,), remarks = converted(version, body)
    return dict(profile.score_weights), profile.plugin_config["NodeResourcesFit"], remarks


def test_the_sample_of_the_kep():
    with pytest.raises(ConfigurationError) as caught:
        load(KEP_SAMPLE)
    assert [short(problem) for problem in caught.value.problems] == [
        "7: extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        '12: extenders[0].managedResources[0].name: Invalid value: "opaqueFooResource": '
        "is an invalid extended resource name",
    ]
    assert [short(problem) for problem in caught.value.warnings] == [
        weights("v1beta1"),
        said("v1beta1"),
        "9: extenders[0].enableHttps: is spelt enableHTTPS in v1",
    ]


def test_the_sample_of_the_kep_with_its_mistakes_put_right():
    text = KEP_SAMPLE.replace("opaque", "example.com/opaque").replace(
        "ignorable:", "weight: 1\n  ignorable:"
    )
    ((extender, _),) = load(text.replace("Https: false", "Https: true")).settings.extenders
    assert extender.enable_https is True
    assert extender.bind_verb == "bind"


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_old_default_weights_are_kept(version):
    for body in ("", "profiles: []\n", "profiles: [{schedulerName: s}]\n"):
        found, _, remarks = score(version, body)
        assert remarks == []
        assert found == {
            "TaintToleration": 1,
            "NodeAffinity": 1,
            "NodeResourcesFit": 1,
            "VolumeBinding": 1,
            "PodTopologySpread": 2,
            "InterPodAffinity": 1,
            "DynamicResources": 2,
            "NodeResourcesBalancedAllocation": 1,
            "ImageLocality": 1,
        }


def test_v1beta3_has_todays_weights():
    loaded = load(beta("v1beta3", "profiles: [{schedulerName: s}]\n"))
    assert [short(problem) for problem in loaded.warnings] == [said("v1beta3")]
    assert loaded.to_plain()[0].score_weights["TaintToleration"] == 3


def test_weights_that_are_given_win():
    found, _, _ = score(
        "v1beta2",
        """\
        profiles:
        - plugins:
            score: {enabled: [{name: NodeAffinity, weight: 5}], disabled: [{name: InterPodAffinity}]}
            multiPoint: {enabled: [{name: TaintToleration, weight: 7}]}
        """,
    )
    assert (found["NodeAffinity"], found["TaintToleration"]) == (5, 7)
    assert "InterPodAffinity" not in found


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_addresses_are_gone(version):
    _, remarks = converted(version, "healthzBindAddress: 0.0.0.0:10251\nmetricsBindAddress: ''\n")
    assert remarks == [
        "3: healthzBindAddress: is gone in v1 and ignored: "
        "health is served at --bind-address and --secure-port, over HTTPS",
        "4: metricsBindAddress: is gone in v1 and ignored: "
        "/metrics is served at --bind-address and --secure-port, over HTTPS",
    ]


def test_v1beta3_did_not_have_them():
    assert mistakes(beta("v1beta3", "healthzBindAddress: x\n")) == [
        '3: healthzBindAddress: unknown field "healthzBindAddress"'
    ]


def test_preemption_can_still_be_disabled():
    profiles, remarks = converted(
        "v1beta1", "disablePreemption: true\nprofiles:\n- schedulerName: a\n- schedulerName: b\n"
    )
    assert all("DefaultPreemption" not in profile.points["postFilter"] for profile in profiles)
    assert remarks == [
        "3: disablePreemption: is gone in v1: disable the plugin DefaultPreemption at postFilter, as is done here"
    ]
    (profile,), remarks = converted("v1beta1", "disablePreemption: false\n")
    assert "DefaultPreemption" in profile.points["postFilter"]
    assert len(remarks) == 1


def test_feature_gates_are_flags():
    _, remarks = converted("v1beta1", "featureGates: {A: true}\n")
    assert remarks == [
        "3: featureGates: is gone in v1 and ignored: feature gates are flags (--feature-gates)"
    ]


def test_old_locks_become_leases():
    loaded = load(beta("v1beta2", "leaderElection:\n  resourceLock: endpointsleases\n"))
    assert loaded.settings.configuration.leader_election.resource_lock == "leases"
    assert short(loaded.warnings[-1]) == (
        '4: leaderElection.resourceLock: the lock type "endpointsleases" is gone: leases is used; '
        "do not run this beside a scheduler that still holds the old lock"
    )


def test_plugins_that_are_gone_do_not_run():
    (profile,), remarks = converted(
        "v1beta1",
        """\
        profiles:
        - plugins:
            filter:
              enabled:
              - name: NodeLabel
              - name: NodeName
              - name: EBSLimits
              disabled:
              - name: AzureDiskLimits
              - name: NodePorts
            score:
              enabled:
              - name: NodePreferAvoidPods
                weight: 10000
              - name: SelectorSpread
          pluginConfig:
          - name: ServiceAffinity
            args: {affinityLabels: [a]}
          - name: InterPodAffinity
            args: {hardPodAffinityWeight: 7}
        """,
    )
    assert "NodePorts" not in profile.points["filter"]
    assert profile.points["filter"][0] == "NodeName"
    assert profile.plugin_config["InterPodAffinity"].hard_pod_affinity_weight == 7
    where = "profiles[0].plugins"
    csi = "volumes of this kind are CSI volumes now, which NodeVolumeLimits counts"
    assert remarks == [
        f"7: {where}.filter.enabled[0]: the plugin NodeLabel is gone in v1 and does not run: "
        "use NodeAffinity's addedAffinity, or node affinity in the pods",
        f"9: {where}.filter.enabled[2]: the plugin EBSLimits is gone in v1 and does not run: {csi}",
        f"11: {where}.filter.disabled[0]: the plugin AzureDiskLimits is gone in v1 anyway",
        f"15: {where}.score.enabled[0]: the plugin NodePreferAvoidPods is gone in v1 and does not run: "
        "use taints with the effect PreferNoSchedule",
        f"17: {where}.score.enabled[1]: the plugin SelectorSpread is gone in v1 and does not run: "
        "PodTopologySpread spreads by default",
        "19: profiles[0].pluginConfig[0]: the plugin ServiceAffinity is gone in v1: its arguments are ignored",
    ]


def test_most_allocated_becomes_a_strategy():
    """The set-up that is found most often: bin packing for notebooks and batch jobs."""
    found, fit, remarks = score(
        "v1beta1",
        """\
        profiles:
        - schedulerName: user-scheduler
          plugins:
            score:
              disabled:
              - name: SelectorSpread
              - name: TaintToleration
              - name: NodeResourcesLeastAllocated
              - name: NodePreferAvoidPods
              - name: ImageLocality
              enabled:
              - name: NodePreferAvoidPods
                weight: 161051
              - name: NodeAffinity
                weight: 14631
              - name: NodeResourcesMostAllocated
                weight: 121
              - name: ImageLocality
                weight: 11
          pluginConfig:
          - name: NodeResourcesMostAllocated
            args:
              apiVersion: kubescheduler.config.k8s.io/v1beta1
              kind: NodeResourcesMostAllocatedArgs
              resources: [{name: cpu, weight: 3}]
        """,
    )
    assert (found["NodeResourcesFit"], found["NodeAffinity"], found["ImageLocality"]) == (
        121,
        14631,
        11,
    )
    assert "TaintToleration" not in found
    assert (fit.strategy, [(r.name, r.weight) for r in fit.resources]) == (
        "MostAllocated",
        [("cpu", 3)],
    )
    where = "profiles[0].plugins.score"
    assert remarks == [
        f"8: {where}.disabled[0]: the plugin SelectorSpread is gone in v1 anyway",
        f"10: {where}.disabled[2]: the plugin NodeResourcesLeastAllocated is gone in v1 anyway",
        f"11: {where}.disabled[3]: the plugin NodePreferAvoidPods is gone in v1 anyway",
        f"14: {where}.enabled[0]: the plugin NodePreferAvoidPods is gone in v1 and does not run: "
        "use taints with the effect PreferNoSchedule",
        f"18: {where}.enabled[2]: NodeResourcesMostAllocated is NodeResourcesFit with scoringStrategy.type "
        "MostAllocated in v1",
        "23: profiles[0].pluginConfig[0]: the arguments of NodeResourcesMostAllocated are NodeResourcesFit's "
        "scoringStrategy in v1",
    ]


def test_requested_to_capacity_ratio_brings_its_shape():
    _, fit, remarks = score(
        "v1beta1",
        """\
        profiles:
        - plugins:
            score:
              disabled: [{name: NodeResourcesLeastAllocated}]
              enabled: [{name: RequestedToCapacityRatio, weight: 2}]
          pluginConfig:
          - name: NodeResourcesFit
            args: {ignoredResources: [e.com/a]}
          - name: RequestedToCapacityRatio
            args:
              shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
              resources: [{name: e.com/gpu, weight: 5}]
        """,
    )
    assert fit.strategy == "RequestedToCapacityRatio"
    assert [(point.utilization, point.score) for point in fit.shape] == [(0, 0), (100, 10)]
    assert [(spec.name, spec.weight) for spec in fit.resources] == [("e.com/gpu", 5)]
    assert fit.ignored_resources == {"e.com/a"}
    assert len(remarks) == 3


def test_least_allocated_scored_by_default_and_brings_its_arguments():
    found, fit, remarks = score(
        "v1beta1",
        """\
        profiles:
        - pluginConfig:
          - name: NodeResourcesLeastAllocated
            args: {resources: [{name: memory, weight: 2}]}
        """,
    )
    assert found["NodeResourcesFit"] == 1
    assert fit.strategy == "LeastAllocated"
    assert [(spec.name, spec.weight) for spec in fit.resources] == [("memory", 2)]
    assert len(remarks) == 1


@pytest.mark.parametrize("disabled", ["NodeResourcesLeastAllocated", "*"])
def test_no_scoring_of_resources_stays_none(disabled):
    found, _, _ = score(
        "v1beta1", f"profiles: [{{plugins: {{score: {{disabled: [{{name: '{disabled}'}}]}}}}}}]\n"
    )
    assert "NodeResourcesFit" not in found


def test_later_versions_did_not_know_that_name():
    body = "profiles: [{plugins: {score: {disabled: [{name: NodeResourcesLeastAllocated}]}}}]\n"
    assert "NodeResourcesFit" in score("v1beta2", body)[0]


def test_two_scoring_plugins_beside_each_other():
    body = """\
        profiles:
        - plugins:
            score:
              enabled:
              - name: NodeResourcesMostAllocated
        """
    _, fit, remarks = score("v1beta1", body)
    assert fit.strategy == "MostAllocated"
    assert remarks[0] == (
        "7: profiles[0].plugins.score.enabled[0]: NodeResourcesLeastAllocated no longer scores beside "
        "NodeResourcesMostAllocated: a profile has one scoring strategy in v1"
    )
    assert mistakes(
        beta("v1beta1", body.rstrip(" ") + "              - name: NodeResourcesLeastAllocated\n")
    ) == [
        "8: profiles[0].plugins.score.enabled[1]: NodeResourcesFit has one scoring strategy in v1: "
        "NodeResourcesMostAllocated is enabled too; keep one of them"
    ]


def test_arguments_of_a_plugin_that_does_not_score_are_ignored():
    _, fit, remarks = score(
        "v1beta1",
        "profiles: [{pluginConfig: [{name: NodeResourcesMostAllocated, args: {resources: []}}]}]\n",
    )
    assert fit.strategy == "LeastAllocated"
    assert remarks == [
        "3: profiles[0].pluginConfig[0]: NodeResourcesMostAllocated does not score in this profile: "
        "its arguments are ignored"
    ]


def test_unreserve_is_part_of_reserve():
    (profile,), remarks = converted(
        "v1beta1",
        """\
        profiles:
        - plugins:
            reserve: {enabled: [{name: VolumeBinding}]}
            unreserve: {enabled: [{name: VolumeBinding}, {name: DynamicResources}]}
        """,
    )
    assert profile.points["reserve"] == ("VolumeBinding", "DynamicResources")
    assert remarks == [
        "6: profiles[0].plugins.unreserve: is part of the extension point reserve in v1"
    ]


def test_entries_of_unreserve_that_are_no_mappings_are_named_where_they_stand():
    body = """\
        profiles:
        - plugins:
            reserve: {enabled: [{name: VolumeBinding}]}
            unreserve: {enabled: [{name: VolumeBinding}, 7]}
        """
    assert mistakes(beta("v1beta1", body)) == [
        "6: profiles[0].plugins.unreserve.enabled[1]: Invalid value: 7: must be a mapping"
    ]


def test_constraints_alone_meant_a_list():
    body = """\
        profiles:
        - pluginConfig:
          - name: PodTopologySpread
            args:
              defaultConstraints:
              - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}
        """
    (profile,), remarks = converted("v1beta1", body)
    assert profile.plugin_config["PodTopologySpread"].defaulting_type == "List"
    assert remarks == [
        "7: profiles[0].pluginConfig[0].args.defaultConstraints: need defaultingType: List in v1, which is assumed"
    ]
    assert len(mistakes(beta("v1beta2", body))) == 1


@pytest.mark.parametrize(
    ("version", "body", "expected"),
    [
        pytest.param(
            "v1beta1",
            """\
            profiles:
            - plugins:
                score:
                  enabled:
                  - name: NodePreferAvoidPods
                  - name: RequestedToCapacityRatio
                    weight: x
              pluginConfig:
              - name: NodeLabel
              - name: RequestedToCapacityRatio
                args:
                  shape:
                  - {utilization: 0, score: 0}
                  - {utilization: 100, score: 11}
                  resources:
                  - {name: cpu, weight: 1000}
                  extra: 1
            """,
            [
                '9: profiles[0].plugins.score.enabled[1].weight: Invalid value: "x": must be an integer',
                "16: profiles[0].pluginConfig[1].args.shape[1].score: Invalid value: 11: not in valid range [0, 10]",
                "18: profiles[0].pluginConfig[1].args.resources[0].weight: Invalid value: 1000: "
                "resource weight of cpu not in valid range (0, 100]",
                '19: profiles[0].pluginConfig[1].args.extra: unknown field "profiles[0].pluginConfig[1].args.extra"',
            ],
            id="moved",
        ),
        pytest.param(
            "v1beta1",
            "profiles: [{plugins: {score: {enabled: [{name: RequestedToCapacityRatio}]}}}]\n",
            [
                "3: profiles[0].pluginConfig[0].args.scoringStrategy.requestedToCapacityRatio: Required value: "
                "must be specified when type is RequestedToCapacityRatio"
            ],
            id="made",
        ),
        pytest.param(
            "v1beta2",
            "profiles: 5\nextenders: {a: 1}\nleaderElection: []\n",
            [
                "3: profiles: Invalid value: 5: must be a list",
                '4: extenders: Invalid value: {"a":1}: must be a list',
                "5: leaderElection: Invalid value: []: must be a mapping",
            ],
            id="no shape at the top",
        ),
        pytest.param(
            "v1beta1",
            """\
            disablePreemption: true
            profiles:
            - 5
            - schedulerName: a
              plugins: [1]
            - schedulerName: b
              plugins: {score: 3, reserve: 1, unreserve: {}, filter: {enabled: {}, disabled: [7]}, postFilter: 5}
              pluginConfig: {}
            - schedulerName: c
              plugins: {score: {enabled: [NodeResourcesMostAllocated, {name: 3}]}}
              pluginConfig: [NodeLabel, {name: NodeResourcesLeastAllocated, args: 5}, {name: PodTopologySpread, args: []}]
            """,
            [
                "5: profiles[0]: Invalid value: 5: must be a mapping",
                "7: profiles[1].plugins: Invalid value: [1]: must be a mapping",
                "9: profiles[2].plugins.score: Invalid value: 3: must be a mapping",
                "9: profiles[2].plugins.reserve: Invalid value: 1: must be a mapping",
                "9: profiles[2].plugins.filter.enabled: Invalid value: {}: must be a list",
                "9: profiles[2].plugins.filter.disabled[0]: Invalid value: 7: must be a mapping",
                "9: profiles[2].plugins.postFilter: Invalid value: 5: must be a mapping",
                "10: profiles[2].pluginConfig: Invalid value: {}: must be a list",
                '12: profiles[3].plugins.score.enabled[0]: Invalid value: "NodeResourcesMostAllocated": must be a mapping',
                "12: profiles[3].plugins.score.enabled[1].name: Invalid value: 3: must be a string",
                '13: profiles[3].pluginConfig[0]: Invalid value: "NodeLabel": must be a mapping',
                "13: profiles[3].pluginConfig[2].args: Invalid value: []: must be a mapping",
            ],
            id="no shape anywhere",
        ),
    ],
)
def test_mistakes_stand_where_the_user_made_them(version, body, expected):
    found = [mistake for mistake in mistakes(beta(version, body)) if "schedulerName" not in mistake]
    assert found == expected


def test_arguments_may_name_the_version_of_the_file():
    body = """\
        profiles:
        - pluginConfig:
          - name: InterPodAffinity
            args: {apiVersion: kubescheduler.config.k8s.io/v1beta3, kind: InterPodAffinityArgs}
        """
    assert mistakes(beta("v1beta3", body)) == []
