"""Why a pod is unschedulable: one verdict per node, kept as columns until a message is needed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from app.model.status import Code, SchedulingError, Status, histogram
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask

#: ``FilterOutcome.plugin`` of a row that no plugin rejected.
NONE: Final = np.int8(127)
_ERROR: Final = np.int8(Code.Error)
#: The name for all extenders together in a set of plugin names.
EXTENDER: Final = "Extender"
#: Values below this limit are counted by bincount instead of sorting.
_COUNTABLE: Final = 2**16
#: Up to this many distinct values are searched one by one.
_FEW: Final = 16


class Scores(NamedTuple):
    """The scores from which a node was chosen: int64[nodes] each, empty if only one node was feasible."""

    nodes: list[str]
    #: Weighted and normalised scores by plugin.
    by_plugin: dict[str, Int64]
    #: Totals, extenders' scores included.
    totals: Int64


class FilterOutcome(msgspec.Struct):
    """The filters' verdicts by row: for each row that of the first plugin that rejects it.

    ``plugin``: int8[n], position in ``names`` of that plugin, NONE for feasible rows.
    ``codes``: int8[n] and ``reasons``: int32[n] are that plugin's.
    ``considered``: bool[n], the rows that were evaluated (with a Node object, and not excluded by PreFilter).
    """

    names: Sequence[str]
    plugin: npt.NDArray[np.int8]
    codes: npt.NDArray[np.int8]
    reasons: npt.NDArray[np.int32]
    texts: dict[int, Callable[[int], tuple[str, ...]]]
    considered: Mask
    #: Whether any verdict may be an Error, which fails the attempt (see ``check``).
    faulty: bool = False

    @classmethod
    def of(cls, names: Sequence[str], n: int) -> "FilterOutcome":
        """``n`` rows, all considered, of which none is rejected."""
        codes, reasons = np.zeros(n, np.int8), np.zeros(n, np.int32)
        return cls(names, np.full(n, NONE), codes, reasons, {}, np.ones(n, bool))

    def over(self, considered: Mask) -> "FilterOutcome":
        """These verdicts, not copied, as those of the rows in bool[n]."""
        return msgspec.structs.replace(self, considered=considered)

    def copy(self) -> "FilterOutcome":
        """An independent copy."""
        return FilterOutcome(
            self.names,
            self.plugin.copy(),
            self.codes.copy(),
            self.reasons.copy(),
            dict(self.texts),
            self.considered.copy(),
            self.faulty,
        )

    def take(self, rows: npt.NDArray[np.intp]) -> "FilterOutcome":
        """A copy with the verdicts on some rows, all considered."""
        plugin, codes, reasons = self.plugin[rows], self.codes[rows], self.reasons[rows]
        considered = np.ones(len(rows), bool)
        return FilterOutcome(
            self.names, plugin, codes, reasons, self.texts, considered, self.faulty
        )

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays of verdicts."""
        return self.plugin.nbytes + self.codes.nbytes + self.reasons.nbytes

    # ------------------------------------------------------------ changes

    def add(
        self,
        number: int,
        codes: npt.NDArray[np.int8],
        reasons: npt.NDArray[np.int32],
        text: Callable[[int], tuple[str, ...]],
    ) -> None:
        """Records the rejections of plugin ``number`` on rows that no earlier plugin rejected.

        Raises SchedulingError if the number of verdicts is wrong.
        """
        if codes.shape != self.plugin.shape:
            name, rows = self.names[number], len(self.plugin)
            raise SchedulingError(
                f'running "{name}" filter plugin: {codes.size} verdicts on {rows} nodes'
            )
        rejected = ((codes != 0) & (self.plugin > number)).nonzero()[0]
        if not len(rejected):
            return
        fresh = codes[rejected]
        self.faulty = self.faulty or bool(np.count_nonzero(fresh == _ERROR))
        self.plugin[rejected] = number
        self.codes[rejected] = fresh
        self.reasons[rejected] = reasons[rejected]
        self.texts[number] = text

    def put(self, rows: npt.NDArray[np.intp] | slice, other: "FilterOutcome") -> None:
        """Copies the verdicts of ``other``, which has one row for each of ``rows``."""
        self.plugin[rows] = other.plugin
        self.codes[rows] = other.codes
        self.reasons[rows] = other.reasons
        self.texts.update(other.texts)
        self.faulty = self.faulty or other.faulty

    def clear(self, rows: npt.NDArray[np.intp] | slice) -> None:
        """Marks these rows as feasible."""
        self.plugin[rows] = NONE
        self.codes[rows] = 0

    def check(self) -> None:
        """Raises SchedulingError if a plugin answered Error for a row that is considered: the first plugin's, if
        several.
        """
        if not self.faulty:
            return
        rows = np.flatnonzero((self.codes == Code.Error) & self.considered)
        if len(rows):
            row = rows[np.argmin(self.plugin[rows])]
            number = int(self.plugin[row])
            text = ", ".join(self.texts[number](int(self.reasons[row])))
            raise SchedulingError(f'running "{self.names[number]}" filter plugin: {text}')

    # ------------------------------------------------------------ questions

    def feasible(self, every: npt.NDArray[np.intp] | None = None) -> npt.NDArray[np.intp]:
        """The feasible rows, ascending; ``every`` itself if it is given and all rows are feasible."""
        good: Mask = (self.plugin == NONE) & self.considered
        if every is not None and np.count_nonzero(good) == len(every):
            return every
        return good.nonzero()[0]

    def rejected(self) -> npt.NDArray[np.intp]:
        """The rejected rows, ascending."""
        bad: Mask = (self.plugin != NONE) & self.considered
        return bad.nonzero()[0]

    def rejecting_plugins(self) -> set[str]:
        """Names of the plugins that rejected any row."""
        return self._plugins_of(self.rejected())

    def pending_plugins(self) -> set[str]:
        """Names of the plugins that rejected any row with Code.Pending."""
        rows = self.rejected()
        return self._plugins_of(rows[self.codes[rows] == Code.Pending])

    def _plugins_of(self, rows: npt.NDArray[np.intp]) -> set[str]:
        found = np.bincount(self.plugin[rows]).nonzero()[0]
        return {self.names[number] for number in found.tolist()}

    def rejection_counts(self, rows: npt.NDArray[np.intp]) -> Iterator[tuple[Status, int]]:
        """The verdicts on ``rows``, which must be rejected ones, and how many rows have each."""
        if not len(rows):
            return
        reasons = self.reasons[rows].astype(np.int64)
        reasons -= reasons.min()
        width = int(reasons.max()) + 1
        keys = self.plugin[rows].astype(np.int64) * width + reasons
        for first, count in _distinct(keys, int(NONE) * width):
            yield self.status(int(rows[first])), count

    def status(self, row: int) -> Status:
        """The status of one row."""
        number = int(self.plugin[row])
        if number == NONE:
            return Status(Code.Success)
        text = self.texts[number](int(self.reasons[row]))
        return Status(Code(int(self.codes[row])), text, self.names[number])


