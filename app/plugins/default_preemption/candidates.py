"""The search for preemption candidates, and the findings that are kept for it
(docs/spec/preemption.md#candidate-nodes).

Between two preemptors of one template little changes. If all filters are NodeLocal, the findings on a row are kept
for all pods of the template until the row, its nominated pods or a budget changes.
"""

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.pod import PodTemplate
from app.plugins.args import DefaultPreemptionArgs
from app.plugins.default_preemption.dry_run import DryRunResult
from app.plugins.default_preemption.importance import Loss, loss
from app.state.columns.arrays import Int64, Rows
from app.state.columns.labels import Mask
from app.state.nominations import PodsByRow
from app.state.table import NodeTable
from app.wire.extender_v1 import Victims

#: The values of ``Findings.kinds``.
HOPELESS: Final = 0
HARMLESS: Final = 1
VIOLATING: Final = 2

#: The least number of rows per dry run after the first one.
_BLOCK: Final = 64
_MAX_FAMILIES: Final = 16
_UNKNOWN: Final = Loss(0, 0, 0, 0, 0.0)

Trial = Callable[[Rows], Sequence[DryRunResult]]


class DryRunResults:
    """Findings by row: kinds (int8[size]), findings, and the losses of candidates.

    They are valid where the row is ``fresh``; rows that were never tried count as harmless.
    """

    def __init__(self, epoch: Hashable, size: int) -> None:
        self.epoch: Final = epoch
        self.kinds: npt.NDArray[np.int8] = np.full(size, HARMLESS, np.int8)
        self.by_row: Final[list[DryRunResult | None]] = [None] * size
        self.losses: Final[list[Loss]] = [_UNKNOWN] * size
        self._generation: Int64 = np.full(size, -1, np.int64)
        #: By row: the stamp of its nominated pods (PodsByRow).
        self._nominated: Int64 = np.zeros(size, np.int64)

    def forget_changes(self, nominated: PodsByRow) -> None:
        """Drops the findings on rows whose nominated pods have changed."""
        self._generation[self._nominated != nominated.stamps] = -1
        self._nominated = nominated.stamps.copy()

    def fresh(self, rows: Rows, table: NodeTable) -> Mask:
        """bool[len(rows)]: whether the row's finding is still valid."""
        mask: Mask = self._generation[rows] == table.generation[rows]
        return mask

    def put(self, rows: Rows, found: Sequence[DryRunResult], table: NodeTable) -> None:
        """Stores findings on rows in their present state."""
        self._generation[rows] = table.generation[rows]
        self.kinds[rows] = [_kind(finding) for finding in found]
        for row, finding in zip(rows.tolist(), found, strict=True):
            self.by_row[row] = finding
            self.losses[row] = loss(finding) if isinstance(finding, Victims) else _UNKNOWN


def _kind(finding: DryRunResult) -> int:
    if isinstance(finding, Victims):
        return VIOLATING if finding.num_pdb_violations else HARMLESS
    return HOPELESS


class FindingsByFamily:
    """The findings of the templates that preempted last."""

    def __init__(self, table: NodeTable) -> None:
        self._table: Final = table
        self._families: Final[dict[PodTemplate, DryRunResults]] = {}

    def of(self, template: PodTemplate, epoch: Hashable) -> DryRunResults:
        """The findings for a template; new ones if ``epoch`` or the size of the table has changed."""
        known = self._families.pop(template, None)
        if known is None or known.epoch != epoch or len(known.kinds) != self._table.size:
            known = DryRunResults(epoch, self._table.size)
        self._families[template] = known
        if len(self._families) > _MAX_FAMILIES:
            del self._families[next(iter(self._families))]
        return known

    def nothing(self) -> DryRunResults:
        """New findings that are not kept."""
        return DryRunResults(None, self._table.size)


def wanted(potential: int, args: DefaultPreemptionArgs) -> int:
    """The number of candidates that ends a search of ``potential`` nodes: a share, at least the minimum."""
    share = potential * args.min_candidate_nodes_percentage // 100
    return min(potential, max(share, args.min_candidate_nodes_absolute))


def search(
    rows: Rows, enough: int, findings: DryRunResults, trial: Trial, table: NodeTable, most: int = 0
) -> Generator[None, None, tuple[Rows, Rows]]:
    """Tries rows in order until there are ``enough`` candidates, one of which violates no budget.

    Returns the candidates, those without violations first, and the rows that were tried. The number of rows is first
    estimated from the previous findings, so that all changed rows are tried in one dry run. Pauses after each dry run;
    ``most``: rows per dry run, 0 for no limit.
    """
    fresh = findings.fresh(rows, table)
    more = 0
    while True:
        kinds = findings.kinds[rows]
        end = _end(kinds, enough)
        stale = np.flatnonzero(~fresh)
        if not len(stale) or stale[0] >= end:
            break
        chosen = stale[: max(int(np.searchsorted(stale, end)), more)][: most or None]
        findings.put(rows[chosen], trial(rows[chosen]), table)
        fresh[chosen] = True
        more = max(_BLOCK, 2 * more)
        yield
    kinds, tried = kinds[:end], rows[:end]
    harmless, violating = (tried[kinds == kind][:enough] for kind in (HARMLESS, VIOLATING))
    return np.concatenate((harmless, violating)), tried


def _end(kinds: npt.NDArray[np.int8], enough: int) -> int:
    """The number of rows, from the first on, that a search must examine if these are their kinds."""
    harmless = kinds == HARMLESS
    if not enough or not np.count_nonzero(harmless):
        return len(kinds)
    last = np.searchsorted(np.cumsum(kinds != HOPELESS), enough)
    return min(max(int(last), int(harmless.argmax())) + 1, len(kinds))
