"""Serves ``/healthz``, ``/livez`` and ``/readyz``: named checks in Kubernetes' format.

See docs/spec/endpoints.md#health-checks.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from aiohttp import web

from app.observe.metrics.series import STABLE, MetricFamilies
from app.runtime import logs
from app.serving.checks import Check, report

log = logging.getLogger(__name__)


_Handler = Callable[[web.Request], Awaitable[web.Response]]


class HealthEndpoints:
    """The three endpoints and their checks."""

    def __init__(self, checks: Mapping[str, Sequence[Check]], families: MetricFamilies) -> None:
        """``checks`` by endpoint: healthz, livez, readyz. ``families`` are those of /metrics/slis."""
        self._checks: Final = checks
        self._degraded: dict[str, str] = {}
        self._gauge: Final = families.gauge(
            "kubernetes_healthcheck",
            "This metric records the result of a single healthcheck.",
            ("name", "type"),
            stability=STABLE,
        )
        self._counter: Final = families.counter(
            "kubernetes_healthchecks_total",
            "This metric records the results of all healthcheck.",
            ("name", "type", "status"),
            stability=STABLE,
        )

    def routes(self) -> list[web.RouteDef]:
        """The endpoints, and below each one endpoint for every check."""
        routes = []
        for endpoint, checks in self._checks.items():
            routes.append(web.get(f"/{endpoint}", self._all(endpoint, checks)))
            routes += [web.get(f"/{endpoint}/{c.name}", self._one(endpoint, c)) for c in checks]
        return routes

    def _all(self, endpoint: str, checks: Sequence[Check]) -> _Handler:
        async def answer(request: web.Request) -> web.Response:
            result = report(
                endpoint,
                checks,
                excluded=request.query.getall("exclude", []),
                verbose="verbose" in request.query,
                observe=self._observe,
            )
            if result.withheld and logs.enabled(2):
                log.info("%s check failed:\n%s", endpoint, result.withheld)
            if any(not check.fatal for check in checks):
                self._log_changes(result.degraded)
            return _plain(result.text, 200 if result.healthy else 500)

        return answer

    def _log_changes(self, degraded: Mapping[str, str]) -> None:
        """Logs when a degradation begins and when it ends; probes come too often to log each result."""
        for name in degraded.keys() - self._degraded.keys():
            log.warning("Degraded: %s: %s", name, degraded[name])
        for name in self._degraded.keys() - degraded.keys():
            log.info("No longer degraded: %s", name)
        self._degraded = dict(degraded)

    def _one(self, endpoint: str, check: Check) -> _Handler:
        async def answer(_request: web.Request) -> web.Response:
            problem = check.problem()
            self._observe(check.name, endpoint, problem is None)
            if problem is None:
                return _plain("ok", 200)
            return _plain(f"internal server error: {problem}\n", 500)

        return answer

    def _observe(self, check: str, endpoint: str, healthy: bool) -> None:
        self._gauge.labels(check, endpoint).value = float(healthy)
        self._counter.labels(check, endpoint, "success" if healthy else "error").inc()


def _plain(text: str, status: int) -> web.Response:
    headers = {"X-Content-Type-Options": "nosniff"}
    return web.Response(status=status, text=text, headers=headers)
