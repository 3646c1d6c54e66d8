"""Scheduler policies as v1: what they mean there, and what cannot be carried over."""

import json
import textwrap

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from app.settings.check import Checked, as_text
from app.settings.defaults import IN_TREE_CAPABILITIES
from app.settings.load import convert_text, load
from app.settings.policy import _FILTERS, _PREDICATES, _PRIORITIES
from app.settings.problems import ConfigurationError
from tests.core.settings.kit import beta, short
from tests.core.settings.test_robustness import KEYS, SCALARS

HEAD = "apiVersion: v1\nkind: Policy\n"

#: As k8s-spark-scheduler's examples have it: JSON, one extender over HTTPS, nanoseconds.
SPARK = """\
{
  "kind": "Policy",
  "apiVersion": "v1",
  "extenders": [
    {
      "urlPrefix": "https://localhost:8484/spark",
      "filterVerb": "predicates",
      "nodeCacheCapable": true,
      "ignorable": false,
      "httpTimeout": 30000000000,
      "enableHttps": true,
      "tlsConfig": {"insecure": true}
    }
  ]
}
"""
#: As OpenPAI configures HiveD: filter, preempt and bind by names, for a managed resource.
HIVED = """\
kind: Policy
apiVersion: v1
extenders:
- urlPrefix: http://127.0.0.1:30096/v1/extender
  filterVerb: filter
  preemptVerb: preempt
  bindVerb: bind
  enableHttps: false
  httpTimeout: 5000000000
  nodeCacheCapable: true
  ignorable: false
  managedResources:
  - name: hivedscheduler.microsoft.com/pod-scheduling-enable
    ignoredByScheduler: true
"""
#: As gpu-admission's guide has it: the predicates of old, and an extender at the end.
GPU_ADMISSION = """\
{
  "kind": "Policy",
  "apiVersion": "v1",
  "predicates": [
    {"name": "PodFitsHostPorts"},
    {"name": "PodFitsResources"},
    {"name": "NoDiskConflict"},
    {"name": "MatchNodeSelector"},
    {"name": "HostName"}
  ],
  "priorities": [
    {"name": "BalancedResourceAllocation", "weight": 1},
    {"name": "ServiceSpreadingPriority", "weight": 1}
  ],
  "extenders": [
    {
      "urlPrefix": "http://127.0.0.1:3456/scheduler",
      "apiVersion": "v1beta1",
      "filterVerb": "predicates",
      "enableHttps": false,
      "nodeCacheCapable": false
    }
  ],
  "hardPodAffinitySymmetricWeight": 10,
  "alwaysCheckAllPredicates": false
}
"""
#: Said about every policy.
STANDING = ("a policy said nothing", "without priorities the default score weights")


def policy(body=""):
    """A policy whose body starts in line 3."""
    return HEAD + textwrap.dedent(body)


def converted(text):
    """The v1 text of a policy, and the warnings beside those about every policy."""
    result = convert_text(text, "policy", IN_TREE_CAPABILITIES)
    said = [short(each) for each in result.loaded.warnings if not each.message.startswith(STANDING)]
    return yaml.safe_dump_all(result.documents), said


def profile(text):
    written, said = converted(text)
    (made,) = load(written).to_plain()
    return made, said


def mistakes(text):
    with pytest.raises(ConfigurationError) as caught:
        convert_text(text, "policy", IN_TREE_CAPABILITIES)
    return [short(each) for each in caught.value.problems]


@pytest.mark.parametrize("text", [SPARK, HIVED, GPU_ADMISSION], ids=["spark", "hived", "gpu"])
def test_what_projects_ship_becomes_a_file_that_is_read(text):
    written, _ = converted(text)
    loaded = load(written, capabilities=IN_TREE_CAPABILITIES)
    assert loaded.settings == convert_text(text, "p", IN_TREE_CAPABILITIES).loaded.settings
    assert not [each for each in loaded.warnings if "http" not in each.message]


def test_the_extenders_are_carried_over():
    (spark,) = load(converted(SPARK)[0]).settings.configuration.extenders
    assert (spark.url_prefix, spark.filter_verb) == ("https://localhost:8484/spark", "predicates")
    assert (spark.node_cache_capable, spark.tls_config.insecure) == (True, True)
    assert str(spark.http_timeout) == "30s"
    (hived,) = load(converted(HIVED)[0]).settings.configuration.extenders
    assert (hived.preempt_verb, hived.bind_verb, str(hived.http_timeout)) == (
        "preempt",
        "bind",
        "5s",
    )
    (managed,) = hived.managed_resources
    assert managed.ignored_by_scheduler


