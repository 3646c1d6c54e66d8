"""Views: the rows of the node table that a question is about, with or without pods imagined away or added.

Plugins see nodes only through views, so the same array code answers for all nodes (a cycle), for the few that survived
the extenders (the late decision), for the rows that changed since a sibling was decided, and for the candidates of a
preemption, where every row is a world of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.objects import Node, Taint
from app.model.pod import HostPort, Pod
from app.state.families import Counter
from app.state.labels import Codes, LabelColumn, Mask
from app.state.ports import conflicts
from app.state.resources import Int64
from app.state.table import NodeTable

Rows = npt.NDArray[np.intp]

#: Up to this many rows are looked up in sets of rows rather than compared with arrays of them.
_FEW_ROWS: Final = 32


class View:
    """``n`` rows of the table, in the order of ``rows`` (intp[n]). All answers are arrays of length ``n``."""

    def __init__(self, table: NodeTable, rows: Rows) -> None:
        self.table: Final = table
        self.rows: Final = rows
        self.n: Final = len(rows)
        self._at: Rows | slice = rows

    @classmethod
    def everything(cls, table: NodeTable) -> "View":
        """All rows ever used, in order; those without a node object (see ``table.exists``) are the caller's concern."""
        view = cls(table, np.arange(table.size, dtype=np.intp))
        view._at = slice(0, table.size)
        return view

    def take(self, positions: npt.NDArray[np.intp] | Mask) -> "View":
        """The view of some of these rows, by position in this view."""
        return View(self.table, self.rows[positions])

    # ------------------------------------------------------------ columns

    def allocatable(self, resource: str) -> Int64:
        """What each node offers, in scheduler units."""
        return self.table.allocatable.column(resource)[self._at]

    def requested(self, resource: str) -> Int64:
        """What the pods on each node ask for, in scheduler units."""
        return self.table.requested.column(resource)[self._at]

    def allocatable_of(self, resources: tuple[str, ...]) -> Int64:
        """int64[len(resources), n]: ``allocatable`` of several resources at once. Not to be changed."""
        return self.table.allocatable.block(resources, self._at)

    def requested_of(self, resources: tuple[str, ...]) -> Int64:
        """int64[len(resources), n]: ``requested`` of several resources at once. Not to be changed."""
        return self.table.requested.block(resources, self._at)

    def nonzero_requested(self, which: int) -> Int64:
        """CPU_ROW or MEMORY_ROW: the same with stand-ins for pods that ask for nothing."""
        column: Int64 = self.table.nonzero[which, self._at]
        return column

    def nonzero_of_both(self) -> Int64:
        """int64[2, n]: ``nonzero_requested`` of cpu and of memory. Not to be changed."""
        at, nonzero = self._at, self.table.nonzero
        return nonzero[:, at] if isinstance(at, slice) else nonzero.take(at, axis=1)

    def allocatable_pods(self) -> Int64:
        """How many pods each node takes."""
        return self.table.allocatable_pods[self._at]

    def pod_count(self) -> Int64:
        """How many pods each node has."""
        return self.table.pod_count[self._at]

    def unschedulable(self) -> Mask:
        """Which nodes are cordoned."""
        return self.table.unschedulable[self._at]

    def label(self, key: str) -> tuple[LabelColumn, Codes]:
        """The column of a label key, and each row's code in it."""
        column = self.table.labels.column(key)
        return column, column.codes[self._at]

    def taints(self) -> Codes:
        """Each row's number in ``table.taints.sets``."""
        return self.table.taints.codes[self._at]

    def taint_sets(self) -> list[tuple[Taint, ...]]:
        """The distinct taint lists."""
        return self.table.taints.sets

    def names(self) -> list[str]:
        """Node names, in row order of the view. For messages and extenders, not for the cycle."""
        names = self.table.names
        return [names[row] for row in self.rows.tolist()]

    def node(self, position: int) -> Node:
        """The node object at a position of the view."""
        node: Node | None = self.table.nodes[self.rows[position]]
        if node is None:
            raise LookupError(f"no node object at row {self.rows[position]}")
        return node

    def pods(self, position: int) -> Iterator[Pod]:
        """The pods on the node at a position of the view."""
        return iter(self.table.pods[self.rows[position]].values())

    # ------------------------------------------------------------ pods that changed hands in this view only

    def changes(self) -> Iterable[tuple[int, Pod, int]]:
        """(position, pod, +1 or -1) for every pod imagined on, or away from, a row of this view."""
        return ()

    def counts(self, counter: Counter) -> Int64:
        """Pods per row that the counter counts, in this view's world."""
        return counter.counts[self._at].astype(np.int64)

    def count_delta(self, counter: Counter) -> Int64 | None:
        """How far ``counts`` differs from the table's own; None where nothing is imagined."""
        del counter
        return None

    def port_conflicts(self, wanted: Iterable[HostPort]) -> Mask:
        """Whether any of these host ports is taken, per row."""
        taken = self.table.ports.claimed_rows(wanted)
        if self.n <= _FEW_ROWS:
            rows = self.rows.tolist()
            return np.array([any(row in one for one in taken) for row in rows], bool)
        out = np.zeros(self.table.capacity, bool)
        for one in taken:
            out[np.fromiter(one, np.intp, len(one))] = True
        return out[self._at]


