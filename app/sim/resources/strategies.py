"""The strategy of each resource."""

from collections.abc import Mapping
from typing import Final

from app.sim.resources.devices.strategies import (
    DeviceClassStrategy,
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
    ResourceSliceStrategy,
)
from app.sim.resources.kinds import Kind
from app.sim.resources.pods import PodStrategy
from app.sim.resources.strategy import (
    WITH_STATUS,
    WITHOUT_STATUS,
    ClaimStrategy,
    DisruptionBudgetStrategy,
    FreshStatus,
    PriorityClassStrategy,
    Strategy,
)

_STRATEGIES: Final[Mapping[str, Strategy]] = {
    "pods": PodStrategy(),
    "namespaces": FreshStatus({"phase": "Active"}),
    "persistentvolumes": FreshStatus({"phase": "Pending"}),
    "persistentvolumeclaims": ClaimStrategy(),
    "poddisruptionbudgets.policy": DisruptionBudgetStrategy(),
    "priorityclasses.scheduling.k8s.io": PriorityClassStrategy(),
    "deviceclasses.resource.k8s.io": DeviceClassStrategy(),
    "resourceclaims.resource.k8s.io": ResourceClaimStrategy(),
    "resourceclaimtemplates.resource.k8s.io": ResourceClaimTemplateStrategy(),
    "resourceslices.resource.k8s.io": ResourceSliceStrategy(),
}


def strategy_of(kind: Kind) -> Strategy:
    """The rules of a kind."""
    common = WITH_STATUS if kind.has_status else WITHOUT_STATUS
    return _STRATEGIES.get(kind.resource, common)
