"""Candidate rows with pods imagined away, judged by the profile's own filters."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from app.framework.diagnosis import NONE, FilterOutcome
from app.framework.interface import CycleState, FilterPlugin
from app.framework.memo import FilterArrays
from app.framework.runner import Framework
from app.model.pod import Pod
from app.model.status import Code, SchedulingError, Status
from app.state.columns.labels import Mask
from app.state.nominations import PodsByRow
from app.state.pod_batch import PodBatch
from app.state.table import NodeTable
from app.state.view import DryRunView, Rows, dry_run_with


class DryRunVerdicts:
    """What the filters say of each row: ``failed`` is bool[n]."""

    def __init__(self, outcome: FilterOutcome, faults: dict[int, str]) -> None:
        self._outcome: Final = outcome
        self._faults: Final = faults
        self._known: dict[tuple[int, int, int], Status] = {}
        self.failed: Final[Mask] = outcome.plugin != NONE
        self.failed[list(faults)] = True

    def status(self, position: int) -> Status:
        """The verdict on a row, in words; equal ones are the same object."""
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


class Judge(msgspec.Struct, frozen=True):
    """The filters that PreFilter left, and the pod that they are asked about."""

    framework: Framework
    filters: Sequence[tuple[int, FilterPlugin]]
    state: CycleState
    pod: Pod

    def ask(self, view: DryRunView) -> tuple[FilterArrays, dict[int, str]]:
        """The verdicts, and the plugins' faults by position: a fault concerns no row but its own."""
        try:
            return self.framework.filter_view(self.state, self.pod, view, self.filters), {}
        except SchedulingError as error:
            if view.n == 1:
                return FilterArrays(1), {0: str(error)}
        arrays = FilterArrays(view.n)
        faults: dict[int, str] = {}
        for half in np.array_split(np.arange(view.n), 2):
            some, texts = self.ask(view.take(half))
            arrays.put(half, some)
            faults |= {int(half[position]): text for position, text in texts.items()}
        return arrays, faults


class DryRunViews:
    """Rows, each a world of its own, in which a pod has to fit twice: beside the pods nominated there, and without them.

    ``shared``: intp[k], ascending, the positions in ``alone`` of the rows with nominated pods; ``together`` has these.
    """

    def __init__(self, judge: Judge, alone: DryRunView, shared: Rows, together: DryRunView) -> None:
        self._judge: Final = judge
        self._alone: Final = alone
        self._shared: Final = shared
        self._together: Final = together

    @classmethod
    def of(cls, judge: Judge, table: NodeTable, rows: Rows, nominated: PodsByRow) -> "DryRunViews":
        """Rows as they are."""
        shared = [p for p, row in enumerate(rows.tolist()) if row in nominated] if nominated else []
        together = dry_run_with(table, {row: nominated[row] for row in rows[shared].tolist()})
        return cls(judge, DryRunView(table, rows), np.array(shared, np.intp), together)

    def take(self, positions: Rows) -> "DryRunViews":
        """The same worlds for some of the rows, ascending. To be used instead of these."""
        if len(positions) == self._alone.n:
            return self
        kept = np.isin(self._shared, positions)
        return DryRunViews(
            self._judge,
            self._alone.take(positions),
            np.searchsorted(positions, self._shared[kept]),
            self._together.take(kept),
        )

    def remove(self, batch: PodBatch, chosen: Rows, positions: Rows) -> None:
        """Imagines pods of a batch away, each from the row at its position."""
        self._alone.remove_many(batch, chosen, positions)
        if len(self._shared):
            self._together.remove_many(batch, *self._on_shared(chosen, positions))

    def add(self, batch: PodBatch, chosen: Rows, positions: Rows) -> None:
        """Puts pods of a batch back."""
        self._alone.add_many(batch, chosen, positions)
        if len(self._shared):
            self._together.add_many(batch, *self._on_shared(chosen, positions))

    def _on_shared(self, chosen: Rows, positions: Rows) -> tuple[Rows, Rows]:
        """Those of the pods that are on rows with nominated pods, and their positions among these."""
        at = np.minimum(np.searchsorted(self._shared, positions), len(self._shared) - 1)
        hit = self._shared[at] == positions
        return chosen[hit], at[hit]

    def judge(self) -> DryRunVerdicts:
        """Asks the filters."""
        both = len(self._shared) > 0
        arrays, faults = self._ask_both() if both else self._judge.ask(self._alone)
        outcome = self._judge.framework.filter_outcome(arrays, self._alone.n)
        return DryRunVerdicts(outcome, faults)

    def _ask_both(self) -> tuple[FilterArrays, dict[int, str]]:
        """Where the pod does not fit beside the nominated pods, it does not matter whether it would without them."""
        worse, worse_faults = self._judge.ask(self._together)
        failed = np.flatnonzero(worse.plugin != NONE)
        if len(failed) == self._alone.n:
            return worse, worse_faults
        settled = self._shared[failed]
        arrays, faults = self._judge.ask(self._alone)
        arrays.put(settled, worse.take(failed))
        for position in faults.keys() & set(settled.tolist()):
            del faults[position]
        faults |= {int(self._shared[p]): text for p, text in worse_faults.items()}
        return arrays, faults
