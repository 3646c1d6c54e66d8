"""The arguments of in-tree plugins as plain values, checked and defaulted by the settings (spec: plugins.md 1.3)."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Final

from app.model.objects import TopologySpreadConstraint
from app.model.requests import CPU, MEMORY


class StrategyType(enum.StrEnum):
    """How NodeResourcesFit turns free resources into a score; the values are those of the configuration."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceWeight:
    """A resource that takes part in a score, and its share of it (1 to 100)."""

    name: str
    weight: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class ShapePoint:
    """A point of RequestedToCapacityRatio's function: percent used (0 to 100) -> score (0 to 10)."""

    utilization: int
    score: int


CPU_AND_MEMORY: Final = (ResourceWeight(CPU), ResourceWeight(MEMORY))


@dataclasses.dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """NodeResourcesFit's strategy. ``shape``: strictly increasing in utilization, for RequestedToCapacityRatio only."""

    type: StrategyType = StrategyType.LEAST_ALLOCATED
    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY
    shape: tuple[ShapePoint, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NodeAffinityArgs:
    """``added_affinity``: a core/v1 NodeAffinity, as in JSON, that every pod of the profile has beside its own."""

    added_affinity: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class NodeResourcesFitArgs:
    """Extended resources that need not fit, by name or by the part before the ``/``, and how free ones are scored."""

    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    scoring_strategy: ScoringStrategy = ScoringStrategy()


@dataclasses.dataclass(frozen=True, slots=True)
class BalancedAllocationArgs:
    """The resources whose use is to be kept in balance."""

    resources: tuple[ResourceWeight, ...] = CPU_AND_MEMORY


class DefaultingType(enum.StrEnum):
    """Where PodTopologySpread's default constraints come from; the values are those of the configuration."""

    SYSTEM = "System"
    LIST = "List"


@dataclasses.dataclass(frozen=True, slots=True)
class PodTopologySpreadArgs:
    """Constraints for pods without their own: the built-in ones, or (defaulting type List) these, without selectors."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: DefaultingType = DefaultingType.SYSTEM


@dataclasses.dataclass(frozen=True, slots=True)
class InterPodAffinityArgs:
    """How InterPodAffinity scores.

    ``hard_pod_affinity_weight`` (0 to 100): what a required affinity term of a pod on a node is worth to the pods it means.
    ``ignore_preferred_terms_of_existing_pods``: pods without preferred terms are not scored at all.
    """

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class VolumeBindingArgs:
    """``bind_timeout_seconds``: how long PreBind waits until a pod's volumes are bound; 0 for not at all."""

    bind_timeout_seconds: int = 600
