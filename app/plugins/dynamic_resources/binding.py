"""Writes claims before a pod is bound, and undoes it if the pod cannot be bound.

See docs/spec/plugins/dynamic-resources.md#prebind.

For each claim that is not reserved for the pod, in this order: create the claim, if it is for extended resources; add
the finalizer of allocated claims; write the allocation and the reservation in one request. After a conflict the claim
is read and the rest is tried again, a few times. If a write fails, its answer may have been lost: the devices stay
allocated in flight until the claim has been read.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from app.framework.handle import Effects
from app.model.devices import FINALIZER, AllocationResult, ResourceClaim
from app.model.pod import Pod
from app.model.pod_groups import PodGroup
from app.model.status import (
    SUCCESS,
    ConflictError,
    SchedulingError,
    Status,
    unresolvable,
    unschedulable,
)
from app.model.timestamps import format_time
from app.plugins.dynamic_resources.conditions import ConditionWaiter
from app.plugins.dynamic_resources.extended_resources import RequestMapping, is_unwritten
from app.plugins.dynamic_resources.pod_claims import (
    ClaimReservation,
    PodResourceClaims,
    claim_names,
    has_finalizer,
    is_reserved_for,
)
from app.state.devices import DeviceTracker

#: Attempts to write a claim that others change meanwhile, and the seconds between them.
_ATTEMPTS: Final = 5
_RETRY_SECONDS: Final = 0.01
#: Seconds to wait until the watch shows a created claim, and between two checks.
_SHOWN_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.05

R = TypeVar("R")

#: The merge patch that removes an allocation and all reservations.
_DEALLOCATED: Final[Mapping[str, Any]] = {
    "status": {"allocation": None, "reservedFor": None, "devices": None}
}


class ClaimBinder:
    """Writes claims. ``created`` and ``awaited`` count for metrics, see DynamicResources."""

    def __init__(
        self,
        tracker: DeviceTracker,
        binding_timeout: float,
        created: Counter[str],
        awaited: Counter[tuple[str, str]],
    ) -> None:
        self._tracker: Final = tracker
        self._created: Final = created
        #: The uids of claims that are being written.
        self._being_written: Final[set[str]] = set()
        #: The uids of claims that may have been deallocated, or may still be: an answer is missing.
        self._in_doubt: Final[set[str]] = set()
        tracker.claims.follow(self._claim_changed)
        self._waiter: Final = ConditionWaiter(tracker.claims, binding_timeout, awaited)

    # ------------------------------------------------------------ PreBind

    async def bind(
        self, pod_claims: PodResourceClaims, pod: Pod, node_name: str, effects: Effects
    ) -> None:
        """Allocates claims, reserves them for the pod, and waits until their devices are ready. Raises
        SchedulingError."""
        for at, claim in enumerate(pod_claims.claims):
            if claim.uid in self._in_doubt and pod_claims.may_use(claim):
                pod_claims.claims[at] = await self._look_up(claim, effects)
            if not self._is_reserved(pod_claims, at) and _needed(pod_claims, at):
                await self._bind_one(pod_claims, at, pod, effects)
        await self._waiter.wait(pod_claims, pod, node_name, effects)

    async def _look_up(self, claim: ResourceClaim, effects: Effects) -> ResourceClaim:
        """The claim, once its deallocation has taken effect or cannot do so any more."""
        latest = await _explained(
            f"get claim {claim.key}", effects.resource_claims.get(claim.namespace, claim.name)
        )
        self._in_doubt.discard(claim.uid)
        self._tracker.claims.written(latest)
        _check_devices(latest, claim)
        return latest

    def _is_reserved(self, pod_claims: PodResourceClaims, at: int) -> bool:
        """Whether a claim is reserved for the pod or its group, by this version and by the newest known one."""
        claim = pod_claims.claims[at]
        known = self._tracker.claims.get(claim.name, claim.namespace)
        still = known is not None and known.uid == claim.uid and pod_claims.may_use(known)
        return still and pod_claims.may_use(claim)

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """A deallocation changes only the version that it was sent for: a newer one shows what became of it."""
        if old is not None and (new is None or new.resource_version != old.resource_version):
            self._in_doubt.discard(old.uid)

    async def _bind_one(
        self, pod_claims: PodResourceClaims, at: int, pod: Pod, effects: Effects
    ) -> None:
        uid = pod_claims.claims[at].uid
        reservation = pod_claims.reservation
        allocation = None
        if reservation is not None and at in reservation.allocations:
            allocation = reservation.allocations[at]
            if at == pod_claims.extended_at:
                await self._create(pod_claims, at, reservation, effects)
            reservation.begun.add(at)
        claim = await self._write_in_turn(pod_claims, at, allocation, effects)
        pod_claims.claims[at] = claim
        if reservation is not None and allocation is not None:
            reservation.begun.discard(at)
            reservation.in_flight.discard(uid)
            self._tracker.release(uid)
            if at == pod_claims.extended_at:
                await _explained(
                    f"update pod {pod.key} ExtendedResourceClaimStatus",
                    effects.resource_claims.tell_pod(pod, _status(claim, reservation.mappings)),
                )

    async def _create(
        self,
        pod_claims: PodResourceClaims,
        at: int,
        reservation: ClaimReservation,
        effects: Effects,
    ) -> None:
        """Creates the claim for extended resources with the requests that the node needs."""
        wanted = reservation.claims[at]
        meta = msgspec.structs.replace(wanted.metadata, name="", uid="")
        claim = msgspec.structs.replace(wanted, metadata=meta)
        outcome = "failure"
        try:
            pod_claims.claims[at] = await _explained(
                f"create claim for extended resources {claim.namespace}/",
                effects.resource_claims.create(claim),
            )
            outcome = "success"
        finally:
            self._created[outcome] += 1

    async def _write_in_turn(
        self,
        pod_claims: PodResourceClaims,
        at: int,
        allocation: AllocationResult | None,
        effects: Effects,
    ) -> ResourceClaim:
        """Writes and stores a claim. Pods that share one write it one after another: each begins with what the last one
        wrote.
        """
        claim = pod_claims.claims[at]
        uid = claim.uid
        while uid in self._being_written:
            await effects.sleep(_LOOK_SECONDS)
        self._being_written.add(uid)
        try:
            known = self._tracker.claims.get(claim.name, claim.namespace)
            if known is not None and known.uid == uid and self._is_shared(claim):
                claim = known
            decided = claim
            claim = await _retry_conflicts(
                decided,
                lambda latest: self._write_once(
                    latest, decided, allocation, pod_claims, at, effects
                ),
                f"get updated claim {claim.key} after conflict",
                effects,
            )
            await self._store_written(claim, effects)
            return claim
        finally:
            self._being_written.discard(uid)

    async def _write_once(
        self,
        claim: ResourceClaim,
        decided: ResourceClaim,
        allocation: AllocationResult | None,
        pod_claims: PodResourceClaims,
        at: int,
        effects: Effects,
    ) -> ResourceClaim:
        if claim.metadata.deletion_timestamp is not None:
            raise SchedulingError(f"claim {claim.key} got deleted in the meantime")
        changes: dict[str, Any] = {}
        now = format_time(effects.now())
        if allocation is not None:
            written = claim.status.allocation
            if written is None:
                claim = await self._add_finalizer(claim, effects)
                changes["allocation"] = msgspec.structs.replace(
                    allocation, allocation_timestamp=now
                )
            elif not self._is_shared(claim) or written.device_names != allocation.device_names:
                raise SchedulingError(f"claim {claim.key} got allocated elsewhere in the meantime")
        elif claim.status.allocation is None:
            raise SchedulingError(f"claim {claim.key} got deallocated elsewhere in the meantime")
        else:
            _check_devices(claim, decided)
            if claim.status.allocation.allocation_timestamp is None:
                changes["allocation"] = {"allocationTimestamp": now}
        consumers = claim.status.reserved_for or ()
        if not pod_claims.may_use(claim):
            changes["reservedFor"] = [*consumers, pod_claims.consumer(at)]
        if not changes:  # another pod of the group has written all of it
            return claim
        what = "reservation" if allocation is None else "allocation and reservation"
        return await _explained(
            f"add {what} to claim {claim.key}",
            effects.resource_claims.patch(claim, {"status": changes}, status=True),
        )

    def _is_shared(self, claim: ResourceClaim) -> bool:
        """Whether pods of a group may share the claim, one of which writes the allocation for all."""
        pending = self._tracker.in_flight(claim.uid)
        return pending is not None and pending.group is not None

    async def _add_finalizer(self, claim: ResourceClaim, effects: Effects) -> ResourceClaim:
        if has_finalizer(claim):
            return claim
        return await _explained(
            f"add finalizer to claim {claim.key}",
            effects.resource_claims.add_finalizer(claim, FINALIZER),
        )

    async def _store_written(self, claim: ResourceClaim, effects: Effects) -> None:
        """Stores a written claim. Waits until the watch has shown it, because its devices are in use by the stored
        claim."""
        waited = 0.0
        while not self._tracker.claims.written(claim) and waited < _SHOWN_SECONDS:
            await effects.sleep(_LOOK_SECONDS)
            waited += _LOOK_SECONDS

    # ------------------------------------------------------------ undoing PreBind

    async def undo(self, pod_claims: PodResourceClaims, pod: Pod, effects: Effects) -> None:
        """Removes the pod's reservations, and deletes the claim created for it. Raises SchedulingError after the last
        claim."""
        errors: list[Exception] = []
        for at in range(len(pod_claims.claims)):
            try:
                await self._undo_one(pod_claims, at, pod, effects)
            except SchedulingError as error:
                errors.append(error)
        if errors:
            raise SchedulingError("; ".join(map(str, errors)))

    async def _undo_one(
        self, pod_claims: PodResourceClaims, at: int, pod: Pod, effects: Effects
    ) -> None:
        claim, reservation = pod_claims.claims[at], pod_claims.reservation
        if at == pod_claims.extended_at:
            if not is_unwritten(claim):
                await self._delete(claim, effects)
            return
        if reservation is not None and at in reservation.begun:
            claim = await effects.resource_claims.get(claim.namespace, claim.name)
            self._tracker.claims.written(claim)
        if claim.status.allocation is not None and is_reserved_for(claim, pod):
            await self._drop(claim, pod, effects)

    async def _drop(self, claim: ResourceClaim, pod: Pod, effects: Effects) -> None:
        """Removes the pod's reservation.

        If a write fails, the claim is read: the pod's next attempt must not rely on a reservation that a late write
        removes.
        """
        failure = SchedulingError(f"claim {claim.key} is still reserved for pod {pod.key}")
        for attempt in range(_ATTEMPTS):
            if attempt:
                await effects.sleep(_RETRY_SECONDS)
            try:
                claim = await effects.resource_claims.patch(
                    claim, _without(pod, claim), status=True
                )
            except SchedulingError as error:
                failure = error
                claim = await effects.resource_claims.get(claim.namespace, claim.name)
            self._tracker.claims.written(claim)
            if not is_reserved_for(claim, pod):
                return
        raise failure

    # ------------------------------------------------------------ PostFilter

    async def free_one(self, pod_claims: PodResourceClaims, pod: Pod, effects: Effects) -> str:
        """Deallocates one unavailable claim that no other pod uses, or deletes the claim for extended resources.

        Returns kube-scheduler's message about it, empty if there is none. Raises SchedulingError.
        """
        for at in pod_claims.unavailable:
            claim = pod_claims.claims[at]
            if claim.status.allocation is None:
                continue
            consumers = claim.status.reserved_for or ()
            if not consumers or [consumer.uid for consumer in consumers] == [pod.uid]:
                await self._change_in_doubt(claim, _DEALLOCATED, effects)
                return "deallocation of ResourceClaim completed"
        extended = pod_claims.extended
        if extended is not None and not is_unwritten(extended):
            await self._delete(extended, effects)
            return "deletion of ResourceClaim completed"
        return ""

    async def free_for_group(
        self, group: PodGroup, of_pods: Sequence[PodResourceClaims | None], effects: Effects
    ) -> Status:
        """Deallocates one unavailable claim of a group's pods that nobody else uses. Without one makes the group leave
        one of its claims.

        Success if there is none of either. Raises SchedulingError if a deallocation fails.
        """
        unavailable = {
            pod_claims.claims[at].key: pod_claims.claims[at].uid
            for pod_claims in of_pods
            if pod_claims is not None
            for at in pod_claims.unavailable
        }
        for key, uid in unavailable.items():
            claim = self._allocated(*key.split("/"))
            if claim is None or claim.uid != uid:
                continue
            if all(each.uid == group.uid for each in claim.status.reserved_for or ()):
                await self._change_in_doubt(claim, _DEALLOCATED, effects)
                return unschedulable("deallocation of PodGroup ResourceClaim completed")
        for name, made in claim_names(group).items():
            claim = self._allocated(group.namespace, name)
            if claim is None or (made and claim.controller_uid != group.uid):
                continue
            if is_reserved_for(claim, group):
                try:
                    await self._change_in_doubt(claim, _without(group, claim), effects)
                except SchedulingError:
                    continue  # the group's next attempt tries it again
                return unresolvable("ResourceClaim unreserved for PodGroup")
        return SUCCESS

    def _allocated(self, namespace: str, name: str) -> ResourceClaim | None:
        """The newest known version of a claim, if it is allocated."""
        claim = self._tracker.claims.get(name, namespace)
        return None if claim is None or claim.status.allocation is None else claim

    async def _change_in_doubt(
        self, claim: ResourceClaim, changes: Mapping[str, Any], effects: Effects
    ) -> None:
        """Deallocates a claim, or removes a reservation.

        If this fails, it may have taken effect: the next attempts must not rely on reservations (see ``bind``).
        """
        self._in_doubt.add(claim.uid)
        freed = await effects.resource_claims.patch(claim, changes, status=True)
        self._in_doubt.discard(claim.uid)
        self._tracker.claims.written(freed)

    async def _delete(self, claim: ResourceClaim, effects: Effects) -> None:
        """Removes the finalizer of a claim for extended resources, and deletes it."""

        async def remove_finalizer(latest: ResourceClaim) -> ResourceClaim:
            left = [f for f in latest.metadata.finalizers or () if f != FINALIZER]
            changes = {"metadata": {"finalizers": left or None}}
            return await _explained(
                f"update resourceclaim {latest.key}", effects.resource_claims.patch(latest, changes)
            )

        claim = await _retry_conflicts(
            claim, remove_finalizer, f"get resourceclaim {claim.key}", effects
        )
        await effects.resource_claims.delete(claim)


def _without(user: Pod | PodGroup, claim: ResourceClaim) -> Mapping[str, Any]:
    """The merge patch that removes a pod or a group from the consumers of a claim."""
    left = [each for each in claim.status.reserved_for or () if each.uid != user.uid]
    return {"status": {"reservedFor": left}}


def _check_devices(claim: ResourceClaim, decided: ResourceClaim) -> None:
    """Raises SchedulingError if a claim has other devices than the one for which the node was chosen: they may be
    elsewhere.
    """
    now, before = claim.status.allocation, decided.status.allocation
    if now is not None and before is not None and now.device_names != before.device_names:
        raise SchedulingError(f"claim {claim.key} got allocated elsewhere in the meantime")


def _needed(pod_claims: PodResourceClaims, at: int) -> bool:
    """Whether the node needs a claim: it may advertise all extended resources itself."""
    if at != pod_claims.extended_at:
        return True
    return pod_claims.reservation is not None and at in pod_claims.reservation.allocations


def _status(claim: ResourceClaim, mappings: Sequence[RequestMapping]) -> Mapping[str, Any]:
    """The pod's status.extendedResourceClaimStatus."""
    return {
        "requestMappings": [
            {"containerName": m.container, "resourceName": m.resource, "requestName": m.request}
            for m in mappings
        ],
        "resourceClaimName": claim.name,
    }


async def _explained(what: str, work: Awaitable[R]) -> R:
    """The result; errors say what was tried."""
    try:
        return await work
    except SchedulingError as error:
        raise type(error)(f"{what}: {error}") from error


async def _retry_conflicts(
    claim: ResourceClaim,
    write: Callable[[ResourceClaim], Awaitable[ResourceClaim]],
    reading: str,
    effects: Effects,
) -> ResourceClaim:
    """The result of ``write``. After a conflict it reads the claim (``reading`` explains errors) and tries again."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await write(claim)
        except ConflictError:
            await effects.sleep(_RETRY_SECONDS)
        claim = await _explained(reading, effects.resource_claims.get(claim.namespace, claim.name))
    return await write(claim)
