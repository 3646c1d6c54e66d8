"""How calls to extenders end, and the errors they end with."""

import enum
from typing import Final

from app.extender.config import Verb
from app.model.status import SchedulingError
from app.wire.go_json import clean


class Outcome(enum.StrEnum):
    """How a call ended: the metric label."""

    SUCCESS = "success"
    #: The answer holds an Error.
    ERROR = "error"
    #: A status other than 200.
    STATUS = "status"
    #: An answer that cannot be read, or that names what it may not.
    BAD_ANSWER = "bad_answer"
    TIMEOUT = "timeout"
    #: No connection.
    UNREACHABLE = "unreachable"
    #: A connection that broke before the answer was whole.
    BROKEN = "broken"
    #: A kept connection that broke before the answer began: the server may have closed it as the request went out.
    STALE = "stale"
    #: Not called: the breaker is open.
    HELD_BACK = "held_back"
    #: Not called: this process has no descriptor or memory left for a connection.
    SHORTAGE = "shortage"
    #: Given up by ourselves.
    CANCELLED = "cancelled"

    @property
    def unanswered(self) -> bool:
        """Whether this says that the extender is not there: what the breaker counts."""
        return self in _UNANSWERED


_UNANSWERED: Final = frozenset({Outcome.TIMEOUT, Outcome.UNREACHABLE, Outcome.BROKEN})
_LOST: Final = frozenset({Outcome.TIMEOUT, Outcome.BROKEN, Outcome.STALE, Outcome.BAD_ANSWER})
# Answers of gateways that do not know what became of the request behind them.
_GATEWAY_STATUS: Final = frozenset({502, 503, 504})


#: Characters of a text that are kept: events take 1024, and conditions are read by people.
_MAX_TEXT: Final = 16 * 1024


class TransportError(Exception):
    """An exchange that gave no answer. ``sent``: whether any byte of the request may have reached the extender."""

    def __init__(self, outcome: Outcome, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.outcome: Final = outcome
        self.text: Final = text
        self.sent: Final = sent


class ExtenderError(SchedulingError):
    """A call that failed. ``str()`` is kube-scheduler's text, as it goes into the pod's condition and event."""

    def __init__(
        self,
        text: str,
        *,
        extender: str,
        verb: Verb,
        outcome: Outcome,
        status: int = 0,
        body_excerpt: str = "",
        retry_after: float | None = None,
        sent: bool = True,
    ) -> None:
        text = clean(text[:_MAX_TEXT])
        super().__init__(text)
        self.text: Final = text
        #: The extender's name.
        self.extender: Final = extender
        self.verb: Final = verb
        self.outcome: Final = outcome
        #: The HTTP status, 0 without one.
        self.status: Final = status
        #: What the body of an answer other than 200 said, on one line, cut.
        self.body_excerpt: Final = body_excerpt
        #: Seconds after which the extender asked to be called again.
        self.retry_after: Final = retry_after
        #: Whether the extender may have seen the request.
        self.sent: Final = sent

    @property
    def detail(self) -> str:
        """The text and what the answer's body said: for logs, histories and events of our own."""
        return f"{self.text}: {self.body_excerpt}" if self.body_excerpt else self.text

    @property
    def answer_lost(self) -> bool:
        """Whether the extender may have done what it was asked, without our knowing."""
        lost = self.outcome in _LOST or self.status in _GATEWAY_STATUS
        return self.sent and lost
