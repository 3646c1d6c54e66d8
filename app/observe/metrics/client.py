"""Requests to the API server, as client-go counts them, and how promptly the event loop turns."""

import asyncio
from collections.abc import Callable
from typing import Final

from app.observe.metrics.series import ALPHA, Counter, Families, Histogram, exponential

#: client-go's.
_LATENCY_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
#: Seconds between two looks at the loop's lag.
LAG_INTERVAL: Final = 0.5


class ClientMetrics:
    """rest_client_*, over all clients of the process."""

    def __init__(self, families: Families) -> None:
        self._requests: Final = families.counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ALPHA,
            "code",
            "method",
            "host",
        )
        self._seconds: Final = families.histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds, by verb and host.",
            ALPHA,
            _LATENCY_BUCKETS,
            "verb",
            "host",
        )

    def observer(self, server: str) -> Callable[[str, int, float], None]:
        """What a KubeClient of ``server`` (its URL) calls once per exchange."""
        host = server.partition("://")[2].partition("/")[0]

        series: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

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
    """How late the event loop wakes a task that sleeps."""

    def __init__(self, families: Families, now: Callable[[], float]) -> None:
        """``now``: not the loop's own time, which stands still while it is busy."""
        self._now: Final = now
        self._lag: Final = families.histogram(
            "aiokube_scheduler_event_loop_lag_seconds",
            "How much later than asked for the event loop ran a task, looked at twice a second.",
            ALPHA,
            exponential(0.0005, 2, 14),
        ).labels()

    async def run(self) -> None:
        """Measures until cancelled."""
        while True:
            due = self._now() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self._lag.observe(max(0.0, self._now() - due))
