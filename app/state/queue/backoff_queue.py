"""The backoff queue: pods that failed and wait before they are tried again (docs/spec/queue.md#backoff)."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from app.state.queue.pod_heap import PodHeap
from app.state.queue.queued_pod import QueuedPod

_NANOSECONDS: Final = 10**9


class RetryTimes(msgspec.Struct, frozen=True):
    """When failed pods are retried, in seconds; the defaults are kube-scheduler's."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    #: The longest wait for an event: after it the pod is retried without one.
    max_unschedulable: float = 300.0


class BackoffQueue:
    """Exponential backoff in whole seconds; rejected pods and pods that met an error are kept apart.

    Errors and rejections are counted separately. The number of consecutive errors decides; if the last attempt was not
    an error, the number of rejections does. The end of a backoff is rounded down to the second, and the pod is released
    when that second is over. So all pods of one second are released together, in the order of the active queue.
    """

    def __init__(
        self,
        times: RetryTimes,
        sort_key: Callable[[QueuedPod], Any],
        tickets: Iterator[int],
    ) -> None:
        """``sort_key`` is that of the active queue; ``tickets``: see PodHeap."""
        self._initial: Final = round(times.initial_backoff * _NANOSECONDS)
        self._max: Final = round(times.max_backoff * _NANOSECONDS)
        self.rejected: Final = PodHeap(
            lambda queued: (self.expiration(queued), sort_key(queued)), tickets
        )
        self.errors: Final = PodHeap(self.expiration, tickets)

    def duration(self, attempts: int) -> float:
        """The backoff in seconds after this many failed attempts: doubled each time, up to the maximum."""
        if attempts == 0 or self._max == 0:
            return 0.0
        shift = attempts - 1
        if self._initial > self._max >> shift:
            return self._max / _NANOSECONDS
        return (self._initial << shift) / _NANOSECONDS

    def expiration(self, queued: QueuedPod) -> float:
        """The second in which the pod's backoff ends, 0 if it has none; computed once per failed attempt."""
        attempts = queued.consecutive_errors_count or queued.unschedulable_count
        if attempts == 0 or self._max == 0:
            return 0.0
        if not queued.backoff_expiration:
            queued.backoff_expiration = float(
                math.floor(queued.timestamp + self.duration(attempts))
            )
        return queued.backoff_expiration

    def is_backing_off(self, queued: QueuedPod, now: float) -> bool:
        """Whether the pod still backs off; True until the second in which its backoff ends is over."""
        return self.expiration(queued) >= math.floor(now)

    def release_time(self, queued: QueuedPod) -> float:
        """The first instant at which the pod no longer backs off."""
        return self.expiration(queued) + 1

    def next_expired(self, now: float) -> QueuedPod | None:
        """The first pod whose backoff is over, rejected pods before those that met an error."""
        for heap in (self.rejected, self.errors):
            queued = heap.peek()
            if queued is not None and not self.is_backing_off(queued, now):
                return queued
        return None

    def next_release_time(self) -> float:
        """The earliest release time; infinite if no pod backs off."""
        first = [queued for heap in (self.rejected, self.errors) if (queued := heap.peek())]
        return min(map(self.release_time, first), default=math.inf)