def test_extenders_in_capitals():
    written, said = converted(
        policy("""\
        extenders:
        - URLPrefix: https://127.0.0.1:1
          FilterVerb: f
          BindVerb: b
          EnableHTTPS: true
          TLSConfig: {CAFile: /ca, KeyData: aGVsbG8=}
          ManagedResources: [{Name: example.com/gpu, IgnoredByScheduler: true}]
        """)
    )
    (extender,) = load(written).settings.configuration.extenders
    assert (extender.filter_verb, extender.bind_verb, extender.enable_https) == ("f", "b", True)
    assert (extender.tls_config.ca_file, extender.tls_config.key_data) == ("/ca", "aGVsbG8=")
    assert extender.managed_resources[0].ignored_by_scheduler
    assert said[0] == "4: extenders[0].URLPrefix: is spelt urlPrefix in v1"
    assert "8: extenders[0].TLSConfig.CAFile: is spelt caFile in v1" in said
    assert "9: extenders[0].ManagedResources[0].Name: is spelt name in v1" in said
    assert not any("aGVsbG8" in each for each in said)


def test_without_lists_the_defaults_and_weights_of_then():
    made, _ = profile(policy())
    (today,) = load(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    ).to_plain()
    assert made.points["filter"] == today.points["filter"]
    weights = made.score_weights
    assert (weights["TaintToleration"], weights["NodeAffinity"], weights["InterPodAffinity"]) == (
        1,
        1,
        1,
    )
    assert weights["PodTopologySpread"] == 2


def test_a_list_of_predicates_is_complete():
    made, said = profile(GPU_ADMISSION)
    kept = {"NodePorts", "NodeResourcesFit", "VolumeRestrictions", "NodeAffinity", "NodeName"}
    always = {"NodeUnschedulable", "TaintToleration"}
    younger = {"DynamicResources", "NodeDeclaredFeatures"}
    assert set(made.points["filter"]) == kept | always | younger
    assert not {"VolumeBinding", "VolumeZone"} & {
        *made.points["preFilter"],
        *made.points["reserve"],
    }
    assert "VolumeBinding" not in made.points["score"]
    assert set(made.points["score"]) == {"NodeResourcesBalancedAllocation", "DynamicResources"}
    assert made.plugin_config["InterPodAffinity"].hard_pod_affinity_weight == 10
    assert said == [
        '13: priorities[1]: "ServiceSpreadingPriority" is not carried over: '
        "PodTopologySpread spreads the pods of services and replica sets by default",
        "18: extenders[0].apiVersion: is gone in v1 and left out",
        "20: extenders[0].enableHttps: is spelt enableHTTPS in v1",
    ]


def test_empty_lists_leave_what_always_ran():
    made, _ = profile(policy("predicates: []\npriorities: []\n"))
    assert set(made.points["filter"]) - {"DynamicResources", "NodeDeclaredFeatures"} == {
        "NodeUnschedulable",
        "TaintToleration",
    }
    assert set(made.points["score"]) == {"DynamicResources"}


@pytest.mark.parametrize("predicate", sorted(_PREDICATES))
def test_every_predicate_has_a_plugin_that_filters(predicate):
    made, _ = profile(policy(f"predicates: [{{name: {predicate}}}]\n"))
    assert set(_PREDICATES[predicate]) <= set(made.points["filter"])
    left = _FILTERS - set(made.points["filter"])
    assert left == _FILTERS - {*_PREDICATES[predicate], "NodeUnschedulable", "TaintToleration"}


@pytest.mark.parametrize(
    "priority", sorted(_PRIORITIES.keys() - {"RequestedToCapacityRatioPriority"})
)
def test_every_priority_has_a_plugin_that_scores(priority):
    made, said = profile(policy(f"priorities: [{{name: {priority}, weight: 7}}]\n"))
    weights = {name: w for name, w in made.score_weights.items() if name in made.points["score"]}
    assert weights.pop(_PRIORITIES[priority]) == 7
    assert weights.keys() <= {"DynamicResources", "VolumeBinding"}
    assert said == []


