"""The DefaultPreemption plugin."""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np

from app.framework.diagnosis import Diagnosis, unavailable
from app.framework.handle import Effects, Eviction
from app.framework.interface import (
    MAY_PAUSE,
    CycleState,
    GroupMember,
    NodeLocal,
    PodGroupPostFilterResult,
    PostFilterResult,
    QueueingHint,
)
from app.framework.runner import PreFilterRejected, ProfileHandle
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.features import Rule
from app.model.pod import Pod, PodTemplate
from app.model.pod_groups import AnyPodGroup, GroupKey, PodGroup
from app.model.status import (
    SUCCESS,
    Code,
    SchedulingError,
    Status,
    Unfinished,
    unresolvable,
    unschedulable,
)
from app.plugins.args import DefaultPreemptionArgs
from app.plugins.default_preemption.budgets import DisruptionBudgets
from app.plugins.default_preemption.candidates import (
    DryRunResults,
    FindingsByFamily,
    search,
    wanted,
)
from app.plugins.default_preemption.dry_run import DryRun, PodFilters
from app.plugins.default_preemption.group_plan import (
    GroupDemand,
    GroupPlan,
    GroupPlanner,
    NodesChanged,
    NoPotentialVictims,
)
from app.plugins.default_preemption.importance import (
    WholeLosses,
    being_preempted,
    by_importance,
    loss,
)
from app.state.columns.arrays import Int64, Rows
from app.state.nominations import Nominations, PodsByRow
from app.state.queue.hints import EventRegistration
from app.state.table import NodeTable
from app.state.view import View
from app.wire.extender_v1 import Victims

HELD: Final = "waiting for the preemption for this pod to be finished"
GROUP_HELD: Final = "waiting for the preemption for this pod group to be finished"
WITH_ITS_GROUP: Final = "not eligible due to workload aware preemption enabled"
NO_GROUP_VICTIMS: Final = "No preemption victims found for incoming preemptor"
TOO_FEW_FIT: Final = "pod group is unschedulable"
#: Stands for the node in messages about the victims of a group.
CLUSTER: Final = "cluster"
#: Seconds of planning after which other tasks run.
_SLICE: Final = 0.005
#: How often a plan is made again because its nodes have changed while it was made.
_MAX_PLANS: Final = 3
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
#: From Kubernetes 1.37 on.
FOUND: Final = "found a potential placement for pod on node {}, preempting {} victims"
NO_CANDIDATE: Final = "no candidate node for preemption"
#: Seconds in which filters may pause while candidates are searched.
MAY_PAUSE_SECONDS: Final = 2.0
#: The most pauses in one search, however little time they take.
MAX_PAUSES: Final = 1000
NO_GROUP: Final = "pod group for pod not found"
PLACED_TOGETHER: Final = "not eligible due to placement-based pod group scheduling limitation"
_PREFIX: Final = "preemption: "
_HELD: Final = unresolvable(HELD)
_GROUP_HELD: Final = unresolvable(GROUP_HELD)
_PODS: Final = ClusterEvent(
    Resource.Pod, Action.Delete | Action.UpdatePodLabel | Action.UpdatePodScaleDown
)
_NODES: Final = ClusterEvent(
    Resource.Node,
    Action.Add | Action.UpdateNodeAllocatable | Action.UpdateNodeLabel | Action.UpdateNodeTaint,
)


#: The findings, the candidate rows, and the rows that were tried, in random order.
_Found = tuple[DryRunResults, Rows, Rows]


