"""The devices in use, by pool, updated claim by claim (KEP-4381; KEP-5075 for devices that several claims share)."""

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from app.model import quantity
from app.model.devices import AllocationResult, DeviceResult

#: Driver and pool.
PoolKey = tuple[str, str]


class PoolUse:
    """What is in use of one pool. Only AllocatedState changes it."""

    __slots__ = ("capacity", "devices", "shares", "version")

    def __init__(self) -> None:
        #: Devices that are allocated exclusively, and to how many claims: more than one if another scheduler allocates too.
        self.devices: Final[dict[str, int]] = {}
        #: The ids of the shares of devices that several claims can have, each with a count as for ``devices``.
        self.shares: Final[dict[str, dict[str, int]]] = {}
        #: Nano-units consumed of shared devices, by device and name of the capacity.
        self.capacity: Final[dict[str, dict[str, int]]] = {}
        #: AllocatedState's version at the last change.
        self.version = 0

    @property
    def empty(self) -> bool:
        """Whether nothing is in use."""
        return not self.devices and not self.shares


NOTHING: Final = PoolUse()


class AllocatedState:
    """Every device in use. Allocations with admin access use nothing."""

    def __init__(self) -> None:
        #: Pools of which something is in use.
        self.pools: Final[dict[PoolKey, PoolUse]] = {}
        #: Grows with every change.
        self.version = 0
        self._followers: list[Callable[[PoolKey], None]] = []

    def pool(self, driver: str, pool: str) -> PoolUse:
        """What is in use of one pool."""
        return self.pools.get((driver, pool), NOTHING)

    def follow(self, follower: Callable[[PoolKey], None]) -> None:
        """Calls ``follower((driver, pool))`` after every future change of a pool."""
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
    """A quantity in nano-units; 0 for one that cannot be read, which API servers do not accept."""
    try:
        return quantity.parse(amount)
    except quantity.QuantityError:
        return 0
