"""The active queue (kube-scheduler's activeQ), and the pods in flight with the events since they were popped.

Active pods are kept in lanes. A lane holds the pods that need the same thing besides their turn, for example an
extender that is called for one pod at a time. ``peek`` is told which lanes are open, so a pod whose lane is closed
does not block the others. A pod may pass pods of its own priority only: by passing a pod of higher priority it could
take the room that this pod waits for.

In-flight events: docs/spec/queue.md#in-flight-events.
"""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from app.model.budget import ByteBudget, template_of
from app.model.pod import Pod
from app.state.queue.hints import EventInterest
from app.state.queue.pod_heap import PodHeap
from app.state.queue.queued_pod import Lane, QueuedPod
from app.state.queue.recorder import QueueRecorder

#: Whether the first pod of a lane may be popped. A search asks once per lane, in the order of the lanes' first pods.
Admits: TypeAlias = Callable[[QueuedPod], bool]

#: The label under which a popped pod is counted among the in-flight events.
POD_POPPED: Final = "PodPopped"
#: The number of in-flight events that are kept, however long an attempt takes.
MAX_IN_FLIGHT_EVENTS: Final = 10_000


class ActiveQueue:
    """The active pods by rank, lowest first, in one heap per lane; equal ranks in the order of arrival."""

    def __init__(
        self,
        rank: Callable[[QueuedPod], Any],
        tickets: Iterator[int],
        lane: Callable[[Pod], Lane],
    ) -> None:
        """``rank`` and ``tickets``: see PodHeap. ``lane`` returns a pod's lane."""
        self._rank: Final = rank
        self._tickets: Final = tickets
        self._lane: Final = lane
        self._heaps: Final[dict[Lane, PodHeap]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods in order."""
        return iter(_in_order([queued for heap in self._heaps.values() for queued in heap]))

    @property
    def all_in_lanes(self) -> bool:
        """Whether there are pods, and all of them need something besides their turn."""
        return bool(self._size) and not self._heaps.get(frozenset())

    def add(self, queued: QueuedPod) -> None:
        """Adds a pod."""
        queued.lane = lane = self._lane(queued.pod)
        heap = self._heaps.get(lane)
        if heap is None:
            heap = self._heaps[lane] = PodHeap(self._rank, self._tickets)
        heap.add(queued)
        self._size += 1

    def remove(self, queued: QueuedPod) -> None:
        """Removes a pod."""
        self._heaps[queued.lane].remove(queued)
        self._size -= 1

    def refresh(self, queued: QueuedPod) -> None:
        """Moves a pod that has changed to its new position."""
        if self._lane(queued.pod) == queued.lane:
            self._heaps[queued.lane].refresh(queued)
        else:
            self.remove(queued)
            self.add(queued)

    def peek(self, admits: Admits | None = None) -> QueuedPod | None:
        """The first pod whose lane is open; None if it would pass a pod of higher priority."""
        first = [queued for heap in self._heaps.values() if (queued := heap.peek())]
        passed: list[QueuedPod] = []
        for queued in _in_order(first) if len(first) > 1 else first:
            if any(queued.pod.priority < other.pod.priority for other in passed):
                return None
            if admits is None or admits(queued):
                return queued
            passed.append(queued)
        return None


def _in_order(pods: list[QueuedPod]) -> list[QueuedPod]:
    return sorted(pods, key=lambda queued: (queued.rank, queued.ticket))


class _InFlightEvent(NamedTuple):
    """A cluster event with the object before and after it, and about how many bytes of memory these take."""

    interest: EventInterest
    old: object | None
    new: object | None
    size: int


class InFlight:
    """The pods in flight, in the order in which they were popped, and the events since the first of them was.

    Events are numbered. A pod's marker is the number of the next event at the time it was popped; the events since
    then are those with this number or a higher one. Events that are older than every marker are dropped. If there are
    more than ``max_events``, or ``budget`` is used up, the oldest are dropped as well; ``since`` then returns None for
    the pods that miss them.
    """

    def __init__(
        self,
        recorder: QueueRecorder,
        budget: ByteBudget,
        max_events: int = MAX_IN_FLIGHT_EVENTS,
    ) -> None:
        self._recorder: Final = recorder
        self._budget: Final = budget
        self._max_events: Final = max_events
        self._markers: Final[dict[QueuedPod, int]] = {}
        self._events: Final[deque[_InFlightEvent]] = deque()
        #: How many of them are kept, by label.
        self._counts: Final[Counter[str]] = Counter()
        #: The number of the first event kept.
        self._first = 0

    def __len__(self) -> int:
        return len(self._markers)

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods, in the order in which they were popped."""
        return iter(self._markers)

    @property
    def event_count(self) -> int:
        """How many events are kept."""
        return len(self._events)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many events are kept, by label; a popped pod counts as one."""
        return {POD_POPPED: len(self._markers), **self._counts}

    def add(self, queued: QueuedPod) -> None:
        """Begins a pod's attempt."""
        self._markers[queued] = self._first + len(self._events)

    def remove(self, queued: QueuedPod) -> None:
        """Ends a pod's attempt and drops the events that were kept for this pod alone."""
        del self._markers[queued]
        following = self._first + len(self._events)
        oldest = next(iter(self._markers.values()), following)
        for _ in range(oldest - self._first):
            self._drop_first()

    def record(
        self, interest: EventInterest, old: object | None, new: object | None, size: int = 0
    ) -> None:
        """Keeps an event if any pod is in flight. ``size``: about how many bytes of memory its objects take."""
        if not self._markers:
            return
        template = template_of(old, new)
        if len(self._events) >= self._max_events:
            self._drop_first()
            self._recorder.events_dropped(1)
        while not self._budget.take(size, template):
            self._recorder.events_dropped(1)
            if not self._events:
                self._first += 1
                return
            self._drop_first()
        self._events.append(_InFlightEvent(interest, old, new, size))
        self._counts[interest.label] += 1

    def since(self, queued: QueuedPod) -> Iterator[_InFlightEvent] | None:
        """The events since a pod was popped, oldest first; None if some of them were dropped."""
        start = self._markers.get(queued)
        if start is None or start < self._first:
            return None
        return itertools.islice(self._events, start - self._first, None)

    def _drop_first(self) -> None:
        event = self._events.popleft()
        self._first += 1
        self._budget.give_back(event.size, template_of(event.old, event.new))
        self._counts[event.interest.label] -= 1
