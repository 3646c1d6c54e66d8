"""Why a pod is unschedulable: a verdict per node, kept as columns until a message is needed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from app.model.status import Code, Status, histogram
from app.state.columns.labels import Mask
from app.state.columns.resources import Int64

#: ``FilterOutcome.plugin`` of a row that no plugin rejected.
NONE: Final = np.int8(127)
#: Names all extenders together where plugins are named.
EXTENDER: Final = "Extender"
#: Up to here values are counted in a table of their own rather than sorted.
_COUNTABLE: Final = 2**16
#: Up to so many values are looked for one by one.
_FEW: Final = 16


class Scores(NamedTuple):
    """The scores a node was chosen by; int64[nodes] each, empty where only one node was feasible."""

    nodes: list[str]
    #: Weighted and normalised, by plugin.
    by_plugin: dict[str, Int64]
    #: With the extenders' share.
    totals: Int64


class RejectionCount(NamedTuple):
    """A verdict with the plugin that gave it, and how many nodes it holds for."""

    status: Status
    nodes: int


class FilterOutcome:
    """What the filters said of every row of the table.

    ``plugin``: int8[n], position in ``names`` of the plugin that turned the row down first, NONE where it may go.
    ``codes``: int8[n] and ``reasons``: int32[n] are that plugin's.
    ``considered``: bool[n], the rows that were looked at (with a node object, and left by PreFilter).
    """

    __slots__ = ("codes", "considered", "names", "plugin", "reasons", "texts")

    def __init__(
        self,
        names: Sequence[str],
        plugin: npt.NDArray[np.int8],
        codes: npt.NDArray[np.int8],
        reasons: npt.NDArray[np.int32],
        texts: Mapping[int, Callable[[int], tuple[str, ...]]],
        considered: Mask,
    ) -> None:
        self.names: Final = names
        self.plugin: Final = plugin
        self.codes: Final = codes
        self.reasons: Final = reasons
        self.texts: Final = texts
        self.considered: Final = considered

    def feasible(self, every: npt.NDArray[np.intp] | None = None) -> npt.NDArray[np.intp]:
        """Rows where the pod may go, ascending. Where that is every row: ``every``, if given, which costs no new array."""
        good: Mask = (self.plugin == NONE) & self.considered
        if every is not None and np.count_nonzero(good) == len(every):
            return every
        return good.nonzero()[0]

    def rejected(self) -> npt.NDArray[np.intp]:
        """Rows that were looked at and rejected, ascending."""
        bad: Mask = (self.plugin != NONE) & self.considered
        return bad.nonzero()[0]

    def rejecting_plugins(self) -> set[str]:
        """Names of the plugins that turned any row down."""
        return self._plugins_of(self.rejected())

    def pending_plugins(self) -> set[str]:
        """Names of those among them that did so with Code.Pending: they wait for something of their own."""
        rows = self.rejected()
        return self._plugins_of(rows[self.codes[rows] == Code.Pending])

    def _plugins_of(self, rows: npt.NDArray[np.intp]) -> set[str]:
        return {self.names[number] for number in np.unique(self.plugin[rows]).tolist()}

    def refusals(self, rows: npt.NDArray[np.intp]) -> Iterator[RejectionCount]:
        """The verdicts on ``rows``, all of which were rejected, by plugin and reason."""
        if not len(rows):
            return
        reasons = self.reasons[rows].astype(np.int64)
        reasons -= reasons.min()
        width = int(reasons.max()) + 1
        keys = self.plugin[rows].astype(np.int64) * width + reasons
        for first, count in _distinct(keys, int(NONE) * width):
            yield RejectionCount(self.status(int(rows[first])), count)

    def frozen(self) -> "FilterOutcome":
        """A copy that later cycles do not touch."""
        return FilterOutcome(
            self.names,
            self.plugin.copy(),
            self.codes.copy(),
            self.reasons.copy(),
            dict(self.texts),
            self.considered.copy(),
        )

    def status(self, row: int) -> Status:
        """The verdict on one row, in words."""
        number = int(self.plugin[row])
        if number == NONE:
            return Status(Code.Success)
        text = self.texts[number](int(self.reasons[row]))
        return Status(Code(int(self.codes[row])), text, self.names[number])


def _distinct(values: npt.NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """Of each distinct value, ascending, where it first occurs and how often; all are from 0 and below ``limit``."""
    if limit <= _COUNTABLE:
        counts = np.bincount(values)
        found = counts.nonzero()[0]
        if len(found) <= _FEW:
            for value in found.tolist():
                yield int((values == value).argmax()), int(counts[value])
            return
    _, firsts, counts = np.unique(values, return_index=True, return_counts=True)
    yield from zip(firsts.tolist(), counts.tolist(), strict=True)


class Diagnosis:
    """All verdicts on a pod that fits nowhere: the filters' (columns), the extenders' (by row), and one for all other nodes.

    ``node_count``: how many nodes the cluster has. ``absent``: the verdict on nodes that were not evaluated (kube-scheduler's absent
    nodes status). ``pre_filter_message``: set when PreFilter rejected the pod as a whole.
    ``unschedulable_plugins`` and ``pending_plugins``: whose events may wake the pod (see QueuedPod).
    """

    def __init__(
        self,
        *,
        node_count: int,
        outcome: FilterOutcome | None = None,
        absent: Status = Status(Code.UnschedulableAndUnresolvable),  # noqa: B008 - frozen
        pre_filter_message: str = "",
    ) -> None:
        self.node_count: Final = node_count
        self.outcome: Final = outcome
        self.absent = absent
        self.pre_filter_message = pre_filter_message
        #: Verdicts by row that replace the filters': the extenders', and those of nodes they dropped silently.
        self.by_row: dict[int, Status] = {}
        self.unschedulable_plugins: set[str] = set()
        self.pending_plugins: set[str] = set()

    def status(self, row: int) -> Status:
        """The verdict on one row."""
        if row in self.by_row:
            return self.by_row[row]
        if self.outcome is None or row >= len(self.outcome.considered):
            return self.absent
        if not self.outcome.considered[row]:
            return self.absent
        status = self.outcome.status(row)
        return self.absent if status.ok else status

    def rows_with(self, code: Code, live: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Those of the ``live`` rows (ascending) whose verdict has this code; rows that came later have the default one."""
        codes = np.full(len(live), np.int8(self.absent.code))
        if self.outcome is not None:
            outcome, known = self.outcome, live[: np.searchsorted(live, len(self.outcome.plugin))]
            judged = (outcome.plugin[known] != NONE) & outcome.considered[known]
            codes[: len(known)][judged] = outcome.codes[known[judged]]
        if self.by_row and len(live):
            rows = np.fromiter(self.by_row, np.intp, len(self.by_row))
            at = np.minimum(np.searchsorted(live, rows), len(live) - 1)
            there = live[at] == rows
            codes[at[there]] = np.array([s.code for s in self.by_row.values()], np.int8)[there]
        chosen: npt.NDArray[np.intp] = live[codes == np.int8(code)]
        return chosen

    def reject(self, rows: npt.NDArray[np.intp], status: Status) -> None:
        """Records one verdict for several rows."""
        self.by_row.update(dict.fromkeys(rows.tolist(), status))

    def refusals(self) -> list[RejectionCount]:
        """Who rejected how many nodes for what, in the order of the filters, extenders and PreFilter last."""
        refusals: list[RejectionCount] = []
        if self.outcome is not None:
            rows = self.outcome.rejected()
            if self.by_row:
                rows = np.setdiff1d(rows, np.fromiter(self.by_row, np.intp, len(self.by_row)))
            refusals += self.outcome.refusals(rows)
        refusals += [RejectionCount(s, count) for s, count in Counter(self.by_row.values()).items()]
        rest = self.node_count - sum(refusal.nodes for refusal in refusals)
        if rest > 0 and self.absent.reasons:
            refusals.append(RejectionCount(self.absent, rest))
        return refusals

    def reason_counts(self) -> Counter[str]:
        """How many nodes have each reason; a node with two reasons counts for both."""
        counts: Counter[str] = Counter()
        for refusal in self.refusals():
            for reason in refusal.status.reasons:
                counts[reason] += refusal.nodes
        return counts

    def message(self, post_filter_message: str = "") -> str:
        """kube-scheduler's text (docs/spec/cycle.md#failedscheduling-message)."""
        if self.pre_filter_message:
            text = f"0/{self.node_count} nodes are available: {self.pre_filter_message}."
        else:
            text = unavailable(self.node_count, self.reason_counts())
        return f"{text} {post_filter_message}" if post_filter_message else text


def unavailable(node_count: int, reasons: Mapping[str, int]) -> str:
    """How many nodes there are, and how many of them have each reason, in kube-scheduler's words."""
    text = f"0/{node_count} nodes are available:"
    counts = histogram(reasons.items())
    return f"{text} {counts}." if counts else text
