"""Views: selected rows of the node table; in a dry run with pods added or removed.

Plugins see nodes only through views. So the same array code evaluates all nodes, the nodes that extenders left, the
rows that changed since a pod of the same template was decided, and the candidates of a preemption, where each row is
an independent dry run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from app.model.objects import Node, Taint
from app.model.pod import HostPort, Pod
from app.model.requests import CPU, MEMORY
from app.state.columns.arrays import Int64, Rows
from app.state.columns.families import PodCounter
from app.state.columns.labels import Codes, LabelColumn, Mask
from app.state.columns.ports import conflicts
from app.state.columns.resources import ResourceColumns
from app.state.columns.sparse import LIMIT, clamp
from app.state.pod_batch import PodBatch
from app.state.table import NodeTable

#: Views with at most this many rows look up each row in the sets of rows by port; larger ones use a mask.
_FEW_ROWS: Final = 32
_CHUNK: Final = 8192
_FIRST: Final = np.zeros(1, np.intp)
_EVERYWHERE: Final = slice(None)
_CPU_AND_MEMORY: Final = (CPU, MEMORY)


class View:
    """``n`` rows of the table, in the order of ``rows`` (intp[n]). All methods return arrays of length ``n``."""

    def __init__(self, table: NodeTable, rows: Rows) -> None:
        self.table: Final = table
        self.rows: Final = rows
        self.n: Final = len(rows)
        self._at: Rows | slice = rows

    @classmethod
    def everything(cls, table: NodeTable) -> "View":
        """All rows ever used, ascending, including rows without a Node object (see ``table.exists``)."""
        view = cls(table, table.all_rows())
        view._at = slice(0, table.size)
        return view

    @classmethod
    def chunks(cls, table: NodeTable) -> Iterator["View"]:
        """All rows in views of at most _CHUNK rows, whose intermediate arrays stay in the processor's cache."""
        rows = table.all_rows()
        for start in range(0, len(rows), _CHUNK):
            view = cls(table, rows[start : start + _CHUNK])
            view._at = slice(start, start + view.n)
            yield view

    @property
    def at(self) -> Rows | slice:
        """The index of the rows into a column of the table, of length ``table.size`` or more."""
        return self._at

    def take(self, positions: npt.NDArray[np.intp] | Mask) -> "View":
        """The view of some of these rows, by position in this view."""
        return View(self.table, self.rows[positions])

    def number_of(self, rows: Mask) -> int:
        """The number of nodes in bool[n], for scores that depend on it."""
        return int(np.count_nonzero(rows))

    # ------------------------------------------------------------ columns

    def allocatable(self, resource: str) -> Int64:
        """int64[n]: allocatable amounts, in scheduler units."""
        return self.table.allocatable.column(resource)[self._at]

    def requested(self, resource: str) -> Int64:
        """int64[n]: the sum of the pods' requests, in scheduler units."""
        return self.table.requested.column(resource)[self._at]

    def allocatable_of(self, resources: tuple[str, ...]) -> Int64:
        """int64[len(resources), n]: ``allocatable`` of several resources. Must not be changed."""
        return self.table.allocatable.block(resources, self._at)

    def requested_of(self, resources: tuple[str, ...]) -> Int64:
        """int64[len(resources), n]: ``requested`` of several resources. Must not be changed."""
        return self.table.requested.block(resources, self._at)

    def nonzero_requested(self, which: int) -> Int64:
        """int64[n]: requests of CPU_ROW or MEMORY_ROW, with kube-scheduler's defaults for absent ones."""
        column: Int64 = self.table.nonzero.matrix[which, self._at]
        return column

    def nonzero_of_both(self) -> Int64:
        """int64[2, n]: ``nonzero_requested`` of cpu and memory. Must not be changed."""
        return self.table.nonzero.block(_CPU_AND_MEMORY, self._at)

    def allocatable_pods(self) -> Int64:
        """int64[n]: the allocatable number of pods."""
        return self.table.allocatable_pods[self._at]

    def pod_count(self) -> Int64:
        """int64[n]: the number of pods."""
        return self.table.pod_count[self._at]

    def unschedulable(self) -> Mask:
        """bool[n]: whether the node is cordoned."""
        return self.table.unschedulable[self._at]

    def label(self, key: str) -> tuple[LabelColumn, Codes]:
        """The column of a label key, and the rows' codes in it; valid until a node changes."""
        column = self.table.labels.column(key)
        return column, column.codes[self._at]

    def taints(self) -> Codes:
        """The rows' indices in ``taint_sets``; valid while ``table.taints.epoch`` is unchanged."""
        return self.table.taints.codes[self._at]

    def taint_sets(self) -> list[tuple[Taint, ...]]:
        """The distinct taint lists."""
        return self.table.taints.values

    def names(self) -> list[str]:
        """The node names of the rows; for messages and extenders."""
        names = self.table.names
        return [names[row] for row in self.rows.tolist()]

    def node(self, position: int) -> Node:
        """The Node object at a position of the view."""
        node: Node | None = self.table.nodes[self.rows[position]]
        if node is None:
            raise LookupError(f"no node object at row {self.rows[position]}")
        return node

    def pods(self, position: int) -> Iterator[Pod]:
        """The pods on the node at a position of the view."""
        return iter(self.table.pods[self.rows[position]].values())

    # ------------------------------------------------------------ what a view may dry_run_with (see DryRunView)

    def changes(self) -> Iterable[tuple[int, Pod, int]]:
        """(position, pod, +1 or -1) for every pod added to or removed from a row in this dry run."""
        return ()

    def counts(self, counter: PodCounter) -> Int64:
        """int64[n]: the pods that the counter counts, dry-run changes included."""
        return counter.counts[self._at].astype(np.int64)

    def count_delta(self, counter: PodCounter) -> Int64 | None:
        """int64[n]: the dry-run changes in ``counts``; None without a dry run."""
        del counter
        return None

    def port_conflicts(self, wanted: Iterable[HostPort]) -> Mask:
        """bool[n]: whether any of these host ports is in use."""
        taken = self.table.ports.claimed_rows(wanted)
        if self.n <= _FEW_ROWS:
            rows = self.rows.tolist()
            return np.array([any(row in one for one in taken) for row in rows], bool)
        out = np.zeros(self.table.capacity, bool)
        for one in taken:
            out[np.fromiter(one, np.intp, len(one))] = True
        return out[self._at]


