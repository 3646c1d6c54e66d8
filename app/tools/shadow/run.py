"""Runs a shadow: watches what a scheduler watches, through a reader that cannot write, and judges each outcome.

connect -> list and watch until all caches are synced -> hold changes back for a moment -> judge -> take them over
"""

import asyncio
import contextlib
import dataclasses
import gc
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from app.extender.interest import Interest
from app.kube.connection import Connection, user_agent
from app.kube.credentials import CredentialFailures
from app.kube.errors import UNREADABLE, KubeApiError
from app.kube.informer import Informer, wait_synced
from app.kube.kubeconfig import load_connection
from app.kube.read_only import read_only
from app.kube.reviews import Reviews, reviewing
from app.kube.transport import Reader
from app.kube.watch_decoder import ResourceKind
from app.model.clock import Clock
from app.model.features import RECORDED, Features, known_in, version_for
from app.model.objects import Node
from app.model.pod import Pod
from app.model.selectors import Labels
from app.observe.metrics.exposition import registry_of
from app.observe.metrics.gauges import register_credentials
from app.observe.metrics.process import ClientMetrics, LoopLag, ServingMetrics
from app.observe.metrics.series import MetricFamilies
from app.plugins import registry
from app.runtime.clock import SystemClock, make_rng, make_secret, stopwatch
from app.runtime.distributions import entry_points, version
from app.runtime.limits import return_free_memory
from app.runtime.signals import StopRequest
from app.runtime.tasks import in_steps, spawn_eternal
from app.scheduler import kinds
from app.scheduler.api_version import server_version
from app.scheduler.extenders import extender_configs
from app.scheduler.options import RunOptions
from app.scheduler.profiles import plugin_names
from app.scheduler.recording import Recorder
from app.scheduler.trace import Header
from app.serving.access import Authenticator, Authorizer
from app.serving.checks import Check, ping
from app.serving.health import HealthEndpoints
from app.serving.options import ServingOptions
from app.serving.pages import Dumps, MetricsPages
from app.serving.server import serving
from app.settings.defaults import IN_TREE_CAPABILITIES
from app.settings.dump import to_yaml, without_paths
from app.settings.load import Loaded, Settings
from app.state.scheduler_state import Change, RefusedObject, ReportProblem
from app.tools.shadow.journal import Journal
from app.tools.shadow.judge import Judge
from app.tools.shadow.tally import Tally
from app.tools.shadow.timeline import Entry, Timeline
from app.tools.shadow.verdict import NOT_COMPARABLE, Verdict
from app.tools.shadow.versions import version_of
from app.tools.shadow.world import ShadowWorld, make_world

log = logging.getLogger(__name__)

#: Seconds for which every change is held back, because watches of different kinds differ, and for which an outcome is
#: while pods that were decided earlier show none.
SHORTEST_DELAY: Final = 0.15
LONGEST_DELAY: Final = 0.85
#: A change that is not older, in seconds, is held back on purpose.
_IN_TIME: Final = 11.0
#: Seconds between two looks at the changes that are held back.
_LOOK: Final = 0.03
#: Seconds for which changes can be undone, and their number at most.
_WINDOW: Final = 12.0
_UNDOABLE: Final = 4000
#: Seconds of work after which other tasks run.
_SLICE: Final = 0.005
#: Thresholds of the garbage collector once the caches are filled.
_GC_WHEN_FILLED: Final = (50_000, 20, 50)
_DISTRIBUTION: Final = "aiokube-scheduler"
_EXTENDED: Final = "the extender {} may not be asked"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShadowOptions:
    """How a shadow runs, besides its configuration."""

    kubeconfig: str = ""
    journal: Path | None = None
    journal_bytes: int = 256 << 20
    serving: ServingOptions = dataclasses.field(default_factory=ServingOptions)
    summary_seconds: float = 10.0
    """Between two summaries."""
    version: str | None = None
    """The version whose rules are followed; None for that of the API server."""
    gates: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    """The feature gates that are set."""
    record: Path | None = None
    """The directory into which the objects of the cluster are recorded; None: they are not."""
    redact: bool = False
    """Whether names and labels are hidden in it."""


