"""What happened while pods were being tried, so that it can be looked at when one of them fails.

See docs/spec/queue.md#in-flight-events.
"""

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from app.state.queue.hints import Interest
from app.state.queue.queued_pod import QueuedPod
from app.state.queue.recorder import QueueRecorder

#: The name under which a popped pod is counted among the events.
POD_POPPED: Final = "PodPopped"
#: No more events than this are kept, however long an attempt takes.
MAX_EVENTS: Final = 10_000


class Happening(NamedTuple):
    """A cluster event with the objects it is about."""

    interest: Interest
    old: object | None
    new: object | None


class InFlight:
    """The pods being tried, in the order they were popped, interleaved with the events since.

    Events are numbered; a pod is marked with the number that the next event would get, so "after the pod's marker" is
    "not below its number". Events older than every pod in flight are dropped, and the oldest ones if there are too many;
    a pod that should have seen those is told so.
    """

    def __init__(self, recorder: QueueRecorder, max_events: int = MAX_EVENTS) -> None:
        self._recorder: Final = recorder
        self._max_events: Final = max_events
        self._markers: Final[dict[QueuedPod, int]] = {}
        self._events: Final[deque[Happening]] = deque()
        #: The number of the first event kept.
        self._first = 0

    def __len__(self) -> int:
        return len(self._markers)

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods, in the order they were popped."""
        return iter(self._markers)

    @property
    def event_count(self) -> int:
        """How many events are kept."""
        return len(self._events)

    def add(self, queued: QueuedPod) -> None:
        """Marks where a pod's attempt begins."""
        self._markers[queued] = self._first + len(self._events)
        self._recorder.in_flight(POD_POPPED, 1)

    def remove(self, queued: QueuedPod) -> None:
        """Ends a pod's attempt and drops the events that only it was waiting for."""
        del self._markers[queued]
        self._recorder.in_flight(POD_POPPED, -1)
        following = self._first + len(self._events)
        oldest = next(iter(self._markers.values()), following)
        for _ in range(oldest - self._first):
            self._drop_first()

    def record(self, interest: Interest, old: object | None, new: object | None) -> None:
        """Keeps an event if any pod is in flight."""
        if not self._markers:
            return
        self._events.append(Happening(interest, old, new))
        self._recorder.in_flight(interest.label, 1)
        if len(self._events) > self._max_events:
            self._drop_first()
            self._recorder.events_dropped(1)

    def since(self, queued: QueuedPod) -> Iterator[Happening] | None:
        """The events since a pod was popped, in order; None if not all are known (any more)."""
        start = self._markers.get(queued)
        if start is None or start < self._first:
            return None
        return itertools.islice(self._events, start - self._first, None)

    def _drop_first(self) -> None:
        happening = self._events.popleft()
        self._first += 1
        self._recorder.in_flight(happening.interest.label, -1)
