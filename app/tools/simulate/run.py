"""Runs a simulation: loads the dump, schedules, applies the workload, and builds the result.

Embedded cluster and scheduler are parts of this process, and nothing is sent. Without extenders they run on a loop
whose time leaps to the next timer (app.runtime.leaping).
"""

import asyncio
import contextlib
import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from app.model.features import OLDEST, Features, known_in
from app.runtime.clock import SystemClock
from app.runtime.leaping import LoopClock
from app.sim import ClusterOptions, EmbeddedCluster, KubeletOptions, ManifestError, NodeOptions
from app.sim.objects import is_being_deleted
from app.sim.resources.kinds import EVENTS, NODES, PODS
from app.sim.store import Object, StoreChange
from app.tools.in_process import InProcess
from app.tools.pod_tracker import PodTracker, TrackedPod, pods_bound
from app.tools.simulate.configuration import Configured
from app.tools.simulate.groups import SimulatedGroups, serve_custom_groups, used_groups
from app.tools.simulate.loader import CLUSTER_KINDS, WORKLOAD_KINDS, Loader, Manifests, read
from app.tools.simulate.result import PreemptedPod, SimulationResult
from app.tools.simulate.scheduling import SimulatedScheduler, scheduling
from app.tools.simulate.summary import node_uses, requested, workload
from app.tools.simulate.workloads import controller_of
from app.tools.subprocesses import interruptible

