"""Finds the victims on many nodes at once by a dry run (docs/spec/preemption.md#victims-on-a-node).

Every row is an independent dry run in one view. First all pods of lower priority are removed from every row. Then
they are added again step by step: step k adds the k-th potential victim of every row that has that many and runs the
filters once over these rows. Where the preemptor still fits the victim is reprieved, elsewhere it is removed again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Final

import msgspec
import numpy as np

from app.framework.diagnosis import NONE, FilterOutcome
from app.framework.interface import AnyPlugin, CycleState
from app.framework.runner import Framework
from app.model.pod import HostPort, Pod
from app.model.pod_groups import GroupKey
from app.model.status import Code, SchedulingError, Status, unresolvable
from app.plugins.default_preemption.budgets import DisruptionBudgets
from app.plugins.default_preemption.importance import by_importance
from app.state.columns.arrays import Rows
from app.state.columns.labels import Mask
from app.state.nominations import PodsByRow
from app.state.pod_batch import PodBatch
from app.state.pod_groups import PodGroups
from app.state.table import NodeTable
from app.state.view import DryRunView, dry_run_with
from app.wire.extender_v1 import Victims


class DryRunVerdicts:
    """The filters' verdicts on each row: ``failed`` is bool[n]."""

    def __init__(self, outcome: FilterOutcome, faults: dict[int, str]) -> None:
        self._outcome: Final = outcome
        self._faults: Final = faults
        self._known: dict[tuple[int, int, int], Status] = {}
        self.failed: Final[Mask] = outcome.plugin != NONE
        self.failed[list(faults)] = True

    def status(self, position: int) -> Status:
        """The status of a row; equal ones are the same object."""
        if position in self._faults:
            return Status(Code.Error, (self._faults[position],))
        outcome = self._outcome
        key = (
            int(outcome.plugin[position]),
            int(outcome.codes[position]),
            int(outcome.reasons[position]),
        )
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = outcome.status(position)
        return known


class PodFilters(msgspec.Struct, frozen=True):
    """The filters that PreFilter did not skip, and the pod."""

    framework: Framework
    filters: Sequence[tuple[int, AnyPlugin]]
    state: CycleState
    pod: Pod

    def run(self, view: DryRunView) -> tuple[FilterOutcome, dict[int, str]]:
        """The verdicts, and the errors by position. An error counts for its row only."""
        try:
            return self.framework.filter_view(self.state, self.pod, view, self.filters), {}
        except SchedulingError as error:
            if view.n == 1:
                return self.framework.accepted(1), {0: str(error)}
        outcome = self.framework.accepted(view.n)
        faults: dict[int, str] = {}
        for half in np.array_split(np.arange(view.n), 2):
            some, texts = self.run(view.take(half))
            outcome.put(half, some)
            faults |= {int(half[position]): text for position, text in texts.items()}
        return outcome, faults


