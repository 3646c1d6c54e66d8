"""A long run that looks for growth: ``make soak HOURS=2``; ``python -m tests.whole.soak --help``.

Nodes, pods and services come and go, nodes report, pods are preempted, others fit nowhere, and every fourth pod is
decided by an extender that fails in each of its ways every three minutes. At the end of a quiet part of each minute the
scheduler is measured: what it holds then is what it keeps. The run fails if that grows after the first minutes.
"""

import asyncio
import contextlib
import json
import math
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import click
import psutil
from prometheus_client.parser import text_string_to_metric_families

from app.cli.process import explained, run_loop
from app.kube.errors import KubeError
from app.tools.subprocesses import (
    Child,
    ChildFailed,
    child,
    interruptible,
    reserved_port,
    scheduler,
    watched,
)
from tests.bench import workload
from tests.bench.cluster import NODES, PODS, Cluster, connected
from tests.bench.measuring import Load, Place, embedded_cluster
from tests.whole.real import RealApiServer

#: What is kept may be so much larger than after the settling.
TOLERANCE: Final = 1.03
#: Seconds that a pod lives.
LIFETIME: Final = 300.0
#: Each of how many pods goes through the extender, and its profile.
EXTENDED_EVERY: Final = 4
EXTENDED: Final = "soak-extender"
#: Minutes in which the extender fails in each of its ways, after two thirds of them in which it does not.
CYCLE: Final = 3
#: Parts of a minute: pods arrive until the first; nothing is done until the second, which is the moment of the sample.
QUIET: Final = (25 / 60, 40 / 60)
#: Nodes on which pods are preempted.
CONTESTED: Final = 10
#: Seconds in which each node reports once.
REPORTS: Final = 300.0
_LATENCY: Final = "scheduler_pod_scheduling_sli_duration_seconds"
_READS: Final = 5
_START: Final = 120.0
_MIB: Final = 1 << 20


class Options(NamedTuple):
    """What the command is told."""

    hours: float
    nodes: int
    existing: int
    rate: int
    """Pods a second."""
    settle: float
    """Minutes after which nothing may grow."""
    minute: float
    """Seconds of a minute."""
    real: bool


class Sample(NamedTuple):
    """The scheduler at one quiet moment."""

    minutes: float
    """Since the start."""
    memory: float
    """Resident, MiB."""
    files: int
    tasks: int
    """Of the event loop."""
    queue: int
    """Pods that wait, for whatever."""
    bound: int
    """Pods that were bound since the sample before."""
    mean_ms: float
    """From a pod's arrival to its binding, on average, since the sample before; NaN for none."""
    p99_ms: float
    """The same for the slowest hundredth, as the upper end of a bucket."""
    cpu: float
    """Per cent of a core, since the sample before."""

    def __str__(self) -> str:
        return (
            f"{self.minutes:7.1f} {self.memory:8.1f} {self.files:6} {self.tasks:6} {self.queue:6} {self.bound:6}"
            f" {self.mean_ms:9.1f} {self.p99_ms:9.0f} {self.cpu:6.1f}"
        )


HEADER: Final = "minutes  RSS MiB  files  tasks  queue  bound   mean ms    p99 ms  CPU %"


def kept(samples: Sequence[Sample]) -> list[Sample]:
    """One for each cycle of the extender's faults, with the least of all: what pods that wait for it hold is not
    kept.
    """
    cycles = [samples[at : at + CYCLE] for at in range(0, len(samples), CYCLE)]
    return [
        cycle[-1]._replace(
            memory=min(each.memory for each in cycle),
            files=min(each.files for each in cycle),
            tasks=min(each.tasks for each in cycle),
            queue=min(each.queue for each in cycle),
        )
        for cycle in cycles
        if len(cycle) == CYCLE
    ]


def growth(samples: Sequence[Sample], settled: float) -> list[str]:
    """What has grown after ``settled`` minutes; also that there is too little to say, or that nothing was bound."""
    cycles = kept(samples)
    early = [each for each in cycles if each.minutes <= settled]
    later = [each for each in cycles if each.minutes > settled]
    if not early or not later:
        return [f"the run is too short to say anything: it needs more than {settled:g} minutes"]
    found = []
    base, most = later[0].memory, max(each.memory for each in later)
    if most > base * TOLERANCE:
        found.append(f"memory: {base:.1f} MiB after {settled:g} minutes, {most:.1f} MiB later")
    for name in (
        "files",
        "tasks",
    ):  # how many idle connections are kept varies; what grows does so until the end
        before = max(getattr(each, name) for each in early)
        after = min(getattr(each, name) for each in later[-math.ceil(len(later) / 3) :])
        if after > before:
            found.append(
                f"{name}: at most {before} in the first {settled:g} minutes, {after} and more at the end"
            )
    if (waiting := max(e.queue for e in later)) > 2 * (before := max(e.queue for e in early)):
        found.append(f"queue: at most {before} pods in the first minutes, {waiting} later")
    found += [
        f"nothing was bound before minute {e.minutes:.1f}"
        for e in samples
        if e.minutes > settled and not e.bound
    ]
    return found


