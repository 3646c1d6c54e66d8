"""Builds the HTTP endpoints of a process, and serves them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry

from app.kube.reviews import Reviews
from app.model.pod import Pod
from app.observe.explain import Leadership
from app.observe.feed import Feed, FeedSources, Health
from app.observe.metrics.series import MetricFamilies
from app.observe.telemetry import Telemetry
from app.scheduler.election.elector import LeaseElector
from app.scheduler.explainer import Explainer
from app.scheduler.wiring import Scheduler
from app.serving.access import Authenticator, Authorizer
from app.serving.checks import Check, ping
from app.serving.debug import DebugPages
from app.serving.extenders import ExtenderPages
from app.serving.feed import FeedPages
from app.serving.health import HealthEndpoints
from app.serving.listening import Listening
from app.serving.options import ServingOptions
from app.serving.pages import AboutPages, Dumps, MetricsPages
from app.serving.recording import NotRecordedError, RecordedFile, RecordingPages
from app.serving.server import answering
from app.serving.whatif import WhatIfPages


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
        degradation: Iterable[Check] = (),
    ) -> None:
        """``stopping``: whether the process has been asked to end; ``flags``: those of the command line.

        ``degradation``: readiness checks that report problems without failing.
        """
        self._scheduler: Final = scheduler
        self._elector: Final = elector
        self._stopping: Final = stopping
        self.metrics: Final = telemetry.serving
        slis = CollectorRegistry()
        dumps = Dumps()
        checks = self._checks(degradation)
        self.feed: Final = FeedPages(
            Feed(self._feed_sources(telemetry, checks["readyz"], version)),
            stopping=stopping,
            metrics=telemetry.serving,
        )
        #: All paths.
        self.routes: Final[list[web.RouteDef]] = [
            *HealthEndpoints(checks, MetricFamilies(slis)).routes(),
            *MetricsPages(telemetry.registry, slis, telemetry.families, self._pods, dumps).routes(),
            *AboutPages(
                scheduler.settings,
                flags,
                version=version,
                wall=scheduler.parts.clock.wall,
                paths=lambda: (route.path for route in self.routes),
                leading=self._leading_in_words,
                features=scheduler.features,
            ).routes(),
            *self._extender_routes(),
            *RecordingPages(self._latest if scheduler.recorder is not None else None).routes(),
            *WhatIfPages(scheduler.whatif.ask, scheduler.filter.answer, version).routes(),
            *self.feed.routes(),
            *self._debug_pages(telemetry, dumps).routes(),
        ]

    async def _latest(self, seconds: float) -> Sequence[RecordedFile]:
        """The files of the recording that have the last so many seconds. Raises NotRecordedError, OSError."""
        from app.scheduler.trace import TraceError  # noqa: PLC0415 - few schedulers record

        recorder = self._scheduler.recorder
        assert recorder is not None  # noqa: S101 - else nobody calls this
        since = self._scheduler.parts.clock.wall() - seconds
        try:
            files = await asyncio.to_thread(recorder.latest, recorder.mark(), since)
        except TraceError as error:
            raise NotRecordedError(str(error)) from error
        return [RecordedFile(*each) for each in files]

    def _debug_pages(self, telemetry: Telemetry, dumps: Dumps) -> DebugPages:
        scheduler = self._scheduler
        explainer = Explainer(
            scheduler.state,
            scheduler.frameworks,
            telemetry.histories,
            telemetry.group_histories,
            leadership=self._leadership,
            rng=scheduler.parts.rng.spawn(1)[0],
            rules=str(scheduler.features),
            limits=scheduler.chain.limits,
        )
        return DebugPages(
            scheduler.debugger,
            explainer.explain,
            telemetry.histories,
            dumps,
            reports={
                "bindings": scheduler.writer.describe_doubts,
                "watches": lambda: [each.describe() for each in scheduler.informers],
                "extenders": lambda: {
                    "calls": list(telemetry.extender_metrics.figures()),
                    "shadows": list(scheduler.shadows.describe()),
                },
                "rejections": scheduler.kubelet_rejections.describe,
            },
            profiling=scheduler.settings.configuration.enable_profiling,
        )

    def _feed_sources(
        self, telemetry: Telemetry, checks: Sequence[Check], version: str
    ) -> FeedSources:
        def health() -> Iterator[Health]:
            for check in checks:
                yield check.name, check.problem() or "", check.fatal

        scheduler = self._scheduler
        return FeedSources(
            state=scheduler.state,
            events=telemetry.recent,
            histories=telemetry.histories,
            groups=telemetry.group_histories,
            attempts=telemetry.attempts,
            queue=telemetry.queue,
            extenders=telemetry.extender_metrics,
            kubelet_rejections=scheduler.kubelet_rejections.by_reason,
            health=health,
            leadership=self._leadership,
            wall=scheduler.parts.clock.wall,
            monotonic=scheduler.parts.clock.monotonic,
            version=version,
            profiles=tuple(scheduler.frameworks),
        )

    def _extender_routes(self) -> list[web.RouteDef]:
        scheduler = self._scheduler
        if not scheduler.settings.extension.requeue_endpoint.enabled:
            return []
        return ExtenderPages(scheduler.retries.wake, leader=self._other_leader).routes()

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
        return f"no, {leadership.holder or 'no process'} is"

    def _pods(self) -> Sequence[Pod]:
        """The pods of the resource metrics, which only the leader exposes."""
        return list(self._scheduler.state.pods.values()) if self._leadership().leading else ()

    # ------------------------------------------------------------ health

    def _checks(self, degradation: Iterable[Check]) -> Mapping[str, Sequence[Check]]:
        elector = self._elector
        election = [] if elector is None else [Check("leaderElection", elector.unhealthy)]
        return {
            "healthz": election or [ping()],
            "livez": [ping()],
            "readyz": [
                *election,
                Check("shutdown", lambda: "process is shutting down" if self._stopping() else None),
                Check(
                    "sched-handler-sync",
                    lambda: (
                        None if self._scheduler.synced else "handlers are not fully synchronized"
                    ),
                ),
                *degradation,
            ],
        }


@asynccontextmanager
async def answered(
    endpoints: Endpoints,
    listening: Listening,
    options: ServingOptions,
    *,
    authentication: Reviews | None,
    authorization: Reviews | None,
) -> AsyncIterator[None]:
    """Answers requests to the endpoints for the length of the block. Raises ServingError."""
    async with answering(
        listening,
        endpoints.routes,
        options,
        authenticator=Authenticator(options, authentication),
        authorizer=Authorizer(options, authorization),
        metrics=endpoints.metrics,
    ):
        try:
            yield
        finally:
            endpoints.feed.end()
