"""The state of a pod group's cycle: its pods, their nodes, whether these are enough, and what is planned."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from app.cycle.attempt import Choice
from app.cycle.placement_search import PlacementSearch
from app.cycle.pod_cycle import AssumedPod
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Eviction
from app.framework.interface import CycleState
from app.model.pod import Pod, PodTemplate
from app.model.pod_groups import AnyPodGroup, GroupKey
from app.runtime.tasks import TimeSlice
from app.scheduler.failures import FailureHandler
from app.scheduler.parts import Parts
from app.state.queue.queued_pod import QueuedPod

UNSCHEDULABLE: Final = "pod group is unschedulable"
#: What Kubernetes 1.37 says instead.
_NOT_ENOUGH: Final = "minCount ({}) cannot be satisfied: {} scheduled, {} remaining"
_LEFT: Final = "the pod does not belong to its pod group any longer"


class Member:
    """A pod of the group in this cycle."""

    def __init__(self, queued: QueuedPod) -> None:
        self.queued: Final = queued
        #: The scheduler that the pod names.
        self.profile: Final = queued.pod.template.spec.scheduler_name
        #: The pod on its node, where it fits at once or, if ``preempts``, after a preemption.
        self.assumed: AssumedPod | None = None
        self.preempts = False
        #: Why it does not fit at once; "" for one that was not decided.
        self.message = ""
        self.diagnosis: Diagnosis | None = None
        #: What its attempt found out, if it does not fit and claims may be freed for it.
        self.state: CycleState | None = None
        #: Its nomination as PostFilter wants it: None leaves it, "" clears it.
        self.nominated: str | None = ""
        #: Whether it is requeued, or its binding cycle has started.
        self.settled = False

    @property
    def pod(self) -> Pod:
        """The latest version that the cycle has seen."""
        return self.queued.pod

    @property
    def fits(self) -> bool:
        """Whether it has a node at once."""
        return self.assumed is not None and not self.preempts

    @property
    def choice(self) -> Choice | None:
        """The node that it has at once."""
        return None if self.assumed is None or self.preempts else self.assumed.choice

    def reset(self) -> None:
        """Forgets what was decided; the pod is not assumed."""
        self.preempts, self.message, self.diagnosis, self.nominated = False, "", None, ""
        self.state = None


class GroupFault(Exception):  # noqa: N818 - it is about one pod of the group
    """A pod failed with an error, not with a rejection: no pod of the group is scheduled."""

    def __init__(self, text: str, member: Member | None = None) -> None:
        super().__init__(text)
        #: The pod that failed; None if each pod fails with this text.
        self.member: Final = member


class GroupState:
    """One group in one cycle. Iteration is over a copy of its pods, without those that must not be tried.

    The search for nodes (app.scheduler.group_algorithm) writes its results here; the cycle acts on them.
    """

    def __init__(
        self,
        parts: Parts,
        failures: FailureHandler,
        key: GroupKey,
        pods: Sequence[QueuedPod],
        started: float,
    ) -> None:
        """``started``: when the cycle began (monotonic)."""
        self.key: Final = key
        self.started: Final = started
        self.slice: Final = TimeSlice(parts.clock)
        self._state: Final = parts.state
        self._groups: Final = parts.state.cluster.pod_groups
        self._clock: Final = parts.clock
        self._failures: Final = failures
        self._left: Final = [Member(queued) for queued in pods]
        #: Pods that were taken back to be placed again, on the nodes that they had, by uid.
        self._moved: Final[dict[str, Pod]] = {}
        #: Pods that were counted on a node and no longer are, if other pods were rejected meanwhile.
        self._freed: Final[list[Pod]] = []
        #: How many times any pod had been rejected when this cycle began, and these pods since.
        self._rejections = failures.rejections
        #: The search for a placement, if the group has a topology constraint.
        self.search: PlacementSearch | None = None
        #: The group's message if too few pods get a node.
        self.why = UNSCHEDULABLE
        #: Preemptions that give room to pods that are counted on their nodes, or to the group.
        self.evictions: Final[list[Eviction]] = []
        #: Why no preemption gives the group enough room, and from Kubernetes 1.37 on also how one does; "" if none was
        #: planned.
        self.about_preemption = ""
        #: If a preemption of the whole group gives it enough room: where its pods fit then (nodes by uid).
        self.planned: Mapping[str, str] | None = None
        #: Plugins whose events may help a pod in a placement that was not tried, by template.
        self.elsewhere: Mapping[PodTemplate, frozenset[str]] = {}

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._left))

    def __len__(self) -> int:
        return len(self._left)

    def __contains__(self, member: object) -> bool:
        return member in self._left

    @property
    def group(self) -> AnyPodGroup | None:
        """The group as it is now; None if it is gone."""
        return self._groups.get(self.key)

    @property
    def is_newer(self) -> bool:
        """Whether the rules and texts of Kubernetes 1.37 hold for the group."""
        return self._groups.is_newer(self.key.kind)

    @property
    def preempts_whole(self) -> bool:
        """Whether a preemption makes room for the group as a whole, not for its pods one by one."""
        return self._groups.preempted_whole

    @property
    def scheduled(self) -> int:
        """How many pods of the group have a node: bound, assumed in this cycle, or in a binding cycle."""
        return len(self._groups.members(self.key).scheduled)

    @property
    def min_count(self) -> int:
        """How many pods of the group, at least one, run together."""
        return self._groups.min_count(self.key)

    @property
    def needed(self) -> int:
        """How many of the pods, at least one, have to get a node."""
        return self._groups.missing(self.key)

    def reason(self) -> str:
        """Why too few pods have a node, in the words of the version: from Kubernetes 1.37 on with numbers."""
        if not self.is_newer:
            return self.why
        needed = self.min_count
        scheduled = self.scheduled - sum(member.assumed is not None for member in self)
        remaining = len(self)
        for member in self:
            if scheduled + remaining < needed:
                break
            remaining -= 1
            scheduled += member.fits
        return self.why.replace(UNSCHEDULABLE, _NOT_ENOUGH.format(needed, scheduled, remaining))

    def enough(self, more: int = 0) -> bool:
        """Whether enough pods of the group have a node, with ``more`` that do not have one now."""
        return self._groups.is_scheduled(self.key, more)

    def waits(self, pod: Pod) -> bool:
        """Whether the pod still needs a node, with this group."""
        return self._groups.has(self.key, pod) and self._state.needs_node(pod)

    def belongs(self, pod: Pod) -> bool:
        """Whether the pod still names this group, or is gone: a label of it may have changed."""
        return self._groups.has(self.key, pod) or not self._state.needs_node(pod)

    def remove(self, member: Member) -> None:
        """Leaves out a pod whose time in flight has ended."""
        self._left.remove(member)

    def drop(self, member: Member) -> None:
        """Leaves out a pod that needs no node any longer, or has left the group: it is tried again without it."""
        self._left.remove(member)
        if self._state.needs_node(member.pod):
            self._failures.error(member.queued, member.profile, _LEFT, started=self.started)
        else:
            self._state.drop(member.pod)

    def assume(self, member: Member, assumed: AssumedPod, *, preempts: bool = False) -> None:
        """A pod is assumed on its node."""
        member.assumed, member.preempts = assumed, preempts
        moved = self._moved.get(assumed.pod.uid)
        if not preempts and moved is not None and moved.node_name == assumed.pod.node_name:
            del self._moved[assumed.pod.uid]

    def still_assumed(self, member: Member) -> bool:
        """Whether a pod that was assumed still is, and belongs to the group; otherwise it is left out."""
        if member.assumed is None:
            return True
        pod = member.assumed.pod
        if self.belongs(pod) and self._state.cache.is_assumed(pod.uid):
            return True
        self.take_back(member)
        self.drop(member)
        return False

    def take_back(self, member: Member, *, again: bool = False) -> None:
        """Unreserves and forgets a pod, if it is assumed.

        Extenders are told, unless the pod is placed ``again``: it may come to the same node.
        """
        assumed, member.assumed = member.assumed, None
        if assumed is None:
            return
        if member.preempts:
            counted = self._state.forget(assumed.pod)
        else:
            counted = self._failures.take_back(assumed, UNSCHEDULABLE, tell=not again)
            if again:
                self._moved[assumed.pod.uid] = assumed.pod
            else:
                self._moved.pop(assumed.pod.uid, None)
        if self._failures.rejections > self._rejections:
            self._freed.append(counted)

    def requeue(self, member: Member, message: str) -> None:
        """Requeues a pod that has no node, and reports ``message``."""
        member.settled = True
        before = self._failures.rejections
        self._failures.requeue(
            member.queued,
            member.profile,
            message,
            self.started,
            member.diagnosis,
            nominated_node=member.nominated,
        )
        self._rejections += self._failures.rejections - before

    async def place_again(self) -> None:
        """Takes all pods back, last first, and forgets what was decided about them."""
        for member in reversed(tuple(self)):
            self.take_back(member, again=True)
            member.reset()
            await self.slice.pause()

    def give_up_moved(self) -> None:
        """Tells extenders of the pods that were to be placed again and did not come back to their nodes."""
        for pod in self._moved.values():
            self._failures.given_up(pod, UNSCHEDULABLE)

    async def wake_others(self) -> None:
        """Wakes pods that may have been rejected because of places that the group has given up.

        To be called when its own pods are requeued: what they have given up does not help them.
        """
        own = frozenset(member.pod.uid for member in self._left)
        for pod in self._freed:
            self._state.freed(pod, self._clock.steady(), but=own)
            await self.slice.pause()
