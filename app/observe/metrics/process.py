"""Metrics of the process: requests to the API server, delays of the event loop, connections to the endpoints."""

import asyncio
import enum
from collections.abc import Callable
from typing import Final

from app.observe.metrics.series import Histogram, MetricFamilies, Sample, exponential

#: The buckets of client-go.
_LATENCY_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
#: Seconds between two measurements of the loop's lag.
LAG_INTERVAL: Final = 0.5


class ClientMetrics:
    """rest_client_* as in client-go, for all clients of the process."""

    def __init__(self, families: MetricFamilies) -> None:
        self._requests: Final = families.counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
        )
        self._seconds: Final = families.histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds, by verb and host.",
            _LATENCY_BUCKETS,
            ("verb", "host"),
        )

    def observer(self, server: str) -> Callable[[str, int, float], None]:
        """The function that a KubeClient of ``server`` (its URL) calls once per exchange."""
        host = server.partition("://")[2].partition("/")[0]

        series: dict[tuple[str, int], tuple[Sample, Histogram]] = {}

        def observe(method: str, status: int, seconds: float) -> None:
            known = series.get((method, status))
            if known is None:
                code = str(status) if status else "<error>"
                known = (
                    self._requests.labels(code, method, host),
                    self._seconds.labels(method, host),
                )
                series[method, status] = known
            requests, latency = known
            requests.value += 1.0
            latency.observe(seconds)

        return observe


class LoopLag:
    """Measures how late the event loop wakes a sleeping task."""

    def __init__(self, families: MetricFamilies, now: Callable[[], float]) -> None:
        """``now``: a clock in seconds other than the loop's, which does not advance while the loop is busy."""
        self._now: Final = now
        self._lag: Final = families.histogram(
            "aiokube_scheduler_event_loop_lag_seconds",
            "How much later than asked for the event loop ran a task, measured twice a second.",
            exponential(0.0005, 2, 14),
        ).labels()

    async def run(self) -> None:
        """Measures until cancelled."""
        while True:
            due = self._now() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self._lag.observe(max(0.0, self._now() - due))


class Closed(enum.StrEnum):
    """Why the server closed or refused a connection: the metric's label."""

    #: The TLS handshake failed or took too long.
    HANDSHAKE = "handshake"
    #: The headers of the first request took too long.
    HEAD = "head"
    #: A request and its answer took too long.
    REQUEST = "request"
    #: It was idle and a new connection needed its place.
    CROWDED = "crowded"
    #: The limit of connections was reached, and all served requests.
    REFUSED = "refused"


class ServingMetrics:
    """Connections and requests at the endpoints."""

    def __init__(self, families: MetricFamilies) -> None:
        self._connections: Final = families.gauge(
            "aiokube_scheduler_endpoint_connections", "Connections to the endpoints."
        ).labels()
        self._closed: Final = families.counter(
            "aiokube_scheduler_endpoint_connections_closed_total",
            "Connections to the endpoints that the server closed or refused, by the reason.",
            ("reason",),
        )
        self._failures: Final = families.counter(
            "aiokube_scheduler_endpoint_failures_total",
            "Requests answered with 500 because the handler of their path raised an exception; the log has it.",
            ("path",),
        )

        self._listeners: Final = families.gauge(
            "aiokube_scheduler_feed_listeners", "Listeners of /debug/feed."
        ).labels()
        self._skips: Final = families.counter(
            "aiokube_scheduler_feed_skips_total",
            "Times that a listener of /debug/feed was too slow for all changes and got a snapshot instead.",
        ).labels()

    def listeners(self, count: int) -> None:
        """The number of listeners of the feed has changed to this."""
        self._listeners.value = float(count)

    def skipped(self) -> None:
        """A listener of the feed was too slow."""
        self._skips.inc()

    def connections(self, count: int) -> None:
        """The number of connections has changed to this."""
        self._connections.value = float(count)

    def closed(self, why: Closed) -> None:
        """The server closed or refused a connection."""
        self._closed.labels(why.value).inc()

    def failed(self, path: str) -> None:
        """A handler raised an exception; ``path`` is that of its route."""
        self._failures.labels(path).inc()
