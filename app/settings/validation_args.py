"""Validates plugin arguments, one function per plugin (docs/spec/configuration.md#plugin-arguments).

Paths are relative to ``args``; the texts are kube-scheduler's. NodeResourcesFit, which kube-scheduler checks only
when it builds the plugin, is checked here like the others.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from app.model.features import Features, Rule
from app.model.gotext import Duration
from app.model.names import label_value_errors, qualified_name_errors
from app.settings.args import (
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    InterPodAffinityArgs,
    LabelSelector,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    NodeSelectorTerm,
    PluginArgs,
    PodTopologySpreadArgs,
    Requirement,
    ResourceSpec,
    ScoringStrategy,
    TopologySpreadConstraint,
    UtilizationShapePoint,
    VolumeBindingArgs,
)
from app.settings.fieldtext import duplicate, forbidden, invalid, required, unsupported
from app.settings.problems import Findings, Path

STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
SELECTOR_OPERATORS: Final = LABEL_OPERATORS[:4]
FIELD_OPERATORS: Final = ("In", "NotIn")


def validate_args(path: Path, args: PluginArgs) -> Findings:
    """The mistakes in the values of typed arguments."""
    yield from _RULES[type(args)](path, args)


def _default_preemption(path: Path, args: DefaultPreemptionArgs) -> Findings:
    percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    percentage_path = (*path, "minCandidateNodesPercentage")
    absolute_path = (*path, "minCandidateNodesAbsolute")
    if not 0 <= percentage <= 100:
        yield invalid(percentage_path, percentage, "not in valid range [0, 100]")
    if absolute < 0:
        yield invalid(absolute_path, absolute, "not in valid range [0, inf)")
    if percentage == 0 == absolute:
        together = "cannot be zero at the same time as"
        yield invalid(percentage_path, 0, f"{together} minCandidateNodesAbsolute")
        yield invalid(absolute_path, 0, f"{together} minCandidateNodesPercentage")


def _dynamic_resources(path: Path, args: DynamicResourcesArgs) -> Findings:
    if args.filter_timeout < Duration(0):
        yield invalid((*path, "filterTimeout"), args.filter_timeout, "must be zero or positive")
    if args.binding_timeout < Duration.of(1):
        yield invalid((*path, "bindingTimeout"), args.binding_timeout, "must be at least 1 second")


def _inter_pod_affinity(path: Path, args: InterPodAffinityArgs) -> Findings:
    weight = args.hard_pod_affinity_weight
    if not 0 <= weight <= 100:
        yield invalid((*path, "hardPodAffinityWeight"), weight, "not in valid range [0, 100]")


# ---------------------------------------------------------------- NodeAffinity


def _node_affinity(path: Path, args: NodeAffinityArgs) -> Findings:
    if args.added_affinity is None:
        return
    path = (*path, "addedAffinity")
    needed = args.added_affinity.required_during_scheduling_ignored_during_execution
    if needed is not None:
        terms_path = (
            *path,
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        )
        for index, term in enumerate(needed.node_selector_terms):
            yield from _node_selector_term((*terms_path, index), term)
    preferred = args.added_affinity.preferred_during_scheduling_ignored_during_execution
    for index, weighted in enumerate(preferred):
        if weighted.weight:
            term_path = (
                *path,
                "preferredDuringSchedulingIgnoredDuringExecution",
                index,
                "preference",
            )
            yield from _node_selector_term(term_path, weighted.preference)


def _node_selector_term(path: Path, term: NodeSelectorTerm) -> Findings:
    for index, requirement in enumerate(term.match_expressions):
        yield from _label_requirement((*path, "matchExpressions", index), requirement)
    for index, requirement in enumerate(term.match_fields):
        yield from _field_requirement((*path, "matchFields", index), requirement)


def validate_selector(path: Path, selector: LabelSelector) -> Findings:
    """The mistakes in a label selector."""
    for key, value in selector.match_labels.items():
        here = (*path, "matchLabels")
        if errors := qualified_name_errors(key):
            yield invalid(here, key, "; ".join(errors))
        if errors := label_value_errors(value):
            yield invalid((*here, key), value, "; ".join(errors), near=here)
    for index, requirement in enumerate(selector.match_expressions):
        here = (*path, "matchExpressions", index)
        yield from _label_requirement(here, requirement, SELECTOR_OPERATORS)


def _label_requirement(
    path: Path, requirement: Requirement, operators: Sequence[str] = LABEL_OPERATORS
) -> Findings:
    operator, values = requirement.operator, requirement.values or ()
    if operator not in operators:
        yield unsupported((*path, "operator"), operator, operators)
        return
    if errors := qualified_name_errors(requirement.key):
        yield invalid((*path, "key"), requirement.key, "; ".join(errors))
    yield from _number_of_values((*path, "values"), operator, values)
    for index, value in enumerate(values):
        if operator in {"Gt", "Lt"} and not _is_int64(value):
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            yield invalid((*path, "values", index), value, detail)
        if errors := label_value_errors(value):
            yield invalid((*path, "values", index), value, "; ".join(errors))


def _number_of_values(path: Path, operator: str, values: Sequence[str]) -> Findings:
    if operator in {"In", "NotIn"} and not values:
        yield invalid(path, values, "for 'in', 'notin' operators, values set can't be empty")
    if operator in {"Exists", "DoesNotExist"} and values:
        yield invalid(path, values, "values set must be empty for exists and does not exist")
    if operator in {"Gt", "Lt"} and len(values) != 1:
        yield invalid(path, values, "for 'Gt', 'Lt' operators, exactly one value is required")


def _is_int64(text: str) -> bool:
    digits = text.removeprefix("-") if text.startswith("-") else text.removeprefix("+")
    return digits.isascii() and digits.isdecimal() and -(2**63) <= int(text) < 2**63


def _field_requirement(path: Path, requirement: Requirement) -> Findings:
    if requirement.operator not in FIELD_OPERATORS:
        yield unsupported((*path, "operator"), requirement.operator, FIELD_OPERATORS)
    elif len(requirement.values or ()) != 1:
        yield invalid((*path, "values"), requirement.values, "must have one element")


# ---------------------------------------------------------------- resources


def _balanced_allocation(path: Path, args: NodeResourcesBalancedAllocationArgs) -> Findings:
    seen: set[str] = set()
    for index, resource in enumerate(args.resources):
        here = (*path, "resources", index)
        if resource.name in seen:
            yield duplicate((*here, "name"), resource.name)
        seen.add(resource.name)
        if resource.weight != 1:
            yield invalid((*here, "weight"), resource.weight, "must be 1")


def _resources_fit(path: Path, args: NodeResourcesFitArgs) -> Findings:
    for index, name in enumerate(args.ignored_resources):
        yield from _label_name((*path, "ignoredResources", index), name)
    for index, group in enumerate(args.ignored_resource_groups):
        here = (*path, "ignoredResourceGroups", index)
        if "/" in group:
            yield invalid(here, group, "resource group name can't contain '/'")
        yield from _label_name(here, group)
    yield from _scoring_strategy((*path, "scoringStrategy"), args.scoring_strategy)


def _scoring_strategy(path: Path, strategy: ScoringStrategy) -> Findings:
    if strategy.type not in STRATEGIES:
        yield unsupported((*path, "type"), strategy.type, STRATEGIES)
    yield from _resource_weights((*path, "resources"), strategy.resources)
    ratio, ratio_path = strategy.requested_to_capacity_ratio, (*path, "requestedToCapacityRatio")
    if strategy.type == "RequestedToCapacityRatio":
        if ratio is None:
            yield required(ratio_path, "must be specified when type is RequestedToCapacityRatio")
        else:
            yield from _shape((*ratio_path, "shape"), ratio.shape)
    elif ratio is not None:
        yield forbidden(ratio_path, "must be nil when type is not RequestedToCapacityRatio")


def _resource_weights(path: Path, resources: Sequence[ResourceSpec]) -> Findings:
    for index, resource in enumerate(resources):
        if not 0 < resource.weight <= 100:
            detail = f"resource weight of {resource.name} not in valid range (0, 100]"
            yield invalid((*path, index, "weight"), resource.weight, detail)


def _shape(path: Path, shape: Sequence[UtilizationShapePoint]) -> Findings:
    if not shape:
        yield required(path, "at least one point must be specified")
    for index in range(1, len(shape)):
        if shape[index - 1].utilization >= shape[index].utilization:
            detail = "values must be sorted in increasing order"
            yield invalid((*path, index, "utilization"), shape[index].utilization, detail)
            break
    for index, point in enumerate(shape):
        if not 0 <= point.utilization <= 100:
            detail = "not in valid range [0, 100]"
            yield invalid((*path, index, "utilization"), point.utilization, detail)
        if not 0 <= point.score <= 10:
            yield invalid((*path, index, "score"), point.score, "not in valid range [0, 10]")


def _label_name(path: Path, name: str) -> Findings:
    for error in qualified_name_errors(name):
        yield invalid(path, name, error)


# ---------------------------------------------------------------- PodTopologySpread, VolumeBinding


def _pod_topology_spread(path: Path, args: PodTopologySpreadArgs) -> Findings:
    kind, kind_path = args.defaulting_type, (*path, "defaultingType")
    if kind not in {"System", "List"}:
        yield unsupported(kind_path, kind, ("System", "List"))
    elif kind == "System" and args.default_constraints:
        near = (*path, "defaultConstraints")
        yield invalid(kind_path, kind, "when .defaultConstraints are not empty", near=near)
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(args.default_constraints):
        here = (*path, "defaultConstraints", index)
        yield from _constraint(here, constraint)
        key = (constraint.topology_key, constraint.when_unsatisfiable)
        if key in seen:
            yield duplicate(here, f"{{{key[0]}, {key[1]}}}")
        seen.add(key)


def _constraint(path: Path, constraint: TopologySpreadConstraint) -> Findings:
    if constraint.max_skew <= 0:
        yield invalid((*path, "maxSkew"), constraint.max_skew, "not in valid range (0, inf)")
    if not constraint.topology_key:
        yield required((*path, "topologyKey"), "can not be empty")
    else:
        yield from _label_name((*path, "topologyKey"), constraint.topology_key)
    action, supported = constraint.when_unsatisfiable, ("DoNotSchedule", "ScheduleAnyway")
    if not action:
        yield required((*path, "whenUnsatisfiable"), "can not be empty")
    elif action not in supported:
        yield unsupported((*path, "whenUnsatisfiable"), action, supported)
    if constraint.label_selector is not None:
        detail = "constraint must not define a selector, as they deduced for each pod"
        yield forbidden((*path, "labelSelector"), detail)


def _volume_binding(path: Path, args: VolumeBindingArgs) -> Findings:
    if args.bind_timeout_seconds < 0:
        detail = "invalid BindTimeoutSeconds, should not be a negative value"
        yield invalid((*path, "bindTimeoutSeconds"), args.bind_timeout_seconds, detail)
    if args.shape:
        yield from _shape((*path, "shape"), args.shape)


def validate_gated_args(path: Path, args: PluginArgs, features: Features) -> Findings:
    """Mistakes in arguments that need a gate."""
    if not isinstance(args, VolumeBindingArgs) or args.shape is None:
        return
    if Rule.StorageScores not in features.rules:
        detail = (
            "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        )
        yield invalid((*path, "shape"), args.shape, detail)


_RULES: Final[dict[type[PluginArgs], Callable[[Path, Any], Findings]]] = {
    DefaultPreemptionArgs: _default_preemption,
    DynamicResourcesArgs: _dynamic_resources,
    InterPodAffinityArgs: _inter_pod_affinity,
    NodeAffinityArgs: _node_affinity,
    NodeResourcesBalancedAllocationArgs: _balanced_allocation,
    NodeResourcesFitArgs: _resources_fit,
    PodTopologySpreadArgs: _pod_topology_spread,
    VolumeBindingArgs: _volume_binding,
}