def summary(samples: Sequence[Sample], settled: float) -> str:
    """The figures for the documentation."""
    cycles = kept(samples)
    later = [each for each in cycles if each.minutes > settled]
    base = later[0].memory
    last, most = later[-1].memory, max(each.memory for each in later)
    bound = sum(each.bound for each in samples)
    mean = sum(each.mean_ms * each.bound for each in samples if each.bound) / max(1, bound)
    return (
        f"{bound} pods bound in {samples[-1].minutes:.0f} minutes; kept memory {base:.1f} MiB after {settled:g} minutes, "
        f"{last:.1f} MiB at the end ({100 * (last / base - 1):+.1f} %), {most:.1f} MiB at most "
        f"({100 * (most / base - 1):+.1f} %); kept files {min(e.files for e in later)} to {max(e.files for e in later)}, "
        f"tasks {min(e.tasks for e in later)} to {max(e.tasks for e in later)}; largest memory "
        f"{max(e.memory for e in samples):.1f} MiB; mean latency {mean:.0f} ms; CPU "
        f"{sum(e.cpu for e in samples) / len(samples):.1f} % of a core"
    )


# ---------------------------------------------------------------- what is measured


class Probe:
    """Measures the scheduler from outside."""

    def __init__(self, running: Child, url: str, token: str) -> None:
        self._process: Final = psutil.Process(running.pid)
        self._url: Final = url
        self._headers: Final = {"Authorization": f"Bearer {token}"} if token else {}
        self._started: Final = time.monotonic()
        self._at = self._started
        self._cpu = self._busy()
        self._buckets: dict[float, float] = {}
        self._sum = 0.0

    async def ready(self) -> None:
        """Returns when the scheduler has filled its caches. Raises ChildFailed after ``_START`` seconds."""
        try:
            async with asyncio.timeout(_START), aiohttp.ClientSession(self._url) as session:
                while True:
                    with contextlib.suppress(aiohttp.ClientError):
                        await _text(session, "/readyz")
                        return
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise ChildFailed(f"the scheduler was not ready within {_START:.0f} s") from None

    async def sample(self, pause: float) -> Sample:
        """Takes the least of some reads, ``pause`` seconds apart: what a running call holds is not kept."""
        files, tasks = [], []
        async with aiohttp.ClientSession(self._url, headers=self._headers) as session:
            for _ in range(_READS):
                await asyncio.sleep(pause)
                text = await _text(session, "/debug/tasks")
                tasks.append(sum(not line.startswith(" ") for line in text.splitlines()))
                files.append(self._process.num_fds())
            metrics = await _text(session, "/metrics")
        now, cpu = time.monotonic(), self._busy()
        queue, latency, mean, bound = self._read(metrics)
        share = (cpu - self._cpu) / (now - self._at)
        self._at, self._cpu = now, cpu
        return Sample(
            minutes=(now - self._started) / 60,
            memory=self._process.memory_info().rss / _MIB,
            files=min(files),
            tasks=min(tasks),
            queue=queue,
            bound=bound,
            mean_ms=mean,
            p99_ms=latency,
            cpu=100 * share,
        )

    def _busy(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def _read(self, metrics: str) -> tuple[int, float, float, int]:
        """Waiting pods; p99 and mean of the latency in milliseconds, and the number of pods, since the last time."""
        queue, total = 0, 0.0
        buckets: dict[float, float] = {}
        for family in text_string_to_metric_families(metrics):
            for each in family.samples:
                if each.name == "scheduler_pending_pods":
                    queue += int(each.value)
                elif each.name == f"{_LATENCY}_bucket":
                    edge = float(each.labels["le"])
                    buckets[edge] = buckets.get(edge, 0.0) + each.value
                elif each.name == f"{_LATENCY}_sum":
                    total += each.value
        new = {edge: count - self._buckets.get(edge, 0.0) for edge, count in buckets.items()}
        bound = new.get(math.inf, 0.0)
        p99 = next((edge for edge in sorted(new) if new[edge] >= 0.99 * bound), math.nan)
        mean = (total - self._sum) / bound if bound else math.nan
        self._buckets, self._sum = buckets, total
        return queue, 1000 * p99, 1000 * mean, int(bound)


async def _text(session: aiohttp.ClientSession, path: str) -> str:
    async with session.get(path, ssl=False) as answer:
        answer.raise_for_status()
        return await answer.text()


# ---------------------------------------------------------------- what happens meanwhile


class Churn:
    """What comes and goes in a cluster of ``nodes`` nodes."""

    def __init__(self, cluster: Cluster, *, nodes: int, rate: int) -> None:
        """``rate``: pods a second."""
        self._cluster: Final = cluster
        self._nodes: Final = nodes
        self._rate: Final = rate
        self._made: Final[deque[tuple[float, list[workload.Object]]]] = deque()
        self._passing: list[workload.Object] = []
        self._second = 0
        self._reported = 0.0

    async def prepare(self) -> None:
        """The nodes and priorities of the pods that preempt."""
        cluster = self._cluster
        await cluster.create(workload.surroundings("preemption", nodes=0, pods=0))
        for number in range(CONTESTED):
            contested = workload.node(self._nodes + number, zones=3, shape="preemption", padding=0)
            await cluster.create([contested])

    async def step(self) -> None:
        """One second of it."""
        self._second += 1
        first = 1 + self._second * self._rate
        pods = [_pod(number) for number in range(first, first + self._rate)]
        self._made.append((time.monotonic() + LIFETIME, pods))
        await self._cluster.create(pods)
        while self._made and self._made[0][0] < time.monotonic():
            await self._remove(self._made.popleft()[1])
        await self._remove(self._passing)
        self._passing = list(workload.churned(self._second))
        await self._cluster.create(self._passing)
        if self._second % 2 == 0:
            await self._contest(self._second // 2)
        await self._report()

    async def _remove(self, made: Sequence[workload.Object]) -> None:
        await asyncio.gather(*(self._cluster.remove(each) for each in made))

    async def _contest(self, turn: int) -> None:
        """A pod that fills a node; on the next one, which the last turn has filled, a pod that preempts it."""
        for node, name in ((turn, "low"), (turn - 1, "high")):
            number = self._nodes + node % CONTESTED
            pod = workload.measured_pod(number, "preemption")
            pod["metadata"]["name"] = f"{name}-{number}"
            pod["spec"]["priorityClassName"] = f"bench-{name}"
            pod["spec"]["terminationGracePeriodSeconds"] = 0
            pod["spec"]["nodeSelector"] = {workload.HOST: f"node-{number:05d}"}
            await self._cluster.remove(pod)
            await self._cluster.create([pod])
        number = self._nodes + (turn - 2) % CONTESTED
        await self._cluster.delete(f"{PODS}/high-{number}")

    async def _report(self) -> None:
        """Some nodes say that they are still there, one after the other, as kubelets do."""
        self._reported += self._nodes / REPORTS
        said = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": said}
        while self._reported >= 1:
            self._reported -= 1
            number = (self._second * 7919 + int(self._reported)) % self._nodes
            patch = {"status": {"conditions": [{**ready, "reason": "KubeletReady"}]}}
            await self._cluster.patch(f"{NODES}/node-{number:05d}/status", patch)


def _pod(number: int) -> workload.Object:
    pod = workload.measured_pod(number, "mixed")
    if number % EXTENDED_EVERY == 0:
        pod["spec"]["schedulerName"] = EXTENDED
    return pod


# ---------------------------------------------------------------- the run


@contextlib.asynccontextmanager
async def running_place(
    folder: Path, load: Load, *, real: bool
) -> AsyncIterator[tuple[Place, str]]:
    """A cluster with nodes and running pods, and the token of one who may do everything in it."""
    if not real:
        async with embedded_cluster(folder, load) as place:
            yield place, ""
        return
    rotated = ("--audit-log-maxsize=50", "--audit-log-maxbackup=1")
    with RealApiServer(folder, *rotated).running() as server:
        async with connected(str(server.kubeconfig)) as cluster:
            nodes = (
                workload.node(n, zones=load.zones, shape=load.shape, padding=load.padding)
                for n in range(load.nodes)
            )
            await cluster.create(nodes)
            await cluster.create(
                workload.existing_pod(n, nodes=load.nodes, shape=load.shape)
                for n in range(load.existing)
            )
        yield Place(server.kubeconfig, folder), server.token


def configuration(kubeconfig: Path, extender: str) -> str:
    """Two profiles, one of which asks the extender (JSON is YAML)."""
    first = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "profiles": [{"schedulerName": "default-scheduler"}, {"schedulerName": EXTENDED}],
        "extenders": [
            {
                "urlPrefix": extender,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 1,
                "httpTimeout": "2s",
                "nodeCacheCapable": True,
            }
        ],
    }
    second = {
        "apiVersion": "aiokube-scheduler.io/v1alpha1",
        "kind": "AiokubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": extender, "profiles": [EXTENDED]}],
    }
    return f"{json.dumps(first)}\n---\n{json.dumps(second)}"


