"""Binding conditions: what must become true of an allocated device before its pod is bound (KEP-5007)."""

from collections.abc import Iterable, Iterator
from typing import Final

from app.model.devices import AllocatedDeviceStatus, DeviceResult, ResourceClaim
from app.model.status import SchedulingError
from app.model.timestamps import parse_time
from app.plugins.dynamic_resources.pod_claims import allocations

_TRUE: Final = "True"


class BindingFailed(SchedulingError):  # noqa: N818 - the driver's verdict
    """A device will never be ready."""


def drivers(claims: Iterable[ResourceClaim]) -> Iterator[str]:
    """The drivers of the allocated devices that have to be waited for, one entry per device."""
    for allocation in allocations(claims):
        for result in allocation.devices.results or ():
            if result.binding_conditions:
                yield result.driver


def any_in(claims: Iterable[ResourceClaim]) -> bool:
    """Whether any allocated device has to be waited for."""
    return any(True for _ in drivers(claims))


def ready(claim: ResourceClaim) -> bool:
    """Whether all conditions of an allocated claim's devices hold. Raises BindingFailed if a failure condition does."""
    allocation = claim.status.allocation
    if allocation is None:
        return False
    for result in allocation.devices.results or ():
        if not result.binding_conditions:
            continue
        status = _status_of(claim, result)
        if status is None:
            return False
        states = {c.type: c for c in reversed(status.conditions or ())}
        for kind in result.binding_failure_conditions or ():
            failure = states.get(kind)
            if failure is not None and failure.status == _TRUE:
                raise BindingFailed(
                    f"device binding failed: claim={claim.name}, reason={failure.reason}, "
                    f'message="{failure.message}"'
                )
        for kind in result.binding_conditions:
            if kind not in states or states[kind].status != _TRUE:
                return False
    return True


def timed_out(claim: ResourceClaim, now: float, timeout: float) -> bool:
    """Whether an allocated claim with conditions has waited for ``timeout`` seconds by ``now``, seconds since the epoch."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None or not any_in((claim,)):
        return False
    return parse_time(allocation.allocation_timestamp) + timeout < now


def _status_of(claim: ResourceClaim, result: DeviceResult) -> AllocatedDeviceStatus | None:
    wanted = (result.driver, result.pool, result.device)
    return next(
        (s for s in claim.status.devices or () if (s.driver, s.pool, s.device) == wanted), None
    )
