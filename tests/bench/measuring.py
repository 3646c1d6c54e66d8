"""One round: fill the cluster, start the scheduler, watch the backlog being bound."""

import asyncio
import contextlib
import dataclasses
import functools
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from app.runtime.clock import SystemClock
from app.settings.extension import KIND, V1ALPHA1
from app.tools.subprocesses import Child, child, reserved_port, watched
from tests.bench import workload
from tests.bench.cluster import Cluster, connected
from tests.bench.listeners import ALL_HEAR, Received
from tests.bench.results import Measured, Result
from tests.bench.usage import Usage, usage

OURS: Final = (
    f"{shlex.quote(sys.executable)} -m tests.bench.seeded {{seed}} run --config {{config}} "
    "--bind-address=127.0.0.1 --secure-port={port} --feature-gates={gates}"
)
"""The command of this scheduler."""

_PEEK_SECONDS: Final = 0.02
_FILL_SECONDS: Final = 600.0
"""How long the embedded cluster may take to be filled."""
_HEAR_SECONDS: Final = 30.0
"""How long the listeners may take to hear, after the last binding."""
_now: Final = SystemClock().monotonic


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the scheduler is given to do."""

    nodes: int = 1000
    pods: int = 1000
    existing: int = 0
    apart_every: int = 0
    """Each so many-th existing pod has required anti-affinity; 0: none."""
    shape: str = "basic"
    zones: int = 3
    padding: int = 0
    """Bytes added to each node."""
    extender: str = ""
    """Milliseconds before each answer of an extender, ``never``, ``crash``, ``nonsense``, or empty for no extender."""
    whole_nodes: bool = False
    """Send the extender whole nodes instead of names."""
    ignorable: bool = False
    feeds: int = 0
    """Listeners of the feed (open pages) while the backlog is bound."""
    questions: float = 0.0
    """Questions a second where pods would go (tests.bench.asking) meanwhile; 0: none."""
    question_pods: int = 100
    """Pods of a question."""
    extender_options: str = ""
    """Fields of the second document for the extender, as JSON; empty for none."""
    group_size: int = workload.Gangs().size
    min_count: int = workload.Gangs().minimum
    racks: int = workload.Gangs().racks
    """See workload.Gangs; only for the shape ``gang``."""
    rate: float = 0.0
    """Pods a second that arrive once the first one is bound; 0: all are there before the scheduler starts."""
    burst: int = 1
    """How many of them arrive together."""
    seed: int = 1
    """Of this scheduler."""
    timeout_seconds: float = 300.0

    @property
    def backlog(self) -> int:
        """The pods that are there before the scheduler starts."""
        return 1 if self.rate else self.pods

    @property
    def gangs(self) -> workload.Gangs:
        """The pod groups."""
        return workload.Gangs(self.group_size, self.min_count, self.racks)


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a round takes place: the API server, and a folder for files and logs."""

    kubeconfig: Path
    folder: Path
    filled: bool = False
    """Whether everything is there already, and goes with the API server."""


