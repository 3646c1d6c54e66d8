"""What the loop tells about itself: one protocol, implemented by the metrics and by the stories of pods."""

from typing import Protocol

from app.cycle.attempt import Choice
from app.model.pod import Pod
from app.state.queued_pod import QueuedPod


class Recorder(Protocol):
    """Hears of every step of every attempt. Calls are synchronous and must be cheap. Durations are seconds."""

    def decided(self, queued: QueuedPod, profile: str, choice: Choice, seconds: float) -> None:
        """A node was chosen; ``seconds`` is what deciding took, extenders included."""

    def bound(self, queued: QueuedPod, pod: Pod, profile: str, seconds: float, now: float) -> None:
        """The pod is bound (``pod.node_name``); ``seconds`` is the whole attempt."""

    def failed(
        self, queued: QueuedPod, profile: str, result: str, message: str, seconds: float
    ) -> None:
        """The attempt failed; ``result`` is ``unschedulable`` or ``error``."""

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        """An extension point was run over all nodes and plugins."""

    def permit_waited(self, result: str, seconds: float) -> None:
        """A pod waited on Permit."""


class NullRecorder:
    """Hears nothing."""

    def decided(self, queued: QueuedPod, profile: str, choice: Choice, seconds: float) -> None:
        """Ignores it."""

    def bound(self, queued: QueuedPod, pod: Pod, profile: str, seconds: float, now: float) -> None:
        """Ignores it."""

    def failed(
        self, queued: QueuedPod, profile: str, result: str, message: str, seconds: float
    ) -> None:
        """Ignores it."""

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        """Ignores it."""

    def permit_waited(self, result: str, seconds: float) -> None:
        """Ignores it."""
