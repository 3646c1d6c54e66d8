"""Runs a profile's plugins of PreScore and Score (docs/spec/framework.md#prescore-and-score)."""

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from app.framework.classes import is_large
from app.framework.interface import AnyPlugin, CycleState, NodeLocal
from app.framework.memo import NodeLocalMemo, TemplateMemo, check_scores, weighted
from app.framework.probe import PRE_SCORE, SCORE, Participation, Stopwatch
from app.framework.profile import ProfilePlugins, Scorer, scorers_of
from app.model.pod import Pod
from app.model.status import Code, SchedulingError
from app.state.columns.arrays import Int64
from app.state.table import NodeTable
from app.state.view import View

T = TypeVar("T", bound=np.generic)

Scorers = Sequence[Scorer]


class ScorePoints:
    """The part of a Framework that runs PreScore and Score."""

    def __init__(
        self,
        plugins: ProfilePlugins,
        watch: Stopwatch,
        table: NodeTable,
        participation: Participation,
    ) -> None:
        self._watch: Final = watch
        self._table: Final = table
        self._participation: Final = participation
        scorers = scorers_of(plugins)
        #: The NodeLocal plugins, whose scores are kept in memos, and the others.
        self.kept: Final = [s for s in scorers if isinstance(s.plugin, NodeLocal)]
        self.wide: Final = [s for s in scorers if not isinstance(s.plugin, NodeLocal)]

    def score(self, state: CycleState, pod: Pod, memo: TemplateMemo, view: View) -> Int64:
        """int64[n]: the weighted total score of each feasible row, those of the view. Raises SchedulingError."""
        wide = self.pre_score(state, pod, memo, view)
        return self.score_after(wide, state, pod, memo, view)

    def pre_score(self, state: CycleState, pod: Pod, memo: TemplateMemo, view: View) -> Scorers:
        """Runs PreScore for the rows of the view. Raises SchedulingError."""
        return self._watch.point(PRE_SCORE, self._pre_score_all, state, pod, memo, view)

    def score_after(
        self, wide: Scorers, state: CycleState, pod: Pod, memo: TemplateMemo, view: View
    ) -> Int64:
        """As ``score``, after PreScore."""
        return self._watch.point(SCORE, self._score_all, state, pod, memo, view, wide)

    def plugin_scores(
        self, state: CycleState, pod: Pod, memo: TemplateMemo, view: View
    ) -> dict[str, Int64]:
        """int64[n] by plugin: weighted and normalised scores, for the log and for ``explain``."""
        wide = self._pre_score_all(state, pod, memo, view)
        out: dict[str, Int64] = {}
        for data, scorers in ((memo.local.state, memo.local.active_scores or ()), (state, wide)):
            for scorer in scorers:
                raw = scorer.plugin.score(data, pod, view)
                scores = self.normalized(data, pod, scorer, raw, view)
                out[scorer.plugin.NAME] = scorer.weight * scores
        return out

    def _pre_score_all(
        self, state: CycleState, pod: Pod, memo: TemplateMemo, view: View
    ) -> Scorers:
        """Runs PreScore; returns the plugins, other than NodeLocal ones, that score this pod."""
        self.pre_score_kept(pod, memo.local, view)
        return [
            scorer
            for scorer in memo.wide_scores
            if self._run_pre_score(state, pod, scorer.pre_score, view)
        ]

    def pre_score_kept(self, pod: Pod, local: NodeLocalMemo, view: View) -> None:
        """Runs PreScore of the NodeLocal plugins if it has not run for such pods."""
        if local.active_scores is None:
            local.active_scores = [
                scorer
                for scorer in self.kept
                if scorer.applies_to(pod.template)
                and self._run_pre_score(local.state, pod, scorer.pre_score, view)
            ]
            local.scored_by = tuple([scorer.plugin.NAME for scorer in local.active_scores])

    def count(self, local: NodeLocalMemo, wide: Scorers) -> None:
        """Counts an attempt that was scored by these plugins and the kept ones."""
        others = tuple([scorer.plugin.NAME for scorer in wide]) if wide else ()
        self._participation.scored(local.scored_by + others)

    def _score_all(
        self, state: CycleState, pod: Pod, memo: TemplateMemo, view: View, wide: Scorers
    ) -> Int64:
        local, active = memo.local, memo.local.active_scores or ()
        self.count(local, wide)
        kept, raw = local.scored(pod)
        memo.ranks = memo.ranks and not raw
        total = self._of(kept, view).astype(np.int64)
        for number, scores in raw.items():
            given = None if scores is None else self._of(scores, view)
            own = self.normalized(local.state, pod, active[number], given, view)
            total = total + weighted(own, active[number].weight)
        for scorer in wide:
            given = self._watch.one(scorer.plugin).score(state, pod, view)
            if given is not None or scorer.normalizes:
                by_class = scorer.by_traits is not None and is_large(self._table)
                memo.ranks = memo.ranks and (scorer.column is not None or by_class)
                own = self.normalized(state, pod, scorer, given, view)
                total = total + weighted(own, scorer.weight)
        return total

    def _of(self, column: npt.NDArray[T], view: View) -> npt.NDArray[T]:
        """The view's rows of a column over all rows. May be the column itself: must not be changed in place."""
        return column if view.n == self._table.size else column.take(view.rows)

    def _run_pre_score(
        self, state: CycleState, pod: Pod, plugin: AnyPlugin | None, view: View
    ) -> bool:
        """Whether a plugin scores this pod; those without PreScore score every pod."""
        if plugin is None:
            return True
        status = self._watch.one(plugin).pre_score(state, pod, view)
        code = status.code
        if code is not Code.Success and code is not Code.Skip:
            raise SchedulingError(f'running PreScore plugin "{plugin.NAME}": {status.message}')
        return code is Code.Success

    def normalized(
        self, state: CycleState, pod: Pod, scorer: Scorer, scores: Int64 | None, view: View
    ) -> Int64:
        """int64[n], 0 to 100: a plugin's scores (None: all 0) after ``normalize``. Raises SchedulingError."""
        scores = np.zeros(view.n, np.int64) if scores is None else scores
        if scorer.normalizes:
            normalizer = self._watch.one(scorer.plugin)
            scores = normalizer.normalize(state, pod, scores, view)
        check_scores(scorer.plugin.NAME, scores)
        return scores
