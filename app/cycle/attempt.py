"""One pod's scheduling attempt, in synchronous steps between which the shell can wait for extenders.

``find`` filters all nodes of the present table; ``rank`` scores the feasible nodes; ``choose`` takes the best. For a
pod whose template is known, ``choose_at_once`` gives the same result from what is kept, without a pass over all nodes.
Without extenders the shell calls them one after another, and nothing can change in between. With extenders it calls
them between ``find`` and ``choose`` and filters the nodes that they left once more: the table may have changed in the
meantime (docs/architecture.md, "Cycles overlap and decide late").
"""

import functools
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import numpy as np

from app.framework.diagnosis import EXTENDER, NONE, Diagnosis, FilterOutcome, Scores
from app.framework.interface import MAY_PAUSE, CycleState
from app.framework.memo import FilterPass, Prepared, TemplateMemo
from app.framework.runner import Framework, PreFilterRejected
from app.framework.scoring import Scorers
from app.model.pod import Pod
from app.model.status import Code, Status
from app.state.columns.arrays import Int64, Rows
from app.state.columns.labels import Mask
from app.state.nominations import PodsByRow
from app.state.table import NodeTable
from app.state.view import View

#: Returns, by row, the nominated pods with at least the given pod's priority.
NominatedLookup = Callable[[Pod], PodsByRow]

_MIN_FEASIBLE_NODES: Final = 100
_MIN_PERCENTAGE: Final = 5
_MAX_SHORT: Final = 2**16 - 1
#: 16-bit numbers in a random word.
_DRAWS_PER_WORD: Final = 4

NO_NODES: Final = "no nodes available to schedule pods"
#: A node that an extender left out without a reason.
DROPPED: Final = Status(Code.UnschedulableAndUnresolvable)


class NoNodesError(Exception):
    """The cluster has no node at all."""

    def __init__(self) -> None:
        super().__init__(NO_NODES)