class WhatIf(View):
    """A view in which pods have been added to, or taken from, single rows: each row is a world of its own.

    ``add`` and ``remove`` take a position and a pod; they may be called at any time between questions.
    """

    def __init__(self, table: NodeTable, rows: Rows) -> None:
        super().__init__(table, rows)
        self._changed: list[dict[str, tuple[Pod, int]]] = [{} for _ in range(self.n)]
        self._requested: dict[str, Int64] = {}
        self._nonzero: Int64 = np.zeros((2, self.n), np.int64)
        self._pods: Int64 = np.zeros(self.n, np.int64)
        self._deltas: dict[int, tuple[Counter, Int64]] = {}

    def add(self, position: int, pod: Pod) -> None:
        """Imagines a pod on a row; one that was imagined away is back."""
        self._change(position, pod, 1)

    def remove(self, position: int, pod: Pod) -> None:
        """Imagines a pod away from its row; one that was imagined there is gone."""
        self._change(position, pod, -1)

    def _change(self, position: int, pod: Pod, sign: int) -> None:
        changed = self._changed[position]
        if pod.uid in changed:
            del changed[pod.uid]
        else:
            changed[pod.uid] = (pod, sign)
        resources = pod.resources
        for name, amount in resources.requested:
            column = self._requested.get(name)
            if column is None:
                column = self._requested[name] = np.zeros(self.n, np.int64)
            column[position] += sign * amount
        self._nonzero[0, position] += sign * resources.nonzero_cpu
        self._nonzero[1, position] += sign * resources.nonzero_memory
        self._pods[position] += sign
        for counter, delta in self._deltas.values():
            delta[position] += sign * counter.times(pod)

    def take(self, positions: npt.NDArray[np.intp] | Mask) -> "WhatIf":
        """The same worlds for some of the rows. Later changes to one do not show in the other."""
        chosen = np.arange(self.n)[positions]
        out = WhatIf(self.table, self.rows[chosen])
        for new, old in enumerate(chosen.tolist()):
            for pod, sign in self._changed[old].values():
                out._change(new, pod, sign)
        return out

    def requested(self, resource: str) -> Int64:
        """What the pods on each node would ask for."""
        base = super().requested(resource)
        delta = self._requested.get(resource)
        return base if delta is None else base + delta

    def nonzero_requested(self, which: int) -> Int64:
        """The same with stand-ins for pods that ask for nothing."""
        column: Int64 = super().nonzero_requested(which) + self._nonzero[which]
        return column

    def requested_of(self, resources: tuple[str, ...]) -> Int64:
        """int64[len(resources), n]: the same for several resources at once."""
        block = super().requested_of(resources)
        for position, name in enumerate(resources):
            delta = self._requested.get(name)
            if delta is not None:
                block[position] += delta
        return block

    def nonzero_of_both(self) -> Int64:
        """int64[2, n]: ``nonzero_requested`` of cpu and of memory."""
        return super().nonzero_of_both() + self._nonzero

    def pod_count(self) -> Int64:
        """How many pods each node would have."""
        return super().pod_count() + self._pods

    def pods(self, position: int) -> Iterator[Pod]:
        """The pods that would be on the node at a position of the view."""
        changed = self._changed[position]
        for pod in super().pods(position):
            if pod.uid not in changed:
                yield pod
        for pod, sign in changed.values():
            if sign > 0:
                yield pod

    def changes(self) -> Iterable[tuple[int, Pod, int]]:
        """(position, pod, +1 or -1) for every imagined change."""
        for position, changed in enumerate(self._changed):
            for pod, sign in changed.values():
                yield position, pod, sign

    def counts(self, counter: Counter) -> Int64:
        """Pods per row that the counter would count."""
        return super().counts(counter) + self.count_delta(counter)

    def count_delta(self, counter: Counter) -> Int64:
        """How far ``counts`` differs from the table's own."""
        known = self._deltas.get(id(counter))
        if known is None:
            delta = np.zeros(self.n, np.int64)
            for position, pod, sign in self.changes():
                delta[position] += sign * counter.times(pod)
            known = self._deltas[id(counter)] = (counter, delta)
        return known[1]

    def port_conflicts(self, wanted: Iterable[HostPort]) -> Mask:
        """Whether any of these host ports would be taken, per row."""
        wanted = tuple(wanted)
        return self.judge(
            super().port_conflicts(wanted),
            lambda p: any(
                conflicts(port, used)
                for pod in self.pods(p)
                for used in pod.template.host_ports
                for port in wanted
            ),
            lambda pod: bool(pod.template.host_ports),
        )

    def judge(
        self, base: Mask, again: Callable[[int], bool], concerns: Callable[[Pod], bool]
    ) -> Mask:
        """``base``, judged ``again`` at the positions where a pod that ``concerns`` the question changed."""
        out = base.copy()
        for position, changed in enumerate(self._changed):
            if any(concerns(pod) for pod, _ in changed.values()):
                out[position] = again(position)
        return out
