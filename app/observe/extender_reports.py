"""Reports extenders that fail: failures that are ignored are logged, always with the reason.

kube-scheduler ignores the failures of ignorable extenders, and over all failures of prioritize, without a reason, and of an
error answer it tells the status only. Here the log says when an extender begins to be ignored and when that is over,
some of the pods concerned get an event, and what the body of an error answer said is in an event of its own (the text of
FailedScheduling stays kube-scheduler's).
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from app.extender.config import Verb
from app.extender.errors import ExtenderError, Outcome
from app.extender.events import CallFinished, ErrorIgnored, ExtenderEvent
from app.model.pod import Pod
from app.observe.pod_events import PodEvents
from app.runtime import logs

log = logging.getLogger(__name__)

IGNORED: Final = "ExtenderIgnored"
FAILED: Final = "ExtenderFailed"
#: Seconds between two events about the same extender and verb being ignored.
EVENT_INTERVAL: Final = 30.0
#: Seconds without another failure after which an answer ends the trouble.
CALM: Final = 10.0
_DETAILS: Final = 2


class _Trouble(msgspec.Struct):
    """Failures of one extender's verb that were ignored. Times are monotonic."""

    errors: int = 0
    last: float = 0.0
    next_event: float = 0.0
    #: Failures since the last event.
    untold: int = 0


class ExtenderReports:
    """Tells the log and the pods."""

    def __init__(self, *, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall: Final = wall
        self._monotonic: Final = monotonic
        self._events: PodEvents | None = None
        self._troubles: Final[dict[tuple[str, Verb], _Trouble]] = {}

    def send_to(self, events: PodEvents) -> None:
        """Records events about pods there from now on."""
        self._events = events

    # ------------------------------------------------------------ ignored errors

    def on(self, event: ExtenderEvent) -> None:
        """Reports errors that are ignored, and their end."""
        match event:
            case CallFinished(extender, verb, Outcome.SUCCESS):
                self._answered(extender, verb)
            case ErrorIgnored(error, pod):
                self._ignored(error, pod)

    def _ignored(self, error: ExtenderError, pod: Pod) -> None:
        now = self._monotonic()
        trouble = self._troubles.get((error.extender, error.verb))
        if trouble is None:
            trouble = self._troubles[error.extender, error.verb] = _Trouble()
            logs.warning(
                log,
                "Extender fails and is ignored",
                extender=error.extender,
                verb=error.verb.value,
                pod=pod.key,
                err=error.detail,
            )
        elif logs.enabled(_DETAILS):
            logs.info(
                log,
                "Extender is ignored",
                v=_DETAILS,
                extender=error.extender,
                verb=error.verb.value,
                pod=pod.key,
                err=error.detail,
            )
        trouble.errors += 1
        trouble.last = now
        if now >= trouble.next_event:
            self._event(pod, error.verb, IGNORED, _note(error, trouble.untold))
            trouble.next_event = now + EVENT_INTERVAL
            trouble.untold = 0
        else:
            trouble.untold += 1

    def _answered(self, extender: str, verb: Verb) -> None:
        trouble = self._troubles.get((extender, verb))
        if trouble is None or self._monotonic() - trouble.last < CALM:
            return
        del self._troubles[extender, verb]
        logs.info(
            log,
            "Extender answers again",
            extender=extender,
            verb=verb.value,
            errorsPassedOver=trouble.errors,
        )

    # ------------------------------------------------------------ in the way

    def failed(self, error: ExtenderError, pod: Pod) -> None:
        """A failed call ended an attempt; tells what its answer said beyond what FailedScheduling does."""
        if error.body_excerpt:
            logs.error(log, "Extender failed", pod=pod.key, err=error.detail)
            self._event(pod, error.verb, FAILED, error.detail)

    def _event(self, pod: Pod, verb: Verb, reason: str, note: str) -> None:
        if self._events is not None:
            action = "Binding" if verb is Verb.BIND else "Scheduling"
            self._events.pod_event(
                pod, kind="Warning", reason=reason, action=action, note=note, now=self._wall()
            )


def _note(error: ExtenderError, untold: int) -> str:
    more = f" (and {untold} more times since this was last told)" if untold else ""
    return f"extender {error.extender} was ignored: {error.verb.value}: {error.detail}{more}"