class Unfit(Exception):  # noqa: N818 - a verdict, not a fault
    """No node is feasible; ``diagnosis`` has the reasons."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis)
        self.diagnosis: Final = diagnosis

    def __str__(self) -> str:
        return self.diagnosis.message()


class Choice(msgspec.Struct, frozen=True):
    """The chosen node."""

    row: int
    node_name: str
    #: The number of feasible nodes.
    feasible: int
    #: The number of nodes that were evaluated: all nodes.
    evaluated: int


class Signature(msgspec.Struct, frozen=True):
    """What a pod's verdicts and totals depend on besides the rows, if only NodeLocal plugins filter and no pod is
    nominated.

    Replicas of a workload have the same one as long as the surroundings do not change.
    """

    memo: TemplateMemo
    #: Of the table (NodeTable.surroundings).
    surroundings: tuple[int, int]
    #: The plugins to score with besides those of the memo.
    scorers: Scorers


class Attempt:
    """The scheduling decision for one pod."""

    def __init__(
        self,
        framework: Framework,
        table: NodeTable,
        pod: Pod,
        *,
        nominated: NominatedLookup,
        rng: np.random.Generator,
        nominated_node: str | None = None,
        latest: Callable[[Pod], Pod] = lambda pod: pod,
    ) -> None:
        """``latest`` returns the current version of a pod. ``nominated_node``: the pod's last nomination; None to use
        its status.

        The status may not be written yet when the pod's victims are already gone.
        """
        #: The pod in the version that was last evaluated.
        self.pod = pod
        self.framework: Final = framework
        self.memo: TemplateMemo = framework.memo(pod)
        self.state: CycleState = CycleState(self.memo.local.state)
        self._table = table
        self._nominated = nominated
        self._latest = latest
        #: Returns the nodes that the pod may use, bool[table.size] as the table is now; None: all nodes.
        self.within: Callable[[], Mask] | None = None
        self._within_now: Mask | None = None
        #: The number of nodes that the pod may use, as of the last evaluation.
        self.node_count = table.node_count
        self._rng = rng
        self._nominated_node = pod.nominated_node_name if nominated_node is None else nominated_node
        self._filtered: FilterPass | None = None
        #: The extenders' rejections by node name; kept when the nodes are evaluated again.
        self.extender_verdicts: dict[str, Status] = {}
        self._ranked: Callable[[], tuple[Rows, Int64] | None] = _nothing
        self._prefiltered: FilterPass | None = None
        #: The table's surroundings when no plugin but NodeLocal ones had a say on any row; None if others have one, or
        #: may have one later in the same surroundings.
        self._steady: tuple[int, int] | None = None
        #: The plugins, other than NodeLocal ones, that score the pod in these surroundings; None if PreScore must find
        #: out.
        self._scorers: Scorers | None = None
        #: Whether ``find`` and ``still_fits`` may raise Unfinished; they can be called again then.
        self.may_pause = False

    # ------------------------------------------------------------ steps

    def choose_at_once(self) -> Choice | None:
        """``choose(find())`` from what is kept for the pod's template; None if that does not suffice.

        Call ``find`` then, before the table changes. Raises as ``find`` does, except Unfinished.
        """
        if self._nominated_node or self.within is not None or not self.memo.ranks:
            return None
        pod = self._begin()
        nominated, framework = self._nominated(pod), self.framework
        before = self._pre_filter()
        found = framework.choosing.best(before, self.state, pod, self.memo, nominated, self._rng)
        if found is None:
            self._prefiltered = before
            return None
        self._ranked = functools.partial(framework.choosing.compared, pod, self.memo, nominated)
        row = found.row
        return Choice(row, self._table.names[row], found.feasible, self.node_count)

    def find(self) -> Rows:
        """The feasible rows of the present table for the current version of the pod.

        Raises NoNodesError, Unfit, SchedulingError; Unfinished if it may pause.
        """
        rows = self._prefer_nominated(self._judge().feasible(self._table.all_rows()))
        if len(rows) < 2:
            self.memo.ranks = False
        if not len(rows):
            raise Unfit(self.diagnosis())
        return rows

    def _judge(self) -> FilterOutcome:
        before, self._prefiltered = self._prefiltered, None
        pod = self.pod if before is not None else self._begin()
        self.state.write(MAY_PAUSE, self.may_pause)
        try:
            before = before or self._pre_filter()
            nominated, within = self._nominated(pod), self._within_now
            self._note_steady(before, nominated)
            self._filtered = self.framework.filter_after(
                before, self.state, pod, self.memo, nominated, within
            )
        finally:
            self.state.write(MAY_PAUSE, False)
        return self._filtered.outcome

    def _note_steady(self, before: FilterPass, nominated: PodsByRow) -> None:
        only_local = before.names is None and not before.wide and before.steady
        alone = only_local and self._within_now is None and not nominated
        self._steady = self._table.surroundings if alone else None
        self._scorers = None

    @property
    def signature(self) -> Signature | None:
        """The pod's signature, after ``rank``; None if it has none."""
        if self._steady is None or self._scorers is None:
            return None
        return Signature(self.memo, self._steady, self._scorers)

    def has_signature(self, other: Signature, rows: Rows) -> bool:
        """Whether the pod has the signature of an earlier attempt, which has found ``rows``.

        If so, ``find`` and ``rank`` would say the same, but for rows that have changed since, and ``still_fits`` and
        ``choose`` can be called without them. Runs PreFilter and PreScore, unless a replica of the pod was asked in the
        same surroundings. Raises Unfit, NoNodesError, SchedulingError.
        """
        if other.memo is not self.memo or self._nominated_node or self.within is not None:
            return False
        pod = self._begin()
        nominated = self._nominated(pod)
        if self.memo is other.memo and not nominated and self._is_prepared(other.surroundings):
            return self._scorers == other.scorers
        before = self._pre_filter()
        self._note_steady(before, nominated)
        if self._steady != other.surroundings or self.memo is not other.memo:
            self._prefiltered = before
            return False
        self._pre_score(View(self._table, rows))
        if self._scorers is not None:
            prepared = Prepared(self._steady, self.state.copy(), before.skipped, self._scorers)
            self.memo.keep(pod.kind, prepared)
        return self._scorers == other.scorers

    def _is_prepared(self, surroundings: tuple[int, int]) -> bool:
        """Whether these are the present surroundings, and the pod goes on from what PreFilter and PreScore have left
        for a replica in them.
        """
        known = self.memo.prepared(self.pod.kind)
        if known is None or not known.surroundings == self._table.surroundings == surroundings:
            return False
        self.state = CycleState(known.state)
        self._steady, self._scorers = surroundings, known.scorers
        self.framework.participation.filtered(known.skipped)
        return True

    def _begin(self) -> Pod:
        """Starts with the current version of the pod. Raises NoNodesError."""
        within = self._within_now = None if self.within is None else self.within()
        self.node_count = (
            self._table.node_count if within is None else int(np.count_nonzero(within))
        )
        if not self.node_count:
            raise NoNodesError
        pod = self._latest(self.pod)
        if pod is not self.pod:
            self.pod, self.memo = pod, self.framework.memo(pod)
        self.state = CycleState(self.memo.local.state)
        return pod

    def _pre_filter(self) -> FilterPass:
        try:
            return self.framework.pre_filter(self.state, self.pod, self.memo)
        except PreFilterRejected as rejected:
            raise Unfit(self._rejected(rejected)) from None

    def _prefer_nominated(self, rows: Rows) -> Rows:
        """Only the pod's nominated node if it is feasible, else all ``rows``."""
        name = self._nominated_node
        row = self._table.row_of.get(name) if name else None
        if row is None or name in self.extender_verdicts:
            return rows
        position = np.searchsorted(rows, row)
        if position < len(rows) and rows[position] == row:
            return rows[position : position + 1]
        return rows

    def fits_at_once(self, rows: Rows) -> Mask | None:
        """``still_fits`` from what is kept for the pod's template; None if that does not suffice. Raises
        SchedulingError.
        """
        if not self._is_steady():
            return None
        return self.framework.fits_still(rows, self.pod, self.memo)

    def still_fits(self, rows: Rows) -> Mask:
        """bool[len(rows)]: whether the rows are feasible, as for ``find``, which raises the same."""
        still = self.fits_at_once(rows)
        if still is not None:
            return still
        outcome = self._judge()
        fits: Mask = (outcome.plugin[rows] == NONE) & outcome.considered[rows]
        return fits

    def _is_steady(self) -> bool:
        """Whether PreFilter would give the same result as at the last evaluation of all nodes."""
        return (
            self._steady == self._table.surroundings
            and self._latest(self.pod) is self.pod
            and not self._nominated(self.pod)
        )

    def names(self, rows: Rows) -> list[str]:
        """The node names of some rows."""
        return self._table.names_of(rows)

    def rank(self, rows: Rows) -> Int64:
        """int64[len(rows)]: the weighted total scores, normalised over ``rows``. Raises SchedulingError."""
        view = View(self._table, rows)
        wide = self._pre_score(view) if self._scorers is None else self._scorers
        return self.framework.scoring.score_after(wide, self.state, self.pod, self.memo, view)

    def _pre_score(self, view: View) -> Scorers:
        wide = self.framework.scoring.pre_score(self.state, self.pod, self.memo, view)
        steady = self._steady is not None and self.memo.scores_steadily
        if steady and not any(scorer.pre_score for scorer in wide):
            self._scorers = wide
        return wide

    def choose(self, rows: Rows, extra: Int64 | None = None) -> Choice:
        """The best of ``rows`` (all feasible), with the extenders' ``extra`` scores added."""
        if len(rows) == 1:
            row = int(rows[0])
        else:
            totals = self.rank(rows)
            if extra is not None:
                totals = totals + extra
            self._ranked = lambda: (rows, totals)
            row = int(rows[best(totals, self._rng)])
        return Choice(row, self._table.names[row], len(rows), self.node_count)

    @property
    def ranked(self) -> tuple[Rows, Int64] | None:
        """The rows that were compared, and their totals; None if there was only one. Valid while the table is
        unchanged."""
        return self._ranked()

    def ties(self) -> int:
        """How many other nodes were as good as the chosen one. Valid while the table is unchanged."""
        ranked = self.ranked
        if ranked is None or not len(ranked[1]):
            return 0
        totals = ranked[1]
        return int(np.count_nonzero(totals == totals.max())) - 1

    def scores(self) -> Scores:
        """The scores that ``choose`` compared: node names, weighted scores by plugin, and totals with the extenders'
        scores.

        Valid while the table is unchanged. Empty if only one node was feasible. Raises SchedulingError.
        """
        ranked = self.ranked
        if ranked is None:
            return Scores([], {}, np.zeros(0, np.int64))
        rows, totals = ranked
        return Scores(self.names(rows), self.plugin_scores(rows), totals)

    def plugin_scores(self, rows: Rows) -> dict[str, Int64]:
        """int64[len(rows)] by plugin: weighted, normalised over ``rows``. Raises SchedulingError."""
        view = View(self._table, rows)
        return self.framework.scoring.plugin_scores(self.state, self.pod, self.memo, view)

    # ------------------------------------------------------------ why not

    def diagnosis(self) -> Diagnosis:
        """The verdicts on all nodes, extenders' included."""
        if self._filtered is None:
            return Diagnosis(node_count=self.node_count)
        filtered = self._filtered
        diagnosis = Diagnosis(
            node_count=self.node_count,
            outcome=filtered.outcome.copy(),
            absent=filtered.absent,
        )
        pending = filtered.outcome.pending_plugins()
        diagnosis.pending_plugins |= pending
        diagnosis.unschedulable_plugins |= filtered.narrowed_by
        diagnosis.unschedulable_plugins |= filtered.outcome.rejecting_plugins() - pending
        if self.extender_verdicts:
            diagnosis.by_row.update(self._extender_rows(filtered.outcome))
            diagnosis.unschedulable_plugins.add(EXTENDER)
        return diagnosis

    def _extender_rows(self, outcome: FilterOutcome) -> Iterable[tuple[int, Status]]:
        """The extenders' verdicts on nodes that still exist, whatever the filters' verdicts are.

        For a node that was left out without a reason, a filter's reason is kept.
        """
        for name, status in self.extender_verdicts.items():
            row = self._table.row_of.get(name)
            if row is None or not self._table.exists[row]:
                continue
            if status != DROPPED or (outcome.considered[row] and outcome.plugin[row] == NONE):
                yield row, status

    def _rejected(self, rejected: PreFilterRejected) -> Diagnosis:
        diagnosis = Diagnosis(
            node_count=self.node_count,
            absent=rejected.status,
            pre_filter_message=rejected.status.message,
        )
        diagnosis.unschedulable_plugins |= rejected.plugins
        return diagnosis


