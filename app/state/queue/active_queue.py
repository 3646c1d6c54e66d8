"""Active pods in lanes, so that no pod waits behind one that waits for something else.

Some pods need more than their turn: an extender that is asked about one pod at a time is such a thing. Those that need the
same are in the same lane. The caller that asks for the next pod says which lanes are open; the queue knows nothing else of them.
A pod may pass others of its priority, and no others: it would take the room that they are waiting for.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from app.model.pod import Pod
from app.state.queue.pod_heap import PodHeap
from app.state.queue.queued_pod import Lane, QueuedPod

#: Whether a lane is open. Within one search it is asked once for each lane, in the order of their first pods.
Admits: TypeAlias = Callable[[Lane], bool]


class Lanes:
    """Pods by rank, lowest first, in a heap for each lane; equal ranks in the order in which they came."""

    def __init__(
        self,
        rank: Callable[[QueuedPod], Any],
        tickets: Iterator[int],
        lane: Callable[[Pod], Lane],
    ) -> None:
        """Args: as of PodHeap; ``lane`` tells in which lane a pod stands."""
        self._rank: Final = rank
        self._tickets: Final = tickets
        self._lane: Final = lane
        self._heaps: Final[dict[Lane, PodHeap]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods in order."""
        return iter(_in_order([queued for heap in self._heaps.values() for queued in heap]))

    def add(self, queued: QueuedPod) -> None:
        """Puts a pod in."""
        queued.lane = lane = self._lane(queued.pod)
        heap = self._heaps.get(lane)
        if heap is None:
            heap = self._heaps[lane] = PodHeap(self._rank, self._tickets)
        heap.add(queued)

    def remove(self, queued: QueuedPod) -> None:
        """Takes a pod out."""
        self._heaps[queued.lane].remove(queued)

    def refresh(self, queued: QueuedPod) -> None:
        """Puts a pod that has changed where it now belongs."""
        if self._lane(queued.pod) == queued.lane:
            self._heaps[queued.lane].refresh(queued)
        else:
            self.remove(queued)
            self.add(queued)

    def peek(self, admits: Admits | None = None) -> QueuedPod | None:
        """The first pod of those whose lane is open, by default of all; none that would pass one of higher priority."""
        first = [queued for heap in self._heaps.values() if (queued := heap.peek())]
        passed: list[QueuedPod] = []
        for queued in _in_order(first) if len(first) > 1 else first:
            if any(queued.pod.priority < other.pod.priority for other in passed):
                return None
            if admits is None or admits(queued.lane):
                return queued
            passed.append(queued)
        return None


def _in_order(pods: list[QueuedPod]) -> list[QueuedPod]:
    return sorted(pods, key=lambda queued: (queued.rank, queued.ticket))
