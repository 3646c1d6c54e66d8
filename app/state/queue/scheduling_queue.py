"""The scheduling queue: which pod is tried next, and when a pod that failed is tried again (docs/spec/queue.md).

Four ideas carry it:

1. **Pods wait for a reason.** A pod that was rejected waits until an event happens that one of the plugins which
   rejected it has registered and, by its hint, welcomes. Waiting costs nothing: pods are filed by what can wake them
   (unschedulable_pods), so an event looks at no other pods.
2. **Nothing is missed while a pod is being tried.** Events that come in the meantime are kept (in_flight) and put to the
   pod's rejectors when it fails, so it waits only for what has not happened yet.
3. **Failures back off.** Exponentially, on whole seconds (backoff); rejected pods may still be tried early when nothing
   else is to do, pods that met an error may not.
4. **A pod is in exactly one place**, and moves by one method, which knows the legal moves (queued_pod).

The queue has no clock and no timer: ``now`` is an argument (seconds since the epoch, by a clock that never jumps), and
``next_flush_time`` says when the flushes have something to do.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from app.model.cluster_event import (
    BACKOFF_COMPLETE,
    EVENTS_DROPPED,
    FORCE_ACTIVATE,
    POP_FROM_BACKOFF_Q,
    SCHEDULE_ATTEMPT_FAILURE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_UPDATE,
    UNSCHEDULABLE_TIMEOUT,
    ClusterEvent,
)
from app.model.pod import Pod
from app.state.nominator import Nominator
from app.state.queue.active_queue import Admits, Lanes
from app.state.queue.backoff import Backoff
from app.state.queue.hints import (
    AFTER_BACKOFF,
    IMMEDIATELY,
    SKIP,
    HintRegistration,
    Hints,
    Strategy,
)
from app.state.queue.in_flight import InFlight
from app.state.queue.pod_heap import PodHeap
from app.state.queue.pre_enqueue import PreEnqueue, PreEnqueueCheck
from app.state.queue.queued_pod import (
    ACTIVE,
    BACKOFF,
    ERROR_BACKOFF,
    GATED,
    IN_FLIGHT,
    LEGAL_MOVES,
    OUTSIDE,
    UNSCHEDULABLE,
    WAITING,
    Cause,
    InvalidTransition,
    Lane,
    Place,
    QueuedPod,
)
from app.state.queue.recorder import NULL_RECORDER, QueueRecorder
from app.state.queue.report import QueueEntry, QueueStatistics
from app.state.queue.unschedulable_pods import WaitingPool
from app.state.queue.update_events import pod_update_events
from app.state.queue.waiting_room import Precheck, WaitingRoom
from app.state.queue.waking import ONE_GO, Wake

#: Pods that have waited too long for an event are looked for this often.
FLUSH_UNSCHEDULABLE_SECONDS: Final = 30

#: So many events may wait for their turn to wake pods.
MAX_PENDING_EVENTS: Final = 1000

#: The name of a place in metrics; gated pods are counted as unschedulable when they come.
_METRIC_QUEUE: Final[Mapping[Place, str]] = {
    ACTIVE: "active",
    BACKOFF: "backoff",
    ERROR_BACKOFF: "backoff",
    UNSCHEDULABLE: "unschedulable",
    GATED: "unschedulable",
}
#: An unschedulable pod that is gated for one of these causes has left the pool and come back, as metrics see it.
_COMING_BACK: Final[frozenset[Cause]] = frozenset({"Event", "Timeout"})
_POD_ADD: Final = UNSCHEDULABLE_POD_ADD.label
_POD_UPDATE: Final = UNSCHEDULABLE_POD_UPDATE.label
#: Events after which the pod's status says where it is nominated.
_NOMINATING_EVENTS: Final = frozenset({_POD_ADD, _POD_UPDATE})
_FORCE_ACTIVATE: Final = FORCE_ACTIVATE.label
#: What AlreadyQueuedError says of each place, in kube-scheduler's words where it has any.
_ALREADY: Final[Mapping[Place, str]] = {
    ACTIVE: "present in the active queue",
    BACKOFF: "present in the backoff queue",
    ERROR_BACKOFF: "present in the backoff queue",
    UNSCHEDULABLE: "present in unschedulable queue",
    GATED: "present in unschedulable queue",
    IN_FLIGHT: "being tried again",
}


class AlreadyQueuedError(Exception):
    """A pod came back from an attempt, but the queue has it already; the attempt's outcome does not matter any more."""


