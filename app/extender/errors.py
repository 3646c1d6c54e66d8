"""Outcomes and errors of calls to extenders."""

import enum
import re
from typing import Final

import msgspec

from app.extender.config import Verb
from app.model.status import SchedulingError
from app.wire.go_json import clean


class CallOutcome(enum.StrEnum):
    """How a call ended: the metric label."""

    SUCCESS = "success"
    #: The answer has an Error.
    ERROR = "error"
    #: A status other than 200.
    STATUS = "status"
    #: An answer that cannot be read, or names what it must not.
    BAD_ANSWER = "bad_answer"
    TIMEOUT = "timeout"
    #: No connection.
    UNREACHABLE = "unreachable"
    #: A connection that broke before the answer was complete.
    BROKEN = "broken"
    #: A kept connection that broke before the answer began: the server may have closed it while the request was sent.
    STALE = "stale"
    #: Not called: the breaker is open.
    HELD_BACK = "held_back"
    #: Not called: no file descriptor or memory was left for a connection.
    SHORTAGE = "shortage"
    #: Cancelled by the scheduler.
    CANCELLED = "cancelled"

    @property
    def unanswered(self) -> bool:
        """Whether there was no answer, which is what the breaker counts."""
        return self in _UNANSWERED


_UNANSWERED: Final = frozenset({CallOutcome.TIMEOUT, CallOutcome.UNREACHABLE, CallOutcome.BROKEN})
_LOST: Final = frozenset(
    {CallOutcome.TIMEOUT, CallOutcome.BROKEN, CallOutcome.STALE, CallOutcome.BAD_ANSWER}
)
# Answers of gateways that do not know what happened to the request.
_GATEWAY_STATUS: Final = frozenset({502, 503, 504})


#: Conflict and Locked, and what extenders say, e.g. HAMi's "node n1 has been locked within 5 minutes".
_LOCKED_STATUS: Final = frozenset({409, 423})
_LOCKED: Final = re.compile(r"\b(is|been|already) locked\b|\bnode ?lock\b", re.IGNORECASE)

#: What is said of a call that the breaker holds back, after the extender and before its last failure.
NOT_CALLED: Final = "is not called because it does not answer"
#: Characters of a text that are kept; events take 1024.
_MAX_TEXT: Final = 16 * 1024


class TransportError(Exception):
    """An exchange without an answer. ``sent``: whether any byte of the request may have reached the extender."""

    def __init__(self, outcome: CallOutcome, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.outcome: Final = outcome
        self.text: Final = text
        self.sent: Final = sent


class ErrorAnswer(msgspec.Struct, frozen=True):
    """An answer other than 200: its HTTP status, and the text in its body on one line, cut."""

    status: int = 0
    excerpt: str = ""


NO_ANSWER: Final = ErrorAnswer()


class ExtenderError(SchedulingError):
    """A call that failed. ``str()`` is kube-scheduler's text for the pod's condition and event."""

    def __init__(
        self,
        text: str,
        *,
        extender: str,
        verb: Verb,
        outcome: CallOutcome,
        answer: ErrorAnswer = NO_ANSWER,
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
        self.status: Final = answer.status
        self.body_excerpt: Final = answer.excerpt
        #: Seconds after which the extender asked to be called again.
        self.retry_after: Final = retry_after
        #: Whether the extender may have received the request.
        self.sent: Final = sent

    @property
    def detail(self) -> str:
        """The text and that of the answer's body, for logs, histories and our own events."""
        return f"{self.text}: {self.body_excerpt}" if self.body_excerpt else self.text

    @property
    def locked(self) -> bool:
        """Whether the extender refuses because something is locked for another pod, and may agree soon."""
        if self.outcome not in {CallOutcome.ERROR, CallOutcome.STATUS}:
            return False
        return self.status in _LOCKED_STATUS or _LOCKED.search(self.detail) is not None

    @property
    def answer_lost(self) -> bool:
        """Whether the extender may have executed the request although no answer arrived."""
        lost = self.outcome in _LOST or self.status in _GATEWAY_STATUS
        return self.sent and lost
