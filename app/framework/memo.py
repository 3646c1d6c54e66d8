"""Keeps the verdicts and scores of NodeLocal plugins per pod template, and computes them again for changed rows only.

Between two replicas of one workload only a few rows of the node table change. The memo calls the plugins for these rows
only (docs/architecture.md, "Pods of one template are decided incrementally").
"""

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from app.framework.classes import ClassesByTraits, Trait
from app.framework.diagnosis import NONE, FilterOutcome
from app.framework.interface import (
    MAX_NODE_SCORE,
    AnyPlugin,
    CycleState,
    NodeLocal,
    PreFilterResult,
)
from app.framework.optional import SteadySkip
from app.framework.probe import Stopwatch
from app.framework.profile import Scorer
from app.framework.ranking import INFEASIBLE, Ranking, Totals
from app.model.pod import Pod, PodTemplate
from app.model.status import Code, SchedulingError, Status, unresolvable
from app.state.columns.arrays import Int64, Rows
from app.state.columns.labels import Mask
from app.state.nominations import PodsByRow
from app.state.table import NodeTable
from app.state.view import View, dry_run_with

#: Up to this many rows are looked at one by one, which is faster than array calls.
_FEW_ROWS: Final = 4

#: Kinds of pods of one template for which something is kept.
_MOST_KINDS: Final = 64

_NO_CHANGE: Final = (np.zeros(0, np.intp), None)
#: What there is before arrays are needed: a template that occurs once needs none.
_NO_VERDICTS: Final = FilterOutcome.of((), 0)
_NO_NUMBERS: Final[Int64] = np.zeros(0, np.int64)
_INT64: Final = np.dtype(np.int64)
_ONE_CLASS: Final = ClassesByTraits(())
#: The status of nodes that were not evaluated.
_ABSENT: Final = Status(Code.UnschedulableAndUnresolvable)

#: Scores of every row, at least int[size], each with its weight; an array that has changed is another array.
Columns = Sequence[tuple[npt.NDArray[np.integer[Any]], int]]
Epoch = Callable[[], Hashable]


def weighted(scores: Int64, weight: int) -> Int64:
    """The scores times the weight; must not be changed in place."""
    return scores if weight == 1 else weight * scores


class FilterPass(msgspec.Struct, gc=False):
    """PreFilter and Filter of one attempt: what PreFilter has led to, and the filters' ``outcome``."""

    #: The names of the plugins that are skipped.
    skipped: frozenset[str]
    #: The other filters that are not NodeLocal, with their positions in the profile; they run in each attempt.
    wide: Sequence[tuple[int, AnyPlugin]]
    #: The verdicts on all rows; empty before Filter.
    outcome: FilterOutcome
    #: Whether PreFilter leads to the same pass, and rejects no pod, until the surroundings change (see SteadySkip).
    steady: bool = False
    #: The names of the nodes to consider; None: all nodes.
    names: frozenset[str] | None = None
    #: The plugins that restricted the nodes by name.
    narrowed_by: frozenset[str] = frozenset()

    @property
    def absent(self) -> Status:
        """The status of the nodes that are not considered."""
        return _ABSENT if self.names is None else _not_named(self.narrowed_by)


class Prepared(msgspec.Struct, frozen=True):
    """What PreFilter and PreScore have led to for a pod, and lead to for its replicas in the same surroundings.

    They leave no plugin that looks across nodes, but those that score; see SteadySkip.
    """

    #: Of the table (NodeTable.surroundings).
    surroundings: tuple[int, int]
    #: What the plugins have written.
    state: CycleState
    #: The names of the plugins that are skipped at Filter.
    skipped: frozenset[str]
    #: The plugins to score with besides those of the memo.
    scorers: Sequence[Scorer]


@functools.cache
def _not_named(narrowed_by: frozenset[str]) -> Status:
    """The status of nodes that these plugins did not name at PreFilter."""
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowed_by))}]")


