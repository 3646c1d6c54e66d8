"""What becomes of connections and requests at the endpoints."""

import enum
from typing import Final

from app.observe.metrics.series import ALPHA, Families


class Closed(enum.StrEnum):
    """Why the server closed a connection, or did not take it: the metric's label."""

    #: The TLS handshake failed or took too long.
    HANDSHAKE = "handshake"
    #: The head of the first request took too long.
    HEAD = "head"
    #: A request and its answer took too long.
    REQUEST = "request"
    #: It served no request and a newer one needed its place.
    CROWDED = "crowded"
    #: All places were taken by connections that served requests.
    REFUSED = "refused"


class ServingMetrics:
    """The series of one process."""

    def __init__(self, families: Families) -> None:
        self._connections: Final = families.gauge(
            "aiokube_scheduler_endpoint_connections", "Connections to the endpoints.", ALPHA
        ).labels()
        self._closed: Final = families.counter(
            "aiokube_scheduler_endpoint_connections_closed_total",
            "Connections to the endpoints that were closed, or not taken, for want of time or place.",
            ALPHA,
            "reason",
        )
        self._failures: Final = families.counter(
            "aiokube_scheduler_endpoint_failures_total",
            "Requests answered with 500 because the handler of their path raised an exception; the log tells which.",
            ALPHA,
            "path",
        )

    def connections(self, count: int) -> None:
        """How many there are now."""
        self._connections.value = float(count)

    def closed(self, why: Closed) -> None:
        """A connection was closed or not taken."""
        self._closed.labels(why.value).inc()

    def failed(self, path: str) -> None:
        """A handler raised an exception; ``path`` is that of its route."""
        self._failures.labels(path).inc()
