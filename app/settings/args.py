"""The arguments of the in-tree plugins, with kube-scheduler 1.36's defaults.

See docs/spec/configuration.md#plugin-arguments.
"""

from typing import Annotated, Final

import msgspec

from app.model.gotext import Duration
from app.model.objects import Int32, Int64
from app.settings.base import V1, GoDuration, Model, UnsetMeans


class PluginArgs(Model, frozen=True):
    """Base of all typed plugin arguments."""

    api_version: str = V1
    """``kubescheduler.config.k8s.io/v1``; may be left out."""
    kind: str = ""
    """The plugin's name with ``Args`` appended; may be left out."""


# ---------------------------------------------------------------- parts of core/v1


class Requirement(Model, frozen=True):
    """core/v1 NodeSelectorRequirement and metav1.LabelSelectorRequirement: a key, an operator and its values."""

    key: str = ""
    """The label (or field) that is compared."""
    operator: str = ""
    """``In``, ``NotIn``, ``Exists``, ``DoesNotExist``, ``Gt`` or ``Lt``; fields: ``In`` or ``NotIn``."""
    values: tuple[str, ...] | None = None
    """What the value is compared with: none for Exists and DoesNotExist, one integer for Gt and Lt, one for fields."""


class NodeSelectorTerm(Model, frozen=True):
    """Requirements that must all hold; a term without any matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    """Requirements on labels."""
    match_fields: tuple[Requirement, ...] = ()
    """Requirements on fields; ``metadata.name`` is the only one."""


class NodeSelector(Model, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()
    """The alternatives."""


class PreferredSchedulingTerm(Model, frozen=True):
    """A term that adds to a node's score."""

    weight: Int32 = 0
    """Added to the score of a matching node; a term of weight 0 has no effect."""
    preference: NodeSelectorTerm = NodeSelectorTerm()
    """What the node must match."""


class NodeAffinity(Model, frozen=True):
    """core/v1 NodeAffinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """What a node must match to be feasible."""
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()
    """Terms that add to a node's score."""


class LabelSelector(Model, frozen=True):
    """metav1.LabelSelector: all requirements must hold; an empty one matches everything."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels that must have exactly these values."""
    match_expressions: tuple[Requirement, ...] = ()
    """Requirements on labels."""


class TopologySpreadConstraint(Model, frozen=True):
    """core/v1 TopologySpreadConstraint as a cluster default: without a selector."""

    max_skew: Int32 = 0
    """How many more matching pods a domain may have than the one with the fewest; at least 1."""
    topology_key: str = ""
    """The node label whose values are the domains."""
    when_unsatisfiable: str = ""
    """``DoNotSchedule`` or ``ScheduleAnyway``."""
    label_selector: LabelSelector | None = None
    """Must be absent: it is deduced from each pod's services and owners."""
    min_domains: Int32 | None = None
    """With fewer domains than this the smallest count is taken as 0. Default: 1."""
    node_affinity_policy: str | None = None
    """``Honor`` (default) or ``Ignore`` the pod's node affinity when domains are counted."""
    node_taints_policy: str | None = None
    """``Honor`` or ``Ignore`` (default) taints when domains are counted."""
    match_label_keys: tuple[str, ...] = ()
    """Labels of the incoming pod that are added to the selector."""


# ---------------------------------------------------------------- resources and shapes


class ResourceSpec(Model, frozen=True):
    """A resource that takes part in a score."""

    name: str = ""
    """The resource's name, such as ``cpu`` or ``example.com/gpu``."""
    weight: Annotated[Int64, UnsetMeans(1)] = 1
    """Its share of the score, 1 to 100. Default: 1 (also for 0)."""


CPU_AND_MEMORY: Final = (
    ResourceSpec(name="cpu"),
    ResourceSpec(name="memory"),
)

Resources = Annotated[tuple[ResourceSpec, ...], UnsetMeans(CPU_AND_MEMORY)]


class UtilizationShapePoint(Model, frozen=True):
    """A point of a piecewise linear function from utilization to score."""

    utilization: Int32 = 0
    """Requested share of the capacity in percent, 0 to 100."""
    score: Int32 = 0
    """The score there, 0 to 10."""


class RequestedToCapacityRatioParam(Model, frozen=True):
    """Arguments of the strategy RequestedToCapacityRatio."""

    shape: tuple[UtilizationShapePoint, ...] = ()
    """Points in strictly increasing order of utilization; at least one."""


