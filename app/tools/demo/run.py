"""Runs the demo: starts the cluster, the extender and the scheduler, shows the progress and then tables."""

import asyncio
import contextlib
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import aiohttp
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.runtime.clock import SystemClock
from app.sim import ClusterOptions, EmbeddedCluster, KubeletOptions
from app.sim.resources.kinds import NODES, PODS, PRIORITY_CLASSES
from app.tools.dashboard.server import open_browser, serving_page
from app.tools.demo.scenario import GPUS_PER_NODE, ZONES, Scenario, Workload, configuration
from app.tools.pod_tracker import PodTracker, pods_bound
from app.tools.scheduler_client import SchedulerTarget
from app.tools.subprocesses import (
    Child,
    child,
    interruptible,
    module,
    reserved_port,
    scheduler,
    watched,
)
from extenders import __name__ as extenders

#: Seconds without a change after which nothing more is expected.
_QUIET: Final = 0.4
#: Seconds until the demo gives up, and additional seconds for each pod.
_TIMEOUT: Final = 120.0
_TIMEOUT_PER_POD: Final = 0.01
#: Timeout in seconds for the extender's statistics.
_STATISTICS_SECONDS: Final = 10.0


class DemoFailed(Exception):  # noqa: N818 - says what happened
    """The scheduler or the extender did not do what the demo needs; the text says what is missing."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of the demo."""

    nodes: int = 60
    pods: int = 300
    keep: bool = False
    """Stay up after the tables, for kubectl, until SIGINT or SIGTERM."""
    page: bool = False
    """Serve the dashboard, and open a browser if there is one."""
    port: int = 0
    """The port of the API server; 0 takes any free one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Measured times in seconds, and numbers of pods."""

    pods: int
    """Pods bound before the late node joined."""
    binding: float
    """From the first binding to the last."""
    unasked: int
    """Pods among them that do not concern the extender."""
    unasked_binding: float
    """From the first binding to the last of these."""
    starting: float
    """From starting the scheduler's process to the first binding."""
    waking: float
    """From the late node's arrival to the last binding that it made possible."""
    woken: int
    """The number of these bindings."""
    total: float

    @property
    def pods_per_second(self) -> float:
        """The rate at which pods that do not concern the extender were bound."""
        return self.unasked / self.unasked_binding if self.unasked_binding > 0 else float("nan")


def report(
    workloads: Sequence[Workload],
    tracker: PodTracker,
    extender: Mapping[str, Any],
    figures: Measurements,
) -> RenderableType:
    """All tables; ``extender``: its statistics."""
    return Group(
        *_titled("Where the pods went", _placement(workloads, tracker)),
        *_titled("Pending, and why", _pending(workloads, tracker)),
        *_titled("What the extender rejected", _rejections(extender)),
        _asked(extender),
        *_lines(figures),
    )


def _titled(title: str, table: Table) -> Iterator[RenderableType]:
    yield Text(f"\n{title}", style="bold")
    yield table


