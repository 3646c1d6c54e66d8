"""The scheduler of a simulation, in this process and in leaping time."""

import asyncio

import pytest

from app.kube.errors import NotFound
from app.model.features import RECORDED
from app.runtime.clock import SystemClock
from app.runtime.leaping import LeapingLoop, LoopClock
from app.settings.load import Settings
from app.sim import ClusterOptions, EmbeddedCluster, KubeletOptions
from app.sim.resources.kinds import NODES, PODS
from app.tools.in_process import InProcess
from app.tools.simulate.scheduling import scheduling
from tests.shell.tools.simulate.world import node, pod

QUIET = ClusterOptions(listen=False, kubelets=KubeletOptions(start_delay=0.0))


def run(coroutine):
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(coroutine)


async def placed(*objects):
    """Where pods go, and for how long the scheduler was busy in loop time."""
    async with EmbeddedCluster(QUIET) as cluster:
        assert cluster.port == 0
        cluster.apply(NODES, node("a"))
        began = asyncio.get_running_loop().time()
        clock = LoopClock()
        transport = InProcess(cluster)
        async with scheduling(Settings(), transport, clock, features=RECORDED) as scheduler:
            assert scheduler.is_idle()
            for value in objects:
                cluster.apply(PODS, value)
            while scheduler.is_idle():
                await asyncio.sleep(0)
            while not scheduler.is_idle():
                await asyncio.sleep(0.1)
        assert not [task for task in asyncio.all_tasks() if "watch" in task.get_name()]
        seconds = asyncio.get_running_loop().time() - began
        records = cluster.api.store[PODS.storage].ordered()
        return {r.name: r.value["spec"].get("nodeName") for r in records}, seconds


def test_pods_are_bound_without_a_server():
    nodes, _ = run(placed(pod("p"), pod("q", cpu="64")))
    assert nodes == {"p": "a", "q": None}


def test_time_leaps():
    real = SystemClock().monotonic
    began = real()

    async def sleep():
        loop = asyncio.get_running_loop()
        clock, before = LoopClock(), loop.time()
        at = clock.monotonic(), clock.wall(), clock.steady()
        await asyncio.sleep(3600)
        assert loop.time() - before >= 3600
        for now, then in zip((clock.monotonic(), clock.wall(), clock.steady()), at, strict=True):
            assert now - then >= 3600

    run(sleep())
    assert real() - began < 3600


async def requests():
    async with EmbeddedCluster(QUIET) as cluster:
        client = InProcess(cluster)
        assert b"NodeList" in (await client.get("/api/v1/nodes")).body
        assert b"resources" in (await client.get("/api/v1")).body
        for path in ("/api/v1/nodes/none", "/apis/none.example.com/v1"):
            with pytest.raises(NotFound):
                await client.get(path)
        cluster.apply(NODES, node("a"))
        params = {"watch": "true", "resourceVersion": "0"}
        async with client.stream("/api/v1/nodes", params=params, read_timeout=1) as lines:
            assert b"ADDED" in await anext(lines)
        assert not cluster.watcher_count
        cluster.compact()
        params["resourceVersion"] = "1"
        async with client.stream("/api/v1/nodes", params=params, read_timeout=1) as lines:
            assert b"410" in await anext(lines)
        with pytest.raises(NotFound):
            async with client.stream("/api/v1/none", params=params, read_timeout=1):
                pass


def test_requests_and_watches_of_this_process():
    run(requests())
