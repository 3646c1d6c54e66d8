"""How long a pod that failed waits before it is tried again (docs/spec/queue.md#backoff)."""

import math
from typing import Final

from app.state.queue.queued_pod import QueuedPod

_NANOSECONDS: Final = 10**9


class Backoff:
    """Exponential backoff, counted in whole seconds of the wall clock.

    Errors and rejections are counted apart: the errors in a row decide, and where the last attempt was no error, the
    rejections. An end of backoff is rounded down to the second and reached when that second is over, so that all pods of
    one second come back together, in the order of the active queue.
    """

    def __init__(self, initial_seconds: float, max_seconds: float) -> None:
        self._initial: Final = round(initial_seconds * _NANOSECONDS)
        self._max: Final = round(max_seconds * _NANOSECONDS)

    def duration(self, attempts: int) -> float:
        """Seconds to wait after this many failed attempts: the initial backoff, doubled each time up to the maximum."""
        if attempts == 0 or self._max == 0:
            return 0.0
        shift = attempts - 1
        if self._initial > self._max >> shift:
            return self._max / _NANOSECONDS
        return (self._initial << shift) / _NANOSECONDS

    def expiration(self, queued: QueuedPod) -> float:
        """The second in which the pod's backoff ends, 0 if it has none; worked out once per failed attempt."""
        attempts = queued.consecutive_errors_count or queued.unschedulable_count
        if attempts == 0 or self._max == 0:
            return 0.0
        if not queued.backoff_expiration:
            queued.backoff_expiration = float(
                math.floor(queued.timestamp + self.duration(attempts))
            )
        return queued.backoff_expiration

    def is_backing_off(self, queued: QueuedPod, now: float) -> bool:
        """Whether the pod still backs off; it does all through the second in which its backoff ends."""
        return self.expiration(queued) >= math.floor(now)

    def release_time(self, queued: QueuedPod) -> float:
        """The first instant at which the pod does not back off any more."""
        return self.expiration(queued) + 1
