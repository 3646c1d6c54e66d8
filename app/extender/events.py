"""Events about calls to extenders, for metrics, pod histories, the log and API events.

The client and the chain emit each event once, to one sink. A sink is synchronous, cheap and does not raise.
"""

from collections.abc import Callable, Sequence

import msgspec

from app.extender.breaker import State
from app.extender.config import Verb
from app.extender.errors import CallOutcome, ExtenderError
from app.model.pod import Pod
from app.wire.extender_v1 import Body, ExtenderArgs


class CallStarted(msgspec.Struct, frozen=True):
    """A request is about to be sent."""

    extender: str
    verb: Verb


class CallFinished(msgspec.Struct, frozen=True):
    """A call ended. Follows each CallStarted once. ``sent`` and ``received`` are bytes of the bodies.

    Sinks must not keep the bodies. ``answer`` is empty for a large answer that was decoded while it was read.
    ``asked``: pod and nodes of filter and prioritize. ``status``: of the answer, 0 without one.
    """

    extender: str
    verb: Verb
    outcome: CallOutcome
    seconds: float
    sent: int
    received: int
    pod: Pod | None = None
    request: Body | None = None
    answer: bytes = b""
    asked: ExtenderArgs | None = None
    status: int = 0
    retry_after: float | None = None


class NodesScored(msgspec.Struct, frozen=True):
    """The extender's scores as it gave them: ``scores`` by the node names in ``hosts``."""

    extender: str
    pod: Pod
    hosts: Sequence[str]
    scores: Sequence[int]


class CallHeldBack(msgspec.Struct, frozen=True):
    """A call was not made because the breaker is open."""

    extender: str
    verb: Verb


class NodesRejected(msgspec.Struct, frozen=True):
    """The extender's filter rejected ``count`` of the nodes it was sent."""

    extender: str
    count: int


class BreakerChanged(msgspec.Struct, frozen=True):
    """The breaker of a verb opened, became half-open or closed."""

    extender: str
    verb: Verb
    state: State


class LimitChanged(msgspec.Struct, frozen=True):
    """How many pods an extender's server is called about at the same time has changed."""

    extender: str
    limit: int


class ErrorIgnored(msgspec.Struct, frozen=True):
    """Scheduling went on after a failed call: the extender is ignorable, or the verb is prioritize."""

    error: ExtenderError
    pod: Pod


class ExtenderWarning(msgspec.Struct, frozen=True):
    """A problem with the extender's configuration, or with files that are reloaded at run time."""

    extender: str
    text: str


ExtenderEvent = (
    CallStarted
    | CallFinished
    | CallHeldBack
    | NodesScored
    | NodesRejected
    | BreakerChanged
    | LimitChanged
    | ErrorIgnored
    | ExtenderWarning
)

#: Takes every event.
Sink = Callable[[ExtenderEvent], None]


def ignore(_event: ExtenderEvent) -> None:
    """A sink that drops every event."""