class ScoringStrategy(Model, frozen=True):
    """How NodeResourcesFit computes a score from free resources."""

    type: str = ""
    """``LeastAllocated``, ``MostAllocated`` or ``RequestedToCapacityRatio``; required when the strategy is given."""
    resources: Resources = CPU_AND_MEMORY
    """The resources that count. Default: cpu and memory, weight 1 each."""
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None
    """Required for the type RequestedToCapacityRatio, forbidden for the others."""


# ---------------------------------------------------------------- one class per plugin


class DefaultPreemptionArgs(PluginArgs, frozen=True):
    """How many nodes a preemption examines: max(percentage of all nodes, absolute)."""

    kind: str = "DefaultPreemptionArgs"
    """``DefaultPreemptionArgs``."""
    min_candidate_nodes_percentage: Int32 = 10
    """Percent of all nodes, 0 to 100. Default: 10. Not 0 together with the next field."""
    min_candidate_nodes_absolute: Int32 = 100
    """Number of nodes, from 0. Default: 100."""


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """Time limits for pods with resource claims."""

    kind: str = "DynamicResourcesArgs"
    """``DynamicResourcesArgs``."""
    filter_timeout: GoDuration = Duration.of(10)
    """How long the search for devices on one node may take; 0 for no limit. Default: 10s."""
    binding_timeout: GoDuration = Duration.of(600)
    """How long to wait until the devices' binding conditions hold; at least 1s. Default: 10m."""


class InterPodAffinityArgs(PluginArgs, frozen=True):
    """How affinity between pods is scored."""

    kind: str = "InterPodAffinityArgs"
    """``InterPodAffinityArgs``."""
    hard_pod_affinity_weight: Int32 = 1
    """What a required affinity term of a running pod adds when it matches the incoming pod, 0 to 100. Default: 1."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Leave out running pods' preferred terms unless the incoming pod has such terms itself. Default: false."""


class NodeAffinityArgs(PluginArgs, frozen=True):
    """An affinity for every pod of the profile."""

    kind: str = "NodeAffinityArgs"
    """``NodeAffinityArgs``."""
    added_affinity: NodeAffinity | None = None
    """Nodes must match this and the pod's own affinity. Default: none."""


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True):
    """Which resources should be used in balance."""

    kind: str = "NodeResourcesBalancedAllocationArgs"
    """``NodeResourcesBalancedAllocationArgs``."""
    resources: Resources = CPU_AND_MEMORY
    """The resources that count, each of weight 1. Default: cpu and memory."""


class NodeResourcesFitArgs(PluginArgs, frozen=True):
    """Which resources must fit, and how free ones are scored."""

    kind: str = "NodeResourcesFitArgs"
    """``NodeResourcesFitArgs``."""
    ignored_resources: tuple[str, ...] = ()
    """Extended resources that need not fit. They still count in scores."""
    ignored_resource_groups: tuple[str, ...] = ()
    """Prefixes (before the ``/``) of extended resources that need not fit."""
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated")
    """The strategy. Default: LeastAllocated over cpu and memory."""


class PodTopologySpreadArgs(PluginArgs, frozen=True):
    """Default constraints for pods without topologySpreadConstraints."""

    kind: str = "PodTopologySpreadArgs"
    """``PodTopologySpreadArgs``."""
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    """The cluster's own default constraints, for ``defaultingType: List``."""
    defaulting_type: Annotated[str, UnsetMeans("System")] = "System"
    """``System``: kube-scheduler's built-in soft constraints over hosts and zones. ``List``: the ones above."""


class VolumeBindingArgs(PluginArgs, frozen=True):
    """Limits for waiting for volumes."""

    kind: str = "VolumeBindingArgs"
    """``VolumeBindingArgs``."""
    bind_timeout_seconds: Int64 = 600
    """Seconds to wait until a pod's volumes are bound; 0 for not at all. Default: 600."""
    shape: tuple[UtilizationShapePoint, ...] | None = None
    """How the utilization of storage is scored. Needs the feature gate StorageCapacityScoring; without it: absent.
    Default: 10 for an empty node, 0 for a full one."""


ARGS: Final[dict[str, type[PluginArgs]]] = {
    "DefaultPreemption": DefaultPreemptionArgs,
    "DynamicResources": DynamicResourcesArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "VolumeBinding": VolumeBindingArgs,
}
"""Plugin name -> the model of its arguments; other in-tree plugins take none, out-of-tree arguments are opaque."""
