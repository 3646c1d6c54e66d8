"""Builds the scheduler from its parts: state, informers, loop, binder, evictor, reports.

No pod is tried before all caches are synced, and a process that does not lead by its own clock writes nothing
(docs/spec/cycle.md, docs/spec/election.md).
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from app.extender.chain import ExtenderChain
from app.extender.dry_run import DryRuns
from app.framework.args import Profile
from app.framework.runner import Framework
from app.kube.informer import Informer, InformerStatistics, wait_synced
from app.kube.resource_claims import ResourceClaimRequests
from app.kube.watch_decoder import ResourceKind
from app.kube.writer import KubeWriter
from app.model import pod_groups_v1alpha2
from app.model.devices import ResourceClaim
from app.model.features import Rule, as_features
from app.model.objects import Namespace, Node
from app.model.pod import Pod
from app.model.pod_groups import POLICIES, GroupKey, LabelledPodGroup, PodGroup
from app.observe.metrics import gauges
from app.observe.metrics.series import BETA, MetricFamilies
from app.observe.pod_events import PodEvents
from app.plugins.registry import capabilities
from app.runtime.tasks import Spawn, spawn, spawn_eternal
from app.scheduler import kinds
from app.scheduler.binding import Binder
from app.scheduler.effects import ApiEffects
from app.scheduler.extender_cycle import ChainBinder, ExtenderCycle
from app.scheduler.extender_retries import ExtenderRetries
from app.scheduler.extenders import selects_namespaces, wants_whole_nodes, wants_whole_victims
from app.scheduler.failures import FailureHandler
from app.scheduler.group_cycle import GroupCycle
from app.scheduler.group_status import GroupStatusWriter
from app.scheduler.kubelet_rejections import KubeletRejections
from app.scheduler.loop import PodCycle, QueueFlusher, SchedulingLoop
from app.scheduler.parts import ApiServer, Parts, Runtime
from app.scheduler.permits import WaitingPodsMap
from app.scheduler.preemption import Evictor, ExtenderPreemption
from app.scheduler.profiles import build_state, plugin_names, with_gang_scheduling
from app.scheduler.releases import Releases
from app.scheduler.reports import Reports
from app.scheduler.serial_extenders import SerialGate, lanes
from app.scheduler.shadow_extenders import ShadowExtenders
from app.scheduler.status_patches import StatusPatcher
from app.serving.debugger import CacheDebugger
from app.settings.defaults import IN_TREE_CAPABILITIES
from app.settings.load import Loaded
from app.state.queue.backoff_queue import RetryTimes
from app.state.queue.scheduling_queue import SchedulingQueue
from app.state.scheduler_state import (
    AbandonPod,
    Change,
    ClearNomination,
    Command,
    RefusedObject,
    ReportProblem,
    SchedulerState,
)

if TYPE_CHECKING:
    from app.scheduler.whatif.answering import WhatIf
    from app.scheduler.whatif.filtering import WhatIfFilter

log = logging.getLogger(__name__)

#: The feature gate without which topology constraints of PodGroups do not count.
_TOPOLOGY: Final = "TopologyAwareWorkloadScheduling"
#: Seconds after which a pod that waits for an event is tried again without one (kube-scheduler's flag of this name).
MAX_IN_UNSCHEDULABLE_SECONDS: Final = 300.0


class Scheduler:
    """Everything between the API server's watches and its writes. One instance per process.

    Which part calls which::

        informers -> state <- loop                  objects, and assumed pods
        loop -> extender cycle -> chain             filter and prioritize, if extenders are configured
        loop -> binder -> effects                   binds pods with a chosen node
        loop, binder -> failures -> reports         requeues the others, with an event and a condition
        failures -> PostFilter -> effects -> evictor   preempts
        effects, evictor, patcher -> writer         writes to the API server
    """

    def __init__(
        self,
        loaded: Loaded,
        plugin_classes: Mapping[str, type],
        *,
        runtime: Runtime,
        api: ApiServer,
        chain: ExtenderChain,
        max_unschedulable_seconds: float = MAX_IN_UNSCHEDULABLE_SECONDS,
        features: Collection[str] = (),
    ) -> None:
        """``features``: the rules that hold; of mere names of gates, those of the oldest version.

        Raises ConfigurationError, PluginError.
        """
        self.features: Final = as_features(features)
        features = self.features
        plain = loaded.to_plain(capabilities(plugin_classes), features)
        profiles = [with_gang_scheduling(profile) for profile in plain]
        self._profiles: Final = profiles
        self._plugin_classes: Final = plugin_classes
        self._runtime: Final = runtime
        self._spawn: Final[Spawn] = functools.partial(spawn, runtime.group)
        self._clock: Final = runtime.clock
        self._rng: Final = runtime.rng
        #: What records all that happens, if anything does.
        self.recorder: Final = runtime.recorder
        #: For decisions without extenders, and with them. A replay repeats only draws that delays do not come between.
        self._decisions, self._asking = (
            (self._rng, self._rng) if self.recorder is None else self._rng.spawn(2)
        )
        self._telemetry: Final = runtime.telemetry
        self._api: Final = api
        self.chain: Final = chain
        chain.empty_victims = Rule.EmptyVictims in features.rules
        api.events.defer_while(self._has_urgent_writes)
        self.settings: Final = loaded.settings

        self.waiting: Final = WaitingPodsMap()
        self.state, self.frameworks = self._make_state(
            profiles, plugin_classes, max_unschedulable_seconds
        )
        if kinds.GROUP_GATES[0] in features:
            self.state.cluster.pod_groups.preempt_whole(
                gate=pod_groups_v1alpha2.WHOLE_PREEMPTION in features
            )
        self.parts: Final = Parts(
            self.state, self._clock, self._decisions, self._spawn, self._telemetry.on
        )
        #: Set when pods may have entered the activeQ: the loop waits for it.
        self._active: Final = asyncio.Event()
        self.flusher: Final = QueueFlusher(self.state, self._clock, self._active.set)

        self.writer: Final = KubeWriter(
            api.transport, may_write=api.may_write, rng=self._rng, pods=self.state.pods
        )
        self.patcher: Final = self._make_patcher()
        self._pod_events: Final = PodEvents(api.events)
        self._reports: Final = Reports(
            self._pod_events, self.patcher, self._telemetry.extender_reports.told_already
        )
        self._telemetry.extender_reports.send_to(self._pod_events)
        names = [extender.name for extender in chain.all]
        self.retries: Final = ExtenderRetries(self.parts, names, self._telemetry.extender_reports)
        self.shadows: Final = self._make_shadows(profiles)
        #: The extenders, for questions.
        self.dry_runs: Final = DryRuns(chain)
        self.kubelet_rejections: Final = KubeletRejections(
            api.transport, self._spawn, leads=api.may_write
        )
        self.evictor: Final = self._make_evictor()
        self.effects: Final = self._make_effects()
        self.releases: Final = Releases(chain.extenders, self._spawn, self.retries)
        self.failures: Final = FailureHandler(
            self.parts, self.effects, self._reports, self.releases.given_up
        )
        self.binder: Final = self._make_binder()
        self.loop: Final = self._make_loop(profiles)
        self.informers: Final = self._make_informers(plugin_names(profiles), features)
        if self.recorder is not None:
            from app.scheduler.trace import Header  # noqa: PLC0415 - few schedulers record
            from app.settings.dump import to_yaml, without_paths  # noqa: PLC0415 - the same

            header = Header(
                version=self._runtime.version,
                configuration=to_yaml(without_paths(self.settings)),
                rules=features.version,
                gates=sorted(features.gates),
                max_unschedulable_seconds=max_unschedulable_seconds,
                began=self._clock.wall(),
                first=True,
            )
            self.recorder.begin(header, self.state, self._decisions)
        self.debugger: Final = CacheDebugger(
            self.state,
            nodes=lambda: self.watched("Node"),
            pods=lambda: self.watched("Pod"),
        )

    @functools.cached_property
    def whatif(self) -> "WhatIf":
        """What answers questions; made with the endpoints, after the first bindings, with its figures."""
        from app.scheduler.whatif.answering import WhatIf, priorities_of  # noqa: PLC0415 - slow to import

        made = WhatIf(
            self.state,
            self._profiles,
            self._plugin_classes,
            features=self.features,
            clock=self._clock,
            seed=0,
            priorities=functools.partial(priorities_of, self._api.transport),
            chain=self.chain,
            synced=lambda: self.synced,
            waiting=lambda: self.loop.has_waiting,
        )
        made.register(self._telemetry.families)
        return made

    @functools.cached_property
    def filter(self) -> "WhatIfFilter":
        """What answers as an extender's filter; made with ``whatif``."""
        from app.scheduler.whatif.filtering import WhatIfFilter  # noqa: PLC0415 - the same

        return WhatIfFilter(self.whatif, self.state, self.dry_runs)

    def _make_state(
        self,
        profiles: Sequence[Profile],
        plugin_classes: Mapping[str, type],
        max_unschedulable_seconds: float,
    ) -> tuple[SchedulerState, Mapping[str, Framework]]:
        config, budgets = self.settings.configuration, self._runtime.budgets
        return build_state(
            profiles,
            plugin_classes,
            functools.partial(
                SchedulingQueue,
                times=RetryTimes(
                    config.pod_initial_backoff_seconds,
                    config.pod_max_backoff_seconds,
                    max_unschedulable_seconds,
                ),
                recorder=self._telemetry.queue,
                lane=lanes(self.chain.extenders, self._group_of),
                in_flight_budget=budgets.in_flight_events,
                pending_budget=budgets.pending_events,
            ),
            rng=self._decisions,
            waiting=self.waiting,
            clock=self._clock,
            probe=self._telemetry.probe,
            notify=self._notify,
            features=self.features,
            extended=bool(self.chain),
            make_state=SchedulerState if self.recorder is None else self.recorder.make_state,
        )

    def _group_of(self, pod: Pod) -> GroupKey | None:
        return self.state.cluster.pod_groups.key_of(pod)

    # ------------------------------------------------------------ informers

    def _make_informers(
        self, plugins: frozenset[str], features: Collection[str]
    ) -> list[Informer[Any]]:
        chain = self.chain
        pods = kinds.pods(
            keep_raw=chain.may_concern if chain.all else False,
            keep_bound_raw=wants_whole_victims(chain),
            features=self.features,
        )
        nodes = self._make_informer(Node, kinds.nodes(keep_raw=wants_whole_nodes(chain)))
        foreign = not plugins <= IN_TREE_CAPABILITIES.keys()
        also = (Namespace,) if selects_namespaces(chain) else ()
        others = {
            model: self._make_informer(model, kind, beside=nodes)
            for model, kind in kinds.others(plugins, foreign=foreign, also=also, features=features)
        }
        pod_groups = self.state.cluster.pod_groups
        pod_groups.topology = _TOPOLOGY in features
        pod_groups.policies = POLICIES in features
        for model, informer in others.items():
            if model is PodGroup or model is LabelledPodGroup:
                pod_groups.watch(model, informer.served)
        # With claims and groups listed first, a pod whose claim or group exists need not wait for it in the queue.
        claims = [
            informer
            for model, informer in others.items()
            if model in {ResourceClaim, PodGroup, LabelledPodGroup}
        ]
        return [
            nodes,
            self._make_informer(Pod, pods, after=claims),
            *others.values(),
        ]

    def _make_informer(
        self,
        model: type,
        kind: ResourceKind[Any],
        *,
        after: Sequence[Informer[Any]] = (),
        beside: Informer[Any] | None = None,
    ) -> Informer[Any]:
        return Informer(
            kind,
            self._api.transport,
            self._handler(model),
            on_list=self._list_handler(model),
            rng=self._rng,
            after=after,
            beside=beside,
        )

    def _handler(self, model: type) -> Callable[[Any, Any], None]:
        handled, now = self._telemetry.watches.handled, self._telemetry.probe.now

        def handle(old: Any, new: Any) -> None:
            started = now()
            change = Change(model, old, new)
            refused = self.carry_out(self.state.apply(change, self._clock.steady()))
            if model is Pod:
                self.patcher.shown(old or new)
            if model is Pod and new is None:
                self.retries.deleted(old)
                if self.state.responsible_for(old):
                    self.kubelet_rejections.gone(old)
            elif model is Pod and new.node_name:
                self.retries.gone(new.uid)
            elif model is Namespace and _relabelled(old, new) and selects_namespaces(self.chain):
                self._reconsider(new.name)
            handled(change, now() - started)
            for error in refused.values():
                raise error

        return handle

    def _reconsider(self, namespace: str) -> None:
        """The labels of a namespace have changed: other extenders may be concerned by its pods."""
        self.state.refresh_lanes(namespace)
        self.retries.wake_namespace(namespace)

    def _list_handler(self, model: type) -> Callable[[Mapping[str, Any]], Mapping[str, Exception]]:
        listed, now = self._telemetry.watches.listed, self._telemetry.probe.now

        def handle(objects: Mapping[str, Any]) -> Mapping[str, Exception]:
            started = now()
            refused = self.carry_out(self.state.apply_new(model, objects, self._clock.steady()))
            if model is Pod and self.retries:
                for pod in objects.values():
                    if pod.node_name:
                        self.retries.gone(pod.uid)
            listed(model, objects.values(), now() - started)
            return refused

        return handle

    # ------------------------------------------------------------ attempts and bindings

    def _make_patcher(self) -> StatusPatcher:
        return StatusPatcher(
            self.writer,
            self._spawn,
            backlog=lambda: self.state.ready,
            budget=self._runtime.budgets.status_patches,
        )

    def _make_evictor(self) -> Evictor:
        return Evictor(
            self.parts,
            writer=self.writer,
            events=self._pod_events,
            patcher=self.patcher,
            stop_unbound=self._stop_unbound,
            decided=self.shadows.preempting,
            recorder=self.recorder,
        )

    def _make_effects(self) -> ApiEffects:
        api = self._api
        return ApiEffects(
            self.parts,
            writer=self.writer,
            resource_claims=ResourceClaimRequests(
                api.transport, may_write=api.may_write, rng=self._rng
            ),
            events=self._pod_events,
            evictor=self.evictor,
            extenders=ExtenderPreemption(self.chain, self.state),
            before_binding=self._before_binding,
        )

    def _before_binding(self, uid: str) -> None:
        self.binder.look_again(uid)

    def _make_binder(self) -> Binder:
        chain = self.chain
        return Binder(
            self.parts,
            effects=self.effects,
            extenders=ChainBinder(chain, self.writer, self.retries) if chain.binds else None,
            waiting=self.waiting,
            reports=self._reports,
            undo=self.failures.undo,
            max_writing=self.settings.extension.max_bindings_in_flight,
        )

    def _make_loop(self, profiles: Sequence[Profile]) -> SchedulingLoop:
        extenders = self._make_extender_cycle(profiles) if self.chain else None
        pod_groups = self.state.cluster.pod_groups
        status = GroupStatusWriter(pod_groups, self.writer, self._clock, self._spawn)
        self.groups = GroupCycle(
            self.parts,
            effects=self.effects,
            extenders=extenders,
            binder=self.binder,
            failures=self.failures,
            status=status,
        )
        return SchedulingLoop(
            self.parts,
            PodCycle(
                self.parts,
                self.frameworks,
                binder=self.binder,
                failures=self.failures,
                extenders=extenders,
                asking=self._asking,
                shadows=self.shadows if self.chain.shadows else None,
                recorder=self.recorder,
            ),
            groups=self.groups,
            extenders=extenders,
            parallelism=self.settings.configuration.parallelism,
            limits=(self.binder.writes, self.evictor.preemptions),
            active=self._active,
        )

    def _make_shadows(self, profiles: Sequence[Profile]) -> ShadowExtenders:
        return ShadowExtenders(
            self.chain.shadows,
            self.state.table,
            percentages=_percentages(profiles),
            rng=np.random.default_rng(0),
            spawn=self._spawn,
            sink=self._telemetry.on,
            busy=lambda: self.state.ready,
        )

    def _make_extender_cycle(self, profiles: Sequence[Profile]) -> ExtenderCycle:
        return ExtenderCycle(
            self.chain,
            self.state.table,
            percentages=_percentages(profiles),
            rng=self._asking,
            retries=self.retries,
            serial=SerialGate(self.chain.extenders, self.flusher.notify, self._group_of),
            before_asking=self.releases.before_asking,
        )

    def _stop_unbound(self, uid: str) -> bool:
        """Stops a pod that waits for a permit or for its volumes; False if there is none by this uid."""
        waiting = self.waiting.get(uid)
        if waiting is None:
            return self.binder.preempt(uid)
        waiting.preempt()
        return True

    def _has_urgent_writes(self) -> bool:
        """Whether bindings or evictions are being written, or soon will be, because pods wait for an attempt."""
        return bool(self.binder.writes.count or self.evictor.preemptions.count or self.state.ready)

    def _notify(self) -> None:
        self.flusher.notify()

    def carry_out(self, commands: Sequence[Command]) -> Mapping[str, Exception]:
        """Carries out the state's commands. Returns the keys of objects that it refused, with the errors."""
        refused: dict[str, Exception] = {}
        for command in commands:
            match command:
                case AbandonPod(uid):
                    waiting = self.waiting.get(uid)
                    if waiting is not None:
                        waiting.reject("", "removed")
                case ClearNomination(pod) if self._api.may_write():
                    self._reports.nominated(pod, "", self._clock.wall())
                case ReportProblem(text):
                    log.error("%s", text)
                case RefusedObject(key, error):
                    refused[key] = error
        return refused

    # ------------------------------------------------------------ figures

    @property
    def synced(self) -> bool:
        """Whether every cache is synced."""
        return all(informer.synced.is_set() for informer in self.informers)

    def watched(self, kind: str) -> Mapping[str, Any]:
        """The objects of a kind by key, as the watch shows them; empty for a kind that is not watched."""
        return next((i.objects for i in self.informers if i.kind.name == kind), {})

    def watch_statistics(self) -> list[InformerStatistics]:
        """Figures of each watch."""
        return [informer.statistics() for informer in self.informers]

    def register(self, families: MetricFamilies) -> None:
        """Adds the figures of all parts to the metrics."""
        rules = self.features.rules
        gauges.register_queue(
            families, self.state.queue, incoming=self._telemetry.queue.came, rules=rules
        )
        gauges.register_cache(families, self.state.cache.statistics)
        gauges.register_plugins(families, self.frameworks, rules)
        gauges.register_watches(families, self.watch_statistics)
        for part in (
            self.binder,
            self.patcher,
            self.kubelet_rejections,
            self.releases,
            self.shadows,
        ):
            part.register(families)
        families.computed(
            "scheduler_goroutines",
            "Number of running tasks split by the work they do.",
            lambda: {
                ("binding",): self.binder.cycles.count,
                ("DefaultPreemption",): self.evictor.preemptions.count,
                ("prioritizing_extender",): self._telemetry.extender_metrics.prioritizing(),
            },
            ("operation",),
            stability=BETA,
        )
        families.computed(
            "aiokube_scheduler_bindings_in_doubt",
            "Bindings that were sent and whose outcome is unknown; their pods keep their places.",
            lambda: {(): len(self.writer.doubts)},
        )

    # ------------------------------------------------------------ life cycle

    def start_watching(self) -> None:
        """Starts the informers and the flusher, which run on a standby too: otherwise events would accumulate."""
        spawn_eternal(self._runtime.group, self.flusher.run(), name="flush queue")
        for informer in self.informers:
            spawn_eternal(self._runtime.group, informer.run(), name=f"watch {informer.kind.name}")

    async def wait_synced(self) -> None:
        """Returns when every cache is synced."""
        await wait_synced(self.informers)
        log.info(
            "Caches are synced: %s",
            ", ".join(f"{i.kind.name} {len(i.objects)}" for i in self.informers),
        )

    async def caught_up(self) -> None:
        """Returns when this process leads, and the pods that were there have been tried and their bindings are done."""
        await self.loop.caught_up.wait()
        await self.binder.cycles.wait_until_idle()

    async def wind_down(self, seconds: float) -> None:
        """Waits until bindings, preemptions, status patches and releases are done, for at most this long.

        A group that waits for extenders is given up.
        """
        self.retries.close()
        try:
            async with asyncio.timeout(seconds):
                await self.groups.stop()
                await self.binder.cycles.wait_until_idle()
                await self.evictor.preemptions.wait_until_idle()
                await self.patcher.finish()
                await self.releases.finish()
        except TimeoutError:
            log.warning(
                "Not finished within %.0f s: %d bindings, %d preemptions, %d status patches",
                seconds,
                self.binder.cycles.count,
                self.evictor.preemptions.count,
                len(self.patcher),
            )
        finally:
            self.releases.close()


def _percentages(profiles: Sequence[Profile]) -> dict[str, int]:
    return {p.scheduler_name: p.percentage_of_nodes_to_score or 0 for p in profiles}


def _relabelled(old: Namespace | None, new: Namespace | None) -> bool:
    """Whether a namespace that exists has other labels than before; one that was not known may have had any."""
    return new is not None and (old is None or old.labels != new.labels)
