"""The state of devices that all profiles share, so that none allocates a device that another has allocated.

See docs/spec/plugins/dynamic-resources.md#reserve.

A device is in use from the decision on: first by an allocation in flight, which only this process knows, then by the claim in
which the allocation is written.
"""

from typing import Final

from app.model.devices import AllocationResult, DeviceClass, ResourceClaim
from app.state.devices.claims import ResourceClaims
from app.state.devices.classes import ClassesByResource
from app.state.devices.usage import AllocatedState
from app.state.lister import Lister


class DeviceTracker:
    """Claims, allocations in flight, and the devices that are in use by either."""

    def __init__(self, claims: Lister[ResourceClaim], classes: Lister[DeviceClass]) -> None:
        self.claims: Final = ResourceClaims(claims)
        self.classes: Final = ClassesByResource(classes)
        self.allocated: Final = AllocatedState()
        self._in_flight: Final[dict[str, AllocationResult]] = {}
        for known in self.claims:
            self._claim_changed(None, known)
        self.claims.follow(self._claim_changed)

    def in_flight(self, uid: str) -> bool:
        """Whether a claim has an allocation that is not written yet."""
        return uid in self._in_flight

    def reserve(self, uid: str, allocation: AllocationResult) -> None:
        """Adds an allocation in flight for a claim."""
        self.release(uid)
        self._in_flight[uid] = allocation
        self.allocated.add(allocation)

    def release(self, uid: str) -> None:
        """Removes a claim's allocation in flight, if there is one: it is written, or will not be."""
        allocation = self._in_flight.pop(uid, None)
        if allocation is not None:
            self.allocated.remove(allocation)

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        before = None if old is None else old.status.allocation
        after = None if new is None else new.status.allocation
        if before is not None and after is not None and before == after:
            return
        if after is not None:
            self.allocated.add(after)
        if before is not None:
            self.allocated.remove(before)
