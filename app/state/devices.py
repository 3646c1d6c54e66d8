"""ResourceClaims, DeviceClasses, and the devices in use, shared by all profiles (KEP-4381).

See docs/spec/plugins/dynamic-resources.md#reserve.

A device is in use from the decision on: first through an allocation in flight, which only this process knows, then
through the claim in which the allocation is written. A claim that we have written counts at once, not only when the
watch shows it: another pod may be scheduled in between and must not get the same devices.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from app.model import quantity
from app.model.devices import (
    CLASS_PREFIX,
    EXTENDED_RESOURCE_CLAIM,
    AllocationResult,
    DeviceClass,
    DeviceResult,
    ResourceClaim,
)
from app.model.pod_groups import GroupKey
from app.model.requests import is_extended
from app.state.assume_cache import AssumeCache
from app.state.lister import Lister


class DeviceTracker:
    """Claims, allocations in flight, and the devices that are in use by either."""

    def __init__(self, claims: Lister[ResourceClaim], classes: Lister[DeviceClass]) -> None:
        self.claims: Final = ResourceClaims(claims)
        self.classes: Final = ClassesByResource(classes)
        self.allocated: Final = AllocatedState()
        self._in_flight: Final[dict[str, _InFlight]] = {}
        for known in self.claims:
            self._claim_changed(None, known)
        self.claims.follow(self._claim_changed)

    def in_flight(self, uid: str) -> "_InFlight | None":
        """A claim's allocation in flight."""
        return self._in_flight.get(uid)

    def in_flights(self) -> Iterable[tuple[str, "_InFlight"]]:
        """All allocations in flight, by uid of the claim."""
        return self._in_flight.items()

    def reserve(
        self, uid: str, allocation: AllocationResult, group: GroupKey | None = None
    ) -> None:
        """Adds an allocation in flight for a claim, or another pod of the ``group`` that waits for the same one."""
        known = self._in_flight.get(uid)
        if known is not None and known.allocation is allocation:
            self._in_flight[uid] = known._replace(pods=known.pods + 1)
            return
        self._in_flight[uid] = _InFlight(allocation, group, 1)
        self.allocated.add(allocation)
        if known is not None:
            self.allocated.remove(known.allocation)

    def release(self, uid: str) -> None:
        """A pod no longer waits for a claim's allocation in flight: it was written or given up. The last one removes
        it."""
        known = self._in_flight.pop(uid, None)
        if known is None:
            return
        if known.pods > 1:
            self._in_flight[uid] = known._replace(pods=known.pods - 1)
        else:
            self.allocated.remove(known.allocation)

    def _claim_changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        before = None if old is None else old.status.allocation
        after = None if new is None else new.status.allocation
        if before is not None and after is not None and before == after:
            return
        if after is not None:
            self.allocated.add(after)
        if before is not None:
            self.allocated.remove(before)


class _InFlight(NamedTuple):
    """An allocation that is decided and not written."""

    allocation: AllocationResult
    #: The group whose pods may share the claim before it is written.
    group: GroupKey | None
    #: How many pods wait for it.
    pods: int


