"""Views: the rows of the node table that a question is about, with or without pods imagined away or added.

Plugins see nodes only through views, so the same array code answers for all nodes (a cycle), for the few that survived
the extenders (the late decision), for the rows that changed since a sibling was decided, and for the candidates of a
preemption, where every row is a world of its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from app.model.objects import Node, Taint
from app.model.pod import HostPort, Pod
from app.model.requests import CPU, MEMORY
from app.state.columns.families import PodCounter
from app.state.columns.labels import Codes, LabelColumn, Mask
from app.state.columns.ports import conflicts
from app.state.columns.resources import Int64, ResourceColumns
from app.state.columns.sparse import LIMIT, clamp
from app.state.pod_batch import PodBatch
from app.state.table import NodeTable

Rows = npt.NDArray[np.intp]

#: In views of at most this many rows each row is looked up in the sets of rows behind a port; larger ones use a mask.
_FEW_ROWS: Final = 32
_FIRST: Final = np.zeros(1, np.intp)
_EVERYWHERE: Final = slice(None)
_CPU_AND_MEMORY: Final = (CPU, MEMORY)


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
        view = cls(table, table.all_rows())
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
        """What the pods ask for of CPU_ROW or MEMORY_ROW, with stand-ins for containers that ask for none."""
        column: Int64 = self.table.nonzero.matrix[which, self._at]
        return column

    def nonzero_of_both(self) -> Int64:
        """int64[2, n]: ``nonzero_requested`` of cpu and of memory. Not to be changed."""
        return self.table.nonzero.block(_CPU_AND_MEMORY, self._at)

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
        """The column of a label key, and each row's code in it; good until a node changes."""
        column = self.table.labels.column(key)
        return column, column.codes[self._at]

    def taints(self) -> Codes:
        """Each row's number in ``taint_sets``, for as long as ``table.taints.epoch`` is the same."""
        return self.table.taints.codes[self._at]

    def taint_sets(self) -> list[tuple[Taint, ...]]:
        """The distinct taint lists."""
        return self.table.taints.values

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

    # ------------------------------------------------------------ what a view may dry_run_with (see DryRunView)

    def changes(self) -> Iterable[tuple[int, Pod, int]]:
        """(position, pod, +1 or -1) for every pod imagined on, or away from, a row of this view."""
        return ()

    def counts(self, counter: PodCounter) -> Int64:
        """Pods per row that the counter counts, in this view's world."""
        return counter.counts[self._at].astype(np.int64)

    def count_delta(self, counter: PodCounter) -> Int64 | None:
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