@contextlib.asynccontextmanager
async def embedded_cluster(folder: Path, load: Load) -> AsyncIterator[Place]:
    """An embedded cluster in a process of its own, filled, whose pods stay as the scheduler leaves them."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "tests.bench.server", "--kubeconfig-out", str(kubeconfig)]
    command += ["--load", json.dumps(_content(load))]
    async with child(command, log=folder / "apiserver.log", name="the embedded cluster") as server:
        await server.wait_url(_FILL_SECONDS)
        yield Place(kubeconfig, folder, filled=True)


def _content(load: Load) -> dict[str, Any]:
    """What the cluster holds."""
    names = ("shape", "nodes", "pods", "backlog", "apart_every", "zones", "padding", "gangs")
    return {name: getattr(load, name) for name in names} | {"existing": _existing(load)}


def _existing(load: Load) -> int:
    return workload.existing_count(load.existing, nodes=load.nodes, shape=load.shape)


async def measure(load: Load, place: Place, scheduler: str, *, wipe: bool = False) -> Result:
    """Wipes and fills the cluster, lets ``scheduler`` (a command line) bind the backlog, and tidies up.

    Raises NotOurs if the cluster holds anything else and ``wipe`` is not given, ChildFailed, KubeApiError.
    """
    async with connected(str(place.kubeconfig)) as cluster, _extender(load, place) as url:
        if not place.filled:
            if not wipe:
                await cluster.refuse_foreign()
            await cluster.wipe(everything=wipe)
            await _fill(cluster, load)
        config = place.folder / "scheduler.yaml"
        config.write_text(configuration(load, kubeconfig=str(place.kubeconfig), extender=url))
        with reserved_port() as port:
            values = {"config": config, "kubeconfig": place.kubeconfig, "port": port}
            values["gates"] = load.gangs.gates(load.shape)
            values["seed"] = load.seed
            for name, value in values.items():
                scheduler = scheduler.replace(f"{{{name}}}", str(value))
            asked: dict[str, Any] = {}
            async with _listeners(load, place, port) as (received, all_hear):
                asking = _asking(load, place, port, asked)
                measured = await _run(
                    cluster, load, shlex.split(scheduler), place, asking, all_hear
                )
        if not place.filled:
            await cluster.wipe(everything=False)
    about = {name: getattr(load, name) for name in ("shape", "nodes", "pods", "feeds")}
    return Result(
        **about,
        existing=_existing(load),
        extender=_extender_text(load),
        feed_events=received.events,
        feed_mb=round(received.size / 1e6, 3),
        **asked,
        **measured.figures(),
    )


def configuration(load: Load, *, kubeconfig: str, extender: str) -> str:
    """What both schedulers of a comparison read (JSON is YAML)."""
    document: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": True},
    }
    if extender:
        document["extenders"] = [
            {
                "urlPrefix": extender,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 1,
                "httpTimeout": "5s",
                "nodeCacheCapable": not load.whole_nodes,
                "ignorable": load.ignorable,
            }
        ]
    text = json.dumps(document, indent=2)
    if extender and load.extender_options:
        options = {"urlPrefix": extender, **json.loads(load.extender_options)}
        second = {"apiVersion": V1ALPHA1, "kind": KIND, "extenders": [options]}
        text += f"\n---\n{json.dumps(second, indent=2)}"
    return text


@contextlib.asynccontextmanager
async def _extender(load: Load, place: Place) -> AsyncIterator[str]:
    """The address of the extender, empty if there is none."""
    if not load.extender:
        yield ""
        return
    command = [sys.executable, "-m", "tests.bench.extender", "--delay", load.extender]
    async with child(command, log=place.folder / "extender.log", name="the extender") as running:
        yield await running.wait_url()


@contextlib.asynccontextmanager
async def _listeners(
    load: Load, place: Place, port: int
) -> AsyncIterator[tuple[Received, Callable[[], Awaitable[object]]]]:
    """Listens to the feed of the scheduler at ``port`` during the block; how much was sent is known after it.

    The second value waits until each listener has had an event.
    """
    received = Received()
    if not load.feeds:
        yield received, functools.partial(asyncio.sleep, 0)
        return
    command = [sys.executable, "-m", "tests.bench.listeners", f"--port={port}"]
    log = place.folder / "listeners.log"
    async with child([*command, f"--count={load.feeds}"], log=log, name="the listeners") as running:
        yield (
            received,
            lambda: running.wait_output(re.compile(ALL_HEAR), "did not hear", _HEAR_SECONDS),
        )
    found = json.loads(running.tail().splitlines()[-1])
    received.events, received.size = found["events"], found["size"]


@contextlib.asynccontextmanager
async def _asking(
    load: Load, place: Place, port: int, found: dict[str, Any]
) -> AsyncIterator[None]:
    """Asks the scheduler at ``port`` questions during the block; what became of them is put into ``found`` after it."""
    if not load.questions:
        yield
        return
    command = [sys.executable, "-m", "tests.bench.asking", f"--port={port}"]
    command += [f"--rate={load.questions}", f"--pods={load.question_pods}"]
    log = place.folder / "asking.log"
    async with child(command, log=log, name="the questions") as running:
        yield
    found.update(json.loads(running.tail().splitlines()[-1]))


def _extender_text(load: Load) -> str:
    if not load.extender:
        return ""
    answers = f"{load.extender} ms" if load.extender[0].isdecimal() else load.extender
    return f"{answers}, {'whole nodes' if load.whole_nodes else 'names'}"


async def _fill(cluster: Cluster, load: Load) -> None:
    """Makes everything."""
    shape, nodes = load.shape, load.nodes
    await cluster.create(
        workload.surroundings(shape, nodes=nodes, pods=load.pods, gangs=load.gangs)
    )
    await cluster.create(
        workload.node(number, zones=load.zones, shape=shape, padding=load.padding, gangs=load.gangs)
        for number in range(nodes)
    )
    await cluster.create(
        workload.existing_pod(number, nodes=nodes, shape=shape, apart_every=load.apart_every)
        for number in range(_existing(load))
    )
    await cluster.create(
        workload.measured_pod(number, shape, load.gangs) for number in range(load.backlog)
    )


async def _run(
    cluster: Cluster,
    load: Load,
    command: list[str],
    place: Place,
    asking: contextlib.AbstractAsyncContextManager[None],
    all_hear: Callable[[], Awaitable[object]],
) -> Measured:
    since = await cluster.version()
    bindings = _Bindings(load.pods)
    following = asyncio.create_task(bindings.follow(cluster, since))
    arrivals = _Arrivals(load, cluster, bindings)
    beside = [asyncio.create_task(arrivals.run())]
    if load.shape == "churn":
        beside.append(asyncio.create_task(cluster.churn()))
    started = _now()
    try:
        async with child(command, log=place.folder / "scheduler.log", name=command[0]) as scheduler:
            async with asking, watched(scheduler), _timeout(load.timeout_seconds):
                await _until(following, beside, bindings, scheduler)
            await all_hear()
            return Measured(
                started,
                bindings.at,
                bindings.on,
                bindings.pods,
                arrivals.latencies(),
                bindings.usage_at_first.cpu,
                bindings.usage.cpu,
                bindings.usage.peak_memory,
            )
    finally:
        for task in (following, *beside):
            task.cancel()
        await asyncio.wait([following, *beside])


@contextlib.asynccontextmanager
async def _timeout(seconds: float) -> AsyncIterator[None]:
    """Goes on after the block when it takes too long: what was measured until then counts."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            yield


