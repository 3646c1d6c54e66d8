"""What evicting would take on each of some nodes, all of them at once (docs/spec/preemption.md#victims-on-a-node).

Every row is a world of its own in one what-if view: first all pods of lower priority are imagined away from every row, then
they are put back step by step. Step k tries the k-th victim of every row that has so many, with one pass of the filters over
all of them; where the pod still fits the victim is spared, elsewhere it goes again.
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
from app.plugins.default_preemption.dry_run_views import DryRunViews, Judge
from app.plugins.default_preemption.importance import by_importance
from app.state.columns.labels import Mask
from app.state.nominations import PodsByRow
from app.state.pod_batch import PodBatch
from app.state.table import NodeTable
from app.state.view import Rows
from app.wire.extender_v1 import Victims

NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")
EXPECTED_A_VICTIM: Final = 'expected at least one victim pod on node "{}"'

#: The victims on a node, or why evicting does not help there.
Finding = Victims | Status


class _Potential(msgspec.Struct, frozen=True):
    """All pods of lower priority on some rows, row by row, on each the most important first.

    ``starts``: intp[n + 1], row i has the pods from starts[i] to starts[i + 1]. ``violating``: bool[m], whether evicting a
    pod breaks a budget; None where nothing does. ``order``: intp[m], the pods of each row in the order of their reprieve.
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
        """intp[n]: how many there are on each row."""
        return np.diff(self.starts)

    def victims(self, evicted: Mask) -> list[Victims]:
        """The evicted ones of each row, the most important first; of equal ones first those that break budgets."""
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
    """Tries out preemption for one pod."""

    def __init__(
        self, judge: Judge, table: NodeTable, budgets: Budgets, nominated: PodsByRow
    ) -> None:
        """``nominated``: the pods that go before this one."""
        self._judge: Final = judge
        self._table: Final = table
        self._budgets: Final = budgets
        self._nominated: Final = nominated

    def run(self, rows: Rows) -> list[Finding]:
        """For each row the victims, most important first, or why there are none."""
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
        """The filters that are asked, with their places in the profile."""
        return self._judge.filters

    def fits_without(self, row: int, victims: Iterable[Pod]) -> bool:
        """Whether the pod fits on a row once these pods have gone; those that have left already do not matter."""
        there = [pod for pod in victims if pod.uid in self._table.pods[row]]
        worlds = DryRunViews.of(
            self._judge, self._table, np.array((row,), np.intp), self._nominated
        )
        worlds.remove(PodBatch(there), np.arange(len(there)), np.zeros(len(there), np.intp))
        return not worlds.judge().failed[0]

    def _lower(self, row: int) -> list[Pod]:
        """The pods on a row that may be evicted for this one, the most important first."""
        priority = self._judge.pod.template.priority
        pods = [p for p in self._table.pods[row].values() if p.template.priority < priority]
        return by_importance(pods)

    def _search(self, rows: Rows, by_row: Sequence[Sequence[Pod]]) -> Iterator[Finding]:
        potential = _Potential.of(by_row, self._budgets)
        worlds = DryRunViews.of(self._judge, self._table, rows, self._nominated)
        everything = np.arange(len(potential.batch))
        worlds.remove(
            potential.batch, everything, np.repeat(np.arange(len(rows)), potential.counts)
        )
        verdicts = worlds.judge()
        evicted = self._reprieve(potential, worlds, np.flatnonzero(~verdicts.failed))
        failed = verdicts.failed.tolist()
        for position, victims in enumerate(potential.victims(evicted)):
            if failed[position]:
                yield verdicts.status(position)
            else:
                yield victims if victims.pods else self._nobody(int(rows[position]))

    def _reprieve(self, potential: _Potential, worlds: DryRunViews, fitting: Rows) -> Mask:
        """bool[m]: which potential victims have to go for good on the ``fitting`` rows."""
        evicted = np.zeros(len(potential.batch), bool)
        if not len(fitting):
            return evicted
        counts, starts = potential.counts, potential.starts
        rows = fitting
        worlds = worlds.take(rows)
        for step in range(int(counts[rows].max())):
            trying = np.flatnonzero(counts[rows] > step)
            if 2 * len(trying) < len(rows):
                worlds, rows = worlds.take(trying), rows[trying]
                trying = np.arange(len(rows))
            tried = potential.order[starts[rows[trying]] + step]
            worlds.add(potential.batch, tried, trying)
            failed = worlds.judge().failed[trying]
            if np.count_nonzero(failed):
                evicted[tried[failed]] = True
                worlds.remove(potential.batch, tried[failed], trying[failed])
        return evicted

    def _nobody(self, row: int) -> Status:
        return Status(Code.Error, (EXPECTED_A_VICTIM.format(self._table.names[row]),))
