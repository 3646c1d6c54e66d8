"""The queue's reports to the shell: metrics and failures of plugins."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from app.model.pod import Pod
from app.state.queue.queued_pod import (
    ACTIVE,
    BACKOFF,
    ERROR_BACKOFF,
    GATED,
    UNSCHEDULABLE,
    WAITING,
    MoveCause,
    Place,
    QueuedPod,
)

#: ``hint(pod, old, new)``: whether the change of an object may make ``pod`` schedulable (True: Queue, False:
#: QueueSkip). ``old`` is None if the object was added, ``new`` if it was deleted.
HintFunction = Callable[[Pod, Any, Any], bool]

#: The label of a place in metrics; incoming gated pods are counted as unschedulable.
_METRIC_QUEUE: Final[Mapping[Place, str]] = {
    ACTIVE: "active",
    BACKOFF: "backoff",
    ERROR_BACKOFF: "backoff",
    UNSCHEDULABLE: "unschedulable",
    GATED: "unschedulable",
}
#: Causes for which a move from unschedulable to gated is counted as incoming, although the label is the same.
_COMING_BACK: Final[frozenset[MoveCause]] = frozenset({"Event", "Timeout"})


class QueueRecorder:
    """Receives the queue's metrics (docs/spec/metrics.md) and exceptions of plugins; this base class ignores them.

    The methods must return quickly and must not raise.
    """

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered ``queue`` (active, backoff or unschedulable): scheduler_queue_incoming_pods_total."""

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        """``delta`` more pods wait because ``plugin`` rejected them: scheduler_unschedulable_pods."""

    def events_dropped(self, count: int) -> None:
        """``count`` events exceeded a limit and were dropped; the pods that they may concern are retried."""

    def timed_hint(self, _plugin: str, _event: str, hint: HintFunction) -> HintFunction:
        """The hint, wrapped if it is timed: scheduler_queueing_hint_execution_duration_seconds."""
        return hint

    def plugin_failed(self, plugin: str, point: str, pod: Pod, error: Exception) -> None:
        """A plugin raised at PreEnqueue (the pod stays gated) or in a queueing hint (counts as Queue)."""


def report_move(
    recorder: QueueRecorder,
    queued: QueuedPod,
    start: Place,
    finish: Place,
    cause: MoveCause,
    event: str,
) -> None:
    """Reports that a pod has moved; ``event``: why, as metrics name it."""
    came = _METRIC_QUEUE.get(finish)
    if came is not None and (came != _METRIC_QUEUE.get(start) or cause in _COMING_BACK):
        recorder.incoming(came, event)
    rejectors = queued.rejectors
    if rejectors and (start in WAITING) is not (waits := finish in WAITING):
        profile = queued.pod.template.spec.scheduler_name
        for plugin in rejectors:
            recorder.unschedulable(plugin, profile, 1 if waits else -1)
