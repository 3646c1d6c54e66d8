"""What the loop tells about itself: one protocol, implemented by the metrics, the stories of pods and the log."""

from typing import Protocol

import msgspec

from app.cycle.attempt import Attempt, Choice
from app.framework.diagnosis import Diagnosis
from app.model.pod import Pod
from app.state.queue.queued_pod import QueuedPod


class Failed(msgspec.Struct, frozen=True):
    """An attempt that failed."""

    queued: QueuedPod
    profile: str
    #: ``unschedulable`` or ``error``.
    result: str
    message: str
    #: From the beginning of the attempt.
    seconds: float
    #: Who turned the pod down where; None after a fault.
    diagnosis: Diagnosis | None = None
    #: None: the nomination was left as it is; "": cleared.
    nominated_node: str | None = None


class ElectionStatistics(msgspec.Struct, frozen=True):
    """The election at one moment."""

    identity: str
    #: Whether we may write now.
    is_leader: bool
    #: Whose name is in the lease as last seen; empty: nobody's.
    holder: str
    transitions: int
    #: Renewals for which the lease had to be read first.
    slow_path: int


class Recorder(Protocol):
    """Hears of every step of every attempt. Calls are synchronous and must be cheap. Durations are seconds."""

    def asking(self, queued: QueuedPod, profile: str) -> None:
        """Extenders may be asked about the pod, by this task and those it starts."""

    def decided(self, queued: QueuedPod, attempt: Attempt, choice: Choice, seconds: float) -> None:
        """A node was chosen, on the table as it still is; ``seconds`` is what deciding took, extenders included."""

    def binding_step(self, queued: QueuedPod, step: str, status: str, seconds: float) -> None:
        """A step of the binding cycle is over: WaitOnPermit, PreBind or Bind."""

    def bound(self, queued: QueuedPod, pod: Pod, profile: str, seconds: float, now: float) -> None:
        """The pod is bound (``pod.node_name``); ``seconds`` is the whole attempt."""

    def failed(self, failed: Failed) -> None:
        """The attempt failed."""

    def permit_waited(self, result: str, seconds: float) -> None:
        """A pod waited on Permit; ``result`` is the name of a Code."""

    def preempting(self, preemptor: Pod, node_name: str, victims: int) -> None:
        """So many pods are going to be evicted from a node."""

    def preempted(self, seconds: float, *, done: bool) -> None:
        """They were evicted, in so long, or some of them could not be."""


class NullRecorder:
    """Hears nothing."""

    def asking(self, queued: QueuedPod, profile: str) -> None:
        """Ignores it."""

    def decided(self, queued: QueuedPod, attempt: Attempt, choice: Choice, seconds: float) -> None:
        """Ignores it."""

    def binding_step(self, queued: QueuedPod, step: str, status: str, seconds: float) -> None:
        """Ignores it."""

    def bound(self, queued: QueuedPod, pod: Pod, profile: str, seconds: float, now: float) -> None:
        """Ignores it."""

    def failed(self, failed: Failed) -> None:
        """Ignores it."""

    def permit_waited(self, result: str, seconds: float) -> None:
        """Ignores it."""

    def preempting(self, preemptor: Pod, node_name: str, victims: int) -> None:
        """Ignores it."""

    def preempted(self, seconds: float, *, done: bool) -> None:
        """Ignores it."""
