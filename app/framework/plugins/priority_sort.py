"""PrioritySort: pods of higher priority first, then those that wait longer (spec: plugins.md 2.2)."""

from typing import ClassVar, Protocol

from app.framework.interface import Handle
from app.model.pod import Pod


class Queued(Protocol):
    """What the order of the queue is made from."""

    pod: Pod
    #: When the pod came (back) to the queue, in seconds since the epoch.
    timestamp: float


class PrioritySort:
    """The order of the active queue."""

    NAME: ClassVar[str] = "PrioritySort"

    def __init__(self, args: object, handle: Handle) -> None:
        """Takes no arguments."""

    def sort_key(self, queued: Queued) -> tuple[int, float]:
        """The smaller key is popped first."""
        return -queued.pod.priority, queued.timestamp
