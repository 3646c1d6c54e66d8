"""Calls to extenders, by extender and verb. kube-scheduler has no metrics for them."""

from typing import Final, NamedTuple

from app.extender.breaker import State
from app.extender.config import Verb
from app.extender.errors import ExtenderError, Outcome
from app.observe.metrics.series import ALPHA, Counter, Families, Histogram, exponential

_EXTENDER_VERB: Final = ("extender", "verb")


class _Calls(NamedTuple):
    """The series of one extender's verb."""

    in_flight: Counter
    seconds: Histogram
    sent: Counter
    received: Counter
    #: By outcome, as far as there has been one.
    ended: dict[Outcome, Counter]


class ExtenderMetrics:
    """The counting part of an Observer (app.extender.observer)."""

    def __init__(self, families: Families) -> None:
        self._seconds: Final = families.histogram(
            "aiokube_scheduler_extender_request_duration_seconds",
            "Latency of calls to extenders, from sending to the whole answer.",
            ALPHA,
            exponential(0.001, 2, 15),
            *_EXTENDER_VERB,
        )
        self._outcomes: Final = families.counter(
            "aiokube_scheduler_extender_requests_total",
            "Calls to extenders by outcome; held_back are those not made because the breaker is open.",
            ALPHA,
            *_EXTENDER_VERB,
            "outcome",
        )
        self._sent: Final = families.counter(
            "aiokube_scheduler_extender_request_bytes_total",
            "Bytes of the bodies sent to extenders.",
            ALPHA,
            *_EXTENDER_VERB,
        )
        self._received: Final = families.counter(
            "aiokube_scheduler_extender_response_bytes_total",
            "Bytes of the bodies that extenders answered.",
            ALPHA,
            *_EXTENDER_VERB,
        )
        self._in_flight: Final = families.gauge(
            "aiokube_scheduler_extender_requests_in_flight",
            "Calls to extenders that wait for their answer.",
            ALPHA,
            *_EXTENDER_VERB,
        )
        self._dropped: Final = families.counter(
            "aiokube_scheduler_extender_nodes_dropped_total",
            "Nodes that extenders turned down, of those they were sent.",
            ALPHA,
            *_EXTENDER_VERB,
        )
        self._ignored: Final = families.counter(
            "aiokube_scheduler_extender_errors_ignored_total",
            "Failed calls that scheduling went on without.",
            ALPHA,
            *_EXTENDER_VERB,
        )
        self._breaker: Final = families.gauge(
            "aiokube_scheduler_extender_breaker_state",
            "1 for the state in which the breaker is: closed, open or half_open.",
            ALPHA,
            *_EXTENDER_VERB,
            "state",
        )
        self._calls: Final[dict[tuple[str, Verb], _Calls]] = {}

    def prioritizing(self) -> float:
        """Prioritize calls under way."""
        verb = Verb.PRIORITIZE.value
        return sum(gauge.value for labels, gauge in self._in_flight.of.items() if labels[1] == verb)

    def expect(self, extender: str, verb: Verb) -> None:
        """Shows an extender's verb before it is called for the first time."""
        self._in_flight.labels(extender, verb.value)
        self._outcomes.labels(extender, verb.value, Outcome.SUCCESS.value)
        self.breaker_changed(extender, verb, State.CLOSED)

    def call_started(self, extender: str, verb: Verb) -> None:
        """See Observer."""
        self._series(extender, verb).in_flight.value += 1

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
        series = self._series(extender, verb)
        series.in_flight.value -= 1
        series.seconds.observe(seconds)
        ended = series.ended.get(outcome)
        if ended is None:
            ended = self._outcomes.labels(extender, verb.value, outcome.value)
            series.ended[outcome] = ended
        ended.value += 1
        series.sent.value += sent
        series.received.value += received

    def call_held_back(self, extender: str, verb: Verb) -> None:
        """See Observer."""
        self._outcomes.labels(extender, verb.value, Outcome.HELD_BACK.value).inc()

    def nodes_dropped(self, extender: str, count: int) -> None:
        """See Observer; only filters turn nodes down."""
        self._dropped.labels(extender, Verb.FILTER.value).inc(count)

    def breaker_changed(self, extender: str, verb: Verb, state: State) -> None:
        """See Observer."""
        for each in State:
            series = self._breaker.labels(extender, verb.value, each.value)
            series.value = float(each is state)

    def error_ignored(self, error: ExtenderError) -> None:
        """See Observer."""
        self._ignored.labels(error.extender, error.verb.value).inc()

    def _series(self, extender: str, verb: Verb) -> _Calls:
        series = self._calls.get((extender, verb))
        if series is None:
            labels = extender, verb.value
            series = self._calls[extender, verb] = _Calls(
                self._in_flight.labels(*labels),
                self._seconds.labels(*labels),
                self._sent.labels(*labels),
                self._received.labels(*labels),
                {},
            )
        return series
