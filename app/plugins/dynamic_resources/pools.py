"""Pools of devices as a node sees them (KEP-4381).

A pool is what the slices of one driver and pool name describe together. A node sees the slices that it reaches, and
all slices with shared counters. Only those of the highest generation count. If their number is the pool's
``resourceSliceCount``, the pool is complete. Otherwise all slices of the pool are compared: if some have a newer
generation, the driver is replacing the visible slices, and the node sees nothing of the pool; if the number of all
slices differs too, the pool is incomplete. A pool is invalid if two devices or two counter sets have the same name,
or if a device consumes counters that do not exist. Devices of incomplete and invalid pools are not allocated.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from app.model.devices import Device, DeviceTaint, ResourceSlice
from app.plugins.dynamic_resources.capacity import DeviceCapacities
from app.state.devices import PoolKey, PoolUse, nanos_of

#: Names of the counter set and of the counter.
CounterName = tuple[str, str]
#: The counters that a device consumes, and the amounts in nano-units.
Consumption = tuple[tuple[CounterName, int], ...]

#: Taints with other effects, such as "None", keep no request away.
_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_encode: Final = msgspec.msgpack.Encoder().encode


class DeviceTraits:
    """What allocation reads of a device besides its attributes. Devices with equal traits share one object."""

    __slots__ = ("__weakref__", "capacities", "consumes", "shared", "taints")

    def __init__(self, device: Device) -> None:
        #: Whether several claims may have the device at the same time.
        self.shared: Final = bool(device.allow_multiple_allocations)
        #: The taints that requests have to tolerate.
        self.taints: Final[tuple[DeviceTaint, ...]] = tuple(
            [taint for taint in device.taints or () if taint.effect in _EFFECTS]
        )
        self.capacities: Final = DeviceCapacities(device.capacity)
        self.consumes: Final[Consumption] = tuple(
            [
                ((each.counter_set, name), nanos_of(counter.value))
                for each in device.consumes_counters or ()
                for name, counter in (each.counters or {}).items()
            ]
        )


class TraitsCache:
    """Shares traits between devices with the same fields."""

    def __init__(self) -> None:
        self._known: Final[WeakValueDictionary[bytes, DeviceTraits]] = WeakValueDictionary()

    def of(self, device: Device) -> DeviceTraits:
        """The traits of a device."""
        taints = [(t.key, t.value, t.effect) for t in device.taints or ()]
        key = _encode(
            (device.allow_multiple_allocations, taints, device.capacity, device.consumes_counters)
        )
        traits = self._known.get(key)
        if traits is None:
            traits = self._known[key] = DeviceTraits(device)
        return traits


class Offer:
    """A device in a slice."""

    __slots__ = ("device", "slice", "traits")

    def __init__(self, device: Device, offered_by: ResourceSlice, traits: DeviceTraits) -> None:
        self.device: Final = device
        self.slice: Final = offered_by
        self.traits: Final = traits


class PoolState(enum.Enum):
    """Whether devices of a pool can be allocated."""

    USABLE = 0
    INCOMPLETE = 1
    INVALID = 2


class ViewUsage:
    """What is in use of a PoolView, by the positions of its offers.

    ``taken`` has the positions of devices that are allocated exclusively, ``consumed`` nano-units of the capacity of
    shared devices by position (in the order of the capacities' names), ``left`` nano-units of every shared counter,
    ``shared`` the positions of devices of which a claim has a share. ``key`` is equal for equal usage.
    """

    __slots__ = ("consumed", "key", "left", "shared", "taken")

    def __init__(
        self,
        taken: frozenset[int],
        consumed: Mapping[int, tuple[int, ...]],
        left: Mapping[CounterName, int],
        shared: frozenset[int] = frozenset(),
    ) -> None:
        self.taken: Final = taken
        self.consumed: Final = consumed
        self.left: Final = left
        self.shared: Final = shared
        self.key: Final = (taken, tuple(sorted(consumed.items())), tuple(left.values()), shared)


class PoolView:
    """What some nodes see of a pool.

    ``offers`` has the devices in the order in which they are tried: by name of the slice, then by position in it.
    ``reachable`` says of each device whether these nodes reach it, None if they reach all. ``late`` is set if a
    device has binding conditions: then other pools are tried first.
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
        #: Offers of slices that these nodes do not reach. Their devices consume the same counters.
        self._elsewhere = tuple(elsewhere)
        self._counters = counters or {}
        self._place = {offer.device.name: place for place, offer in enumerate(self.offers)}
        self._usage: ViewUsage | None = None
        self._use: tuple[PoolUse, int] | None = None

    @property
    def name(self) -> str:
        """Driver and pool, as messages show them."""
        return "/".join(self.key)

    def usage(self, use: PoolUse) -> ViewUsage:
        """What is in use of the view, from what is in use of the whole pool."""
        now = (use, use.version)
        if self._usage is None or self._use != now:
            self._use = now
            self._usage = self._visible_part(use)
        return self._usage

    def _visible_part(self, use: PoolUse) -> ViewUsage:
        place = self._place
        taken = frozenset([place[name] for name in use.devices if name in place])
        consumed = {}
        for name, amounts in use.capacity.items():
            if name in place:
                capacities = self.offers[place[name]].traits.capacities
                consumed[place[name]] = capacities.in_use(amounts)
        shared = frozenset([place[name] for name in use.shares if name in place])
        return ViewUsage(taken, consumed, self._left(use), shared)

    def _left(self, use: PoolUse) -> Mapping[CounterName, int]:
        """What the devices that are allocated, on any node, leave of the counters. Amounts can be negative."""
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


class DevicePool:
    """The slices of one driver and pool name. ``slices`` and ``offers`` are by the slice's name."""

    __slots__ = ("_traits", "key", "offers", "slices")

    def __init__(self, key: PoolKey, traits: TraitsCache) -> None:
        self.key: Final = key
        self.slices: Final[dict[str, ResourceSlice]] = {}
        self.offers: Final[dict[str, tuple[Offer, ...]]] = {}
        self._traits = traits

    def put(self, one: ResourceSlice) -> None:
        """Adds or replaces a slice."""
        self.slices[one.name] = one
        traits = self._traits.of
        self.offers[one.name] = tuple(
            [Offer(device, one, traits(device)) for device in one.spec.devices or ()]
        )

    def drop(self, one: ResourceSlice) -> None:
        """Removes a slice."""
        self.slices.pop(one.name, None)
        self.offers.pop(one.name, None)

    def seen(
        self, reached: Iterable[str], reaches_device: Callable[[Device], bool] | None = None
    ) -> PoolView | None:
        """The view of nodes that reach the slices with these names; None if they see nothing of the pool.

        ``reaches_device`` decides for the devices of slices with perDeviceNodeSelection.
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
        # If the slices disagree about their count, those of the node itself decide.
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
            sets[each.name] = {name: nanos_of(counter.value) for name, counter in counters}
    return sets


def _consumable(slices: Iterable[ResourceSlice], sets: Mapping[str, Mapping[str, int]]) -> bool:
    """Whether all sets and counters that devices of these slices consume exist."""
    return all(
        each.counter_set in sets and (each.counters or {}).keys() <= sets[each.counter_set].keys()
        for one in slices
        for device in one.spec.devices or ()
        for each in device.consumes_counters or ()
    )
