"""What is written for a pod before it is bound, and taken back if it cannot be: allocations and reservations.

See docs/spec/plugins/dynamic-resources.md#prebind.

In this order for each claim that is not reserved for the pod: the claim itself, where it stands for extended resources; the
finalizer that keeps an allocated claim; allocation and reservation in one go. A claim that has changed meanwhile is read again
and what remains to be done is tried again, a few times. When a write has failed, its answer may have been lost: the devices stay
set aside until the claim has been looked up.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from app.framework.interface import Effects
from app.model.devices import FINALIZER, AllocationResult, ResourceClaim
from app.model.pod import Pod
from app.model.status import ConflictError, SchedulingError
from app.model.timestamps import format_time
from app.plugins.dynamic_resources.attempt import PodDevices, Reservation
from app.plugins.dynamic_resources.extended import RequestMapping, is_unwritten
from app.plugins.dynamic_resources.figures import Figures
from app.plugins.dynamic_resources.pod_claims import (
    consumer,
    has_finalizer,
    is_reserved_for,
)
from app.state.devices.tracker import DeviceTracker

#: How often a claim is tried to be written that others change, and the seconds between.
_ATTEMPTS: Final = 5
_RETRY_SECONDS: Final = 0.01
#: Seconds to wait for the watch to show a claim that was created, and between two looks.
_SHOWN_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.05

R = TypeVar("R")

#: What clears an allocation, whoever had it.
DEALLOCATED: Final[Mapping[str, Any]] = {
    "status": {"allocation": None, "reservedFor": None, "devices": None}
}


class ClaimBinder:
    """Writes claims."""

    def __init__(self, tracker: DeviceTracker, figures: Figures) -> None:
        self._tracker: Final = tracker
        self._created: Final = figures.claims_created

    # ------------------------------------------------------------ before the pod is bound

    async def bind(self, devices: PodDevices, pod: Pod, effects: Effects) -> None:
        """Allocates and reserves the claims that are not the pod's yet. Raises SchedulingError at the first that fails."""
        for at, claim in enumerate(devices.claims):
            if is_reserved_for(claim, pod) or not _needed(devices, at):
                continue
            await self._bind_one(devices, at, pod, effects)

    async def _bind_one(self, devices: PodDevices, at: int, pod: Pod, effects: Effects) -> None:
        uid = devices.claims[at].uid
        reservation = devices.reservation
        allocation = None
        if reservation is not None and at in reservation.allocations:
            allocation = reservation.allocations[at]
            if at == devices.extended_at:
                await self._create(devices, at, reservation, effects)
            reservation.begun.add(at)
        claim = await self._write(devices.claims[at], allocation, pod, effects)
        devices.claims[at] = claim
        await self._take_over(claim, effects)
        if reservation is not None and allocation is not None:
            reservation.begun.discard(at)
            reservation.in_flight.discard(uid)
            self._tracker.release(uid)
            if at == devices.extended_at:
                await _explained(
                    f"update pod {pod.key} ExtendedResourceClaimStatus",
                    effects.resource_claims.tell_pod(pod, _status(claim, reservation.mappings)),
                )

    async def _create(
        self, devices: PodDevices, at: int, reservation: Reservation, effects: Effects
    ) -> None:
        """Creates the claim for extended resources, as the node needs it."""
        wanted = reservation.claims[at]
        meta = msgspec.structs.replace(wanted.metadata, name="", uid="")
        claim = msgspec.structs.replace(wanted, metadata=meta)
        outcome = "failure"
        try:
            devices.claims[at] = await _explained(
                f"create claim for extended resources {claim.namespace}/",
                effects.resource_claims.create(claim),
            )
            outcome = "success"
        finally:
            self._created[outcome] += 1

    async def _write(
        self,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
        pod: Pod,
        effects: Effects,
    ) -> ResourceClaim:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._write_once(claim, allocation, pod, effects)
            except ConflictError:
                if attempt == _ATTEMPTS:
                    raise
            await effects.sleep(_RETRY_SECONDS)
            claim = await _explained(
                f"get updated claim {claim.key} after conflict",
                effects.resource_claims.get(claim.namespace, claim.name),
            )
        raise AssertionError("unreachable")

    async def _write_once(
        self,
        claim: ResourceClaim,
        allocation: AllocationResult | None,
        pod: Pod,
        effects: Effects,
    ) -> ResourceClaim:
        if claim.metadata.deletion_timestamp is not None:
            raise SchedulingError(f"claim {claim.key} got deleted in the meantime")
        changes: dict[str, Any] = {}
        now = format_time(effects.now())
        if allocation is not None:
            if claim.status.allocation is not None:
                raise SchedulingError(f"claim {claim.key} got allocated elsewhere in the meantime")
            claim = await self._add_finalizer(claim, effects)
            changes["allocation"] = msgspec.structs.replace(allocation, allocation_timestamp=now)
        elif claim.status.allocation is None:
            raise SchedulingError(f"claim {claim.key} got deallocated elsewhere in the meantime")
        elif claim.status.allocation.allocation_timestamp is None:
            changes["allocation"] = {"allocationTimestamp": now}
        consumers = claim.status.reserved_for or ()
        if not is_reserved_for(claim, pod):
            changes["reservedFor"] = [*consumers, consumer(pod)]
        what = "reservation" if allocation is None else "allocation and reservation"
        return await _explained(
            f"add {what} to claim {claim.key}",
            effects.resource_claims.patch(claim, {"status": changes}, status=True),
        )

    async def _add_finalizer(self, claim: ResourceClaim, effects: Effects) -> ResourceClaim:
        if has_finalizer(claim):
            return claim
        return await _explained(
            f"add finalizer to claim {claim.key}",
            effects.resource_claims.add_finalizer(claim, FINALIZER),
        )

    async def _take_over(self, claim: ResourceClaim, effects: Effects) -> None:
        """Keeps what was written; a claim that the watch has not shown yet is waited for, so that its devices stay in use."""
        waited = 0.0
        while not self._tracker.claims.written(claim) and waited < _SHOWN_SECONDS:
            await effects.sleep(_LOOK_SECONDS)
            waited += _LOOK_SECONDS

    # ------------------------------------------------------------ if it cannot be bound

    async def undo(self, devices: PodDevices, pod: Pod, effects: Effects) -> None:
        """Takes the pod's reservations back, and the claim that was made for it. Raises SchedulingError after the last."""
        faults: list[Exception] = []
        for at in range(len(devices.claims)):
            try:
                await self._undo_one(devices, at, pod, effects)
            except SchedulingError as error:
                faults.append(error)
        if faults:
            raise SchedulingError("; ".join(map(str, faults)))

    async def _undo_one(self, devices: PodDevices, at: int, pod: Pod, effects: Effects) -> None:
        claim, reservation = devices.claims[at], devices.reservation
        if at == devices.extended_at:
            if not is_unwritten(claim):
                await self.delete(claim, effects)
            return
        if reservation is not None and at in reservation.begun:
            claim = await effects.resource_claims.get(claim.namespace, claim.name)
            self._tracker.claims.written(claim)
        if claim.status.allocation is not None and is_reserved_for(claim, pod):
            left = await effects.resource_claims.drop_consumer(claim, pod.uid)
            self._tracker.claims.written(left)

    async def deallocate(self, claim: ResourceClaim, effects: Effects) -> None:
        """Frees a claim's devices. Raises SchedulingError."""
        freed = await effects.resource_claims.patch(claim, DEALLOCATED, status=True)
        self._tracker.claims.written(freed)

    async def delete(self, claim: ResourceClaim, effects: Effects) -> None:
        """Deletes a claim that was made for extended resources, its finalizer first. Raises SchedulingError."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                left = [f for f in claim.metadata.finalizers or () if f != FINALIZER]
                changes = {"metadata": {"finalizers": left or None}}
                claim = await _explained(
                    f"update resourceclaim {claim.key}",
                    effects.resource_claims.patch(claim, changes),
                )
                break
            except ConflictError:
                if attempt == _ATTEMPTS:
                    raise
            await effects.sleep(_RETRY_SECONDS)
            claim = await _explained(
                f"get resourceclaim {claim.key}",
                effects.resource_claims.get(claim.namespace, claim.name),
            )
        await effects.resource_claims.delete(claim)


def _needed(devices: PodDevices, at: int) -> bool:
    """Whether a claim has anything to do with the node: extended resources may all come from elsewhere there."""
    if at != devices.extended_at:
        return True
    return devices.reservation is not None and at in devices.reservation.allocations


def _status(claim: ResourceClaim, mappings: Sequence[RequestMapping]) -> Mapping[str, Any]:
    """status.extendedResourceClaimStatus."""
    return {
        "requestMappings": [
            {"containerName": m.container, "resourceName": m.resource, "requestName": m.request}
            for m in mappings
        ],
        "resourceClaimName": claim.name,
    }


async def _explained(what: str, work: Awaitable[R]) -> R:
    """The result; faults say what was tried."""
    try:
        return await work
    except SchedulingError as error:
        raise type(error)(f"{what}: {error}") from error
