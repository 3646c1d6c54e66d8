"""Runs a profile's plugins of PreFilter and Filter, and chooses a node, by kube-scheduler's rules (docs/spec/framework.md)."""

import functools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
import numpy as np
import numpy.typing as npt

from app.framework.classes import SampleView, Trait
from app.framework.diagnosis import NONE, FilterOutcome
from app.framework.handle import Handle
from app.framework.interface import (
    CycleState,
    FilterPlugin,
    NodeLocal,
    PreEnqueuePlugin,
    PreFilterPlugin,
    Verdicts,
)
from app.framework.memo import (
    FilterArrays,
    FilterPlan,
    NodeLocalPlugins,
    TemplateMemo,
    weighted,
)
from app.framework.placement_points import PlacementPoints
from app.framework.plugin_class import method_of, registrations_of
from app.framework.probe import (
    FILTER,
    NULL_PROBE,
    PRE_FILTER,
    SCORE,
    Probe,
    Stopwatch,
)
from app.framework.profile import ProfilePlugins, hooks_of
from app.framework.ranking import Best
from app.framework.scoring import ScorePoints, Scorers
from app.framework.template_memos import FEW_NAMED, TemplateMemos, status_and_nodes
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.pod import Pod
from app.model.status import SKIP, Code, SchedulingError, Status, Unfinished, unresolvable
from app.state.columns.labels import Mask
from app.state.columns.resources import Int64
from app.state.nominations import PodsByRow
from app.state.queue.hints import EventRegistration
from app.state.table import NodeTable
from app.state.view import DryRunView, LazyView, Rows, View, dry_run_with

#: Cycle state key: the names of the plugins that are skipped at Filter.
_SKIPPED: Final = "Framework/skipped"
_NO_ROWS: Final = np.zeros(0, np.intp)
#: The status of nodes that were not evaluated.
_ABSENT: Final = Status(Code.UnschedulableAndUnresolvable)
#: The events of plugins without ``events_to_register``: all but changes of VolumeAttachments.
ANY_CHANGE: Final = tuple(
    EventRegistration(ClusterEvent(resource, Action.All))
    for resource in (
        Resource.Pod,
        Resource.Node,
        Resource.PersistentVolume,
        Resource.PersistentVolumeClaim,
        Resource.CSINode,
        Resource.CSIDriver,
        Resource.CSIStorageCapacity,
        Resource.StorageClass,
        Resource.ResourceClaim,
        Resource.DeviceClass,
    )
)


class Filtered(msgspec.Struct):
    """The filters' verdicts on all rows, and how PreFilter restricted the nodes."""

    outcome: FilterOutcome
    #: The plugins that restricted the nodes by name, and the status of all other nodes.
    narrowed_by: frozenset[str] = frozenset()
    absent: Status = _ABSENT


class Prefiltered(NamedTuple):
    """PreFilter's result: the filters to run, the nodes to consider, and the plugins that restricted them."""

    plan: FilterPlan
    #: None: all nodes.
    names: frozenset[str] | None
    narrowed_by: frozenset[str]


class PreFilterRejected(Exception):  # noqa: N818 - not an error: PreFilter rejected the pod as a whole
    """PreFilter rejected the pod: ``status`` holds for every node, ``plugins`` are the rejecting plugins."""

    def __init__(self, status: Status, plugins: frozenset[str]) -> None:
        super().__init__(status.message)
        self.status = status
        self.plugins = plugins