class LazyView(View):
    """A view whose rows are computed when they are first read: ``rows()`` returns them."""

    def __init__(self, table: NodeTable, rows: Callable[[], Rows]) -> None:
        self._table = table
        self._make = rows

    def __getattr__(self, name: str) -> Any:
        if name not in {"table", "rows", "n", "_at"}:
            raise AttributeError(name)
        super().__init__(self._table, self._make())
        return self.__dict__[name]


class DryRunView(View):
    """A view in which pods have been added to, or removed from, single rows; each row is an independent dry run.

    Pods may be added and removed at any time, singly or in batches. Columns are updated at once; the pods of a row
    are computed on request. The columns and questions are those of View, with the changes.
    """

    def __init__(self, table: NodeTable, rows: Rows) -> None:
        super().__init__(table, rows)
        #: The differences from the table's columns, by position.
        self._requested: Final = ResourceColumns(self.n)
        self._nonzero: Final = ResourceColumns(self.n)
        self._pods: Int64 = np.zeros(self.n, np.int64)
        self._deltas: dict[int, tuple[PodCounter, Int64]] = {}
        #: By position: the net changes by uid, without the moves in ``_moves``, which came later.
        self._changed: list[dict[str, tuple[Pod, int]]] = []
        self._moves: list[_Moves] = []
        #: By position: whether a host port of a moved pod is in use, and the ports pinned by ``pin_ports``.
        self._ports: dict[int, dict[HostPort, bool]] = {}
        self._pinned: dict[int, frozenset[HostPort]] = {}

    # ------------------------------------------------------------ moving pods

    def add(self, position: int, pod: Pod) -> None:
        """Adds a pod to a row."""
        self.add_many(PodBatch((pod,)), _FIRST, np.array((position,), np.intp))

    def remove(self, position: int, pod: Pod) -> None:
        """Removes a pod from its row."""
        self.remove_many(PodBatch((pod,)), _FIRST, np.array((position,), np.intp))

    def add_many(self, batch: PodBatch, chosen: Rows, positions: Rows) -> None:
        """Adds the pods ``chosen`` from a batch (intp[k], by index) to the rows at ``positions`` (intp[k])."""
        self._move(_Moves(batch, chosen, positions, 1))

    def add_copies(self, batch: PodBatch, numbers: Int64) -> None:
        """Adds so many copies (int64[n]) of the one pod of a batch to each row. Its columns count; ``pods`` has it
        once.
        """
        at = np.flatnonzero(numbers)
        self._move(_Moves(batch, np.zeros(len(at), np.intp), at, numbers[at]))

    def remove_many(self, batch: PodBatch, chosen: Rows, positions: Rows) -> None:
        """Removes the pods ``chosen`` from a batch; arguments as for ``add_many``."""
        self._move(_Moves(batch, chosen, positions, -1))

    def pin_ports(self, position: int, ports: frozenset[HostPort]) -> None:
        """Counts these host ports as in use on a row, even if their pods are removed."""
        self._pinned[position] = ports

    def _move(self, moves: "_Moves") -> None:
        batch, chosen, positions, signs = moves
        for name, amounts in batch.amounts.items():
            self._requested.add_at(name, positions, signs * amounts[chosen])
        for name, amounts in batch.nonzero.items():
            self._nonzero.add_at(name, positions, signs * amounts[chosen])
        if batch.rare:
            for index, position, sign in moves.each():
                self._requested.add(position, batch.rare.get(index, ()), sign)
        np.add.at(self._pods, positions, signs)
        for counter, delta in self._deltas.values():
            moves.tally(counter, delta)
        if batch.with_ports:
            self._move_ports(moves)
        self._moves.append(moves)

    def _move_ports(self, moves: "_Moves") -> None:
        """As in kube-scheduler a port has no owner: it is free as soon as any pod that claims it is removed."""
        pods = moves.batch.pods
        for index, position, sign in moves.each():
            if ports := pods[index].template.host_ports:
                in_use = dict.fromkeys(ports, sign > 0)
                self._ports.setdefault(position, {}).update(in_use)

    def _net(self) -> list[dict[str, tuple[Pod, int]]]:
        """By position and uid: the added (+1) and removed (-1) pods."""
        if not self._changed:
            self._changed = [{} for _ in range(self.n)]
        for moves in self._moves:
            for index, position, sign in moves.each():
                pod = moves.batch.pods[index]
                changed = self._changed[position]
                if pod.uid in changed:
                    del changed[pod.uid]
                else:
                    changed[pod.uid] = (pod, sign)
        self._moves.clear()
        return self._changed

    def sum_up(self) -> None:
        """Sums up the moves so far, which the next question about pods would have to do."""
        self._net()

    def take(self, positions: npt.NDArray[np.intp] | Mask) -> "DryRunView":
        """A copy for some of the rows; later changes in one do not affect the other."""
        chosen = np.arange(self.n)[positions]
        out = DryRunView(self.table, self.rows[chosen])
        net = self._net()
        changes = [(new, *change) for new, old in enumerate(chosen) for change in net[old].values()]
        if changes:
            places, pods, signs = zip(*changes, strict=True)
            indices = np.arange(len(pods))
            out._move(
                _Moves(
                    PodBatch(pods), indices, np.array(places, np.intp), np.array(signs, np.int64)
                )
            )
        for new, old in enumerate(chosen.tolist()):
            if old in self._ports:
                out._ports[new] = dict(self._ports[old])
            if old in self._pinned:
                out._pinned[new] = self._pinned[old]
        return out

    # ------------------------------------------------------------ columns

    def requested(self, resource: str) -> Int64:
        column: Int64 = self.requested_of((resource,))[0]
        return column

    def nonzero_requested(self, which: int) -> Int64:
        column: Int64 = self.nonzero_of_both()[which]
        return column

    def requested_of(self, resources: tuple[str, ...]) -> Int64:
        return self._with_moves(self.table.requested, self._requested, resources)

    def nonzero_of_both(self) -> Int64:
        return self._with_moves(self.table.nonzero, self._nonzero, _CPU_AND_MEMORY)

    def _with_moves(
        self, table: ResourceColumns, moved: ResourceColumns, resources: tuple[str, ...]
    ) -> Int64:
        """int64[len(resources), n]: what the table has on these rows, and what was moved there."""
        base = table.block(resources, self.rows)
        delta = moved.block(resources, _EVERYWHERE)
        block = base + delta
        for k, name in enumerate(resources):
            if table.saturated(name) or moved.saturated(name):
                for at in (
                    ((abs(base[k]) == LIMIT) | (abs(delta[k]) == LIMIT)).nonzero()[0].tolist()
                ):
                    exact = table.exact(name, int(self.rows[at])) + moved.exact(name, at)
                    block[k, at] = clamp(exact)
        return block

    def pod_count(self) -> Int64:
        return super().pod_count() + self._pods

    # ------------------------------------------------------------ pods

    def pods(self, position: int) -> Iterator[Pod]:
        changed = self._net()[position]
        for pod in super().pods(position):
            if pod.uid not in changed:
                yield pod
        for pod, sign in changed.values():
            if sign > 0:
                yield pod

    def changes(self) -> Iterable[tuple[int, Pod, int]]:
        for position, changed in enumerate(self._net()):
            for pod, sign in changed.values():
                yield position, pod, sign

    def counts(self, counter: PodCounter) -> Int64:
        return super().counts(counter) + self.count_delta(counter)

    def count_delta(self, counter: PodCounter) -> Int64:
        known = self._deltas.get(id(counter))
        if known is None:
            delta = np.zeros(self.n, np.int64)
            for position, changed in enumerate(self._changed):
                for pod, sign in changed.values():
                    delta[position] += sign * counter.times(pod)
            for moves in self._moves:
                moves.tally(counter, delta)
            known = self._deltas[id(counter)] = (counter, delta)
        return known[1]

    def port_conflicts(self, wanted: Iterable[HostPort]) -> Mask:
        wanted = tuple(wanted)
        out = super().port_conflicts(wanted)
        for position in self._ports.keys() | self._pinned.keys():
            out[position] = any(
                conflicts(port, used) for used in self._ports_in_use(position) for port in wanted
            )
        return out

    def _ports_in_use(self, position: int) -> Iterator[HostPort]:
        moved = self._ports.get(position, {})
        for pod in super().pods(position):
            yield from (port for port in pod.template.host_ports if port not in moved)
        yield from (port for port, in_use in moved.items() if in_use)
        yield from self._pinned.get(position, ())


