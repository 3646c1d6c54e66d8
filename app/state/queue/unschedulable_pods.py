"""Pods that wait for a cluster event, and which of them an event moves (kube-scheduler's unschedulablePods).

See docs/spec/queue.md#requeueing-decision.

Waiting pods of one template and PodGroup that were rejected by the same plugins form a group. Every group is listed
under the plugins whose events can wake it, so an event looks at no other pods. One event may concern many thousands of
pods, and other work must not wait for all of them: a PendingEvent is therefore applied in steps.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import Any, Final

from app.model.cluster_event import EVENTS_DROPPED
from app.model.pod import Pod, PodTemplate
from app.state.queue.hints import (
    AFTER_BACKOFF,
    SKIP,
    EventInterest,
    EventRegistration,
    Hints,
    QueueingStrategy,
    is_same_pod,
    narrowed,
)
from app.state.queue.pod_heap import PodHeap
from app.state.queue.pre_enqueue import PreEnqueue
from app.state.queue.queued_pod import GATED, UNSCHEDULABLE, QueuedPod

#: The most groups evaluated and pods moved, together, in one step: at most about 10 milliseconds.
MAX_STEP: Final = 500

#: Whether an event may concern a pod at all; evaluated before any hint.
Precheck = Callable[[Pod], bool]

#: Template, all rejectors, the pending ones among them, the gating plugin, and the PodGroup's name.
_AlikeKey = tuple[PodTemplate, frozenset[str], frozenset[str], str, str]

#: A pod, and how to queue it again.
Requeue = tuple[QueuedPod, QueueingStrategy]

_UNKNOWN_PROFILE: Final = "unknown profile"


class _WaitingGroup:
    """Waiting pods that share their template, the plugins that rejected them, and the plugin that gates them."""

    __slots__ = ("gating_plugin", "key", "pods", "rejectors", "template", "wakers")

    def __init__(self, key: _AlikeKey) -> None:
        self.key: Final = key
        self.template, self.rejectors, _, self.gating_plugin, _ = key
        #: By uid, in the order of arrival.
        self.pods: Final[dict[str, QueuedPod]] = {}
        #: What the group is listed under.
        self.wakers: tuple[Hashable, ...] = ()

    @property
    def profile(self) -> str:
        """The pods' scheduler name."""
        return self.template.spec.scheduler_name


def _group_key(queued: QueuedPod) -> _AlikeKey:
    return (
        queued.pod.template,
        frozenset(queued.rejectors),
        frozenset(queued.pending_plugins),
        queued.gating_plugin,
        queued.pod.pod_group_name,
    )


