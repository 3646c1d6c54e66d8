"""Every rule about plugin arguments."""

import pytest

from tests.core.model.test_names import NAME, VALUE
from tests.core.settings.kit import mistakes, v1

ARGS = "profiles[0].pluginConfig[0].args"


def config(plugin, args):
    """A file whose only content is the arguments of a plugin, all in line 3."""
    return v1(f"profiles: [{{pluginConfig: [{{name: {plugin}, args: {args}}}]}}]\n")


def affinity(requirement, kind="matchExpressions"):
    terms = f"{{nodeSelectorTerms: [{{{kind}: [{requirement}]}}]}}"
    return f"{{addedAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {terms}}}}}"


REQUIRED = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
EXPRESSION = f"{REQUIRED}.matchExpressions[0]"
FIELD = f"{REQUIRED}.matchFields[0]"
CONSTRAINT = "maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule"


def spread(*constraints, kind="List"):
    listed = ", ".join(f"{{{constraint}}}" for constraint in constraints)
    return f"{{defaultingType: {kind}, defaultConstraints: [{listed}]}}"


def ratio(shape):
    return (
        "{scoringStrategy: {type: RequestedToCapacityRatio, requestedToCapacityRatio: {shape: "
        f"{shape}}}}}}}"
    )


RULES = [
    ("DefaultPreemption", "{minCandidateNodesPercentage: -1}", "minCandidateNodesPercentage: Invalid value: -1: not in valid range [0, 100]"),
    ("DefaultPreemption", "{minCandidateNodesPercentage: 101}", "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]"),
    ("DefaultPreemption", "{minCandidateNodesAbsolute: -1}", "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)"),
    (
        "DefaultPreemption",
        "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
        "minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute",
        "minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage",
    ),
    ("DynamicResources", "{filterTimeout: -1s}", 'filterTimeout: Invalid value: "-1s": must be zero or positive'),
    ("DynamicResources", "{bindingTimeout: 999ms}", 'bindingTimeout: Invalid value: "999ms": must be at least 1 second'),
    ("DynamicResources", "{bindingTimeout: 0s}", 'bindingTimeout: Invalid value: "0s": must be at least 1 second'),
    ("InterPodAffinity", "{hardPodAffinityWeight: -1}", "hardPodAffinityWeight: Invalid value: -1: not in valid range [0, 100]"),
    ("InterPodAffinity", "{hardPodAffinityWeight: 101}", "hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"),
    (
        "NodeAffinity",
        affinity("{key: a, operator: Equals, values: [b]}"),
        f'{EXPRESSION}.operator: Unsupported value: "Equals": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"',
    ),
    ("NodeAffinity", affinity("{key: '-', operator: Exists}"), f'{EXPRESSION}.key: Invalid value: "-": name part {NAME}'),
    ("NodeAffinity", affinity("{key: a, operator: In}"), f"{EXPRESSION}.values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
    ("NodeAffinity", affinity("{key: a, operator: NotIn, values: []}"), f"{EXPRESSION}.values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
    ("NodeAffinity", affinity("{key: a, operator: Exists, values: [x]}"), f'{EXPRESSION}.values: Invalid value: ["x"]: values set must be empty for exists and does not exist'),
    ("NodeAffinity", affinity("{key: a, operator: Gt, values: ['1', '2']}"), f"{EXPRESSION}.values: Invalid value: [\"1\",\"2\"]: for 'Gt', 'Lt' operators, exactly one value is required"),
    ("NodeAffinity", affinity("{key: a, operator: Lt, values: [x]}"), f"{EXPRESSION}.values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),
    ("NodeAffinity", affinity("{key: a, operator: Lt, values: ['9223372036854775808']}"), f"{EXPRESSION}.values[0]: Invalid value: \"9223372036854775808\": for 'Gt', 'Lt' operators, the value must be an integer"),
    ("NodeAffinity", affinity("{key: a, operator: In, values: [ok, 'a b']}"), f'{EXPRESSION}.values[1]: Invalid value: "a b": {VALUE}'),
    ("NodeAffinity", affinity("{key: metadata.name, operator: Exists}", "matchFields"), f'{FIELD}.operator: Unsupported value: "Exists": supported values: "In", "NotIn"'),
    ("NodeAffinity", affinity("{key: metadata.name, operator: In, values: [a, b]}", "matchFields"), f'{FIELD}.values: Invalid value: ["a","b"]: must have one element'),
    (
        "NodeAffinity",
        "{addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: ["
        "{weight: 0, preference: {matchExpressions: [{operator: X}]}},"
        "{weight: 1, preference: {matchExpressions: [{key: a, operator: X}]}}]}}",
        'addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[1].preference.matchExpressions[0].operator: '
        'Unsupported value: "X": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"',
    ),
    ("NodeResourcesBalancedAllocation", "{resources: [{name: cpu}, {name: cpu}]}", 'resources[1].name: Duplicate value: "cpu"'),
    ("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 2}]}", "resources[0].weight: Invalid value: 2: must be 1"),
    ("NodeResourcesFit", "{ignoredResources: ['-']}", f'ignoredResources[0]: Invalid value: "-": name part {NAME}'),
    ("NodeResourcesFit", "{ignoredResourceGroups: [e.com/a]}", "ignoredResourceGroups[0]: Invalid value: \"e.com/a\": resource group name can't contain '/'"),
    ("NodeResourcesFit", "{ignoredResourceGroups: ['_']}", f'ignoredResourceGroups[0]: Invalid value: "_": name part {NAME}'),
    (
        "NodeResourcesFit",
        "{scoringStrategy: {resources: [{name: cpu}]}}",
        'scoringStrategy.type: Unsupported value: "": supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"',
    ),
    ("NodeResourcesFit", "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 101}]}}", "scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]"),
    ("NodeResourcesFit", "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: -1}]}}", "scoringStrategy.resources[0].weight: Invalid value: -1: resource weight of cpu not in valid range (0, 100]"),
    ("NodeResourcesFit", "{scoringStrategy: {type: RequestedToCapacityRatio}}", "scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is RequestedToCapacityRatio"),
    ("NodeResourcesFit", "{scoringStrategy: {type: LeastAllocated, requestedToCapacityRatio: {}}}", "scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio"),
    ("NodeResourcesFit", ratio("[]"), "scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified"),
    (
        "NodeResourcesFit",
        ratio("[{utilization: 5}, {utilization: 5}, {utilization: 4}]"),
        "scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 5: values must be sorted in increasing order",
    ),
    ("NodeResourcesFit", ratio("[{utilization: -1}]"), "scoringStrategy.requestedToCapacityRatio.shape[0].utilization: Invalid value: -1: not in valid range [0, 100]"),
    ("NodeResourcesFit", ratio("[{utilization: 0}, {utilization: 101}]"), "scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 101: not in valid range [0, 100]"),
    ("NodeResourcesFit", ratio("[{score: 11}]"), "scoringStrategy.requestedToCapacityRatio.shape[0].score: Invalid value: 11: not in valid range [0, 10]"),
    ("NodeResourcesFit", ratio("[{score: -1}]"), "scoringStrategy.requestedToCapacityRatio.shape[0].score: Invalid value: -1: not in valid range [0, 10]"),
    ("PodTopologySpread", "{defaultingType: Node}", 'defaultingType: Unsupported value: "Node": supported values: "System", "List"'),
    ("PodTopologySpread", f"{{defaultConstraints: [{{{CONSTRAINT}}}]}}", 'defaultingType: Invalid value: "System": when .defaultConstraints are not empty'),
    ("PodTopologySpread", spread("topologyKey: z, whenUnsatisfiable: DoNotSchedule"), "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)"),
    ("PodTopologySpread", spread("maxSkew: 1, whenUnsatisfiable: DoNotSchedule"), "defaultConstraints[0].topologyKey: Required value: can not be empty"),
    ("PodTopologySpread", spread("maxSkew: 1, topologyKey: '-', whenUnsatisfiable: DoNotSchedule"), f'defaultConstraints[0].topologyKey: Invalid value: "-": name part {NAME}'),
    ("PodTopologySpread", spread("maxSkew: 1, topologyKey: z"), "defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty"),
    ("PodTopologySpread", spread("maxSkew: 1, topologyKey: z, whenUnsatisfiable: Never"), 'defaultConstraints[0].whenUnsatisfiable: Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"'),
    ("PodTopologySpread", spread(f"{CONSTRAINT}, labelSelector: {{}}"), "defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they deduced for each pod"),
    ("PodTopologySpread", spread(CONSTRAINT, CONSTRAINT), 'defaultConstraints[1]: Duplicate value: "{zone, DoNotSchedule}"'),
    ("VolumeBinding", "{bindTimeoutSeconds: -1}", "bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value"),
    ("VolumeBinding", "{shape: [{utilization: 0, score: 10}]}", 'shape: Invalid value: [{"Utilization":0,"Score":10}]: unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("plugin", "args", "expected"),
    [pytest.param(plugin, args, expected, id=f"{plugin}-{expected[0][:60]}") for plugin, args, *expected in RULES],
)  # fmt: skip
def test_rule(plugin, args, expected):
    found = [problem.removeprefix(f"3: {ARGS}.") for problem in mistakes(config(plugin, args))]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    ("plugin", "args"),
    [
        ("DefaultPreemption", "{minCandidateNodesPercentage: 0}"),
        ("DefaultPreemption", "{minCandidateNodesPercentage: 100, minCandidateNodesAbsolute: 0}"),
        ("DynamicResources", "{filterTimeout: 0s, bindingTimeout: 1s}"),
        ("InterPodAffinity", "{hardPodAffinityWeight: 0}"),
        ("NodeAffinity", affinity("{key: e.com/a, operator: Gt, values: ['5']}")),
        ("NodeAffinity", affinity("{key: metadata.name, operator: NotIn, values: ['']}", "matchFields")),
        ("NodeAffinity", "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}"),
        ("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 0}, {name: e.com/gpu}]}"),
        ("NodeResourcesFit", "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 0}]}}"),
        ("NodeResourcesFit", ratio("[{utilization: 0, score: 10}, {utilization: 100, score: 0}]")),
        ("PodTopologySpread", spread(CONSTRAINT, "maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway")),
        ("PodTopologySpread", "{defaultingType: ''}"),
        ("VolumeBinding", "{bindTimeoutSeconds: 0}"),
    ],
)  # fmt: skip
def test_legal(plugin, args):
    assert mistakes(config(plugin, args)) == []


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            "{kind: InterPodAffinityArgs}",
            "args for plugin NodeResourcesFit were not of type NodeResourcesFitArgs.kubescheduler.config.k8s.io, "
            "got InterPodAffinityArgs.kubescheduler.config.k8s.io",
        ),
        (
            "{kind: NodeResourcesFit}",
            'decoding args for plugin NodeResourcesFit: no kind "NodeResourcesFit" is registered for version '
            '"kubescheduler.config.k8s.io/v1"',
        ),
        (
            "{apiVersion: example.com/v1, kind: NodeResourcesFitArgs}",
            'decoding args for plugin NodeResourcesFit: no kind "NodeResourcesFitArgs" is registered for version '
            '"example.com/v1"',
        ),
        (
            "{apiVersion: kubescheduler.config.k8s.io/v2}",
            'decoding args for plugin NodeResourcesFit: no kind "NodeResourcesFitArgs" is registered for version '
            '"kubescheduler.config.k8s.io/v2"',
        ),
    ],
)
def test_arguments_of_another_type(args, said):
    expected = f"3: {ARGS}: decoding .profiles[0].pluginConfig[0]: {said}"
    cure = "write apiVersion: kubescheduler.config.k8s.io/v1 and kind: NodeResourcesFitArgs, or neither"
    assert mistakes(config("NodeResourcesFit", args)) == [f"{expected}; {cure}"]


def test_arguments_may_name_their_type():
    args = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeResourcesFitArgs}"
    assert mistakes(config("NodeResourcesFit", args)) == []


def test_rules_point_at_the_line():
    text = v1("""\
        profiles:
        - pluginConfig:
          - name: PodTopologySpread
            args:
              defaultConstraints:
              - maxSkew: 1
                topologyKey: zone
                whenUnsatisfiable: DoNotSchedule
          - name: NodeResourcesFit
            args:
              scoringStrategy:
                type: LeastAllocated
                resources:
                - name: cpu
                - name: memory
                  weight: 500
        """)
    assert mistakes(text) == [
        f'7: {ARGS}.defaultingType: Invalid value: "System": when .defaultConstraints are not empty',
        "18: profiles[0].pluginConfig[1].args.scoringStrategy.resources[1].weight: Invalid value: 500: "
        "resource weight of memory not in valid range (0, 100]",
    ]
