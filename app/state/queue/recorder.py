"""What the scheduling queue tells about itself while it works: counters, gauges and faults of plugins."""

from collections.abc import Callable
from typing import Final, Protocol

from app.model.pod import Pod

#: Whether a change of an object, given before and after, may make a pod schedulable (True: Queue, False: QueueSkip).
#: Before is None when the object came, after when it went.
HintFunction = Callable[[Pod, object | None, object | None], bool]


class QueueRecorder(Protocol):
    """Receives the queue's metrics (docs/spec/metrics.md) and what plugins raised; must return quickly."""

    def incoming(self, queue: str, event: str) -> None:
        """A pod has entered ``queue`` (active, backoff or unschedulable): scheduler_queue_incoming_pods_total."""

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        """So many more pods wait because ``plugin`` rejected them: scheduler_unschedulable_pods."""

    def in_flight(self, event: str, delta: int) -> None:
        """So many more of these events are kept for pods in flight: scheduler_inflight_events."""

    def events_dropped(self, count: int) -> None:
        """More events were pending, or kept for pods in flight, than there is room for; the pods concerned are tried again."""

    def timed_hint(self, plugin: str, event: str, hint: HintFunction) -> HintFunction:
        """The hint, timed if need be: scheduler_queueing_hint_execution_duration_seconds."""
        ...

    def plugin_failed(self, plugin: str, point: str, pod: Pod, error: Exception) -> None:
        """A plugin raised at PreEnqueue (the pod stays out) or as a QueueingHint (taken for Queue)."""


class NullRecorder:
    """Records nothing."""

    def incoming(self, queue: str, event: str) -> None:
        """Ignores it."""

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        """Ignores it."""

    def in_flight(self, event: str, delta: int) -> None:
        """Ignores it."""

    def events_dropped(self, count: int) -> None:
        """Ignores it."""

    def timed_hint(self, _plugin: str, _event: str, hint: HintFunction) -> HintFunction:
        """The hint as it is."""
        return hint

    def plugin_failed(self, plugin: str, point: str, pod: Pod, error: Exception) -> None:
        """Ignores it."""


NULL_RECORDER: Final = NullRecorder()
