"""A profile's plugins, and their calls at PreFilter and Filter, by kube-scheduler's rules (docs/spec/framework.md)."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from app.framework.choosing import Choosing, run_filters
from app.framework.classes import is_large
from app.framework.commit import CommitPoints
from app.framework.diagnosis import NONE, FilterOutcome
from app.framework.handle import Handle
from app.framework.interface import AnyPlugin, CycleState, NodeLocal, Plugin, Verdicts
from app.framework.memo import FilterPass, NodeLocalMemo, NodeLocalPlugins, TemplateMemo
from app.framework.optional import IgnoresOtherPods
from app.framework.placement_points import PlacementPoints
from app.framework.plugin_class import method_of, registrations_of
from app.framework.probe import (
    FILTER,
    NULL_PROBE,
    PRE_FILTER,
    PRE_SCORE,
    Participation,
    Probe,
    Stopwatch,
)
from app.framework.profile import ProfilePlugins, hooks_of
from app.framework.scoring import ScorePoints
from app.framework.template_memos import FEW_NAMED, TemplateMemos, status_and_nodes
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.pod import Pod
from app.model.status import SKIP, Code, SchedulingError, Status, unresolvable
from app.state.columns.arrays import Rows
from app.state.columns.labels import Mask
from app.state.nominations import PodsByRow
from app.state.queue.hints import EventRegistration
from app.state.table import NodeTable
from app.state.view import DryRunView, View, dry_run_with

#: Cycle state key: the names of the plugins that are skipped at Filter.
_SKIPPED: Final = "Framework/skipped"
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


class PreFilterRejected(Exception):  # noqa: N818 - not an error: PreFilter rejected the pod as a whole
    """PreFilter rejected the pod: ``status`` holds for every node, ``plugins`` are the rejecting plugins."""

    def __init__(self, status: Status, plugins: frozenset[str]) -> None:
        super().__init__(status.message)
        self.status = status
        self.plugins = plugins


class Framework:
    """A profile's plugins and the memos of its templates; runs PreFilter and Filter, its parts run the other points."""

    def __init__(
        self,
        profile_name: str,
        plugins: ProfilePlugins,
        table: NodeTable,
        probe: Probe = NULL_PROBE,
    ) -> None:
        self.profile_name: Final = profile_name
        self.plugins: Final = plugins
        self._table: Final = table
        self._watch: Final = Stopwatch(profile_name, probe)
        #: Attempts by plugin and extension point, for PreFilter, Filter, PreScore and Score.
        self.participation: Final = Participation(
            {
                PRE_FILTER: [p.NAME for p in plugins.at("preFilter")],
                FILTER: [p.NAME for p in plugins.at("filter")],
                PRE_SCORE: [p.NAME for p in plugins.at("preScore")],
            }
        )
        self.scoring: Final = ScorePoints(plugins, self._watch, table, self.participation)
        self.commit: Final = CommitPoints(plugins, self._watch)
        self.placements: Final = PlacementPoints(plugins, self._watch)
        self.pre_enqueue: Final = plugins.at("preEnqueue")
        pre_filter = plugins.at("preFilter")
        self._filter = plugins.at("filter")
        #: By position, what the filters offer.
        self._hooks: Final = [hooks_of(plugin) for plugin in self._filter]
        every: Iterable[Plugin] = dict.fromkeys(
            [*pre_filter, *self._filter, *(s.plugin for s in self.scoring.kept)]
        )
        local = [p for p in every if isinstance(p, NodeLocal)]
        self._node_local: Final = NodeLocalPlugins(
            self._filter,
            self.scoring.kept,
            [p.epoch for p in local if type(p).epoch is not NodeLocal.epoch],
            table,
            self._watch,
            sum(s.weight for s in (*self.scoring.kept, *self.scoring.wide)),
        )
        self._memos: Final = TemplateMemos(
            self._node_local,
            pre_filter,
            self.scoring.wide,
            [
                (p, concerns)
                for p in {*pre_filter, *self._filter}
                if (concerns := method_of(p, "concerns")) is not None
            ],
            shares=all(isinstance(p, IgnoresOtherPods) for p in local),
        )
        self.choosing: Final = Choosing(self._node_local, self._hooks, self.scoring, self._watch)

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
    ) -> FilterPass:
        """Filters all nodes, or those ``within`` bool[table.size].

        ``nominated``: by row, the pods of equal or higher priority nominated to it.

        Raises PreFilterRejected if PreFilter rejects the pod, SchedulingError if a plugin fails.
        """
        result = self.pre_filter(state, pod, memo)
        return self.filter_after(result, state, pod, memo, nominated, within)

    def pre_filter(self, state: CycleState, pod: Pod, memo: TemplateMemo) -> FilterPass:
        """Runs PreFilter. Raises as ``filter`` does."""
        result = self._watch.point(PRE_FILTER, self._run_pre_filter, state, pod, memo)
        self.participation.filtered(result.skipped)
        return result

    def filter_after(
        self,
        result: FilterPass,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        nominated: PodsByRow,
        within: Mask | None = None,
    ) -> FilterPass:
        """Filters the nodes after PreFilter, on the same table; arguments as for ``filter``. Raises SchedulingError."""
        result.outcome = self._watch.point(
            FILTER, self._run_filter, state, pod, memo, nominated, result, within
        )
        return result

    def fits_still(self, rows: Rows, pod: Pod, memo: TemplateMemo) -> Mask | None:
        """bool[len(rows)]: whether the NodeLocal filters leave the rows now; None if a filter fails. Raises
        SchedulingError.
        """
        outcome = self._watch.point(FILTER, memo.local.refiltered, pod)
        fits: Mask = self._table.exists[rows]
        if outcome is None:
            return fits
        if outcome.faulty:
            return None
        fits &= outcome.plugin[rows] == NONE
        return fits

    def fresh_state(self, pod: Pod) -> CycleState:
        """A cycle state after PreFilter on the present table. Raises PreFilterRejected and SchedulingError."""
        memo = self.memo(pod)
        state = CycleState(memo.local.state)
        self._run_pre_filter(state, pod, memo)
        return state

    def _run_filter(
        self,
        state: CycleState,
        pod: Pod,
        memo: TemplateMemo,
        nominated: PodsByRow,
        before: FilterPass,
        within: Mask | None,
    ) -> FilterOutcome:
        memo.ranks = before.names is None
        if before.names is None:
            outcome = memo.local.filtered(pod).over(self._table.exists[: self._table.size])
        else:
            outcome = self._filter_named(pod, memo.local, before.names)
        if within is not None:
            outcome.considered = outcome.considered & within
        if before.wide or nominated:
            outcome = outcome.copy()
        if before.wide:
            view = View.everything(self._table)
            for number, _ in before.wide:
                undecided = (outcome.plugin > number) & outcome.considered
                verdicts = self._judge(state, pod, view, number, undecided)
                by_class = self._hooks[number].by_traits is not None and is_large(self._table)
                memo.ranks = memo.ranks and by_class
                if verdicts is not None:
                    outcome.add(number, verdicts.codes, verdicts.reasons, verdicts.text)
        if nominated:
            self._with_nominated(state, pod, memo.local, outcome, before.wide, nominated)
        outcome.check()
        return outcome

    def _filter_named(self, pod: Pod, local: NodeLocalMemo, names: Iterable[str]) -> FilterOutcome:
        """The verdicts of the NodeLocal filters if PreFilter named nodes; the rows of these are considered."""
        table = self._table
        rows = sorted([table.row_of[name] for name in names if name in table.row_of])
        considered = np.zeros(table.size, bool)
        considered[rows] = table.exists[rows]
        if len(rows) <= FEW_NAMED:
            return local.filtered_at(np.array(rows, np.intp), pod).over(considered)
        return local.filtered(pod).over(considered)

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

    def _run_pre_filter(self, state: CycleState, pod: Pod, memo: TemplateMemo) -> FilterPass:
        skipping: list[str] = []
        names: frozenset[str] | None = None
        narrowed_by: set[str] = set()
        refused: Status | None = None
        watch = self._watch
        for plugin, known in memo.pre_filters:
            asked = watch.one(plugin) if watch.sampling else plugin
            result = known or asked.pre_filter(state, pod)
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
        before = memo.after(skipping)
        state.write(_SKIPPED, before.skipped)
        if refused is not None:
            raise PreFilterRejected(refused, frozenset({refused.plugin, *narrowed_by}))
        before.names, before.narrowed_by = names, frozenset(narrowed_by)
        return before

    def _with_nominated(
        self,
        state: CycleState,
        pod: Pod,
        local: NodeLocalMemo,
        outcome: FilterOutcome,
        wide: Sequence[tuple[int, AnyPlugin]],
        nominated: PodsByRow,
    ) -> None:
        """Replaces the verdicts on rows that are rejected once their nominated pods are added.

        See docs/spec/node-selection.md#nominated-pods.

        ``outcome`` has the verdicts without these pods. A pod must fit both with and without them.
        """
        if wide:
            view = dry_run_with(self._table, nominated)
            filters = [*local.active_filters, *wide]
            worse = run_filters(self.accepted(view.n), state, pod, view, filters)
            positions = np.flatnonzero(worse.plugin != NONE)
            outcome.put(view.rows[positions], worse.take(positions))
        else:
            rows, worse = local.with_nominated(pod, nominated)
            outcome.put(rows, worse.take(rows))

    def why_unfit(self, pod: Pod, row: int) -> Status | None:
        """Why a row on which the pod is counted does not fit it otherwise, by the NodeLocal filters; None if it does.

        Raises SchedulingError.
        """
        local = self.memo(pod).local
        view = DryRunView(self._table, np.array([row], np.intp))
        view.remove(0, pod)
        outcome = self.filter_view(CycleState(local.state), pod, view, local.active_filters)
        return None if outcome.plugin[0] == NONE else outcome.status(0)

    def filter_view(
        self, state: CycleState, pod: Pod, view: View, filters: Iterable[tuple[int, AnyPlugin]]
    ) -> FilterOutcome:
        """Runs these filters, in profile order, over a view. Raises SchedulingError."""
        outcome = run_filters(self.accepted(view.n), state, pod, view, filters)
        outcome.check()
        return outcome

    def accepted(self, n: int) -> FilterOutcome:
        """Verdicts that reject none of ``n`` rows."""
        return self._node_local.accepted(n)

    def only_narrows(self, state: CycleState, number: int) -> bool:
        """Whether filter ``number`` promises that further pods never make a node feasible that it rejects."""
        hook = self._hooks[number].only_narrows
        return hook is not None and hook.only_narrows(state)

    def active_filters(self, state: CycleState) -> list[tuple[int, AnyPlugin]]:
        """The filters that PreFilter did not skip in this attempt, with their positions in the profile."""
        skipped = state.get(_SKIPPED, frozenset())
        return [(i, p) for i, p in enumerate(self._filter) if p.NAME not in skipped]

    def node_local_epoch(self) -> Hashable:
        """A value that changes when results of NodeLocal plugins may change for rows that have not changed."""
        return self._node_local.epoch()


class ProfileHandle(Handle):
    """A Handle with the profile's framework, for plugins that run the filters of other plugins (preemption)."""

    __slots__ = ("framework",)

    #: Set after all plugins of the profile were created: not available in their constructors.
    framework: Framework


def _nothing_left(narrowed_by: set[str]) -> Status:
    names = sorted(narrowed_by)
    if len(names) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {names[0]}")
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously")
