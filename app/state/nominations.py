"""The nominated pods by row, for the filters; updated only where nominations have changed."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.pod import Pod
from app.state.columns.arrays import Int64
from app.state.nominator import Nominator
from app.state.table import NodeTable

_MAX_PRIORITIES: Final = 64
#: A search among so many stamps takes as long as one step over the rows with pods.
_ROWS_PER_ENTRY: Final = 64


class PodsByRow(dict[int, Sequence[Pod]]):
    """Row -> pods that are counted as if they were on that row's node.

    ``stamps``: int64[size of the table], 0 for rows without pods. If a row's stamp is unchanged, so are its pods and
    what they occupy.
    """

    __slots__ = ("stamps",)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.stamps: Int64 = np.zeros(size, np.int64)

    def rows(self) -> npt.NDArray[np.intp]:
        """The rows with pods, ascending."""
        if len(self) * _ROWS_PER_ENTRY > len(self.stamps):
            return np.flatnonzero(self.stamps)
        rows = np.fromiter(self, np.intp, len(self))
        rows.sort()
        return rows

    def put(self, row: int, pods: Sequence[Pod], stamp: int) -> None:
        """Sets the pods of a row."""
        if pods:
            self[row] = pods
            self.stamps[row] = stamp
        elif self.pop(row, None) is not None:
            self.stamps[row] = 0

    def with_others(self, row: int, pods: Sequence[Pod], stamp: int) -> "PodsByRow":
        """A copy with other pods on one row."""
        out = PodsByRow(0)
        out.update(self)
        out.stamps = self.stamps.copy()
        out.put(row, pods, stamp)
        return out


#: No nominated pods; ``stamps`` is empty.
NO_PODS: Final = PodsByRow(0)


class Nominations:
    """The nominated pods that a pod's filters must take into account (docs/spec/node-selection.md#nominated-pods)."""

    def __init__(self, nominator: Nominator, table: NodeTable) -> None:
        self._nominator: Final = nominator
        self._table: Final = table
        self._stamps: Final = count(1)
        self._by_priority: Final[dict[int, _AtLeast]] = {}
        self._nobody = NO_PODS

    def concerning(self, pod: Pod) -> PodsByRow:
        """The other nominated pods with at least this pod's priority. Must not be changed."""
        if not self._nominator.nominated_nodes():
            if len(self._nobody.stamps) != self._table.size:
                self._nobody = PodsByRow(self._table.size)
            return self._nobody
        known = self._by_priority.get(pod.priority)
        if known is None:
            if len(self._by_priority) >= _MAX_PRIORITIES:
                self._by_priority.clear()
            known = _AtLeast(pod.priority, self._nominator, self._table, self._stamps)
            self._by_priority[pod.priority] = known
        known.refresh()
        return known.without(pod)


class _AtLeast:
    """The nominated pods with at least one given priority, by row."""

    def __init__(
        self, priority: int, nominator: Nominator, table: NodeTable, stamps: Iterator[int]
    ) -> None:
        self._priority: Final = priority
        self._nominator: Final = nominator
        self._table: Final = table
        self._new_stamp: Final = stamps.__next__
        self._version = 0
        self._layout = -1
        self._rows = PodsByRow(0)

    def refresh(self) -> None:
        """Applies the changes since the last call."""
        table, nominator = self._table, self._nominator
        same_rows = self._layout == table.layout
        names = nominator.changed_since(self._version) if same_rows else None
        if names is None:
            self._rows = PodsByRow(table.size)
            names = iter(nominator.nominated_nodes())
        for name in names:
            row = table.row_of.get(name)
            if row is not None:
                self._put(row, name)
        self._layout, self._version = table.layout, nominator.version

    def _put(self, row: int, name: str) -> None:
        pods = [p.on(name) for p in self._nominator.pods_on(name) if p.priority >= self._priority]
        if not _same(pods, self._rows.get(row, ())):
            self._rows.put(row, pods, self._new_stamp())

    def without(self, pod: Pod) -> PodsByRow:
        """The pods without this one."""
        own = self._table.row_of.get(self._nominator.node_of(pod.uid) or "")
        if own is None or own not in self._rows:
            return self._rows
        others = [other for other in self._rows[own] if other.uid != pod.uid]
        return self._rows.with_others(own, others, self._new_stamp())


def _same(pods: Sequence[Pod], earlier: Sequence[Pod]) -> bool:
    """Whether the pods are the same and occupy the same."""
    return len(pods) == len(earlier) and all(
        now.uid == then.uid and now.same_on_node(then)
        for now, then in zip(pods, earlier, strict=True)
    )