class NodeLocalPlugins:
    """The NodeLocal filters and scores of a profile, and the other filters, by their position at the extension
    point.
    """

    def __init__(
        self,
        filters: Sequence[AnyPlugin],
        scores: Sequence[Scorer],
        epochs: Sequence[Epoch],
        table: NodeTable,
        watch: Stopwatch,
        weights: int,
    ) -> None:
        """``filters``: all of the profile. ``weights``: the sum of the weights of all scores of the profile."""
        self.filter_names: Final = [plugin.NAME for plugin in filters]
        local = [isinstance(plugin, NodeLocal) for plugin in filters]
        self._filters: Final = [(i, p) for i, p in enumerate(filters) if local[i]]
        self._wide_filters: Final = [(i, p) for i, p in enumerate(filters) if not local[i]]
        self.scores: Final = scores
        self._epochs: Final = epochs
        self.table: Final = table
        self.watch: Final = watch
        #: The smallest type for a total: with many templates the totals take most of the memory.
        self.total_type: Final = np.result_type(
            np.int16, np.min_scalar_type(-MAX_NODE_SCORE * weights)
        )

        #: Of memos that have none yet.
        self.no_total: Final[Totals] = np.zeros(0, self.total_type)
        self.no_ranking: Final = Ranking(self.total_type)
        self._nothing_rejected = _NO_VERDICTS
        self._active: Final[dict[frozenset[str], Sequence[tuple[int, AnyPlugin]]]] = {}

    def epoch(self) -> tuple[Hashable, ...]:
        """A value that changes when every row must be computed again."""
        return tuple([epoch() for epoch in self._epochs])

    def wide_filters(self, skipped: frozenset[str]) -> Sequence[tuple[int, AnyPlugin]]:
        """The other filters that are not among the ``skipped`` ones, with their positions in the profile."""
        return [(i, p) for i, p in self._wide_filters if p.NAME not in skipped]

    def accepted(self, n: int) -> FilterOutcome:
        """Verdicts that reject none of so many rows."""
        return FilterOutcome.of(self.filter_names, n)

    def all_accepted(self) -> FilterOutcome:
        """The same for all rows, shared: must not be changed."""
        size = self.table.size
        if len(self._nothing_rejected.plugin) != size:
            self._nothing_rejected = self.accepted(size)
        return self._nothing_rejected

    def active_filters(self, skipped: frozenset[str]) -> Sequence[tuple[int, AnyPlugin]]:
        """The NodeLocal filters that are not among the ``skipped`` ones, with their positions in the profile."""
        active = self._active.get(skipped)
        if active is None:
            active = [(i, p) for i, p in self._filters if p.NAME not in skipped]
            self._active[skipped] = active
        return active


def check_scores(name: str, scores: Int64) -> None:
    """Raises SchedulingError for scores that are not int64, and for a normalised score outside 0 to 100.

    See docs/spec/framework.md#prescore-and-score.
    """
    if getattr(scores, "dtype", None) != _INT64:
        kind = getattr(scores, "dtype", type(scores).__name__)
        raise SchedulingError(f'running "{name}" score plugin: scores must be int64, not {kind}')
    if not _within_limits(scores):
        wrong = scores[(scores < 0) | (scores > MAX_NODE_SCORE)][0]
        raise SchedulingError(
            f'applying score defaultWeights on Score plugins: plugin "{name}" returns an invalid score {wrong}, '
            f"it should in the range of [0, {MAX_NODE_SCORE}] after normalizing"
        )


def _within_limits(scores: Int64) -> bool:
    if len(scores) <= _FEW_ROWS:
        return not any(score < 0 or score > MAX_NODE_SCORE for score in scores.tolist())
    # One comparison for both limits: as unsigned integers, negative scores are large.
    unsigned = scores.view(np.uint64)
    return unsigned.item(unsigned.argmax()) <= MAX_NODE_SCORE


def _same_columns(some: Columns, others: Columns) -> bool:
    return len(some) == len(others) and all(
        a[0] is b[0] and a[1] == b[1] for a, b in zip(some, others, strict=True)
    )