class DefaultPreemption:
    """Chooses where evicting pods of lower priority costs least, evicts them, and nominates the node."""

    NAME: ClassVar[str] = "DefaultPreemption"
    #: Rows per dry run, after which other tasks run; 0 for no limit and no pause. The table must not change in a pause.
    ROWS_AT_ONCE: ClassVar[int] = 0

    def __init__(self, args: DefaultPreemptionArgs | None, handle: ProfileHandle) -> None:
        self._args: Final = args or DefaultPreemptionArgs()
        self._handle: Final = handle
        self._table: Final = handle.table
        self._empty_victims: Final = Rule.EmptyVictims in handle.features.rules
        self._nominations: Final = Nominations(handle.nominator, handle.table)
        rules = handle.features.rules
        self._budgets: Final = DisruptionBudgets(handle.cluster.disruption_budgets, rules)
        self._tells: Final = Rule.PreemptionMessage in rules
        self._findings: Final = FindingsByFamily(handle.table)
        self._running: Final = HeldPreemptors(handle.table)
        self._groups: Final = handle.cluster.pod_groups
        self._planner: Final = GroupPlanner(handle.table, self._budgets, self._groups)
        #: By uid: the groups that have preempted, those at least for which pods are held.
        self._preempting: Final[dict[str, GroupKey]] = {}

    # ------------------------------------------------------------ queue

    def pre_enqueue(self, pod: Pod) -> Status:
        """Rejects a preemptor until its last victim is gone or terminating."""
        if self._preempting:
            key = self._groups.key_of(pod)
            group = None if key is None else self._groups.get(key)
            if group is not None and self._running.holds(group.uid):
                return _GROUP_HELD
        return _HELD if self._running.holds(pod.uid) else SUCCESS

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Events that may free resources.

        kube-scheduler registers deleted pods only, so a preemptor that was held is not woken by a new node. Here
        preemptors are held longer, until the watch shows that their victims are gone or terminating, so more events
        are registered. A preemptor is woken when its last victim is gone, whatever else it waits for: events while it
        was held have not woken it.
        """

        def was_held(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
            return pod.uid in self._preemptors_of(pod.template, old, new)

        return [
            EventRegistration(_PODS, was_held, narrow=self._preemptors_of),
            EventRegistration(_NODES, lambda *_: QueueingHint.SKIP, template_only=True),
        ]

    def _preemptors_of(
        self, _template: PodTemplate, old: Pod | None, new: Pod | None
    ) -> Collection[str]:
        if old is None or new is not None:
            return ()
        uids: list[str] = []
        for uid in self._running.waiting_for(old.uid):
            group = self._preempting.get(uid)
            uids += (uid,) if group is None else self._groups.members(group).unscheduled
        return uids

    # ------------------------------------------------------------ PostFilter

    async def post_filter(
        self, state: CycleState, pod: Pod, diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult:
        """Success with the nominated node, or why preemption does not help."""
        forbidden = self._group_forbids(pod)
        if forbidden:
            return PostFilterResult(unschedulable(_PREFIX + forbidden))
        if self._preempts_with_group(state, pod, diagnosis):
            return PostFilterResult(unschedulable(_PREFIX + WITH_ITS_GROUP))
        try:
            result = await self._preempt(state, pod, diagnosis, effects)
        except SchedulingError as error:
            result = PostFilterResult(Status(Code.Error, (str(error),)))
        status = result.status
        if not status.reasons:
            return result
        if status.code.rejected and self._preempts_with(pod) is not None:
            return PostFilterResult(unschedulable(_PREFIX + WITH_ITS_GROUP))
        return PostFilterResult(
            Status(status.code, (_PREFIX + status.message,)), result.nominated_node
        )

    def _group_forbids(self, pod: Pod) -> str:
        """Why a pod cannot preempt because of its group; empty if it can."""
        groups = self._groups
        key = groups.key_of(pod) if groups.topology else None
        if key is None or key.kind is not PodGroup:
            return ""
        group: PodGroup | None = groups.listers[PodGroup].get(key.name, key.namespace)
        if group is None:
            return NO_GROUP
        return "" if group.spec.scheduling_constraints is None else PLACED_TOGETHER

    async def _preempt(
        self, state: CycleState, pod: Pod, diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult:
        reason = why_not(pod, self._on_nominated_node(pod, diagnosis))
        if reason:
            return PostFilterResult(unschedulable(reason))
        rows = diagnosis.rows_with(Code.Unschedulable, self._table.live_rows())
        if not len(rows):
            return _nowhere(diagnosis.node_count, ())
        try:
            pod, (findings, candidates, tried) = await self._find(state, pod, rows, effects)
        except PreFilterRejected:
            return PostFilterResult(unschedulable(NO_CANDIDATE))
        if not len(candidates):
            statuses = [findings.by_row[row] for row in tried.tolist()]
            return _nowhere(diagnosis.node_count, [s for s in statuses if isinstance(s, Status)])
        if effects.asks_about_victims(pod):
            chosen = await self._agree(pod, self._by_name(findings, candidates), effects)
        else:
            chosen = self._least(findings, candidates)
        if chosen is None:
            return PostFilterResult(unschedulable(NO_CANDIDATE))
        node, victims = chosen
        tied = len(tried) < len(rows) or self._is_tied(findings, candidates)
        violations = victims.num_pdb_violations
        effects.evict(Eviction(pod, node, victims.pods, self._running, violations, tied=tied))
        if not self._tells:
            return PostFilterResult(SUCCESS, node)
        return PostFilterResult(
            Status(Code.Success, (FOUND.format(node, len(victims.pods)),)), node
        )

    # ------------------------------------------------------------ groups

    def _preempts_with_group(self, state: CycleState, pod: Pod, diagnosis: Diagnosis) -> bool:
        """Whether ``pod_group_post_filter`` plans for this pod. A pod of a group with other filters preempts by
        itself."""
        key = self._preempts_with(pod)
        if key is None:
            return False
        mates = self._groups.members(key).unscheduled.values()
        never = any(mate.spec.preemption_policy == "Never" for mate in mates)
        return never or bool(diagnosis.pre_filter_message) or self._plannable(state)

    def _preempts_with(self, pod: Pod) -> GroupKey | None:
        """The group for which a pod preempts; None: it preempts for itself."""
        return self._groups.key_of(pod) if self._groups.preempted_whole else None

    def _plannable(self, state: CycleState) -> bool:
        filters = self._handle.framework.active_filters(state)
        return all(isinstance(plugin, NodeLocal) for _, plugin in filters)

    async def pod_group_post_filter(
        self,
        key: GroupKey,
        members: Sequence[GroupMember],
        need: int,
        effects: Effects,
        rows: Rows | None = None,
    ) -> PodGroupPostFilterResult:
        """Evicts pods so that ``need`` more of the members fit (see AnyPlugin)."""
        group = self._groups.get(key)
        if group is None:
            text = (
                f'failed to get pod group object: podgroup.scheduling.k8s.io "{key.name}" not found'
            )
            return PodGroupPostFilterResult(Status(Code.Error, (text,)))
        if any(member.pod.spec.preemption_policy == "Never" for member in members):
            return PodGroupPostFilterResult(unschedulable(NEVER))
        try:
            plan = await self._plan(key, group, members, need, effects, rows)
        except NoPotentialVictims:
            return PodGroupPostFilterResult(unresolvable(NO_GROUP_VICTIMS))
        except SchedulingError as error:
            return PodGroupPostFilterResult(Status(Code.Error, (str(error),)))
        if plan is None:
            return PodGroupPostFilterResult(unschedulable(TOO_FEW_FIT))
        if plan.victims:
            self._remember(group.uid, key)
            pods = tuple(effects.latest(member.pod) for member in members)
            effects.evict(
                Eviction(
                    pods[0],
                    CLUSTER,
                    plan.victims,
                    self._running,
                    plan.violations,
                    group,
                    pods[1:],
                )
            )
        nodes = {uid: self._table.names[row] for uid, row in plan.rows.items()}
        return PodGroupPostFilterResult(SUCCESS, nodes)

    def _remember(self, uid: str, key: GroupKey) -> None:
        self._preempting[uid] = key
        if len(self._preempting) > _MANY:
            for each in [each for each in self._preempting if not self._running.holds(each)]:
                if each != uid:
                    del self._preempting[each]

    async def _plan(
        self,
        key: GroupKey,
        group: AnyPodGroup,
        members: Sequence[GroupMember],
        need: int,
        effects: Effects,
        rows: Rows | None,
    ) -> GroupPlan | None:
        """A plan for the present table; None if there is none. Other tasks run in between."""
        now = self._handle.clock.monotonic
        for _ in range(_MAX_PLANS):
            request = self._request(key, group, members, need, rows)
            steps = self._planner.plan(request, self._nominated(request.pods))
            until = now() + _SLICE
            try:
                while True:
                    next(steps)
                    if now() > until:
                        await effects.sleep(0.0)
                        until = now() + _SLICE
            except StopIteration as end:
                plan: GroupPlan | None = end.value
                return plan
            except NodesChanged:
                continue
        return None

    def _request(
        self,
        key: GroupKey,
        group: AnyPodGroup,
        members: Sequence[GroupMember],
        need: int,
        rows: Rows | None,
    ) -> GroupDemand:
        framework = self._handle.framework
        live = self._table.live_rows()
        domain = live if rows is None else np.intersect1d(rows, live)
        filters: dict[PodTemplate, PodFilters] = {}
        scores: dict[PodTemplate, Int64] = {}
        refused: dict[PodTemplate, set[int]] = {}
        pods = [member.pod for member in members if not member.fits]
        for pod, nodes in ((member.pod, member.refused) for member in members if not member.fits):
            known = (self._table.row_of.get(node) for node in nodes)
            refused.setdefault(pod.template, set()).update(row for row in known if row is not None)
            if pod.template in filters:
                continue
            try:
                state = framework.fresh_state(pod)
            except PreFilterRejected:
                continue
            if self._plannable(state):
                active = framework.active_filters(state)
                filters[pod.template] = PodFilters(framework, active, state, pod)
                view = View(self._table, domain)
                scores[pod.template] = framework.scoring.score(
                    state, pod, framework.memo(pod), view
                )
        priority = group.priority
        if priority is None:
            priority = min(member.pod.priority for member in members)
        return GroupDemand(key, priority, pods, need, filters, scores, refused, domain)

    def _nominated(self, pods: Sequence[Pod]) -> PodsByRow:
        """Pods for which room is kept: nominated ones that are as important as any of these, without these."""
        out = PodsByRow(self._table.size)
        if not pods:
            return out
        known = self._nominations.concerning(min(pods, key=lambda pod: pod.priority))
        uids = {pod.uid for pod in pods}
        for row, others in known.items():
            out.put(row, [pod for pod in others if pod.uid not in uids], 1)
        return out

    def _whole(self, victims: Victims) -> Victims:
        """The victims, with all other pods of groups that are disrupted as a whole."""
        if not self._groups.any_units:
            return victims
        keys = {key for pod in victims.pods if (key := self._groups.unit_of(pod)) is not None}
        if not keys:
            return victims
        pods = {pod.uid: pod for pod in victims.pods}
        for key in keys:
            pods |= self._groups.members(key).scheduled
        all_pods = by_importance(pods.values())
        return Victims(tuple(all_pods), sum(self._budgets.violating(all_pods)))

    def _on_nominated_node(self, pod: Pod, diagnosis: Diagnosis) -> Iterable[Pod]:
        """The pods on the pod's nominated node; empty if preemption cannot help that node."""
        name = self._handle.nominator.node_of(pod.uid) or pod.nominated_node_name
        row = self._table.row_of.get(name)
        if row is None or diagnosis.status(row).code is Code.UnschedulableAndUnresolvable:
            return ()
        return self._table.pods[row].values()

    # ------------------------------------------------------------ candidates

    async def _find(
        self, state: CycleState, pod: Pod, rows: Rows, effects: Effects
    ) -> tuple[Pod, _Found]:
        """The pod in the version that was evaluated, and what was found.

        All rows are shuffled instead of starting at a random one: neighbours in the table are often alike, and a
        sample of them would be a poor choice. When a filter pauses, other tasks run. The search is then repeated for
        the current version of the pod, on the nodes of ``rows`` that are left. Raises PreFilterRejected if PreFilter
        rejects the pod after a pause.
        """
        now, pauses = self._handle.clock.monotonic, 0
        order, until = self._handle.rng.permutation(rows), now() + MAY_PAUSE_SECONDS
        while True:
            may_pause = pauses < MAX_PAUSES and now() < until
            state.write(MAY_PAUSE, may_pause)
            try:
                search = self._search(state, pod, order)
                while True:
                    next(search)
                    if self.ROWS_AT_ONCE:
                        await effects.sleep(0.0)
            except StopIteration as end:
                found: _Found = end.value
                return pod, found
            except Unfinished:
                if not may_pause:
                    raise
            finally:
                state.write(MAY_PAUSE, False)
            pauses += 1
            names = self._table.names_of(order)
            await effects.sleep(0.0)
            order = self._rows_of(names)
            pod = effects.latest(pod)
            state = self._handle.framework.fresh_state(pod)

    def _rows_of(self, names: Iterable[str]) -> Rows:
        """The rows of the nodes that still exist."""
        rows = [row for name in names if (row := self._table.row_of.get(name)) is not None]
        present = np.array(rows, np.intp)
        return present[self._table.exists[present]]

    def _search(self, state: CycleState, pod: Pod, order: Rows) -> Generator[None, None, _Found]:
        nominated = self._nominations.concerning(pod)
        dry_run = self._dry_run(state, pod, nominated)
        if all(isinstance(plugin, NodeLocal) for _, plugin in dry_run.filters):
            epoch = (
                self._handle.framework.node_local_epoch(),
                self._budgets.epoch,
                self._groups.units_epoch,
            )
            findings = self._findings.of(pod.template, epoch)
            findings.forget_changes(nominated)
        else:
            findings = self._findings.nothing()
        enough = wanted(len(order), self._args)
        candidates, tried = yield from search(
            order, enough, findings, dry_run.run, self._table, self.ROWS_AT_ONCE
        )
        return findings, candidates, tried

    def _dry_run(self, state: CycleState, pod: Pod, nominated: PodsByRow) -> DryRun:
        framework = self._handle.framework
        filters = PodFilters(framework, framework.active_filters(state), state, pod)
        preemptor = self._preempts_with(pod)
        return DryRun(
            filters,
            self._table,
            self._budgets,
            nominated,
            self._groups,
            preemptor,
            empty=self._empty_victims,
        )

    def _least(self, findings: DryRunResults, candidates: Rows) -> tuple[str, Victims]:
        """The node with the least loss, a random one of equals, and its victims."""
        if self._groups.any_units:
            losses = WholeLosses(self._groups, self._budgets)
            row = min(candidates.tolist(), key=lambda row: losses.of(self._victims(findings, row)))
        else:
            row = min(candidates.tolist(), key=findings.losses.__getitem__)
        return self._table.names[row], self._whole(self._victims(findings, row))

    def _is_tied(self, findings: DryRunResults, candidates: Rows) -> bool:
        """Whether several of the candidates have the least loss."""
        if len(candidates) < 2 or self._groups.any_units:
            return len(candidates) > 1
        losses = [findings.losses[row] for row in candidates.tolist()]
        return losses.count(min(losses)) > 1

    def _victims(self, findings: DryRunResults, row: int) -> Victims:
        """The victims found on a row, in their latest versions."""
        found = findings.by_row[row]
        assert isinstance(found, Victims)  # noqa: S101 - the row is a candidate
        pods = self._table.pods[row]
        return Victims(tuple(pods[pod.uid] for pod in found.pods), found.num_pdb_violations)

    def _by_name(self, findings: DryRunResults, candidates: Rows) -> Mapping[str, Victims]:
        names = self._table.names
        return {names[row]: self._victims(findings, row) for row in candidates.tolist()}

    # ------------------------------------------------------------ extenders

    async def _agree(
        self, pod: Pod, candidates: Mapping[str, Victims], effects: Effects
    ) -> tuple[str, Victims] | None:
        """The node with the least loss of those that the extenders accept, and its victims; None if they accept none.

        Other pods may have been scheduled in the meantime: on nodes that changed, the pod must still fit.
        """
        before = self._stamps(pod, candidates)
        agreed = await effects.agree_on_victims(pod, candidates)
        after = self._stamps(pod, candidates)
        names = self._handle.rng.permutation(list(agreed)).tolist()
        losses = WholeLosses(self._groups, self._budgets)
        of = losses.of if self._groups.any_units else loss
        for name in sorted(names, key=lambda name: of(agreed[name])):
            unchanged = before.get(name) == after.get(name)
            if unchanged or self._still_fits(pod, name, agreed[name]):
                return name, self._whole(agreed[name])
        return None

    def _stamps(self, pod: Pod, names: Iterable[str]) -> dict[str, tuple[int, Sequence[Pod]]]:
        """By node: a value that changes with the node, its pods or its nominated pods."""
        nominated, table = self._nominations.concerning(pod), self._table
        rows = {name: table.row_of[name] for name in names if name in table.row_of}
        return {
            name: (int(table.generation[row]), nominated.get(row, ())) for name, row in rows.items()
        }

    def _still_fits(self, pod: Pod, name: str, victims: Victims) -> bool:
        row = self._table.row_of.get(name)
        if row is None or not self._table.exists[row]:
            return False
        try:
            state = self._handle.framework.fresh_state(pod)
        except PreFilterRejected:
            return False
        dry_run = self._dry_run(state, pod, self._nominations.concerning(pod))
        return dry_run.fits_without(row, victims.pods)


