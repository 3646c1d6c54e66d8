"""Metrics of calls to extenders, by extender and verb; kube-scheduler has none."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from app.extender.breaker import State
from app.extender.config import Verb
from app.extender.errors import CallOutcome
from app.extender.events import (
    BreakerChanged,
    CallFinished,
    CallHeldBack,
    CallStarted,
    ErrorIgnored,
    LimitChanged,
    NodesRejected,
)
from app.observe.events import ByType
from app.observe.metrics.series import Histogram, MetricFamilies, Sample, exponential

_EXTENDER_VERB: Final = ("extender", "verb")
_HELD_BACK: Final = CallOutcome.HELD_BACK.value


class _Calls(msgspec.Struct, frozen=True):
    """The series of one extender's verb."""

    in_flight: Sample
    seconds: Histogram
    sent: Sample
    received: Sample
    #: By outcome; created with the first call that ends so.
    ended: dict[CallOutcome, Sample]


class _CallsBy(dict[tuple[str, Verb], _Calls]):
    """The series by extender and verb, each looked up with its first call."""

    def __init__(self, look_up: Callable[[str, Verb], _Calls]) -> None:
        super().__init__()
        self._look_up: Final = look_up

    def __missing__(self, key: tuple[str, Verb]) -> _Calls:
        series = self[key] = self._look_up(*key)
        return series


class ExtenderMetrics:
    """Requests, their durations, sizes and outcomes, and the state of the breakers."""

    #: The bounds of the durations, in seconds.
    bounds: Final = exponential(0.001, 2, 15)

    def __init__(self, families: MetricFamilies) -> None:
        self._seconds: Final = families.histogram(
            "aiokube_scheduler_extender_request_duration_seconds",
            "Latency of calls to extenders, from sending to the whole answer.",
            self.bounds,
            _EXTENDER_VERB,
        )
        self._outcomes: Final = families.counter(
            "aiokube_scheduler_extender_requests_total",
            "Calls to extenders by outcome; held_back are those not made because the breaker is open.",
            (*_EXTENDER_VERB, "outcome"),
        )
        self._sent: Final = families.counter(
            "aiokube_scheduler_extender_request_bytes_total",
            "Bytes of the bodies sent to extenders.",
            _EXTENDER_VERB,
        )
        self._received: Final = families.counter(
            "aiokube_scheduler_extender_response_bytes_total",
            "Bytes of the bodies of extenders' answers.",
            _EXTENDER_VERB,
        )
        self._in_flight: Final = families.gauge(
            "aiokube_scheduler_extender_requests_in_flight",
            "Calls to extenders that wait for their answer.",
            _EXTENDER_VERB,
        )
        self._dropped: Final = families.counter(
            "aiokube_scheduler_extender_nodes_dropped_total",
            "Nodes that extenders rejected, of those they were sent.",
            _EXTENDER_VERB,
        )
        self._ignored: Final = families.counter(
            "aiokube_scheduler_extender_errors_ignored_total",
            "Failed calls that were ignored.",
            _EXTENDER_VERB,
        )
        self._breaker: Final = families.gauge(
            "aiokube_scheduler_extender_breaker_state",
            "1 for the current state of the breaker: closed, open or half_open.",
            (*_EXTENDER_VERB, "state"),
        )
        self._limit: Final = families.gauge(
            "aiokube_scheduler_extender_limit",
            "About how many pods at a time the extender's server is called, attempts and bindings, as it was found "
            "or configured.",
            ("extender",),
        )
        self._calls: Final = _CallsBy(self._calls_of)
        #: Counts and times calls.
        self.on: Final = ByType(
            {
                CallStarted: self._started,
                CallFinished: self._finished,
                CallHeldBack: self._held_back,
                NodesRejected: self._rejected,
                BreakerChanged: lambda e: self._breaker_is(e.extender, e.verb, e.state),
                ErrorIgnored: self._error_ignored,
                LimitChanged: self._limit_is,
            }
        )

    def prioritizing(self) -> float:
        """The number of prioritize calls in progress."""
        verb = Verb.PRIORITIZE.value
        return sum(gauge.value for labels, gauge in self._in_flight.of.items() if labels[1] == verb)

    def latencies(self) -> dict[tuple[str, str], list[int]]:
        """The durations of the calls of each extender's verb, counted by ``bounds``."""
        return {
            (extender, verb): list(seconds.counts)
            for (extender, verb), seconds in self._seconds.of.items()
        }

    def figures(self) -> Iterator[dict[str, Any]]:
        """For each extender's verb: calls in flight and by outcome, nodes dropped, errors ignored, the
        breaker's state.
        """
        outcomes: dict[tuple[str, ...], dict[str, int]] = {}
        for ended, counter in self._outcomes.of.items():
            if counter.value:
                outcomes.setdefault(ended[:2], {})[ended[2]] = int(counter.value)
        states = {each[:2]: each[2] for each, one in self._breaker.of.items() if one.value}
        for labels, in_flight in self._in_flight.of.items():
            yield {
                "extender": labels[0],
                "verb": labels[1],
                "inFlight": int(in_flight.value),
                "outcomes": outcomes.get(labels, {}),
                "dropped": int(self._dropped.labels(*labels).value),
                "ignored": int(self._ignored.labels(*labels).value),
                "breaker": states.get(labels, State.CLOSED.value),
                "limit": int(self._limit.labels(labels[0]).value),
            }

    def expect(self, extender: str, verb: Verb) -> None:
        """Creates the series of an extender's verb before its first call."""
        self._in_flight.labels(extender, verb.value)
        self._outcomes.labels(extender, verb.value, CallOutcome.SUCCESS.value)
        self._breaker_is(extender, verb, State.CLOSED)
        self._limit.labels(extender)

    def _started(self, event: CallStarted) -> None:
        self._calls[event.extender, event.verb].in_flight.value += 1

    def _held_back(self, event: CallHeldBack) -> None:
        self._outcomes.labels(event.extender, event.verb.value, _HELD_BACK).inc()

    def _rejected(self, event: NodesRejected) -> None:  # only filters reject nodes
        self._dropped.labels(event.extender, Verb.FILTER.value).inc(event.count)

    def _limit_is(self, event: LimitChanged) -> None:
        self._limit.labels(event.extender).value = float(event.limit)

    def _error_ignored(self, event: ErrorIgnored) -> None:
        self._ignored.labels(event.error.extender, event.error.verb.value).inc()

    def _finished(self, call: CallFinished) -> None:
        series = self._calls[call.extender, call.verb]
        series.in_flight.value -= 1
        series.seconds.observe(call.seconds)
        ended = series.ended.get(call.outcome)
        if ended is None:
            ended = self._outcomes.labels(call.extender, call.verb.value, call.outcome.value)
            series.ended[call.outcome] = ended
        ended.value += 1
        series.sent.value += call.sent
        series.received.value += call.received

    def _breaker_is(self, extender: str, verb: Verb, state: State) -> None:
        for each in State:
            self._breaker.labels(extender, verb.value, each.value).value = float(each is state)

    def _calls_of(self, extender: str, verb: Verb) -> _Calls:
        labels = extender, verb.value
        return _Calls(
            self._in_flight.labels(*labels),
            self._seconds.labels(*labels),
            self._sent.labels(*labels),
            self._received.labels(*labels),
            {},
        )