class TemplateMemo:
    """What is kept for one template: which plugins concern its pods, and the results of the NodeLocal ones
    (``local``).
    """

    def __init__(
        self,
        template: PodTemplate,
        local: "NodeLocalMemo",
        *,
        unconcerned: frozenset[str],
        pre_filters: Sequence[AnyPlugin],
        scorers: Sequence[Scorer],
    ) -> None:
        """``unconcerned``: the plugins that do not apply to the template.

        ``scorers``: the score plugins of the profile that are not NodeLocal.
        """
        self._template: Final = template
        self._scorers: Final = scorers
        self._wide_scores: Sequence[Scorer] | None = None
        self._filters: dict[tuple[str, ...], tuple[frozenset[str], Sequence[Any], bool]] = {}
        self.local: Final = local
        self._skipped: Final = unconcerned | local.skipped
        #: PreFilter of an attempt, in profile order: plugins to call (with None), and NodeLocal plugins that restrict
        #: the nodes or reject the pod, with their result for the whole template.
        self.pre_filters: Final = [
            (plugin, local.pre_filtered.get(plugin.NAME))
            for plugin in pre_filters
            if plugin.NAME not in self._skipped
            and (plugin.NAME in local.pre_filtered or not isinstance(plugin, NodeLocal))
        ]
        #: By kind of pod (Pod.kind).
        self._prepared: Final[dict[Hashable, Prepared]] = {}
        #: Whether a ``ranking`` may suffice for the next attempt: it did for the last one, if there was one.
        self.ranks = not local.named_nodes

    def after(self, skipping: Iterable[str]) -> FilterPass:
        """The pass of an attempt in which PreFilter of these plugins returned Skip."""
        key = tuple(skipping)
        known = self._filters.get(key)
        if known is None:
            skipped = self._skipped.union(key)
            called = [plugin for plugin, result in self.pre_filters if result is None]
            steady = all(isinstance(p, SteadySkip) and p.NAME in skipped for p in called)
            known = self._filters[key] = skipped, self.local.plugins.wide_filters(skipped), steady
        skipped, wide, steady = known
        return FilterPass(skipped, wide, _NO_VERDICTS, steady=steady)

    def prepared(self, kind: Hashable) -> Prepared | None:
        """What was kept last for this kind of pod, maybe in other surroundings."""
        return self._prepared.get(kind)

    def keep(self, kind: Hashable, prepared: Prepared) -> None:
        """Keeps what holds for this kind of pod (Pod.kind) in the same surroundings."""
        if len(self._prepared) >= _MOST_KINDS:
            self._prepared.clear()
        self._prepared[kind] = prepared

    @property
    def wide_scores(self) -> Sequence[Scorer]:
        """The score plugins, other than NodeLocal ones, that apply to the template."""
        if self._wide_scores is None:
            self._wide_scores = [s for s in self._scorers if s.applies_to(self._template)]
        return self._wide_scores

    @functools.cached_property
    def scores_steadily(self) -> bool:
        """Whether every skip of PreScore, too, holds until the surroundings change."""
        prepared = [scorer.plugin for scorer in self.wide_scores if scorer.pre_score is not None]
        return all(
            isinstance(p, SteadySkip) and p.skips_scoring_steadily(self._template) for p in prepared
        )


