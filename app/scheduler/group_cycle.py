"""The cycle of a pod group: enough of its pods are placed together, or none is (docs/spec/pod-groups.md).

A pod that is popped brings the other waiting pods of its group. They are decided one after another, and each that fits
is assumed: it is counted on its node at once, and nothing is written (app.scheduler.group_algorithm). If enough pods
have a node in the end, their binding cycles start. If not, all of them are taken back, last first. Victims of
preemptions are evicted only if with their room the group has enough pods. With the gate WorkloadAwarePreemption these
are chosen for the group as a whole, after its pods were decided.

Without extenders other tasks run in between, but no other attempt does. With extenders other pods are decided
meanwhile, with the assumed pods counted, and the extenders are asked ahead of a pod's turn (app.scheduler.ask_ahead).
Only one group waits for extenders at a time, so two groups cannot each hold what the other needs.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from app.cycle.pod_cycle import AssumedPod, permit
from app.framework.handle import Effects
from app.model.pod_groups import GroupKey
from app.model.status import Code
from app.observe.events import GroupAttempted
from app.scheduler.ask_ahead import AttemptFor
from app.scheduler.binding import Binder
from app.scheduler.extender_cycle import ExtenderCycle
from app.scheduler.failures import FailureHandler
from app.scheduler.group_algorithm import NO_PLACEMENTS, GroupAlgorithm
from app.scheduler.group_state import UNSCHEDULABLE, GroupFault, GroupState, Member
from app.scheduler.group_status import GroupCycleResult, GroupStatusWriter
from app.scheduler.parts import Parts
from app.scheduler.serial_extenders import HeldTurn
from app.scheduler.slots import Slots, Work
from app.state.queue.queued_pod import QueuedPod

log = logging.getLogger(__name__)

#: The message of a pod that has a node, in a group that has too few of those; the second part is that of Permit.
TOO_FEW: Final = (
    f"{UNSCHEDULABLE}, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
PREEMPTING: Final = f"{UNSCHEDULABLE}, pod group is waiting for preemption to complete"
_OTHER_FAILED: Final = "failed to schedule other pod from a pod group: {}"


class GroupCycle:
    """Schedules groups of pods."""

    def __init__(
        self,
        parts: Parts,
        *,
        effects: Effects,
        extenders: ExtenderCycle | None,
        binder: Binder,
        failures: FailureHandler,
        status: GroupStatusWriter,
    ) -> None:
        #: The group with which a popped pod is scheduled; None if it is scheduled alone.
        self.group_of: Final = parts.state.cluster.pod_groups.key_of
        self._parts: Final = parts
        self._effects: Final = effects
        self._extenders: Final = extenders
        self._binder: Final = binder
        self._failures: Final = failures
        self._status: Final = status
        self._one_at_a_time: Final = asyncio.Lock()
        #: The task of the group that waits for extenders.
        self._asking: asyncio.Task[Any] | None = None
        self._stopped = False

    def pop(self, first: QueuedPod, key: GroupKey) -> list[QueuedPod]:
        """A popped pod, and the waiting pods of its group, which are popped as well; the most important first."""
        pods = [first, *self._parts.state.pop_group(key, self._parts.clock.steady())]
        pods.sort(
            key=lambda one: (-one.pod.template.priority, one.initial_attempt_timestamp or 0.0)
        )
        return pods

    def asks_extenders(self, pods: Sequence[QueuedPod]) -> bool:
        """Whether any extender filters or prioritizes for any of the pods."""
        extenders = self._extenders
        return extenders is not None and any(extenders.concerns(queued.pod) for queued in pods)

    def schedule(
        self, key: GroupKey, pods: Sequence[QueuedPod], attempt_for: AttemptFor, slots: Slots
    ) -> Work:
        """Schedules the popped pods of a group: their binding cycles start, or they are requeued.

        Calls to extenders are made ahead in free ``slots``.
        """
        started = self._parts.clock.monotonic()
        cycle = self._run(key, pods, attempt_for, slots, started)
        extenders = self._extenders
        if extenders is None or not self.asks_extenders(pods):
            return cycle
        return self._run_alone(cycle, extenders, extenders.hold(pods))

    async def _run_alone(self, cycle: Work, extenders: ExtenderCycle, held: HeldTurn) -> None:
        try:
            async with self._one_at_a_time:
                if self._stopped:
                    return
                self._asking = asyncio.current_task()
                try:
                    await cycle
                finally:
                    self._asking = None
        finally:
            cycle.close()
            extenders.give_up(held)

    async def _run(
        self,
        key: GroupKey,
        pods: Sequence[QueuedPod],
        attempt_for: AttemptFor,
        slots: Slots,
        started: float,
    ) -> None:
        parts, failures = self._parts, self._failures
        group = GroupState(parts, failures, key, pods, started)
        algorithm = GroupAlgorithm(
            parts,
            group,
            effects=self._effects,
            extenders=self._extenders,
            failures=failures,
            attempt_for=attempt_for,
            slots=slots,
        )
        cycle = _Cycle(parts, group, algorithm, self._effects, self._binder, failures)
        result, text = await cycle.run()
        if len(group):
            parts.sink(cycle.attempted(result, text))
            one_profile = len({member.profile for member in group}) == 1
            if one_profile and cycle.group is not None:  # kube-scheduler tells pods only
                self._status.put(key, result, text, uid=cycle.group.uid)

    async def stop(self) -> None:
        """Ends the cycle that waits for extenders, which takes its pods back; no further one begins."""
        self._stopped = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])


class _Cycle:
    """One cycle of one group."""

    def __init__(
        self,
        parts: Parts,
        group: GroupState,
        algorithm: GroupAlgorithm,
        effects: Effects,
        binder: Binder,
        failures: FailureHandler,
    ) -> None:
        self._state: Final = parts.state
        self._clock: Final = parts.clock
        self._group: Final = group
        self._algorithm: Final = algorithm
        self._effects: Final = effects
        self._binder: Final = binder
        self._failures: Final = failures
        #: When it was known where the pods fit.
        self._found_at = group.started
        #: The group by whose rules the outcome was judged; None if it was gone.
        self.group = group.group

    async def run(self) -> tuple[GroupCycleResult, str]:
        """Places the pods, then starts their binding cycles or requeues them. Returns the outcome and why it is not
        better."""
        try:
            result, text = await self._place_and_settle()
        except BaseException:
            for member in reversed(tuple(self._group)):
                self._group.take_back(member)
            raise
        finally:
            self._group.give_up_moved()
        await self._group.wake_others()
        return result, text

    async def _place_and_settle(self) -> tuple[GroupCycleResult, str]:
        try:
            await self._algorithm.place()
            self._found_at = self._clock.monotonic()
            if (
                self._algorithm.frees_claims
                and not self._enough_fit()
                and await self._algorithm.free_claims()
            ):
                self._give_up_preemptions()
            elif self._group.preempts_whole and self._lacks_room():
                await self._algorithm.preempt_whole()
            self._check()
            self.group = self._group.group
            return await self._settle()
        except GroupFault as fault:
            return "error", await self._fail(fault)
        except Exception as error:
            key = self._group.key
            log.exception("Error scheduling pod group %s/%s", key.namespace, key.name)
            return "error", await self._fail(GroupFault(f"{type(error).__name__}: {error}"))

    def attempted(self, result: GroupCycleResult, text: str) -> GroupAttempted:
        """The event about this cycle, which has ended; it has pods."""
        members, started = tuple(self._group), self._group.started
        unfit = [member.message for member in members if member.message]
        search = self._group.search if result != "scheduled" else None
        return GroupAttempted(
            self._group.key,
            members[0].profile,
            result,
            text,
            len(members),
            len(members) - len(unfit),
            unfit[0] if unfit else "",
            self._clock.monotonic() - started,
            self._found_at - started,
            () if search is None else search.domains(),
        )

    def _enough_fit(self) -> bool:
        """Whether enough pods have a node without a preemption."""
        members = tuple(self._group)
        preempting = sum(member.preempts for member in members)
        return any(member.fits for member in members) and self._group.enough(-preempting)

    def _give_up_preemptions(self) -> None:
        """Takes back the pods that have a node only after a preemption."""
        self._group.evictions.clear()
        for member in reversed(tuple(self._group)):
            if member.preempts:
                self._group.take_back(member)
                member.preempts, member.nominated = False, ""

    def _lacks_room(self) -> bool:
        """Whether too few pods have a node, and none preempts by itself."""
        members = tuple(self._group)
        if not members or any(member.preempts for member in members):
            return False
        return not (any(member.fits for member in members) and self._group.enough())

    def _check(self) -> None:
        """Leaves out pods that have gone since they were placed. Raises GroupFault if a node has gone."""
        table = self._state.table
        for member in self._group:
            if self._group.still_assumed(member) and member.assumed is not None:
                node = member.assumed.pod.node_name
                row = table.row_of.get(node)
                if row is None or not table.exists[row]:
                    raise GroupFault(f'node "{node}" not found', member)

    async def _settle(self) -> tuple[GroupCycleResult, str]:
        preempting = [member for member in self._group if member.preempts]
        fits = any(member.fits for member in self._group)
        if not fits or not self._group.enough(-len(preempting)):
            return await self._give_up(preempting)
        for member in reversed(preempting):
            self._group.take_back(member)
        if self._group.planned is None:
            self._evict()
        await self._bind_all()
        self._try_others_again()
        return "scheduled", ""

    # ------------------------------------------------------------ scheduled

    async def _bind_all(self) -> None:
        """Starts the binding cycles, and requeues the pods that have no node.

        If the cycle is cancelled meanwhile, the rest follows at once: a part of the group must not run alone.
        """
        left = deque(self._group)
        try:
            while left:
                self._bind_or_requeue(left.popleft())
                await self._group.slice.pause()
        finally:
            while left:
                self._bind_or_requeue(left.popleft())

    def _bind_or_requeue(self, member: Member) -> None:
        if not self._group.still_assumed(member):
            return
        assumed, member.assumed = member.assumed, None
        if assumed is None:
            self._requeue(member, "")
        else:
            member.settled = True
            self._bind(assumed)

    def _bind(self, assumed: AssumedPod) -> None:
        """Runs Permit and starts the binding cycle; a rejection concerns this pod alone."""
        status, waits, fault = permit(assumed)
        if fault is not None:
            log.error("Error in Permit for pod %s", assumed.pod.key, exc_info=fault)
        if status.ok or status.code is Code.Wait:
            self._binder.start(assumed, waits)
        else:
            self._failures.undo(assumed, status)

    def _try_others_again(self) -> None:
        """Pods above the minimum that do not fit get a cycle of their own, in which a preemption is planned for
        them."""
        if self._group.preempts_whole:
            pods = [
                member.pod
                for member in self._group
                if member.diagnosis is not None and not member.preempts
            ]
            self._state.activate(pods, self._clock.steady())

    # ------------------------------------------------------------ not scheduled

    async def _give_up(self, preempting: Sequence[Member]) -> tuple[GroupCycleResult, str]:
        """Takes all pods back and requeues them, to wait for victims or for events."""
        group = self._group
        why, planned = group.reason(), self._still_planned()
        waits = planned or (bool(preempting) and group.enough())
        keeps_room = waits or group.enough(self._count_waiting_for_victims())
        nodes = dict(group.planned or {})
        for member in group:
            if member.assumed is not None and (waits or member.fits):
                nodes[member.pod.uid] = member.assumed.pod.node_name
        text = TOO_FEW if not waits else group.why if planned else PREEMPTING
        if not waits and group.is_newer:
            text = why
        if waits:
            self._evict()
        elif preempting and self._group.preempts_whole:
            group.about_preemption = why
        reason = f"{why}, {group.about_preemption}" if group.about_preemption else why
        if waits and group.is_newer and group.about_preemption:
            text = reason
        for member in reversed(tuple(group)):
            if member.assumed is not None:
                member.nominated = ""
            if member.message == NO_PLACEMENTS:
                member.message = reason
            group.take_back(member)
            if keeps_room:
                member.nominated = nodes.get(member.pod.uid, member.nominated)
            self._requeue(member, text)
            await group.slice.pause()
        if waits:
            return "waiting_on_preemption", text
        return "unschedulable", reason

    def _still_planned(self) -> bool:
        """Whether a preemption for the whole group is planned, and its pods are still there."""
        planned = self._group.planned
        if planned is None:
            return False
        there = [m for m in self._group if m.pod.uid in planned and self._group.waits(m.pod)]
        return bool(there) and self._group.enough(len(there))

    def _count_waiting_for_victims(self) -> int:
        """How many pods have no node because victims of an earlier cycle are still ending on their nominated nodes.

        Until these have ended, the pods that fit keep their room by nominations. Otherwise a pod of lower priority
        could take it, and would have to be evicted for the group again.
        """
        return sum(
            member.diagnosis is not None
            and member.nominated is None
            and bool(self._state.nominator.node_of(member.pod.uid))
            for member in self._group
        )

    async def _fail(self, fault: GroupFault) -> str:
        """Takes all pods back and requeues them after an error; returns the group's message."""
        text = str(fault) if fault.member is None else _OTHER_FAILED.format(fault)
        for member in reversed(tuple(self._group)):
            self._group.take_back(member)
            if not member.settled:
                member.settled = True
                own = str(fault) if member is fault.member else text
                self._failures.error(
                    member.queued, member.profile, own, started=self._group.started
                )
            await self._group.slice.pause()
        return text

    def _evict(self) -> None:
        """Starts the evictions, each victim once: the pods of the group that share its room have all chosen it."""
        evicted: set[str] = set()
        for eviction in self._group.evictions:
            victims = tuple(pod for pod in eviction.victims if pod.uid not in evicted)
            if victims:
                evicted.update(pod.uid for pod in victims)
                self._effects.evict(msgspec.structs.replace(eviction, victims=victims))

    def _requeue(self, member: Member, text: str) -> None:
        """Requeues a pod with its own message, or with ``text`` if it did fit.

        A pod that did not fit waits for events. One that did backs off, and then brings the others: the group may fit
        if its pods choose other nodes among equally good ones.
        """
        if member.diagnosis is not None:
            elsewhere = self._group.elsewhere.get(member.pod.template, frozenset())
            member.diagnosis.unschedulable_plugins |= elsewhere
        self._group.requeue(member, member.message or text)