def _nowhere(node_count: int, statuses: Iterable[Status]) -> PostFilterResult:
    """The result without candidates: an error if there were any, else a rejection with the reasons of all nodes."""
    by_identity = {id(status): status for status in statuses}
    counts = Counter(map(id, statuses))
    reasons: Counter[str] = Counter()
    for key, status in by_identity.items():
        for reason in status.reasons:
            reasons[reason] += counts[key]
    errors = sorted({s.message for s in by_identity.values() if s.code is Code.Error})
    if errors:
        text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        return PostFilterResult(Status(Code.Error, (text,)))
    reasons[NOT_HELPFUL] += node_count - counts.total()
    return PostFilterResult(unschedulable(unavailable(node_count, reasons)), "")


NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."


def why_not(pod: Pod, on_nominated_node: Iterable[Pod]) -> str:
    """Why a pod may not preempt; empty if it may.

    ``on_nominated_node``: the pods on its nominated node; empty if preemption cannot help that node.
    """
    if pod.spec.preemption_policy == "Never":
        return NEVER
    if any(other.priority < pod.priority and being_preempted(other) for other in on_nominated_node):
        return TERMINATING
    return ""


#: The number of preemptors beyond which those whose victims are gone are removed.
_MANY: Final = 256


class HeldPreemptors:
    """Preemptors that are gated until their last victim is gone or terminating
    (docs/spec/preemption.md#held-preemptors).

    The watch shows an eviction only some time after the API server has answered. A preemptor that is tried in between
    would fail again, so it is gated until the watch shows that its last victim is gone or terminating. kube-scheduler
    only waits for the answer to the last request. The Evictor ends a hold that lasts too long (``lapse``).
    """

    def __init__(self, table: NodeTable) -> None:
        self._table: Final = table
        self._last_victim: Final[dict[str, Pod | None]] = {}
        #: The last victims of successful evictions, by uid of the preemptor.
        self._leaving: Final[dict[str, Pod]] = {}

    def __len__(self) -> int:
        return len(self._last_victim)

    def begin(self, uid: str) -> None:
        self._leaving.pop(uid, None)
        self._last_victim[uid] = None
        if len(self._leaving) > _MANY:
            for each in [each for each, victim in self._leaving.items() if not self._stays(victim)]:
                del self._leaving[each]

    def last(self, uid: str, victim: Pod) -> None:
        self._last_victim[uid] = victim

    def end(self, uid: str, *, evicted: bool) -> bool:
        """The eviction has ended, successfully or not. Returns whether the preemptor can be tried again at once.

        If the last victim is already gone, its deletion may have been handled while the preemptor was gated.
        """
        victim = self._last_victim.pop(uid, None)
        if not evicted or victim is None:
            return True
        if self._present(victim) is None:
            return True
        self._leaving[uid] = victim
        return False

    def holds(self, uid: str) -> bool:
        """Whether the pod is gated: its last victim is neither gone nor terminating."""
        if uid in self._last_victim:
            victim = self._last_victim[uid]
            return victim is None or self._stays(victim)
        victim = self._leaving.get(uid)
        return victim is not None and self._stays(victim)

    def waits_for(self, uid: str, victim: Pod) -> bool:
        return self._leaving.get(uid) is victim and self._stays(victim)

    def lapse(self, uid: str) -> None:
        self._leaving.pop(uid, None)

    def waiting_for(self, victim_uid: str) -> Collection[str]:
        """The uids of the preemptors whose evictions have ended, with this pod as the last victim."""
        return [uid for uid, victim in self._leaving.items() if victim.uid == victim_uid]

    def _stays(self, victim: Pod) -> bool:
        """Whether the watch does not show yet that this pod is gone or terminating."""
        current = self._present(victim)
        return current is not None and (not current.terminating or current.leaves_at_once)

    def _present(self, victim: Pod) -> Pod | None:
        row = self._table.row_of.get(victim.node_name)
        return None if row is None else self._table.pods[row].get(victim.uid)
