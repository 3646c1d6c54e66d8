"""What DynamicResources does about a pod that has claims; made for the first such pod, as few clusters have any."""

import uuid
from typing import Final

from app.cel.devices import Selectors
from app.framework.args import DynamicResourcesArgs
from app.framework.interface import Effects, Handle, Verdicts
from app.model.devices import DeviceRequest, ResourceClaim
from app.model.pod import Pod
from app.model.requests import Amounts
from app.model.status import SKIP, SUCCESS, Code, Status, unresolvable
from app.plugins.dynamic_resources.allocator import Allocator
from app.plugins.dynamic_resources.attempt import PodDevices, Reservation
from app.plugins.dynamic_resources.binding import ClaimBinder
from app.plugins.dynamic_resources.budget import Budget
from app.plugins.dynamic_resources.extended import is_unwritten, unwritten_claim
from app.plugins.dynamic_resources.figures import Figures
from app.plugins.dynamic_resources.filtering import Finder
from app.plugins.dynamic_resources.pod_claims import ClaimProblem, claims_of
from app.plugins.dynamic_resources.scoring import scores
from app.plugins.dynamic_resources.waiting import Waiter
from app.plugins.helpers.node_selector import (
    NodeSelectorMatcher,
    UnreadableTermsError,
    compile_node_selector,
)
from app.state.columns.resources import Int64
from app.state.view import View


class ClaimWork:
    """The extension points, for pods with claims."""

    def __init__(self, args: DynamicResourcesArgs, handle: Handle, figures: Figures) -> None:
        cluster, rng = handle.cluster, handle.rng
        tracker, timeout = cluster.devices, args.binding_timeout
        self._table: Final = handle.table
        self._clock: Final = handle.clock
        self._filter_timeout: Final = args.filter_timeout
        self._tracker: Final = tracker
        self._classes: Final = cluster.device_classes
        allocator = Allocator(
            handle.table,
            cluster.resource_slices,
            cluster.device_classes,
            tracker.allocated,
            Selectors(),
            share_id=lambda: str(uuid.UUID(bytes=rng.bytes(16), version=4)),
        )
        self._finder: Final = Finder(
            handle.table, tracker.classes, allocator, handle.clock, timeout
        )
        self._binder: Final = ClaimBinder(tracker, figures)
        self._waiter: Final = Waiter(tracker.claims, timeout, figures)

    # ------------------------------------------------------------ which nodes

    def prepare(self, pod: Pod, resources: Amounts) -> PodDevices | Status:
        """The pod's claims, that for its extended ``resources`` included; or why they can be used nowhere."""
        try:
            claims = claims_of(pod, self._tracker.claims)
        except ClaimProblem as problem:
            return unresolvable(str(problem))
        extended = None
        if resources:
            known = self._tracker.claims.for_extended_resources(pod.uid)
            extended = known or unwritten_claim(pod)
        elif not claims:
            return SKIP
        selectors: dict[int, NodeSelectorMatcher] = {}
        for at, claim in enumerate(claims):
            verdict = self._check(claim)
            if verdict is not None:
                return verdict
            allocation = claim.status.allocation
            if allocation is not None and allocation.node_selector is not None:
                selectors[at] = compile_node_selector(allocation.node_selector)
                if selectors[at].errors:
                    fault = str(UnreadableTermsError(selectors[at].errors))
                    return Status(Code.Error, (fault,))
        return PodDevices(
            claims,
            extended=extended,
            resources=resources,
            selectors=selectors,
            budget=Budget(self._clock, self._filter_timeout),
        )

    def _check(self, claim: ResourceClaim) -> Status | None:
        """What keeps a claim without an allocation from being allocated anywhere; None for nothing."""
        if claim.status.allocation is not None:
            return None
        if self._tracker.in_flight(claim.uid):
            return unresolvable(f"resource claim {claim.key} is in the process of being allocated")
        for request in claim.spec.devices.requests or ():
            named = _classes_of(request)
            if not named:
                return unresolvable(
                    f"resource claim {claim.key}, request {request.name}: unknown request type"
                )
            for name, device_class in named:
                if not device_class:
                    text = f"request {name}: unsupported request type"
                    return Status(Code.Error, (text,))
                if self._classes.get(device_class) is None:
                    return unresolvable(
                        f"request {name}: device class {device_class} does not exist"
                    )
        return None

    def judge(self, devices: PodDevices, pod: Pod, view: View) -> Verdicts | None:
        """See Filter."""
        return self._finder.judge(devices, pod, view)

    def scores(self, devices: PodDevices, view: View) -> Int64 | None:
        """See Score."""
        return scores(devices, view)

    async def free(self, devices: PodDevices, pod: Pod, effects: Effects) -> str:
        """Frees one claim that is in the way, if nobody else uses it; says what was done. Raises SchedulingError."""
        for at in devices.unavailable:
            claim = devices.claims[at]
            consumers = claim.status.reserved_for or ()
            if not consumers or [consumer.uid for consumer in consumers] == [pod.uid]:
                await self._binder.deallocate(claim, effects)
                return "deallocation of ResourceClaim completed"
        extended = devices.extended
        if extended is not None and not is_unwritten(extended):
            await self._binder.delete(extended, effects)
            return "deletion of ResourceClaim completed"
        return "still not schedulable"

    # ------------------------------------------------------------ giving devices to claims

    def reserve(self, devices: PodDevices, node_name: str) -> Status:
        """Sets the devices aside that were found on the node; nothing to do where all claims are allocated."""
        row = self._table.row_of.get(node_name)
        found = None if row is None else devices.found_on(row)
        if found is None:
            if not devices.to_allocate:
                return SUCCESS
            return Status(Code.Error, ("claim allocation not found for node",))
        search, position = found
        allocations = dict(zip(search.wanted, search.found.results(position), strict=True))
        reservation = Reservation(allocations, search.wanted, search.mappings)
        for at, allocation in allocations.items():
            uid = devices.claims[at].uid
            self._tracker.reserve(uid, allocation)
            reservation.in_flight.add(uid)
        devices.reservation = reservation
        return SUCCESS

    def unreserve(self, devices: PodDevices) -> None:
        """Gives back what was set aside and not written."""
        if devices.reservation is not None:
            for uid in devices.reservation.in_flight:
                self._tracker.release(uid)
            devices.reservation = None

    async def bind(self, devices: PodDevices, pod: Pod, node_name: str, effects: Effects) -> None:
        """Writes allocations and reservations, and waits until the devices are ready. Raises SchedulingError."""
        await self._binder.bind(devices, pod, effects)
        await self._waiter.wait(devices, pod, node_name, effects)

    async def undo(self, devices: PodDevices, pod: Pod, effects: Effects) -> None:
        """Takes the pod's reservations back, and the claim that was made for it. Raises SchedulingError."""
        await self._binder.undo(devices, pod, effects)


def _classes_of(request: DeviceRequest) -> list[tuple[str, str]]:
    """(request, class) of a request, or of its alternatives; none where it is of a kind that is not known."""
    if request.exactly is not None:
        return [(request.name, request.exactly.device_class_name)]
    return [
        (f"{request.name}/{alternative.name}", alternative.device_class_name)
        for alternative in request.first_available or ()
    ]
