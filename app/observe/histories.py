"""Keeps pod histories for ``explain``: attempts, rejections by plugins and extenders, calls, binding steps.

It keeps the pods handled last, and the last attempts of each. Consecutive attempts that failed with the same message
are kept as one, with a count. An event creates a few small objects; anything slower is computed on request
(app.scheduler.explainer).

An extender's client does not know for which attempt it is called. Therefore the task of an attempt keeps its calls in a
context variable, which is inherited by the tasks it starts, including the binding cycle.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Final

import msgspec

from app.extender.config import Verb
from app.extender.errors import CallOutcome
from app.extender.events import (
    CallFinished,
    CallHeldBack,
    ErrorIgnored,
    NodesRejected,
)
from app.framework.diagnosis import EXTENDER, Diagnosis
from app.model.pod import Pod
from app.observe.bodies import beginning, without_secrets
from app.observe.events import (
    AttemptFailed,
    AttemptStarted,
    BindingStepFinished,
    ByType,
    NodeSelected,
    PodBound,
    PreemptionStarted,
    ShadowAnswered,
    VictimEvicted,
)
from app.state.queue.queued_pod import Place, QueuedPod

MAX_PODS: Final = 4096
MAX_ATTEMPTS: Final = 10
#: Calls to extenders kept for one attempt.
MAX_CALLS: Final = 50
#: Characters of messages and reasons in all histories: an extender may give a long reason for each node.
MAX_TEXT: Final = 32 * 1024 * 1024
#: Victims named for one attempt.
MAX_VICTIMS: Final = 10


class CallBodies(msgspec.Struct, rename="camel", frozen=True):
    """The beginnings of a call's bodies, without the values of environment variables.

    ``answer`` is empty for a large answer that was decoded while it was read.
    """

    request: str
    answer: str


class ExtenderCall(msgspec.Struct, rename="camel"):
    """A finished call to an extender. Sizes are bytes of the bodies."""

    extender: str
    verb: str
    outcome: str
    seconds: float = 0.0
    sent: int = 0
    received: int = 0
    #: Nodes it rejected, of those it was sent.
    dropped: int = 0
    #: The error, if it was ignored.
    ignored_error: str = ""
    #: None if they are not kept, or no longer.
    bodies: CallBodies | None = None


class ShadowCall(msgspec.Struct, rename="camel", frozen=True):
    """How the answer of an extender in shadow compares with the decision (see ShadowAnswered)."""

    extender: str
    verb: str
    result: str
    detail: str = ""
    #: How many nodes it was sent, and how many it kept.
    nodes: int = 0
    kept: int | None = None


class Rejection(msgspec.Struct, rename="camel", frozen=True):
    """A plugin, or the extenders, rejected ``nodes`` nodes for these reasons; ``status`` is the name of a Code."""

    plugin: str
    status: str
    reasons: tuple[str, ...]
    nodes: int


class BindingStep(msgspec.Struct, rename="camel", frozen=True):
    """A step of the binding cycle; ``status`` is the name of a Code."""

    name: str
    status: str
    seconds: float


class AttemptRecord(msgspec.Struct, rename="camel"):
    """One attempt, or the last of ``repeats`` attempts that ended in the same way.

    Times are seconds since the epoch.
    """

    number: int
    profile: str
    #: When the first and the last of the attempts were recorded; ``at`` of a bound pod: when it was bound.
    first_at: float
    at: float
    repeats: int = 1
    #: ``asking``, ``decided``, ``bound``, ``unschedulable`` or ``error``.
    result: str = "asking"
    node: str = ""
    #: How many nodes were feasible, of how many that were evaluated.
    feasible: int = 0
    evaluated: int = 0
    #: Seconds until a node was chosen, and until the attempt was over.
    deciding_seconds: float = 0.0
    seconds: float = 0.0
    message: str = ""
    #: None: the nomination was left as it is; "": cleared.
    nominated_node: str | None = None
    #: How many pods were evicted for this one, and some of them (``NAMESPACE/NAME``).
    victims: int = 0
    victim_pods: tuple[str, ...] = ()
    refusals: tuple[Rejection, ...] = ()
    calls: list[ExtenderCall] = msgspec.field(default_factory=list)
    steps: tuple[BindingStep, ...] = ()
    #: Answers of extenders in shadow.
    shadows: tuple[ShadowCall, ...] = ()

    def same_end(self, other: "AttemptRecord") -> bool:
        """Whether both ended with the same result and message."""
        return (
            self.message == other.message
            and self.result == other.result
            and self.node == other.node
            and self.nominated_node == other.nominated_node
        )


class PreemptedBy(msgspec.Struct, rename="camel", frozen=True):
    """How a pod was preempted: when (seconds since the epoch), for which pod (``NAMESPACE/NAME``), on which node."""

    at: float
    preemptor: str
    preemptor_uid: str
    node: str


class PodHistory(msgspec.Struct, eq=False):
    """The history of one pod; the oldest attempt first."""

    namespace: str
    name: str
    uid: str
    attempts: list[AttemptRecord] = msgspec.field(default_factory=list)
    #: The attempt that has neither bound the pod nor failed.
    current: AttemptRecord | None = None
    #: The moves through the queue of a pod that has left it (QueuedPod.moves).
    moves: Sequence[tuple[float | None, str, Place]] = ()
    #: How many pods are evicted for it in the current attempt, and some of them.
    victims: tuple[int, tuple[str, ...]] = (0, ())
    preempted: PreemptedBy | None = None
    #: Characters of messages and reasons.
    size: int = 0


_CALLS: ContextVar[list[ExtenderCall] | None] = ContextVar("extender calls", default=None)


class Histories:
    """The histories of the pods handled last, within limits of pods, attempts and text."""

    def __init__(
        self,
        wall: Callable[[], float],
        *,
        max_pods: int = MAX_PODS,
        max_attempts: int = MAX_ATTEMPTS,
        max_text: int = MAX_TEXT,
    ) -> None:
        """``wall`` returns the time in seconds since the epoch."""
        self._bodies: deque[ExtenderCall] = deque()
        self._max_bodies = self._max_body = 0
        self._wall: Final = wall
        self._max_pods: Final = max_pods
        self._max_attempts: Final = max_attempts
        self._max_text: Final = max_text
        self._text = 0
        #: Histories dropped for later ones.
        self.forgotten = 0
        self._by_uid: Final[OrderedDict[str, PodHistory]] = OrderedDict()
        self._uid_of: Final[dict[tuple[str, str], str]] = {}
        #: Records an event about a pod, or a call as part of the attempt that made it.
        self.on: Final = ByType(
            {
                AttemptStarted: self._asking,
                NodeSelected: self._selected,
                BindingStepFinished: self._step_finished,
                PodBound: self._bound,
                AttemptFailed: self._failed,
                PreemptionStarted: self._preempting,
                VictimEvicted: self._evicted,
                ShadowAnswered: self._shadowed,
                CallFinished: self._called,
                CallHeldBack: self._held_back,
                NodesRejected: self._rejected,
                ErrorIgnored: self._ignored,
            }
        )

    def keep_bodies(self, calls: int, max_bytes: int) -> None:
        """Keeps the first ``max_bytes`` of the bodies of the last ``calls`` calls from now on."""
        self._max_bodies, self._max_body = calls, max_bytes

    # ------------------------------------------------------------ queries

    def __len__(self) -> int:
        return len(self._by_uid)

    def of(self, namespace: str, name: str) -> PodHistory | None:
        """The history of the pod that has this name, or had it last."""
        uid = self._uid_of.get((namespace, name))
        return None if uid is None else self._by_uid[uid]

    def latest(self, count: int) -> list[PodHistory]:
        """The pods handled last, the latest first."""
        histories = reversed(self._by_uid.values())
        return [history for history, _ in zip(histories, range(count), strict=False)]

    # ------------------------------------------------------------ events

    def _asking(self, event: AttemptStarted) -> None:
        """Calls of this task and of those it starts belong to the attempt."""
        _CALLS.set(self._attempt(event.queued, event.profile).calls)

    def _step_finished(self, event: BindingStepFinished) -> None:
        history = self._by_uid.get(event.queued.pod.uid)
        if history is not None and history.current is not None:
            history.current.steps += (BindingStep(event.step, event.status, event.seconds),)

    def _preempting(self, event: PreemptionStarted) -> None:
        some = tuple(victim.key for victim in event.victims[:MAX_VICTIMS])
        self._history(event.preemptor).victims = (len(event.victims), some)

    def _evicted(self, event: VictimEvicted) -> None:
        by = event.preemptor
        preempted = PreemptedBy(self._wall(), by.key, by.uid, event.node)
        self._history(event.victim).preempted = preempted

    def _shadowed(self, event: ShadowAnswered) -> None:
        history = self._by_uid.get(event.pod.uid)
        attempts = history.attempts if history is not None else ()
        attempt = next(
            (a for a in attempts if a.number == event.attempt or not event.attempt), None
        )
        if history is None or attempt is None or len(attempt.shadows) >= MAX_CALLS:
            return
        attempt.shadows += (
            ShadowCall(
                event.extender, event.verb, event.result, event.detail, event.nodes, event.kept
            ),
        )
        self._weigh(history)

    def _called(self, event: CallFinished) -> None:
        verb, outcome = str(event.verb), str(event.outcome)
        call = ExtenderCall(
            event.extender, verb, outcome, event.seconds, event.sent, event.received
        )
        if self._add_call(call) and self._max_bodies:
            self._keep_bodies(call, event)

    def _keep_bodies(self, call: ExtenderCall, event: CallFinished) -> None:
        if len(self._bodies) >= self._max_bodies:
            self._bodies.popleft().bodies = None
        pieces = () if event.request is None else event.request.pieces
        request = without_secrets(beginning(pieces, self._max_body))
        call.bodies = CallBodies(request, without_secrets(event.answer[: self._max_body]))
        self._bodies.append(call)

    def _held_back(self, event: CallHeldBack) -> None:
        self._add_call(ExtenderCall(event.extender, event.verb.value, CallOutcome.HELD_BACK.value))

    def _rejected(self, event: NodesRejected) -> None:
        last = self._last_call(event.extender, Verb.FILTER)
        if last is not None:
            last.dropped = event.count

    def _ignored(self, event: ErrorIgnored) -> None:
        last = self._last_call(event.error.extender, event.error.verb)
        if last is not None:
            last.ignored_error = event.error.detail

    def _selected(self, event: NodeSelected) -> None:
        attempt = self._attempt(event.queued, event.profile)
        attempt.result = "decided"
        attempt.node = event.node
        attempt.feasible = event.feasible
        attempt.evaluated = event.evaluated
        attempt.deciding_seconds = event.seconds

    def _bound(self, event: PodBound) -> None:
        attempt = self._attempt(event.queued, event.profile)
        attempt.result = "bound"
        attempt.at = event.now
        attempt.seconds = event.seconds
        history = self._by_uid[event.queued.pod.uid]
        history.moves = event.queued.moves
        history.current = None
        if any(call.ignored_error for call in attempt.calls):
            self._weigh(history)

    def _failed(self, event: AttemptFailed) -> None:
        attempt = self._attempt(event.queued, event.profile)
        attempt.result = event.result
        attempt.message = event.message
        attempt.seconds = event.seconds
        attempt.nominated_node = event.nominated_node
        history = self._by_uid[event.queued.pod.uid]
        history.current = None
        attempt.victims, attempt.victim_pods = history.victims
        history.victims = (0, ())
        before = history.attempts[-2] if len(history.attempts) > 1 else None
        if before is not None and attempt.same_end(before):
            attempt.refusals = before.refusals
            attempt.evaluated = before.evaluated
            attempt.repeats = before.repeats + 1
            attempt.first_at = before.first_at
            if not attempt.victims:
                attempt.victims, attempt.victim_pods = before.victims, before.victim_pods
            del history.attempts[-2]
        elif event.diagnosis is not None:
            attempt.refusals = rejections_of(event.diagnosis)
            attempt.evaluated = event.diagnosis.node_count
        self._weigh(history)

    # ------------------------------------------------------------ records

    def _attempt(self, queued: QueuedPod, profile: str) -> AttemptRecord:
        """The record of the current attempt."""
        history = self._by_uid.get(queued.pod.uid)
        if history is not None:
            current = history.current
            if current is not None and current.number == queued.attempts:
                return current
        return self._begin(queued, profile)

    def _begin(self, queued: QueuedPod, profile: str) -> AttemptRecord:
        history = self._history(queued.pod)
        now = self._wall()
        history.current = AttemptRecord(queued.attempts, profile, now, now)
        history.attempts.append(history.current)
        if len(history.attempts) > self._max_attempts:
            del history.attempts[0]
        return history.current

    def _history(self, pod: Pod) -> PodHistory:
        history = self._by_uid.get(pod.uid)
        if history is not None:
            self._by_uid.move_to_end(pod.uid)
            return history
        if len(self._by_uid) >= self._max_pods:
            self._forget_oldest()
        history = self._by_uid[pod.uid] = PodHistory(pod.namespace, pod.name, pod.uid)
        self._uid_of[pod.namespace, pod.name] = pod.uid
        return history

    def _weigh(self, history: PodHistory) -> None:
        """Drops the oldest histories if their texts are too long together."""
        size = sum(map(_size, history.attempts))
        self._text += size - history.size
        history.size = size
        while self._text > self._max_text and len(self._by_uid) > 1:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        uid, history = self._by_uid.popitem(last=False)
        self._text -= history.size
        self.forgotten += 1
        name = (history.namespace, history.name)
        if self._uid_of.get(name) == uid:
            del self._uid_of[name]

    @staticmethod
    def _add_call(call: ExtenderCall) -> bool:
        """Whether the call is kept."""
        calls = _CALLS.get()
        if calls is None or len(calls) >= MAX_CALLS:
            return False
        calls.append(call)
        return True

    @staticmethod
    def _last_call(extender: str, verb: Verb) -> ExtenderCall | None:
        calls = reversed(_CALLS.get() or ())
        return next((c for c in calls if c.extender == extender and c.verb == verb.value), None)


def _size(attempt: AttemptRecord) -> int:
    """The number of characters in its texts."""
    reasons = sum(len(text) for each in attempt.refusals for text in each.reasons)
    ignored = sum(len(call.ignored_error) for call in attempt.calls)
    return len(attempt.message) + reasons + ignored + sum(len(s.detail) for s in attempt.shadows)


def rejections_of(diagnosis: Diagnosis) -> tuple[Rejection, ...]:
    """The rejections of a pod by plugin and reasons: most nodes first, those without a reason last.

    Only extenders reject without a reason: they leave nodes out of their answer.
    """
    counts: dict[tuple[str, str, tuple[str, ...]], int] = {}
    for status, nodes in diagnosis.rejection_counts():
        plugin = status.plugin or ("" if status.reasons else EXTENDER)
        key = (plugin, status.code.name, status.reasons)
        counts[key] = counts.get(key, 0) + nodes
    ordered = sorted(counts.items(), key=lambda item: (not item[0][2], -item[1], item[0]))
    return tuple(Rejection(*key, nodes) for key, nodes in ordered)
