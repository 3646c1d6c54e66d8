"""Lets a scheduler of any configuration live through a recording, in virtual time, against a model of its API server.

What others did comes from the recording at its time: nodes, pods that arrive, pods of other schedulers. What follows
from decisions is the model's: a pod that is bound starts and goes after the times that it took in the recording, a
victim ends, volumes and claims are bound by the controllers of the embedded cluster, requests take as long as the
recorded ones, and extenders answer out of the cassette.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from app.extender.config import ExtenderConfig, Verb
from app.extender.memory import AnswerMemory
from app.extender.transport import HTTPTransport
from app.kube.backoff import TokenBucket
from app.kube.errors import KubeError
from app.kube.events import EventRecorder
from app.kube.transport import JSON, Guard, Response
from app.model.budget import ByteBudget
from app.model.features import Features
from app.model.objects import PodSpec
from app.model.pod import PodTemplate
from app.model.pod_groups import CLAIMS, POLICIES, LabelledPodGroup
from app.model.requests import CPU
from app.model.selectors import Labels
from app.observe.events import AttemptFailed, ByType, NodeSelected, PodBound, VictimEvicted
from app.observe.telemetry import Telemetry
from app.runtime.leaping import StillLoop
from app.runtime.tasks import spawn_eternal
from app.scheduler.extenders import extender_configs, make_chain
from app.scheduler.kinds import paths
from app.scheduler.parts import ApiServer, Budgets, Runtime
from app.scheduler.trace import PodRecord, TraceError
from app.scheduler.wiring import Scheduler
from app.settings.load import Loaded, load
from app.sim import ClusterOptions, EmbeddedCluster
from app.sim.errors import ApiError
from app.sim.features import NO_FEATURES, ServedFeatures
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import NAMESPACES, PODS, Kind
from app.sim.store import StoreChange
from app.tools.in_process import InProcess
from app.tools.replay.cassette import CassetteAnswers, CassetteTransport
from app.tools.replay.course import Course, Lived, reasons, waiting_times
from app.tools.replay.live import LiveExtenders
from app.tools.replay.reading import Objects, Seen, SeenPod, pod_json, records
from app.tools.replay.story import PodStory, Story
from app.tools.simulate.groups import serve_custom_groups

#: Moments at which the courses over time are taken.
SAMPLES: Final = 120
#: Specs that the fragmentation is about: the most frequent ones.
_SPECS: Final = 20
#: Kinds that the scheduler and the model's controllers change: of the recording only what others did to them counts.
_CONSEQUENCES: Final = frozenset({"PersistentVolumeClaim", "PersistentVolume", "ResourceClaim"})
_BUDGET: Final = 64 << 20
_SEED: Final = 1
_PODSPEC: Final = msgspec.json.Decoder(PodSpec)


class Variant(msgspec.Struct, frozen=True):
    """What lives through the recording."""

    name: str
    loaded: Loaded
    features: Features
    #: ``cassette``, ``live`` or ``none``.
    extenders: str = "cassette"


class _Clock:
    """The time of a StillLoop, which began at ``base`` (app.model.clock)."""

    def __init__(self, base: float) -> None:
        self._base: Final = base
        self._time: Final = asyncio.get_running_loop().time

    def monotonic(self) -> float:
        """See Clock."""
        return self._time()

    def wall(self) -> float:
        """See Clock."""
        return self._base + self._time()

    steady = wall


def live_through(
    trace: Path,
    story: Story,
    variant: Variant,
    classes: Mapping[str, type],
    look: Callable[[float], None] = lambda _share: None,
) -> Lived:
    """What the variant makes of the recording; ``look`` is called with the part of it that is over.

    Raises TraceError, ConfigurationError, PluginError.
    """
    with asyncio.Runner(loop_factory=StillLoop) as runner:
        return runner.run(_Model(trace, story, variant, classes, look).run())


class _Model:
    def __init__(
        self,
        trace: Path,
        story: Story,
        variant: Variant,
        classes: Mapping[str, type],
        look: Callable[[float], None],
    ) -> None:
        assert story.started is not None  # noqa: S101 - set at the end of reading
        self._trace: Final = trace
        self._story: Final = story
        self._variant: Final = variant
        self._classes: Final = classes
        self._look: Final = look
        self._began: Final = story.started
        self._seen: Final[dict[str, SeenPod]] = {}
        self._claims: Final[set[tuple[str, str]]] = set()
        self._notes: Final = _Notes(story)
        self._kinds: dict[str, Kind] = {}
        self._reads: Final = Objects()

    async def run(self) -> Lived:
        """Lives through all of it."""
        clock = _Clock(self._began)
        options = ClusterOptions(
            listen=False, volumes=True, claims=True, features=self._served_features()
        )
        async with EmbeddedCluster(options, now=clock.wall) as self._cluster:
            if LabelledPodGroup.__name__ in self._story.header.groups:
                serve_custom_groups(self._cluster)
            self._pods = self._cluster.api.store[PODS.storage]
            self._pods.listeners[self._on_pod] = None
            feed = self._feed()
            later = None
            for seen in feed:
                if seen.time >= self._began:
                    later = seen
                    break
                self._apply(seen)
            self._notes.clock = clock
            async with self._scheduling(clock) as scheduler:
                self._notes.state = scheduler.state
                sampling = asyncio.create_task(self._notes.sample(self._story.ended))
                if later is not None:
                    await self._until(later.time)
                    self._apply(later)
                for seen in feed:
                    await self._until(seen.time)
                    self._apply(seen)
                await self._until(self._story.ended)
                sampling.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sampling
                return self._notes.outcome(self._variant.name, scheduler)

    def _feed(self) -> Any:
        for record in records(self._trace):
            header = record.header
            if header is not None and record.number > 1 and (header.gap or header.first):
                return
            try:
                yield from self._reads.take(record)
            except TraceError:
                return

    async def _until(self, when: float) -> None:
        loop = asyncio.get_running_loop()
        due = when - self._began
        if due > loop.time():
            self._look(min(1.0, due / max(0.001, self._story.ended - self._began)))
            await asyncio.sleep(due - loop.time())

    def _served_features(self) -> ServedFeatures:
        groups = self._story.header.groups
        path = groups.get("PodGroup")
        if path is None:
            return NO_FEATURES
        gates = {"GenericWorkload", "GangScheduling"} | set(self._story.header.gates)
        known = {
            "TopologyAwareWorkloadScheduling",
            "WorkloadAwarePreemption",
            CLAIMS,
            POLICIES,
        } & gates
        version = path.removeprefix("/apis/").rpartition("/")[0]
        served = frozenset({"GenericWorkload", "GangScheduling", *known})
        return ServedFeatures(gates=served, versions=frozenset({version}))

    # ------------------------------------------------------------ what others did

    def _apply(self, seen: Seen) -> None:
        try:
            if seen.kind == "Pod":
                self._apply_pod(seen)
            elif (kind := self._kind(seen.kind)) is not None:
                self._apply_other(seen, kind)
        except (ApiError, ValueError, KeyError, TypeError, msgspec.DecodeError) as error:
            self._notes.refused.append(f"{seen.kind} {seen.key}: {error}")

    def _kind(self, name: str) -> Kind | None:
        kind = self._kinds.get(name)
        if kind is None:
            path = self._story.header.groups.get(name) or paths().get(name)
            if path is None:
                return None
            version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
            shown = "PodGroup" if name == LabelledPodGroup.__name__ else name
            kind = self._cluster.api.kinds.by_type.get((version, shown))
            if kind is not None:
                self._kinds[name] = kind
        return kind

    def _apply_other(self, seen: Seen, kind: Kind) -> None:
        namespace, _, name = seen.key.rpartition("/")
        api, present = self._cluster.api, self._cluster.api.find(kind, namespace, name)
        if seen.new is None:
            self._claims.discard((seen.kind, seen.key))
            if present is not None and not present.value.get("status", {}).get("reservedFor"):
                api.store.remove(kind.storage, (namespace, name))
            return
        assert isinstance(seen.new, bytes)  # noqa: S101 - of this kind
        value = msgspec.json.decode(seen.new)
        if seen.kind in _CONSEQUENCES:
            if (seen.kind, seen.key) in self._claims or self._is_consequence(seen.kind, value):
                return
            self._claims.add((seen.kind, seen.key))
        value = {"kind": kind.kind, "apiVersion": kind.group_version} | value
        value["metadata"].setdefault("uid", f"{kind.kind}-{seen.key}")
        value["metadata"].setdefault("creationTimestamp", "2000-01-01T00:00:00Z")
        if kind.kind == "PodGroup" and present is not None:
            value["status"] = present.value.get("status", {})
        self._make_namespace(namespace)
        api.write(kind, value)

    def _is_consequence(self, name: str, value: dict[str, Any]) -> bool:
        """Whether a volume was made for a claim that has none yet in the model."""
        claim = value.get("spec", {}).get("claimRef") if name == "PersistentVolume" else None
        if not claim:
            return False
        kind = self._kind("PersistentVolumeClaim")
        found = kind and self._cluster.api.find(
            kind, claim.get("namespace", ""), claim.get("name", "")
        )
        return bool(found) and not found.value.get("spec", {}).get("volumeName")  # type: ignore[union-attr]

    def _make_namespace(self, name: str) -> None:
        api = self._cluster.api
        if name and api.find(NAMESPACES, "", name) is None:
            labels = {"kubernetes.io/metadata.name": name}
            api.create(NAMESPACES, "", {"metadata": {"name": name, "labels": labels}})

    def _apply_pod(self, seen: Seen) -> None:
        namespace, _, name = seen.key.partition("/")
        record = self._pods.records.get((namespace, name))
        if seen.new is None:
            if (before := self._seen.pop(seen.key, None)) is not None:
                self._ends(namespace, name, before.record.uid)
            return
        assert isinstance(seen.new, SeenPod)  # noqa: S101 - of this kind
        told, before = seen.new.record, self._seen.get(seen.key)
        self._seen[seen.key] = seen.new
        story = self._story.pods[told.uid]
        self._make_namespace(namespace)
        first = before is None or before.record.uid != told.uid
        if story.ours and first:
            self._arrives(seen.new)
        elif first or (not story.ours and record and not _preempted(record.value, told, story)):
            self._cluster.api.write(PODS, pod_json(seen.new))
        elif story.ours and record and before and _changed(before, seen.new):
            self._cluster.api.write(PODS, _updated(record.value, seen.new))

    def _ends(self, namespace: str, name: str, uid: str) -> None:
        """A pod goes in the recording: also in the model, unless that follows from a decision."""
        story = self._story.pods[uid]
        if story.bound is None or not (story.ours or story.evicted):
            self._remove(namespace, name, uid)
        elif not story.ours and story.life is not None:
            loop = asyncio.get_running_loop()
            due = story.bound + story.life - self._began
            loop.call_at(due, self._remove, namespace, name, uid)

    def _arrives(self, pod: SeenPod) -> None:
        """A pod that a scheduler is to place, as it came."""
        value = pod_json(pod)
        value["spec"].pop("nodeName", None)
        value["metadata"].pop("deletionTimestamp", None)
        status = value["status"]
        status.pop("nominatedNodeName", None)
        gates = [c for c in status.get("conditions", ()) if c.get("reason") == "SchedulingGated"]
        value["status"] = {k: v for k, v in status.items() if k == "resourceClaimStatuses"}
        value["status"] |= {"phase": "Pending", **({"conditions": gates} if gates else {})}
        self._cluster.api.write(PODS, value)

    # ------------------------------------------------------------ what follows from decisions

    def _on_pod(self, change: StoreChange) -> None:
        value = change.record.value
        uid = value["metadata"]["uid"]
        story = self._story.pods.get(uid)
        if change.type == "DELETED" or story is None:
            self._notes.gone(uid)
            return
        previous = None if change.previous is None else change.previous.value
        loop = asyncio.get_running_loop()
        if (
            story.ours
            and "nodeName" in value["spec"]
            and previous is not None
            and "nodeName" not in previous["spec"]
        ):
            self._starts(change.key, uid, story)
        if (
            "deletionTimestamp" in value["metadata"]
            and "deletionTimestamp" not in (previous or value)["metadata"]
        ):
            loop.call_later(self._story.grace, self._remove, *change.key, uid)

    def _starts(self, key: tuple[str, str], uid: str, story: PodStory) -> None:
        loop = asyncio.get_running_loop()
        if story.running is not None and story.bound is not None:
            loop.call_later(max(0.0, story.running - story.bound), self._runs, *key, uid)
        if story.life is not None:
            loop.call_later(story.life, self._remove, *key, uid)

    def _runs(self, namespace: str, name: str, uid: str) -> None:
        record = self._pods.records.get((namespace, name))
        if record is None or record.value["metadata"]["uid"] != uid:
            return
        api = self._cluster.api
        status = record.value["status"] | {"phase": "Running", "startTime": api.timestamp()}
        api.write_status(PODS, record.value, status)

    def _remove(self, namespace: str, name: str, uid: str) -> None:
        record = self._pods.records.get((namespace, name))
        if record is None or record.value["metadata"]["uid"] != uid:
            return
        with contextlib.suppress(ApiError):
            options = DeleteOptions(grace_period_seconds=0, uid=uid)
            delete(self._cluster.api, PODS, namespace, name, options)

    # ------------------------------------------------------------ the scheduler

    @contextlib.asynccontextmanager
    async def _scheduling(self, clock: _Clock) -> AsyncIterator[Scheduler]:
        rng = np.random.default_rng(_SEED)
        telemetry = Telemetry(clock, rng.spawn(1)[0], self._notes.sink())
        settings = self._variant.loaded.settings
        client = settings.configuration.client_connection
        bucket = TokenBucket(qps=client.qps, burst=client.burst) if client.qps > 0 else None
        transport = _TimedServer(self._cluster, self._story, bucket)
        budgets = Budgets(*(ByteBudget(_BUDGET) for _ in Budgets._fields))
        running: list[Scheduler] = []

        def labels_of(namespace: str) -> Labels | None:
            found = running[0].state.cluster.namespaces.get(namespace) if running else None
            return None if found is None else found.labels

        sinks = (telemetry.on_extender, telemetry.on_shadow)
        live = LiveExtenders() if self._variant.extenders == "live" else None
        transports = self._cassettes(clock.wall) if live is None else live.transport
        memory = AnswerMemory(_BUDGET)
        chain = make_chain(settings, sinks, lambda: True, memory, labels_of, transports)
        telemetry.expect(chain.all)
        unlimited = _TimedServer(self._cluster, self._story)
        events = EventRecorder(unlimited, host="replay", rng=rng, budget=budgets.events)
        try:
            async with asyncio.TaskGroup() as group:
                scheduler = Scheduler(
                    self._variant.loaded,
                    self._classes,
                    runtime=Runtime(group, clock, rng.spawn(1)[0], telemetry, budgets),
                    api=ApiServer(transport, events, lambda: True),
                    chain=chain,
                    max_unschedulable_seconds=self._story.header.max_unschedulable_seconds,
                    features=self._variant.features,
                )
                running.append(scheduler)
                scheduler.start_watching()
                await scheduler.wait_synced()
                work = spawn_eternal(group, scheduler.loop.run(), name="schedule")
                yield scheduler
                work.cancel()
                await scheduler.wind_down(0.0)
                raise _Finished  # noqa: TRY301 - ends the eternal tasks of the group
        except* _Finished:
            pass
        finally:
            await chain.close()
            if live is not None:
                live.close()

    def _recorded_names(self) -> Mapping[str, str]:
        """The recorded name of each extender: that of the same place if there was none of its name."""
        header = self._story.header.configuration
        recorded = [each.name for each in extender_configs(load(header).settings)]
        own = [each.name for each in extender_configs(self._variant.loaded.settings)]
        pairs = zip(own, recorded, strict=False)
        return {name: name if name in recorded else before for name, before in pairs}

    def _cassettes(self, now: Callable[[], float]) -> Callable[[ExtenderConfig], HTTPTransport]:
        server = InProcess(
            self._cluster
        )  # the time of an extender's own request is in that of its answer

        async def bind(namespace: str, name: str, uid: str, node: str) -> None:
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            body = {
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "target": target,
            }
            path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
            with contextlib.suppress(KubeError):
                await server.request("POST", path, body=msgspec.json.encode(body))

        answers = CassetteAnswers(self._story.cassette, bind=bind, now=now)
        self._notes.questions = answers.counts
        names = self._recorded_names()

        def cassette(config: ExtenderConfig) -> HTTPTransport:
            urls = {config.url(verb): verb for verb in Verb if config.path(verb)}
            return CassetteTransport(answers, names.get(config.name, config.name), urls)

        return cassette


class _Finished(Exception):  # noqa: N818 - ends a TaskGroup with eternal tasks
    pass


def _preempted(value: dict[str, Any], told: PodRecord, story: PodStory) -> bool:
    """Whether a pod that others have placed ends by preemption: in the recording, or in the model only."""
    if told.deletion_timestamp:
        return story.evicted
    return "deletionTimestamp" in value["metadata"]


def _changed(before: SeenPod, now: SeenPod) -> bool:
    """Whether anybody but scheduler and kubelet has changed the pod."""
    return (
        before.spec != now.spec
        or before.labels != now.labels
        or before.record.claim_statuses != now.record.claim_statuses
    )


def _updated(value: dict[str, Any], pod: SeenPod) -> dict[str, Any]:
    """A pod of the model with what others have changed."""
    new = pod_json(pod)
    spec, node = new["spec"], value["spec"].get("nodeName")
    spec.pop("nodeName", None)
    if node:
        spec["nodeName"] = node
    metadata = value["metadata"] | {"labels": new["metadata"]["labels"]}
    metadata["generation"] = new["metadata"]["generation"]
    status = dict(value["status"])
    if "resourceClaimStatuses" in new["status"]:
        status["resourceClaimStatuses"] = new["status"]["resourceClaimStatuses"]
    return value | {"metadata": metadata, "spec": spec, "status": status}


class _TimedServer(InProcess):
    """The embedded cluster, whose answers to writes take as long as the recorded ones did, behind a client's limits."""

    def __init__(
        self, cluster: EmbeddedCluster, story: Story, bucket: TokenBucket | None = None
    ) -> None:
        super().__init__(cluster)
        methods = ("POST", "PUT", "PATCH", "DELETE")
        self._seconds: Final = {method: story.latencies(method) for method in methods}
        self._bucket: Final = bucket

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,  # noqa: ASYNC109 - see Transport
        guard: Guard | None = None,
    ) -> Response:
        """See Transport."""
        if seconds := self._seconds.get(method):
            now = asyncio.get_running_loop().time()
            delay = 0.0 if self._bucket is None else self._bucket.take(now)
            await asyncio.sleep(delay + next(seconds))
        return await super().request(
            method,
            path,
            body=body,
            params=params,
            content_type=content_type,
            accept=accept,
            timeout=timeout,
            guard=guard,
        )


