"""A priority queue of queued pods that supports removing any pod."""

import heapq
from collections.abc import Callable, Iterator
from typing import Any, Final

from app.state.queue.queued_pod import QueuedPod

_MIN_STALE: Final = 64


class PodHeap:
    """Pods by rank, lowest first; equal ranks in the order in which they came.

    A pod is in one heap at a time. Its entry is the one with its ``ticket``. Removing a pod leaves a stale entry, which
    is dropped when it reaches the top or when stale entries outnumber the pods.
    """

    def __init__(self, rank: Callable[[QueuedPod], Any], tickets: Iterator[int]) -> None:
        """``rank`` orders the pods; ``tickets`` are ascending numbers above 0, shared by all heaps of a queue."""
        self._rank: Final = rank
        self._tickets: Final = tickets
        self._entries: list[tuple[Any, int, QueuedPod]] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods in order."""
        return (pod for _, ticket, pod in sorted(self._entries) if pod.ticket == ticket)

    def add(self, queued: QueuedPod) -> None:
        """Adds a pod. If its rank cannot be computed or compared, the pod is not added and the exception is raised."""
        queued.rank = rank = self._rank(queued)
        queued.ticket = ticket = next(self._tickets)
        try:
            heapq.heappush(self._entries, (rank, ticket, queued))
        except Exception:
            queued.ticket = 0
            self._compact()
            raise
        self._length += 1

    def remove(self, queued: QueuedPod) -> None:
        """Removes a pod."""
        entries = self._entries
        self._length -= 1
        ticket, queued.ticket = queued.ticket, 0
        if entries[0][1] == ticket:
            heapq.heappop(entries)
        elif len(entries) - self._length > self._length + _MIN_STALE:
            self._compact()

    def refresh(self, queued: QueuedPod) -> None:
        """Moves a pod that has changed to its new position."""
        if self._rank(queued) != queued.rank:
            self.remove(queued)
            self.add(queued)

    def peek(self) -> QueuedPod | None:
        """The first pod; None if the heap is empty."""
        entries = self._entries
        while entries:
            _, ticket, queued = entries[0]
            if queued.ticket == ticket:
                return queued
            heapq.heappop(entries)
        return None

    def _compact(self) -> None:
        self._entries = [entry for entry in self._entries if entry[2].ticket == entry[1]]
        heapq.heapify(self._entries)
