"""The plugin: preemption at the extension points."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np

from app.framework.args import DefaultPreemptionArgs
from app.framework.diagnosis import Diagnosis
from app.framework.interface import (
    CycleState,
    Effects,
    EventRegistration,
    Eviction,
    Handle,
    PostFilterResult,
    QueueingHint,
)
from app.framework.plugins.default_preemption.budgets import Budgets
from app.framework.plugins.default_preemption.dry_run import DryRun, Finding
from app.framework.plugins.default_preemption.eligibility import why_not
from app.framework.plugins.default_preemption.importance import choose
from app.framework.plugins.default_preemption.progress import Preemptions
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.pod import Pod
from app.model.status import SUCCESS, Code, SchedulingError, Status, unresolvable, unschedulable
from app.state.view import Rows
from app.wire.extender_v1 import Victims

HELD: Final = "waiting for the preemption for this pod to be finished"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_CANDIDATE: Final = "no candidate node for preemption"
_PREFIX: Final = "preemption: "


class DefaultPreemption:
    """Finds the node on which evicting pods of lower priority costs least, evicts them, and nominates it."""

    NAME: ClassVar[str] = "DefaultPreemption"

    def __init__(self, args: DefaultPreemptionArgs | None, handle: Handle) -> None:
        self._args: Final = args or DefaultPreemptionArgs()
        self._handle: Final = handle
        self._table: Final = handle.table
        self._budgets: Final = Budgets(handle.cluster.disruption_budgets)
        self._running: Final = Preemptions(handle.table)

    # ------------------------------------------------------------ queue

    def pre_enqueue(self, pod: Pod) -> Status:
        """Holds a preemptor back until its last victim is going."""
        return unresolvable(HELD) if self._running.holds(pod.uid) else SUCCESS

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Deleted pods: not to wake anybody, but so that held preemptors are looked at again."""
        deleted = ClusterEvent(Resource.Pod, Action.Delete)
        return (EventRegistration(deleted, _skip, template_only=True),)

    # ------------------------------------------------------------ PostFilter

    async def post_filter(
        self, state: CycleState, pod: Pod, diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult:
        """Success with the node where room is being made, or why there is none."""
        try:
            result = await self._preempt(state, pod, diagnosis, effects)
        except SchedulingError as error:
            result = PostFilterResult(Status(Code.Error, (str(error),)))
        status = result.status
        if not status.reasons:
            return result
        prefixed = Status(status.code, (_PREFIX + status.message,), status.plugin)
        return PostFilterResult(prefixed, result.nominated_node)

    async def _preempt(
        self, state: CycleState, pod: Pod, diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult:
        now = effects.now()
        reason = why_not(pod, self._on_nominated_node(pod, diagnosis))
        if reason:
            return PostFilterResult(unschedulable(reason))
        rows = diagnosis.rows_with(Code.Unschedulable, self._table.live_rows())
        findings = self._dry_run(state, pod, rows, now) if len(rows) else {}
        candidates = {n: f for n, f in findings.items() if isinstance(f, Victims)}
        if not candidates:
            return self._nowhere(findings, diagnosis)
        agreed = await effects.agree_on_victims(pod, candidates)
        if not agreed:
            return PostFilterResult(unschedulable(NO_CANDIDATE))
        node = choose(agreed, now, self._handle.rng)
        effects.evict(Eviction(pod, node, agreed[node].pods, self._running))
        return PostFilterResult(SUCCESS, node)

    def _on_nominated_node(self, pod: Pod, diagnosis: Diagnosis) -> Iterable[Pod]:
        """The pods on the node nominated for this pod; none where no eviction could make that node fit."""
        row = self._table.row_of.get(pod.nominated_node_name)
        if row is None or diagnosis.status(row).code is Code.UnschedulableAndUnresolvable:
            return ()
        return self._table.pods[row].values()

    def _dry_run(
        self, state: CycleState, pod: Pod, rows: Rows, now: float
    ) -> Mapping[str, Finding]:
        framework = self._handle.framework
        assert framework is not None  # noqa: S101 - set when the profile is complete
        dry_run = DryRun(
            framework,
            self._table,
            self._budgets,
            state,
            pod,
            nominated=self._nominated(pod, rows),
            now=now,
        )
        order = np.roll(rows, -int(self._handle.rng.integers(len(rows))))
        wanted = self._wanted(len(rows))
        findings: dict[str, Finding] = {}
        names = self._table.names
        for start in range(0, len(order), wanted):
            part = order[start : start + wanted]
            for row, finding in zip(part.tolist(), dry_run.run(part), strict=True):
                findings[names[row]] = finding
                if _enough(findings.values(), wanted):
                    return _capped(findings, wanted)
        return _capped(findings, wanted)

    def _wanted(self, potential: int) -> int:
        """How many candidates will do."""
        share = potential * self._args.min_candidate_nodes_percentage // 100
        return min(potential, max(share, self._args.min_candidate_nodes_absolute))

    def _nominated(self, pod: Pod, rows: Rows) -> Mapping[int, Sequence[Pod]]:
        found: dict[int, Sequence[Pod]] = {}
        for row in rows.tolist():
            others = [
                p
                for p in self._handle.nominator.pods_on(self._table.names[row])
                if p.uid != pod.uid and p.priority >= pod.priority
            ]
            if others:
                found[row] = others
        return found

    def _nowhere(self, findings: Mapping[str, Finding], diagnosis: Diagnosis) -> PostFilterResult:
        statuses = {n: s for n, s in findings.items() if isinstance(s, Status)}
        errors = sorted({s.message for s in statuses.values() if s.code is Code.Error})
        if errors:
            text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            return PostFilterResult(Status(Code.Error, (text,)))
        why = Diagnosis(node_count=diagnosis.node_count, absent=unresolvable(NOT_HELPFUL))
        for name, status in statuses.items():
            why.by_row[self._table.row_of[name]] = status
        return PostFilterResult(unschedulable(why.message()), "")


def _skip(_pod: Pod, _old: object, _new: object) -> bool:
    return QueueingHint.SKIP


def _enough(findings: Iterable[Finding], wanted: int) -> bool:
    found = [f for f in findings if isinstance(f, Victims)]
    return len(found) >= wanted and any(not f.num_pdb_violations for f in found)


def _capped(findings: Mapping[str, Finding], wanted: int) -> dict[str, Finding]:
    return dict(findings)