# ---------------------------------------------------------------- what is noted


class _Notes:
    """What becomes of the pods."""

    def __init__(self, story: Story) -> None:
        self._story: Final = story
        self._attempts: Final = story.attempts()
        self._failures: Final = story.failures()
        self._digest: Final = hashlib.sha256()
        self.clock: _Clock | None = None
        self.state: Any = None
        self.questions: Mapping[str, int] = {}
        #: Objects of the recording that the model does not take.
        self.refused: Final[list[str]] = []
        self._bound: Final[dict[str, tuple[str, float]]] = {}
        self._unfit: Final[dict[str, str]] = {}
        self._gone: Final[set[str]] = set()
        self._preempted: Final[set[str]] = set()
        self._times: Final[list[float]] = []
        self._used: Final[dict[str, list[float]]] = {}
        self._fragmented: Final[list[float]] = []
        self._waiting: Final[list[int]] = []
        self._in_use: Final[list[int]] = []
        self._shapes: Final = _shapes(story)

    def sink(self) -> ByType:
        """Takes the events about pods."""
        return ByType(
            {
                NodeSelected: self._on_selected,
                PodBound: self._on_bound,
                AttemptFailed: self._on_failed,
                VictimEvicted: self._on_evicted,
            }
        )

    def _note(self, *what: str) -> None:
        self._digest.update("\0".join((*what, "")).encode())

    def _on_selected(self, _event: NodeSelected) -> None:
        _spend(next(self._attempts))

    def _on_bound(self, event: PodBound) -> None:
        pod = event.pod
        self._note("bound", pod.uid, pod.node_name)
        if self.clock is not None:
            self._bound[pod.uid] = pod.node_name, self.clock.wall()

    def _on_failed(self, event: AttemptFailed) -> None:
        pod = event.queued.pod
        self._note("failed", pod.uid, event.message)
        if event.result == "unschedulable":
            self._unfit[pod.uid] = event.message
        _spend(next(self._failures))

    def _on_evicted(self, event: VictimEvicted) -> None:
        self._note("evicted", event.victim.uid, event.preemptor.uid)
        self._preempted.add(event.victim.uid)

    def gone(self, uid: str) -> None:
        """A pod has gone."""
        self._gone.add(uid)

    # ------------------------------------------------------------ over time

    async def sample(self, ended: float) -> None:
        """Takes the courses until cancelled."""
        assert self.clock is not None  # noqa: S101 - set before
        began = self.clock.wall()
        step = max(0.001, (ended - began) / SAMPLES)
        while True:
            self._sample(self.clock.wall() - began)
            await asyncio.sleep(step)

    def _sample(self, at: float) -> None:
        state = self.state
        table = state.table
        rows = table.live_rows()
        self._times.append(round(at, 3))
        free: dict[str, Any] = {}
        for name in sorted({*table.allocatable.names, *self._used}):
            offered = table.allocatable.column(name)[rows]
            taken = table.requested.column(name)[rows]
            total = float(offered.sum())
            if not total and name not in self._used:
                continue
            known = self._used.setdefault(name, [0.0] * (len(self._times) - 1))
            known.append(round(float(taken.sum()) / total, 4) if total else 0.0)
            free[name] = np.maximum(offered - taken, 0)
        self._fragmented.append(round(self._fragmentation(free), 4))
        self._in_use.append(int(np.count_nonzero(table.pod_count[rows])))
        queue = state.queue.statistics()
        waits = queue.active + queue.backoff + queue.error_backoff + queue.unschedulable
        self._waiting.append(waits + queue.in_flight)

    def _fragmentation(self, free: Mapping[str, Any]) -> float:
        cpus = free.get(CPU)
        if cpus is None or not cpus.sum():
            return 0.0
        total = float(cpus.sum())
        lost = 0.0
        for request, weight in self._shapes:
            short = np.zeros(len(cpus), np.bool_)
            for name, amount in request.items():
                short = short | (free[name] < amount if name in free else amount > 0)
            lost += weight * float(cpus[short].sum())
        return lost / total

    # ------------------------------------------------------------ at the end

    def outcome(self, name: str, _scheduler: Scheduler) -> Lived:
        """What was found."""
        ours = {uid: pod for uid, pod in self._story.pods.items() if pod.ours}
        bound = {uid: where for uid, where in self._bound.items() if uid in ours}
        waits = ((ours[uid].priority, at - ours[uid].arrived) for uid, (_, at) in bound.items())
        pending = [uid for uid in ours if uid not in bound and uid not in self._gone]
        course = Course(
            name=name,
            hash=self._digest.hexdigest(),
            pods=len(ours),
            bound=len(bound),
            pending=len(pending),
            preempted=len(self._preempted),
            waiting=waiting_times(waits),
            unschedulable=reasons(self._unfit.values()),
            unschedulable_pods=len(self._unfit),
            pending_reasons=reasons(self._unfit[uid] for uid in pending if uid in self._unfit),
            times=self._times,
            utilisation=dict(sorted(self._used.items())),
            mean_utilisation={n: _mean(shares) for n, shares in sorted(self._used.items())},
            fragmentation=self._fragmented,
            mean_fragmentation=_mean(self._fragmented),
            waiting_pods=self._waiting,
            nodes_in_use=self._in_use,
            mean_nodes_in_use=_mean([float(count) for count in self._in_use]),
            questions=dict(self.questions),
            left_out=len(self.refused),
            left_out_example=next(iter(self.refused), ""),
        )
        return Lived(course, {uid: node for uid, (node, _) in bound.items()})


def _spend(seconds: float) -> None:
    """Lets time pass for work."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, StillLoop):
        loop.spend(seconds)


def _mean(shares: list[float]) -> float:
    return round(sum(shares) / len(shares), 4) if shares else 0.0


def _shapes(story: Story) -> list[tuple[Mapping[str, int], float]]:
    """The requests of the most frequent specs, and the part of the pods that have them."""
    counts: dict[bytes, int] = {}
    for pod in story.pods.values():
        if pod.ours:
            counts[pod.template] = counts.get(pod.template, 0) + 1
    most = sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:_SPECS]
    total = sum(count for _, count in most)
    return [(PodTemplate(_PODSPEC.decode(text)).request, count / total) for text, count in most]
