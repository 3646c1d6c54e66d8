"""Which pools of devices the node of each row sees, updated as slices, nodes and allocations change (KEP-4381).

A slice says which nodes reach its devices: one node, the nodes that a selector matches, all nodes, or device by
device. Most pools are *local*: only one node sees anything of them, and a change of the pool concerns only the row of
that node. For the other, *multi-node* pools each distinct node selection is evaluated once for all rows, and rows
that match the same selections share the same view objects.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from app.model.devices import Device, ResourceSlice, ResourceSliceSpec
from app.model.objects import Node, NodeSelector
from app.plugins.dynamic_resources.budget import Budget
from app.plugins.dynamic_resources.pools import (
    DevicePool,
    PoolState,
    PoolView,
    TraitsCache,
    ViewUsage,
    in_order,
)
from app.plugins.helpers.node_selector import compile_node_selector
from app.state.columns.arrays import Int64, Rows
from app.state.columns.labels import Mask
from app.state.devices import AllocatedState, PoolKey
from app.state.lister import Lister
from app.state.table import NodeTable
from app.state.view import View

#: The rows that are updated without a look at the clock, which takes about 10 ms.
_ROWS_AT_ONCE: Final = 2000


class NodeSelection(NamedTuple):
    """Nodes that reach a slice or a device: the node of this name, or those that the selector matches, or all nodes."""

    node_name: str = ""
    selector: NodeSelector | None = None

    def matches(self, view: View) -> Mask:
        """bool[n]: the rows that are selected. A selector that cannot be read selects no row."""
        if self.node_name:
            mask: Mask = view.rows == view.table.row_of.get(self.node_name, -1)
            return mask
        if self.selector is None:
            return np.ones(view.n, bool)
        return compile_node_selector(self.selector).matches(view)


_ALL_NODES: Final = NodeSelection()


def _selection_of(where: Device | ResourceSliceSpec) -> NodeSelection | None:
    """The nodes that reach a device or slice, by the first field that is set. None if none is set: no node reaches
    it."""
    if where.node_name:
        return NodeSelection(where.node_name)
    if where.all_nodes:
        return _ALL_NODES
    return None if where.node_selector is None else NodeSelection(selector=where.node_selector)


def _slice_selections(spec: ResourceSliceSpec) -> list[NodeSelection]:
    """The selections of which a node must match one to reach the slice."""
    own = _selection_of(spec)
    if own is not None:
        return [own]
    return _device_selections(spec)


def _device_selections(spec: ResourceSliceSpec) -> list[NodeSelection]:
    if not spec.per_device_node_selection:
        return []
    return [each for each in map(_selection_of, spec.devices or ()) if each is not None]


def _only_node_of(pool: DevicePool) -> str | None:
    """The only node that sees anything of the pool; None if there can be others.

    Every node sees slices with shared counters. A view of nothing else is not relevant, because it has no devices,
    unless the pool is incomplete or invalid.
    """
    nodes = {
        one.spec.node_name or None for one in pool.slices.values() if not one.spec.shared_counters
    }
    return nodes.pop() if len(nodes) == 1 and _relevant(pool.seen(())) is None else None


def _relevant(view: PoolView | None) -> PoolView | None:
    """The view, if it has devices or is unusable, which can fail requests; otherwise None."""
    if view is None or (view.state is PoolState.USABLE and not view.offers):
        return None
    return view


class MultiNodePools:
    """The pools that more than one node can see."""

    def __init__(self, pools: Mapping[PoolKey, DevicePool]) -> None:
        self._pools: Final = pools
        self._numbers: Final[dict[NodeSelection, int]] = {_ALL_NODES: 0}
        #: The pools of which nodes that match a selection, by its number, can see something.
        self._pools_by_selection: Final[defaultdict[int, list[DevicePool]]] = defaultdict(list)
        for pool in pools.values():
            for selection in self._selections(pool):
                number = self._numbers.setdefault(selection, len(self._numbers))
                self._pools_by_selection[number].append(pool)
        self._by_pattern: Final[dict[bytes, tuple[PoolView, ...]]] = {}
        self._views: Final[
            dict[tuple[PoolKey, tuple[str, ...], tuple[bool, ...]], PoolView | None]
        ] = {}

    @staticmethod
    def _selections(pool: DevicePool) -> set[NodeSelection]:
        selections = {
            selection
            for one in pool.slices.values()
            if not one.spec.shared_counters
            for selection in (*_slice_selections(one.spec), *_device_selections(one.spec))
        }
        if _relevant(pool.seen(())) is not None:
            selections.add(_ALL_NODES)
        return selections

    def visible_from(self, table: NodeTable, rows: Rows) -> list[tuple[PoolView, ...]]:
        """The views of these pools for the node of each row."""
        if not self._pools:
            return [()] * len(rows)
        view = View(table, rows)
        met = np.stack([selection.matches(view) for selection in self._numbers], axis=1)
        return [self._views_for(packed.tobytes()) for packed in np.packbits(met, axis=1)]

    def _views_for(self, pattern: bytes) -> tuple[PoolView, ...]:
        views = self._by_pattern.get(pattern)
        if views is None:
            bits = np.unpackbits(np.frombuffer(pattern, np.uint8))
            numbers = frozenset(np.flatnonzero(bits).tolist())
            views = self._by_pattern[pattern] = tuple(self._visible_with(numbers))
        return views

    def _visible_with(self, met: frozenset[int]) -> Iterator[PoolView]:
        """The views for nodes that match these selections and no others."""
        pools = {
            pool.key: pool for number in met for pool in self._pools_by_selection.get(number, ())
        }

        def reaches(selections: Iterable[NodeSelection]) -> bool:
            return any(self._numbers[selection] in met for selection in selections)

        def reaches_device(device: Device) -> bool:
            selection = _selection_of(device)
            return selection is not None and self._numbers[selection] in met

        for key, pool in pools.items():
            names = tuple(
                name
                for name, one in pool.slices.items()
                if not one.spec.shared_counters and reaches(_slice_selections(one.spec))
            )
            devices = tuple(
                reaches_device(device)
                for name in names
                if pool.slices[name].spec.per_device_node_selection
                for device in pool.slices[name].spec.devices or ()
            )
            # Nodes that see the same share the view object, which caches its usage.
            known = (key, names, devices)
            if known not in self._views:
                self._views[known] = pool.seen(names, reaches_device if devices else None)
            view = _relevant(self._views[known])
            if view is not None:
                yield view


# ---------------------------------------------------------------- pools by row


class VisiblePools:
    """What a node sees. ``views`` has both local and multi-node pools, in the order in which they are tried."""

    __slots__ = ("local", "multi_node", "views")

    def __init__(self, local: tuple[PoolView, ...], multi_node: tuple[PoolView, ...]) -> None:
        self.local: Final = tuple(in_order(local))
        self.multi_node: Final = multi_node
        self.views: Final = tuple(in_order((*local, *multi_node)))


_NO_POOLS: Final = VisiblePools((), ())


class Inventory:
    """The visible pools of all rows, as of the last ``sync``, which may take several turns. ``usage`` is always
    current.
    """

    def __init__(
        self, table: NodeTable, slices: Lister[ResourceSlice], allocated: AllocatedState
    ) -> None:
        self._table: Final = table
        self._allocated: Final = allocated
        self._traits: Final = TraitsCache()
        self._pools: Final[dict[PoolKey, DevicePool]] = {}
        #: The only node that sees a pool, None for multi-node pools.
        self._only_node: Final[dict[PoolKey, str | None]] = {}
        self._local: Final[defaultdict[str, dict[PoolKey, PoolView]]] = defaultdict(dict)
        #: Replaced by another object when the views of all rows change.
        self.multi_node = MultiNodePools({})
        #: The slices of the first list by name, the first one last, until they are put into their pools.
        self._unread: Final = {one.name: one for one in reversed(list(slices))}
        self._changed: Final[set[PoolKey]] = set()
        #: Who saw pools that have changed: nodes by name, or every node.
        self._concerned: Final[set[str | None]] = set()
        self._everywhere = False
        self._stale: Final[set[int]] = set()
        self._used: Final[set[PoolKey]] = set()
        self._nodes: Final[list[Node | None]] = []
        self._table_at = -1
        #: The visible pools of each row's node.
        self.visible: Final[list[VisiblePools]] = []
        #: Grows with every change of a row.
        self.version = 0
        #: int64[capacity]: the version at which a row last changed: its visible pools, or the usage of one of its
        #: local pools.
        self.changed_at: Int64 = np.zeros(table.capacity, np.int64)
        slices.follow(self._slice_changed)
        allocated.follow(self._used.add)

    def usage(self, view: PoolView) -> ViewUsage:
        """What is in use of a view now."""
        return view.usage(self._allocated.pool(*view.key))

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        known = old is not None and self._unread.pop(old.name, None) is None
        if old is not None and known and (new is None or _key_of(old) != _key_of(new)):
            self._pools[_key_of(old)].drop(old)
            self._changed.add(_key_of(old))
        if new is not None:
            key = _key_of(new)
            if key not in self._pools:
                self._pools[key] = DevicePool(key, self._traits)
            self._pools[key].put(new)
            self._changed.add(key)

    def sync(self, budget: Budget) -> None:
        """Applies the changes since the last call. Raises Unfinished if the budget may pause; the next call goes on."""
        while self._unread:
            self._slice_changed(None, self._unread.popitem()[1])
            budget.pause_if_expired()
        self._stale.update(self._rows_with_other_nodes())
        while self._changed:
            self._classify(self._changed.pop())
            budget.pause_if_expired()
        self._stale.update(self._rows_of(self._concerned))
        self._concerned.clear()
        if self._everywhere:
            self._everywhere = False
            self.multi_node = MultiNodePools(
                {key: pool for key, pool in self._pools.items() if self._only_node[key] is None}
            )
            self._stale.update(range(self._table.size))
        while self._stale:
            rows = list(itertools.islice(self._stale, _ROWS_AT_ONCE))
            self._update(rows)
            self._stale.difference_update(rows)
            budget.pause_if_expired()
        if self._used:
            nodes = {self._only_node.get(key) for key in self._used}
            self._used.clear()
            self._mark(sorted(self._rows_of(nodes)))

    def _rows_of(self, nodes: set[str | None]) -> set[int]:
        row_of = self._table.row_of
        return {
            row_of[node_name]
            for node_name in nodes
            if node_name is not None and node_name in row_of
        }

    def _classify(self, key: PoolKey) -> None:
        """Makes a changed pool local or multi-node, and notes who is concerned."""
        self._forget(key)
        pool = self._pools[key]
        if not pool.slices:
            del self._pools[key]
            return
        node_name = self._only_node[key] = _only_node_of(pool)
        self._concerned.add(node_name)
        self._everywhere |= node_name is None
        view = _relevant(pool.seen(pool.slices))
        if node_name is not None and view is not None:
            self._local[node_name][key] = view

    def _forget(self, key: PoolKey) -> None:
        """Removes a pool, and notes who saw it."""
        if key not in self._only_node:
            return
        node_name = self._only_node.pop(key)
        self._concerned.add(node_name)
        if node_name is None:
            self._everywhere = True
            return
        local = self._local[node_name]
        local.pop(key, None)
        if not local:
            del self._local[node_name]

    def _rows_with_other_nodes(self) -> set[int]:
        """The rows whose node was added, removed, or got other labels."""
        table = self._table
        missing = table.size - len(self._nodes)
        self._nodes.extend([None] * missing)
        self.visible.extend([_NO_POOLS] * missing)
        if len(self.changed_at) < table.capacity:
            more = np.zeros(table.capacity - len(self.changed_at), np.int64)
            self.changed_at = np.concatenate((self.changed_at, more))
        rows = set()
        for row in table.rows_since(self._table_at).tolist():
            old, new = self._nodes[row], table.nodes[row]
            if old is not new:
                self._nodes[row] = new
                if old is None or new is None or old.name != new.name or old.labels != new.labels:
                    rows.add(row)
        self._table_at = table.last_generation
        return rows

    def _update(self, rows: list[int]) -> None:
        seen = self.multi_node.visible_from(self._table, np.array(rows, np.intp))
        #: Nodes that see the same multi-node pools and no others share one object.
        shared: dict[int, VisiblePools] = {id(()): _NO_POOLS}
        for row, multi_node in zip(rows, seen, strict=True):
            if self._nodes[row] is None:
                self.visible[row] = _NO_POOLS
            elif local := self._local.get(self._table.names[row]):
                self.visible[row] = VisiblePools(tuple(local.values()), multi_node)
            else:
                pools = shared.get(id(multi_node)) or VisiblePools((), multi_node)
                self.visible[row] = shared[id(multi_node)] = pools
        self._mark(rows)

    def _mark(self, rows: list[int]) -> None:
        self.version += 1
        self.changed_at[rows] = self.version


def _key_of(one: ResourceSlice) -> PoolKey:
    return one.spec.driver, one.spec.pool.name