class DryRunViews:
    """Dry runs on rows on which a pod must fit both with and without the nominated pods.

    ``alone``: all rows. ``together``: the rows with nominated pods, with these added. ``shared``: intp[k], ascending,
    the positions of the latter in ``alone``.
    """

    def __init__(
        self, filters: PodFilters, alone: DryRunView, shared: Rows, together: DryRunView
    ) -> None:
        self._filters: Final = filters
        self._alone: Final = alone
        self._shared: Final = shared
        self._together: Final = together

    @classmethod
    def of(
        cls, filters: PodFilters, table: NodeTable, rows: Rows, nominated: PodsByRow
    ) -> "DryRunViews":
        """The rows without changes."""
        shared = [p for p, row in enumerate(rows.tolist()) if row in nominated] if nominated else []
        together = dry_run_with(table, {row: nominated[row] for row in rows[shared].tolist()})
        return cls(filters, DryRunView(table, rows), np.array(shared, np.intp), together)

    def judged_by(self, filters: PodFilters) -> "DryRunViews":
        """The same views for another pod: what is added or removed in one is so in the other."""
        return DryRunViews(filters, self._alone, self._shared, self._together)

    def take(self, positions: Rows) -> "DryRunViews":
        """The views for some of the rows (ascending), to be used instead of these."""
        if len(positions) == self._alone.n:
            return self
        kept = np.isin(self._shared, positions)
        return DryRunViews(
            self._filters,
            self._alone.take(positions),
            np.searchsorted(positions, self._shared[kept]),
            self._together.take(kept),
        )

    def remove(self, batch: PodBatch, chosen: Rows, positions: Rows) -> None:
        """Removes pods of a batch, each from the row at its position."""
        self._alone.remove_many(batch, chosen, positions)
        if len(self._shared):
            self._together.remove_many(batch, *self._on_shared(chosen, positions))

    def add(self, batch: PodBatch, chosen: Rows, positions: Rows) -> None:
        """Adds pods of a batch again."""
        self._alone.add_many(batch, chosen, positions)
        if len(self._shared):
            self._together.add_many(batch, *self._on_shared(chosen, positions))

    def pin_ports(self, position: int, ports: frozenset[HostPort]) -> None:
        """Counts these host ports as in use on a row, whatever is removed there."""
        self._alone.pin_ports(position, ports)

    def sum_up(self) -> None:
        """Sums up what was added and removed so far, which ``take`` would have to do."""
        self._alone.sum_up()
        self._together.sum_up()

    def _on_shared(self, chosen: Rows, positions: Rows) -> tuple[Rows, Rows]:
        """The pods on rows with nominated pods, and their positions in ``together``."""
        at = np.minimum(np.searchsorted(self._shared, positions), len(self._shared) - 1)
        hit = self._shared[at] == positions
        return chosen[hit], at[hit]

    def evaluate(self) -> DryRunVerdicts:
        """Runs the filters."""
        both = len(self._shared) > 0
        outcome, faults = self._ask_both() if both else self._filters.run(self._alone)
        return DryRunVerdicts(outcome, faults)

    def _ask_both(self) -> tuple[FilterOutcome, dict[int, str]]:
        """Rows that fail with the nominated pods keep that verdict."""
        worse, worse_faults = self._filters.run(self._together)
        failed = np.flatnonzero(worse.plugin != NONE)
        if len(failed) == self._alone.n:
            return worse, worse_faults
        settled = self._shared[failed]
        outcome, faults = self._filters.run(self._alone)
        outcome.put(settled, worse.take(failed))
        for position in faults.keys() & set(settled.tolist()):
            del faults[position]
        faults |= {int(self._shared[p]): text for p, text in worse_faults.items()}
        return outcome, faults


NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")
EXPECTED_A_VICTIM: Final = 'expected at least one victim pod on node "{}"'

#: The victims on a node, or why preemption does not help there.
DryRunResult = Victims | Status


class _Potential(msgspec.Struct, frozen=True):
    """All pods of lower priority on some rows, by row, most important first.

    ``starts``: intp[n + 1], row i has the pods from starts[i] to starts[i + 1]. ``violating``: bool[m], whether
    evicting the pod violates a budget; None if none does. ``order``: intp[m], the pods of each row in the order of
    reprieve.
    """

    batch: PodBatch
    starts: Rows
    violating: Mask | None
    order: Rows

    @classmethod
    def of(cls, by_row: Sequence[Sequence[Pod]], budgets: DisruptionBudgets) -> "_Potential":
        starts = np.zeros(len(by_row) + 1, np.intp)
        np.cumsum([len(pods) for pods in by_row], out=starts[1:])
        batch = PodBatch(list(chain.from_iterable(by_row)))
        order = np.arange(len(batch))
        if not budgets.any:
            return cls(batch, starts, None, order)
        violating = np.array(list(chain.from_iterable(map(budgets.violating, by_row))), bool)
        owner = np.repeat(np.arange(len(by_row)), np.diff(starts))
        return cls(batch, starts, violating, np.lexsort((order, ~violating, owner)))

    @property
    def counts(self) -> Rows:
        """intp[n]: the number of pods on each row."""
        return np.diff(self.starts)

    def victims(self, evicted: Mask) -> list[Victims]:
        """The evicted pods of each row, most important first; of equal ones first those that violate budgets."""
        gone = evicted[self.order]
        bounds = np.concatenate(((0,), np.cumsum(gone)))[self.starts].tolist()
        chosen = self.order[gone]
        pods = [self.batch.pods[index] for index in chosen.tolist()]
        if self.violating is None:
            return [Victims(tuple(pods[start:end])) for start, end in pairwise(bounds)]
        broken = np.concatenate(((0,), np.cumsum(self.violating[chosen]))).tolist()
        return [
            Victims(tuple(by_importance(pods[start:end])), broken[end] - broken[start])
            for start, end in pairwise(bounds)
        ]


