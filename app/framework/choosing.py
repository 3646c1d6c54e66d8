"""Chooses a node from what is kept for the template, without a pass over all nodes.

The result is that of a comparison of all feasible nodes. Where what is kept does not suffice, the pod is decided in
full
(docs/architecture.md, "Pods of one template are decided incrementally").
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

import numpy as np

from app.framework.classes import SampleView, Trait, is_large
from app.framework.diagnosis import FilterOutcome
from app.framework.interface import AnyPlugin, CycleState
from app.framework.memo import (
    FilterPass,
    NodeLocalMemo,
    NodeLocalPlugins,
    TemplateMemo,
    weighted,
)
from app.framework.probe import FILTER, SCORE, Stopwatch
from app.framework.profile import FilterHooks
from app.framework.ranking import Best
from app.framework.scoring import ScorePoints, Scorers
from app.model.pod import Pod
from app.model.status import Unfinished
from app.state.columns.arrays import Int64, Rows
from app.state.nominations import PodsByRow
from app.state.view import LazyView, View

_NO_ROWS: Final = np.zeros(0, np.intp)


class _InFull(Unfinished):
    """The pod has to be decided in full."""


class Choosing:
    """The part of a Framework that chooses a node at once."""

    def __init__(
        self,
        plugins: NodeLocalPlugins,
        hooks: Sequence[FilterHooks],
        scoring: ScorePoints,
        watch: Stopwatch,
    ) -> None:
        """``hooks``: what the filters offer, by their position in the profile."""
        self._table: Final = plugins.table
        self._plugins: Final = plugins
        self._hooks: Final = hooks
        self._scoring: Final = scoring
        self._watch: Final = watch

    def best(
        self,
        before: FilterPass,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        nominated: PodsByRow,
        rng: np.random.Generator,
    ) -> Best | None:
        """The row that a comparison of all feasible rows chooses, after PreFilter on the same table.

        None if what is kept is not sufficient: other filters or scores are called for this pod, scores have to be
        normalised, or
        fewer than two rows are feasible. Raises SchedulingError.
        """
        memo.ranks = False  # until it is known again
        try:
            # 1. Filters that look across nodes must accept every node, or depend on a few traits of nodes.
            traits, asked = self._across(before, state, pod, memo, nominated)
            # 2. Filter, for the rows that have changed.
            without = self._watch.point(FILTER, self._rejected, pod, memo.local, nominated)
            # 3. PreScore and Score for these rows, and the best of all.
            if traits:
                best, scorers = self._by_class(state, pod, memo, traits, asked, rng)
            else:
                best, scorers = self._ranked_first(state, pod, memo, without, rng)
        except _InFull:
            return None
        memo.ranks = True
        memo.local.keep_ranking()
        self._scoring.count(memo.local, scorers)
        return best

    def compared(self, pod: Pod, memo: TemplateMemo, nominated: PodsByRow) -> tuple[Rows, Int64]:
        """The rows among which ``best`` has chosen, and their totals. Valid while the table is unchanged."""
        rows, totals = memo.local.compared()
        if nominated:
            left = ~np.isin(rows, memo.local.with_nominated(pod, nominated)[0])
            rows, totals = rows[left], totals[left]
        return rows, totals

    # ------------------------------------------------------------ steps

    def _across(
        self,
        before: FilterPass,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        nominated: PodsByRow,
    ) -> tuple[Sequence[Trait], Sequence[tuple[int, AnyPlugin]]]:
        """The traits by which nodes are decided in classes (none: each node by itself), and the filters to call about
        classes.

        Raises _InFull.
        """
        large = is_large(self._table)
        if before.names is not None or (before.wide and (nominated or not large)):
            raise _InFull
        if not large:
            return (), ()
        traits = self._traits(pod, memo, before.wide)
        if (traits and nominated) or memo.local.too_many_classes(traits):
            raise _InFull
        asked = []
        for number, plugin in before.wide:
            hook = self._hooks[number].accepts_all
            if hook is None or not hook.accepts_all(state, pod):
                asked.append((number, plugin))
        if asked and not traits:
            raise _InFull
        return traits, asked

    def _rejected(self, pod: Pod, local: NodeLocalMemo, nominated: PodsByRow) -> Rows:
        """The rows, ascending, that the filters reject once their nominated pods are added. Raises _InFull."""
        if not local.may_rank(pod):
            raise _InFull
        if not nominated:
            return _NO_ROWS
        rows, worse = local.with_nominated(pod, nominated)
        if worse.faulty:
            raise _InFull
        return rows

    def _ranked_first(
        self,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        without: Rows,
        rng: np.random.Generator,
    ) -> tuple[Best, Scorers]:
        """The best row by what each row is given by itself, and the plugins, other than NodeLocal ones, that score.

        Raises _InFull.
        """
        view = LazyView(self._table, memo.local.feasible)
        wide = self._scoring.pre_score(state, pod, memo, view)
        if any(scorer.normalizes for scorer in wide):
            raise _InFull
        best = self._watch.point(SCORE, self._score, state, pod, memo, view, wide, without, rng)
        if best is None:
            raise _InFull
        return best, wide

    def _score(
        self,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        view: View,
        wide: Scorers,
        without: Rows,
        rng: np.random.Generator,
    ) -> Best | None:
        columns = []
        for scorer in wide:
            if scorer.column is not None:
                column = scorer.column.column(pod)
                if column is not None:
                    columns.append((column, scorer.weight))
            elif self._watch.one(scorer.plugin).score(state, pod, view) is not None:
                return None
        ranking = memo.local.ranking(pod, columns)
        return None if ranking is None else ranking.best(rng, without)

    # ------------------------------------------------------------ by classes of nodes (see app.framework.classes)

    def _traits(
        self, pod: Pod, memo: TemplateMemo, filters: Iterable[tuple[int, AnyPlugin]]
    ) -> Sequence[Trait]:
        """What the answers of the plugins that look across nodes depend on. Raises _InFull if they do not say."""
        found: dict[Hashable, Trait] = {}
        hooks = [self._hooks[number].by_traits for number, _ in filters]
        hooks += [scorer.by_traits for scorer in memo.wide_scores]
        for hook in dict.fromkeys(hooks):
            if hook is None:
                continue
            traits = hook.traits(pod)
            if traits is None:
                raise _InFull
            found |= {trait.key: trait for trait in traits}
        return [*found.values()]

    def _by_class(
        self,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        traits: Sequence[Trait],
        filters: Sequence[tuple[int, AnyPlugin]],
        rng: np.random.Generator,
    ) -> tuple[Best, Scorers]:
        """As ``_ranked_first``, where plugins that look across nodes are called about one row of each class. Raises
        _InFull.
        """
        if any(self._hooks[number].by_traits is None for number, _ in filters):
            raise _InFull
        local = memo.local
        given = [(s.column.column(pod), s.weight) for s in memo.wide_scores if s.column is not None]
        columns = [(column, weight) for column, weight in given if column is not None]
        self._scoring.pre_score_kept(pod, local, LazyView(self._table, local.feasible))
        ranking = self._watch.point(SCORE, local.ranking, pod, columns, traits)
        if ranking is None:
            raise _InFull
        numbers, rows, counts = ranking.samples()
        view = SampleView(self._table, rows, counts)
        outcome = self._watch.point(FILTER, self._filter, state, pod, view, filters)
        if outcome.faulty:
            raise _InFull
        good = outcome.feasible()
        numbers, view = numbers[good], view.take(good)
        if not view.n:
            raise _InFull
        wide = self._scoring.pre_score(state, pod, memo, view)
        added = self._watch.point(SCORE, self._added, state, pod, view, wide)
        if added is None:
            raise _InFull
        best = ranking.best(rng, added=dict(zip(numbers.tolist(), added.tolist(), strict=True)))
        if best is None:
            raise _InFull
        return best, wide

    def _filter(
        self, state: CycleState, pod: Pod, view: View, filters: Iterable[tuple[int, AnyPlugin]]
    ) -> FilterOutcome:
        return run_filters(self._plugins.accepted(view.n), state, pod, view, filters)

    def _added(self, state: CycleState, pod: Pod, view: View, wide: Scorers) -> Int64 | None:
        """int64[n]: the weighted scores of these plugins, without those of columns; None if one does not tell
        traits.
        """
        total = np.zeros(view.n, np.int64)
        for scorer in wide:
            if scorer.column is not None:
                continue
            scores = self._watch.one(scorer.plugin).score(state, pod, view)
            if scores is None and not scorer.normalizes:
                continue
            if scorer.by_traits is None:
                return None
            own = self._scoring.normalized(state, pod, scorer, scores, view)
            total += weighted(own, scorer.weight)
        return total


def run_filters(
    outcome: FilterOutcome,
    state: CycleState,
    pod: Pod,
    view: View,
    filters: Iterable[tuple[int, AnyPlugin]],
) -> FilterOutcome:
    """``outcome``, which rejects no row, with the verdicts of these filters, in profile order. Raises
    SchedulingError.
    """
    for number, plugin in sorted(filters, key=lambda pair: pair[0]):
        verdicts = plugin.filter(state, pod, view)
        if verdicts is not None:
            outcome.add(number, verdicts.codes, verdicts.reasons, verdicts.text)
    return outcome
