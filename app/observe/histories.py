"""The story of each pod: what was tried, who said no and why, what extenders answered, how its binding went.

Stories are kept for ``explain``, for the pods dealt with last, and for the last attempts of each; attempts that ended in the same
words are told once, with a count. The cycle pays for a few small objects: whatever takes time is worked out when somebody
asks (app.observe.explain).

Extenders do not know whose attempt they are called for. The task that makes the attempt does: it keeps the attempt's calls
in a context variable, and the tasks it starts inherit it, the binding cycle's among them.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Final

import msgspec

from app.cycle.attempt import EXTENDER, Choice
from app.extender.config import Verb
from app.extender.errors import ExtenderError, Outcome
from app.framework.diagnosis import Diagnosis
from app.model.pod import Pod
from app.observe.recorder import Failed
from app.state.queue.queued_pod import Place, QueuedPod

MAX_PODS: Final = 4096
MAX_ATTEMPTS: Final = 10
#: Calls to extenders told of one attempt; a search may go on for many rounds.
MAX_CALLS: Final = 50


class ExtenderCall(msgspec.Struct, rename="camel"):
    """One call to an extender, as it ended. Sizes are bytes of the bodies."""

    extender: str
    verb: str
    outcome: str
    seconds: float = 0.0
    sent: int = 0
    received: int = 0
    #: Nodes it turned down, of those it was sent.
    dropped: int = 0
    #: What went wrong, where scheduling went on without it.
    ignored_error: str = ""


class RefusalStory(msgspec.Struct, rename="camel", frozen=True):
    """A plugin, or the extenders, turned down so many nodes for these reasons; ``status`` is the name of a Code."""

    plugin: str
    status: str
    reasons: tuple[str, ...]
    nodes: int


class BindingStep(msgspec.Struct, rename="camel", frozen=True):
    """A step of the binding cycle; ``status`` is the name of a Code."""

    name: str
    status: str
    seconds: float


class AttemptStory(msgspec.Struct, rename="camel"):
    """One attempt, or several that ended alike: then ``repeats`` tells how many, and the rest is the last one's.

    Times are seconds since the epoch.
    """

    number: int
    profile: str
    #: When the (first) attempt was decided or failed, and when the last one.
    first_at: float
    at: float
    repeats: int = 1
    #: ``asking``, ``decided``, ``bound``, ``unschedulable`` or ``error``.
    result: str = "asking"
    node: str = ""
    #: How many nodes would have done, of how many that were looked at.
    feasible: int = 0
    evaluated: int = 0
    #: Seconds until a node was chosen, and until the attempt was over.
    deciding_seconds: float = 0.0
    seconds: float = 0.0
    message: str = ""
    #: None: the nomination was left as it is; "": cleared.
    nominated_node: str | None = None
    #: Pods to be evicted for this one.
    victims: int = 0
    refusals: tuple[RefusalStory, ...] = ()
    calls: list[ExtenderCall] = msgspec.field(default_factory=list)
    steps: tuple[BindingStep, ...] = ()

    def same_end(self, other: "AttemptStory") -> bool:
        """Whether both failed in the same words."""
        return (
            self.message == other.message
            and self.result == other.result
            and self.node == other.node
            and self.nominated_node == other.nominated_node
        )


class PodStory(msgspec.Struct, eq=False):
    """Everything that is told of one pod; the oldest attempt first."""

    namespace: str
    name: str
    uid: str
    attempts: list[AttemptStory] = msgspec.field(default_factory=list)
    #: The attempt that has neither bound the pod nor failed.
    current: AttemptStory | None = None
    #: The way through the queue of a pod that has left it (QueuedPod.moves).
    moves: Sequence[tuple[float | None, str, Place]] = ()


_CALLS: ContextVar[list[ExtenderCall] | None] = ContextVar("extender calls", default=None)


class Stories:
    """The stories' part of a Recorder and of an extender Observer."""

    def __init__(
        self,
        wall: Callable[[], float],
        *,
        max_pods: int = MAX_PODS,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        """``wall`` tells the time in seconds since the epoch."""
        self._wall: Final = wall
        self._max_pods: Final = max_pods
        self._max_attempts: Final = max_attempts
        self._by_uid: Final[OrderedDict[str, PodStory]] = OrderedDict()
        self._uid_of: Final[dict[tuple[str, str], str]] = {}

    # ------------------------------------------------------------ looking in

    def __len__(self) -> int:
        return len(self._by_uid)

    def of(self, namespace: str, name: str) -> PodStory | None:
        """The story of the pod that has, or had last, this name."""
        uid = self._uid_of.get((namespace, name))
        return None if uid is None else self._by_uid[uid]

    def latest(self, count: int) -> list[PodStory]:
        """The pods dealt with last, the latest first."""
        stories = reversed(self._by_uid.values())
        return [story for story, _ in zip(stories, range(count), strict=False)]

    # ------------------------------------------------------------ attempts

    def asking(self, queued: QueuedPod, profile: str) -> None:
        """See Recorder. Calls made by this task and those it starts belong to this attempt."""
        _CALLS.set(self._attempt(queued, profile).calls)

    def decided(self, queued: QueuedPod, profile: str, choice: Choice, seconds: float) -> None:
        """See Recorder."""
        attempt = self._attempt(queued, profile)
        attempt.result = "decided"
        attempt.node = choice.node_name
        attempt.feasible = choice.feasible
        attempt.evaluated = choice.evaluated
        attempt.deciding_seconds = seconds

    def binding_step(self, queued: QueuedPod, step: str, status: str, seconds: float) -> None:
        """See Recorder."""
        story = self._by_uid.get(queued.pod.uid)
        if story is not None and story.current is not None:
            story.current.steps += (BindingStep(step, status, seconds),)

    def bound(self, queued: QueuedPod, profile: str, seconds: float, now: float) -> AttemptStory:
        """See Recorder. The attempt that bound the pod."""
        attempt = self._attempt(queued, profile)
        attempt.result = "bound"
        attempt.at = now
        attempt.seconds = seconds
        story = self._by_uid[queued.pod.uid]
        story.moves = queued.moves
        story.current = None
        return attempt

    def failed(self, failed: Failed) -> None:
        """See Recorder."""
        attempt = self._attempt(failed.queued, failed.profile)
        attempt.result = failed.result
        attempt.message = failed.message
        attempt.seconds = failed.seconds
        attempt.nominated_node = failed.nominated_node
        story = self._by_uid[failed.queued.pod.uid]
        story.current = None
        before = story.attempts[-2] if len(story.attempts) > 1 else None
        if before is not None and attempt.same_end(before):
            attempt.refusals = before.refusals
            attempt.evaluated = before.evaluated
            attempt.repeats = before.repeats + 1
            attempt.first_at = before.first_at
            del story.attempts[-2]
        elif failed.diagnosis is not None:
            attempt.refusals = refusals_told(failed.diagnosis)
            attempt.evaluated = failed.diagnosis.node_count

    def preempting(self, preemptor: Pod, victims: int) -> None:
        """See Recorder."""
        story = self._by_uid.get(preemptor.uid)
        if story is not None and story.current is not None:
            story.current.victims = victims

    def _attempt(self, queued: QueuedPod, profile: str) -> AttemptStory:
        """The attempt that is being made."""
        story = self._by_uid.get(queued.pod.uid)
        if story is not None:
            current = story.current
            if current is not None and current.number == queued.attempts:
                return current
        return self._begin(queued, profile)

    def _begin(self, queued: QueuedPod, profile: str) -> AttemptStory:
        story = self._story(queued.pod)
        now = self._wall()
        story.current = AttemptStory(queued.attempts, profile, now, now)
        story.attempts.append(story.current)
        if len(story.attempts) > self._max_attempts:
            del story.attempts[0]
        return story.current

    def _story(self, pod: Pod) -> PodStory:
        story = self._by_uid.get(pod.uid)
        if story is not None:
            self._by_uid.move_to_end(pod.uid)
            return story
        if len(self._by_uid) >= self._max_pods:
            self._forget_oldest()
        story = self._by_uid[pod.uid] = PodStory(pod.namespace, pod.name, pod.uid)
        self._uid_of[pod.namespace, pod.name] = pod.uid
        return story

    def _forget_oldest(self) -> None:
        uid, story = self._by_uid.popitem(last=False)
        name = (story.namespace, story.name)
        if self._uid_of.get(name) == uid:
            del self._uid_of[name]

    # ------------------------------------------------------------ extenders

    def call_finished(
        self,
        extender: str,
        verb: Verb,
        outcome: Outcome,
        *,
        seconds: float,
        sent: int,
        received: int,
    ) -> None:
        """See Observer."""
        self._told_call(ExtenderCall(extender, verb.value, outcome.value, seconds, sent, received))

    def call_held_back(self, extender: str, verb: Verb) -> None:
        """See Observer."""
        self._told_call(ExtenderCall(extender, verb.value, Outcome.HELD_BACK.value))

    def nodes_dropped(self, extender: str, count: int) -> None:
        """See Observer."""
        call = self._last_call(extender, Verb.FILTER)
        if call is not None:
            call.dropped = count

    def error_ignored(self, error: ExtenderError) -> None:
        """See Observer."""
        call = self._last_call(error.extender, error.verb)
        if call is not None:
            call.ignored_error = error.detail

    @staticmethod
    def _told_call(call: ExtenderCall) -> None:
        calls = _CALLS.get()
        if calls is not None and len(calls) < MAX_CALLS:
            calls.append(call)

    @staticmethod
    def _last_call(extender: str, verb: Verb) -> ExtenderCall | None:
        calls = reversed(_CALLS.get() or ())
        return next((c for c in calls if c.extender == extender and c.verb == verb.value), None)


def refusals_told(diagnosis: Diagnosis) -> tuple[RefusalStory, ...]:
    """Who turned a pod down, by plugin and reasons: most nodes first, those turned down without a word last.

    Only extenders do that: they leave nodes out of their answer.
    """
    counts: dict[tuple[str, str, tuple[str, ...]], int] = {}
    for status, nodes in diagnosis.refusals():
        plugin = status.plugin or ("" if status.reasons else EXTENDER)
        key = (plugin, status.code.name, status.reasons)
        counts[key] = counts.get(key, 0) + nodes
    ordered = sorted(counts.items(), key=lambda item: (not item[0][2], -item[1], item[0]))
    return tuple(RefusalStory(*key, nodes) for key, nodes in ordered)