def _nothing() -> None:
    return None


def feasible_nodes_to_find(nodes: int, percentage: int) -> int:
    """The number of feasible nodes that kube-scheduler would search for among ``nodes``; percentage 0 is adaptive.

    This scheduler evaluates every node; it sends this many of the best to extenders at a time.
    """
    if nodes < _MIN_FEASIBLE_NODES or percentage >= 100:
        return nodes
    if percentage == 0:
        percentage = max(50 - nodes // 125, _MIN_PERCENTAGE)
    return max(nodes * percentage // 100, _MIN_FEASIBLE_NODES)


def best(totals: Int64, rng: np.random.Generator) -> int:
    """The position of the highest total; a random one of equals. ``totals`` must not be empty."""
    winners = (totals == totals.item(totals.argmax())).nonzero()[0]
    return int(winners.item(0 if len(winners) == 1 else int(rng.random() * len(winners))))


def best_first(rows: Rows, totals: Int64, limit: int, rng: np.random.Generator) -> Rows:
    """At most ``limit`` rows in descending order of total, equals in random order. ``rows`` must not be empty.

    Sorts twice by 16-bit keys, for which NumPy has a radix sort: by random keys, then by the distance from the
    highest total.
    """
    n = len(rows)
    draws = rng.bit_generator.random_raw(n // _DRAWS_PER_WORD + 1).view(np.uint16)[:n]
    shuffled = draws.argsort(kind="stable")
    behind = totals[totals.argmax()] - totals
    if behind[behind.argmax()] <= _MAX_SHORT:
        behind = behind.astype(np.uint16)
    order = behind[shuffled].argsort(kind="stable")[:limit]
    chosen: Rows = rows[shuffled[order]]
    return chosen