def _distinct(values: npt.NDArray[np.int64], limit: int) -> Iterator[tuple[int, int]]:
    """For each distinct value, ascending: the first index and the count. Values are at least 0 and below ``limit``."""
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
    """All verdicts on an unschedulable pod: the filters' (columns), the extenders' (by row), and one for all other
    nodes.

    ``node_count``: the number of nodes. ``absent``: the status of nodes that were not evaluated (kube-scheduler's
    AbsentNodesStatus). ``pre_filter_message``: set when PreFilter rejected the pod as a whole.
    ``unschedulable_plugins`` and ``pending_plugins``: the plugins whose events may wake the pod (see QueuedPod).
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
        #: Verdicts by row that replace the filters': those of extenders, and of nodes that extenders left out without
        #: a reason.
        self.by_row: dict[int, Status] = {}
        self.unschedulable_plugins: set[str] = set()
        self.pending_plugins: set[str] = set()
        #: The message, whose counts take a tenth of a millisecond: it is asked for more than once.
        self._text = ""

    def status(self, row: int) -> Status:
        """The status of one row."""
        if row in self.by_row:
            return self.by_row[row]
        if self.outcome is None or row >= len(self.outcome.considered):
            return self.absent
        if not self.outcome.considered[row]:
            return self.absent
        status = self.outcome.status(row)
        return self.absent if status.ok else status

    def rows_with(self, code: Code, live: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Those of the ``live`` rows (ascending) with this code; rows added after the attempt have ``absent``."""
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

    def rejection_counts(self) -> list[tuple[Status, int]]:
        """The statuses of rejected nodes, and how many have each: filters first, then extenders, then PreFilter."""
        counts: list[tuple[Status, int]] = []
        if self.outcome is not None:
            rows = self.outcome.rejected()
            if self.by_row:
                rows = np.setdiff1d(rows, np.fromiter(self.by_row, np.intp, len(self.by_row)))
            counts += self.outcome.rejection_counts(rows)
        counts += Counter(self.by_row.values()).items()
        rest = self.node_count - sum(nodes for _, nodes in counts)
        if rest > 0 and self.absent.reasons:
            counts.append((self.absent, rest))
        return counts

    def reason_counts(self) -> Counter[str]:
        """The number of nodes by reason; a node with two reasons counts for both."""
        counts: Counter[str] = Counter()
        for status, nodes in self.rejection_counts():
            for reason in status.reasons:
                counts[reason] += nodes
        return counts

    def message(self, post_filter_message: str = "") -> str:
        """kube-scheduler's text (docs/spec/cycle.md#failedscheduling-message), once all verdicts are there."""
        text = self._text
        if not text:
            if self.pre_filter_message:
                text = f"0/{self.node_count} nodes are available: {self.pre_filter_message}."
            else:
                text = unavailable(self.node_count, self.reason_counts())
            self._text = text
        return f"{text} {post_filter_message}" if post_filter_message else text


def unavailable(node_count: int, reasons: Mapping[str, int]) -> str:
    """kube-scheduler's text for the number of nodes and the number that has each reason."""
    text = f"0/{node_count} nodes are available:"
    counts = histogram(reasons.items())
    return f"{text} {counts}." if counts else text
