"""The endpoints of one process, put together: what they show, and who may see it."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import numpy as np
from aiohttp import web
from prometheus_client import CollectorRegistry

from app.kube.reviews import Reviews
from app.model.pod import Pod
from app.observe.explain import Leadership
from app.observe.metrics.series import Families
from app.observe.telemetry import Telemetry
from app.runtime.clock import Clock
from app.scheduler.election.elector import LeaseElector
from app.scheduler.explainer import Explainer
from app.scheduler.wiring import Scheduler
from app.serving.access import Authenticator, Authorizer
from app.serving.debug import DebugPages
from app.serving.debugger import CacheDebugger
from app.serving.extenders import ExtenderPages
from app.serving.health import Check, HealthEndpoints, ping
from app.serving.options import ServingOptions
from app.serving.pages import AboutPages, Dumps, MetricsPages
from app.serving.server import Listening, serving


class _Pages(Protocol):
    """A few paths and what they show."""

    def routes(self) -> list[web.RouteDef]:
        """The paths."""


class Endpoints:
    """Everything that is served about a scheduler, also while it is on standby."""

    def __init__(
        self,
        scheduler: Scheduler,
        telemetry: Telemetry,
        elector: LeaseElector | None,
        *,
        stopping: Callable[[], bool],
        flags: Mapping[str, str],
        version: str,
        clock: Clock,
        rng: np.random.Generator,
        degradation: Sequence[Check] = (),
    ) -> None:
        """``stopping``: whether the process has been asked to end; ``flags``: what the command line said.

        ``degradation``: checks of readiness that are told and do not fail.
        """
        self._scheduler: Final = scheduler
        self._elector: Final = elector
        self._stopping: Final = stopping
        state = scheduler.state
        self.debugger: Final = CacheDebugger(
            state, nodes=lambda: scheduler.watched("Node"), pods=lambda: scheduler.watched("Pod")
        )
        explainer = Explainer(
            state,
            scheduler.frameworks,
            telemetry.histories,
            leadership=self._leadership,
            rng=rng,
        )
        self.metrics: Final = telemetry.serving
        slis = CollectorRegistry()
        dumps = Dumps()
        self._pages: Final[Sequence[_Pages]] = (
            HealthEndpoints(self._checks(degradation), Families(slis)),
            MetricsPages(telemetry.registry, slis, telemetry.families, self._pods, dumps),
            AboutPages(
                scheduler.settings,
                flags,
                version=version,
                wall=clock.wall,
                paths=lambda: (route.path for route in self.routes()),
                leading=self._leading_in_words,
            ),
            *self._for_extenders(),
            DebugPages(
                state.queue,
                self.debugger,
                explainer.explain,
                telemetry.histories,
                lambda: scheduler.writer.doubts,
                lambda: (informer.describe() for informer in scheduler.informers),
                dumps,
                profiling=scheduler.settings.configuration.enable_profiling,
            ),
        )

    def _for_extenders(self) -> Sequence[ExtenderPages]:
        scheduler = self._scheduler
        if not scheduler.settings.extension.requeue_endpoint.enabled:
            return ()
        return (ExtenderPages(scheduler.retries.wake, leader=self._other_leader),)

    def routes(self) -> list[web.RouteDef]:
        """All paths."""
        return [route for pages in self._pages for route in pages.routes()]

    # ------------------------------------------------------------ leadership

    def _leadership(self) -> Leadership:
        if self._elector is None:
            return Leadership(leading=True)
        statistics = self._elector.statistics()
        return Leadership(statistics.is_leader, statistics.identity, statistics.holder)

    def _other_leader(self) -> str | None:
        leadership = self._leadership()
        return None if leadership.leading else leadership.holder

    def _leading_in_words(self) -> str:
        leadership = self._leadership()
        if self._elector is None:
            return "yes, without election"
        if leadership.leading:
            return f"yes, as {leadership.identity}"
        return f"no, {leadership.holder or 'nobody'} is"

    def _pods(self) -> Sequence[Pod]:
        """The pods to tell resources of: a standby leaves that to the leader."""
        return list(self._scheduler.state.pods.values()) if self._leadership().leading else ()

    # ------------------------------------------------------------ health

    def _checks(self, degradation: Sequence[Check]) -> Mapping[str, Sequence[Check]]:
        elector = self._elector
        election = [] if elector is None else [Check("leaderElection", elector.unhealthy)]
        return {
            "healthz": election or [ping()],
            "livez": [ping()],
            "readyz": [
                *election,
                Check("shutdown", self._shutting_down),
                Check("sched-handler-sync", self._not_synced),
                *degradation,
            ],
        }

    def _shutting_down(self) -> str | None:
        return "process is shutting down" if self._stopping() else None

    def _not_synced(self) -> str | None:
        return None if self._scheduler.synced else "handlers are not fully synchronized"


@asynccontextmanager
async def served(
    endpoints: Endpoints,
    options: ServingOptions,
    *,
    authentication: Reviews | None,
    authorization: Reviews | None,
    wall: Callable[[], float],
) -> AsyncIterator[Listening | None]:
    """Serves the endpoints for the length of the block; port 0 serves nothing. Raises ServingError."""
    if not options.secure_port:
        yield None
        return
    async with serving(
        endpoints.routes(),
        options,
        authenticator=Authenticator(options, authentication),
        authorizer=Authorizer(options, authorization),
        metrics=endpoints.metrics,
        wall=wall,
    ) as listening:
        yield listening
