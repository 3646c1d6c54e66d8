"""The answer to "why is this pod where it is, or why is it pending?", as the endpoint and ``explain`` show it."""

from typing import Final

import msgspec

from app.observe.histories import AttemptRecord, Preempted, Rejection

# Where a pod can be beside the places of the queue.
ASSUMED: Final = "assumed"
BOUND: Final = "bound"
NOT_OURS: Final = "not ours"
GONE: Final = "gone"


class QueueMove(msgspec.Struct, rename="camel", frozen=True):
    """A move in the queue: when (seconds since the epoch, None where a pod leaves), why, and where to."""

    at: float | None
    event: str
    place: str


class Waiting(msgspec.Struct, rename="camel", frozen=True):
    """How a pod waits. Times are seconds since the epoch, 0 for none."""

    attempts: int
    since: float
    backoff_until: float
    #: The plugins that rejected it: an event that one of them welcomes wakes the pod.
    rejectors: tuple[str, ...]
    gating_plugin: str
    gating_message: str


class NodeScore(msgspec.Struct, rename="camel", frozen=True):
    """A node with its weighted scores by plugin, and their sum."""

    node: str
    total: int
    scores: dict[str, int]


class Chances(msgspec.Struct, rename="camel", frozen=True):
    """What an attempt without extenders would come to now."""

    feasible: int
    evaluated: int
    #: What would be said if no node would do.
    message: str = ""
    refusals: tuple[Rejection, ...] = ()
    #: The best nodes, best first.
    top: tuple[NodeScore, ...] = ()


class Leadership(msgspec.Struct, rename="camel", frozen=True):
    """Whether this process schedules, and who does."""

    leading: bool
    identity: str = ""
    holder: str = ""


class Explanation(msgspec.Struct, rename="camel", frozen=True):
    """Everything known of one pod."""

    namespace: str
    name: str
    uid: str
    scheduler_name: str
    leadership: Leadership
    #: A place of the queue, or assumed, bound, not ours, gone.
    place: str
    node: str = ""
    nominated_node: str = ""
    priority: int = 0
    waiting: Waiting | None = None
    now: Chances | None = None
    attempts: list[AttemptRecord] = msgspec.field(default_factory=list)
    moves: tuple[QueueMove, ...] = ()
    preempted: Preempted | None = None
