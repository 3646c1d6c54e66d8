"""Finds nodes for the pods of a group, and counts each pod on its node.

The pods are decided one after another, on the real table. If the group has a topology constraint, they are decided in
one placement after another. A preemption is planned for a pod, or for the group as a whole, and nothing is written.
"""

import contextlib
import functools
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast

import numpy as np

from app.cycle.attempt import NO_NODES, Attempt, Choice, NoNodesError, Unfit
from app.cycle.placement_search import PlacementSearch, rejecting_plugins
from app.cycle.pod_cycle import assume, decide, paused
from app.extender.errors import ExtenderError
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Effects, Eviction
from app.framework.interface import AnyPlugin, GroupMember, PodGroupPostFilterResult
from app.framework.runner import Framework
from app.model.gotext import quote
from app.model.pod import Pod
from app.model.pod_groups import PodGroup
from app.model.status import Code, SchedulingError
from app.observe.events import NodeSelected
from app.scheduler.ask_ahead import AskAhead, AttemptFor
from app.scheduler.driving import drive
from app.scheduler.extender_cycle import ExtenderCycle
from app.scheduler.failures import GONE, FailureHandler
from app.scheduler.group_state import UNSCHEDULABLE, GroupFault, GroupState, Member
from app.scheduler.parts import Parts
from app.scheduler.slots import Slots
from app.state.cache import CacheError
from app.state.columns.labels import Mask
from app.state.queue.queued_pod import QueuedPod

log = logging.getLogger(__name__)

NO_PLACEMENTS: Final = "no feasible placements found"
NO_PREEMPTION_IN_PLACEMENTS: Final = (
    "workload aware preemption is not supported for pod groups with scheduling constraints"
)
NO_PREEMPTION: Final = (
    "default preemption plugin is not registered, workload aware preemption is disabled"
)
#: From Kubernetes 1.37 on.
_OF_GROUPS: Final = "pod group preemption: "
#: What DynamicResources says from 1.37 on of a group without a topology constraint, whether it could free anything or
#: not.
_FREED_CLAIMS: Final = "deallocation and deletion of ResourceClaims completed"
_ONGOING: Final = "ongoing preemption on nominated nodes"
_FOUND: Final = "found a placement for podgroup, preempting {} victims"
_NONE_OF: Final = "0/{} placements are available, first placement status: {}"
_SCHEDULERS: Final = (
    "all pods in a single pod group should have the same .spec.schedulerName set, got: {} and {}"
)
#: Of Kubernetes 1.37, as is _POLICIES.
_PRIORITIES: Final = (
    "all pods in a single pod group should have the same priority as the pod group's priority, "
    "got {} and {}"
)
_POLICIES: Final = (
    "all pods in a single pod group should have the same preemption policy, got {} and {}"
)
#: With the gate PodGroupPreemptionPolicy.
_OWN_POLICY: Final = (
    "all pods in a single pod group should have the same preemption policy as the pod group's preemption policy, "
    "got {} and {}"
)
_PREEMPTS: Final = "PreemptLowerPriority"


class _HeldEffects:
    """Effects that keep evictions until it is known whether they help the group."""

    def __init__(self, effects: Effects, evictions: list[Eviction]) -> None:
        self._effects: Final = effects
        self.evict: Final = evictions.append

    def __getattr__(self, name: str) -> Any:
        return getattr(self._effects, name)


