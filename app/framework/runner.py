"""Runs one profile's plugins at each extension point, by kube-scheduler's rules (spec: plugins.md 1.4)."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from app.framework.diagnosis import NONE, Diagnosis, Outcome
from app.framework.interface import (
    BindPlugin,
    CycleState,
    Effects,
    EventRegistration,
    FilterPlugin,
    NormalizePlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ReservePlugin,
    RowLocal,
    ScorePlugin,
    registrations_of,
)
from app.framework.memo import FilterArrays, RowLocalPlugins, TemplateMemo, check_scores
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.pod import Pod, PodTemplate
from app.model.status import SUCCESS, Code, SchedulingError, Status, unresolvable
from app.state.resources import Int64
from app.state.table import NodeTable
from app.state.view import View, WhatIf

#: Cycle state: the names of the plugins whose PreFilter said Skip.
_SKIPPED: Final = "Framework/skipped"
#: Bytes of verdicts and scores kept per profile before those of the template asked least recently are dropped.
_MEMO_BYTES: Final = 24 * 2**20
#: The longest a Permit plugin may hold a pod.
MAX_PERMIT_SECONDS: Final = 15 * 60.0
#: Events that wake pods turned down by a plugin which does not say what it waits for.
_ANY_CHANGE: Final = tuple(
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


@dataclasses.dataclass(frozen=True, slots=True)
class ProfilePlugins:
    """The plugin instances of a profile in the order of each extension point (configuration names), and score weights."""

    by_point: Mapping[str, Sequence[Plugin]]
    weights: Mapping[str, int]

    def at(self, point: str) -> Sequence[Any]:
        """The plugins of a point."""
        return self.by_point.get(point, ())


@dataclasses.dataclass(slots=True)
class Filtered:
    """Where a pod may go: the filters' verdicts on all rows, and what PreFilter narrowed."""

    outcome: Outcome
    #: Plugins that named the only nodes that can be right, and their verdict on all others.
    narrowed_by: frozenset[str] = frozenset()
    absent: Status = dataclasses.field(
        default_factory=lambda: Status(Code.UnschedulableAndUnresolvable)
    )


class Rejected(Exception):  # noqa: N818 - not a fault: PreFilter turned the pod down as a whole
    """PreFilter says no; ``status`` holds for every node, ``plugins`` are to blame."""

    def __init__(self, status: Status, plugins: frozenset[str]) -> None:
        super().__init__(status.message)
        self.status = status
        self.plugins = plugins


