"""The scheduler, put together: state, watches, loop, bindings, reports, election.

Life of a process (docs/spec/cycle.md, docs/spec/election.md, docs/spec/endpoints.md)::

    connect -> watch, until every cache is whole -> wait for the lease -> schedule while it is held -> wind down

Winding down: stop popping, let bindings finish, send the events, release the lease. Nothing is decided before all caches are
whole, and nothing is written by a process that does not lead by its own clock.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import numpy as np

from app.extender.chain import ExtenderChain
from app.framework.args import Profile
from app.framework.diagnosis import EXTENDER
from app.framework.runner import ANY_CHANGE, Framework
from app.kube.events import EventRecorder
from app.kube.informer import Informer, wait_synced
from app.kube.resource_claims import ResourceClaimRequests
from app.kube.transport import Guard, Transport
from app.kube.watch_decoder import ADDED, DELETED, ResourceKind
from app.kube.writer import KubeWriter
from app.model.devices import ResourceClaim
from app.model.objects import Node
from app.model.pod import Pod
from app.observe.metrics.gauges import Sources
from app.observe.pod_events import PodEventRecorder
from app.observe.telemetry import Telemetry
from app.runtime.clock import Clock
from app.runtime.tasks import spawn, spawn_eternal
from app.scheduler import kinds
from app.scheduler.binding import Binder
from app.scheduler.effects import ApiEffects, ApiStatusWriter
from app.scheduler.extender_cycle import ChainBinder, ExtenderCycle
from app.scheduler.extender_retries import ExtenderRetries
from app.scheduler.extenders import wants_whole_nodes, wants_whole_victims
from app.scheduler.failures import FailureHandler
from app.scheduler.loop import SchedulingLoop
from app.scheduler.parts import Parts
from app.scheduler.permits import WaitingPods
from app.scheduler.preemption import Evictor, ExtenderPreemption
from app.scheduler.profiles import build_framework, plugin_names
from app.scheduler.queue_flusher import QueueFlusher
from app.scheduler.reports import Reports
from app.scheduler.serial_extenders import extenders_of
from app.scheduler.status_patches import StatusPatcher
from app.settings.defaults import IN_TREE_CAPABILITIES
from app.settings.load import Settings
from app.state.cache import Cache
from app.state.cluster import Cluster
from app.state.nominator import Nominator
from app.state.queue.hints import HintRegistration, with_taint_registrations
from app.state.queue.scheduling_queue import RetryTimes, SchedulingQueue
from app.state.scheduler_state import (
    AbandonPod,
    Change,
    Command,
    Refused,
    ReportProblem,
    SchedulerState,
)
from app.state.table import NodeTable

log = logging.getLogger(__name__)

#: Pods waiting for an event are tried again without one after this long (kube-scheduler's flag of this name).
MAX_IN_UNSCHEDULABLE_SECONDS: Final = 300.0


class Scheduler:
    """Everything between the API server's watches and its writes. One instance per process.

    Who tells whom::

        informers -> state <- loop                              what is known, and what is decided
                              loop -> search -> extenders       a say for webhooks, where there are any
                              loop -> binder -> effects         decided pods are bound,
                              loop -> effects -> evictor        or others make room for them,
                      loop, binder -> failures -> reports       or they wait, and people are told why
                          effects, evictor, patcher -> writer   what the API server is told
    """

    def __init__(
        self,
        settings: Settings,
        profiles: Sequence[Profile],
        plugin_classes: Mapping[str, type],
        *,
        transport: Transport,
        events: EventRecorder,
        group: asyncio.TaskGroup,
        clock: Clock,
        rng: np.random.Generator,
        telemetry: Telemetry,
        may_write: Guard,
        chain: ExtenderChain,
        max_unschedulable_seconds: float = MAX_IN_UNSCHEDULABLE_SECONDS,
    ) -> None:
        self._group: Final = group
        self._clock: Final = clock
        self._rng: Final = rng
        self._telemetry: Final = telemetry
        self._chain: Final = chain
        events.defer_while(self._has_urgent_writes)
        self.settings: Final = settings

        self.frameworks: Final[dict[str, Framework]] = {}
        self.waiting: Final = WaitingPods()
        self.state: Final = self._make_state(profiles, plugin_classes, max_unschedulable_seconds)
        self._parts: Final = Parts(self.state, clock, rng, self._spawn, telemetry.on)
        self.flusher: Final = QueueFlusher(self.state, clock, self._wake)

        self.writer: Final = KubeWriter(
            transport, may_write=may_write, rng=rng, pods=self.state.pods
        )
        self.patcher: Final = StatusPatcher(
            ApiStatusWriter(self.writer), self._spawn, backlog=lambda: self.state.ready
        )
        self._pod_events: Final = PodEventRecorder(events)
        self._reports: Final = Reports(self._pod_events, self.patcher)
        self.failures: Final = FailureHandler(self._parts, self._reports)
        telemetry.extender_reports.tell(self._pod_events)
        self.retries: Final = self._make_retries()

        self.evictor: Final = self._make_evictor()
        self.effects: Final = ApiEffects(
            self.writer,
            ResourceClaimRequests(transport, may_write=may_write, rng=rng),
            clock,
            self._pod_events,
            self.evictor,
            ExtenderPreemption(chain, self.state),
        )
        self.binder: Final = self._make_binder()
        self.loop: Final = self._make_loop(profiles)
        self.informers: Final = self._make_informers(transport, plugin_names(profiles))

    # ------------------------------------------------------------ what is known

    def _make_state(
        self,
        profiles: Sequence[Profile],
        plugin_classes: Mapping[str, type],
        max_unschedulable_seconds: float,
    ) -> SchedulerState:
        """The state, and in ``self.frameworks`` each profile's plugins, which look at it and say how its queue works."""
        table, cluster = NodeTable(), Cluster()

        def make_queue(nominator: Nominator) -> SchedulingQueue:
            for profile in profiles:
                self.frameworks[profile.scheduler_name] = build_framework(
                    profile,
                    plugin_classes,
                    table=table,
                    cluster=cluster,
                    nominator=nominator,
                    rng=self._rng,
                    waiting=self.waiting,
                    clock=self._clock,
                    probe=self._telemetry.probe,
                )
            return self._make_queue(nominator, max_unschedulable_seconds)

        return SchedulerState(
            cache=Cache(table),
            cluster=cluster,
            make_queue=make_queue,
            profiles=[p.scheduler_name for p in profiles],
            notify=self._notify,
        )

    def _make_queue(
        self, nominator: Nominator, max_unschedulable_seconds: float
    ) -> SchedulingQueue:
        config = self.settings.configuration
        extended = bool(self._chain)
        checks = {
            name: [(plugin.NAME, plugin.pre_enqueue) for plugin in framework.pre_enqueue]
            for name, framework in self.frameworks.items()
        }
        return SchedulingQueue(
            sort_key=self._queue_sort(),
            pre_enqueue=lambda pod: checks.get(pod.spec.scheduler_name, ()),
            hints={
                name: _hints(framework, extended=extended)
                for name, framework in self.frameworks.items()
            },
            times=RetryTimes(
                config.pod_initial_backoff_seconds,
                config.pod_max_backoff_seconds,
                max_unschedulable_seconds,
            ),
            recorder=self._telemetry.queue,
            nominator=nominator,
            lane=extenders_of(self._chain.extenders),
        )

    def _queue_sort(self) -> Callable[[Any], Any]:
        first = next(iter(self.frameworks.values()))
        return first.plugins.at("queueSort")[0].sort_key  # type: ignore[no-any-return]  # every profile has exactly one

    def _make_informers(self, transport: Transport, plugins: frozenset[str]) -> list[Informer[Any]]:
        chain = self._chain
        pods = kinds.pods(keep_raw=bool(chain), keep_bound_raw=wants_whole_victims(chain))
        nodes = kinds.nodes(keep_raw=wants_whole_nodes(chain))
        foreign = not plugins <= IN_TREE_CAPABILITIES.keys()
        others = {
            model: self._make_informer(transport, model, kind)
            for model, kind in kinds.others(plugins, foreign=foreign)
        }
        # A pod whose claim is there need not be held back first, to be let in when the claim arrives.
        claims = [informer for model, informer in others.items() if model is ResourceClaim]
        return [
            self._make_informer(transport, Node, nodes),
            self._make_informer(transport, Pod, pods, after=claims),
            *others.values(),
        ]

    def _make_informer(
        self,
        transport: Transport,
        model: type,
        kind: ResourceKind[Any],
        after: Sequence[Informer[Any]] = (),
    ) -> Informer[Any]:
        return Informer(
            kind,
            transport,
            self._handler(model),
            on_list=self._list_handler(model),
            rng=self._rng,
            after=after,
        )

    def _handler(self, model: type) -> Callable[[ResourceKind[Any], str, Any, Any], None]:
        handled, now = self._telemetry.watches.handled, self._telemetry.probe.now

        def handle(_kind: ResourceKind[Any], kind: str, old: Any, new: Any) -> None:
            started = now()
            before = None if kind == ADDED else old
            after = None if kind == DELETED else new
            change = Change(model, before, after)
            refused = self._carry_out(self.state.apply(change, self._clock.steady()))
            if model is Pod and (kind == DELETED or new.node_name):
                self.retries.gone(old.uid if kind == DELETED else new.uid)
            handled(change, now() - started)
            for error in refused.values():
                raise error

        return handle

    def _list_handler(self, model: type) -> Callable[[Mapping[str, Any]], Mapping[str, Exception]]:
        listed, now = self._telemetry.watches.listed, self._telemetry.probe.now

        def handle(objects: Mapping[str, Any]) -> Mapping[str, Exception]:
            started = now()
            refused = self._carry_out(self.state.apply_new(model, objects, self._clock.steady()))
            if model is Pod and self.retries:
                for pod in objects.values():
                    if pod.node_name:
                        self.retries.gone(pod.uid)
            listed(model, objects.values(), now() - started)
            return refused

        return handle

    # ------------------------------------------------------------ deciding, and what follows

    def _make_retries(self) -> ExtenderRetries:
        return ExtenderRetries(
            self._parts,
            [extender.name for extender in self._chain.extenders],
            self._telemetry.extender_reports,
        )

    def _make_evictor(self) -> Evictor:
        return Evictor(
            self._parts,
            writer=self.writer,
            events=self._pod_events,
            patcher=self.patcher,
            stop_unbound=self._stop_unbound,
        )

    def _make_binder(self) -> Binder:
        chain = self._chain
        return Binder(
            self._parts,
            effects=self.effects,
            extenders=ChainBinder(chain, self.writer, self.retries) if chain else None,
            waiting=self.waiting,
            reports=self._reports,
            undo=self.failures.undo,
            max_writing=self.settings.extension.max_bindings_in_flight,
        )

    def _make_loop(self, profiles: Sequence[Profile]) -> SchedulingLoop:
        return SchedulingLoop(
            self._parts,
            frameworks=self.frameworks,
            search=self._make_search(profiles) if self._chain else None,
            binder=self.binder,
            failures=self.failures,
            effects=self.effects,
            parallelism=self.settings.configuration.parallelism,
            evictor=self.evictor,
        )

    def _make_search(self, profiles: Sequence[Profile]) -> ExtenderCycle:
        return ExtenderCycle(
            self._chain,
            self.state.table,
            percentages={p.scheduler_name: p.percentage_of_nodes_to_score or 0 for p in profiles},
            rng=self._rng,
            retries=self.retries,
            notify=self.flusher.notify,
        )

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return spawn(self._group, coroutine, name=name)

    def _stop_unbound(self, uid: str) -> bool:
        """Stops a pod that waits for a permit or for its volumes; False if there is none by this uid."""
        waiting = self.waiting.get(uid)
        if waiting is None:
            return self.binder.preempt(uid)
        waiting.preempt()
        return True

    def _has_urgent_writes(self) -> bool:
        """Whether bindings or evictions are being written, or soon will be: there are pods to be decided."""
        return bool(self.binder.writing or self.evictor.running or self.state.ready)

    # ------------------------------------------------------------ what happened

    def _wake(self) -> None:
        self.loop.wake()

    def _notify(self) -> None:
        self.flusher.notify()

    def _carry_out(self, commands: Sequence[Command]) -> Mapping[str, Exception]:
        """Does what the state asks for. Returns the keys of objects that it refused, and why."""
        refused: dict[str, Exception] = {}
        for command in commands:
            match command:
                case AbandonPod(uid):
                    waiting = self.waiting.get(uid)
                    if waiting is not None:
                        waiting.reject("", "removed")
                case ReportProblem(text):
                    log.error("%s", text)
                case Refused(key, error):
                    refused[key] = error
        return refused

    # ------------------------------------------------------------ looking in

    @property
    def synced(self) -> bool:
        """Whether every cache is whole."""
        return all(informer.synced.is_set() for informer in self.informers)

    def watched(self, kind: str) -> Mapping[str, Any]:
        """The objects of a kind by key, as the watch shows them; empty for a kind that is not watched."""
        return next((i.objects for i in self.informers if i.kind.name == kind), {})

    def sources(self) -> Sources:
        """Where the metrics look up how things stand."""
        return Sources(
            queue=self.state.queue.statistics,
            cache=self.state.cache.statistics,
            frameworks=self.frameworks,
            informers=lambda: [informer.statistics() for informer in self.informers],
            workers=self._workers,
            patches=lambda: len(self.patcher),
            patches_dropped=lambda: self.patcher.dropped,
            doubts=lambda: len(self.writer.doubts),
        )

    def _workers(self) -> Mapping[str, float]:
        return {
            "binding": self.binder.running,
            "DefaultPreemption": self.evictor.running,
            "prioritizing_extender": self._telemetry.extender_metrics.prioritizing(),
        }

    # ------------------------------------------------------------ life

    def start_watching(self) -> None:
        """Starts the informers, and the flusher: events are dealt with whether this process leads or not, or they would pile up."""
        spawn_eternal(self._group, self.flusher.run(), name="flush queue")
        for informer in self.informers:
            spawn_eternal(self._group, informer.run(), name=f"watch {informer.kind.name}")

    async def wait_synced(self) -> None:
        """Returns when every cache is whole."""
        await wait_synced(self.informers)
        log.info(
            "Caches are synced: %s",
            ", ".join(f"{i.kind.name} {len(i.objects)}" for i in self.informers),
        )

    async def schedule(self) -> None:
        """Schedules until cancelled."""
        await self.loop.run()

    async def wind_down(self, seconds: float) -> None:
        """Lets bindings and preemptions finish and status patches be written, for at most this long."""
        self.retries.close()
        try:
            async with asyncio.timeout(seconds):
                await self.binder.wait_until_idle()
                await self.evictor.wait_until_idle()
                await self.patcher.finish()
        except TimeoutError:
            log.warning(
                "Not finished within %.0f s: %d bindings, %d preemptions, %d status patches",
                seconds,
                self.binder.running,
                self.evictor.running,
                len(self.patcher),
            )


def _hints(framework: Framework, *, extended: bool) -> tuple[HintRegistration, ...]:
    """What wakes the pods of a profile; extenders do not say what theirs wait for.

    See docs/spec/cluster-events.md#registration.
    """
    given = [
        HintRegistration(each.event, plugin, each.hint, each.template_only, each.narrow)
        for plugin, each in framework.queueing_hints()
    ]
    if extended:
        given += [HintRegistration(each.event, EXTENDER) for each in ANY_CHANGE]
    return with_taint_registrations(given)