def test_most_requested_is_a_strategy():
    made, _ = profile(policy("priorities: [{name: MostRequestedPriority, weight: 1}]\n"))
    assert made.plugin_config["NodeResourcesFit"].strategy == "MostAllocated"


def test_the_ratio_has_its_shape_and_resources():
    text = policy("""\
        priorities:
        - name: RequestedToCapacityRatioPriority
          weight: 2
          argument:
            requestedToCapacityRatioArguments:
              shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
              resources: [{name: example.com/gpu, weight: 5}]
        """)
    made, _ = profile(text)
    fit = made.plugin_config["NodeResourcesFit"]
    assert fit.strategy == "RequestedToCapacityRatio"
    assert [(p.utilization, p.score) for p in fit.shape] == [(0, 0), (100, 10)]
    assert [(r.name, r.weight) for r in fit.resources] == [("example.com/gpu", 5)]
    assert mistakes(text.replace("score: 10", "score: 11")) == [
        "8: priorities[0].argument.requestedToCapacityRatioArguments.shape[1].score: "
        "Invalid value: 11: not in valid range [0, 10]"
    ]


def test_what_v1_does_not_have_is_named_with_its_line():
    _, said = converted(
        policy("""\
        alwaysCheckAllPredicates: true
        predicates:
        - {name: Zoned, argument: {labelsPresence: {labels: [zone], presence: true}}}
        - {name: Same, argument: {serviceAffinity: {labels: [region]}}}
        - name: PodFitsResource
        - name: MaxGCEPDVolumeCount
        priorities:
        - {name: LeastRequestedPriority, weight: 1}
        - {name: MostRequestedPriority, weight: 1}
        - {name: NodePreferAvoidPodsPriority, weight: 10000}
        - {name: Spread, weight: 1, argument: {serviceAntiAffinity: {label: zone}}}
        - {name: Mine, weight: 1}
        something: else
        """)
    )
    assert said == [
        "3: alwaysCheckAllPredicates: is gone in v1: the filters of a node end with the first that rejects it; only "
        "fewer reasons are given",
        '5: predicates[0]: "Zoned" is not carried over: use NodeAffinity\'s addedAffinity, or node affinity in the pods',
        '6: predicates[1]: "Same" is not carried over: use pod affinity in the pods',
        '7: predicates[2]: "PodFitsResource" is not carried over: Kubernetes 1.22 had no predicate of this name; '
        'did you mean "PodFitsResources"?',
        "8: predicates[3]: MaxGCEPDVolumeCount is NodeVolumeLimits in v1: volumes of this kind are CSI volumes now",
        '11: priorities[1]: "MostRequestedPriority" is not carried over: in v1 it is NodeResourcesFit, which scores once '
        "and is LeastRequestedPriority already",
        '12: priorities[2]: "NodePreferAvoidPodsPriority" is not carried over: use taints with the effect '
        "PreferNoSchedule",
        '13: priorities[3]: "Spread" is not carried over: use topologySpreadConstraints in the pods',
        '14: priorities[4]: "Mine" is not carried over: Kubernetes 1.22 had no priority of this name',
        "15: something: is not a field of a Policy and is left out",
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("predicates: all\n", '3: predicates: Invalid value: "all": must be a list'),
        (
            "predicates: [x]\n",
            '3: predicates[0]: Invalid value: "x": must be a mapping with a name',
        ),
        (
            "predicates: [{name: [x]}]\n",
            '3: predicates[0]: Invalid value: {"name":["x"]}: must be a mapping with a name',
        ),
        ("priorities: {}\n", "3: priorities: Invalid value: {}: must be a list"),
        (
            "priorities:\n- {name: ImageLocalityPriority, weight: 0}\n",
            "4: priorities[0].weight: Invalid value: 0: must be a positive number",
        ),
        (
            "priorities:\n- name: ImageLocalityPriority\n",
            "4: priorities[0].weight: Invalid value: null: must be a positive number",
        ),
        ("extenders: [1]\n", "3: extenders[0]: Invalid value: 1: must be a mapping"),
        (
            "extenders:\n- urlPrefix: http://a\n  filtreVerb: f\n",
            '5: extenders[0].filtreVerb: unknown field "extenders[0].filtreVerb"; did you mean "filterVerb"?',
        ),
        (
            "extenders:\n- urlPrefix: http://a\n  prioritizeVerb: p\n",
            "5: extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        (
            "predicates: [\n",
            "4: : yaml: while parsing a flow node expected the node content, but found '<stream end>'",
        ),
    ],
)
def test_mistakes_have_their_places_in_the_policy(body, expected):
    assert mistakes(policy(body)) == [expected]


