"""Runs the scheduler process, from settings to exit status.

    connect -> list and watch until all caches are synced -> acquire the lease -> schedule while it is held -> shut down

Requests are answered as soon as the first pods are bound, and ANSWERING_DELAY after the start at the latest.

On shutdown no more pods are tried, bindings finish, the events are sent, and the lease is released, unless a binding
was sent whose outcome is not known.
"""

import asyncio
import contextlib
import functools
import gc
import ipaddress
import logging
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
import numpy as np

from app.extender.chain import ExtenderChain
from app.extender.events import Sink
from app.extender.memory import AnswerMemory
from app.kube.client import ClientLimits, KubeClient
from app.kube.connection import Connection, user_agent
from app.kube.credentials import CredentialFailures
from app.kube.events import EventRecorder
from app.kube.kubeconfig import load_connection
from app.kube.leaders import Leader
from app.kube.leases import LeaseClient
from app.kube.reviews import Reviews, reviewing
from app.model.clock import Clock
from app.model.features import Features
from app.model.selectors import Labels
from app.observe.metrics import gauges
from app.observe.telemetry import Telemetry
from app.plugins import registry
from app.runtime.clock import SystemClock, make_rng, make_secret
from app.runtime.distributions import entry_points, version
from app.runtime.limits import Limits, resident_memory, return_free_memory, take_limits
from app.runtime.shortages import SHORTAGES
from app.runtime.signals import StopRequest, handled
from app.runtime.tasks import spawn_eternal
from app.scheduler import degradation
from app.scheduler.api_version import RulesChooser
from app.scheduler.election.elector import Callbacks, ElectionOutcome, LeaseElector, new_identity
from app.scheduler.election.rules import ElectionSettings, request_timeout
from app.scheduler.extenders import make_chain
from app.scheduler.options import RunOptions
from app.scheduler.parts import ApiServer, Budgets, Runtime
from app.scheduler.shadow_extenders import MAX_CALLS
from app.scheduler.wiring import Scheduler
from app.serving.checks import Check
from app.serving.listening import Listening, listening
from app.serving.options import ServingOptions
from app.settings.load import Loaded

if TYPE_CHECKING:
    from app.scheduler.recording import Recorder

log = logging.getLogger(__name__)

#: Thresholds of the garbage collector. While tens of thousands of objects fill the caches it would find no garbage, so
#: it hardly runs; then the caches are excluded from collections (``gc.freeze``).
_GC_WHILE_FILLING: Final = (2_000_000, 20, 50)
_GC_WHEN_FILLED: Final = (50_000, 20, 50)

#: Seconds for which requests wait while the caches are filled and the first pods are bound: what answers takes a fifth
#: of a second of CPU time to import, as much as everything until the first binding.
ANSWERING_DELAY: Final = 2.0

#: Seconds for sending the events about the lease after it is released.
LAST_EVENTS_SECONDS: Final = 1.0

_DISTRIBUTION: Final = "aiokube-scheduler"

#: File descriptors for the process itself, events, the lease, reviews and served connections.
_DESCRIPTORS_OF_PROCESS: Final = 48
#: The part of the memory limit for what waits: cluster events, API events, status patches.
_PART_FOR_WAITING: Final = 8
#: A warning is logged if the process uses more than this part of its memory limit once the caches are filled.
_MEMORY_OF_CACHES: Final = 0.7

EXIT_STOPPED: Final = 0
EXIT_LOST: Final = 1


async def _filled(scheduler: Scheduler, limits: Limits) -> None:
    """Returns when all caches are synced; excludes them from garbage collections."""
    await scheduler.wait_synced()
    used = resident_memory()
    if used > _MEMORY_OF_CACHES * limits.memory:
        log.warning(
            "The caches are filled and %d MiB of the memory limit of %d MiB are in use: raise the limit",
            used >> 20,
            limits.memory >> 20,
        )
    gc.freeze()
    gc.set_threshold(*_GC_WHEN_FILLED)


class _Finished(Exception):  # noqa: N818 - ends a TaskGroup with eternal tasks
    pass


class _Recorders(msgspec.Struct, frozen=True):
    """The events about pods, and those about the lease, which are sent until the end."""

    pods: EventRecorder
    lease: EventRecorder


class _Clients(msgspec.Struct, frozen=True):
    """One client for each purpose, so that none delays another."""

    #: Watches and writes, limited as clientConnection says.
    main: KubeClient
    events: KubeClient
    #: The lease, with a time limit of its own.
    lease: KubeClient