def _table(*columns: tuple[str, bool]) -> Table:
    """A plain table; a column is (title, whether it has numbers)."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title, is_number in columns:
        table.add_column(title, justify="right" if is_number else "left", overflow="fold")
    return table


def _placement(workloads: Sequence[Workload], tracker: PodTracker) -> Table:
    numbers = ("pods", *ZONES, "pending")
    table = _table(("workload", False), *((name, True) for name in numbers), ("", False))
    total = dict.fromkeys(("pods", *ZONES, ""), 0)
    for workload in workloads:
        zones = {"pods": workload.count, **tracker.by_zone(workload.name)}
        cells = [zones.get(zone, 0) for zone in total]
        total = {
            zone: before + now for (zone, before), now in zip(total.items(), cells, strict=True)
        }
        table.add_row(workload.name, *(str(cell or "-") for cell in cells), workload.about)
    table.add_section()
    table.add_row("all", *map(str, total.values()))
    return table


def _pending(workloads: Sequence[Workload], tracker: PodTracker) -> Table:
    table = _table(("pods", True), ("workload", False), ("FailedScheduling", False))
    for workload in workloads:
        for message, count in tracker.rejections(workload.name).most_common():
            table.add_row(str(count), workload.name, message)
    return table


def _rejections(extender: Mapping[str, Any]) -> Table:
    table = _table(("nodes", True), ("reason", False))
    for reason, count in sorted(extender["refusals"].items()):
        table.add_row(str(count), reason)
    return table


def _asked(extender: Mapping[str, Any]) -> Text:
    calls = ", ".join(f"{count} {verb}" for verb, count in sorted(extender["calls"].items()))
    seats = ", ".join(f"{used} in {zone}" for zone, used in extender["licences"].items())
    return Text(f"Calls: {calls}; licences in use: {seats}.")


def _lines(figures: Measurements) -> Iterator[RenderableType]:
    yield Text(
        f"\n{figures.unasked} pods bound in {figures.unasked_binding:.2f} s, "
        f"{figures.pods_per_second:.0f} pods/s; the first one {figures.starting:.1f} s after the scheduler was "
        "started.\n"
        f"{figures.pods - figures.unasked} pods that the extender allows and binds, within {figures.binding:.2f} s: "
        "those whose licence was gone by then were tried again.\n"
        f"A GPU node joined: {figures.woken} pods that had waited for it were bound within "
        f"{figures.waking * 1000:.0f} ms.\n"
        f"All in all {figures.total:.1f} s."
    )


async def run_demo(options: DemoOptions, console: Console) -> bool:
    """Runs the demo; returns whether it showed its tables before SIGINT or SIGTERM.

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
        """Runs the demo from start to finish."""
        settings = ClusterOptions(
            port=self._options.port,
            kubeconfig_out=self._kubeconfig,
            kubelets=KubeletOptions(),
            volumes=True,
            claims=True,
            workloads=True,
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
                async with (
                    self._scheduler(url, port) as scheduler,
                    watched(extender, scheduler),
                    self._page(),
                ):
                    figures = await self._act(cluster, tracker, scheduler)
                    refused = await _statistics(url)
                    self._console.print(report(self._scenario.workloads, tracker, refused, figures))
                    self.shown = True
                    if self._options.keep:
                        await self._stay(tracker, scheduler)

    @contextlib.asynccontextmanager
    async def _page(self) -> AsyncIterator[None]:
        """Serves the dashboard, if it is asked for."""
        if not self._options.page:
            yield
            return
        async with serving_page(SchedulerTarget(kubeconfig=str(self._kubeconfig))) as url:
            self._say(f"The dashboard is at {url}")
            opening = asyncio.create_task(open_browser(url))
            try:
                yield
            finally:
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)

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
        command = module(f"{extenders}.licences", "--port=0")
        command += [f"--seats={zone}={number}" for zone, number in self._scenario.seats.items()]
        command += ["--apiserver", cluster.url]
        return child(command, log=self._folder / "extender.log", name="the extender")

    def _scheduler(self, extender: str, port: int) -> AbstractAsyncContextManager[Child]:
        file = self._folder / "scheduler.yaml"
        file.write_text(configuration(kubeconfig=str(self._kubeconfig), extender=extender))
        flags = ("--bind-address=127.0.0.1", f"--secure-port={port}")
        return scheduler(file, *flags, log=self._folder / "scheduler.log")

    # ------------------------------------------------------------ the run_demo

    async def _act(
        self, cluster: EmbeddedCluster, tracker: PodTracker, scheduler: Child
    ) -> Measurements:
        """Waits until the pods are scheduled, then adds a node for which some have been waiting."""
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
        return Measurements(
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
        """Shows the number of bound pods until ``done`` is true. Raises DemoFailed."""
        limit = _TIMEOUT + _TIMEOUT_PER_POD * self._options.pods
        with pods_bound(self._console, title, self._options.pods) as show:
            try:
                async with asyncio.timeout(limit):
                    await tracker.wait(done, look=lambda: show(tracker.bound))
            except TimeoutError:
                raise DemoFailed(_too_slow(limit, tracker, scheduler)) from None

    async def _stay(self, tracker: PodTracker, scheduler: Child) -> None:
        pending = [entry for entry in tracker.entries if not entry.node]
        pod = max(pending, key=lambda entry: entry.workload == self._scenario.licensed).pod
        node = next(self._scenario.nodes(""))["metadata"]["name"]
        self._say(
            "\nEverything stays up until Ctrl-C. Try in another terminal\n\n"
            f"    export KUBECONFIG={self._kubeconfig}\n"
            "    kubectl get pods -o wide\n"
            f"    aiokube-scheduler explain {pod}\n"
            "    kubectl create deployment hello --image=nginx --replicas=3\n"
            "    kubectl rollout status deployment/hello\n"
            f"    kubectl drain {node} --force\n\n"
            f"The scheduler's log is {scheduler.log}."
        )
        await asyncio.Event().wait()


async def _statistics(extender: str) -> dict[str, Any]:
    """The extender's statistics."""
    limit = aiohttp.ClientTimeout(total=_STATISTICS_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.get(f"{extender}/statistics", raise_for_status=True) as answer,
        ):
            found: dict[str, Any] = await answer.json()
            return found
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DemoFailed(f"the extender's statistics cannot be read: {error!r}") from error


def _too_slow(limit: float, tracker: PodTracker, scheduler: Child) -> str:
    """The error when the demo gives up, with what was done and what was not."""
    left = tracker.undecided()
    return "\n".join(
        [
            f"{tracker.bound} pods were bound within {limit:.0f} s, and then:",
            *(f"  {line}" for line in left or ["more were expected to be, but nothing happened"]),
            f"The scheduler's log ends with\n{scheduler.tail()}",
        ]
    )
