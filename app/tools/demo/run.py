"""Starts the cluster, the extender and the scheduler, shows the progress and then the tables."""

import asyncio
import dataclasses
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import aiohttp
from rich.console import Console

from app.runtime.clock import SystemClock
from app.sim import ClusterOptions, EmbeddedCluster, KubeletOptions
from app.sim.resources.kinds import NODES, PODS, PRIORITY_CLASSES
from app.tools.demo.report import Figures, report
from app.tools.demo.scenario import GPUS_PER_NODE, Scenario, configuration
from app.tools.pod_tracker import PodTracker
from app.tools.progress import pods_bound
from app.tools.subprocesses import (
    Child,
    child,
    interruptible,
    module,
    reserved_port,
    scheduler,
    watched,
)

#: Seconds without a change after which nothing more is expected.
_QUIET: Final = 0.4
#: Seconds for everything to be decided before the demo gives up, and seconds more for each pod.
_PATIENCE: Final = 120.0
_PATIENCE_PER_POD: Final = 0.01
#: Seconds the extender has to say how often it was asked.
_STATISTICS_SECONDS: Final = 10.0


class DemoFailed(Exception):  # noqa: N818 - says what happened
    """The scheduler, or the extender, did not do its part; the text says what is missing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What can be chosen."""

    nodes: int = 60
    pods: int = 300
    keep: bool = False
    """Stay up after the tables, for kubectl, until SIGINT or SIGTERM."""
    port: int = 0
    """Of the API server; 0 takes any free one."""


async def play(options: DemoOptions, console: Console) -> bool:
    """Shows the demo; whether it came to its tables before SIGINT or SIGTERM.

    Raises DemoFailed, ChildFailed or OSError, some of them in groups.
    """
    scenario = Scenario(nodes=options.nodes, pods=options.pods)
    with tempfile.TemporaryDirectory(prefix="aiokube-scheduler-demo-") as folder:
        demo = _Demo(scenario, options, console, Path(folder))
        await interruptible(demo.run())
        return demo.shown


