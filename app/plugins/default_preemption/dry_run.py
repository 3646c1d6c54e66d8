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

from app.framework.interface import FilterPlugin
from app.model.pod import Pod
from app.model.status import Code, Status, unresolvable
from app.plugins.default_preemption.budgets import Budgets
from app.plugins.default_preemption.dry_run_views import DryRunViews, PodFilters
from app.plugins.default_preemption.importance import by_importance
from app.state.columns.labels import Mask
from app.state.nominations import PodsByRow
from app.state.pod_batch import PodBatch
from app.state.table import NodeTable
from app.state.view import Rows
from app.wire.extender_v1 import Victims

NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")
EXPECTED_A_VICTIM: Final = 'expected at least one victim pod on node "{}"'

#: The victims on a node, or why preemption does not help there.
Finding = Victims | Status


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
    def of(cls, by_row: Sequence[Sequence[Pod]], budgets: Budgets) -> "_Potential":
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
        self, filters: PodFilters, table: NodeTable, budgets: Budgets, nominated: PodsByRow
    ) -> None:
        """``nominated``: the nominated pods with at least this pod's priority, by row."""
        self._filters: Final = filters
        self._table: Final = table
        self._budgets: Final = budgets
        self._nominated: Final = nominated

    def run(self, rows: Rows) -> list[Finding]:
        """For each row the victims, most important first, or why preemption does not help."""
        potential = [self._lower(row) for row in rows.tolist()]
        positions = [position for position, pods in enumerate(potential) if pods]
        out: list[Finding] = [NO_VICTIMS] * len(rows)
        if positions:
            found = self._search(rows[positions], [potential[p] for p in positions])
            for position, finding in zip(positions, found, strict=True):
                out[position] = finding
        return out

    @property
    def filters(self) -> Sequence[tuple[int, FilterPlugin]]:
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
        priority = self._filters.pod.template.priority
        pods = [p for p in self._table.pods[row].values() if p.template.priority < priority]
        return by_importance(pods)

    def _search(self, rows: Rows, by_row: Sequence[Sequence[Pod]]) -> Iterator[Finding]:
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
                yield victims if victims.pods else self._no_victims(int(rows[position]))

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
