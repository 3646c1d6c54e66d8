"""What the scheduling queue shows of itself: counts, and one entry per pod."""

import msgspec

from app.model.pod import Pod
from app.state.queue.queued_pod import Move, Place, QueuedPod


class QueueStatistics(msgspec.Struct, frozen=True):
    """How many pods are where, and how many events are kept for those in flight."""

    active: int
    backoff: int
    error_backoff: int
    unschedulable: int
    gated: int
    in_flight: int
    in_flight_events: int

    @property
    def summary(self) -> str:
        """The counts as kube-scheduler's debugger words them."""
        backoff = self.backoff + self.error_backoff
        waiting = self.unschedulable + self.gated
        return f"activeQ:{self.active}; backoffQ:{backoff}; unschedulablePods:{waiting}"


class QueueEntry(msgspec.Struct, frozen=True):
    """One pod, where it is and why; times are seconds since the epoch."""

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
        """The entry of a pod as it is now."""
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
