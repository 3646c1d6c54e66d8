"""What becomes of connections and requests at the endpoints."""

from typing import Final

from app.observe.metrics.series import ALPHA, Families


class ServingMetrics:
    """The series of one process."""

    def __init__(self, families: Families) -> None:
        self._failures: Final = families.counter(
            "aiokube_scheduler_endpoint_failures_total",
            "Requests answered with 500 because the handler of their path raised an exception; the log tells which.",
            ALPHA,
            "path",
        )

    def failed(self, path: str) -> None:
        """A handler raised an exception; ``path`` is that of its route."""
        self._failures.labels(path).inc()