class ResourceClaims(AssumeCache[ResourceClaim]):
    """The claims, each in its newest version from the watch or from the response to a write."""

    def __init__(self, lister: Lister[ResourceClaim]) -> None:
        super().__init__(lister, "resourceclaims")
        #: The claims for extended resources, by the uid of their pod.
        self._extended: Final[dict[str, ResourceClaim]] = {}
        for known in lister:
            self._index(None, known)
        self.follow(self._index)

    def for_extended_resources(self, pod_uid: str) -> ResourceClaim | None:
        """The claim that an earlier attempt created for a pod's extended resources, or None."""
        return self._extended.get(pod_uid)

    def written(self, claim: ResourceClaim) -> bool:
        """Stores the response to a write, unless a newer version is known. False if the watch has not shown the claim
        yet.

        Such a claim is not stored: if it were deleted before the watch shows it, no event would remove it.
        """
        stored = self.current(claim.name, claim.namespace)
        if stored is None or stored.uid != claim.uid:
            return False
        known = self.get(claim.name, claim.namespace) or stored
        if _version(claim) > _version(known):
            self._put(claim)
        return True

    def _supersedes(self, stored: ResourceClaim, assumed: ResourceClaim) -> bool:
        return stored.uid != assumed.uid or _version(stored) >= _version(assumed)

    def _index(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if old is not None and (owner := _extended_for(old)):
            self._extended.pop(owner, None)
        if new is not None and (owner := _extended_for(new)):
            self._extended[owner] = new


def _extended_for(claim: ResourceClaim) -> str:
    """The uid of the pod for whose extended resources a claim was created; empty for other claims."""
    return claim.controller_uid if claim.annotations.get(EXTENDED_RESOURCE_CLAIM) == "true" else ""


def _version(claim: ResourceClaim) -> int:
    """The resourceVersion as a number; 0 if it is not a number of plausible length."""
    version = claim.resource_version
    return int(version) if version.isascii() and version.isdigit() and len(version) < 40 else 0


def may_be_devices(resource: str) -> bool:
    """Whether a DeviceClass can provide a resource of this name."""
    return is_extended(resource) or resource.startswith(CLASS_PREFIX)


class ClassesByResource:
    """DeviceClasses by the extended resources that they provide: spec.extendedResourceName, and one with the class's
    name.

    If several classes name the same resource, the newest provides it; of equally new ones the first by name.
    """

    def __init__(self, lister: Lister[DeviceClass]) -> None:
        self._lister: Final = lister
        self._named: Final[dict[str, list[DeviceClass]]] = {}
        self._count = 0
        #: Incremented when the class of a resource may have changed.
        self.version = 0
        for known in lister:
            self._changed(None, known)
        lister.follow(self._changed)

    def __bool__(self) -> bool:
        """Whether there is any class."""
        return self._count > 0

    def get(self, resource: str) -> DeviceClass | None:
        """The class that provides a resource, or None."""
        if resource.startswith(CLASS_PREFIX):
            return self._lister.get(resource.removeprefix(CLASS_PREFIX))
        named = self._named.get(resource)
        return named[0] if named else None

    def _changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        if old is not None and old.spec.extended_resource_name:
            name = old.spec.extended_resource_name
            rivals = [rival for rival in self._named.pop(name, ()) if rival.name != old.name]
            if rivals:
                self._named[name] = rivals
        if new is not None and new.spec.extended_resource_name:
            rivals = self._named.setdefault(new.spec.extended_resource_name, [])
            rivals.append(new)
            rivals.sort(key=lambda rival: rival.name)
            rivals.sort(key=lambda rival: rival.metadata.creation_timestamp or "", reverse=True)
        self._count += (new is not None) - (old is not None)
        self.version += 1


#: Driver and pool.
PoolKey = tuple[str, str]


class PoolUse:
    """The devices in use of one pool. Only AllocatedState changes it."""

    __slots__ = ("capacity", "devices", "shares", "version")

    def __init__(self) -> None:
        #: Devices that are allocated exclusively, with the number of claims (more than one if another scheduler
        #: allocates too).
        self.devices: Final[dict[str, int]] = {}
        #: The share ids of devices that several claims can share, with the number of claims.
        self.shares: Final[dict[str, dict[str, int]]] = {}
        #: Consumed capacity of shared devices in nano-units, by device and capacity name.
        self.capacity: Final[dict[str, dict[str, int]]] = {}
        #: AllocatedState's version at the last change.
        self.version = 0

    @property
    def empty(self) -> bool:
        """Whether nothing is in use."""
        return not self.devices and not self.shares


NOTHING: Final = PoolUse()


class AllocatedState:
    """All devices in use. Allocations with admin access are not counted."""

    def __init__(self) -> None:
        #: Pools with devices in use.
        self.pools: Final[dict[PoolKey, PoolUse]] = {}
        #: Incremented with every change.
        self.version = 0
        self._followers: list[Callable[[PoolKey], None]] = []

    def pool(self, driver: str, pool: str) -> PoolUse:
        """The devices in use of one pool."""
        return self.pools.get((driver, pool), NOTHING)

    def follow(self, follower: Callable[[PoolKey], None]) -> None:
        """Calls ``follower((driver, pool))`` after every change of a pool, from now on."""
        self._followers.append(follower)

    def add(self, allocation: AllocationResult) -> None:
        """Marks the devices of an allocation as in use."""
        self._change(allocation, 1)

    def remove(self, allocation: AllocationResult) -> None:
        """Releases the devices of an allocation."""
        self._change(allocation, -1)

    def _change(self, allocation: AllocationResult, sign: int) -> None:
        by_pool: defaultdict[PoolKey, list[DeviceResult]] = defaultdict(list)
        for result in allocation.devices.results or ():
            if not result.admin_access:
                by_pool[result.driver, result.pool].append(result)
        for key, results in by_pool.items():
            use = self.pools.setdefault(key, PoolUse())
            for result in results:
                _count(use, result, sign)
            self.version += 1
            use.version = self.version
            if use.empty:
                del self.pools[key]
            for follower in self._followers:
                follower(key)


def _count(use: PoolUse, result: DeviceResult, sign: int) -> None:
    if result.share_id is None:
        _add(use.devices, result.device, sign)
        return
    _add(use.shares.setdefault(result.device, {}), result.share_id, sign)
    consumed = use.capacity.setdefault(result.device, {})
    for name, amount in (result.consumed_capacity or {}).items():
        _add(consumed, name, sign * nanos_of(amount))
    if not use.shares[result.device]:
        del use.shares[result.device]
    if not consumed:
        del use.capacity[result.device]


def _add(counts: dict[str, int], key: str, amount: int) -> None:
    """Adds to a count, and removes it if it becomes 0."""
    total = counts.get(key, 0) + amount
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


def nanos_of(amount: str | float) -> int:
    """A quantity in nano-units; 0 if it is invalid, which API servers do not accept."""
    try:
        return quantity.parse(amount)
    except quantity.QuantityError:
        return 0