async def _until(
    following: asyncio.Task[None],
    beside: Sequence[asyncio.Task[None]],
    bindings: "_Bindings",
    scheduler: Child,
) -> None:
    """Returns when every binding was seen; reads the scheduler's usage meanwhile. Raises what a task beside it
    raises.
    """
    while not following.done():
        await asyncio.wait([following], timeout=_PEEK_SECONDS)
        bindings.note(usage(scheduler.pid))
        for task in beside:
            if task.done():
                task.result()
    following.result()


class _Arrivals:
    """Makes the pods that arrive while the scheduler runs."""

    def __init__(self, load: Load, cluster: Cluster, bindings: "_Bindings") -> None:
        self._load: Final = load
        self._cluster: Final = cluster
        self._bindings: Final = bindings
        #: When each pod was sent to the API server, by name.
        self._sent: Final[dict[str, float]] = {}

    async def run(self) -> None:
        """Makes all pods at their times, however long the API server takes for each."""
        load = self._load
        if not load.rate:
            return
        while not self._bindings.at:
            await asyncio.sleep(_PEEK_SECONDS)
        started = _now()
        async with asyncio.TaskGroup() as group:
            for number in range(load.backlog, load.pods):
                turn = (number - load.backlog) // load.burst * load.burst
                await asyncio.sleep(started + turn / load.rate - _now())
                pod = workload.measured_pod(number, load.shape, load.gangs)
                self._sent[pod["metadata"]["name"]] = _now()
                group.create_task(self._cluster.create([pod]))

    def latencies(self) -> list[float]:
        """Seconds from the creation of each pod that has arrived and is bound to its binding, as seen here."""
        pairs = zip(self._bindings.pods, self._bindings.at, strict=True)
        return [at - self._sent[pod] for pod, at in pairs if pod in self._sent]


class _Bindings:
    """The bindings of one round as they are seen."""

    def __init__(self, wanted: int) -> None:
        self._wanted: Final = wanted
        self.at: Final[list[float]] = []
        self.on: Final[list[str]] = []
        self.pods: Final[list[str]] = []
        self.usage = Usage(0.0, 0)
        self.usage_at_first = Usage(0.0, 0)

    async def follow(self, cluster: Cluster, since: str) -> None:
        """Returns when all were seen."""
        async with contextlib.aclosing(cluster.bindings(since)) as bindings:
            async for pod, node in bindings:
                self.at.append(_now())
                self.on.append(node)
                self.pods.append(pod)
                if len(self.at) >= self._wanted:
                    return

    def note(self, used: Usage) -> None:
        """The scheduler's usage as it is now."""
        if not self.at:
            self.usage_at_first = used
        self.usage = Usage(used.cpu, max(used.peak_memory, self.usage.peak_memory))
