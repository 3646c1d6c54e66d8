"""The cycle of a pod group: enough of its pods are placed together, or none is (docs/spec/pod-groups.md).

A pod that is popped brings the other waiting pods of its group. They are decided one after another, and each that fits is
assumed: it is counted on its node at once, and nothing is written. If enough pods have a node in the end, their binding cycles
start. If not, all of them are taken back, last first. Victims of preemptions are evicted only if with their room the group has
enough pods. With the gate WorkloadAwarePreemption these are chosen for the group as a whole, after its pods were decided.

Without extenders other tasks run in between, but no other attempt does. With extenders other pods are decided meanwhile, with
the assumed pods counted, and the extenders are asked ahead of a pod's turn (app.scheduler.ask_ahead). Only one group waits for
extenders at a time, so two groups cannot each hold what the other needs.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast

import msgspec
import numpy as np

from app.extender.errors import ExtenderError
from app.framework.diagnosis import Diagnosis
from app.framework.interface import Effects, Eviction, GroupMember
from app.framework.runner import Framework
from app.model.gotext import quote
from app.model.pod import Pod, PodTemplate
from app.model.pod_groups import GroupKey
from app.model.status import SUCCESS, Code, SchedulingError, Status
from app.observe.events import GroupAttempted, NodeSelected
from app.scheduler.ask_ahead import AskAhead
from app.scheduler.attempt import NO_NODES, Attempt, Choice, NoNodesError, Unfit
from app.scheduler.binding import AssumedPod, Binder
from app.scheduler.extender_cycle import ExtenderCycle, in_turns
from app.scheduler.failures import GONE, FailureHandler
from app.scheduler.group_status import GroupResult, GroupStatusWriter
from app.scheduler.parts import Parts
from app.scheduler.placement_search import PlacementSearch, rejecting_plugins
from app.scheduler.slots import Slots
from app.state.cache import CacheError
from app.state.columns.labels import Mask
from app.state.queue.queued_pod import QueuedPod

log = logging.getLogger(__name__)

#: Returns an attempt for a popped pod; None for one that must not be tried, which is dropped.
AttemptFor = Callable[[QueuedPod], Attempt | None]

#: Seconds of deciding after which other tasks run.
_SLICE: Final = 0.002

UNSCHEDULABLE: Final = "pod group is unschedulable"
#: The message of a pod that has a node, in a group that has too few of those; the second part is that of Permit.
TOO_FEW: Final = (
    f"{UNSCHEDULABLE}, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
PREEMPTING: Final = "pod group is waiting for preemption to complete"
NO_PREEMPTION_IN_PLACEMENTS: Final = (
    "workload aware preemption is not supported for pod groups with scheduling constraints"
)
NO_PREEMPTION: Final = (
    "default preemption plugin is not registered, workload aware preemption is disabled"
)
_SCHEDULERS: Final = (
    "all pods in a single pod group should have the same .spec.schedulerName set, got: {} and {}"
)
#: Of Kubernetes 1.37, as is _NOT_ENOUGH.
_PRIORITIES: Final = (
    "all pods in a single pod group should have the same priority as the pod group's priority, "
    "got {} and {}"
)
_POLICIES: Final = (
    "all pods in a single pod group should have the same preemption policy, got {} and {}"
)
_NOT_ENOUGH: Final = "minCount ({}) cannot be satisfied: {} scheduled, {} remaining"
_OTHER_FAILED: Final = "failed to schedule other pod from a pod group: {}"
NO_PLACEMENTS: Final = "no feasible placements found"
_NONE_OF: Final = "0/{} placements are available, first placement status: {}"
_NO_WAITS: Final[Mapping[str, float]] = {}


class _Member:
    """A pod of the group in this cycle."""

    def __init__(self, queued: QueuedPod) -> None:
        self.queued: Final = queued
        #: The pod on its node, where it fits at once or, if ``preempts``, after a preemption.
        self.assumed: AssumedPod | None = None
        self.preempts = False
        #: Why it does not fit at once; "" for one that was not decided.
        self.message = ""
        self.diagnosis: Diagnosis | None = None
        #: Its nomination as PostFilter wants it: None leaves it, "" clears it.
        self.nominated: str | None = ""
        #: Whether it is requeued, or its binding cycle has started.
        self.settled = False

    @property
    def fits(self) -> bool:
        """Whether it has a node at once."""
        return self.assumed is not None and not self.preempts

    def reset(self) -> None:
        """Forgets what was decided; the pod is not assumed."""
        self.preempts, self.message, self.diagnosis, self.nominated = False, "", None, ""

    @property
    def choice(self) -> Choice | None:
        """The node that it has at once."""
        return None if self.assumed is None or self.preempts else self.assumed.choice


class _GroupFault(Exception):  # noqa: N818 - it is about one pod of the group
    """A pod failed with an error, not with a rejection: no pod of the group is scheduled."""

    def __init__(self, text: str, member: _Member | None = None) -> None:
        super().__init__(text)
        #: The pod that failed; None if each pod fails with this text.
        self.member: Final = member


class _HeldEffects:
    """Effects that keep evictions until it is known whether they help the group."""

    def __init__(self, effects: Effects) -> None:
        self._effects: Final = effects
        self.evictions: Final[list[Eviction]] = []

    def evict(self, eviction: Eviction) -> None:
        self.evictions.append(eviction)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._effects, name)


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
        self.state: Final = parts.state
        self.groups: Final = parts.state.cluster.pod_groups
        #: The group with which a popped pod is scheduled; None if it is scheduled alone.
        self.group_of: Final = self.groups.key_of
        self.effects: Final = effects
        self.extenders: Final = extenders
        self.binder: Final = binder
        self.failures: Final = failures
        self.emit: Final = parts.sink
        self.clock: Final = parts.clock
        self.rng: Final = parts.rng
        self._status: Final = status
        self._one_at_a_time: Final = asyncio.Lock()
        #: The task of the group that waits for extenders.
        self._asking: asyncio.Task[Any] | None = None
        self._stopped = False

    def pop(self, first: QueuedPod, key: GroupKey) -> list[QueuedPod]:
        """A popped pod, and the waiting pods of its group, which are popped as well; the most important first."""
        pods = [first, *self.state.pop_group(key, self.clock.steady())]
        pods.sort(key=lambda one: (-one.pod.priority, one.initial_attempt_timestamp or 0.0))
        return pods

    def asks_extenders(self, pods: Sequence[QueuedPod]) -> bool:
        """Whether any extender filters or prioritizes for any of the pods."""
        extenders = self.extenders
        return extenders is not None and any(extenders.concerns(queued.pod) for queued in pods)

    async def schedule(
        self, key: GroupKey, pods: Sequence[QueuedPod], attempt_for: AttemptFor, slots: Slots
    ) -> None:
        """Schedules the popped pods of a group: their binding cycles start, or they are requeued.

        Calls to extenders are made ahead in free ``slots``.
        """
        cycle = _Cycle(self, key, pods, attempt_for, slots)
        if self.extenders is not None and self.asks_extenders(pods):
            async with self._one_at_a_time:
                if self._stopped:
                    return
                self._asking = asyncio.current_task()
                try:
                    with self.extenders.only_group():
                        result, text = await cycle.run()
                finally:
                    self._asking = None
        else:
            result, text = await cycle.run()
        cycle.wake_others()
        if cycle.members:
            profile = cycle.members[0].queued.pod.spec.scheduler_name
            seconds = self.clock.monotonic() - cycle.started
            self.emit(cycle.attempted(profile, result, text, seconds))
            self._status.put(key, result, text)

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
        parent: GroupCycle,
        key: GroupKey,
        pods: Sequence[QueuedPod],
        attempt_for: AttemptFor,
        slots: Slots,
    ) -> None:
        self._parent: Final = parent
        self._state: Final = parent.state
        self._key: Final = key
        self._attempt_for: Final = attempt_for
        self._effects: Final = _HeldEffects(parent.effects)
        self.started: Final = parent.clock.monotonic()
        self._framework: Framework | None = None
        #: Why no preemption gives the group enough room; "" if none was planned.
        self._no_preemption = ""
        #: If a preemption of the whole group gives it enough room: where its pods fit then (nodes by uid).
        self._planned: Mapping[str, str] | None = None
        extenders = parent.extenders
        group = parent.groups.get(key)
        self._questions: Final = (
            None
            if extenders is None
            else extenders.questions(key, None if group is None else group.min_count)
        )
        self._ahead: Final = (
            None
            if extenders is None or self._questions is None
            else AskAhead(extenders, self._questions, self._attempt_ahead, slots)
        )
        #: Pods that were counted on a node and no longer are, if other pods were rejected meanwhile.
        self._freed: Final[list[Pod]] = []
        #: How many times any pod had been rejected when this cycle began.
        self._rejections = 0
        #: Without the pods that must not be tried.
        self.members: Final = [_Member(queued) for queued in pods]
        #: Pods that were taken back to be placed again, on the nodes that they had, by uid.
        self._moved: Final[dict[str, Pod]] = {}
        #: Returns the nodes of the placement that is tried (see Attempt); None: all nodes.
        self._within: Callable[[], Mask] | None = None
        #: The search for a placement, if the group has a topology constraint.
        self._searched: PlacementSearch | None = None
        #: When it was known where the pods fit.
        self._found_at = self.started
        #: The group's message if it is unschedulable.
        self._why = UNSCHEDULABLE
        #: Plugins whose events may help a pod in a placement that was not tried, by template.
        self._elsewhere: Mapping[PodTemplate, frozenset[str]] = {}

    async def run(self) -> tuple[GroupResult, str]:
        """Places the pods, then starts their binding cycles or requeues them. Returns the outcome and why it is not better."""
        self._rejections = self._parent.failures.rejections
        try:
            await self._place_all()
            self._found_at = self._parent.clock.monotonic()
            if self._parent.groups.preempted_whole and self._members_lack_room():
                await self._preempt_whole()
            self._check()
            return self._settle()
        except _GroupFault as fault:
            self._take_back(self.members)
            return "error", self._fail_all(fault)
        except Exception as error:
            log.exception("Error scheduling pod group %s/%s", self._key.namespace, self._key.name)
            self._take_back(self.members)
            return "error", self._fail_all(_GroupFault(f"{type(error).__name__}: {error}"))
        except BaseException:
            self._take_back(self.members)
            raise
        finally:
            for pod in self._moved.values():
                self._parent.failures.given_up(pod, UNSCHEDULABLE)

    def attempted(
        self, profile: str, result: GroupResult, text: str, seconds: float
    ) -> GroupAttempted:
        """The event about this cycle, which has ended."""
        unfit = [member.message for member in self.members if member.message]
        tried, because = len(self.members), unfit[0] if unfit else ""
        search = self._searched if result != "scheduled" else None
        return GroupAttempted(
            self._key,
            profile,
            result,
            text,
            tried,
            tried - len(unfit),
            because,
            seconds,
            self._found_at - self.started,
            () if search is None else search.domains(),
        )

    # ------------------------------------------------------------ placing

    async def _place_all(self) -> None:
        profiles = sorted({_profile(member) for member in self.members})
        if len(profiles) > 1:
            raise _GroupFault(_SCHEDULERS.format(*map(quote, profiles[:2])))
        if self._parent.groups.is_newer(self._key.kind):
            self._check_alike()
        search = self._search() if self._parent.groups.topology else None
        if search is not None:
            self._searched = search
            await self._place_together(search)
        elif self._why is not NO_PLACEMENTS:
            await self._place_each()

    def _check_alike(self) -> None:
        """Checks what the versions of Kubernetes 1.37 demand of a group's pods. Raises _GroupFault."""
        group = self._parent.groups.get(self._key)
        known = self._parent.groups.members(self._key)
        pods = [*known.scheduled.values(), *(member.queued.pod for member in self.members)]
        if group is None or not pods:
            return
        for pod in pods:
            if pod.priority != group.priority:
                raise _GroupFault(_PRIORITIES.format(pod.priority, group.priority))
        policies = sorted({pod.spec.preemption_policy or "PreemptLowerPriority" for pod in pods})
        if len(policies) > 1:
            raise _GroupFault(_POLICIES.format(*policies[:2]))

    def _search(self) -> PlacementSearch | None:
        """The search for a placement; None if the pods may use all nodes, or none. Raises _GroupFault."""
        attempts = []
        for member in tuple(self.members):
            attempt = self._attempt_for(member.queued)
            if attempt is None:
                self.members.remove(member)
            else:
                attempts.append(attempt)
        if not attempts:
            return None
        framework, pods = attempts[0].framework, [attempt.pod for attempt in attempts]
        try:
            placements = framework.placements.generate(self._key)
            count = 1 if placements is None else len(placements)
            self._why = _NONE_OF.format(count, UNSCHEDULABLE) if count else NO_PLACEMENTS
            if placements is None:
                return None
            if not count:
                self._reject_all(framework.placements.generator)
                return None
            self._elsewhere = rejecting_plugins(framework, placements, pods)
            return PlacementSearch(
                framework, self._state.table, placements, pods, self._needed(), self._parent.rng
            )
        except SchedulingError as error:
            raise _GroupFault(str(error)) from error

    def _reject_all(self, plugin: str) -> None:
        """No pod is tried: there is no placement."""
        for member in self.members:
            member.message = NO_PLACEMENTS
            member.diagnosis = Diagnosis(node_count=0)
            member.diagnosis.unschedulable_plugins.add(plugin)

    async def _place_together(self, search: PlacementSearch) -> None:
        """Places the pods in the best placement that takes enough of them, else in one that takes many."""
        everyone = tuple(self.members)
        chosen: dict[int, list[Choice | None]] = {}
        number = search.next()
        while number is not None:
            self._within = functools.partial(search.placements.mask, number)
            await self._place_each(search.needed)
            because = next((member.message for member in everyone if member.message), "")
            search.record(number, [member.assumed is not None for member in everyone], because)
            chosen[number] = [member.choice for member in everyone]
            following = search.next()
            if following is None and search.is_best(number):
                return
            self._start_again()
            number = following
        best = search.best()
        nearest = search.nearest() if best is None else best
        self._within = functools.partial(search.placements.mask, nearest)
        if best is None:
            await self._place_each()
            return
        await self._ask_group()
        for member, choice in zip(everyone, chosen[best], strict=True):
            if member in self.members:
                await self._place(member, choice)

    def _start_again(self) -> None:
        self._take_back(self.members, again=True)
        self._effects.evictions.clear()
        for member in self.members:
            member.reset()

    async def _place_each(self, needed: int = 0) -> None:
        """Places one pod after another; ends when fewer than ``needed`` can be placed."""
        yielded_at = self._parent.clock.monotonic()
        possible = len(self.members)
        await self._ask_group()
        async with self._asking_ahead():
            for member in tuple(self.members):
                await self._place(member)
                possible -= member.assumed is None
                if possible < needed:
                    return
                if self._parent.clock.monotonic() - yielded_at > _SLICE:
                    await asyncio.sleep(0)
                    yielded_at = self._parent.clock.monotonic()

    async def _place(self, member: _Member, known: Choice | None = None) -> None:
        """Assumes a pod on its node, if there is one; on the ``known`` one if it still fits. Raises _GroupFault."""
        if self._ahead is not None:
            self._ahead.turn_of(member.queued)
        attempt = self._attempt_for(member.queued)
        if attempt is None:
            self.members.remove(member)
            return
        self._framework = attempt.framework
        attempt.within = self._within
        started = self._parent.clock.monotonic()
        try:
            try:
                if (
                    known is not None
                    and not self._is_reserved(attempt.pod)
                    and await self._still_fits(attempt, known)
                ):
                    choice = known
                else:
                    choice = await self._choose(attempt)
                self._assume(member, attempt, choice, self._parent.clock.monotonic() - started)
            except Unfit as unfit:
                await self._preempt(member, attempt, unfit.diagnosis)
        except NoNodesError:
            raise _GroupFault(NO_NODES, member) from None
        except (SchedulingError, CacheError) as error:
            raise _GroupFault(str(error), member) from error
        except Exception as error:
            log.exception("Error scheduling pod %s", member.queued.pod.key)
            raise _GroupFault(f"{type(error).__name__}: {error}", member) from error

    def _is_reserved(self, pod: Pod) -> bool:
        """Whether an extender may have reserved something for the pod when it was last asked: it has to be asked again."""
        extenders = self._parent.extenders
        return extenders is not None and extenders.concerns(pod) and not extenders.may_overlap(pod)

    async def _still_fits(self, attempt: Attempt, choice: Choice) -> bool:
        if self._state.table.row_of.get(choice.node_name) != choice.row:
            return False
        rows = np.array([choice.row], np.intp)
        fits = await in_turns(attempt, lambda: attempt.still_fits(rows))
        return bool(fits[0])

    async def _ask_group(self) -> None:
        """Asks the extenders that want to be asked about the whole group at once. Raises _GroupFault."""
        extenders = self._parent.extenders
        if extenders is None or self._questions is None or not extenders.asks_about_groups:
            return
        attempts = [self._attempt_ahead(member.queued) for member in self.members]
        try:
            await extenders.ask_group(
                [attempt for attempt in attempts if attempt is not None], self._questions
            )
        except ExtenderError as error:
            raise _GroupFault(str(error)) from error

    def _asking_ahead(self) -> AbstractAsyncContextManager[None]:
        if self._ahead is None:
            return contextlib.nullcontext()
        return self._ahead.during(member.queued for member in self.members)

    def _attempt_ahead(self, queued: QueuedPod) -> Attempt | None:
        attempt = self._attempt_for(queued) if self._waits(queued.pod) else None
        if attempt is not None:
            attempt.within = self._within
        return attempt

    async def _choose(self, attempt: Attempt) -> Choice:
        extenders, ask = self._parent.extenders, None
        if extenders is not None and self._questions is not None:
            ask = await extenders.take_turn(attempt.pod, self._questions)
        if ask is None:
            return attempt.choose(await in_turns(attempt, attempt.find))
        return await ask(attempt)

    def _assume(self, member: _Member, attempt: Attempt, choice: Choice, seconds: float) -> None:
        """Counts the pod on its node, which took ``seconds`` to choose, and reserves. Raises CacheError, SchedulingError."""
        pod, framework = attempt.pod, attempt.framework
        member.queued.pod = pod
        if not self._waits(pod):
            self._drop(member)
            self._parent.failures.given_up(pod.on(choice.node_name), GONE)
            return
        assumed = self._state.assume(pod, choice.node_name)
        moved = self._moved.get(pod.uid)
        if moved is not None and moved.node_name == choice.node_name:
            del self._moved[pod.uid]
        member.assumed = AssumedPod(
            member.queued, assumed, choice, framework, attempt.state, self.started
        )
        status = framework.reserve(attempt.state, assumed, choice.node_name)
        if status.ok:
            self._parent.emit(
                NodeSelected(
                    member.queued,
                    framework.profile_name,
                    choice.node_name,
                    choice.feasible,
                    choice.evaluated,
                    seconds,
                    attempt.scores,
                )
            )
            return
        self._take_back([member])
        if not status.code.rejected:
            raise SchedulingError(status.message)
        member.diagnosis = Diagnosis(node_count=1, absent=status)
        member.diagnosis.unschedulable_plugins.add(status.plugin)
        member.message = member.diagnosis.message()

    async def _preempt(self, member: _Member, attempt: Attempt, diagnosis: Diagnosis) -> None:
        """Runs PostFilter. If it finds room by a preemption, the pod counts there for the rest of the cycle."""
        member.diagnosis = diagnosis
        member.message, member.nominated = await self._parent.failures.post_filter(
            attempt, diagnosis, cast("Effects", self._effects)
        )
        node = member.nominated
        row = self._state.table.row_of.get(node) if node else None
        if node and row is not None and self._waits(attempt.pod):
            choice = Choice(row, node, 0, 0)
            assumed = self._state.assume(attempt.pod, node)
            member.preempts = True
            member.assumed = AssumedPod(
                member.queued, assumed, choice, attempt.framework, attempt.state, self.started
            )

    def _members_lack_room(self) -> bool:
        """Whether too few pods have a node, and none preempts by itself."""
        if not self.members or any(member.preempts for member in self.members):
            return False
        return not (any(member.fits for member in self.members) and self._enough(0))

    async def _preempt_whole(self) -> None:
        """Plans a preemption for the group as a whole. Raises _GroupFault."""
        plugin = None if self._framework is None else self._framework.pod_group_post_filter
        if plugin is None:
            self._no_preemption = NO_PREEMPTION
            return
        group = self._parent.groups.get(self._key)
        if group is not None and group.topology_key:
            self._no_preemption = NO_PREEMPTION_IN_PLACEMENTS
            return
        members = [
            GroupMember(member.queued.pod, member.fits, self._refused(member))
            for member in self.members
        ]
        effects = cast("Effects", self._effects)
        result = await plugin.pod_group_post_filter(self._key, members, self._needed(), effects)
        if result.status.ok:
            self._planned = result.nodes
        elif result.status.code.rejected:
            self._no_preemption = result.status.message
        else:
            raise _GroupFault(result.status.message)

    def _refused(self, member: _Member) -> frozenset[str]:
        """The nodes that extenders rejected for a pod."""
        if member.diagnosis is None:
            return frozenset()
        names = self._state.table.names
        return frozenset(names[row] for row in member.diagnosis.by_row)

    def _still_planned(self) -> bool:
        """Whether the group has a plan, and its pods are still there."""
        if self._planned is None:
            return False
        there = [
            member
            for member in self.members
            if member.queued.pod.uid in self._planned and self._waits(member.queued.pod)
        ]
        return bool(there) and self._enough(-len(there))

    def _waits(self, pod: Pod) -> bool:
        """Whether the pod still needs a node."""
        current = self._state.pods.get(pod.key)
        return current is not None and self._state.is_unbound(pod) and not current.terminating

    def _drop(self, member: _Member) -> None:
        self.members.remove(member)
        self._state.drop(member.queued.pod)

    # ------------------------------------------------------------ the outcome

    def _check(self) -> None:
        """Leaves out pods that have gone since they were placed. Raises _GroupFault if a node has gone."""
        table = self._state.table
        for member in tuple(self.members):
            if member.assumed is None:
                continue
            pod = member.assumed.pod
            if not self._state.cache.is_assumed(pod.uid):
                self._take_back([member])
                self._drop(member)
                continue
            row = table.row_of.get(pod.node_name)
            if row is None or not table.exists[row]:
                raise _GroupFault(f'node "{pod.node_name}" not found', member)

    def _settle(self) -> tuple[GroupResult, str]:
        preempting = [member for member in self.members if member.preempts]
        if any(member.fits for member in self.members) and self._enough(len(preempting)):
            self._take_back(preempting)
            if self._planned is None:
                self._evict()
            for member in tuple(self.members):
                assumed, member.assumed = member.assumed, None
                if assumed is None:
                    self._requeue(member, "")
                else:
                    member.settled = True
                    self._bind(assumed)
            self._try_others_again()
            return "scheduled", ""
        return self._give_up(preempting)

    def _give_up(self, preempting: Sequence[_Member]) -> tuple[GroupResult, str]:
        """Takes all pods back and requeues them, to wait for victims or for events."""
        why, planned = self._reason(), self._still_planned()
        waits = planned or (bool(preempting) and self._enough(0))
        keeps_room = waits or self._enough(-self._count_waiting_for_victims())
        nodes = dict(self._planned or {})
        for member in self.members:
            if member.assumed is not None and (waits or member.fits):
                nodes[member.queued.pod.uid] = member.assumed.pod.node_name
        placed = [member for member in self.members if member.assumed is not None]
        self._take_back(self.members)
        if waits:
            self._evict()
        text = TOO_FEW if not waits else UNSCHEDULABLE if planned else PREEMPTING
        if not waits and why is not self._why:
            text = why
        for member in placed:
            member.nominated = ""
        for member in self.members:
            if keeps_room:
                member.nominated = nodes.get(member.queued.pod.uid, member.nominated)
            self._requeue(member, text)
        if waits:
            return "waiting_on_preemption", text
        reasons = (why, self._no_preemption) if self._no_preemption else (why,)
        return "unschedulable", ", ".join(reasons)

    def _reason(self) -> str:
        """Why too few pods have a node, in the words of the version: from Kubernetes 1.37 on with numbers."""
        if not self._parent.groups.is_newer(self._key.kind):
            return self._why
        group = self._parent.groups.get(self._key)
        needed = (group and group.min_count) or 1
        scheduled = len(self._parent.groups.members(self._key).scheduled)
        scheduled -= sum(member.assumed is not None for member in self.members)
        remaining = len(self.members)
        for member in self.members:
            if scheduled + remaining < needed:
                break
            remaining -= 1
            scheduled += member.fits
        return self._why.replace(UNSCHEDULABLE, _NOT_ENOUGH.format(needed, scheduled, remaining))

    def _try_others_again(self) -> None:
        """Pods above the minimum that do not fit get a cycle of their own, in which a preemption is planned for them."""
        if self._parent.groups.preempted_whole:
            pods = [
                member.queued.pod
                for member in self.members
                if member.diagnosis is not None and not member.preempts
            ]
            self._state.activate(pods, self._parent.clock.steady())

    def _count_waiting_for_victims(self) -> int:
        """How many pods have no node because victims of an earlier cycle are still ending on their nominated nodes.

        Until these have ended, the pods that fit keep their room by nominations. Otherwise a pod of lower priority could take it,
        and would have to be evicted for the group again.
        """
        return sum(
            member.diagnosis is not None
            and member.nominated is None
            and bool(self._state.nominator.node_of(member.queued.pod.uid))
            for member in self.members
        )

    def _enough(self, preempting: int) -> bool:
        """Whether enough pods of the group have a node, with those of earlier cycles, without ``preempting`` of them."""
        group = self._parent.groups.get(self._key)
        if group is None:
            return False
        scheduled = len(self._parent.groups.members(self._key).scheduled) - preempting
        return group.min_count is None or scheduled >= group.min_count

    def _needed(self) -> int:
        """How many of the pods, at least one, have to get a node."""
        group = self._parent.groups.get(self._key)
        scheduled = len(self._parent.groups.members(self._key).scheduled)
        return max(1, ((group and group.min_count) or 1) - scheduled)

    def _evict(self) -> None:
        """Starts the evictions, each victim once: the pods of the group that share its room have all chosen it."""
        evicted: set[str] = set()
        for eviction in self._effects.evictions:
            victims = tuple(pod for pod in eviction.victims if pod.uid not in evicted)
            if victims:
                evicted.update(pod.uid for pod in victims)
                self._parent.effects.evict(msgspec.structs.replace(eviction, victims=victims))

    def _bind(self, assumed: AssumedPod) -> None:
        """Runs Permit and starts the binding cycle; a rejection concerns this pod alone."""
        framework, pod = assumed.framework, assumed.pod
        status, waits = SUCCESS, _NO_WAITS
        try:
            if framework.has_permit:
                status, waits = framework.permit(assumed.cycle_state, pod, pod.node_name)
        except Exception as error:
            log.exception("Error in Permit for pod %s", pod.key)
            status = Status(Code.Error, (f"{type(error).__name__}: {error}",))
        if status.ok or status.code is Code.Wait:
            self._parent.binder.start(assumed, waits)
        else:
            self._parent.failures.undo(assumed, status)

    def _take_back(self, members: Sequence[_Member], *, again: bool = False) -> None:
        """Unreserves and forgets the assumed pods among these, last first.

        Extenders are told, but not yet of pods that are placed ``again``: these may come to the same nodes.
        """
        for member in reversed(members):
            assumed, member.assumed = member.assumed, None
            if assumed is None:
                continue
            if member.preempts:
                counted = self._state.forget(assumed.pod)
            else:
                counted = self._parent.failures.take_back(assumed, UNSCHEDULABLE, tell=not again)
                if again:
                    self._moved[assumed.pod.uid] = assumed.pod
                else:
                    self._moved.pop(assumed.pod.uid, None)
            if self._parent.failures.rejections > self._rejections:
                self._freed.append(counted)

    def wake_others(self) -> None:
        """Wakes pods that may have been rejected because of places that the group has given up.

        To be called when its own pods are requeued: what they have given up does not help them.
        """
        own = frozenset(member.queued.pod.uid for member in self.members)
        for pod in self._freed:
            self._state.freed(pod, self._parent.clock.steady(), but=own)

    def _requeue(self, member: _Member, text: str) -> None:
        """Requeues a pod with its own message, or with ``text`` if it did fit.

        A pod that did not fit waits for events. One that did backs off, and then brings the others: the group may fit if its
        pods choose other nodes among equally good ones.
        """
        member.settled = True
        if member.diagnosis is not None:
            template = member.queued.pod.template
            member.diagnosis.unschedulable_plugins |= self._elsewhere.get(template, frozenset())
        self._parent.failures.requeue(
            member.queued,
            _profile(member),
            member.message or text,
            self.started,
            member.diagnosis,
            nominated_node=member.nominated,
        )

    def _fail_all(self, fault: _GroupFault) -> str:
        """Requeues all pods after an error; returns the group's message."""
        text = str(fault) if fault.member is None else _OTHER_FAILED.format(fault)
        for member in self.members:
            if member.settled:
                continue
            own = str(fault) if member is fault.member else text
            self._parent.failures.error(member.queued, _profile(member), own, started=self.started)
        return text


def _profile(member: _Member) -> str:
    return member.queued.pod.spec.scheduler_name
