"""The arguments of the in-tree plugins as plain values, made from a validated configuration (app.settings.plain).

Defaults are those of kube-scheduler 1.36 (docs/spec/configuration.md#plugin-arguments).
"""

from collections.abc import Mapping
from typing import Any

import msgspec


class ResourceSpec(msgspec.Struct, frozen=True):
    """A resource that takes part in a score."""

    name: str
    weight: int = 1
    """1 to 100."""


class UtilizationShapePoint(msgspec.Struct, frozen=True):
    """A point of a piecewise linear function."""

    utilization: int
    """Percent, 0 to 100; strictly increasing along a shape."""
    score: int
    """0 to 10, as configured: not yet scaled to node scores."""


class DefaultConstraint(msgspec.Struct, frozen=True):
    """A topology spread constraint for pods without constraints; its selector is derived from each pod."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    """``DoNotSchedule`` or ``ScheduleAnyway``."""
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    """None means ``Honor``."""
    node_taints_policy: str | None = None
    """None means ``Ignore``."""
    match_label_keys: tuple[str, ...] = ()


CPU_AND_MEMORY = (ResourceSpec("cpu"), ResourceSpec("memory"))


class DefaultPreemptionArgs(msgspec.Struct, frozen=True):
    """The number of candidates at which preemption stops searching: max(percentage of the nodes, absolute)."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class DynamicResourcesArgs(msgspec.Struct, frozen=True):
    """Time limits in seconds."""

    filter_timeout: float = 10.0
    """Search for devices on one node; 0 for no limit."""
    binding_timeout: float = 600.0
    """Wait for the devices' binding conditions; at least 1."""


class InterPodAffinityArgs(msgspec.Struct, frozen=True):
    """How affinity between pods is scored."""

    hard_pod_affinity_weight: int = 1
    """0 to 100."""
    ignore_preferred_terms_of_existing_pods: bool = False


class NodeAffinityArgs(msgspec.Struct, frozen=True):
    """A node affinity that is added to every pod of the profile."""

    added_affinity: Mapping[str, Any] | None = None
    """core/v1 NodeAffinity as JSON, with the API's field names; selectors are valid."""


class NodeResourcesFitArgs(msgspec.Struct, frozen=True):
    """Resources that Filter ignores, and the scoring strategy."""

    ignored_resources: frozenset[str] = frozenset()
    """Extended resources that Filter does not check: the extenders' if any extender names some, else the user's."""
    ignored_resource_groups: frozenset[str] = frozenset()
    """Prefixes (before the slash) of extended resources that Filter does not check."""
    strategy: str = "LeastAllocated"
    """``LeastAllocated``, ``MostAllocated`` or ``RequestedToCapacityRatio``."""
    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY
    shape: tuple[UtilizationShapePoint, ...] = ()
    """Non-empty for RequestedToCapacityRatio only."""


class BalancedAllocationArgs(msgspec.Struct, frozen=True):
    """The resources that NodeResourcesBalancedAllocation scores; every weight is 1."""

    resources: tuple[ResourceSpec, ...] = CPU_AND_MEMORY


class PodTopologySpreadArgs(msgspec.Struct, frozen=True):
    """Default constraints for pods without topology spread constraints."""

    defaulting_type: str = "System"
    """``System``: kube-scheduler's built-in constraints; ``List``: ``default_constraints``."""
    default_constraints: tuple[DefaultConstraint, ...] = ()
    """Empty for ``System``."""


class VolumeBindingArgs(msgspec.Struct, frozen=True):
    """The time limit for binding volumes, and how nodes are scored by their storage."""

    bind_timeout_seconds: int = 600
    """0 for no waiting."""
    shape: tuple[UtilizationShapePoint, ...] = ()
    """Empty for the default."""


InTreeArgs = (
    DefaultPreemptionArgs
    | DynamicResourcesArgs
    | InterPodAffinityArgs
    | NodeAffinityArgs
    | NodeResourcesFitArgs
    | BalancedAllocationArgs
    | PodTopologySpreadArgs
    | VolumeBindingArgs
)
