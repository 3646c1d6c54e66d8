"""Records a scheduler at work, by hand: ``python -m tests.whole.recorded --help``.

Pods arrive at a steady rate, run for a time, and go; each fourth asks an extender that takes its time, each tenth has a
high priority, and nodes come and go. With ``--real`` the API server is that of $KUBEBUILDER_ASSETS, which ``--restart``
kills once in between.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from app.cli.process import explained, run_loop
from app.kube.errors import Conflict, KubeError
from app.tools.subprocesses import ChildFailed, child, interruptible, scheduler, watched
from tests.bench import workload
from tests.bench.cluster import Cluster, connected
from tests.bench.measuring import Load, embedded_cluster
from tests.whole.real import RealApiServer

EXTENDED: Final = "recorded-extender"
URGENT_EVERY: Final = 10


class Options(NamedTuple):
    """What the command is told."""

    nodes: int
    pods: int
    rate: float
    """Pods a second."""
    life: float
    """Seconds that a pod runs."""
    delay: float
    """Milliseconds in which the extender answers; negative: there is none."""
    cpu: str
    """What a pod requests; nodes have 4."""
    shape: str
    extended_every: int
    """Each of how many pods asks the extender."""
    faults: bool
    """The extender fails in all its ways in turn."""
    real: bool
    restart: bool
    settings: dict[str, Any]
    """Further fields of the configuration."""


def configuration(kubeconfig: Path, extender: str, settings: dict[str, Any]) -> str:
    """Two profiles, one of which asks the extender (JSON is YAML)."""
    names = ["default-scheduler", *([EXTENDED] if extender else [])]
    first = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": name} for name in names],
        **settings,
    }
    second = {
        "apiVersion": "aiokube-scheduler.io/v1alpha1",
        "kind": "AiokubeSchedulerConfiguration",
    }
    if extender:
        first["extenders"] = [
            {
                "urlPrefix": extender,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 1,
                "httpTimeout": "5s",
                "nodeCacheCapable": True,
            }
        ]
        second["extenders"] = [{"urlPrefix": extender, "profiles": [EXTENDED]}]
    first["profiles"] = [each | first.get("profile", {}) for each in first["profiles"]]
    first.pop("profile", None)
    return f"{json.dumps(first)}\n---\n{json.dumps(second)}"


def pod(number: int, given: Options) -> workload.Object:
    """The pods do not depend on chance."""
    made = workload.measured_pod(number, given.shape)
    spec = made["spec"]
    spec.pop("priorityClassName", None)
    spec["containers"][0]["resources"]["requests"]["cpu"] = given.cpu
    spec["terminationGracePeriodSeconds"] = 0
    if given.delay >= 0 and number % given.extended_every == 0:
        spec["schedulerName"] = EXTENDED
    if number % URGENT_EVERY == 0:
        spec["priorityClassName"] = "bench-high"
    return made


class Life:
    """Lets pods come, and go after they have run."""

    def __init__(self, cluster: Cluster, given: Options) -> None:
        self._cluster: Final = cluster
        self._given: Final = given
        self._going: Final[set[asyncio.Task[None]]] = set()
        self._bound: Final[set[str]] = set()

    async def run(self) -> None:
        """All pods, to the end."""
        since = await self._cluster.version()
        following = asyncio.create_task(self._follow(since))
        began, given = time.monotonic(), self._given
        coming: set[asyncio.Task[None]] = set()
        for number in range(given.pods):
            await asyncio.sleep(max(0.0, began + number / given.rate - time.monotonic()))
            task = asyncio.create_task(self._patiently(self._cluster.create, [pod(number, given)]))
            coming.add(task)
            task.add_done_callback(coming.discard)
            if number % 500 == 499:
                await self._other_node(number // 500)
        while coming:
            await asyncio.wait(coming)
        quiet, before = 0, -1
        while quiet < 3 and len(self._bound) < given.pods:
            await asyncio.sleep(given.life / 2 + 2)
            quiet, before = (quiet + 1 if len(self._bound) == before else 0), len(self._bound)
        following.cancel()
        for task in self._going:
            task.cancel()
        await asyncio.gather(following, *self._going, return_exceptions=True)
        click.echo(f"{len(self._bound)} of {given.pods} pods were bound")

    async def _follow(self, since: str) -> None:
        while True:
            try:
                async with contextlib.aclosing(self._cluster.bindings(since)) as bindings:
                    async for name, _node in bindings:
                        if name in self._bound:
                            continue
                        self._bound.add(name)
                        task = asyncio.create_task(self._end(name))
                        self._going.add(task)
                        task.add_done_callback(self._going.discard)
            except KubeError:
                await asyncio.sleep(1.0)
                since = ""

    async def _end(self, name: str) -> None:
        await asyncio.sleep(self._given.life)
        await self._patiently(self._cluster.remove, {"kind": "Pod", "metadata": {"name": name}})

    async def _other_node(self, number: int) -> None:
        """A node more."""
        made = workload.node(self._given.nodes + number, zones=3, shape="preemption", padding=0)
        await self._patiently(self._cluster.create, [made])

    async def _patiently(self, work: Callable[[Any], Awaitable[None]], what: Any) -> None:
        """The API server may be away for some seconds, or may have done it and not said so."""
        for _ in range(60):
            try:
                await work(what)
            except (KubeError, ExceptionGroup) as error:
                causes = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
                if any(isinstance(cause, Conflict) for cause in causes):
                    return
                await asyncio.sleep(1.0)
            else:
                return


async def record(folder: Path, given: Options) -> None:
    """Writes ``trace`` in the folder. Raises ChildFailed, KubeError."""
    load = Load(nodes=0, pods=0)
    async with contextlib.AsyncExitStack() as stack:
        server = None
        if given.real:
            flags = ("--audit-log-maxsize=50", "--audit-log-maxbackup=1")
            server = RealApiServer(folder, *flags)
            stack.enter_context(server.running())
            kubeconfig = server.kubeconfig
        else:
            place = await stack.enter_async_context(embedded_cluster(folder, load))
            kubeconfig = place.kubeconfig
        cluster = await stack.enter_async_context(connected(str(kubeconfig)))
        await cluster.create(
            workload.node(n, zones=3, shape="preemption", padding=0) for n in range(given.nodes)
        )
        await cluster.create(workload.surroundings("preemption", nodes=0, pods=0))
        if given.shape != "preemption":
            await cluster.create(
                workload.surroundings(given.shape, nodes=given.nodes, pods=given.pods)
            )
        extender, url = None, ""
        if given.delay >= 0:
            delay = "turns" if given.faults else given.delay
            asked = ["-m", "tests.bench.extender", f"--delay={delay}", "--cycle=6"]
            extender = await stack.enter_async_context(
                child([sys.executable, *asked], log=folder / "extender.log", name="the extender")
            )
            url = await extender.wait_url()
        config = folder / "scheduler.yaml"
        config.write_text(configuration(kubeconfig, url, given.settings))
        flags = ("--secure-port=0", f"--record={folder / 'trace'}")
        running = await stack.enter_async_context(
            scheduler(config, *flags, log=folder / "scheduler.log")
        )
        await stack.enter_async_context(watched(running, *([extender] if extender else [])))
        await asyncio.sleep(3.0)
        killing = None
        if server is not None and given.restart:
            killing = asyncio.create_task(_restart(server, given.pods / given.rate / 2))
        await Life(cluster, given).run()
        if killing is not None:
            await killing


async def _restart(server: RealApiServer, seconds: float) -> None:
    await asyncio.sleep(seconds)
    click.echo("kube-apiserver is killed")
    await asyncio.to_thread(server.restart, 2.0)
    click.echo("kube-apiserver is back")


@click.command(context_settings={"show_default": True})
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--nodes", default=1000)
@click.option("--pods", default=10_000)
@click.option("--rate", default=60.0, help="Pods a second.")
@click.option("--life", default=60.0, help="Seconds that a pod runs.")
@click.option("--delay", default=20.0, help="Milliseconds of the extender; negative: none.")
@click.option("--cpu", default="1", help="What a pod requests; a node has 4.")
@click.option("--shape", type=click.Choice(workload.SHAPES), default="mixed")
@click.option("--extended-every", default=4, help="Each of how many pods asks the extender.")
@click.option("--faults", is_flag=True, help="The extender fails in each of its ways in turn.")
@click.option("--real", is_flag=True, help="etcd and kube-apiserver of $KUBEBUILDER_ASSETS.")
@click.option("--restart", is_flag=True, help="Kill kube-apiserver once in between.")
@click.option("--settings", default="{}", help="Fields of the configuration, as JSON.")
def main(folder: Path, settings: str, **options: Any) -> None:
    """Record a scheduler at work into FOLDER/trace."""
    folder.mkdir(parents=True)
    given = Options(settings=json.loads(settings), **options)
    with explained(ChildFailed, KubeError):
        run_loop(interruptible(record(folder.absolute(), given)))


if __name__ == "__main__":
    main()
