"""Dry-run views for preemption, evaluated by the profile's filters with and without nominated pods."""

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
    filters: Sequence[tuple[int, FilterPlugin]]
    state: CycleState
    pod: Pod

    def run(self, view: DryRunView) -> tuple[FilterArrays, dict[int, str]]:
        """The verdicts, and the errors by position. An error counts for its row only."""
        try:
            return self.framework.filter_view(self.state, self.pod, view, self.filters), {}
        except SchedulingError as error:
            if view.n == 1:
                return FilterArrays(1), {0: str(error)}
        arrays = FilterArrays(view.n)
        faults: dict[int, str] = {}
        for half in np.array_split(np.arange(view.n), 2):
            some, texts = self.run(view.take(half))
            arrays.put(half, some)
            faults |= {int(half[position]): text for position, text in texts.items()}
        return arrays, faults


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

    def _on_shared(self, chosen: Rows, positions: Rows) -> tuple[Rows, Rows]:
        """The pods on rows with nominated pods, and their positions in ``together``."""
        at = np.minimum(np.searchsorted(self._shared, positions), len(self._shared) - 1)
        hit = self._shared[at] == positions
        return chosen[hit], at[hit]

    def evaluate(self) -> DryRunVerdicts:
        """Runs the filters."""
        both = len(self._shared) > 0
        arrays, faults = self._ask_both() if both else self._filters.run(self._alone)
        outcome = self._filters.framework.filter_outcome(arrays, np.ones(self._alone.n, bool))
        return DryRunVerdicts(outcome, faults)

    def _ask_both(self) -> tuple[FilterArrays, dict[int, str]]:
        """Rows that fail with the nominated pods keep that verdict."""
        worse, worse_faults = self._filters.run(self._together)
        failed = np.flatnonzero(worse.plugin != NONE)
        if len(failed) == self._alone.n:
            return worse, worse_faults
        settled = self._shared[failed]
        arrays, faults = self._filters.run(self._alone)
        arrays.put(settled, worse.take(failed))
        for position in faults.keys() & set(settled.tolist()):
            del faults[position]
        faults |= {int(self._shared[p]): text for p, text in worse_faults.items()}
        return arrays, faults
