"""Pools of devices as a node sees them (KEP-4381).

A pool is what the slices of one driver and pool name describe together. What a node sees of it are the slices that it can
reach, and slices with shared counters, wherever they are said to be. Of these only the ones of the highest generation count.
With as many as the pool is said to have it is complete. Else all its slices are looked at: if some are of a newer generation,
the driver is about to replace what the node sees, and the node sees nothing of the pool; if there are fewer than said or more,
the pool is incomplete. A pool with two devices or two counter sets of one name, or with a device that consumes counters that
do not exist, is invalid. Devices of incomplete and of invalid pools are not allocated.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from app.model import quantity
from app.model.devices import Counter, Device, DeviceTaint, ResourceSlice
from app.plugins.dynamic_resources.capacity import Capacities
from app.state.devices.usage import PoolKey, PoolUse

#: Name of the counter set, and of the counter.
CounterName = tuple[str, str]
#: Counters and how much of each, in nano-units.
Consumption = tuple[tuple[CounterName, int], ...]

#: Taints with other effects, "None" among them, are for people to read.
_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_encode: Final = msgspec.msgpack.Encoder().encode


def _nanos(counter: Counter) -> int:
    try:
        return quantity.parse(counter.value)
    except quantity.QuantityError:
        return 0


class Traits:
    """What allocation looks at of a device beside its attributes. Devices with equal traits share one object."""

    __slots__ = ("__weakref__", "capacities", "consumes", "shared", "taints")

    def __init__(self, device: Device) -> None:
        #: Whether several claims may have the device at the same time.
        self.shared: Final = bool(device.allow_multiple_allocations)
        #: Those that keep requests away.
        self.taints: Final[tuple[DeviceTaint, ...]] = tuple(
            [taint for taint in device.taints or () if taint.effect in _EFFECTS]
        )
        self.capacities: Final = Capacities(device.capacity)
        self.consumes: Final[Consumption] = tuple(
            [
                ((each.counter_set, name), _nanos(counter))
                for each in device.consumes_counters or ()
                for name, counter in (each.counters or {}).items()
            ]
        )


class TraitsCache:
    """Finds the traits of a device by what they are made from."""

    def __init__(self) -> None:
        self._known: Final[WeakValueDictionary[bytes, Traits]] = WeakValueDictionary()

    def of(self, device: Device) -> Traits:
        """The traits of a device."""
        taints = [(t.key, t.value, t.effect) for t in device.taints or ()]
        key = _encode(
            (device.allow_multiple_allocations, taints, device.capacity, device.consumes_counters)
        )
        traits = self._known.get(key)
        if traits is None:
            traits = self._known[key] = Traits(device)
        return traits


class Offer:
    """A device as a slice offers it."""

    __slots__ = ("device", "slice", "traits")

    def __init__(self, device: Device, offered_by: ResourceSlice, traits: Traits) -> None:
        self.device: Final = device
        self.slice: Final = offered_by
        self.traits: Final = traits


class PoolState(enum.Enum):
    """Whether devices of a pool can be allocated."""

    USABLE = 0
    INCOMPLETE = 1
    INVALID = 2


class Usage:
    """What is in use of what a node sees of a pool. ``key``: equal where uses are alike, by position.

    ``taken``: positions of the devices that a claim has for itself; ``consumed``: nano-units of the capacity of shared devices
    by position, in the order of the names; ``left``: nano-units of every shared counter.
    """

    __slots__ = ("consumed", "key", "left", "taken")

    def __init__(
        self,
        taken: frozenset[int],
        consumed: Mapping[int, tuple[int, ...]],
        left: Mapping[CounterName, int],
    ) -> None:
        self.taken: Final = taken
        self.consumed: Final = consumed
        self.left: Final = left
        self.key: Final = (taken, tuple(sorted(consumed.items())), tuple(left.values()))


class PoolView:
    """What some nodes see of a pool.

    ``offers``: its devices in the order in which they are tried: by name of the slice, then as listed there. ``reachable``:
    for pools that say of each device which nodes reach it, whether these do. ``late``: some device has binding conditions, so
    other pools are tried first. ``usage`` is up to date with every call.
    """

    __slots__ = (
        "__weakref__",
        "_counters",
        "_elsewhere",
        "_place",
        "_usage",
        "_use",
        "key",
        "late",
        "offers",
        "reachable",
        "state",
    )

    def __init__(
        self,
        key: PoolKey,
        state: PoolState,
        offers: Sequence[Offer] = (),
        elsewhere: Sequence[Offer] = (),
        counters: Mapping[CounterName, int] | None = None,
        reachable: tuple[bool, ...] | None = None,
    ) -> None:
        self.key: Final = key
        self.state: Final = state
        self.offers: Final = tuple(offers)
        self.reachable: Final = reachable
        self.late: Final = any(offer.device.binding_conditions for offer in self.offers)
        #: Offers of slices that these nodes do not reach: their devices consume the same counters.
        self._elsewhere = tuple(elsewhere)
        self._counters = counters or {}
        self._place = {offer.device.name: place for place, offer in enumerate(self.offers)}
        self._usage: Usage | None = None
        self._use: tuple[PoolUse, int] | None = None

    @property
    def name(self) -> str:
        """Driver and pool, as in messages."""
        return "/".join(self.key)

    def usage(self, use: PoolUse) -> Usage:
        """What is in use, when ``use`` is what is in use of the pool."""
        now = (use, use.version)
        if self._usage is None or self._use != now:
            self._use = now
            self._usage = self._look_at(use)
        return self._usage

    def _look_at(self, use: PoolUse) -> Usage:
        place = self._place
        taken = frozenset([place[name] for name in use.devices if name in place])
        consumed = {}
        for name, amounts in use.capacity.items():
            if name in place:
                capacities = self.offers[place[name]].traits.capacities
                consumed[place[name]] = capacities.in_use(amounts) or ()
        return Usage(taken, consumed, self._left(use))

    def _left(self, use: PoolUse) -> Mapping[CounterName, int]:
        """What devices that are allocated, on whatever node, leave of the counters. Can be negative."""
        left = dict(self._counters)
        if not left:
            return left
        for offers in (self.offers, self._elsewhere):
            for offer in offers:
                name = offer.device.name
                if name in use.devices or name in use.shares or name in use.capacity:
                    for counter, amount in offer.traits.consumes:
                        left[counter] -= amount
        return left


def in_order(views: Iterable[PoolView]) -> list[PoolView]:
    """The views in the order in which pools are tried: by driver and name, those with binding conditions last."""
    return sorted(views, key=lambda view: (view.late, view.key))


class Pool:
    """The slices of one driver and pool name, by name of the slice."""

    __slots__ = ("_traits", "key", "offers", "slices")

    def __init__(self, key: PoolKey, traits: TraitsCache) -> None:
        self.key: Final = key
        self.slices: Final[dict[str, ResourceSlice]] = {}
        self.offers: Final[dict[str, tuple[Offer, ...]]] = {}
        self._traits = traits

    def put(self, one: ResourceSlice) -> None:
        """Adds a slice or takes over its new version."""
        self.slices[one.name] = one
        traits = self._traits.of
        self.offers[one.name] = tuple(
            [Offer(device, one, traits(device)) for device in one.spec.devices or ()]
        )

    def drop(self, one: ResourceSlice) -> None:
        """Forgets a slice."""
        self.slices.pop(one.name, None)
        self.offers.pop(one.name, None)

    def seen(
        self, reached: Iterable[str], reaches_device: Callable[[Device], bool] | None = None
    ) -> PoolView | None:
        """What nodes see of the pool that reach the slices of these names; None if that is nothing.

        ``reaches_device``: asked about devices of slices that say so of each device.
        """
        names = set(reached)
        names.update(name for name, one in self.slices.items() if one.spec.shared_counters)
        if not names:
            return None
        generation = max(self.slices[name].spec.pool.generation for name in names)
        chosen = [
            one
            for name, one in self.slices.items()
            if name in names and one.spec.pool.generation == generation
        ]
        # Should slices disagree, those of the node itself are asked first.
        first = next((one for one in chosen if _on_node(one)), chosen[0])
        wanted = first.spec.pool.resource_slice_count
        everything = chosen
        if len(chosen) != wanted:
            if any(one.spec.pool.generation > generation for one in self.slices.values()):
                return None
            everything = [
                one for one in self.slices.values() if one.spec.pool.generation == generation
            ]
            if len(everything) != wanted:
                return PoolView(self.key, PoolState.INCOMPLETE)
        return self._build(chosen, everything, reaches_device)

    def _build(
        self,
        chosen: Sequence[ResourceSlice],
        everything: Sequence[ResourceSlice],
        reaches_device: Callable[[Device], bool] | None,
    ) -> PoolView:
        names = {one.name for one in chosen}
        with_devices = sorted(
            (one for one in chosen if not one.spec.shared_counters), key=lambda one: one.name
        )
        offers = [offer for one in with_devices for offer in self.offers[one.name]]
        elsewhere = [
            offer for one in everything if one.name not in names for offer in self.offers[one.name]
        ]
        sets = _counter_sets(chosen)
        if (
            sets is None
            or len({offer.device.name for offer in offers}) != len(offers)
            or not _consumable(everything, sets)
        ):
            return PoolView(self.key, PoolState.INVALID)
        counters = {
            (name, counter): amount
            for name in sorted(sets)
            for counter, amount in sets[name].items()
        }
        reachable = None
        if reaches_device is not None:
            reachable = tuple(
                [
                    not offer.slice.spec.per_device_node_selection or reaches_device(offer.device)
                    for offer in offers
                ]
            )
        return PoolView(self.key, PoolState.USABLE, offers, elsewhere, counters, reachable)


def _on_node(one: ResourceSlice) -> bool:
    return bool(one.spec.node_name) and not one.spec.shared_counters


def _counter_sets(slices: Iterable[ResourceSlice]) -> dict[str, dict[str, int]] | None:
    """Nano-units by set and counter; None if two sets have the same name."""
    sets: dict[str, dict[str, int]] = {}
    for one in slices:
        for each in one.spec.shared_counters or ():
            if each.name in sets:
                return None
            counters = sorted((each.counters or {}).items())
            sets[each.name] = {name: _nanos(counter) for name, counter in counters}
    return sets


def _consumable(slices: Iterable[ResourceSlice], sets: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether all sets and counters that devices of these slices consume exist."""
    return all(
        each.counter_set in sets and (each.counters or {}).keys() <= sets[each.counter_set].keys()
        for one in slices
        for device in one.spec.devices or ()
        for each in device.consumes_counters or ()
    )
