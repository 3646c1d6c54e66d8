"""Events about pods, for metrics, pod histories and the log.

The scheduler emits each event once, to one sink. A sink is synchronous, cheap and does not raise; it ignores events of
other types. Events about extenders are in app.extender.events.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from app.framework.diagnosis import Diagnosis, Scores
from app.framework.placements import DomainRoom
from app.model.pod import Pod
from app.model.pod_groups import GroupKey
from app.state.queue.queued_pod import QueuedPod


class AttemptStarted(msgspec.Struct, frozen=True):
    """An attempt begins that may call extenders; emitted by the task that makes the calls."""

    queued: QueuedPod
    profile: str


class NodeSelected(msgspec.Struct, frozen=True):
    """A node was chosen; the node table does not change while sinks run."""

    queued: QueuedPod
    profile: str
    node: str
    #: How many nodes were feasible, of how many that were evaluated.
    feasible: int
    evaluated: int
    #: Since the start of the attempt, including calls to extenders.
    seconds: float
    #: Computes the scores again; raises SchedulingError.
    scores: Callable[[], Scores]
    #: Counts the other nodes that were as good.
    ties: Callable[[], int] = int


class BindingStepFinished(msgspec.Struct, frozen=True):
    """A step of the binding cycle ended: ``WaitOnPermit``, ``PreBind`` or ``Bind``; ``status`` is the
    name of a Code.
    """

    queued: QueuedPod
    step: str
    status: str
    seconds: float


class PodBound(msgspec.Struct, frozen=True):
    """The pod is bound to ``pod.node_name``."""

    queued: QueuedPod
    pod: Pod
    profile: str
    feasible: int
    evaluated: int
    #: The whole attempt, binding included.
    seconds: float
    #: By the queue's clock.
    now: float


class AttemptFailed(msgspec.Struct, frozen=True):
    """An attempt failed."""

    queued: QueuedPod
    profile: str
    #: ``unschedulable`` or ``error``.
    result: str
    message: str
    #: Since the start of the attempt.
    seconds: float
    #: Which plugins rejected which nodes; None after an error.
    diagnosis: Diagnosis | None = None
    #: None: the nomination was left as it is; "": cleared.
    nominated_node: str | None = None


class GroupAttempted(msgspec.Struct, frozen=True):
    """The cycle of a pod group ended; ``result`` is scheduled, unschedulable, waiting_on_preemption or error."""

    key: GroupKey
    profile: str
    result: str
    #: The group's own message: why it is not scheduled; else empty.
    message: str
    #: How many pods were tried, and how many of them had a node at once.
    tried: int
    placed: int
    #: The first message of a pod that had none; empty if there is no such pod.
    because: str
    #: The whole cycle, without the binding cycles.
    seconds: float
    #: Until it was known where the pods fit.
    algorithm_seconds: float
    #: Some domains of a group with a topology constraint that is not scheduled: those with the most room.
    domains: tuple[DomainRoom, ...] = ()


class PreemptionStarted(msgspec.Struct, frozen=True):
    """``victims`` are about to be evicted from a node for ``preemptor``, as part of its attempt."""

    preemptor: Pod
    node: str
    victims: Sequence[Pod]


class VictimEvicted(msgspec.Struct, frozen=True):
    """A pod was deleted, or stopped before it was bound, to make room for ``preemptor`` on a node."""

    victim: Pod
    preemptor: Pod
    node: str


class PreemptionFinished(msgspec.Struct, frozen=True):
    """The victims of a preemption were evicted, or some of them could not be."""

    seconds: float
    succeeded: bool


class ShadowAnswered(msgspec.Struct, frozen=True):
    """The answer of an extender in shadow was compared with a decision."""

    pod: Pod
    #: The number of the attempt; 0 for a preemption.
    attempt: int
    #: The node that was decided on.
    node: str
    extender: str
    verb: str
    #: ``same``, ``chosen_node_refused``, ``other_node_best``, ``other_victims`` or ``failed``.
    result: str
    #: What differs, or the error.
    detail: str
    #: How many nodes it was sent, and how many it kept (None if that is not known).
    nodes: int
    kept: int | None


SchedulerEvent = (
    AttemptStarted
    | NodeSelected
    | BindingStepFinished
    | PodBound
    | AttemptFailed
    | GroupAttempted
    | PreemptionStarted
    | VictimEvicted
    | PreemptionFinished
    | ShadowAnswered
)

#: Takes every event.
EventSink = Callable[[SchedulerEvent], None]


class ByType:
    """A sink that calls the handlers for the type of an event, if there are any. ``isinstance`` is slow for Structs."""

    def __init__(self, handlers: Mapping[type, Callable[[Any], None]]) -> None:
        self.handlers: Final[dict[type, tuple[Callable[[Any], None], ...]]] = {
            kind: (handle,) for kind, handle in handlers.items()
        }

    @classmethod
    def together(cls, *sinks: "ByType") -> "ByType":
        """One sink that calls the handlers of all of them, in this order."""
        both = cls({})
        for sink in sinks:
            for kind, handlers in sink.handlers.items():
                both.handlers[kind] = both.handlers.get(kind, ()) + handlers
        return both

    def __call__(self, event: object) -> None:
        for handle in self.handlers.get(type(event), ()):
            handle(event)


class ElectionStatistics(msgspec.Struct, frozen=True):
    """The current state of the election."""

    identity: str
    #: Whether this process may write now.
    is_leader: bool
    #: The holder named in the lease as last seen; empty if there is none.
    holder: str
    transitions: int
    #: Renewals that had to read the lease first.
    slow_path: int


def ignore(_event: object) -> None:
    """A sink that drops every event."""