class Framework(ScorePoints):
    """A profile's plugins and the memos of its templates."""

    def __init__(
        self,
        profile_name: str,
        plugins: ProfilePlugins,
        table: NodeTable,
        probe: Probe = NULL_PROBE,
    ) -> None:
        super().__init__(plugins, Stopwatch(profile_name, probe), table)
        self.profile_name: Final = profile_name
        self.plugins: Final = plugins
        self.placements: Final = PlacementPoints(plugins, self._watch)
        self.pre_enqueue: Final = cast("Sequence[PreEnqueuePlugin]", plugins.at("preEnqueue"))
        self._pre_filter = cast("Sequence[PreFilterPlugin]", plugins.at("preFilter"))
        self._filter = cast("Sequence[FilterPlugin]", plugins.at("filter"))
        self._filter_names = [p.NAME for p in self._filter]
        #: By position, what the filters offer.
        self._hooks: Final = [hooks_of(plugin) for plugin in self._filter]
        self._node_local = NodeLocalPlugins(
            {i: p for i, p in enumerate(self._filter) if isinstance(p, NodeLocal)},
            [(i, p) for i, p in enumerate(self._filter) if not isinstance(p, NodeLocal)],
            self._kept_scores,
            [
                p.epoch
                for p in {*self._filter, *(s.plugin for s in self._kept_scores)}
                if isinstance(p, NodeLocal) and type(p).epoch is not NodeLocal.epoch
            ],
            self._watch,
            sum(s.weight for s in (*self._kept_scores, *self._wide_scores)),
        )
        self._memos: Final = TemplateMemos(
            table,
            self._node_local,
            self._pre_filter,
            self._wide_scores,
            [
                (p.NAME, concerns)
                for p in {*self._pre_filter, *self._filter}
                if (concerns := method_of(p, "concerns")) is not None
            ],
        )

    # ------------------------------------------------------------ queue

    def queueing_hints(self) -> list[EventRegistration]:
        """The registrations of all events that can wake a pod of this profile.

        See docs/spec/cluster-events.md#registration.
        """
        hints: list[EventRegistration] = []
        points = ("preEnqueue", "preFilter", "filter", "reserve", "permit", "placementGenerate")
        for plugin in {p.NAME: p for point in points for p in self.plugins.at(point)}.values():
            registrations = registrations_of(plugin)
            if registrations is None:
                registrations = ANY_CHANGE
            hints += [msgspec.structs.replace(each, plugin=plugin.NAME) for each in registrations]
        return hints

    # ------------------------------------------------------------ filter

    def memo(self, pod: Pod) -> TemplateMemo:
        """The memo of the pod's template. A new memo runs PreFilter of the NodeLocal plugins."""
        return self._memos.of(pod)

    def filter(
        self,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        nominated: PodsByRow,
        within: Mask | None = None,
    ) -> Filtered:
        """Filters all nodes, or those ``within`` bool[table.size].

        ``nominated``: by row, the pods of equal or higher priority nominated to it.

        Raises PreFilterRejected if PreFilter rejects the pod, SchedulingError if a plugin fails.
        """
        prefiltered = self.pre_filter(state, pod, memo)
        return self.filter_after(prefiltered, state, pod, memo, nominated, within)

    def pre_filter(self, state: CycleState, pod: Pod, memo: TemplateMemo) -> Prefiltered:
        """Runs PreFilter. Raises as ``filter`` does."""
        prefiltered = self._watch.point(PRE_FILTER, self._run_pre_filter, state, pod, memo)
        self.participation.filtered(prefiltered.plan.skipped)
        return prefiltered

    def filter_after(
        self,
        prefiltered: Prefiltered,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        nominated: PodsByRow,
        within: Mask | None = None,
    ) -> Filtered:
        """Filters the nodes after PreFilter, on the same table; arguments as for ``filter``. Raises SchedulingError."""
        return self._watch.point(
            FILTER, self._run_filter, state, pod, memo, nominated, prefiltered, within
        )

    def fits_still(self, rows: Rows, pod: Pod, memo: TemplateMemo) -> Mask | None:
        """bool[len(rows)]: whether the NodeLocal filters leave the rows now; None if a filter fails. Raises SchedulingError."""
        arrays = self._watch.point(FILTER, memo.filtered, pod)
        if arrays.faulty:
            return None
        fits: Mask = (arrays.plugin[rows] == NONE) & self._table.exists[rows]
        return fits

    def fresh_state(self, pod: Pod) -> CycleState:
        """A cycle state after PreFilter on the present table. Raises PreFilterRejected and SchedulingError."""
        memo = self.memo(pod)
        state = CycleState(memo.state)
        self._run_pre_filter(state, pod, memo)
        return state

    def _run_filter(
        self,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        nominated: PodsByRow,
        prefiltered: Prefiltered,
        within: Mask | None,
    ) -> Filtered:
        (_, wide), names, narrowed_by = prefiltered
        memo.ranks = names is None
        if names is None:
            arrays, considered, absent = (
                memo.filtered(pod),
                self._table.exists[: self._table.size],
                _ABSENT,
            )
        else:
            arrays, considered = self._filter_named(pod, memo, names)
            absent = _not_named(narrowed_by)
        if within is not None:
            considered = considered & within
        if wide or nominated:
            arrays = arrays.copy()
        if wide:
            view = View.everything(self._table)
            for number, plugin in wide:
                verdicts = self._judge(
                    state, pod, view, number, (arrays.plugin > number) & considered
                )
                by_class = self._large and self._hooks[number].by_traits is not None
                memo.ranks = memo.ranks and by_class
                if verdicts is not None:
                    arrays.add_rejections(number, plugin.NAME, verdicts)
        if nominated:
            self._with_nominated(state, pod, memo, arrays, wide, nominated)
        arrays.check(self._filter_names, considered)
        return Filtered(self.filter_outcome(arrays, considered), narrowed_by, absent)

    def _filter_named(
        self, pod: Pod, memo: TemplateMemo, names: Iterable[str]
    ) -> tuple[FilterArrays, Mask]:
        """The verdicts of the NodeLocal filters if PreFilter named nodes, and bool[table.size]: the rows of those nodes."""
        table = self._table
        rows = sorted([table.row_of[name] for name in names if name in table.row_of])
        considered = np.zeros(table.size, bool)
        considered[rows] = table.exists[rows]
        if len(rows) <= FEW_NAMED:
            return memo.filtered_at(np.array(rows, np.intp), pod), considered
        return memo.filtered(pod), considered

    def _judge(
        self, state: CycleState, pod: Pod, view: View, number: int, undecided: Mask
    ) -> Verdicts | None:
        """A plugin's verdicts on a view of all rows; an UndecidedOnly one evaluates the ``undecided`` rows only."""
        judge = self._watch.one(self._filter[number])
        if not self._hooks[number].undecided_only or undecided.all():
            return judge.filter(state, pod, view)
        at = undecided.nonzero()[0]
        verdicts = judge.filter(state, pod, view.take(at)) if len(at) else None
        if verdicts is None:
            return None
        codes, reasons = np.zeros(view.n, np.int8), np.zeros(view.n, np.int32)
        codes[at], reasons[at] = verdicts.codes, verdicts.reasons
        return Verdicts(codes, reasons, verdicts.text)

    def _run_pre_filter(self, state: CycleState, pod: Pod, memo: TemplateMemo) -> Prefiltered:
        skipping: list[str] = []
        names: frozenset[str] | None = None
        narrowed_by: set[str] = set()
        refused: Status | None = None
        one = self._watch.one
        for plugin, known in memo.pre_filters:
            result = known or one(plugin).pre_filter(state, pod)
            if result is SKIP:
                skipping.append(plugin.NAME)
                continue
            status, only = status_and_nodes(result)
            code = status.code
            if code is Code.Skip:
                skipping.append(plugin.NAME)
            elif code is Code.UnschedulableAndUnresolvable:
                raise PreFilterRejected(
                    status.by(plugin.NAME), frozenset({plugin.NAME, *narrowed_by})
                )
            elif code is Code.Unschedulable:
                refused = status.by(plugin.NAME)
            elif code is not Code.Success:
                raise SchedulingError(f'running PreFilter plugin "{plugin.NAME}": {status.message}')
            elif only is not None:
                narrowed_by.add(plugin.NAME)
                names = only if names is None else names & only
                if not names:
                    raise PreFilterRejected(_nothing_left(narrowed_by), frozenset(narrowed_by))
        plan = memo.plan(skipping)
        state.write(_SKIPPED, plan.skipped)
        if refused is not None:
            raise PreFilterRejected(refused, frozenset({refused.plugin, *narrowed_by}))
        return Prefiltered(plan, names, frozenset(narrowed_by))

    def _with_nominated(
        self,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        arrays: FilterArrays,
        wide: Sequence[tuple[int, FilterPlugin]],
        nominated: PodsByRow,
    ) -> None:
        """Replaces the verdicts on rows that are rejected once their nominated pods are added.

        See docs/spec/node-selection.md#nominated-pods.

        ``arrays`` has the verdicts without these pods. A pod must fit both with and without them.
        """
        if wide:
            view = dry_run_with(self._table, nominated)
            worse = self._ask(state, pod, view, [*memo.active_filters, *wide])
            positions = np.flatnonzero(worse.plugin != NONE)
            arrays.put(view.rows[positions], worse.take(positions))
        else:
            rows, worse = memo.with_nominated(pod, nominated)
            arrays.put(rows, worse.take(rows))

    def why_unfit(self, pod: Pod, row: int) -> Status | None:
        """Why a row on which the pod is counted does not fit it otherwise, by the NodeLocal filters; None if it does.

        Raises SchedulingError.
        """
        memo = self.memo(pod)
        view = DryRunView(self._table, np.array([row], np.intp))
        view.remove(0, pod)
        arrays = self.filter_view(CycleState(memo.state), pod, view, memo.active_filters)
        if arrays.plugin[0] == NONE:
            return None
        return self.filter_outcome(arrays, np.ones(1, bool)).status(0)

    def filter_view(
        self, state: CycleState, pod: Pod, view: View, filters: Iterable[tuple[int, FilterPlugin]]
    ) -> FilterArrays:
        """Runs these filters, in profile order, over a view. Raises SchedulingError."""
        arrays = self._ask(state, pod, view, filters)
        arrays.check(self._filter_names)
        return arrays

    def _ask(
        self, state: CycleState, pod: Pod, view: View, filters: Iterable[tuple[int, FilterPlugin]]
    ) -> FilterArrays:
        arrays = FilterArrays(view.n)
        for number, plugin in sorted(filters, key=lambda pair: pair[0]):
            verdicts = plugin.filter(state, pod, view)
            if verdicts is not None:
                arrays.add_rejections(number, plugin.NAME, verdicts)
        return arrays

    def only_narrows(self, state: CycleState, number: int) -> bool:
        """Whether filter ``number`` promises that further pods never make a node feasible that it rejects."""
        hook = self._hooks[number].only_narrows
        return hook is not None and hook.only_narrows(state)

    def active_filters(self, state: CycleState) -> list[tuple[int, FilterPlugin]]:
        """The filters that PreFilter did not skip in this attempt, with their positions in the profile."""
        skipped = state.get(_SKIPPED, frozenset())
        return [(i, p) for i, p in enumerate(self._filter) if p.NAME not in skipped]

    def node_local_epoch(self) -> Hashable:
        """A value that changes when results of NodeLocal plugins may change for rows that have not changed."""
        return self._node_local.epoch()

    def filter_outcome(self, arrays: FilterArrays, considered: Mask) -> FilterOutcome:
        """Verdicts as a FilterOutcome, which gives their texts."""
        plugin, codes, reasons, texts = arrays.plugin, arrays.codes, arrays.reasons, arrays.texts
        return FilterOutcome(self._filter_names, plugin, codes, reasons, texts, considered)

    # ------------------------------------------------------------ the best row

    def best(
        self,
        prefiltered: Prefiltered,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        nominated: PodsByRow,
        rng: np.random.Generator,
    ) -> Best | None:
        """The row that a comparison of all feasible rows chooses, after PreFilter on the same table.

        It needs no pass over all rows if the verdicts and scores of the template are kept. None if they are not sufficient:
        other filters or scores are asked for this pod, scores have to be normalised, or fewer than two rows are feasible.
        Raises SchedulingError.
        """
        memo.ranks = False  # until it is known again
        (_, wide_filters), names, _ = prefiltered
        if names is not None or (wide_filters and (nominated or not self._large)):
            return None
        traits = self._traits(pod, memo, wide_filters) if self._large else ()
        if traits is None or (traits and nominated) or memo.too_many_classes(traits):
            return None
        asked: list[tuple[int, FilterPlugin]] = []
        for number, wide_filter in wide_filters:
            hook = self._hooks[number].accepts_all
            if hook is None or not hook.accepts_all(state, pod):
                asked.append((number, wide_filter))
        if asked and not traits:
            return None
        try:
            without = self._watch.point(FILTER, self._rejected_of_kept, pod, memo, nominated)
        except Unfinished:
            return None
        if traits:
            return self._best_by_class(state, pod, memo, traits, asked, rng)
        view = LazyView(self._table, memo.feasible)
        wide = self.pre_score(state, pod, memo, view)
        if any(scorer.normalizes for scorer in wide):
            return None
        return self._watch.point(SCORE, self._best, state, pod, memo, view, wide, without, rng)

    def _traits(
        self, pod: Pod, memo: TemplateMemo, filters: Iterable[tuple[int, FilterPlugin]]
    ) -> Sequence[Trait] | None:
        """What the wide plugins' answers to the pod depend on; None if they do not say."""
        found: dict[Hashable, Trait] = {}
        hooks = [self._hooks[number].by_traits for number, _ in filters]
        hooks += [scorer.by_traits for scorer in memo.wide_scores]
        for hook in dict.fromkeys(hooks):
            if hook is None:
                continue
            traits = hook.traits(pod)
            if traits is None:
                return None
            found |= {trait.key: trait for trait in traits}
        return [*found.values()]

    def _best_by_class(
        self,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        traits: Sequence[Trait],
        filters: Sequence[tuple[int, FilterPlugin]],
        rng: np.random.Generator,
    ) -> Best | None:
        """The same where wide plugins are asked about one row of each class."""
        if any(self._hooks[number].by_traits is None for number, _ in filters):
            return None
        columns: list[tuple[npt.NDArray[Any], int]] = []
        for scorer in memo.wide_scores:
            given = None if scorer.column is None else scorer.column.column(pod)
            columns += [] if given is None else [(given, scorer.weight)]
        self._pre_score_kept(pod, memo, LazyView(self._table, memo.feasible))
        ranking = self._watch.point(SCORE, memo.ranking, pod, columns, traits)
        if ranking is None:
            return None
        numbers, rows, counts = ranking.samples()
        view = SampleView(self._table, rows, counts)
        verdicts = self._watch.point(FILTER, self._ask, state, pod, view, filters)
        if verdicts.faulty:
            return None
        good = (verdicts.plugin == NONE).nonzero()[0]
        numbers, view = numbers[good], view.take(good)
        if not view.n:
            return None
        wide = self.pre_score(state, pod, memo, view)
        added = self._watch.point(SCORE, self._added, state, pod, view, wide)
        if added is None:
            return None
        best = ranking.best(rng, added=dict(zip(numbers.tolist(), added.tolist(), strict=True)))
        if best is not None:
            self._ranked(memo, wide)
        return best

    def _added(self, state: CycleState, pod: Pod, view: View, wide: Scorers) -> Int64 | None:
        """int64[n]: the weighted scores of the wide plugins, without those of columns; None if one does not tell traits."""
        total = np.zeros(view.n, np.int64)
        for scorer in wide:
            if scorer.column is not None:
                continue
            given = self._watch.one(scorer.plugin).score(state, pod, view)
            if given is None and not scorer.normalizes:
                continue
            if scorer.by_traits is None:
                return None
            scores = self._normalized(state, pod, scorer, given, view)
            total += weighted(scores, scorer.weight)
        return total

    def _ranked(self, memo: TemplateMemo, wide: Scorers) -> None:
        memo.ranks = True
        memo.keep_ranking()
        active = memo.active_scores or ()
        self.participation.scored(tuple([s.plugin.NAME for s in (*active, *wide)]))

    def _rejected_of_kept(self, pod: Pod, memo: TemplateMemo, nominated: PodsByRow) -> Rows:
        """The rows, ascending, that the filters reject once their nominated pods are added.

        Raises Unfinished if all rows have to be filtered by the full pass.
        """
        if not memo.may_rank(pod):
            raise Unfinished
        if not nominated:
            return _NO_ROWS
        rows, worse = memo.with_nominated(pod, nominated)
        if worse.faulty:
            raise Unfinished
        return rows

    def _best(
        self,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        view: View,
        wide: Scorers,
        without: npt.NDArray[np.intp],
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
        ranking = memo.ranking(pod, columns)
        best = None if ranking is None else ranking.best(rng, without)
        if best is not None:
            self._ranked(memo, wide)
        return best

    def ranked(
        self, pod: Pod, memo: TemplateMemo, nominated: PodsByRow
    ) -> tuple[npt.NDArray[np.intp], Int64]:
        """The rows among which ``best`` has chosen, and their totals. Valid while the table is unchanged."""
        rows, totals = memo.compared()
        if nominated:
            left = ~np.isin(rows, memo.with_nominated(pod, nominated)[0])
            rows, totals = rows[left], totals[left]
        return rows, totals


class ProfileHandle(Handle):
    """A Handle with the profile's framework, for plugins that run the filters of other plugins (preemption)."""

    __slots__ = ("framework",)

    #: Set after all plugins of the profile were created: not available in their constructors.
    framework: Framework


@functools.cache
def _not_named(narrowed_by: frozenset[str]) -> Status:
    """The status of nodes that these plugins did not name at PreFilter."""
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowed_by))}]")


def _nothing_left(narrowed_by: set[str]) -> Status:
    names = sorted(narrowed_by)
    if len(names) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {names[0]}")
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously")