async def soak(folder: Path, given: Options) -> list[Sample]:
    """The samples, each printed as it comes. Raises ChildFailed, KubeError."""
    load = Load(nodes=given.nodes, existing=given.existing, shape="mixed", pods=1, rate=1.0)
    asked = ["-m", "tests.bench.extender", "--delay=turns", f"--cycle={CYCLE * given.minute}"]
    async with contextlib.AsyncExitStack() as stack:
        place, token = await stack.enter_async_context(running_place(folder, load, real=given.real))
        extender = await stack.enter_async_context(
            child([sys.executable, *asked], log=folder / "extender.log", name="the extender")
        )
        config = folder / "scheduler.yaml"
        config.write_text(configuration(place.kubeconfig, await extender.wait_url()))
        cluster = await stack.enter_async_context(connected(str(place.kubeconfig)))
        churn = Churn(cluster, nodes=given.nodes, rate=given.rate)
        await churn.prepare()
        port = stack.enter_context(reserved_port())
        flags = ("--bind-address=127.0.0.1", f"--secure-port={port}")
        running = await stack.enter_async_context(
            scheduler(config, *flags, log=folder / "scheduler.log")
        )
        await stack.enter_async_context(watched(running, extender))
        probe = Probe(running, f"https://127.0.0.1:{port}", token)
        await probe.ready()
        return await _sampled(churn, probe, given)