class GroupAlgorithm:
    """The search for nodes in one cycle of one group."""

    def __init__(
        self,
        parts: Parts,
        group: GroupState,
        *,
        effects: Effects,
        extenders: ExtenderCycle | None,
        failures: FailureHandler,
        attempt_for: AttemptFor,
        slots: Slots,
    ) -> None:
        """``extenders`` are asked ahead of a pod's turn in free ``slots``."""
        self._state: Final = parts.state
        self._groups: Final = parts.state.cluster.pod_groups
        self._clock: Final = parts.clock
        self._rng: Final = parts.rng
        self._emit: Final = parts.sink
        self._group: Final = group
        self._writing: Final = effects
        self._effects: Final = _HeldEffects(effects, group.evictions)
        self._extenders: Final = extenders
        self._failures: Final = failures
        self._attempt_for: Final = attempt_for
        made = group.group
        self._questions: Final = (
            None
            if extenders is None
            else extenders.questions(group.key, None if made is None else made.min_count)
        )
        self._ahead: Final = (
            None
            if extenders is None or self._questions is None
            else AskAhead(extenders, self._questions, slots)
        )
        self._framework: Framework | None = None
        #: Whether a pod does not fit, and may share claims with the group that have to be freed.
        self.frees_claims = False
        #: What DynamicResources says of a group that does not fit.
        self._freed = _FREED_CLAIMS
        #: Returns the nodes of the placement that is tried (see Attempt); None: all nodes.
        self._within: Callable[[], Mask] | None = None

    async def place(self) -> None:
        """Counts the pods that fit on their nodes, and those for which a pod's own preemption makes room. Raises
        GroupFault."""
        self._check_profiles()
        if self._group.is_newer:
            self._check_alike()
        if self._groups.topology:
            self._group.search = self._start_search()
        if self._group.search is not None:
            await self._place_together(self._group.search)
        elif self._group.why is not NO_PLACEMENTS:
            await self._place_each()

    async def free_claims(self) -> bool:
        """Frees a claim of the group, of which too few pods fit. Returns whether no preemption must follow. Raises
        GroupFault.

        Nothing is freed while a pod of the group has a node otherwise than by this cycle, nor for a group with a
        topology constraint.
        """
        group, framework, members = self._group.group, self._framework, tuple(self._group)
        plugin = None if framework is None else framework.commit.frees_claims
        if (
            plugin is None
            or not isinstance(group, PodGroup)
            or (self._groups.topology and group.topology_key)
            or self._group.scheduled > sum(member.assumed is not None for member in members)
        ):
            return False
        states = [
            member.state if member.assumed is None else member.assumed.cycle_state
            for member in members
        ]
        known = [state for state in states if state is not None]
        status = await plugin.free_for_group(group, known, cast("Effects", self._effects))
        if status.ok:
            return False
        if not status.code.rejected:
            raise GroupFault(status.message)
        self._group.about_preemption = self._freed = status.message
        return status.code is Code.UnschedulableAndUnresolvable

    async def preempt_whole(self) -> None:
        """Plans a preemption for the group as a whole. Raises GroupFault."""
        group, search = self._group.group, self._group.search
        if (
            group is not None
            and group.topology_key
            and (search is None or not self._group.is_newer)
        ):
            self._group.about_preemption = self._told(NO_PREEMPTION_IN_PLACEMENTS)
            return
        plugin = None if self._framework is None else self._framework.commit.pod_group_post_filter
        if plugin is None:
            self._group.about_preemption = self._told(NO_PREEMPTION)
            return
        if search is None:
            effects, members = cast("Effects", self._effects), self._members()
            needed = self._group.needed
            result = await plugin.pod_group_post_filter(self._group.key, members, needed, effects)
        else:
            result = await self._preempt_in_a_placement(plugin, search)
        if result.status.ok:
            self._group.planned = result.nodes
            if self._group.is_newer:
                victims = {pod.uid for each in self._group.evictions for pod in each.victims}
                text = _FOUND.format(len(victims)) if victims else _ONGOING
                self._group.about_preemption = self._told(text)
        elif result.status.code.rejected:
            text = result.status.message
            text = self._group.why if text == UNSCHEDULABLE else text
            self._group.about_preemption = self._told(text)
        else:
            raise GroupFault(result.status.message)

    def _members(self) -> list[GroupMember]:
        return [
            GroupMember(member.pod, member.fits, self._refused(member)) for member in self._group
        ]

    async def _preempt_in_a_placement(
        self, plugin: AnyPlugin, search: PlacementSearch
    ) -> PodGroupPostFilterResult:
        """The best plan of all placements: the one that gives nodes to the most pods, then the one with the fewest
        victims.

        The pods are taken back before, since those that fit are counted in one of the placements.
        """
        group = self._group
        group.why = group.reason()
        kept = [(m, m.message, m.diagnosis, m.nominated) for m in group]
        await group.place_again()
        for member, message, diagnosis, nominated in kept:
            member.message, member.diagnosis, member.nominated = message, diagnosis, nominated
        members, needed = self._members(), group.needed
        best: tuple[tuple[int, int], PodGroupPostFilterResult, list[Eviction]] | None = None
        failed: PodGroupPostFilterResult | None = None
        for number in range(len(search.placements)):
            evictions: list[Eviction] = []
            effects = cast("Effects", _HeldEffects(self._writing, evictions))
            rows = np.sort(search.placements.take([number]).rows)
            result = await plugin.pod_group_post_filter(group.key, members, needed, effects, rows)
            if result.status.ok:
                victims = sum(len(each.victims) for each in evictions)
                rank = (-len(result.nodes), victims)
                if best is None or rank < best[0]:
                    best = rank, result, evictions
            elif not result.status.code.rejected:
                return result
            elif failed is None or failed.status.message == UNSCHEDULABLE:
                failed = result
        if best is None:
            assert failed is not None  # noqa: S101 - there is a placement
            return failed
        group.evictions.extend(best[2])
        return best[1]

    def _told(self, text: str) -> str:
        """What is said about a preemption for the group, in the words of the version."""
        if not self._group.is_newer:
            return text
        group, framework = self._group.group, self._framework
        if group is None or group.topology_key or framework is None:
            return f"{_OF_GROUPS}{text}"
        freed = self._freed if framework.commit.has_post_filter("DynamicResources") else ""
        return f"{freed}, {_OF_GROUPS}{text}" if freed else f"{_OF_GROUPS}{text}"

    def _refused(self, member: Member) -> frozenset[str]:
        """The nodes that extenders rejected for a pod."""
        if member.diagnosis is None:
            return frozenset()
        names = self._state.table.names
        return frozenset(names[row] for row in member.diagnosis.by_row)

    # ------------------------------------------------------------ all pods

    def _check_profiles(self) -> None:
        profiles = sorted({member.profile for member in self._group})
        if len(profiles) > 1:
            raise GroupFault(_SCHEDULERS.format(*map(quote, profiles[:2])))

    def _check_alike(self) -> None:
        """Checks what the versions of Kubernetes 1.37 demand of a group's pods. Raises GroupFault."""
        group = self._group.group
        known = self._groups.members(self._group.key)
        pods = [*known.scheduled.values(), *(member.pod for member in self._group)]
        if group is None or not pods:
            return
        for pod in pods:
            if pod.priority != group.priority:
                raise GroupFault(_PRIORITIES.format(pod.priority, group.priority))
        policies = sorted({pod.spec.preemption_policy or _PREEMPTS for pod in pods})
        if self._groups.policies and isinstance(group, PodGroup):
            own = group.spec.preemption_policy or _PREEMPTS
            other = next((policy for policy in policies if policy != own), None)
            if other is not None:
                raise GroupFault(_OWN_POLICY.format(other, own))
        elif len(policies) > 1:
            raise GroupFault(_POLICIES.format(*policies[:2]))

    def _start_search(self) -> PlacementSearch | None:
        """The search for a placement; None if the pods may use all nodes, or none. Raises GroupFault."""
        attempts = []
        for member in self._group:
            attempt = self._attempt_for(member.queued)
            if attempt is None:
                self._group.remove(member)
            else:
                attempts.append(attempt)
        if not attempts:
            return None
        framework, pods = attempts[0].framework, [attempt.pod for attempt in attempts]
        try:
            placements = framework.placements.generate(self._group.key)
            count = 1 if placements is None else len(placements)
            self._group.why = _NONE_OF.format(count, UNSCHEDULABLE) if count else NO_PLACEMENTS
            if placements is None:
                return None
            if not count:
                self._reject_all(framework.placements.generator)
                return None
            self._group.elsewhere = rejecting_plugins(framework, placements, pods)
            needed = self._group.needed
            return PlacementSearch(
                framework, self._state.table, placements, pods, needed, self._rng
            )
        except SchedulingError as error:
            raise GroupFault(str(error)) from error

    def _reject_all(self, plugin: str) -> None:
        """No pod is tried: there is no placement."""
        for member in self._group:
            member.message = NO_PLACEMENTS
            member.diagnosis = Diagnosis(node_count=0)
            member.diagnosis.unschedulable_plugins.add(plugin)

    async def _place_together(self, search: PlacementSearch) -> None:
        """Places the pods in the best placement that takes enough of them, else in one that takes many."""
        everyone = tuple(self._group)
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
            await self._group.place_again()
            self._group.evictions.clear()
            number = following
        best = search.best()
        nearest = search.nearest() if best is None else best
        self._within = functools.partial(search.placements.mask, nearest)
        if best is None:
            await self._place_each()
            return
        await self._ask_group()
        for member, choice in zip(everyone, chosen[best], strict=True):
            if member in self._group:
                await self._place(member, choice)
                await self._group.slice.pause()

    async def _place_each(self, needed: int = 0) -> None:
        """Places one pod after another; ends when fewer than ``needed`` can be placed."""
        possible = len(self._group)
        await self._ask_group()
        async with self._asking_ahead():
            for member in self._group:
                await self._place(member)
                possible -= member.assumed is None
                if possible < needed:
                    return
                await self._group.slice.pause()

    # ------------------------------------------------------------ one pod

    async def _place(self, member: Member, known: Choice | None = None) -> None:
        """Assumes a pod on its node, if there is one; on the ``known`` one if it still fits. Raises GroupFault."""
        if self._ahead is not None:
            self._ahead.turn_of(member.queued)
        if not self._group.belongs(member.pod):
            self._group.drop(member)
            return
        attempt = self._attempt_for(member.queued)
        if attempt is None:
            self._group.remove(member)
            return
        self._framework = attempt.framework
        attempt.within = self._within
        started = self._clock.monotonic()
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
                self._assume(member, attempt, choice, self._clock.monotonic() - started)
            except Unfit as unfit:
                await self._preempt(member, attempt, unfit.diagnosis)
        except NoNodesError:
            member.message = NO_NODES
        except (SchedulingError, CacheError) as error:
            raise GroupFault(str(error), member) from error
        except Exception as error:
            log.exception("Error scheduling pod %s", member.pod.key)
            raise GroupFault(f"{type(error).__name__}: {error}", member) from error

    def _is_reserved(self, pod: Pod) -> bool:
        """Whether an extender may have reserved something for the pod when it was last asked: it has to be asked
        again."""
        extenders = self._extenders
        return extenders is not None and extenders.concerns(pod) and not extenders.may_overlap(pod)

    async def _still_fits(self, attempt: Attempt, choice: Choice) -> bool:
        if self._state.table.row_of.get(choice.node_name) != choice.row:
            return False
        rows = np.array([choice.row], np.intp)
        fits = await drive(paused(attempt, lambda: attempt.still_fits(rows)))
        return bool(fits[0])

    async def _choose(self, attempt: Attempt) -> Choice:
        ask = None
        if self._extenders is not None and self._questions is not None:
            ask = await self._extenders.take_turn(attempt.pod, self._questions)
        if ask is not None:
            return await ask(attempt)
        return await drive(decide(attempt))

    def _assume(self, member: Member, attempt: Attempt, choice: Choice, seconds: float) -> None:
        """Counts the pod on its node, which took ``seconds`` to choose, and reserves. Raises CacheError,
        SchedulingError."""
        pod, framework = attempt.pod, attempt.framework
        member.queued.pod = pod
        if not self._group.waits(pod):
            self._group.drop(member)
            self._failures.given_up(pod.on(choice.node_name), GONE)
            return
        assumed = self._count(member, attempt, choice)
        status = framework.commit.reserve(attempt.state, assumed, choice.node_name)
        if status.ok:
            self._emit(
                NodeSelected(
                    member.queued,
                    framework.profile_name,
                    choice.node_name,
                    choice.feasible,
                    choice.evaluated,
                    seconds,
                    attempt.scores,
                    attempt.ties,
                )
            )
            return
        self._group.take_back(member)
        if not status.code.rejected:
            raise SchedulingError(status.message)
        member.diagnosis = Diagnosis(node_count=1, absent=status)
        member.diagnosis.unschedulable_plugins.add(status.plugin)
        member.message = member.diagnosis.message()

    async def _preempt(self, member: Member, attempt: Attempt, diagnosis: Diagnosis) -> None:
        """Runs PostFilter. If it finds room by a preemption, the pod counts there for the rest of the cycle."""
        member.diagnosis = diagnosis
        if attempt.framework.commit.frees_claims is not None:
            member.state, self.frees_claims = attempt.state, True
        member.message, member.nominated = await self._failures.post_filter(
            attempt, diagnosis, cast("Effects", self._effects)
        )
        if self._group.is_newer:
            member.message = diagnosis.message()  # what makes room is said of the group
        node = member.nominated
        row = self._state.table.row_of.get(node) if node else None
        if node and row is not None and self._group.waits(attempt.pod):
            self._count(member, attempt, Choice(row, node, 0, 0), preempts=True)

    def _count(
        self, member: Member, attempt: Attempt, choice: Choice, *, preempts: bool = False
    ) -> Pod:
        """Assumes the pod on its node. Raises CacheError."""
        assumed = assume(self._state, member.queued, attempt, choice, self._group.started)
        self._group.assume(member, assumed, preempts=preempts)
        return assumed.pod

    # ------------------------------------------------------------ extenders

    async def _ask_group(self) -> None:
        """Asks the extenders that want to be asked about the whole group at once. Raises GroupFault."""
        extenders = self._extenders
        if extenders is None or self._questions is None or not extenders.asks_about_groups:
            return
        attempts = [self._attempt_ahead(member.queued) for member in self._group]
        try:
            await extenders.ask_group(
                [attempt for attempt in attempts if attempt is not None], self._questions
            )
        except ExtenderError as error:
            raise GroupFault(str(error)) from error

    def _asking_ahead(self) -> AbstractAsyncContextManager[None]:
        if self._ahead is None:
            return contextlib.nullcontext()
        pods = [member.queued for member in self._group]
        return self._ahead.during(pods, self._attempt_ahead)

    def _attempt_ahead(self, queued: QueuedPod) -> Attempt | None:
        attempt = self._attempt_for(queued) if self._group.waits(queued.pod) else None
        if attempt is not None:
            attempt.within = self._within
        return attempt
