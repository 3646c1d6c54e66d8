"""Which nodes are tried out, and what was found on them before (docs/spec/preemption.md#candidate-nodes).

Preemptors come in families, and between two of them little changes. As long as nothing but the rows themselves decides, the
findings on a row are kept for all pods of a template, until the row, the pods nominated there or a budget changes.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from app.framework.args import DefaultPreemptionArgs
from app.model.pod import PodTemplate
from app.plugins.default_preemption.dry_run import Finding
from app.plugins.default_preemption.importance import Loss, loss
from app.state.columns.labels import Mask
from app.state.columns.resources import Int64
from app.state.nominations import PodsByRow
from app.state.table import NodeTable
from app.state.view import Rows
from app.wire.extender_v1 import Victims

#: What ``Findings.kinds`` says of a row.
HOPELESS: Final = 0
HARMLESS: Final = 1
VIOLATING: Final = 2

#: Rows tried out at once, at least, where the first ones disappoint.
_BLOCK: Final = 64
_MAX_FAMILIES: Final = 16
_UNKNOWN: Final = Loss(0, 0, 0, 0, 0.0)

Trial = Callable[[Rows], Sequence[Finding]]


class Findings:
    """What was found on rows: kinds (int8[size]), findings and the losses of candidates, by row.

    They hold where a row is ``fresh``; rows that were never tried are taken for harmless.
    """

    def __init__(self, epoch: Hashable, size: int) -> None:
        self.epoch: Final = epoch
        self.kinds: npt.NDArray[np.int8] = np.full(size, HARMLESS, np.int8)
        self.by_row: Final[list[Finding | None]] = [None] * size
        self.losses: Final[list[Loss]] = [_UNKNOWN] * size
        self._generation: Int64 = np.full(size, -1, np.int64)
        #: By row: the stamp of the pods nominated there (PodsByRow).
        self._nominated: Int64 = np.zeros(size, np.int64)

    def forget_changes(self, nominated: PodsByRow) -> None:
        """Drops what was found beside other nominated pods than now."""
        self._generation[self._nominated != nominated.stamps] = -1
        self._nominated = nominated.stamps.copy()

    def fresh(self, rows: Rows, table: NodeTable) -> Mask:
        """bool[len(rows)]: whether what was found there still holds."""
        mask: Mask = self._generation[rows] == table.generation[rows]
        return mask

    def put(self, rows: Rows, found: Sequence[Finding], table: NodeTable) -> None:
        """Notes what was found on rows as they are now."""
        self._generation[rows] = table.generation[rows]
        self.kinds[rows] = [_kind(finding) for finding in found]
        for row, finding in zip(rows.tolist(), found, strict=True):
            self.by_row[row] = finding
            self.losses[row] = loss(finding) if isinstance(finding, Victims) else _UNKNOWN


def _kind(finding: Finding) -> int:
    if isinstance(finding, Victims):
        return VIOLATING if finding.num_pdb_violations else HARMLESS
    return HOPELESS


class FindingsByFamily:
    """The findings of the families that preempted last."""

    def __init__(self, table: NodeTable) -> None:
        self._table: Final = table
        self._families: Final[dict[PodTemplate, Findings]] = {}

    def of(self, template: PodTemplate, epoch: Hashable) -> Findings:
        """What is known for a template; nothing if ``epoch`` is another than it was, or the table has grown."""
        known = self._families.pop(template, None)
        if known is None or known.epoch != epoch or len(known.kinds) != self._table.size:
            known = Findings(epoch, self._table.size)
        self._families[template] = known
        if len(self._families) > _MAX_FAMILIES:
            del self._families[next(iter(self._families))]
        return known

    def nothing(self) -> Findings:
        """For pods whose findings cannot be kept."""
        return Findings(None, self._table.size)


def wanted(potential: int, args: DefaultPreemptionArgs) -> int:
    """How many candidates end the search among ``potential`` nodes: the configured share, but not less than the minimum."""
    share = potential * args.min_candidate_nodes_percentage // 100
    return min(potential, max(share, args.min_candidate_nodes_absolute))


def search(
    rows: Rows, enough: int, findings: Findings, trial: Trial, table: NodeTable
) -> tuple[Rows, Rows]:
    """Tries rows in their order until there are ``enough`` candidates, one of them violating no budget.

    Returns the candidates, those that violate nothing first, and the rows that were tried. How many rows that takes is
    guessed first, from what they were the last time, so that those that have changed are tried all at once.
    """
    fresh = findings.fresh(rows, table)
    more = 0
    while True:
        kinds = findings.kinds[rows]
        end = _end(kinds, enough)
        stale = np.flatnonzero(~fresh)
        if not len(stale) or stale[0] >= end:
            break
        chosen = stale[: max(int(np.searchsorted(stale, end)), more)]
        findings.put(rows[chosen], trial(rows[chosen]), table)
        fresh[chosen] = True
        more = max(_BLOCK, 2 * more)
    kinds, tried = kinds[:end], rows[:end]
    harmless, violating = (tried[kinds == kind][:enough] for kind in (HARMLESS, VIOLATING))
    return np.concatenate((harmless, violating)), tried


def _end(kinds: npt.NDArray[np.int8], enough: int) -> int:
    """How many of the rows of these kinds, in their order, are to be looked at."""
    harmless = kinds == HARMLESS
    if not enough or not np.count_nonzero(harmless):
        return len(kinds)
    last = np.searchsorted(np.cumsum(kinds != HOPELESS), enough)
    return min(max(int(last), int(harmless.argmax())) + 1, len(kinds))