class DryRunView(View):
    """A view in which pods have been added to, or taken from, single rows: each row is a world of its own.

    Pods may be moved at any time between questions, one at a time or many at once. Columns follow at once, what each row's
    pods are is worked out on request.
    """

    def __init__(self, table: NodeTable, rows: Rows) -> None:
        super().__init__(table, rows)
        #: How far the columns are from the table's, by position.
        self._requested: Final = ResourceColumns(self.n)
        self._nonzero: Final = ResourceColumns(self.n)
        self._pods: Int64 = np.zeros(self.n, np.int64)
        self._deltas: dict[int, tuple[PodCounter, Int64]] = {}
        self._moves: list[_Moves] = []
        #: How many of the moves are in ``_changed``: by position, the net changes by uid.
        self._folded = 0
        self._changed: list[dict[str, tuple[Pod, int]]] = []
        #: By position: whether a host port that a moved pod claims is in use, and those that are so in any case.
        self._ports: dict[int, dict[HostPort, bool]] = {}
        self._pinned: dict[int, frozenset[HostPort]] = {}

    # ------------------------------------------------------------ moving pods

    def add(self, position: int, pod: Pod) -> None:
        """Imagines a pod on a row; one that was imagined away is back."""
        self.add_many(PodBatch((pod,)), _FIRST, np.array((position,), np.intp))

    def remove(self, position: int, pod: Pod) -> None:
        """Imagines a pod away from its row; one that was imagined there is gone."""
        self.remove_many(PodBatch((pod,)), _FIRST, np.array((position,), np.intp))

    def add_many(self, batch: PodBatch, chosen: Rows, positions: Rows) -> None:
        """Imagines the pods ``chosen`` from a batch (intp[k], by index) on the rows at ``positions`` (intp[k])."""
        self._move(_Moves(batch, chosen, positions, 1))

    def remove_many(self, batch: PodBatch, chosen: Rows, positions: Rows) -> None:
        """Imagines them away."""
        self._move(_Moves(batch, chosen, positions, -1))

    def pin_ports(self, position: int, ports: frozenset[HostPort]) -> None:
        """Counts these host ports as in use on a row, whichever pods are moved."""
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
        """As in kube-scheduler a port has no owner: it is free once any pod that claims it is imagined away."""
        pods = moves.batch.pods
        for index, position, sign in moves.each():
            if ports := pods[index].template.host_ports:
                in_use = dict.fromkeys(ports, sign > 0)
                self._ports.setdefault(position, {}).update(in_use)

    def _net(self) -> list[dict[str, tuple[Pod, int]]]:
        """By position and uid: the pods that have changed, and which way."""
        if not self._changed:
            self._changed = [{} for _ in range(self.n)]
        for moves in self._moves[self._folded :]:
            for index, position, sign in moves.each():
                pod = moves.batch.pods[index]
                changed = self._changed[position]
                if pod.uid in changed:
                    del changed[pod.uid]
                else:
                    changed[pod.uid] = (pod, sign)
        self._folded = len(self._moves)
        return self._changed

    def take(self, positions: npt.NDArray[np.intp] | Mask) -> "DryRunView":
        """The same worlds for some of the rows. Later changes to one do not show in the other."""
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
        """What the pods on each node would ask for."""
        column: Int64 = self.requested_of((resource,))[0]
        return column

    def nonzero_requested(self, which: int) -> Int64:
        """The same with stand-ins for pods that ask for nothing."""
        column: Int64 = self.nonzero_of_both()[which]
        return column

    def requested_of(self, resources: tuple[str, ...]) -> Int64:
        """int64[len(resources), n]: the same for several resources at once."""
        return self._with_moves(self.table.requested, self._requested, resources)

    def nonzero_of_both(self) -> Int64:
        """int64[2, n]: ``nonzero_requested`` of cpu and of memory."""
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
        """How many pods each node would have."""
        return super().pod_count() + self._pods

    # ------------------------------------------------------------ pods

    def pods(self, position: int) -> Iterator[Pod]:
        """The pods that would be on the node at a position of the view."""
        changed = self._net()[position]
        for pod in super().pods(position):
            if pod.uid not in changed:
                yield pod
        for pod, sign in changed.values():
            if sign > 0:
                yield pod

    def changes(self) -> Iterable[tuple[int, Pod, int]]:
        """(position, pod, +1 or -1) for every imagined change."""
        for position, changed in enumerate(self._net()):
            for pod, sign in changed.values():
                yield position, pod, sign

    def counts(self, counter: PodCounter) -> Int64:
        """Pods per row that the counter would count."""
        return super().counts(counter) + self.count_delta(counter)

    def count_delta(self, counter: PodCounter) -> Int64:
        """How far ``counts`` differs from the table's own."""
        known = self._deltas.get(id(counter))
        if known is None:
            delta = np.zeros(self.n, np.int64)
            for moves in self._moves:
                moves.tally(counter, delta)
            known = self._deltas[id(counter)] = (counter, delta)
        return known[1]

    def port_conflicts(self, wanted: Iterable[HostPort]) -> Mask:
        """Whether any of these host ports would be taken, per row."""
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
    """A view of these rows, in their order, with these pods on each beside those that are, or will be moved, there."""
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
    """Pods of a batch, by index, that come to the rows at ``positions`` (signs +1) or leave them (-1)."""

    batch: PodBatch
    chosen: Rows
    positions: Rows
    signs: Int64 | int

    def tally(self, counter: PodCounter, delta: Int64) -> None:
        """Adds to ``delta`` (int64, by position) what the counter counts of the moved pods."""
        np.add.at(delta, self.positions, self.signs * self.batch.times(counter)[self.chosen])

    def each(self) -> Iterator[tuple[int, int, int]]:
        """(index in the batch, position, sign) one by one."""
        signs = np.broadcast_to(self.signs, self.chosen.shape).tolist()
        return zip(self.chosen.tolist(), self.positions.tolist(), signs, strict=True)