async def run(loaded: Loaded, options: RunOptions) -> int:
    """Runs the scheduler until it is asked to stop (returns 0) or loses its lease (returns 1).

    When other rules hold since the API server was upgraded, the process ends as if it were asked to stop, and another
    one begins.
    """
    with StopRequest().installed() as stop:
        while True:
            gc.unfreeze()
            gc.set_threshold(*_GC_WHILE_FILLING)
            process = Process(loaded, options, stop.requested, SystemClock())
            status = await process.run()
            if status != EXIT_STOPPED or stop.requested.is_set():
                return status


def _import_endpoints() -> None:
    """Imports what takes long and is needed for answers only."""
    from app.scheduler import endpoints  # noqa: F401, PLC0415
    from app.serving import certificates  # noqa: F401, PLC0415


def _recorder(folder: Path, clock: Clock, *, redact: bool) -> "Recorder":
    from app.scheduler.recording import Recorder  # noqa: PLC0415 - few schedulers record

    return Recorder(folder, clock, secret=make_secret() if redact else "")


class Process:
    """One run of the scheduler; ends when ``stop`` is set."""

    def __init__(
        self, loaded: Loaded, options: RunOptions, stop: asyncio.Event, clock: Clock
    ) -> None:
        self._loaded: Final = loaded
        self._settings: Final = loaded.settings
        self._options: Final = options
        self._stop: Final = stop
        self._clock: Final = clock
        self._rng, seed = make_rng(options.seed)
        self._telemetry: Final = Telemetry(self._clock, self._child_rng())
        bodies = self._settings.extension.extender_bodies
        self._telemetry.histories.keep_bodies(bodies.calls, bodies.max_bytes)
        self._limits: Final = take_limits()
        self._large_answers: Final = AnswerMemory(self._limits.memory)
        self._recorder: Final = (
            None
            if options.record is None
            else _recorder(options.record, clock, redact=options.redact)
        )
        self._budgets: Final = Budgets.within(self._limits.memory // _PART_FOR_WAITING)
        self._credential_failures: Final = CredentialFailures()
        self._elector: LeaseElector | None = None
        self._scheduler: Scheduler | None = None
        self._leading: Final = asyncio.Event()
        self._stopped_leading: Final = asyncio.Event()
        #: Set when other rules hold since the API server was upgraded.
        self._outdated: Final = asyncio.Event()
        self._identity: Final = new_identity(socket.gethostname())
        #: URL of the endpoints; empty while nothing is served.
        self._server = ""
        self._certificate = ""
        log.info("Starting aiokube-scheduler %s (seed %d)", _version(), seed)

    def _child_rng(self) -> np.random.Generator:
        return np.random.default_rng(self._rng.integers(2**63))

    def may_write(self) -> bool:
        """Whether this process leads, by its own clock; always without election."""
        return self._elector is None or self._elector.is_leader_now()

    def _may_release(self) -> bool:
        """Whether the next leader may start at once: not while pods may become bound that it does not know of."""
        return self._scheduler is None or not self._scheduler.binder.unsettled

    async def run(self) -> int:
        """Runs until ``stop`` is set or the lease is lost; returns the exit status."""
        try:
            async with (
                self._clients() as clients,
                self._extenders() as chain,
                asyncio.TaskGroup() as group,
            ):
                status = await self._run(clients, group, chain)
                raise _Finished  # noqa: TRY301 - ends the eternal tasks of the group
        except* _Finished:
            pass
        finally:
            if self._recorder is not None:
                await asyncio.to_thread(self._recorder.end)
        return status

    async def _run(
        self,
        clients: "_Clients",
        group: asyncio.TaskGroup,
        chain: ExtenderChain,
    ) -> int:
        host = socket.gethostname()
        events = _Recorders(
            EventRecorder(
                clients.events,
                host=host,
                rng=self._rng,
                may_write=self.may_write,
                budget=self._budgets.events,
            ),
            EventRecorder(clients.events, host=host, rng=self._rng, api="v1"),
        )
        self._elector = self._make_elector(clients.lease, events.lease)
        chooser = RulesChooser(
            clients.events, self._options.version, self._options.features, asyncio.sleep
        )
        features = await chooser.choose()
        scheduler = self._make_scheduler(clients.main, events.pods, group, chain, features)
        self._scheduler = scheduler
        self._register_gauges(scheduler, events.pods)
        self._check_limits(scheduler, chain)
        checks = self._degradation(scheduler, chain, events.pods)
        async with self._endpoints(group, scheduler, checks):
            spawn_eternal(group, events.pods.run(), name="events")
            spawn_eternal(group, events.lease.run(), name="lease events")
            spawn_eternal(group, self._telemetry.lag.run(), name="event loop lag")
            spawn_eternal(group, return_free_memory(), name="free memory")
            if self._options.version is None:
                spawn_eternal(group, self._watch_version(chooser, features), name="API version")
            return await self._lead(group, scheduler, events)

    async def _watch_version(self, chooser: RulesChooser, features: Features) -> None:
        """Ends the process when other rules hold."""
        await chooser.until_upgraded(features)
        self._outdated.set()
        await asyncio.Event().wait()

    async def _lead(
        self, group: asyncio.TaskGroup, scheduler: Scheduler, events: _Recorders
    ) -> int:
        campaign = None
        if not self._delayed:
            scheduler.start_watching()
        if not self._delayed and not await self._unless_stopped(
            "fill the caches", _filled(scheduler, self._limits)
        ):
            return EXIT_STOPPED
        if self._elector is not None:
            campaign = group.create_task(self._elector.run(), name="election")
            if not await self._unless_stopped("wait for the lease", self._leading.wait()):
                return await self._release(campaign, events)
        if self._delayed:
            scheduler.start_watching()
            await self._unless_stopped("fill the caches", _filled(scheduler, self._limits))
        return await self._schedule(scheduler, campaign, events)

    async def _schedule(
        self,
        scheduler: Scheduler,
        campaign: asyncio.Task[ElectionOutcome] | None,
        events: _Recorders,
    ) -> int:
        log.info("Scheduling")
        await self._unless_stopped("schedule", scheduler.loop.run())
        if campaign is not None and self._stopped_leading.is_set():
            log.error("Leaderelection lost")
            scheduler.releases.close()
            await campaign
            return EXIT_LOST
        await scheduler.wind_down(self._options.shutdown_seconds)
        await events.pods.drain(self._options.shutdown_seconds / 2)
        return await self._release(campaign, events)

    async def _release(
        self, campaign: asyncio.Task[ElectionOutcome] | None, events: _Recorders
    ) -> int:
        if self._elector is not None and campaign is not None:
            self._elector.stop()
            await campaign
            await events.lease.drain(LAST_EVENTS_SECONDS)
        return EXIT_STOPPED

    async def _unless_stopped(self, name: str, work: Coroutine[Any, Any, object]) -> bool:
        """True if ``work`` is done before a stop is requested or the lease is lost; otherwise cancels it and returns
        False.
        """
        reasons = (self._stop, self._stopped_leading, self._outdated)
        if any(reason.is_set() for reason in reasons):
            work.close()
            return False
        doing = asyncio.create_task(work, name=name)
        ends = [asyncio.create_task(reason.wait(), name="wait for the end") for reason in reasons]
        try:
            await asyncio.wait([doing, *ends], return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
            return doing.done()
        finally:
            for end in ends:
                end.cancel()
            doing.cancel()
            await asyncio.wait([doing])

    # ------------------------------------------------------------ parts

    @property
    def _delayed(self) -> bool:
        config = self._settings.configuration
        return config.delay_cache_until_active and config.leader_election.leader_elect

    @functools.cached_property
    def _connection(self) -> Connection:
        client = self._settings.configuration.client_connection
        return load_connection(
            kubeconfig=client.kubeconfig,
            master=self._options.master,
            wall=self._clock.wall,
        )

    @contextlib.asynccontextmanager
    async def _clients(self) -> AsyncIterator["_Clients"]:
        """Opens the clients, which share only the source of the credentials."""
        connection = self._connection
        config = self._settings.configuration
        qps, burst = config.client_connection.qps, config.client_connection.burst
        writes = self._settings.extension.max_bindings_in_flight
        failures = self._credential_failures
        observer = self._telemetry.client.observer(connection.server)
        main = KubeClient(
            connection,
            agent=_agent("scheduler"),
            limits=ClientLimits(qps, burst, exchanges=writes + 32),
            observer=observer if self._recorder is None else self._recorder.observer(observer),
            failures=failures,
        )
        events = KubeClient(
            connection,
            agent=_agent("events"),
            limits=ClientLimits(exchanges=8),
            observer=observer,
            failures=failures,
        )
        timeout = request_timeout(config.leader_election.renew_deadline.seconds)
        lease = KubeClient(
            connection,
            agent=_agent("leader-election"),
            limits=ClientLimits(exchanges=4, timeout=timeout, throttled=0),
            observer=observer,
            failures=failures,
        )
        async with main, events, lease:
            yield _Clients(main, events, lease)

    @contextlib.asynccontextmanager
    async def _extenders(self) -> AsyncIterator[ExtenderChain]:
        chain = make_chain(
            self._settings,
            (self._on_extender(), self._telemetry.on_shadow),
            self.may_write,
            self._large_answers,
            self._labels_of_namespace,
        )
        for warning in chain.warnings:
            log.warning("%s", warning)
        self._telemetry.expect(chain.all)
        try:
            yield chain
        finally:
            await chain.close()

    def _on_extender(self) -> Sink:
        sink = self._telemetry.on_extender
        return sink if self._recorder is None else self._recorder.extender_sink(sink)

    def _labels_of_namespace(self, name: str) -> Labels | None:
        """None for a namespace that is not known."""
        if self._scheduler is None:
            return None
        namespace = self._scheduler.state.cluster.namespaces.get(name)
        return None if namespace is None else namespace.labels

    def _make_elector(self, client: KubeClient, events: EventRecorder) -> LeaseElector | None:
        config = self._settings.configuration.leader_election
        if not config.leader_elect:
            return None
        return LeaseElector(
            LeaseClient(
                client,
                namespace=config.resource_namespace,
                name=config.resource_name,
                annotations=lambda: self._as_leader().annotations(),
            ),
            ElectionSettings(
                identity=self._identity,
                lease_duration=config.lease_duration.seconds,
                renew_deadline=config.renew_deadline.seconds,
                retry_period=config.retry_period.seconds,
            ),
            clock=self._clock,
            rng=self._rng,
            callbacks=Callbacks(
                on_started_leading=self._leading.set,
                on_stopped_leading=self._stopped_leading.set,
                may_release=self._may_release,
            ),
            events=events,
            component=self._settings.configuration.profiles[0].scheduler_name,
        )

    def _as_leader(self) -> Leader:
        """What this process writes about itself into the annotations of the lease."""
        return Leader(
            self._identity,
            self._server,
            self._certificate,
            tuple(p.scheduler_name for p in self._settings.configuration.profiles),
            starting=bool(self._options.serving.secure_port) and not self._server,
        )

    def _make_scheduler(
        self,
        client: KubeClient,
        events: EventRecorder,
        group: asyncio.TaskGroup,
        chain: ExtenderChain,
        features: Features,
    ) -> Scheduler:
        classes = registry.registry(entry_points(group=registry.GROUP))
        return Scheduler(
            self._loaded,
            classes,
            runtime=Runtime(
                group,
                self._clock,
                self._child_rng(),
                self._telemetry,
                self._budgets,
                self._recorder,
                _version(),
            ),
            api=ApiServer(client, events, self.may_write),
            chain=chain,
            max_unschedulable_seconds=self._options.max_unschedulable_seconds,
            features=features,
        )

    # ------------------------------------------------------------ metrics, checks, endpoints

    def _register_gauges(self, scheduler: Scheduler, events: EventRecorder) -> None:
        families = self._telemetry.families
        scheduler.register(families)
        gauges.register_election(
            families, lambda: None if self._elector is None else self._elector.statistics()
        )
        gauges.register_events(families, lambda: [events.statistics()])
        gauges.register_resources(
            families, self._limits, self._large_answers, SHORTAGES, self._budgets._asdict()
        )
        gauges.register_credentials(families, self._credential_failures)
        gauges.register_build(families, _version())
        gauges.register_features(families, scheduler.features)

    def _degradation(
        self, scheduler: Scheduler, chain: ExtenderChain, events: EventRecorder
    ) -> list[Check]:
        return [
            *degradation.watches(scheduler.watch_statistics),
            *degradation.resources(self._limits, SHORTAGES),
            *degradation.extenders(chain.extenders),
            *degradation.drops(
                events=lambda: events.statistics().dropped,
                status_patches=lambda: scheduler.patcher.dropped,
                cluster_events=lambda: self._telemetry.queue.dropped,
                large_answers=lambda: self._large_answers.given_up,
            ),
        ]

    def _check_limits(self, scheduler: Scheduler, chain: ExtenderChain) -> None:
        """Logs if the limit of file descriptors is too low for the configuration."""
        config = self._settings.configuration
        watches = len(scheduler.informers)
        needed = (
            _DESCRIPTORS_OF_PROCESS
            + watches
            + self._settings.extension.max_bindings_in_flight
            + config.parallelism * (len(chain.extenders) + len(chain.dry_runs))
            + MAX_CALLS * len(chain.shadows)
        )
        have = self._limits.descriptors
        if have < needed:
            log.log(
                logging.ERROR if have < _DESCRIPTORS_OF_PROCESS + watches else logging.WARNING,
                "The limit of file descriptors is %d, and this configuration may need %d: %d for watches, "
                "maxBindingsInFlight for writes, and parallelism for each extender. Raise the limit (ulimit -n), "
                "or pods may "
                "have to wait for descriptors.",
                have,
                needed,
                watches,
            )

    @contextlib.asynccontextmanager
    async def _endpoints(
        self, group: asyncio.TaskGroup, scheduler: Scheduler, checks: Sequence[Check]
    ) -> AsyncIterator[None]:
        """Listens for requests, answers them soon after, and dumps the cache on SIGUSR2."""
        serving = self._options.serving
        connections = serving.connections.within(self._limits.descriptors)
        serving = msgspec.structs.replace(serving, connections=connections)
        with handled(signal.SIGUSR2, scheduler.debugger.to_log):
            if not serving.secure_port:
                yield
                return
            async with (
                self._reviews(serving.authentication_kubeconfig) as authentication,
                self._reviews(serving.authorization_kubeconfig) as authorization,
            ):
                with listening(serving, self._clock.wall) as found:
                    work = self._answer(
                        scheduler,
                        found,
                        serving,
                        checks,
                        authentication=authentication,
                        authorization=authorization,
                    )
                    answering = spawn_eternal(group, work, name="endpoints")
                    try:
                        yield
                    finally:
                        answering.cancel()
                        await asyncio.wait([answering])

    async def _answer(
        self,
        scheduler: Scheduler,
        listening: Listening,
        serving: ServingOptions,
        checks: Sequence[Check],
        **reviews: Reviews,
    ) -> None:
        """Answers requests to the endpoints until cancelled. Connections that were made before have waited."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWERING_DELAY):
                await scheduler.caught_up()
        await asyncio.to_thread(_import_endpoints)
        from app.scheduler.endpoints import Endpoints, answered  # noqa: PLC0415 - see above

        endpoints = Endpoints(
            scheduler,
            self._telemetry,
            self._elector,
            stopping=lambda: self._stop.is_set() or self._outdated.is_set(),
            flags=self._options.flags,
            version=_version(),
            degradation=checks,
        )
        async with answered(endpoints, listening, serving, **reviews):
            host = await _own_address(serving.bind_address, self._connection.server)
            self._server, self._certificate = listening.at(host), listening.certificate
            # The lease names the endpoints.
            if self._elector is not None:
                self._elector.renew()
            await asyncio.Event().wait()

    def _reviews(self, kubeconfig: str) -> AbstractAsyncContextManager[Reviews]:
        """TokenReviews and SubjectAccessReviews by the API server of a kubeconfig, by default the scheduler's own."""
        return reviewing(
            self._connection,
            kubeconfig,
            agent=_agent("reviews"),
            rng=self._child_rng(),
            wall=self._clock.wall,
            observer=self._telemetry.client.observer,
            failures=self._credential_failures,
        )


async def _own_address(bind_address: str, api_server: str) -> str:
    """The address for clients of ``bind_address``; for a wildcard, the local address of connections to
    the API server.
    """
    try:
        if not ipaddress.ip_address(bind_address).is_unspecified:
            return bind_address
    except ValueError:  # a name
        return bind_address
    url = urlsplit(api_server)
    try:
        # Connecting a datagram socket sends nothing; it only chooses the local address.
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=(url.hostname or "", url.port or 443)
        )
    except OSError:
        return socket.gethostname()
    try:
        return str(transport.get_extra_info("sockname")[0])
    finally:
        transport.close()


@functools.cache
def _version() -> str:
    return version(_DISTRIBUTION)


def _agent(purpose: str) -> str:
    return user_agent(_version(), purpose)