class SchedulingQueue:
    """Pods without a node, from their arrival until their binding begins.

    Pods are known by uid. A pod that takes the name of another that is still here takes its place as well, for the other
    must be gone.
    """

    def __init__(
        self,
        *,
        sort_key: Callable[[QueuedPod], Any],
        pre_enqueue: Callable[[Pod], Iterable[PreEnqueueCheck]],
        hints: Mapping[str, Sequence[HintRegistration]],
        initial_backoff_seconds: float,
        max_backoff_seconds: float,
        max_unschedulable_seconds: float,
        recorder: QueueRecorder = NULL_RECORDER,
        nominator: Nominator | None = None,
        lane: Callable[[Pod], Lane] = lambda _: frozenset(),
    ) -> None:
        """Args:

        sort_key: what the QueueSort plugin orders pods by, the lowest first.
        pre_enqueue: the PreEnqueue plugins of a pod's profile.
        hints: what plugins registered, by scheduler name.
        initial_backoff_seconds, max_backoff_seconds: see Backoff.
        max_unschedulable_seconds: how long a pod waits for an event before it is tried again without one.
        nominator: kept up to date with the pods' updates; if None, the queue has its own.
        lane: what a pod needs besides its turn; the caller of ``pop`` says which lanes are open.
        """
        tickets = itertools.count(1)
        self._max_unschedulable_seconds: Final = max_unschedulable_seconds
        self._recorder: Final = recorder
        self._sort_key: Final = sort_key
        self._pre_enqueue: Final = PreEnqueue(pre_enqueue, recorder)
        self._hints: Final = Hints(hints, recorder)
        self._backoff: Final = Backoff(initial_backoff_seconds, max_backoff_seconds)
        self.nominator: Final = Nominator(lambda _: True) if nominator is None else nominator
        self._pods: Final[dict[str, QueuedPod]] = {}
        self._names: Final[dict[tuple[str, str], QueuedPod]] = {}

        expiration = self._backoff.expiration
        self._lane: Final = lane
        self._active: Final = Lanes(sort_key, tickets, lane)
        self._backing_off: Final = PodHeap(
            lambda queued: (expiration(queued), sort_key(queued)), tickets
        )
        self._backing_off_errors: Final = PodHeap(expiration, tickets)
        self._waiting: Final = WaitingRoom(self._hints, self._pre_enqueue.let_through, tickets)
        #: Events that have not woken all their pods yet, oldest first.
        self._wakes: Final[deque[Wake]] = deque()
        self._in_flight: Final = InFlight(recorder)
        self._queues: Final[Mapping[Place, Lanes | PodHeap | WaitingPool]] = {
            ACTIVE: self._active,
            BACKOFF: self._backing_off,
            ERROR_BACKOFF: self._backing_off_errors,
            UNSCHEDULABLE: self._waiting.unschedulable,
            GATED: self._waiting.gated,
        }
        self._places: Final[Mapping[Place, Lanes | PodHeap | WaitingPool | InFlight]] = {
            **self._queues,
            IN_FLIGHT: self._in_flight,
        }

    # ------------------------------------------------------------ pods come, change and go

    def add(self, pod: Pod, now: float) -> None:
        """Takes in a new pod. One that is here already starts afresh; if it is in flight, this counts as an update."""
        known = self._pods.get(pod.uid)
        if known is None:
            self._enqueue(pod, now, _POD_ADD)
        elif known.place is IN_FLIGHT:
            self._keep_for_return(known.pod, pod)
        else:
            self._move(known, OUTSIDE, "Delete", None, "Delete")
            self._enqueue(pod, now, _POD_ADD)

    def update(self, old: Pod, new: Pod, now: float) -> None:
        """Follows an update.

        Pods in flight see it when they come back, those about to be tried keep their place (by the new sort key), and
        those waiting for an event are woken if their rejectors welcome the change. An unknown pod is taken in; so is
        one that has replaced ``old`` under its name.
        """
        if old.uid != new.uid:
            self.delete(old)
        queued = self._pods.get(new.uid)
        if queued is None:
            self._enqueue(new, now, _POD_UPDATE)
            return
        if queued.place is IN_FLIGHT:
            self._keep_for_return(old, new)
            return
        queued.pod, group = new, queued.group
        self._queues[queued.place].refresh(queued)
        self.nominator.update(old, new)
        if queued.place is UNSCHEDULABLE or queued.place is GATED:
            if self._wakes and queued.group is not group:
                # Events that are pending may have passed its new group already.
                interest = self._wakes[0].interest
                self._requeue(queued, AFTER_BACKOFF, "Event", now, interest.label)
            else:
                self._wake_by_update(queued, old, new, now)

    def delete(self, pod: Pod) -> None:
        """Forgets a pod and its nomination. A pod in flight is left to its attempt."""
        self.nominator.delete(pod)
        queued = self._pods.get(pod.uid)
        if queued is not None and queued.place is not IN_FLIGHT:
            self._move(queued, OUTSIDE, "Delete", None, "Delete")

    # ------------------------------------------------------------ attempts

    def pop(self, now: float, admits: Admits | None = None) -> QueuedPod | None:
        """Hands out the pod to try next; it is in flight until ``done`` or ``add_unschedulable_if_not_present``.

        That is the first active pod of an open lane (``admits``; None: all are open) or, if no pod is active, the rejected
        one whose backoff ends first.
        """
        queued = self.peek(admits)
        if queued is None:
            return None
        event: str = "Pop"
        if queued.place is not ACTIVE:
            event = POP_FROM_BACKOFF_Q
            self._recorder.incoming("active", event)
        queued.attempts += 1
        self._move(queued, IN_FLIGHT, "Pop", now, event)
        return queued

    def peek(self, admits: Admits | None = None) -> QueuedPod | None:
        """What ``pop`` would hand out."""
        queued = self._active.peek(admits)
        if queued is not None or self._active:
            return queued
        queued = self._backing_off.peek()
        if queued is None or admits is None or admits(self._lane(queued.pod)):
            return queued
        return None

    def done(self, uid: str) -> None:
        """Ends a pod's attempt: its binding begins, or there is nothing left to do. Harmless if it has ended."""
        queued = self._pods.get(uid)
        if queued is not None and queued.place is IN_FLIGHT:
            self._move(queued, OUTSIDE, "Done", None, "Done")

    def add_unschedulable_if_not_present(self, queued: QueuedPod, now: float) -> Place:
        """Takes a pod back after a failed attempt, or a failed binding, and returns where it went.

        The caller has set ``queued.pod`` to the latest object and ``queued.reject`` to the plugins that rejected it; none means
        that an error ended the attempt. Raises AlreadyQueuedError if the pod, or another by its name, is here already;
        the attempt has ended then as well.
        """
        self._expect_absent(queued)
        if queued.rejectors:
            queued.unschedulable_count += 1
            queued.consecutive_errors_count = 0
        else:
            queued.consecutive_errors_count += 1
        queued.timestamp = now
        queued.backoff_expiration = 0.0
        queued.was_flushed_from_unschedulable = False
        strategy = self._replay(queued)
        return self._requeue(queued, strategy, "Failure", now, SCHEDULE_ATTEMPT_FAILURE)

    # ------------------------------------------------------------ events

    def move_all(
        self,
        event: ClusterEvent,
        old: object | None,
        new: object | None,
        now: float,
        precheck: Precheck | None = None,
    ) -> int:
        """Wakes the waiting pods that an event may help and that pass ``precheck``; returns how many it woke.

        ``old`` and ``new`` are the object before and after; either is None. Pods in flight see the event when they
        come back. An event without a registered hint is forgotten at once. Where very many pods wait, the rest is
        left to ``continue_waking``.
        """
        interest = self._hints.interest(event)
        if interest.nobody:
            return 0
        moved = 0
        if self._waiting.unschedulable or self._waiting.gated:
            wake = Wake(self._waiting, interest, old, new, now, precheck)
            if not self._wakes:
                self._wakes.append(wake)
                moved = self.continue_waking()
            elif len(self._wakes) < MAX_PENDING_EVENTS:
                wake.defer()
                self._wakes.append(wake)
            else:
                self._wake_all_instead(now)
        self._in_flight.record(interest, old, new)
        return moved

    def _wake_all_instead(self, now: float) -> None:
        """Drops the pending events: all pods that wait are woken."""
        interest = self._hints.interest(EVENTS_DROPPED)
        dropped = [wake for wake in self._wakes if wake.interest is not interest]
        self._recorder.events_dropped(len(dropped) + 1)
        self._wakes.clear()
        wake = Wake(self._waiting, interest, None, None, now, None)
        wake.defer()
        self._wakes.append(wake)

    @property
    def heeds_events(self) -> bool:
        """Whether an event can mean anything to a pod here: some wait for one, or will see it when they come back."""
        waiting = self._waiting
        return bool(waiting.unschedulable or waiting.gated or self._in_flight)

    def continue_waking(self) -> int:
        """Does a part of what events have left to do, the oldest event first; returns how many pods it woke."""
        moved, effort = 0, ONE_GO
        while self._wakes and effort > 0:
            wake = self._wakes[0]
            effort, moves = wake.go(effort, self._sort_key)
            for queued, strategy in moves:
                place = self._requeue(queued, strategy, "Event", wake.now, wake.interest.label)
                moved += place is not GATED
            if wake.over:
                self._wakes.popleft()
        return moved

    def activate(self, pods: Iterable[Pod], now: float) -> int:
        """Makes pods active whatever they wait for, though not past a PreEnqueue plugin; returns how many it made.

        A pod in flight will not wait for an event if it fails. Pods that are active or unknown are left alone.
        """
        moved = 0
        for pod in pods:
            queued = self._pods.get(pod.uid)
            if queued is None:
                continue
            if queued.place is IN_FLIGHT:
                self._in_flight.record(self._hints.interest(FORCE_ACTIVATE), None, pod)
            elif queued.place is BACKOFF or queued.place is ERROR_BACKOFF:
                self._make_active(queued, "Activate", now, _FORCE_ACTIVATE)
                moved += 1
            elif queued.place is not ACTIVE:
                place = self._requeue(queued, IMMEDIATELY, "Activate", now, _FORCE_ACTIVATE)
                moved += place is ACTIVE
        return moved

    # ------------------------------------------------------------ time

    def flush_backoff(self, now: float) -> int:
        """Makes the pods active whose backoff is over, not too many in one go; returns how many."""
        moved = 0
        for heap in (self._backing_off, self._backing_off_errors):
            while (
                moved < ONE_GO
                and (queued := heap.peek())
                and not self._backoff.is_backing_off(queued, now)
            ):
                self._make_active(queued, "BackoffComplete", now, BACKOFF_COMPLETE)
                moved += 1
        return moved

    def flush_unschedulable(self, now: float) -> int:
        """Wakes the pods that have waited for an event for too long, not too many in one go; returns how many.

        Gated pods wait on.
        """
        interest = self._hints.interest(UNSCHEDULABLE_TIMEOUT)
        moved = 0
        while (
            moved < ONE_GO
            and (queued := self._waiting.unschedulable.oldest())
            and self._overdue(queued, now)
        ):
            queued.was_flushed_from_unschedulable = True
            self._requeue(queued, AFTER_BACKOFF, "Timeout", now, interest.label)
            moved += 1
        if moved:
            self._in_flight.record(interest, None, None)
        return moved

    def next_flush_time(self, now: float) -> float | None:
        """When to flush, or to continue waking, next, at least ``now``; None if there is nothing to wait for.

        Backoffs end on whole seconds; overdue pods are gathered in steps of FLUSH_UNSCHEDULABLE_SECONDS.
        """
        if self._wakes:
            return now
        times = [
            self._backoff.release_time(queued)
            for heap in (self._backing_off, self._backing_off_errors)
            if (queued := heap.peek())
        ]
        if oldest := self._waiting.unschedulable.oldest():
            deadline = oldest.timestamp + self._max_unschedulable_seconds
            steps = math.floor(deadline / FLUSH_UNSCHEDULABLE_SECONDS) + 1
            times.append(float(steps * FLUSH_UNSCHEDULABLE_SECONDS))
        return max(now, min(times)) if times else None

    # ------------------------------------------------------------ looking in

    def __len__(self) -> int:
        """How many pods wait, in whatever place; those in flight not counted."""
        return len(self._pods) - len(self._in_flight)

    @property
    def ready(self) -> bool:
        """Whether ``pop`` would hand out a pod, were all lanes open."""
        return bool(self._active or self._backing_off)

    def get(self, uid: str) -> QueuedPod | None:
        """The pod, if it waits or is in flight."""
        return self._pods.get(uid)

    def where(self, uid: str) -> Place:
        """Where a pod is; OUTSIDE if the queue does not know it."""
        queued = self._pods.get(uid)
        return OUTSIDE if queued is None else queued.place

    def count(self, place: Place) -> int:
        """How many pods are in a place other than OUTSIDE."""
        return len(self._places[place])

    def statistics(self) -> QueueStatistics:
        """All the counts."""
        return QueueStatistics(
            active=len(self._active),
            backoff=len(self._backing_off),
            error_backoff=len(self._backing_off_errors),
            unschedulable=len(self._waiting.unschedulable),
            gated=len(self._waiting.gated),
            in_flight=len(self._in_flight),
            in_flight_events=self._in_flight.event_count,
        )

    def pending_pods(self) -> list[Pod]:
        """The pods that wait: active ones in their order, then those backing off, then the others."""
        return [queued.pod for pods in self._queues.values() for queued in pods]

    def in_flight_pods(self) -> list[Pod]:
        """The pods in flight, in the order in which they were popped."""
        return [queued.pod for queued in self._in_flight]

    def all_pods(self) -> list[QueuedPod]:
        """The pods that wait or are in flight, in the order in which they came, whatever their place."""
        return list(self._pods.values())

    def dump(self) -> list[QueueEntry]:
        """Everything known about every pod, place by place."""
        return [QueueEntry.of(queued) for place in self._places.values() for queued in place]

    # ------------------------------------------------------------ moving

    def _move(
        self, queued: QueuedPod, finish: Place, cause: Cause, now: float | None, event: str
    ) -> None:
        """Moves a pod; everything that has to do with changing places happens here."""
        start = queued.place
        if (start, cause, finish) not in LEGAL_MOVES:
            raise InvalidTransition(queued.pod.key, start, finish, queued.story)
        if start is OUTSIDE:
            self._register(queued)
        else:
            self._places[start].remove(queued)
        queued.place = finish
        queued.note(now, event)
        if finish is OUTSIDE:
            self._unregister(queued)
        else:
            try:
                self._places[finish].add(queued)
            except Exception:
                queued.place = OUTSIDE
                self._unregister(queued)
                raise
        self._report(queued, start, finish, cause, event)

    def _report(
        self, queued: QueuedPod, start: Place, finish: Place, cause: Cause, event: str
    ) -> None:
        came = _METRIC_QUEUE.get(finish)
        if came is not None and (came != _METRIC_QUEUE.get(start) or cause in _COMING_BACK):
            self._recorder.incoming(came, event)
        rejectors = queued.rejectors
        if rejectors and (start in WAITING) is not (waits := finish in WAITING):
            profile = queued.pod.spec.scheduler_name
            for plugin in rejectors:
                self._recorder.unschedulable(plugin, profile, 1 if waits else -1)

    def _register(self, queued: QueuedPod) -> None:
        pod = queued.pod
        self._pods[pod.uid] = queued
        self._names[pod.namespace, pod.name] = queued

    def _unregister(self, queued: QueuedPod) -> None:
        pod = queued.pod
        del self._pods[pod.uid]
        name = (pod.namespace, pod.name)
        if self._names.get(name) is queued:
            del self._names[name]

    def _enqueue(self, pod: Pod, now: float, event: str) -> None:
        namesake = self._names.get((pod.namespace, pod.name))
        if namesake is not None:
            self.delete(namesake.pod)
        self._requeue(QueuedPod(pod, now), IMMEDIATELY, "Add", now, event)

    def _requeue(
        self, queued: QueuedPod, strategy: Strategy, cause: Cause, now: float, event: str
    ) -> Place:
        """Sends a pod where ``strategy`` and the PreEnqueue plugins want it, and returns the place."""
        if strategy is SKIP:
            self._move(queued, UNSCHEDULABLE, cause, now, event)
        elif not self._pre_enqueue.admits(queued):
            if queued.place is GATED:
                self._queues[queued.place].refresh(queued)
            else:
                self._move(queued, GATED, cause, now, event)
        elif strategy is AFTER_BACKOFF and self._backoff.is_backing_off(queued, now):
            place = BACKOFF if queued.rejectors else ERROR_BACKOFF
            self._move(queued, place, cause, now, event)
        else:
            self._make_active(queued, cause, now, event)
        return queued.place

    def _make_active(self, queued: QueuedPod, cause: Cause, now: float, event: str) -> None:
        if queued.initial_attempt_timestamp is None:
            queued.initial_attempt_timestamp = now
        self._move(queued, ACTIVE, cause, now, event)
        if event in _NOMINATING_EVENTS:
            self.nominator.add(queued.pod)

    # ------------------------------------------------------------ waking

    def _wake_by_update(self, queued: QueuedPod, old: Pod, new: Pod, now: float) -> None:
        for event in pod_update_events(old, new):
            interest = self._hints.interest(event)
            strategy = self._hints.worth_requeuing(queued, interest, old, new)
            if strategy is not SKIP:
                place = self._requeue(queued, strategy, "Update", now, interest.label)
                if place is not GATED:
                    return

    def _keep_for_return(self, old: Pod, new: Pod) -> None:
        for event in pod_update_events(old, new):
            self._in_flight.record(self._hints.interest(event), old, new)

    def _replay(self, queued: QueuedPod) -> Strategy:
        """How to queue a failed pod, by what has happened since it was popped; it is retried where that is unknown."""
        happenings = self._in_flight.since(queued)
        if not queued.rejectors or happenings is None:
            return AFTER_BACKOFF
        strategy = SKIP
        for interest, old, new in happenings:
            verdict = self._hints.worth_requeuing(queued, interest, old, new)
            strategy = max(strategy, verdict)
            if strategy is IMMEDIATELY or (
                strategy is AFTER_BACKOFF and not queued.pending_plugins
            ):
                break
        return strategy

    def _expect_absent(self, queued: QueuedPod) -> None:
        """Raises AlreadyQueuedError, having ended the attempt, if the pod or its successor is here already."""
        pod = queued.pod
        for known in (self._pods.get(pod.uid), self._names.get((pod.namespace, pod.name))):
            if known is not None and (known is not queued or queued.place is not IN_FLIGHT):
                if queued.place is IN_FLIGHT:
                    self._move(queued, OUTSIDE, "Done", None, "Done")
                raise AlreadyQueuedError(f"Pod {pod.key} is already {_ALREADY[known.place]}")

    def _overdue(self, queued: QueuedPod, now: float) -> bool:
        return now - queued.timestamp > self._max_unschedulable_seconds