class _Demo:
    def __init__(
        self, scenario: Scenario, options: DemoOptions, console: Console, folder: Path
    ) -> None:
        self._scenario: Final = scenario
        self._options: Final = options
        self._console: Final = console
        self._folder: Final = folder
        self._kubeconfig: Final = folder / "kubeconfig"
        self._now: Final[Callable[[], float]] = SystemClock().monotonic
        self._began: Final = self._now()
        self.shown = False

    async def run(self) -> None:
        """Starts everything, and shows it."""
        settings = ClusterOptions(
            port=self._options.port,
            kubeconfig_out=self._kubeconfig,
            kubelets=KubeletOptions(),
            volumes=True,
            claims=True,
        )
        with reserved_port() as port:
            await self._play(settings, port)

    async def _play(self, settings: ClusterOptions, port: int) -> None:
        async with EmbeddedCluster(settings) as cluster:
            tracker = PodTracker(cluster, self._now, self._scenario.workload_of)
            self._fill(cluster)
            async with self._extender(cluster) as extender:
                url = await extender.wait_url()
                self._say(f"An extender that counts floating licences answers at {url}.")
                async with self._scheduler(url, port) as scheduler, watched(extender, scheduler):
                    figures = await self._act(cluster, tracker, scheduler)
                    refused = await _statistics(url)
                    self._console.print(report(self._scenario.workloads, tracker, refused, figures))
                    self.shown = True
                    if self._options.keep:
                        await self._stay(tracker, scheduler)

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    # ------------------------------------------------------------ the cast

    def _fill(self, cluster: EmbeddedCluster) -> None:
        cluster.apply(PRIORITY_CLASSES, self._scenario.priority_class())
        for node in self._scenario.nodes(cluster.api.timestamp()):
            cluster.apply(NODES, node)
        for workload in self._scenario.workloads:
            for pod in workload.pods():
                cluster.apply(PODS, pod)
        counts = f"{self._options.nodes} nodes and {self._options.pods} pods"
        self._say(f"A cluster with {counts} listens on {cluster.url}.")

    def _extender(self, cluster: EmbeddedCluster) -> AbstractAsyncContextManager[Child]:
        command = module("extenders.licences", "--port=0")
        command += [f"--seats={zone}={number}" for zone, number in self._scenario.seats.items()]
        command += ["--apiserver", cluster.url]
        return child(command, log=self._folder / "extender.log", name="the extender")

    def _scheduler(self, extender: str, port: int) -> AbstractAsyncContextManager[Child]:
        file = self._folder / "scheduler.yaml"
        file.write_text(configuration(kubeconfig=str(self._kubeconfig), extender=extender))
        flags = ("--bind-address=127.0.0.1", f"--secure-port={port}")
        return scheduler(file, *flags, log=self._folder / "scheduler.log")

    # ------------------------------------------------------------ the play

    async def _act(
        self, cluster: EmbeddedCluster, tracker: PodTracker, scheduler: Child
    ) -> Figures:
        """The pods are scheduled, then a node joins for which some have been waiting."""
        started = self._now()
        await self._wait(
            "The scheduler starts", tracker, scheduler, lambda: tracker.settled(_QUIET)
        )
        began, until = tracker.bound_at[0], tracker.bound_at[-1]
        first = tracker.bound
        asked = self._scenario.licensed
        unasked = [e.bound_at for e in tracker.entries if e.node and e.workload != asked]
        joined = self._now()
        cluster.apply(NODES, self._scenario.late_node(cluster.api.timestamp()))
        await self._wait(
            "A GPU node joins",
            tracker,
            scheduler,
            lambda: tracker.bound >= first + GPUS_PER_NODE and tracker.settled(_QUIET),
        )
        return Figures(
            pods=first,
            binding=until - began,
            unasked=len(unasked),
            unasked_binding=max(unasked) - began,
            starting=began - started,
            waking=tracker.bound_at[-1] - joined,
            woken=tracker.bound - first,
            total=self._now() - self._began,
        )

    async def _wait(
        self, title: str, tracker: PodTracker, scheduler: Child, done: Callable[[], bool]
    ) -> None:
        """Shows how many pods are bound until ``done``. Raises DemoFailed."""
        patience = _PATIENCE + _PATIENCE_PER_POD * self._options.pods
        with pods_bound(self._console, title, self._options.pods) as show:
            try:
                async with asyncio.timeout(patience):
                    await tracker.wait(done, look=lambda: show(tracker.bound))
            except TimeoutError:
                raise DemoFailed(_too_slow(patience, tracker, scheduler)) from None

    async def _stay(self, tracker: PodTracker, scheduler: Child) -> None:
        pending = [entry for entry in tracker.entries if not entry.node]
        pod = max(pending, key=lambda entry: entry.workload == self._scenario.licensed).pod
        node = next(self._scenario.nodes(""))["metadata"]["name"]
        self._say(
            "\nEverything stays up until Ctrl-C. Try in another terminal\n\n"
            f"    export KUBECONFIG={self._kubeconfig}\n"
            "    kubectl get pods -o wide\n"
            f"    aiokube-scheduler explain {pod}\n"
            "    kubectl run hello --image=nginx\n"
            f"    kubectl drain {node} --force\n\n"
            f"The scheduler's log is {scheduler.log}."
        )
        await asyncio.Event().wait()


async def _statistics(extender: str) -> dict[str, Any]:
    """What the extender says of itself."""
    limit = aiohttp.ClientTimeout(total=_STATISTICS_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.get(f"{extender}/statistics", raise_for_status=True) as answer,
        ):
            found: dict[str, Any] = await answer.json()
            return found
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DemoFailed(f"the extender did not tell its statistics: {error!r}") from error


def _too_slow(patience: float, tracker: PodTracker, scheduler: Child) -> str:
    """What was done when the demo gave up, and what was not."""
    left = tracker.undecided()
    return "\n".join(
        [
            f"{tracker.bound} pods were bound within {patience:.0f} s, and then:",
            *(f"  {line}" for line in left or ["more were expected to be, but nothing happened"]),
            f"The scheduler's log ends with\n{scheduler.tail()}",
        ]
    )
