"""Which pools of devices the node of each row sees, kept up to date as slices, nodes and allocations change.

Most pools are at home on one node, which alone sees anything of them: a change of such a pool concerns that node's row and no
other. All others are wide (see ``reach``).
"""

from collections import defaultdict
from typing import Final

import numpy as np

from app.model.devices import ResourceSlice
from app.model.objects import Node
from app.plugins.dynamic_resources.pools import (
    Pool,
    PoolView,
    TraitsCache,
    Usage,
    in_order,
)
from app.plugins.dynamic_resources.reach import WidePools, home_of, matters
from app.state.columns.resources import Int64
from app.state.devices.usage import AllocatedState, PoolKey
from app.state.lister import Lister
from app.state.table import NodeTable


class Sight:
    """The pools that a node sees, in the order in which they are tried. ``own``: those of them that no other node sees."""

    __slots__ = ("own", "views", "wide")

    def __init__(self, own: tuple[PoolView, ...], wide: tuple[PoolView, ...]) -> None:
        self.own: Final = tuple(in_order(own))
        self.wide: Final = wide
        self.views: Final = tuple(in_order((*own, *wide)))


_BLIND: Final = Sight((), ())


class Inventory:
    """What every row sees. ``sync`` brings it up to date; everything else answers as of then, but for uses, which are live."""

    def __init__(
        self, table: NodeTable, slices: Lister[ResourceSlice], allocated: AllocatedState
    ) -> None:
        self._table: Final = table
        self._allocated: Final = allocated
        self._traits: Final = TraitsCache()
        self._pools: Final[dict[PoolKey, Pool]] = {}
        #: The node that each pool is at home on, None for wide ones.
        self._home: Final[dict[PoolKey, str | None]] = {}
        self._at_home: Final[defaultdict[str, dict[PoolKey, PoolView]]] = defaultdict(dict)
        #: Another object whenever every row sees other views of wide pools than before.
        self.wide = WidePools({})
        self._changed: Final[set[PoolKey]] = set()
        self._used: Final[set[PoolKey]] = set()
        self._nodes: Final[list[Node | None]] = []
        self._table_at = -1
        #: What the node of each row sees.
        self.sights: Final[list[Sight]] = []
        #: Grows with every change of a row.
        self.version = 0
        #: int64[capacity]: the version at which a row changed last: what it sees, or the use of a pool of its own.
        self.changed_at: Int64 = np.zeros(table.capacity, np.int64)
        for one in slices:
            self._slice_changed(None, one)
        slices.follow(self._slice_changed)
        allocated.follow(self._used.add)

    def usage(self, view: PoolView) -> Usage:
        """What is in use of what is seen of a pool, now."""
        return view.usage(self._allocated.pool(*view.key))

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        if old is not None and (new is None or _key_of(old) != _key_of(new)):
            self._pools[_key_of(old)].drop(old)
            self._changed.add(_key_of(old))
        if new is not None:
            key = _key_of(new)
            if key not in self._pools:
                self._pools[key] = Pool(key, self._traits)
            self._pools[key].put(new)
            self._changed.add(key)

    def sync(self) -> None:
        """Takes over what has changed."""
        stale = self._rows_with_other_nodes()
        if self._changed:
            stale |= self._rows_seeing_changes()
        if stale:
            self._look(sorted(stale))
        if self._used:
            homes = {self._home.get(key) for key in self._used}
            self._used.clear()
            self._mark(sorted(self._rows_of(homes)))

    def _rows_of(self, homes: set[str | None]) -> set[int]:
        row_of = self._table.row_of
        return {row_of[home] for home in homes if home is not None and home in row_of}

    def _rows_seeing_changes(self) -> set[int]:
        """Sorts the pools that have changed into those at home somewhere and wide ones; the rows that are concerned."""
        everywhere, homes = False, set[str | None]()
        for key in self._changed:
            everywhere |= self._forget(key, homes)
            pool = self._pools[key]
            if not pool.slices:
                del self._pools[key]
                continue
            home = self._home[key] = home_of(pool)
            homes.add(home)
            everywhere |= home is None
            view = matters(pool.seen(pool.slices))
            if home is not None and view is not None:
                self._at_home[home][key] = view
        self._changed.clear()
        if not everywhere:
            return self._rows_of(homes)
        self.wide = WidePools(
            {key: pool for key, pool in self._pools.items() if self._home[key] is None}
        )
        return set(range(self._table.size))

    def _forget(self, key: PoolKey, homes: set[str | None]) -> bool:
        """Forgets where a pool was at home; whether it was a wide one."""
        if key not in self._home:
            return False
        home = self._home.pop(key)
        if home is None:
            return True
        self._at_home[home].pop(key, None)
        homes.add(home)
        return False

    def _rows_with_other_nodes(self) -> set[int]:
        """The rows whose node has come, gone, or got other labels."""
        table = self._table
        missing = table.size - len(self._nodes)
        self._nodes.extend([None] * missing)
        self.sights.extend([_BLIND] * missing)
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

    def _look(self, rows: list[int]) -> None:
        seen = self.wide.seen_from(self._table, np.array(rows, np.intp))
        #: Nodes that see only wide pools, and the same of them, share what they see.
        shared: dict[int, Sight] = {id(()): _BLIND}
        for row, wide in zip(rows, seen, strict=True):
            if self._nodes[row] is None:
                self.sights[row] = _BLIND
            elif own := self._at_home.get(self._table.names[row]):
                self.sights[row] = Sight(tuple(own.values()), wide)
            else:
                sight = shared.get(id(wide)) or Sight((), wide)
                self.sights[row] = shared[id(wide)] = sight
        self._mark(rows)

    def _mark(self, rows: list[int]) -> None:
        self.version += 1
        self.changed_at[rows] = self.version


def _key_of(one: ResourceSlice) -> PoolKey:
    return one.spec.driver, one.spec.pool.name
