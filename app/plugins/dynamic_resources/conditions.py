"""Binding conditions: what must be true of an allocated device before its pod is bound (KEP-5007)."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from app.framework.handle import Effects
from app.model.devices import AllocatedDeviceStatus, DeviceResult, ResourceClaim
from app.model.pod import Pod
from app.model.status import SchedulingError
from app.model.timestamps import parse_time
from app.plugins.dynamic_resources.pod_claims import PodResourceClaims, allocations
from app.state.devices import ResourceClaims

_TRUE: Final = "True"
_POLL_SECONDS: Final = 5.0


class BindingFailed(SchedulingError):  # noqa: N818 - it says what happened
    """A failure condition of a device is true: the device will not become ready."""


class _BindingTimeout(SchedulingError):  # noqa: N818 - it says what happened
    """A device did not become ready in time."""


def ready(claim: ResourceClaim) -> bool:
    """Whether all conditions of an allocated claim's devices are true. Raises BindingFailed."""
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
    """Whether an allocated claim with conditions has waited ``timeout`` seconds; ``now`` in seconds since the epoch."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None:
        return False
    if not _has_conditions((claim,)):
        return False
    return parse_time(allocation.allocation_timestamp) + timeout < now


def _drivers(claims: Iterable[ResourceClaim]) -> Iterator[str]:
    """The drivers of allocated devices with conditions, once for each device."""
    for allocation in allocations(claims):
        for result in allocation.devices.results or ():
            if result.binding_conditions:
                yield result.driver


def _has_conditions(claims: Iterable[ResourceClaim]) -> bool:
    return any(True for _ in _drivers(claims))


def _status_of(claim: ResourceClaim, result: DeviceResult) -> AllocatedDeviceStatus | None:
    wanted = (result.driver, result.pool, result.device)
    return next(
        (s for s in claim.status.devices or () if (s.driver, s.pool, s.device) == wanted), None
    )


class ConditionWaiter:
    """Waits until the devices of a pod's claims are ready.

    ``timeout`` is in seconds: for one wait, and for a claim since its allocation. ``awaited`` counts devices by
    driver and outcome (``success``, ``failure``, ``timeout`` or ``error``).
    """

    def __init__(
        self, known: ResourceClaims, timeout: float, awaited: Counter[tuple[str, str]]
    ) -> None:
        self._known: Final = known
        self._timeout: Final = timeout
        self._awaited: Final = awaited

    async def wait(
        self, pod_claims: PodResourceClaims, pod: Pod, node_name: str, effects: Effects
    ) -> None:
        """Returns when all conditions are true. Raises SchedulingError if one cannot become true, or after the
        timeout."""
        if not _has_conditions(pod_claims.claims):
            return
        effects.event(
            pod,
            reason="BindingConditionsPending",
            action="Scheduling",
            note=f"waiting for binding conditions for device on node {node_name}",
        )
        outcome = "error"
        try:
            await self._poll(pod_claims, effects)
            outcome = "success"
        except BindingFailed:
            outcome = "failure"
            raise
        except _BindingTimeout:
            outcome = "timeout"
            raise
        finally:
            self._awaited.update((driver, outcome) for driver in _drivers(pod_claims.claims))

    async def _poll(self, pod_claims: PodResourceClaims, effects: Effects) -> None:
        left = self._timeout
        while not self._all_ready(pod_claims, effects.now()):
            await effects.sleep(min(_POLL_SECONDS, left))
            left -= _POLL_SECONDS
            if left <= 0:  # kube-scheduler does not check once more at the deadline
                raise _BindingTimeout("device binding timeout: context deadline exceeded")

    def _all_ready(self, pod_claims: PodResourceClaims, now: float) -> bool:
        for at, claim in enumerate(pod_claims.claims):
            current = self._known.get(claim.name, claim.namespace)
            if current is None:
                raise SchedulingError(f'could not find ResourceClaim "{claim.key}"')
            pod_claims.claims[at] = current
            if ready(current):
                continue
            if timed_out(current, now, self._timeout):
                raise _BindingTimeout(f"device binding timeout: claim={current.name}")
            return False
        return True
