"""Reports failures of extenders in the log and as API events, with their reasons.

kube-scheduler ignores failures of ignorable extenders, and all failures of prioritize, without reporting them, and of
an error answer it reports only the status. Here the log says when an extender begins to be ignored and when it answers
again, some of the pods get an event, and the body of an error answer is reported in an event of its own (the text of
FailedScheduling stays kube-scheduler's).
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from app.extender.breaker import State
from app.extender.config import Verb
from app.extender.errors import NOT_CALLED, CallOutcome, ExtenderError
from app.extender.events import BreakerChanged, CallFinished, ErrorIgnored
from app.model.pod import Pod
from app.observe.events import ByType
from app.observe.pod_events import PodEvents
from app.runtime import logs

log = logging.getLogger(__name__)

IGNORED: Final = "ExtenderIgnored"
FAILED: Final = "ExtenderFailed"
#: Seconds between two events about the same extender and verb being ignored.
EVENT_INTERVAL: Final = 30.0
#: Seconds without a failure after which an answer counts as recovery.
CALM: Final = 10.0
_DETAILS: Final = 2


class _Failures(msgspec.Struct):
    """Failures of one extender's verb that were ignored. Times are monotonic."""

    errors: int = 0
    last: float = 0.0
    next_event: float = 0.0
    #: Failures since the last event.
    unreported: int = 0


class ExtenderReports:
    """Writes log lines, and events about the pods."""

    def __init__(self, *, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._wall: Final = wall
        self._monotonic: Final = monotonic
        self._events: PodEvents | None = None
        self._failures: Final[dict[tuple[str, Verb], _Failures]] = {}
        self._errors: Final = logs.Repeats(monotonic)
        #: The extenders that are not called, after the first pod was told so.
        self._not_called: Final[set[str]] = set()
        #: Reports errors that are ignored, and recovery.
        self.on: Final = ByType(
            {
                CallFinished: self._called,
                ErrorIgnored: self._ignored,
                BreakerChanged: self._breaker_changed,
            }
        )

    def send_to(self, events: PodEvents) -> None:
        """Records events about pods there from now on."""
        self._events = events

    # ------------------------------------------------------------ ignored errors

    def _ignored(self, event: ErrorIgnored) -> None:
        error, pod = event.error, event.pod
        extender, verb = error.extender, error.verb.value
        about = {"extender": extender, "verb": verb, "pod": pod.key, "err": error.detail}
        now = self._monotonic()
        failures = self._failures.get((error.extender, error.verb))
        if failures is None:
            failures = self._failures[error.extender, error.verb] = _Failures()
            logs.warning(log, "Extender fails and is ignored", **about)
        elif logs.enabled(_DETAILS):
            logs.info(log, "Extender is ignored", v=_DETAILS, **about)
        failures.errors += 1
        failures.last = now
        if now >= failures.next_event:
            self._event(pod, error.verb, IGNORED, _note(error, failures.unreported))
            failures.next_event = now + EVENT_INTERVAL
            failures.unreported = 0
        else:
            failures.unreported += 1

    def _called(self, event: CallFinished) -> None:
        if not self._failures or event.outcome is not CallOutcome.SUCCESS:
            return
        extender, verb = event.extender, event.verb
        failures = self._failures.get((extender, verb))
        if failures is None or self._monotonic() - failures.last < CALM:
            return
        del self._failures[extender, verb]
        logs.info(
            log,
            "Extender answers again",
            extender=extender,
            verb=verb.value,
            errorsIgnored=failures.errors,
        )

    # ------------------------------------------------------------ errors that end an attempt

    def failed(self, error: ExtenderError, pod: Pod) -> None:
        """A failed call ended an attempt: reports the body of its answer, which FailedScheduling does not contain."""
        if error.body_excerpt:
            cause = error.detail.replace(pod.uid, "").replace(pod.name, "")
            self._errors.error(log, "Extender failed", cause, pod=pod.key, err=error.detail)
            self._event(pod, error.verb, FAILED, error.detail)

    # ------------------------------------------------------------ the breaker

    def told_already(self, message: str) -> bool:
        """Whether this message of an attempt says that an extender is not called, and another pod has an event that
        says it.
        """
        before, found, _ = message.partition(f'" {NOT_CALLED}')
        extender = before.rpartition('"')[2]
        if not found or extender in self._not_called:
            return bool(found)
        self._not_called.add(extender)
        return False

    def _breaker_changed(self, event: BreakerChanged) -> None:
        if event.state is State.CLOSED:
            self._not_called.discard(event.extender)

    def _event(self, pod: Pod, verb: Verb, reason: str, note: str) -> None:
        if self._events is not None:
            action = "Binding" if verb is Verb.BIND else "Scheduling"
            self._events.pod_event(
                pod, kind="Warning", reason=reason, action=action, note=note, now=self._wall()
            )


def _note(error: ExtenderError, unreported: int) -> str:
    more = f" (and {unreported} more times since the last event)" if unreported else ""
    return f"extender {error.extender} was ignored: {error.verb.value}: {error.detail}{more}"