class WaitingPool:
    """Pods by group, and groups by what can wake them."""

    def __init__(self, wakers: Callable[[_WaitingGroup], Iterable[Hashable]]) -> None:
        """``wakers`` returns what a new group is listed under."""
        self._wakers: Final = wakers
        self._groups: Final[dict[_AlikeKey, _WaitingGroup]] = {}
        self._woken_by: Final[dict[Hashable, dict[_WaitingGroup, None]]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods, group by group."""
        return (queued for group in self._groups.values() for queued in group.pods.values())

    @property
    def groups(self) -> Collection[_WaitingGroup]:
        """All groups, oldest first."""
        return self._groups.values()

    def woken_by(self, waker: Hashable) -> Collection[_WaitingGroup]:
        """The groups listed under ``waker``, oldest first."""
        return self._woken_by.get(waker, ())

    def add(self, queued: QueuedPod) -> None:
        """Adds a pod to its group."""
        key = _group_key(queued)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._list(_WaitingGroup(key))
        group.pods[queued.pod.uid] = queued
        queued.group = group
        self._length += 1

    def remove(self, queued: QueuedPod) -> None:
        """Removes a pod."""
        group: _WaitingGroup = queued.group
        queued.group = None
        del group.pods[queued.pod.uid]
        if not group.pods:
            self._unlist(group)
        self._length -= 1

    def refresh(self, queued: QueuedPod) -> None:
        """Moves a pod that has changed to its present group."""
        if queued.group.key != _group_key(queued):
            self.remove(queued)
            self.add(queued)

    def _list(self, group: _WaitingGroup) -> _WaitingGroup:
        group.wakers = tuple(self._wakers(group))
        for waker in group.wakers:
            self._woken_by.setdefault(waker, {})[group] = None
        return group

    def _unlist(self, group: _WaitingGroup) -> None:
        del self._groups[group.key]
        for waker in group.wakers:
            listed = self._woken_by[waker]
            del listed[group]
            if not listed:
                del self._woken_by[waker]


class _AgedPool(WaitingPool):
    """A pool that also sorts its pods by age."""

    def __init__(
        self, wakers: Callable[[_WaitingGroup], Iterable[Hashable]], tickets: Iterator[int]
    ) -> None:
        """``tickets``: see PodHeap."""
        super().__init__(wakers)
        self._by_age: Final = PodHeap(lambda queued: queued.timestamp, tickets)

    def add(self, queued: QueuedPod) -> None:
        """Adds a pod to its group."""
        super().add(queued)
        self._by_age.add(queued)

    def remove(self, queued: QueuedPod) -> None:
        """Removes a pod."""
        super().remove(queued)
        self._by_age.remove(queued)

    def oldest(self) -> QueuedPod | None:
        """The pod with the earliest timestamp; None if the pool is empty."""
        return self._by_age.peek()


class UnschedulablePods:
    """The unschedulable pods and the gated pods.

    Unschedulable pods are listed under each of their rejectors. Gated pods are listed under the plugin that gates them:
    an event moves them only if this plugin registered it and lets the pod through now, whichever other plugins rejected
    them. A hint that depends on a pod's template only is evaluated once per group.
    """

    def __init__(self, hints: Hints, pre_enqueue: PreEnqueue, tickets: Iterator[int]) -> None:
        """``tickets``: see PodHeap."""
        self._hints: Final = hints
        self._pre_enqueue: Final = pre_enqueue
        self.unschedulable: Final = _AgedPool(self._wakers, tickets)
        self.gated: Final = WaitingPool(lambda group: (group.gating_plugin,))

    def __bool__(self) -> bool:
        return bool(self.unschedulable or self.gated)

    def candidates(self, interest: EventInterest) -> Sequence[_WaitingGroup]:
        """The groups rejected by a plugin that registered the event, each once; all groups for EVENTS_DROPPED."""
        if not self:
            return ()
        if interest.event == EVENTS_DROPPED:
            return (*self.unschedulable.groups, *self.gated.groups)
        found: dict[_WaitingGroup, None] = {}
        if interest.wildcard:
            found.update(dict.fromkeys(self.unschedulable.groups))
        else:
            for waker in (*interest.wakers, _UNKNOWN_PROFILE):
                found.update(dict.fromkeys(self.unschedulable.woken_by(waker)))
        for plugin in interest.plugins:
            found.update(dict.fromkeys(self.gated.woken_by(plugin)))
        return tuple(found)

    def evaluate(
        self,
        group: _WaitingGroup,
        interest: EventInterest,
        old: object | None,
        new: object | None,
        precheck: Precheck | None = None,
    ) -> Sequence[Requeue]:
        """The pods of a group that the event may help and that pass ``precheck``, with how to queue each again."""
        common, each = self._evaluate_once(group, interest, old, new)
        if common is SKIP and not each:
            return ()
        pods: Collection[QueuedPod] = group.pods.values()
        few = narrowed(each, group.template, old, new) if common is SKIP else None
        if few is not None:
            pods = [group.pods[uid] for uid in few if uid in group.pods]
        if pods and group.gating_plugin:
            pods = self._pre_enqueue.let_through(group.gating_plugin, pods)
        if interest.wildcard and new is not None:  # such an event concerns this one pod
            pods = [queued for queued in pods if is_same_pod(new, queued.pod)]
        if precheck is not None:
            pods = [queued for queued in pods if precheck(queued.pod)]
        if not each:
            return [(queued, common) for queued in pods]
        moves = []
        for queued in pods:
            strategy = self._hints.ask(each, queued, old, new, floor=common)
            if strategy is not SKIP:
                moves.append((queued, strategy))
        return moves

    def _evaluate_once(
        self, group: _WaitingGroup, interest: EventInterest, old: object | None, new: object | None
    ) -> tuple[QueueingStrategy, Sequence[EventRegistration]]:
        """The answer of the hints that depend on the template only, and the hints that do not."""
        if interest.wildcard or not self._hints.knows(group.profile):
            return AFTER_BACKOFF, ()
        matching = self._hints.matching(interest, group.profile, group.rejectors)
        sample = next(iter(group.pods.values()))
        once = [registration for registration in matching if registration.asked_once]
        common = self._hints.ask(once, sample, old, new)
        return common, [registration for registration in matching if not registration.asked_once]

    def _wakers(self, group: _WaitingGroup) -> Iterable[Hashable]:
        if not self._hints.knows(group.profile):
            return (_UNKNOWN_PROFILE,)
        return ((group.profile, plugin) for plugin in group.rejectors)


class PendingEvent:
    """One cluster event that is applied to the waiting pods in steps.

    First every candidate group is evaluated, then the pods to move are returned. The candidates are the groups at the
    time of the first step. If that takes more than one step, or if the first step is deferred, other events come in
    between. Pods that were tried meanwhile are then skipped: they were tried after the event. Pods are returned in the
    order of the queue's sort key, so that the first ones can be tried before all have been moved.
    """

    def __init__(
        self,
        pods: UnschedulablePods,
        interest: EventInterest,
        old: object | None,
        new: object | None,
        now: float,
        precheck: Precheck | None,
    ) -> None:
        """``now``: when the event happened, in seconds since the epoch."""
        #: What was taken of the budget for this event: see ByteBudget.take.
        self.taken: tuple[int, PodTemplate | None] = (0, None)
        self.interest: Final = interest
        self.now: Final = now
        self._pods: Final = pods
        self._evaluate: Final[Callable[[_WaitingGroup], Sequence[Requeue]]] = lambda group: (
            pods.evaluate(group, interest, old, new, precheck)
        )
        self._groups: Iterator[_WaitingGroup] | None = None
        #: The pods to move, by group.
        self._found: list[Sequence[Requeue]] = []
        #: The same in the order in which they are returned.
        self._moves: Iterator[Requeue] = iter(())
        self._left = 0
        self._evaluated = False
        self._interrupted = False

    def defer(self) -> None:
        """Notes that other events are applied before this one."""
        self._interrupted = True

    @property
    def over(self) -> bool:
        """Whether the event has been applied to all pods."""
        return self._evaluated and not self._left

    def step(
        self, effort: int, sort_key: Callable[[QueuedPod], Any]
    ) -> tuple[int, Sequence[Requeue]]:
        """Does a part of the work: one unit of ``effort`` for each group evaluated and each pod returned.

        Returns the effort left (0 if the work is not over) and the pods to move now.
        """
        if not self._evaluated:
            effort = self._evaluate_groups(effort)
            if effort <= 0:
                self._interrupted = True
                return 0, ()
            self._moves = self._in_order(effort, sort_key)
        moves = list(islice(self._moves, effort))
        effort -= len(moves)
        self._left -= len(moves)
        if self._interrupted:
            moves = [move for move in moves if self._still_waits(move[0])]
        self._interrupted = not self.over
        return effort, moves

    def _evaluate_groups(self, effort: int) -> int:
        if self._groups is None:
            self._groups = iter(self._pods.candidates(self.interest))
        for group in islice(self._groups, effort):
            effort -= 1
            if group.pods and (moves := self._evaluate(group)):
                self._found.append(moves)
                self._left += len(moves)
        self._evaluated = effort > 0
        return effort

    def _in_order(self, effort: int, sort_key: Callable[[QueuedPod], Any]) -> Iterator[Requeue]:
        """The pods found: group by group if one step can return all of them, else by the sort key.

        The pods of a group have the same priority and are in order of arrival, so each group is sorted already.
        """
        if self._left <= effort:
            return chain.from_iterable(self._found)
        return merge(*self._found, key=lambda move: sort_key(move[0]))

    def _still_waits(self, queued: QueuedPod) -> bool:
        """Whether the pod has been waiting since before the event."""
        place = queued.place
        return (place is UNSCHEDULABLE or place is GATED) and queued.timestamp <= self.now