def dry_run_with(table: NodeTable, pods: Mapping[int, Sequence[Pod]]) -> DryRunView:
    """A dry run on these rows, in their order, with these pods added to each."""
    view = DryRunView(table, np.fromiter(pods, np.intp, len(pods)))
    batch = PodBatch([pod for some in pods.values() for pod in some])
    counts = np.fromiter(map(len, pods.values()), np.intp, len(pods))
    owners = np.repeat(np.arange(len(pods)), counts)
    view.add_many(batch, np.arange(len(batch)), owners)
    for position in set(owners[batch.with_ports].tolist()):
        some = pods[int(view.rows[position])]
        ports = frozenset(port for pod in some for port in pod.template.host_ports)
        view.pin_ports(position, ports)
    return view


class _Moves(NamedTuple):
    """Pods of a batch, by index, that were added to (sign +1) or removed from (-1) the rows at ``positions``."""

    batch: PodBatch
    chosen: Rows
    positions: Rows
    signs: Int64 | int

    def tally(self, counter: PodCounter, delta: Int64) -> None:
        """Adds the counter's counts of the moved pods to ``delta`` (int64, by position)."""
        np.add.at(delta, self.positions, self.signs * self.batch.times(counter)[self.chosen])

    def each(self) -> Iterator[tuple[int, int, int]]:
        """(index in the batch, position, sign) of each move."""
        signs = np.broadcast_to(self.signs, self.chosen.shape).tolist()
        return zip(self.chosen.tolist(), self.positions.tolist(), signs, strict=True)
