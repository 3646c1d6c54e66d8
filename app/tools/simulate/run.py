"""Loads the dump, starts the scheduler, lets the workload come and looks where everything went."""

import asyncio
import contextlib
import dataclasses
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from app.runtime.clock import SystemClock
from app.sim import ClusterOptions, EmbeddedCluster, KubeletOptions, ManifestError, NodeOptions
from app.sim.resources.kinds import NODES
from app.tools.pod_tracker import Entry, PodTracker
from app.tools.progress import pods_bound
from app.tools.simulate.configuration import Configured
from app.tools.simulate.loader import CLUSTER_KINDS, WORKLOAD_KINDS, Loader
from app.tools.simulate.manifests import Reading, read
from app.tools.simulate.preemptions import Preemptions
from app.tools.simulate.quiescence import Settling
from app.tools.simulate.result import Answer
from app.tools.simulate.summary import node_uses, requested, workload
from app.tools.subprocesses import interruptible, reserved_port, scheduler, watched

#: Pods run as soon as they are bound. Victims stay for a while, as they do: what comes after their preemptor still finds
#: them where they were.
_KUBELETS: Final = KubeletOptions(start_delay=0.0, grace_factor=1.0, longest_grace=0.5)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """What is simulated."""

    cluster: tuple[Path, ...]
    workload: tuple[Path, ...]
    configuration: Configured
    nodes: NodeOptions = dataclasses.field(default_factory=NodeOptions)
    """Nodes beside those of the dump."""
    port: int = 0
    """Of the embedded API server; 0 takes any free one."""
    timeout: float = 120.0
    """Seconds for everything to be decided."""


async def simulate(options: SimulationOptions, console: Console) -> Answer | None:
    """Whereverything goes; None if SIGINT or SIGTERM came first. ``console`` shows the progress.

    Raises ManifestError, ChildFailed or OSError, some of them in groups.
    """
    dump = read(options.cluster, CLUSTER_KINDS)
    given = read(options.workload, WORKLOAD_KINDS)
    if not options.nodes.count and not any(dump.of("Node")):
        raise ManifestError("the cluster has no nodes: dump them too (kubectl get nodes,pods,...)")
    with tempfile.TemporaryDirectory(prefix="aiokube-scheduler-simulate-") as folder:
        simulation = _Simulation(options, console, Path(folder))
        return await interruptible(simulation.run(dump, given))


class _Simulation:
    def __init__(self, options: SimulationOptions, console: Console, folder: Path) -> None:
        self._options: Final = options
        self._console: Final = console
        self._folder: Final = folder
        self._now: Final[Callable[[], float]] = SystemClock().monotonic

    async def run(self, dump: Reading, given: Reading) -> Answer:
        """From the dump to the answer."""
        kubeconfig = self._folder / "kubeconfig"
        settings = ClusterOptions(
            port=self._options.port,
            nodes=self._options.nodes,
            kubelets=_KUBELETS,
            volumes=True,
            claims=True,
            kubeconfig_out=kubeconfig,
        )
        async with EmbeddedCluster(settings) as cluster:
            loader = Loader(cluster, self._options.configuration.schedulers)
            tracker = PodTracker(cluster, self._now, _titles(loader))
            loader.load_cluster(dump)
            before, preemptions = requested(cluster), Preemptions(cluster)
            began = self._now()
            async with self._scheduling(cluster, tracker, kubeconfig) as settling:
                is_complete = await self._act(loader, tracker, given, settling)
            seconds = self._now() - began
            return Answer(
                is_complete=is_complete,
                seconds=round(seconds, 3),
                **self._placed(cluster, loader, tracker),
                preempted=preemptions.found,
                nodes=node_uses(cluster, before, requested(cluster)),
                other_schedulers=dict(loader.other_schedulers),
                passed_over=dict(sorted((dump.passed_over + given.passed_over).items())),
                extenders_left_out=list(self._options.configuration.left_out),
                warnings=list(self._options.configuration.warnings),
            )

    @contextlib.asynccontextmanager
    async def _scheduling(
        self, cluster: EmbeddedCluster, tracker: PodTracker, kubeconfig: Path
    ) -> AsyncIterator[Settling]:
        file = self._folder / "scheduler.yaml"
        file.write_text(self._options.configuration.text(kubeconfig), encoding="utf-8")
        log = self._folder / "scheduler.log"
        with reserved_port() as port:
            flags = (
                *(f"--secure-port={port}", "--insecure-http"),
                "--authorization-always-allow-paths=/metrics",
            )
            async with scheduler(file, *flags, log=log) as child, watched(child):
                yield Settling(cluster, tracker, port, self._now)

    async def _act(
        self, loader: Loader, tracker: PodTracker, given: Reading, settling: Settling
    ) -> bool:
        """First the pending pods of the dump are decided about, then the workload comes. Whether all was decided in time."""
        began, limit = self._now(), self._options.timeout
        is_decided = await self._settle("The cluster as it is", tracker, settling, limit / 2)
        loader.load_workload(given)
        left = limit - (self._now() - began)
        return await self._settle("The workload comes", tracker, settling, left) and is_decided

    async def _settle(
        self, title: str, tracker: PodTracker, settling: Settling, limit: float
    ) -> bool:
        """Whether nothing happens any more within so many seconds."""
        total = len(tracker.entries)
        bar = pods_bound(self._console, title, total) if total else contextlib.nullcontext(_ignore)
        with bar as show:
            try:
                async with asyncio.timeout(limit):
                    await settling.wait(show)
            except TimeoutError:
                return False
        return True

    def _placed(
        self, cluster: EmbeddedCluster, loader: Loader, tracker: PodTracker
    ) -> dict[str, Any]:
        entries: dict[str, list[Entry]] = defaultdict(list)
        for entry in tracker.entries:
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
    """What the tracker is to know of pods: the titles of their workloads."""

    def title(pod: dict[str, Any]) -> str | None:
        group = loader.group_of(pod)
        return None if group is None else group.title

    return title
