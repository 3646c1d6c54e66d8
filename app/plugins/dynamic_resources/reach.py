"""Which nodes reach which slices and devices, for pools that more than one node may see (KEP-4381).

A slice says where its devices can be reached from: on one node, on nodes that a selector matches, everywhere, or device by device.
Every distinct condition is asked once, about all rows; rows that meet the same conditions see the same views, the very same
objects.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from app.model.devices import Device, ResourceSliceSpec
from app.model.objects import NodeSelector
from app.plugins.dynamic_resources.pools import Pool, PoolState, PoolView
from app.plugins.helpers.node_selector import compile_node_selector
from app.state.columns.labels import Mask
from app.state.devices.usage import PoolKey
from app.state.table import NodeTable
from app.state.view import Rows, View


class Condition(NamedTuple):
    """Where something can be reached from: the node of this name, else nodes that the selector matches, else everywhere."""

    node_name: str = ""
    selector: NodeSelector | None = None

    def matches(self, view: View) -> Mask:
        """bool[n]: which rows meet it. A selector that cannot be read matches nothing."""
        if self.node_name:
            mask: Mask = view.rows == view.table.row_of.get(self.node_name, -1)
            return mask
        if self.selector is None:
            return np.ones(view.n, bool)
        return compile_node_selector(self.selector).matches(view)


EVERYWHERE: Final = Condition()


def condition_of(where: Device | ResourceSliceSpec) -> Condition | None:
    """Of the ways to say it the first counts; None where nothing is said, so that no node reaches it."""
    if where.node_name:
        return Condition(where.node_name)
    if where.all_nodes:
        return EVERYWHERE
    return None if where.node_selector is None else Condition(selector=where.node_selector)


def slice_conditions(spec: ResourceSliceSpec) -> list[Condition]:
    """Conditions of which a node must meet one to reach the slice."""
    own = condition_of(spec)
    if own is not None:
        return [own]
    return _device_conditions(spec)


def _device_conditions(spec: ResourceSliceSpec) -> list[Condition]:
    if not spec.per_device_node_selection:
        return []
    return [each for each in map(condition_of, spec.devices or ()) if each is not None]


def home_of(pool: Pool) -> str | None:
    """The only node that sees anything of the pool; None if there may be others.

    Every node sees slices with shared counters. If that is all it sees, nothing can be allocated, so it makes no difference,
    unless the pool is incomplete or invalid.
    """
    homes = {
        one.spec.node_name or None for one in pool.slices.values() if not one.spec.shared_counters
    }
    return homes.pop() if len(homes) == 1 and matters(pool.seen(())) is None else None


def matters(view: PoolView | None) -> PoolView | None:
    """The view, if it can make a difference: it offers devices, or their allocation is out of the question."""
    if view is None or (view.state is PoolState.USABLE and not view.offers):
        return None
    return view


class WidePools:
    """Pools that more than one node may see."""

    def __init__(self, pools: Mapping[PoolKey, Pool]) -> None:
        self._pools: Final = pools
        self._numbers: Final[dict[Condition, int]] = {EVERYWHERE: 0}
        #: The pools that a node may see that meets a condition.
        self._behind: Final[defaultdict[int, list[Pool]]] = defaultdict(list)
        for pool in pools.values():
            for condition in self._conditions(pool):
                number = self._numbers.setdefault(condition, len(self._numbers))
                self._behind[number].append(pool)
        self._by_pattern: Final[dict[bytes, tuple[PoolView, ...]]] = {}
        self._views: Final[
            dict[tuple[PoolKey, tuple[str, ...], tuple[bool, ...]], PoolView | None]
        ] = {}

    @staticmethod
    def _conditions(pool: Pool) -> set[Condition]:
        conditions = {
            condition
            for one in pool.slices.values()
            if not one.spec.shared_counters
            for condition in (*slice_conditions(one.spec), *_device_conditions(one.spec))
        }
        if matters(pool.seen(())) is not None:
            conditions.add(EVERYWHERE)
        return conditions

    def seen_from(self, table: NodeTable, rows: Rows) -> list[tuple[PoolView, ...]]:
        """For each row what its node sees of these pools."""
        if not self._pools:
            return [()] * len(rows)
        view = View(table, rows)
        met = np.stack([condition.matches(view) for condition in self._numbers], axis=1)
        return [self._seen(packed.tobytes()) for packed in np.packbits(met, axis=1)]

    def _seen(self, pattern: bytes) -> tuple[PoolView, ...]:
        views = self._by_pattern.get(pattern)
        if views is None:
            bits = np.unpackbits(np.frombuffer(pattern, np.uint8))
            numbers = frozenset(np.flatnonzero(bits).tolist())
            views = self._by_pattern[pattern] = tuple(self._look(numbers))
        return views

    def _look(self, met: frozenset[int]) -> Iterator[PoolView]:
        """What nodes see that meet these conditions."""
        pools = {pool.key: pool for number in met for pool in self._behind.get(number, ())}

        def reaches(conditions: Iterable[Condition]) -> bool:
            return any(self._numbers[condition] in met for condition in conditions)

        def reaches_device(device: Device) -> bool:
            condition = condition_of(device)
            return condition is not None and self._numbers[condition] in met

        for key, pool in pools.items():
            names = tuple(
                name
                for name, one in pool.slices.items()
                if not one.spec.shared_counters and reaches(slice_conditions(one.spec))
            )
            devices = tuple(
                reaches_device(device)
                for name in names
                if pool.slices[name].spec.per_device_node_selection
                for device in pool.slices[name].spec.devices or ()
            )
            # Nodes that see the same share the object, and with it what is known of its use.
            known = (key, names, devices)
            if known not in self._views:
                self._views[known] = pool.seen(names, reaches_device if devices else None)
            view = matters(self._views[known])
            if view is not None:
                yield view
