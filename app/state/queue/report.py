"""Statistics and dumps of the scheduling queue."""

import msgspec

from app.model.pod import Pod
from app.state.queue.queued_pod import Move, Place, QueuedPod


class QueueStatistics(msgspec.Struct, frozen=True):
    """The number of pods by place, and of events kept for pods in flight."""

    active: int
    backoff: int
    error_backoff: int
    unschedulable: int
    gated: int
    in_flight: int
    in_flight_events: int

    @property
    def summary(self) -> str:
        """The counts in the format of kube-scheduler's debugger."""
        backoff = self.backoff + self.error_backoff
        waiting = self.unschedulable + self.gated
        return f"activeQ:{self.active}; backoffQ:{backoff}; unschedulablePods:{waiting}"


class QueueEntry(msgspec.Struct, frozen=True):
    """A snapshot of one queued pod; times are seconds since the epoch."""

    pod: Pod
    place: Place
    attempts: int
    timestamp: float
    backoff_expiration: float
    rejectors: tuple[str, ...]
    gating_plugin: str
    gating_message: str
    story: tuple[Move, ...]

    @classmethod
    def of(cls, queued: QueuedPod) -> "QueueEntry":
        """The entry of a pod."""
        return cls(
            pod=queued.pod,
            place=queued.place,
            attempts=queued.attempts,
            timestamp=queued.timestamp,
            backoff_expiration=queued.backoff_expiration,
            rejectors=tuple(sorted(queued.rejectors)),
            gating_plugin=queued.gating_plugin,
            gating_message=queued.gating_status.message,
            story=queued.story,
        )