class NodeLocalMemo:
    """Verdicts and raw scores of the NodeLocal plugins for pods with equal specs, for all rows of the table.

    Each is kept with the generation of the table at which it was computed; only rows with a newer generation are
    computed again. While a ``ranking`` suffices, it is all that is kept. Templates that differ only in what these
    plugins do
    not read share one (see IgnoresOtherPods).
    """

    def __init__(self, plugins: NodeLocalPlugins, stem: bytes | None = None) -> None:
        """``stem``: of the templates that share it (PodTemplate.stem); None: it is for one template."""
        self.plugins: Final = plugins
        self.stem: Final = stem
        self._table: Final = plugins.table
        #: What PreFilter and PreScore of these plugins wrote.
        self.state: Final = CycleState()
        #: Its size in bytes when it was last counted (see TemplateMemos).
        self.counted = 0
        #: The plugins that do not apply, or whose PreFilter returned Skip.
        self.skipped: frozenset[str] = frozenset()
        #: By name: the results of PreFilter that restrict the nodes or reject the pods.
        self.pre_filtered: dict[str, PreFilterResult | Status] = {}
        #: Whether one of these restricts the nodes to a few, which are filtered alone.
        self.named_nodes = False
        self.active_filters: Sequence[tuple[int, AnyPlugin]] = ()
        self.active_scores: Sequence[Scorer] | None = None
        #: Their names.
        self.scored_by: tuple[str, ...] = ()
        self._ranking = plugins.no_ranking
        self._ranked_at = -1
        self._ranked_with: Columns = ()
        self._classes = _ONE_CLASS
        #: The rows that have changed since the last ``ranking``, and the verdicts on them (None: no row is rejected).
        self._fresh: tuple[Rows, FilterOutcome | None] | None = None
        self._epoch: tuple[Hashable, ...] | None = None
        self._filtered_at = -1
        self._scored_at = -1
        #: The number of rows that were filtered, and the verdicts; None: no row is rejected.
        self._filtered_rows = 0
        self._filtered: FilterOutcome | None = None
        #: The same with nominated pods added; for each row the generation and the stamp of the nominated pods
        #: (PodsByRow).
        self._nominated = _NO_VERDICTS
        self._nominated_at = _NO_NUMBERS
        self._nominated_with = _NO_NUMBERS
        #: Weighted sum of the scores without ``normalize``, and of ZERO_NORMALIZED of plugins whose raw scores are
        #: all 0.
        self._total = plugins.no_total
        #: Raw scores of the other plugins with ``normalize``, by position in ``active_scores``.
        self._raw: dict[int, Int64 | None] = {}

    def _changed_since(self, generation: int, length: int) -> Iterable[View]:
        """Views of the rows to compute; all rows in chunks if ``length`` rows were not computed at this generation."""
        table = self._table
        if generation < 0 or length != table.size:
            return View.chunks(table)
        return (View(table, table.rows_since(generation)),)

    def _check_epoch(self) -> None:
        epoch = self.plugins.epoch()
        if epoch != self._epoch:
            self._epoch = epoch
            self._filtered_at = self._scored_at = self._ranked_at = -1
            self._nominated_with.fill(0)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays by row."""
        size = self._total.nbytes + self._ranking.nbytes
        size += self._nominated.nbytes + self._nominated_at.nbytes + self._nominated_with.nbytes
        if self._filtered is not None:
            size += self._filtered.nbytes
        for raw in self._raw.values():
            size += 0 if raw is None else raw.nbytes
        for column, _ in self._ranked_with:
            size += column.nbytes
        return size

    def filtered(self, pod: Pod) -> FilterOutcome:
        """The current NodeLocal verdicts on every row. Shared: copy before changing. Raises SchedulingError."""
        return self.refiltered(pod) or self.plugins.all_accepted()

    def filtered_at(self, rows: Rows, pod: Pod) -> FilterOutcome:
        """The NodeLocal verdicts on some rows, in arrays for every row; nothing is kept. Shared, as for ``filtered``.

        Raises SchedulingError.
        """
        fresh = self._ask(View(self._table, rows), pod) if len(rows) else None
        if fresh is None:
            return self.plugins.all_accepted()
        outcome = self.plugins.accepted(self._table.size)
        outcome.put(rows, fresh)
        return outcome

    def refiltered(self, pod: Pod) -> FilterOutcome | None:
        """As ``filtered``; None if no row is rejected.

        Rows with an Error are computed again by the next call.
        """
        self._check_epoch()
        table = self._table
        if self._filtered_at != table.last_generation:
            views = self._changed_since(self._filtered_at, self._filtered_rows)
            if self._filtered_at < 0 or self._filtered_rows != table.size:
                self._filtered, self._filtered_rows = None, table.size
            self._filtered_at = -1  # until all views are done
            for view in views:
                self._put_verdicts(view, self._ask(view, pod))
            verdicts = self._filtered
            if verdicts is None or not verdicts.faulty:
                self._filtered_at = table.last_generation
        return self._filtered

    def _put_verdicts(self, view: View, fresh: FilterOutcome | None) -> None:
        if fresh is not None:
            if self._filtered is None:
                self._filtered = self.plugins.accepted(self._table.size)
            self._filtered.put(view.at, fresh)
        elif self._filtered is not None:
            self._filtered.clear(view.at)

    def with_nominated(self, pod: Pod, nominated: PodsByRow) -> tuple[Rows, FilterOutcome]:
        """The rows with nominated pods that the NodeLocal filters reject if these pods are added.

        The arrays have an entry for every row and are shared. Raises SchedulingError.
        """
        self._check_epoch()
        size, generation = self._table.size, self._table.generation
        if len(self._nominated.plugin) != size:
            self._nominated = self.plugins.accepted(size)
            self._nominated_at = np.zeros(size, np.int64)
            self._nominated_with = np.zeros(size, np.int64)
        rows = nominated.rows()
        other_pods = self._nominated_with[rows] != nominated.stamps[rows]
        stale = rows[other_pods | (self._nominated_at[rows] != generation[rows])]
        if len(stale):
            view = dry_run_with(self._table, {row: nominated[row] for row in stale.tolist()})
            fresh = self._ask(view, pod) or self.plugins.accepted(view.n)
            self._nominated.put(stale, fresh)
            self._nominated_at[stale] = 0 if fresh.faulty else generation[stale]
            self._nominated_with[stale] = nominated.stamps[stale]
        return rows[self._nominated.plugin[rows] != NONE], self._nominated

    def _ask(self, view: View, pod: Pod) -> FilterOutcome | None:
        """The verdicts on the rows of a view; None if no row is rejected."""
        outcome: FilterOutcome | None = None
        watch = self.plugins.watch
        for number, plugin in self.active_filters:
            judge = watch.one(plugin) if watch.sampling else plugin
            verdicts = judge.filter(self.state, pod, view)
            if verdicts is None:
                continue
            if outcome is None:
                outcome = self.plugins.accepted(view.n)
            outcome.add(number, verdicts.codes, verdicts.reasons, verdicts.text)
        return outcome

    def scored(self, pod: Pod) -> tuple[Totals, dict[int, Int64 | None]]:
        """For every row the weighted total of scores without ``normalize``, and the raw scores of the others by
        position.

        None means raw scores of 0 on every row. Must not be changed.
        """
        self._check_epoch()
        if self._scored_at != self._table.last_generation:
            views = self._changed_since(self._scored_at, len(self._total))
            if self._scored_at < 0 or len(self._total) != self._table.size:
                self._total = np.zeros(self._table.size, self.plugins.total_type)
                self._raw = {}
            self._scored_at = -1  # until all views are done
            for view in views:
                self._refresh_scores(pod, view)
            self._scored_at = self._table.last_generation
        return self._total, self._raw

    def _refresh_scores(self, pod: Pod, view: View) -> None:
        watch = self.plugins.watch
        total: Int64 | int = 0
        for number, scorer in enumerate(self.active_scores or ()):
            judge = watch.one(scorer.plugin) if watch.sampling else scorer.plugin
            scores = judge.score(self.state, pod, view)
            if scorer.normalizes:
                total = total + self._keep_raw(number, scores, view, scorer.zero)
            elif scores is not None:
                check_scores(scorer.plugin.NAME, scores)
                total = total + weighted(scores, scorer.weight)
        self._total[view.at] = total

    def _keep_raw(self, number: int, scores: Int64 | None, view: View, constant: int | None) -> int:
        """Keeps the raw scores of a plugin, and returns what it adds to the totals of the view's rows.

        ``constant``: the plugin's weighted score if all raw scores are 0; None if normalisation has to compute it.
        As long as all raw scores are 0, nothing is kept, and the constant is in the totals. It is taken out of them
        when a row gets another score.
        """
        if number not in self._raw:
            if scores is None and constant is not None:
                return constant
            if constant is not None:
                self._total -= constant
            self._raw[number] = None
        raw = self._raw[number]
        if raw is None and scores is not None:
            raw = self._raw[number] = np.zeros(self._table.size, scores.dtype)
        if raw is not None:
            raw[view.at] = 0 if scores is None else scores
        return 0

    # ------------------------------------------------------------ the best row

    def may_rank(self, pod: Pod) -> bool:
        """Filters the rows that have changed; False if a filter fails, or if too few of all rows are left to compare
        them.

        Call it before ``ranking``. Raises SchedulingError.
        """
        self._check_epoch()
        table, self._fresh = self._table, None
        if self._ranked_at < 0 or len(self._ranking.totals) != table.size:
            verdicts = self.refiltered(pod)
            if len(self.feasible()) < 2:
                return False
        else:
            rows = table.rows_since(self._ranked_at)
            verdicts = self._ask(View(table, rows), pod) if len(rows) else None
            self._fresh = rows, verdicts
        return verdicts is None or not verdicts.faulty

    def feasible(self) -> Rows:
        """The rows that the filters left when ``may_rank`` was last called, ascending."""
        if self._fresh is None:
            return _passed(self._filtered, self._table.exists[: self._table.size]).nonzero()[0]
        rows, verdicts = self._fresh
        good = self._ranking.totals >= 0
        good[rows] = _passed(verdicts, self._table.exists[rows])
        return good.nonzero()[0]

    def ranking(self, pod: Pod, columns: Columns, traits: Sequence[Trait] = ()) -> Ranking | None:
        """The current ranking of the feasible rows, by the totals and the ``columns``, in classes by their ``traits``.

        None if scores of single nodes have to be normalised, or if there are too many classes. Raises SchedulingError.
        """
        table = self._table
        self._ranked_at = -1  # until it is complete
        if self._fresh is None:
            total, raw = self.scored(pod)
            if raw:
                return None
            sums = total + _sum(columns, table.size) if columns else total
            good = _passed(self._filtered, table.exists[: table.size])
            if not self._fill(np.where(good, sums, INFEASIBLE), traits):
                return None
        else:
            rows, verdicts = self._fresh
            if not _same_columns(columns, self._ranked_with):
                self._ranking.add(_sum(columns, table.size) - _sum(self._ranked_with, table.size))
            changed = self._totals_of(View(table, rows), pod) if len(rows) else None
            if changed is not None:
                good = _passed(verdicts, table.exists[rows])
                self._rank(rows, good, changed, columns, traits)
            elif len(rows):
                return None
            current = not self._classes.crowded and self._classes.are_by(traits)
            if not current and not self._fill(self._ranking.totals, traits):
                return None
        self._ranked_at, self._ranked_with = table.last_generation, columns
        return self._ranking

    def _fill(self, totals: Totals, traits: Sequence[Trait]) -> bool:
        """Ranks all rows; whether the classes are few enough."""
        self._classes = ClassesByTraits(traits)
        classes = self._classes.of(View.everything(self._table))
        if self._classes.crowded:
            return False
        if self._ranking is self.plugins.no_ranking:
            self._ranking = Ranking(self.plugins.total_type)
        self._ranking.fill(totals, classes, self._classes.room)
        return True

    def too_many_classes(self, traits: Sequence[Trait]) -> bool:
        """Whether a ranking by these traits was given up because there are too many classes."""
        return self._classes.crowded and self._classes.are_by(traits)

    def keep_ranking(self) -> None:
        """Lets go of what the present ranking was made from."""
        if self._fresh is None:
            self._filtered, self._filtered_at = None, -1
            self._total, self._scored_at = self.plugins.no_total, -1
            self._fresh = _NO_CHANGE

    def _totals_of(self, view: View, pod: Pod) -> Int64 | None:
        """The totals of some rows for a ``ranking``; None if scores have to be normalised."""
        watch = self.plugins.watch
        total = np.zeros(view.n, np.int64)
        for scorer in self.active_scores or ():
            judge = watch.one(scorer.plugin) if watch.sampling else scorer.plugin
            scores = judge.score(self.state, pod, view)
            if scorer.normalizes:
                if scores is not None or scorer.zero is None:
                    return None
                total += scorer.zero
            elif scores is not None:
                check_scores(scorer.plugin.NAME, scores)
                total += weighted(scores, scorer.weight)
        return total

    def _rank(
        self, rows: Rows, good: Mask, total: Int64, columns: Columns, traits: Sequence[Trait]
    ) -> None:
        classes = None  # those of all rows will be set if they are by other traits
        if traits and self._classes.again(traits):
            classes = self._classes.of(View(self._table, rows))
        if classes is not None or len(rows) > _FEW_ROWS:
            for scores, weight in columns:
                total = total + weighted(scores[rows].astype(np.int64), weight)
            self._ranking.put(rows, np.where(good, total, INFEASIBLE), classes)
            return
        for row, fits, own in zip(rows.tolist(), good.tolist(), total.tolist(), strict=True):
            more = sum(weight * int(scores[row]) for scores, weight in columns) if columns else 0
            self._ranking.put_one(row, own + more if fits else INFEASIBLE)

    def compared(self) -> tuple[Rows, Int64]:
        """The rows among which the last ``ranking`` chose, and their totals. Valid while the table is unchanged."""
        return self._ranking.compared()


def _passed(verdicts: FilterOutcome | None, exists: Mask) -> Mask:
    """bool[n]: whether the rows with these verdicts (None: no rejection) are feasible."""
    return exists if verdicts is None else (verdicts.plugin == NONE) & exists


def _sum(columns: Columns, n: int) -> Int64:
    """int64[n]: the sum of the columns, each with its weight."""
    total = np.zeros(n, np.int64)
    for scores, weight in columns:
        total += weighted(scores[:n].astype(np.int64), weight)
    return total