class Framework:
    """One profile, ready to run."""

    def __init__(self, profile_name: str, plugins: ProfilePlugins, table: NodeTable) -> None:
        self.profile_name: Final = profile_name
        self._table = table
        self.plugins: Final = plugins
        self.pre_enqueue: Final = cast("Sequence[PreEnqueuePlugin]", plugins.at("preEnqueue"))
        self._pre_filter = cast("Sequence[PreFilterPlugin]", plugins.at("preFilter"))
        self._filter = cast("Sequence[FilterPlugin]", plugins.at("filter"))
        self._post_filter = cast("Sequence[PostFilterPlugin]", plugins.at("postFilter"))
        self._pre_score = cast("Sequence[PreScorePlugin]", plugins.at("preScore"))
        self._score = cast("Sequence[ScorePlugin]", plugins.at("score"))
        self._reserve = cast("Sequence[ReservePlugin]", plugins.at("reserve"))
        self._permit = cast("Sequence[PermitPlugin]", plugins.at("permit"))
        self._pre_bind = cast("Sequence[PreBindPlugin]", plugins.at("preBind"))
        self._bind = cast("Sequence[BindPlugin]", plugins.at("bind"))
        self._post_bind = cast("Sequence[PostBindPlugin]", plugins.at("postBind"))
        self._filter_names = [p.NAME for p in self._filter]
        self._weights = [plugins.weights.get(p.NAME, 1) or 1 for p in self._score]
        self._row_local = RowLocalPlugins(
            {i: p for i, p in enumerate(self._filter) if isinstance(p, RowLocal)},
            {
                i: (p, w)
                for i, (p, w) in enumerate(zip(self._score, self._weights, strict=True))
                if isinstance(p, RowLocal)
            },
            [p.epoch for p in {*self._filter, *self._score} if isinstance(p, RowLocal)],
        )
        self._wide_filters = [
            (i, p) for i, p in enumerate(self._filter) if not isinstance(p, RowLocal)
        ]
        self._wide_scores = [
            (p, w)
            for p, w in zip(self._score, self._weights, strict=True)
            if not isinstance(p, RowLocal)
        ]
        self._pre_score_by_name = {p.NAME: p for p in self._pre_score}
        self._memos: dict[PodTemplate, TemplateMemo] = {}

    @property
    def scores_anything(self) -> bool:
        """Whether the profile has Score plugins."""
        return bool(self._score)

    # ------------------------------------------------------------ queue

    def queueing_hints(self) -> list[tuple[str, EventRegistration]]:
        """(plugin, event) for everything that can wake a pod of this profile (spec: plugins.md 2.0)."""
        hints: list[tuple[str, EventRegistration]] = []
        for plugin in self._rejecting_plugins():
            registrations = registrations_of(plugin)
            if registrations is None:
                registrations = _ANY_CHANGE
            hints += [(plugin.NAME, registration) for registration in registrations]
        return hints

    def _rejecting_plugins(self) -> Iterable[Plugin]:
        points = ("preEnqueue", "preFilter", "filter", "reserve", "permit")
        found = {p.NAME: p for point in points for p in self.plugins.at(point)}
        return found.values()

    # ------------------------------------------------------------ filter

    def memo(self, pod: Pod) -> TemplateMemo:
        """What is kept for the pods of this template."""
        memo = self._memos.pop(pod.template, None)
        if memo is None:
            memo = self._new_memo(pod)
        self._memos[pod.template] = memo
        return memo

    def _new_memo(self, pod: Pod) -> TemplateMemo:
        held = sum(memo.size for memo in self._memos.values())
        for template in list(self._memos):
            if held <= _MEMO_BYTES:
                break
            held -= self._memos.pop(template).size
        memo = TemplateMemo(self._row_local, self._table)
        skipped = set()
        for number, plugin in enumerate(self._pre_filter):
            if isinstance(plugin, RowLocal):
                result = _as_result(plugin.pre_filter(memo.state, pod))
                memo.pre_filter[number] = result
                if result.status.code is Code.Skip:
                    skipped.add(plugin.NAME)
        memo.active_filters = [
            (i, p) for i, p in self._row_local.filters.items() if p.NAME not in skipped
        ]
        return memo

    def filter(
        self,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        nominated: Mapping[int, Sequence[Pod]],
    ) -> Filtered:
        """Judges every node. ``nominated``: by row, the pods of equal or higher priority nominated there.

        Raises Rejected when PreFilter turns the pod down, SchedulingError on a plugin's fault.
        """
        skipped, names, narrowed_by = self._run_pre_filter(state, pod, memo)
        arrays = memo.filtered(pod)
        wide = [(i, p) for i, p in self._wide_filters if p.NAME not in skipped]
        if wide or nominated:
            arrays = arrays.copy()
        if wide:
            view = View.everything(self._table)
            for number, plugin in wide:
                verdicts = plugin.filter(state, pod, view)
                if verdicts is not None:
                    arrays.lay_over(number, plugin.NAME, verdicts)
        if nominated:
            self._with_nominated(state, pod, arrays, memo.active_filters, wide, nominated)
        considered = self._table.exists[: self._table.size]
        absent = Status(Code.UnschedulableAndUnresolvable)
        if names is not None:
            rows = [self._table.row_of[name] for name in names if name in self._table.row_of]
            only = np.zeros(self._table.size, bool)
            only[rows] = True
            considered = considered & only
            absent = unresolvable(
                f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowed_by))}]"
            )
        outcome = Outcome(
            self._filter_names,
            arrays.plugin,
            arrays.codes,
            arrays.reasons,
            arrays.texts,
            considered,
        )
        return Filtered(outcome, narrowed_by, absent)

    def _run_pre_filter(
        self, state: CycleState, pod: Pod, memo: TemplateMemo
    ) -> tuple[set[str], frozenset[str] | None, frozenset[str]]:
        skipped: set[str] = set()
        state.write(_SKIPPED, skipped)
        names: frozenset[str] | None = None
        narrowed_by: set[str] = set()
        refused: Status | None = None
        for number, plugin in enumerate(self._pre_filter):
            known = memo.pre_filter.get(number)
            result = known if known is not None else _as_result(plugin.pre_filter(state, pod))
            code = result.status.code
            if code is Code.Skip:
                skipped.add(plugin.NAME)
            elif code is Code.UnschedulableAndUnresolvable:
                raise Rejected(
                    result.status.by(plugin.NAME), frozenset({plugin.NAME, *narrowed_by})
                )
            elif code is Code.Unschedulable:
                refused = result.status.by(plugin.NAME)
            elif code is not Code.Success:
                raise SchedulingError(
                    f'running PreFilter plugin "{plugin.NAME}": {result.status.message}'
                )
            elif result.node_names is not None:
                narrowed_by.add(plugin.NAME)
                names = result.node_names if names is None else names & result.node_names
                if not names:
                    raise Rejected(_nothing_left(narrowed_by), frozenset(narrowed_by))
        if refused is not None:
            raise Rejected(refused, frozenset({refused.plugin, *narrowed_by}))
        return skipped, names, frozenset(narrowed_by)

    def _with_nominated(
        self,
        state: CycleState,
        pod: Pod,
        arrays: FilterArrays,
        local: Sequence[tuple[int, FilterPlugin]],
        wide: Sequence[tuple[int, FilterPlugin]],
        nominated: Mapping[int, Sequence[Pod]],
    ) -> None:
        view = WhatIf(self._table, np.fromiter(nominated, np.intp, len(nominated)))
        for position, pods in enumerate(nominated.values()):
            for other in pods:
                view.add(position, other.on(self._table.names[view.rows[position]]))
        worse = self.filter_view(state, pod, view, [*local, *wide])
        failed = np.flatnonzero(worse.plugin != NONE)
        if len(failed):
            rows = view.rows[failed]
            arrays.plugin[rows] = worse.plugin[failed]
            arrays.codes[rows] = worse.codes[failed]
            arrays.reasons[rows] = worse.reasons[failed]
            arrays.texts.update(worse.texts)

    def filter_view(
        self, state: CycleState, pod: Pod, view: View, filters: Iterable[tuple[int, FilterPlugin]]
    ) -> FilterArrays:
        """Runs these filters, in profile order, over a view."""
        arrays = FilterArrays(view.n)
        for number, plugin in sorted(filters, key=lambda pair: pair[0]):
            verdicts = plugin.filter(state, pod, view)
            if verdicts is not None:
                arrays.lay_over(number, plugin.NAME, verdicts)
        return arrays

    def active_filters(self, state: CycleState) -> list[tuple[int, FilterPlugin]]:
        """The filters that PreFilter did not skip in this attempt, for passes over imagined nodes."""
        skipped = state.get(_SKIPPED, frozenset())
        return [(i, p) for i, p in enumerate(self._filter) if p.NAME not in skipped]

    def filter_outcome(self, arrays: FilterArrays, n: int) -> Outcome:
        """Verdicts over a view as an Outcome, to put them into words."""
        return Outcome(
            self._filter_names,
            arrays.plugin,
            arrays.codes,
            arrays.reasons,
            arrays.texts,
            np.ones(n, bool),
        )

    # ------------------------------------------------------------ score

    def score(self, state: CycleState, pod: Pod, memo: TemplateMemo, view: View) -> Int64:
        """int64[n]: the weighted total of every node of the view, which has the feasible ones. Raises SchedulingError."""
        return self._sum(self._parts(state, pod, memo, view), view.n)

    def plugin_scores(
        self, state: CycleState, pod: Pod, memo: TemplateMemo, view: View
    ) -> dict[str, Int64]:
        """int64[n] by plugin: weighted, after normalising; for the log and for ``explain``."""
        self._prepare_scores(pod, memo, view)
        out: dict[str, Int64] = {}
        for plugin, weight in memo.active_scores or ():
            out[plugin.NAME] = weight * self._normalized(
                memo.state, pod, plugin, plugin.score(memo.state, pod, view), view
            )
        for plugin, weight in self._wide_active(state, pod, view):
            out[plugin.NAME] = weight * self._normalized(
                state, pod, plugin, plugin.score(state, pod, view), view
            )
        return out

    def _parts(
        self, state: CycleState, pod: Pod, memo: TemplateMemo, view: View
    ) -> Iterable[Int64]:
        self._prepare_scores(pod, memo, view)
        total, raw = memo.scored(pod)
        yield self._of(total, view)
        for number, scores in raw.items():
            plugin, weight = (memo.active_scores or ())[number]
            yield weight * self._normalized(memo.state, pod, plugin, self._of(scores, view), view)
        for plugin, weight in self._wide_active(state, pod, view):
            yield weight * self._normalized(
                state, pod, plugin, plugin.score(state, pod, view), view
            )

    def _of(self, column: Int64, view: View) -> Int64:
        """The view's part of a column over all rows; the column itself, not to be changed, where that is everything."""
        return column if view.n == self._table.size else column.take(view.rows)

    @staticmethod
    def _sum(parts: Iterable[Int64], n: int) -> Int64:
        total: Int64 | None = None
        for part in parts:
            total = part if total is None else total + part
        return np.zeros(n, np.int64) if total is None else total

    def _prepare_scores(self, pod: Pod, memo: TemplateMemo, view: View) -> None:
        if memo.active_scores is None:
            memo.active_scores = [
                (plugin, weight)
                for plugin, weight in self._row_local.scores.values()
                if self._run_pre_score(memo.state, pod, plugin, view)
            ]

    def _wide_active(
        self, state: CycleState, pod: Pod, view: View
    ) -> Iterable[tuple[ScorePlugin, int]]:
        return [(p, w) for p, w in self._wide_scores if self._run_pre_score(state, pod, p, view)]

    def _run_pre_score(self, state: CycleState, pod: Pod, plugin: ScorePlugin, view: View) -> bool:
        """Whether the plugin scores this pod."""
        pre_score = self._pre_score_by_name.get(plugin.NAME)
        if pre_score is None:
            return True
        status = pre_score.pre_score(state, pod, view)
        if status.code not in {Code.Success, Code.Skip}:
            raise SchedulingError(f'running PreScore plugin "{plugin.NAME}": {status.message}')
        return status.ok

    @staticmethod
    def _normalized(
        state: CycleState, pod: Pod, plugin: ScorePlugin, scores: Int64, view: View
    ) -> Int64:
        if hasattr(plugin, "normalize"):
            scores = cast("NormalizePlugin", plugin).normalize(state, pod, scores, view)
        check_scores(plugin.NAME, scores)
        return scores

    # ------------------------------------------------------------ after the decision

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Runs Reserve; the first failure stops. The caller unreserves."""
        for plugin in self._reserve:
            status = plugin.reserve(state, pod, node_name)
            if status.code.rejected:
                return status.by(plugin.NAME)
            if not status.ok:
                return Status(
                    Code.Error,
                    (f'running Reserve plugin "{plugin.NAME}": {status.message}',),
                    plugin.NAME,
                )
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Runs Unreserve of every Reserve plugin, last first."""
        for plugin in reversed(self._reserve):
            plugin.unreserve(state, pod, node_name)

    def permit(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> tuple[Status, dict[str, float]]:
        """Runs Permit: the verdict, and with Code.Wait how long each plugin may hold the pod, in seconds."""
        waits: dict[str, float] = {}
        for plugin in self._permit:
            result = plugin.permit(state, pod, node_name)
            status = result.status
            if status.code.rejected:
                return status.by(plugin.NAME), {}
            if status.code is Code.Wait:
                waits[plugin.NAME] = min(result.timeout_seconds, MAX_PERMIT_SECONDS)
            elif not status.ok:
                text = f'running Permit plugin "{plugin.NAME}": {status.message}'
                return Status(Code.Error, (text,), plugin.NAME), {}
        if waits:
            return Status(
                Code.Wait, ("one or more plugins asked to wait and no plugin rejected pod",)
            ), waits
        return SUCCESS, {}

    @property
    def has_permit(self) -> bool:
        """Whether any Permit plugin is there."""
        return bool(self._permit)

    def pre_bind_work(self, state: CycleState, pod: Pod, node_name: str) -> list[PreBindPlugin]:
        """The PreBind plugins with something to do. Raises SchedulingError."""
        work = []
        for plugin in self._pre_bind:
            flight = getattr(plugin, "pre_bind_pre_flight", None)
            status = SUCCESS if flight is None else flight(state, pod, node_name)
            if status.ok:
                work.append(plugin)
            elif status.code is not Code.Skip:
                raise SchedulingError(f'running PreBindPreFlight "{plugin.NAME}": {status.message}')
        return work

    async def pre_bind(
        self,
        state: CycleState,
        pod: Pod,
        node_name: str,
        effects: Effects,
        work: Sequence[PreBindPlugin],
    ) -> None:
        """Runs these PreBind plugins in order. Raises SchedulingError."""
        for plugin in work:
            status = await plugin.pre_bind(state, pod, node_name, effects)
            if not status.ok:
                raise SchedulingError(f'running PreBind plugin "{plugin.NAME}": {status.message}')

    async def bind(self, state: CycleState, pod: Pod, node_name: str, effects: Effects) -> None:
        """Runs Bind plugins until one does not skip. Raises SchedulingError."""
        for plugin in self._bind:
            status = await plugin.bind(state, pod, node_name, effects)
            if status.code is Code.Skip:
                continue
            if not status.ok:
                raise SchedulingError(f'running Bind plugin "{plugin.NAME}": {status.message}')
            return
        raise SchedulingError("no Bind plugin took the pod")

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Runs PostBind."""
        for plugin in self._post_bind:
            plugin.post_bind(state, pod, node_name)

    async def post_filter(
        self, state: CycleState, pod: Pod, diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult | None:
        """Runs PostFilter; None if there is no such plugin. Messages accumulate until one succeeds."""
        if not self._post_filter:
            return None
        nominated: str | None = None
        reasons: list[str] = []
        for plugin in self._post_filter:
            result = await plugin.post_filter(state, pod, diagnosis, effects)
            status = result.status
            if status.ok or status.code is Code.UnschedulableAndUnresolvable:
                return result
            if status.code is not Code.Unschedulable:
                return PostFilterResult(Status(Code.Error, status.reasons, plugin.NAME))
            if result.nominated_node is not None:
                nominated = result.nominated_node
            reasons += status.reasons
        return PostFilterResult(Status(Code.Unschedulable, tuple(reasons)), nominated)


def _as_result(result: PreFilterResult | Status) -> PreFilterResult:
    return PreFilterResult(result) if isinstance(result, Status) else result


def _nothing_left(narrowed_by: set[str]) -> Status:
    names = sorted(narrowed_by)
    if len(names) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {names[0]}")
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously")