#: Pods run as soon as they are bound. Victims take some time to terminate, so that pods after their preemptor still see
#: them.
_KUBELETS: Final = KubeletOptions(
    start_delay=0.0, grace_factor=1.0, longest_grace=0.5, job_seconds=math.inf
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """What is simulated."""

    cluster: tuple[Path, ...]
    workload: tuple[Path, ...]
    configuration: Configured
    nodes: NodeOptions = dataclasses.field(default_factory=NodeOptions)
    """Nodes in addition to those of the dump."""
    port: int = 0
    """The port of the embedded API server, which listens if extenders are called; 0 takes any free one."""
    timeout: float = 120.0
    """Seconds until every pod must be bound or rejected."""
    version: str = OLDEST
    """The version of kube-scheduler whose rules are followed."""
    gates: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    """The feature gates that are set, besides those that the groups of the dump need."""


async def simulate(options: SimulationOptions, console: Console) -> SimulationResult | None:
    """The result; None if SIGINT or SIGTERM came first. ``console`` shows the progress.

    Raises ManifestError, or OSError if the port cannot be had.
    """
    dump = read(options.cluster, CLUSTER_KINDS)
    given = read(options.workload, WORKLOAD_KINDS)
    if not options.nodes.count and not any(dump.of("Node")):
        raise ManifestError("the cluster has no nodes: dump them too (kubectl get nodes,pods,...)")
    return await interruptible(_Simulation(options, console).run(dump, given))


class _Simulation:
    def __init__(self, options: SimulationOptions, console: Console) -> None:
        self._options: Final = options
        self._console: Final = console
        self._clock: Final = LoopClock()
        self._now: Final[Callable[[], float]] = self._clock.monotonic

    async def run(self, dump: Manifests, given: Manifests) -> SimulationResult:
        """Runs the simulation from the dump to the result."""
        machine = SystemClock()
        used = used_groups(each.value for each in (*dump.objects, *given.objects))
        configuration = self._options.configuration
        settings = ClusterOptions(
            listen=configuration.calls_extenders,
            port=self._options.port,
            nodes=self._options.nodes,
            kubelets=_KUBELETS,
            volumes=True,
            claims=True,
            features=used.features,
        )
        async with EmbeddedCluster(settings, now=self._clock.wall) as cluster:
            if used.custom:
                serve_custom_groups(cluster)
            groups = SimulatedGroups(cluster)
            loader = Loader(cluster, self._options.configuration.schedulers)
            tracker = PodTracker(cluster, self._now, _titles(loader))
            loader.load_cluster(dump)
            before, preemptions = requested(cluster), Preemptions(cluster)
            began = machine.monotonic()
            async with scheduling(
                configuration.settings,
                InProcess(cluster),
                self._clock,
                features=self._features(used.features.gates),
            ) as scheduler:
                quiescence = Quiescence(cluster, tracker, groups, scheduler, self._now)
                is_complete = await self._act(loader, tracker, given, quiescence)
            seconds = machine.monotonic() - began
            return SimulationResult(
                is_complete=is_complete,
                seconds=round(seconds, 3),
                **self._placed(cluster, loader, tracker, groups),
                groups=groups.results(),
                preempted=preemptions.found,
                nodes=node_uses(cluster, before, requested(cluster)),
                other_schedulers=dict(loader.other_schedulers),
                passed_over=dict(sorted((dump.passed_over + given.passed_over).items())),
                extenders_left_out=list(configuration.left_out),
                warnings=list(configuration.warnings),
                rules=self._options.version,
            )

    def _features(self, gates: Iterable[str]) -> Features:
        """The rules that hold, with these gates unless a flag sets them otherwise. Raises FeaturesError."""
        version = self._options.version
        known = known_in(version, dict.fromkeys(gates, True))
        return Features.of(version, known | dict(self._options.gates))

    async def _act(
        self, loader: Loader, tracker: PodTracker, given: Manifests, quiescence: "Quiescence"
    ) -> bool:
        """Lets the pending pods of the dump be scheduled, then the workload. Returns whether that was done in time."""
        began, limit = self._now(), self._options.timeout
        is_decided = await self._settle("The cluster as it is", tracker, quiescence, limit / 2)
        loader.load_workload(given)
        left = limit - (self._now() - began)
        return await self._settle("The workload comes", tracker, quiescence, left) and is_decided

    async def _settle(
        self, title: str, tracker: PodTracker, quiescence: "Quiescence", limit: float
    ) -> bool:
        """Whether nothing changes any more within ``limit`` seconds."""
        total = len(tracker.entries)
        bar = pods_bound(self._console, title, total) if total else contextlib.nullcontext(_ignore)
        with bar as show:
            try:
                async with asyncio.timeout(limit):
                    await quiescence.wait(show)
            except TimeoutError:
                return False
        return True

    def _placed(
        self, cluster: EmbeddedCluster, loader: Loader, tracker: PodTracker, groups: SimulatedGroups
    ) -> dict[str, Any]:
        entries: dict[str, list[TrackedPod]] = defaultdict(list)
        held = groups.held()
        for entry in tracker.entries:
            if entry.pod in held and not entry.is_decided:
                entry.rejection = held[entry.pod]
            entries[entry.workload].append(entry)
        records = cluster.api.store[NODES.storage].records.values()
        zones = {record.name: tracker.zone(record.name) for record in records}
        found: dict[str, list[Any]] = {"workloads": [], "pending_before": []}
        for group in loader.groups:
            told = workload(group, entries[group.title], zones)
            found["pending_before" if group.is_from_cluster else "workloads"].append(told)
        return found


def _ignore(_bound: int) -> None:
    """Shows nothing."""


def _titles(loader: Loader) -> Callable[[dict[str, Any]], str | None]:
    """The function with which the tracker finds the workload of a pod."""

    def title(pod: dict[str, Any]) -> str | None:
        group = loader.group_of(pod)
        return None if group is None else group.title

    return title


_NOTE: Final = re.compile(r"Preempted by pod (\S+) on node (\S+?)(?: \(.*\)\.)?$")


class Preemptions:
    """Collects the preempted pods of an embedded cluster from the scheduler's events, each with its first preemptor.

    There may be several preemptors before a victim has gone, whose events overtake each other. The first one is that
    with the highest priority, because it was tried first, and among equals that with the oldest event.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster: Final = cluster
        self._pods: Final[dict[str, dict[str, Any]]] = {}
        """All pods that have existed since the start, by uid."""
        self._found: Final[dict[str, tuple[tuple[int, str], PreemptedPod]]] = {}
        """The victim's uid -> (negative priority and time of the preemptor's event, the result)."""
        store = cluster.api.store
        for record in store[PODS.storage].ordered():
            self._pods[record.value["metadata"]["uid"]] = record.value
        store[PODS.storage].listeners[self._on_pod] = None
        store[EVENTS.storage].listeners[self._on_event] = None

    @property
    def found(self) -> list[PreemptedPod]:
        """The preempted pods, by priority of the preemptor and time."""
        return [pod for _, pod in sorted(self._found.values(), key=itemgetter(0))]

    def _on_pod(self, change: StoreChange) -> None:
        pod = change.record.value
        self._pods[pod["metadata"]["uid"]] = pod

    def _on_event(self, change: StoreChange) -> None:
        event = change.record.value
        if change.type != "ADDED" or event.get("reason") != "Preempted":
            return
        note = _NOTE.match(str(event.get("note") or event.get("message", "")))
        regarding = event.get("regarding") or event.get("involvedObject") or {}
        victim = self._pods.get(regarding.get("uid", ""))
        if note is None or victim is None:
            return
        by = self._pods.get(note[1])
        priority = 0 if by is None else by["spec"].get("priority", 0)
        rank = (-priority, str(event.get("eventTime") or event["metadata"]["creationTimestamp"]))
        known = self._found.get(regarding["uid"])
        if known is not None and known[0] <= rank:
            return
        owner = controller_of(victim)
        self._found[regarding["uid"]] = (
            rank,
            PreemptedPod(
                pod=_key(victim),
                owner="" if owner is None else f"{owner[0]} {owner[1]}/{owner[2]}",
                priority=victim["spec"].get("priority", 0),
                node=note[2],
                by=note[1] if by is None else _key(by),
            ),
        )


def _key(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


#: Seconds without a write after which the cluster is quiescent; longer than the delays of its controllers.
QUIET: Final = 0.3
#: The same while groups are tried again: seconds without a pod that gets a node or goes. The backoff starts with a
#: second.
GROUPS_QUIET: Final = 4.0
_LOOK_SECONDS: Final = 0.05


def _has_finalizers(pod: Object) -> bool:
    """Whether a deleted pod stays because of finalizers, which nothing here removes."""
    return bool(pod["metadata"].get("finalizers"))


class Quiescence:
    """Waits until the scheduler and the cluster have nothing left to do.

    The scheduler must be idle, no pod may wait for terminating victims, and nothing may have been written for QUIET
    seconds.

    Pods of groups that found no room are tried again and again: for GROUPS_QUIET seconds no pod may get a node or go.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster,
        tracker: PodTracker,
        groups: SimulatedGroups,
        scheduler: SimulatedScheduler,
        now: Callable[[], float],
    ) -> None:
        self._cluster: Final = cluster
        self._tracker: Final = tracker
        self._groups: Final = groups
        self._scheduler: Final = scheduler
        self._now: Final = now
        #: How many pods were bound at the last look.
        self._bound = tracker.bound

    async def wait(self, look: Callable[[int], None]) -> None:
        """Returns when nothing changes any more; ``look`` gets the number of bound pods."""
        settled = False
        while not settled:
            await asyncio.sleep(_LOOK_SECONDS)
            settled = await self._is_settled(look)

    async def _is_settled(self, look: Callable[[int], None]) -> bool:
        """Whether the scheduler is idle, still is after QUIET seconds, and nothing was written in between."""
        before, self._bound = self._bound, self._tracker.bound
        look(self._bound)
        if self._bound != before or not self._is_decided() or self._is_awaited():
            return False
        retrying = self._groups.rejected()
        mark = self._mark(retrying)
        if not self._scheduler.is_idle(retrying):
            return False
        until = self._now() + (GROUPS_QUIET if retrying else QUIET)
        while self._now() < until:
            await asyncio.sleep(_LOOK_SECONDS)
            if self._mark(retrying) != mark:
                return False
        return self._scheduler.is_idle(retrying) and self._mark(retrying) == mark

    def _mark(self, retrying: int) -> tuple[int, int]:
        """What does not change while nothing happens: each attempt of a group writes events."""
        store = self._cluster.api.store
        if retrying:
            return self._tracker.bound, len(store[PODS.storage].records)
        return store.revision, 0

    def _is_decided(self) -> bool:
        """Whether every pod is bound or was rejected, or belongs to a group that is not tried."""
        left = [entry.pod for entry in self._tracker.entries if not entry.is_decided]
        return not left or self._groups.held().keys() >= set(left)

    def _is_awaited(self) -> bool:
        """Whether any pod is terminating: its preemptor may wait for that."""
        pods = self._cluster.api.store[PODS.storage].records.values()
        return any(is_being_deleted(pod.value) and not _has_finalizers(pod.value) for pod in pods)
