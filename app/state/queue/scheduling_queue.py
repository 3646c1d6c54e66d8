"""The scheduling queue: which pod is tried next, and when a pod that failed is tried again (docs/spec/queue.md).

1. **Rejected pods wait for events.** A rejected pod waits for an event that one of its rejecting plugins has registered
   and whose hint returns Queue. Pods are indexed by what can wake them (unschedulable_pods), so an event costs nothing
   for the other pods.
2. **No event is lost while a pod is being tried.** Events during an attempt are kept (active_queue.InFlight). When the
   attempt fails, its rejecting plugins are asked about them.
3. **Failed pods back off**, exponentially and in whole seconds (backoff_queue). If no pod is active, a rejected pod is
   popped before its backoff ends; a pod that met an error is not.
4. **A preemptor keeps its turn.** A nominated pod that becomes active again has the timestamp of its first attempt: it
  is
   tried before pods of its priority that arrived later, and the first preemptors are bound while the last ones wait.
5. **A pod is in exactly one place.** All moves go through one method, which checks them against a table (queued_pod).

The queue has no clock and no timer: ``now`` is an argument (seconds since the epoch, from a clock that does not jump),
and ``next_flush_time`` returns when to flush next.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from app.model.budget import UNLIMITED, ByteBudget, memory_of, template_of
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
from app.state.queue.active_queue import ActiveQueue, Admits, InFlight
from app.state.queue.backoff_queue import BackoffQueue, RetryTimes
from app.state.queue.hints import (
    AFTER_BACKOFF,
    IMMEDIATELY,
    SKIP,
    EventRegistration,
    Hints,
    QueueingStrategy,
)
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
    InvalidTransition,
    Lane,
    MoveCause,
    Place,
    QueuedPod,
    QueueStatistics,
    no_lane,
)
from app.state.queue.recorder import QueueRecorder, report_move
from app.state.queue.unschedulable_pods import (
    MAX_STEP,
    PendingEvent,
    Precheck,
    UnschedulablePods,
    WaitingPool,
)
from app.state.queue.update_events import pod_update_events

#: The interval of the flush that retries pods which have waited too long for an event.
FLUSH_UNSCHEDULABLE_SECONDS: Final = 30

#: The most events that may wait to be applied.
MAX_PENDING_EVENTS: Final = 1000

_FORCE_ACTIVATE: Final = FORCE_ACTIVATE.label
#: The text of AlreadyQueuedError for each place; kube-scheduler's text where there is one.
_ALREADY: Final[Mapping[Place, str]] = {
    ACTIVE: "present in the active queue",
    BACKOFF: "present in the backoff queue",
    ERROR_BACKOFF: "present in the backoff queue",
    UNSCHEDULABLE: "present in unschedulable queue",
    GATED: "present in unschedulable queue",
    IN_FLIGHT: "being tried again",
}


class AlreadyQueuedError(Exception):
    """A pod returned from an attempt, but the queue has it already; the outcome of the attempt is ignored."""


class QueuePlugins(msgspec.Struct, frozen=True):
    """What the plugins of all profiles say about the queue."""

    #: QueueSort: the pod with the lowest key is popped first.
    sort_key: Callable[[QueuedPod], Any]
    #: The PreEnqueue plugins of a pod's profile.
    pre_enqueue: Callable[[Pod], Iterable[PreEnqueueCheck]] = lambda _pod: ()
    #: The registrations of events and hints, by scheduler name.
    hints: Mapping[str, Sequence[EventRegistration]] = {}
    #: Whether changes of a waiting pod are events of their own by name, as from Kubernetes 1.37 on.
    own_events: bool = False


class SchedulingQueue:
    """Pods without a node, from their arrival until their binding begins.

    Pods are identified by uid. A new pod with the namespace and name of another pod replaces that pod, which must have
    been deleted.
    """

    def __init__(
        self,
        plugins: QueuePlugins,
        nominator: Nominator,
        *,
        times: RetryTimes = RetryTimes(),  # noqa: B008 - frozen
        recorder: QueueRecorder = QueueRecorder(),  # noqa: B008 - has no state
        lane: Callable[[Pod], Lane] = no_lane,
        in_flight_budget: ByteBudget | None = None,
        pending_budget: ByteBudget | None = None,
    ) -> None:
        """Creates an empty queue.

        nominator: updated with the pods.
        lane: returns a pod's lane, that is, what it needs besides its turn (see ActiveQueue).
        in_flight_budget: the memory for events that are kept for pods in flight; without a limit if None.
        pending_budget: the same for events that are not applied to all waiting pods yet.
        """
        tickets = itertools.count(1)
        self._max_unschedulable_seconds: Final = times.max_unschedulable
        self._recorder: Final = recorder
        self._sort_key: Final = plugins.sort_key
        self._lane: Final = lane
        self._pre_enqueue: Final = PreEnqueue(plugins.pre_enqueue, recorder)
        self._hints: Final = Hints(plugins.hints, recorder, own_events=plugins.own_events)
        self._pod_add: Final = self._hints.label(UNSCHEDULABLE_POD_ADD)
        self._pod_update: Final = self._hints.label(UNSCHEDULABLE_POD_UPDATE)
        #: Events after which the nomination in the pod's status is taken over.
        self._nominating: Final = frozenset({self._pod_add, self._pod_update})
        self.nominator: Final = nominator
        self._pods: Final[dict[str, QueuedPod]] = {}
        self._names: Final[dict[tuple[str, str], QueuedPod]] = {}

        self._active: Final = ActiveQueue(plugins.sort_key, tickets, lane)
        self._backoff: Final = BackoffQueue(times, plugins.sort_key, tickets)
        self._waiting: Final = UnschedulablePods(self._hints, self._pre_enqueue, tickets)
        #: Events that have not been applied to all waiting pods yet, oldest first.
        self._pending_events: Final[deque[PendingEvent]] = deque()
        self._pending_budget: Final = pending_budget or ByteBudget(UNLIMITED)
        self._in_flight: Final = InFlight(recorder, in_flight_budget or ByteBudget(UNLIMITED))
        self._queues: Final[Mapping[Place, ActiveQueue | PodHeap | WaitingPool]] = {
            ACTIVE: self._active,
            BACKOFF: self._backoff.rejected,
            ERROR_BACKOFF: self._backoff.errors,
            UNSCHEDULABLE: self._waiting.unschedulable,
            GATED: self._waiting.gated,
        }
        self._places: Final[Mapping[Place, ActiveQueue | PodHeap | WaitingPool | InFlight]] = {
            **self._queues,
            IN_FLIGHT: self._in_flight,
        }

    # ------------------------------------------------------------ adding, updating, deleting

    def add(self, pod: Pod, now: float) -> None:
        """Adds a new pod. A pod that is known already starts again; if it is in flight, this counts as an update."""
        known = self._pods.get(pod.uid)
        if known is None:
            self._enqueue(pod, now, self._pod_add)
        elif known.place is IN_FLIGHT:
            self._keep_for_return(known.pod, pod)
        else:
            self._move(known, OUTSIDE, "Delete", None, "Delete")
            self._enqueue(pod, now, self._pod_add)

    def update(self, old: Pod, new: Pod, now: float) -> None:
        """Handles an update of a pod.

        Active pods and pods that back off stay where they are, sorted by the new key. A pod that waits for an event is
        moved if a rejecting plugin's hint says so; for a pod in flight this is decided when its attempt fails. An
        unknown pod is added, and so is one that has replaced ``old`` under its name.
        """
        if old.uid != new.uid:
            self.delete(old)
        queued = self._pods.get(new.uid)
        if queued is None:
            self._enqueue(new, now, self._pod_update)
            return
        if queued.place is IN_FLIGHT:
            self._keep_for_return(old, new)
            return
        queued.pod, group = new, queued.group
        self._queues[queued.place].refresh(queued)
        self.nominator.update(old, new)
        if queued.place is UNSCHEDULABLE or queued.place is GATED:
            if self._pending_events and queued.group is not group:
                # Pending events may already have been applied to its new group.
                interest = self._pending_events[0].interest
                self._requeue(queued, AFTER_BACKOFF, "Event", now, interest.label)
            else:
                self._wake_by_update(queued, old, new, now)

    def refresh_lanes(self, namespace: str) -> None:
        """Moves the active pods of a namespace to their lanes."""
        for queued in [each for each in self._active if each.pod.namespace == namespace]:
            self._active.refresh(queued)

    def delete(self, pod: Pod) -> None:
        """Removes a pod and its nomination. A pod in flight is not removed: its attempt ends by itself."""
        self.nominator.delete(pod)
        queued = self._pods.get(pod.uid)
        if queued is not None and queued.place is not IN_FLIGHT:
            self._move(queued, OUTSIDE, "Delete", None, "Delete")

    # ------------------------------------------------------------ attempts

    def pop(self, now: float, admits: Admits | None = None) -> QueuedPod | None:
        """Returns the pod to try next; it is in flight until ``done`` or ``add_unschedulable_if_not_present``.

        That is the first active pod whose lane is open (``admits``; None: all are) or, if no pod is active, the
        rejected pod whose backoff ends first.
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

    def pop_pods(self, uids: Iterable[str], now: float) -> list[QueuedPod]:
        """Pops certain pods that PreEnqueue admits, whether active or not; those in flight and unknown ones are left
        out."""
        popped = []
        for uid in uids:
            queued = self._pods.get(uid)
            if queued is None or queued.place is IN_FLIGHT:
                continue
            self.activate((queued.pod,), now)
            if queued.place is ACTIVE:
                queued.attempts += 1
                self._move(queued, IN_FLIGHT, "Pop", now, "Pop")
                popped.append(queued)
        return popped

    def peek(self, admits: Admits | None = None) -> QueuedPod | None:
        """The pod that ``pop`` would return; None if there is none."""
        queued = self._active.peek(admits)
        if queued is not None or self._active:
            return queued
        queued = self._backoff.rejected.peek()
        if queued is None:
            return None
        queued.lane = self._lane(queued.pod)
        return queued if admits is None or admits(queued) else None

    def done(self, uid: str) -> None:
        """Ends a pod's attempt: its binding begins, or there is nothing left to do. Does nothing if it has ended."""
        queued = self._pods.get(uid)
        if queued is not None and queued.place is IN_FLIGHT:
            self._move(queued, OUTSIDE, "Done", None, "Done")

    def add_unschedulable_if_not_present(self, queued: QueuedPod, now: float) -> Place:
        """Queues a pod again after a failed attempt or a failed binding, and returns its place.

        The caller has set ``queued.pod`` to the latest object and has called ``queued.reject`` with the plugins that
        rejected it; without any, an error ended the attempt. Raises AlreadyQueuedError if the pod, or another pod with
        its name, is queued already; the attempt has ended then as well.
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
        """Moves the waiting pods that an event may help and that pass ``precheck``; returns the number of pods moved.

        ``old`` and ``new`` are the object before and after the event; at most one is None unless the event has no
        object. The event is kept for pods in flight. An event that no plugin registered is ignored. If very many pods
        wait, ``continue_waking`` moves the rest.
        """
        interest = self._hints.interest(event)
        if interest.is_unregistered:
            return 0
        moved = 0
        counted = self._in_flight or self._pending_events
        size = memory_of(old) + memory_of(new) if counted else 0
        if self._waiting:
            pending = PendingEvent(self._waiting, interest, old, new, now, precheck)
            if not self._pending_events:
                self._pending_events.append(pending)
                moved = self.continue_waking()
            elif len(self._pending_events) < MAX_PENDING_EVENTS and self._pending_budget.take(
                size, template := template_of(old, new)
            ):
                pending.taken = size, template
                pending.defer()
                self._pending_events.append(pending)
            else:
                self._wake_all_instead(now)
        self._in_flight.record(interest, old, new, size)
        return moved

    def _wake_all_instead(self, now: float) -> None:
        """Replaces the pending events by one that moves every waiting pod."""
        interest = self._hints.interest(EVENTS_DROPPED)
        dropped = [pending for pending in self._pending_events if pending.interest is not interest]
        self._recorder.events_dropped(len(dropped) + 1)
        for pending in self._pending_events:
            self._pending_budget.give_back(*pending.taken)
        self._pending_events.clear()
        pending = PendingEvent(self._waiting, interest, None, None, now, None)
        pending.defer()
        self._pending_events.append(pending)

    @property
    def awaits_events(self) -> bool:
        """Whether an event can concern any pod: some wait for events or are in flight."""
        return bool(self._waiting or self._in_flight)

    def continue_waking(self) -> int:
        """Applies pending events, oldest first, for one step; returns the number of pods moved."""
        moved, effort = 0, MAX_STEP
        while self._pending_events and effort > 0:
            pending = self._pending_events[0]
            effort, moves = pending.step(effort, self._sort_key)
            for queued, strategy in moves:
                place = self._requeue(
                    queued, strategy, "Event", pending.now, pending.interest.label
                )
                moved += place is not GATED
            if pending.over:
                self._pending_events.popleft()
                self._pending_budget.give_back(*pending.taken)
        return moved

    def activate(self, pods: Iterable[Pod], now: float) -> int:
        """Activates pods that PreEnqueue admits, whatever they wait for; returns the number of pods activated.

        A pod in flight is retried without waiting for an event if it fails. Active and unknown pods are ignored.
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

    def try_again(self, pods: Iterable[Pod], event: ClusterEvent, now: float) -> None:
        """Moves pods that were rejected, as if a plugin that rejected them had registered the event."""
        interest = self._hints.interest(event)
        for pod in pods:
            queued = self._pods.get(pod.uid)
            if queued is None:
                continue
            if queued.place is IN_FLIGHT:
                self._in_flight.record(self._hints.interest(FORCE_ACTIVATE), None, pod)
            elif queued.place is UNSCHEDULABLE:
                self._requeue(queued, AFTER_BACKOFF, "Event", now, interest.label)

    # ------------------------------------------------------------ time

    def flush_backoff(self, now: float) -> int:
        """Activates pods whose backoff is over, at most MAX_STEP; returns the number of pods moved."""
        moved = 0
        while moved < MAX_STEP and (queued := self._backoff.next_expired(now)):
            self._make_active(queued, "BackoffComplete", now, BACKOFF_COMPLETE)
            moved += 1
        return moved

    def flush_unschedulable(self, now: float) -> int:
        """Moves pods that have waited too long for an event, at most MAX_STEP; returns the number of pods moved.

        Gated pods are not moved.
        """
        interest = self._hints.interest(UNSCHEDULABLE_TIMEOUT)
        moved = 0
        while (
            moved < MAX_STEP
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
        """When to flush or to continue waking next, not before ``now``; None if there is nothing to do.

        Backoffs end on whole seconds; pods that wait too long are flushed every FLUSH_UNSCHEDULABLE_SECONDS.
        """
        if self._pending_events:
            return now
        if len(self._pods) == len(self._active) + len(self._in_flight):
            return None
        time = self._backoff.next_release_time()
        if oldest := self._waiting.unschedulable.oldest():
            deadline = oldest.timestamp + self._max_unschedulable_seconds
            steps = math.floor(deadline / FLUSH_UNSCHEDULABLE_SECONDS) + 1
            time = min(time, float(steps * FLUSH_UNSCHEDULABLE_SECONDS))
        return None if time == math.inf else max(now, time)

    # ------------------------------------------------------------ inspection

    def __len__(self) -> int:
        """The number of pods that wait; pods in flight are not counted."""
        return len(self._pods) - len(self._in_flight)

    @property
    def ready(self) -> bool:
        """Whether ``pop`` would return a pod if all lanes were open."""
        return bool(self._active or self._backoff.rejected)

    @property
    def all_in_lanes(self) -> bool:
        """Whether there are active pods, and all of them need something besides their turn."""
        return self._active.all_in_lanes

    def get(self, uid: str) -> QueuedPod | None:
        """The pod if it waits or is in flight, else None."""
        return self._pods.get(uid)

    def where(self, uid: str) -> Place:
        """The place of a pod; OUTSIDE if the queue does not know it."""
        queued = self._pods.get(uid)
        return OUTSIDE if queued is None else queued.place

    def count(self, place: Place) -> int:
        """The number of pods in a place other than OUTSIDE."""
        return len(self._places[place])

    def statistics(self) -> QueueStatistics:
        """The number of pods in each place, and of in-flight events."""
        return QueueStatistics(
            active=len(self._active),
            backoff=len(self._backoff.rejected),
            error_backoff=len(self._backoff.errors),
            unschedulable=len(self._waiting.unschedulable),
            gated=len(self._waiting.gated),
            in_flight=len(self._in_flight),
            in_flight_events=self._in_flight.event_count,
        )

    def in_flight_events(self) -> Mapping[str, int]:
        """How many events are kept for pods in flight, by label; a popped pod counts as one."""
        return self._in_flight.counts

    def pending_pods(self) -> list[Pod]:
        """The waiting pods: active ones in their order, then those that back off, then the others."""
        return [queued.pod for pods in self._queues.values() for queued in pods]

    def all_pods(self) -> list[QueuedPod]:
        """The pods that wait or are in flight, in the order of arrival."""
        return list(self._pods.values())

    def earliest(self, count: int) -> list[QueuedPod]:
        """At most ``count`` pods that wait or are in flight: those that arrived first."""
        return list(itertools.islice(self._pods.values(), count))

    def dump(self) -> list[QueuedPod]:
        """The pods, place by place."""
        return [queued for place in self._places.values() for queued in place]

    # ------------------------------------------------------------ moving

    def _move(
        self, queued: QueuedPod, finish: Place, cause: MoveCause, now: float | None, event: str
    ) -> None:
        """Moves a pod: the only method that changes a pod's place. Raises InvalidTransition."""
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
        report_move(self._recorder, queued, start, finish, cause, event)

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
        self,
        queued: QueuedPod,
        strategy: QueueingStrategy,
        cause: MoveCause,
        now: float,
        event: str,
    ) -> Place:
        """Moves a pod to the place given by ``strategy`` and the PreEnqueue plugins, and returns it."""
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

    def _make_active(self, queued: QueuedPod, cause: MoveCause, now: float, event: str) -> None:
        if queued.initial_attempt_timestamp is None:
            queued.initial_attempt_timestamp = now
        elif self.nominator.node_of(queued.pod.uid):
            queued.timestamp = queued.initial_attempt_timestamp
        self._move(queued, ACTIVE, cause, now, event)
        if event in self._nominating:
            self.nominator.add(queued.pod)

    # ------------------------------------------------------------ waking

    def _wake_by_update(self, queued: QueuedPod, old: Pod, new: Pod, now: float) -> None:
        for event in pod_update_events(old, new):
            interest = self._hints.interest(event, own=True)
            strategy = self._hints.worth_requeuing(queued, interest, old, new)
            if strategy is not SKIP:
                place = self._requeue(queued, strategy, "Update", now, interest.label)
                if place is not GATED:
                    return

    def _keep_for_return(self, old: Pod, new: Pod) -> None:
        size = memory_of(old) + memory_of(new)
        for event in pod_update_events(old, new):
            self._in_flight.record(self._hints.interest(event, own=True), old, new, size)

    def _replay(self, queued: QueuedPod) -> QueueingStrategy:
        """How to queue a failed pod, from the events since it was popped; AFTER_BACKOFF if some were dropped."""
        events = self._in_flight.since(queued)
        if not queued.rejectors or events is None:
            return AFTER_BACKOFF
        strategy = SKIP
        for interest, old, new, _ in events:
            verdict = self._hints.worth_requeuing(queued, interest, old, new)
            strategy = max(strategy, verdict)
            if strategy is IMMEDIATELY or (
                strategy is AFTER_BACKOFF and not queued.pending_plugins
            ):
                break
        return strategy

    def _expect_absent(self, queued: QueuedPod) -> None:
        """If the pod, or another with its name, is queued already, ends the attempt and raises AlreadyQueuedError."""
        pod = queued.pod
        for known in (self._pods.get(pod.uid), self._names.get((pod.namespace, pod.name))):
            if known is not None and (known is not queued or queued.place is not IN_FLIGHT):
                if queued.place is IN_FLIGHT:
                    self._move(queued, OUTSIDE, "Done", None, "Done")
                raise AlreadyQueuedError(f"Pod {pod.key} is already {_ALREADY[known.place]}")

    def _overdue(self, queued: QueuedPod, now: float) -> bool:
        return now - queued.timestamp > self._max_unschedulable_seconds