def test_a_weight_out_of_range_points_to_its_line():
    (said,) = mistakes(policy("hardPodAffinitySymmetricWeight: 101\n"))
    assert said.startswith(
        "3: profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101"
    )


def test_a_policy_is_not_read_without_conversion():
    with pytest.raises(ConfigurationError) as caught:
        load(HIVED)
    (problem,) = caught.value.problems
    assert "scheduler policies are gone" in problem.message
    shown = as_text(Checked("hived.yaml", HIVED, caught.value)).splitlines()[-1]
    assert (
        shown
        == "hived.yaml: aiokube-scheduler convert-config writes it as kubescheduler.config.k8s.io/v1"
    )


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1beta3"])
def test_older_configurations_are_written_as_they_are_read(version):
    text = beta(
        version,
        """\
        profiles:
        - plugins:
            score: {enabled: [{name: ImageLocality, weight: 9}]}
        extenders:
        - urlPrefix: http://127.0.0.1:1
          filterVerb: f
          enableHttps: false
        """,
    )
    text += "---\napiVersion: aiokube-scheduler.io/v1alpha1\nkind: AiokubeSchedulerConfiguration\nmaxBindingsInFlight: 7\n"
    result = convert_text(text, "old", IN_TREE_CAPABILITIES)
    again = load(yaml.safe_dump_all(result.documents))
    assert again.settings == load(text).settings == result.loaded.settings
    assert result.loaded.warnings
    assert again.warnings == ()


def test_a_file_of_v1_stays_as_it_is():
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 3\n"
    (document,) = convert_text(text, "f", None).documents
    assert document == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [("5m0s", []), ("10m", []), ("300000s", ["83h20m0s"]), ("1h", ["1h0m0s"])],
)
def test_a_timeout_of_hours_gets_a_sentence(timeout, expected):
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"extenders:\n- urlPrefix: http://a\n  filterVerb: f\n  httpTimeout: {timeout}\n"
    )
    assert [short(each) for each in load(text).warnings] == [
        f"6: extenders[0].httpTimeout: a pod waits up to {shown} for a call that is not answered; 30s is enough for most"
        for shown in expected
    ]


NAMES = st.sampled_from([*_PREDICATES, *_PRIORITIES, "SelectorSpreadPriority", "Mine", ""])
ANY = st.recursive(
    SCALARS | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
ARGUMENTS = st.sampled_from(
    [
        "labelsPresence",
        "serviceAntiAffinity",
        "requestedToCapacityRatioArguments",
        "shape",
        "resources",
    ]
)
ENTRY = st.fixed_dictionaries(
    {"name": NAMES | ANY},
    optional={"weight": ANY, "argument": ANY | st.dictionaries(ARGUMENTS, ANY, max_size=2)},
)
POLICIES = st.fixed_dictionaries(
    {
        "kind": st.just("Policy"),
        "apiVersion": st.sampled_from(["v1", "kubescheduler.config.k8s.io/v1"]),
    },
    optional={
        "predicates": st.lists(ENTRY | ANY, max_size=4) | ANY,
        "priorities": st.lists(ENTRY | ANY, max_size=4) | ANY,
        "extenders": st.lists(
            st.dictionaries(KEYS | KEYS.map(str.upper), ANY, max_size=5), max_size=2
        )
        | ANY,
        "hardPodAffinitySymmetricWeight": ANY,
        "alwaysCheckAllPredicates": ANY,
        "other": ANY,
    },
)


@given(POLICIES)
@settings(max_examples=150)
def test_whatever_a_policy_holds_it_is_converted_or_its_mistakes_are_listed(document):
    text = json.dumps(document)
    try:
        result = convert_text(text, "p", IN_TREE_CAPABILITIES)
    except ConfigurationError as error:
        listed = error.problems
    else:
        listed = ()
        again = load(yaml.safe_dump_all(result.documents), capabilities=IN_TREE_CAPABILITIES)
        assert again.settings == result.loaded.settings
    assert all(each.message for each in listed)