async def run(loaded: Loaded, options: ShadowOptions, show: Callable[[str], None]) -> int:
    """Runs until SIGINT or SIGTERM; returns 0. ``show`` gets the lines for people.

    Raises ConnectionSettingsError, PluginError, RegistryError, JournalError and ServingError.
    """
    with StopRequest().installed() as stop:
        theirs = await _asked(loaded, options)
        return await Shadow(loaded, options, SystemClock(), show, theirs).run(stop.requested)


async def _asked(loaded: Loaded, options: ShadowOptions) -> str:
    """What the API server says it is, or why it says nothing. Raises ConnectionSettingsError."""
    kubeconfig = options.kubeconfig or loaded.settings.configuration.client_connection.kubeconfig
    connection = load_connection(kubeconfig=kubeconfig, wall=SystemClock().wall)
    observer = ClientMetrics(MetricFamilies()).observer(connection.server)
    async with read_only(
        connection, agent=_agent("shadow"), observer=observer, failures=CredentialFailures()
    ) as reader:
        try:
            return await server_version(reader)
        except (KubeApiError, *UNREADABLE) as error:
            return f"unknown ({error})"


class Shadow:
    """One run of a shadow."""

    def __init__(
        self,
        loaded: Loaded,
        options: ShadowOptions,
        clock: Clock,
        show: Callable[[str], None],
        server: str = "v1.36.0",
    ) -> None:
        """``server``: the version of the API server. Raises FeaturesError."""
        theirs = Features.of(version_for(server))
        version = options.version or theirs.version
        self.features: Final = Features.of(version, known_in(version, options.gates))
        self._theirs: Final = theirs
        self._settings: Final = loaded.settings
        self._options: Final = options
        self._clock: Final = clock
        self._show: Final = show
        self._rng, _ = make_rng()
        classes = registry.registry(entry_points(group=registry.GROUP))
        self._profiles: Final = loaded.to_plain(registry.capabilities(classes), self.features)
        self.world: Final[ShadowWorld] = make_world(
            self._profiles, classes, self._rng, self.features, theirs
        )
        #: The URL of each extender that takes part in decisions, and which pods concern it.
        self._extenders: Final = [
            (config.name, Interest(config, self._labels_of_namespace))
            for config in extender_configs(self._settings)
            if not config.shadow and (config.filter_verb or config.prioritize_verb)
        ]
        self.timeline: Final = Timeline(self.world.state, window=_WINDOW, limit=_UNDOABLE)
        self._judge: Final = Judge(
            self.timeline, self.world.profiles, self._rng, incomparable=self._incomparable
        )
        self._told: Final = server
        self._judge.version = version_of(server, self.features)
        self._journal: Final = (
            None if options.journal is None else Journal(options.journal, options.journal_bytes)
        )
        self._families: Final = MetricFamilies()
        self.tally: Final = Tally(self._families)
        self._client: Final = ClientMetrics(self._families)
        self._credential_failures: Final = CredentialFailures()
        register_credentials(self._families, self._credential_failures)
        self._lag: Final = LoopLag(self._families, stopwatch())
        self._arrived: Final = asyncio.Event()
        #: Whether changes go through the timeline; before that they fill the state.
        self._live = False
        self._informers: list[Informer[Any]] = []
        self._recorder: Final = (
            None
            if options.record is None
            else self._recording(options.record, redact=options.redact)
        )

    def _recording(self, folder: Path, *, redact: bool) -> Recorder:
        """Begins to record. Raises OSError."""
        recorder = Recorder(folder, self._clock, secret=make_secret() if redact else "")
        header = Header(
            version=version(_DISTRIBUTION),
            configuration=to_yaml(without_paths(self._settings)),
            rules=self.features.version,
            gates=sorted(self.features.gates),
            max_unschedulable_seconds=RunOptions().max_unschedulable_seconds,
            began=self._clock.wall(),
            first=True,
            observed=True,
        )
        recorder.begin(header, self.world.state, self._rng)
        return recorder

    async def run(self, stop: asyncio.Event) -> int:
        """Runs until ``stop`` is set."""
        connection = load_connection(
            kubeconfig=self._options.kubeconfig
            or self._settings.configuration.client_connection.kubeconfig,
            wall=self._clock.wall,
        )
        observer = self._client.observer(connection.server)
        async with (
            read_only(
                connection,
                agent=_agent("shadow"),
                observer=observer,
                failures=self._credential_failures,
            ) as reader,
            self._endpoints(connection, stop),
            asyncio.TaskGroup() as group,
        ):
            tasks = self._start(group, reader)
            await stop.wait()
            for task in tasks:
                task.cancel()
        if self._journal is not None:
            await self._journal.write()
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.end)
        self._show_summary()
        return 0

    def _start(self, group: asyncio.TaskGroup, reader: Reader) -> list[asyncio.Task[None]]:
        self._informers = self._make_informers(reader)
        work = {f"watch {each.kind.name}": each.run() for each in self._informers}
        work |= {"judge": self._run(), "summary": self._summarize()}
        work |= {"event loop lag": self._lag.run(), "free memory": return_free_memory()}
        if self._journal is not None:
            work["journal"] = self._journal.run()
        return [spawn_eternal(group, each, name=name) for name, each in work.items()]

    # ------------------------------------------------------------ watches

    def _make_informers(self, reader: Reader) -> list[Informer[Any]]:
        plugins = plugin_names([*self._profiles, *Loaded(Settings()).to_plain()])
        foreign = not plugins <= IN_TREE_CAPABILITIES.keys()
        watched: list[tuple[type, ResourceKind[Any]]] = [
            (Node, kinds.nodes(keep_raw=False)),
            (Pod, self._kind_of_pods()),
            *kinds.others(plugins, foreign=foreign, features={*kinds.GROUP_GATES, *self.features}),
        ]
        return [self._make_informer(model, kind, reader) for model, kind in watched]

    def _kind_of_pods(self) -> ResourceKind[Pod]:
        return kinds.pods(
            keep_raw=False, keep_bound_raw=False, features=self.features, theirs=self._theirs
        )

    def _make_informer(self, model: type, kind: ResourceKind[Any], reader: Reader) -> Informer[Any]:
        def handle(old: Any, new: Any) -> None:
            self._take(Change(model, old, new))

        def listed(objects: Mapping[str, Any]) -> Mapping[str, Exception]:
            if self._live:
                for new in objects.values():
                    self._take(Change(model, None, new))
            else:
                now = self._clock.steady()
                if self._recorder is not None:
                    self._recorder.came(model, objects, now)
                self._report(self.world.state.apply_new(model, objects, now))
            return {}

        return Informer(kind, reader, handle, on_list=listed, rng=self._rng)

    def _take(self, change: Change) -> None:
        now = self._clock.steady()
        if self._recorder is not None:
            self._recorder.changed(change, now)
        if self._live:
            self.timeline.push(change, now)
            self._arrived.set()
        else:
            self._report(self.world.state.apply(change, now))

    def _report(self, commands: Any) -> None:
        for command in commands:
            match command:
                case ReportProblem(text):
                    log.error("%s", text)
                case RefusedObject(key, error):
                    log.error("Cannot handle %s: %s: %s", key, type(error).__name__, error)

    # ------------------------------------------------------------ verdicts

    async def _run(self) -> None:
        await wait_synced(self._informers)
        gc.freeze()
        gc.set_threshold(*_GC_WHEN_FILLED)
        self._live = True
        self._greet()
        while True:
            while not self.timeline.ahead:
                self._arrived.clear()
                await self._arrived.wait()
            await asyncio.sleep(max(self._wait(self.timeline.ahead[0]), _LOOK))
            await self._catch_up()

    def _wait(self, entry: Entry) -> float:
        """Seconds until a change may be taken over, or is looked at again; 0 if it may be."""
        age = self._clock.steady() - entry.at
        if age < SHORTEST_DELAY:
            return SHORTEST_DELAY - age
        timeline = self.timeline
        if timeline.awaits_bindings(entry, age):
            return _LOOK
        if age >= LONGEST_DELAY:
            timeline.stop_awaiting(entry)
        elif timeline.awaits_earlier(entry) or timeline.awaits_preparation(entry):
            return min(_LOOK, LONGEST_DELAY - age)
        return 0.0

    async def _catch_up(self) -> None:
        """Handles the changes that have been held back long enough."""
        ahead, now = self.timeline.ahead, self._clock.steady
        until = now() + _SLICE
        while ahead and not self._wait(ahead[0]):
            self.timeline.put_in_order()
            entry = ahead[0]
            if entry.outcome is not None:
                self._record(entry, await self._verdict(entry, entry.outcome.pod))
            self._report(self.timeline.advance())
            if now() > until:
                await asyncio.sleep(0)
                until = now() + _SLICE

    async def _verdict(self, entry: Entry, pod: Pod) -> Verdict:
        try:
            return await in_steps(self._judge.judge(entry))
        except Exception as error:
            log.exception("Error judging pod %s", pod.key)
            said = f"error of the shadow: {type(error).__name__}: {error}"
            return Verdict(pod=pod.key, kind=NOT_COMPARABLE, change=said)

    def _record(self, entry: Entry, verdict: Verdict) -> None:
        lag = self._clock.steady() - entry.at
        rules = "" if self.features == RECORDED else str(self.features)
        verdict = msgspec.structs.replace(
            verdict, rules=rules, at=round(entry.at, 3), lag=round(lag, 3)
        )
        self.tally.count(verdict)
        if self._journal is not None:
            self._journal.put(verdict)

    def _labels_of_namespace(self, name: str) -> Labels | None:
        namespace = self.world.state.cluster.namespaces.get(name)
        return None if namespace is None else namespace.labels

    def _incomparable(self, pod: Pod) -> str:
        """The extender that would have to be asked about the pod."""
        for url, interest in self._extenders:
            if interest.concerns(pod):
                return _EXTENDED.format(url)
        return ""

    # ------------------------------------------------------------ for people

    def _greet(self) -> None:
        names = ", ".join(profile.scheduler_name for profile in self._profiles)
        state = self.world.state
        self._show(
            f"API server {self._told}; judging the pods of {names} by the rules of {self.features}"
        )
        for line in self._judge.version.lines:
            self._show(line)
        self._show(f"{state.table.node_count} nodes, {len(state.pods)} pods; nothing is written")

    async def _summarize(self) -> None:
        seen = 0
        while True:
            await asyncio.sleep(self._options.summary_seconds)
            if self.tally.classes.total() != seen:
                seen = self.tally.classes.total()
                self._show_summary()

    def _behind(self) -> float:
        """The age of the oldest change that is not taken over yet, in seconds."""
        ahead = self.timeline.ahead
        return self._clock.steady() - ahead[0].at if ahead else 0.0

    def _show_summary(self) -> None:
        behind = self._behind()
        late = behind > _IN_TIME
        waiting = f" {len(self.timeline.ahead)} changes, the oldest {behind:.0f} s old, wait."
        self._show(self.tally.summary() + (waiting if late else ""))

    @contextlib.asynccontextmanager
    async def _endpoints(self, connection: Connection, stop: asyncio.Event) -> AsyncIterator[None]:
        options = self._options.serving
        if not options.secure_port:
            yield
            return
        self._families.computed(
            "aiokube_scheduler_shadow_changes_held_back",
            "Changes that have arrived and are not taken over yet.",
            lambda: {(): len(self.timeline.ahead)},
        )
        self._families.computed(
            "aiokube_scheduler_shadow_behind_seconds",
            "The age of the oldest change that is not taken over yet.",
            lambda: {(): self._behind()},
        )
        slis = CollectorRegistry()
        ready = [
            Check("shutdown", lambda: "process is shutting down" if stop.is_set() else None),
            Check(
                "sched-handler-sync", lambda: None if self._live else "the caches are not synced"
            ),
        ]
        health = HealthEndpoints(
            {"healthz": [ping()], "livez": [ping()], "readyz": ready}, MetricFamilies(slis)
        )
        pages = MetricsPages(registry_of(self._families), slis, self._families, lambda: (), Dumps())
        async with (
            self._reviews(connection, options.authentication_kubeconfig) as tokens,
            self._reviews(connection, options.authorization_kubeconfig) as access,
            serving(
                [*health.routes(), *pages.routes()],
                options,
                authenticator=Authenticator(options, tokens),
                authorizer=Authorizer(options, access),
                metrics=ServingMetrics(self._families),
                wall=self._clock.wall,
            ),
        ):
            yield

    def _reviews(
        self, connection: Connection, kubeconfig: str
    ) -> AbstractAsyncContextManager[Reviews]:
        return reviewing(
            connection,
            kubeconfig,
            agent=_agent("reviews"),
            rng=self._rng,
            wall=self._clock.wall,
            observer=self._client.observer,
            failures=self._credential_failures,
        )


def _agent(purpose: str) -> str:
    return user_agent(version(_DISTRIBUTION), purpose)