async def _sampled(churn: Churn, probe: Probe, given: Options) -> list[Sample]:
    samples: list[Sample] = []
    end, minute = time.monotonic() + 3600 * given.hours, given.minute
    while time.monotonic() < end:
        while not QUIET[0] <= time.time() / minute % 1 < QUIET[1]:
            before = time.monotonic()
            await churn.step()
            await asyncio.sleep(max(0.0, before + minute / 60 - time.monotonic()))
        left = (QUIET[1] - time.time() / minute % 1) * minute
        sample = await probe.sample(left / (_READS + 1))
        if len(samples) % 20 == 0:
            click.echo(HEADER)
        samples.append(sample)
        click.echo(sample)
        while QUIET[0] <= time.time() / minute % 1 < QUIET[1]:  # a sleep may end a little too soon
            await asyncio.sleep(max(0.01, (QUIET[1] - time.time() / minute % 1) * minute))
    return samples


@contextlib.contextmanager
def _folder(logs: Path | None) -> Iterator[Path]:
    if logs is None:
        with tempfile.TemporaryDirectory(prefix="aiokube-scheduler-soak-") as temporary:
            yield Path(temporary)
    else:
        logs.mkdir(parents=True)
        yield logs.absolute()


@click.command(context_settings={"show_default": True})
@click.option("--hours", default=2.0, help="How long.")
@click.option("--nodes", default=5000)
@click.option("--existing", default=10_000, help="Pods that run all the time.")
@click.option("--rate", default=20, help="Pods a second.")
@click.option(
    "--settle",
    default=10.0,
    metavar="MINUTES",
    help="Nothing may grow after them. Histories of 4096 pods are kept, and events for seven minutes.",
)
@click.option("--minute", default=60.0, metavar="SECONDS", help="Shorter ones are for a try.")
@click.option("--real", is_flag=True, help="etcd and kube-apiserver of $KUBEBUILDER_ASSETS.")
@click.option("--logs", type=click.Path(path_type=Path), help="Keep logs in this new folder.")
def main(logs: Path | None, **options: Any) -> None:
    """Let a cluster churn, and fail if the scheduler grows."""
    given = Options(**options)
    with explained(ChildFailed, KubeError, aiohttp.ClientError), _folder(logs) as folder:
        samples = run_loop(interruptible(soak(folder, given)))
        if samples is None:
            raise click.Abort
        found = growth(samples, given.settle)
        if "Traceback" in (folder / "scheduler.log").read_text(errors="replace"):
            found.append("the scheduler logged a traceback")
    cycles = kept(samples)
    if cycles and cycles[0].minutes <= given.settle < cycles[-1].minutes:
        click.echo(summary(samples, given.settle))
    if found:
        raise click.ClickException("\n".join(found))


if __name__ == "__main__":
    main()
