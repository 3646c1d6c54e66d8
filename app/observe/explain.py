"""The explanation of a pod's state as the endpoint returns it and ``explain`` prints it."""

from typing import Final

import msgspec

from app.observe.group_histories import GroupCycleRecord
from app.observe.histories import AttemptRecord, PreemptedBy, Rejection

# Where a pod can be, besides the queues.
ASSUMED: Final = "assumed"
BOUND: Final = "bound"
NOT_OURS: Final = "not ours"
GONE: Final = "gone"


class QueueMove(msgspec.Struct, rename="camel", frozen=True):
    """A move between queues: when (seconds since the epoch, None if the pod leaves), the event, and the new place."""

    at: float | None
    event: str
    place: str


class Waiting(msgspec.Struct, rename="camel", frozen=True):
    """A pod's state in the queue. Times are seconds since the epoch, 0 for none."""

    attempts: int
    since: float
    backoff_until: float
    #: The plugins that rejected the pod and may wake it (QueueingHints).
    rejectors: tuple[str, ...]
    gating_plugin: str
    gating_message: str


class RankedNode(msgspec.Struct, rename="camel", frozen=True):
    """A node with its weighted scores by plugin, and their sum."""

    node: str
    total: int
    scores: dict[str, int]


class Feasibility(msgspec.Struct, rename="camel", frozen=True):
    """The result of an attempt now, without extenders."""

    feasible: int
    evaluated: int
    #: The message of FailedScheduling if no node is feasible.
    message: str = ""
    refusals: tuple[Rejection, ...] = ()
    #: The best nodes, best first.
    top: tuple[RankedNode, ...] = ()


class Leadership(msgspec.Struct, rename="camel", frozen=True):
    """Whether this process is the leader, its identity, and the lease's holder."""

    leading: bool
    identity: str = ""
    holder: str = ""


class ExplainedMember(msgspec.Struct, rename="camel", frozen=True):
    """A pod of a group: a queue, assumed or bound; its node, or why it has none."""

    pod: str
    place: str
    node: str = ""
    message: str = ""


class GroupExplanation(msgspec.Struct, rename="camel", frozen=True):
    """What is known about the group of a pod."""

    name: str
    #: The kind and its version, such as ``PodGroup.scheduling.x-k8s.io/v1alpha1``.
    kind: str
    #: Whether groups of this kind are read; if not, the pod is scheduled as one without a group.
    read: bool = True
    exists: bool = True
    #: How many pods are scheduled together at least; None if they do not wait for each other.
    min_count: int | None = None
    #: How many pods there are, and how many of them have a node.
    pods: int = 0
    scheduled: int = 0
    #: What it waits for; empty if it does not wait.
    waits_for: str = ""
    #: When its backoff ends (seconds since the epoch), 0 if it waits for an event.
    retry_at: float = 0.0
    #: The last cycles, the oldest first.
    cycles: tuple[GroupCycleRecord, ...] = ()
    #: Some of the pods, those without a node first.
    members: tuple[ExplainedMember, ...] = ()


class Explanation(msgspec.Struct, rename="camel", frozen=True):
    """What is known about one pod."""

    namespace: str
    name: str
    uid: str
    scheduler_name: str
    leadership: Leadership
    #: One of the queues, or assumed, bound, not ours, gone.
    place: str
    node: str = ""
    nominated_node: str = ""
    priority: int = 0
    waiting: Waiting | None = None
    now: Feasibility | None = None
    attempts: list[AttemptRecord] = msgspec.field(default_factory=list)
    moves: tuple[QueueMove, ...] = ()
    preempted: PreemptedBy | None = None
    group: GroupExplanation | None = None
    #: About how many pods each extender that filters or prioritizes for this one is called at a time, by its name.
    limits: dict[str, int] = {}
    #: The version of Kubernetes whose rules hold.
    rules: str = ""