class DryRun:
    """The dry run of a preemption for one pod."""

    def __init__(
        self,
        filters: PodFilters,
        table: NodeTable,
        budgets: DisruptionBudgets,
        nominated: PodsByRow,
        groups: PodGroups,
        preemptor: GroupKey | None = None,
        *,
        empty: bool = False,
    ) -> None:
        """``nominated``: the nominated pods with at least this pod's priority, by row.

        ``preemptor``: the group for which the pod preempts, with the group's priority, and none of its pods; None: for
        itself. ``empty``: a row is a candidate although nobody there need be evicted (Kubernetes 1.38), because an
        extender rejected it.
        """
        self._filters: Final = filters
        self._table: Final = table
        self._budgets: Final = budgets
        self._nominated: Final = nominated
        self._groups: Final = groups
        self._preemptor: Final = preemptor
        self._empty: Final = empty
        #: Pods of a lower priority may be evicted.
        self._priority: Final = (
            filters.pod.priority
            if preemptor is None
            else groups.priority_of(preemptor, filters.pod)
        )

    def run(self, rows: Rows) -> list[DryRunResult]:
        """For each row the victims, most important first, or why preemption does not help."""
        potential = [self._lower(row) for row in rows.tolist()]
        positions = [position for position, pods in enumerate(potential) if pods]
        out: list[DryRunResult] = [NO_VICTIMS] * len(rows)
        if positions:
            found = self._search(rows[positions], [potential[p] for p in positions])
            for position, finding in zip(positions, found, strict=True):
                out[position] = finding
        return out

    @property
    def filters(self) -> Sequence[tuple[int, AnyPlugin]]:
        """The filters, with their positions in the profile."""
        return self._filters.filters

    def fits_without(self, row: int, victims: Iterable[Pod]) -> bool:
        """Whether the pod fits on a row without these pods; those that are already gone are ignored."""
        there = [pod for pod in victims if pod.uid in self._table.pods[row]]
        views = DryRunViews.of(
            self._filters, self._table, np.array((row,), np.intp), self._nominated
        )
        views.remove(PodBatch(there), np.arange(len(there)), np.zeros(len(there), np.intp))
        return not views.evaluate().failed[0]

    def _lower(self, row: int) -> list[Pod]:
        """The pods of lower priority on a row, most important first."""
        priority, own = self._priority, self._preemptor
        pods = [p for p in self._table.pods[row].values() if p.template.priority < priority]
        if own is not None:
            pods = [p for p in pods if self._groups.key_of(p) != own]
        if self._groups.any_units:
            pods = [p for p in pods if self._goes_with_its_group(p, priority)]
        return by_importance(pods)

    def _goes_with_its_group(self, pod: Pod, priority: int) -> bool:
        """False for a pod that is evicted only together with a group that is as important as the preemptor."""
        key = self._groups.unit_of(pod)
        group = None if key is None else self._groups.get(key)
        return group is None or (group.priority or 0) < priority

    def _search(self, rows: Rows, by_row: Sequence[Sequence[Pod]]) -> Iterator[DryRunResult]:
        potential = _Potential.of(by_row, self._budgets)
        views = DryRunViews.of(self._filters, self._table, rows, self._nominated)
        everything = np.arange(len(potential.batch))
        views.remove(potential.batch, everything, np.repeat(np.arange(len(rows)), potential.counts))
        verdicts = views.evaluate()
        evicted = self._reprieve(potential, views, np.flatnonzero(~verdicts.failed))
        failed = verdicts.failed.tolist()
        for position, victims in enumerate(potential.victims(evicted)):
            if failed[position]:
                yield verdicts.status(position)
            else:
                some = victims.pods or self._empty
                yield victims if some else self._no_victims(int(rows[position]))

    def _reprieve(self, potential: _Potential, views: DryRunViews, fitting: Rows) -> Mask:
        """bool[m]: whether the potential victim must be evicted; for the ``fitting`` rows."""
        evicted = np.zeros(len(potential.batch), bool)
        if not len(fitting):
            return evicted
        counts, starts = potential.counts, potential.starts
        rows = fitting
        views = views.take(rows)
        for step in range(int(counts[rows].max())):
            trying = np.flatnonzero(counts[rows] > step)
            if 2 * len(trying) < len(rows):
                views, rows = views.take(trying), rows[trying]
                trying = np.arange(len(rows))
            tried = potential.order[starts[rows[trying]] + step]
            views.add(potential.batch, tried, trying)
            failed = views.evaluate().failed[trying]
            if np.count_nonzero(failed):
                evicted[tried[failed]] = True
                views.remove(potential.batch, tried[failed], trying[failed])
        return evicted

    def _no_victims(self, row: int) -> Status:
        return Status(Code.Error, (EXPECTED_A_VICTIM.format(self._table.names[row]),))
