"""When there is nothing left to wait for."""

import asyncio

import pytest

from app.sim import EmbeddedCluster
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import PODS
from app.tools.pod_tracker import PodTracker
from app.tools.simulate.groups import SimulatedGroups
from app.tools.simulate.run import QUIET, Quiescence
from tests.shell.tools.simulate.world import pod

REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}


class Scheduler:
    """One whose work tests decide about."""

    busy = True

    def is_idle(self, retrying=0):
        return not self.busy


def settling(cluster, name_of_node, scheduler):
    now = asyncio.get_running_loop().time
    return Quiescence(
        cluster, PodTracker(cluster, now, name_of_node), SimulatedGroups(cluster), scheduler, now
    )


pytestmark = pytest.mark.looptime


async def test_all_is_decided_idle_and_quiet():
    cluster, looks, scheduler = EmbeddedCluster(), [], Scheduler()
    waits_for = settling(cluster, lambda _pod: "w", scheduler)
    waiting = asyncio.create_task(waits_for.wait(looks.append))

    async def waits() -> bool:
        await asyncio.sleep(10 * QUIET)
        return not waiting.done()

    cluster.apply(PODS, pod("p"))
    cluster.apply(PODS, pod("q", nodeName="n"))
    scheduler.busy = False
    assert await waits(), "a pod is not decided about"
    scheduler.busy = True
    cluster.apply(PODS, pod("p") | {"status": {"conditions": [REFUSED]}})
    assert await waits(), "the scheduler is busy"
    scheduler.busy = False
    for number in range(4):  # longer than it has to be quiet
        cluster.apply(PODS, pod(f"r-{number}", nodeName="n"))
        await asyncio.sleep(QUIET / 2)
    assert not waiting.done(), "something is written"
    await asyncio.wait_for(waiting, 2 * QUIET)
    assert looks[-1] == 5


async def test_pods_of_groups_are_not_counted_while_others_get_nodes(monkeypatch):
    """Each count looks at all pods of the cluster."""
    cluster, counts, scheduler = EmbeddedCluster(), [], Scheduler()
    scheduler.busy = False
    held = SimulatedGroups.held
    monkeypatch.setattr(SimulatedGroups, "held", lambda self: counts.append(1) or held(self))
    waits_for = settling(cluster, lambda _pod: "w", scheduler)
    waiting = asyncio.create_task(waits_for.wait(lambda _bound: None))
    cluster.apply(PODS, pod("p"))
    for number in range(100):
        cluster.apply(PODS, pod(f"q-{number}", nodeName="n"))
        await asyncio.sleep(QUIET / 10)
    assert not counts
    await asyncio.sleep(QUIET)
    assert counts
    cluster.apply(PODS, pod("p") | {"status": {"conditions": [REFUSED]}})
    await asyncio.wait_for(waiting, 2 * QUIET)


async def test_pods_on_their_way_out_are_waited_for():
    cluster, scheduler = EmbeddedCluster(), Scheduler()
    scheduler.busy = False
    waits_for = settling(cluster, lambda _pod: None, scheduler)
    for name, held in {"leaving": [], "held": ["example.com/hold"]}.items():
        value = pod(name, nodeName="n")
        value["metadata"]["finalizers"] = held
        cluster.apply(PODS, value)
        delete(cluster.api, PODS, "shop", name, DeleteOptions(grace_period_seconds=30))
    waiting = asyncio.create_task(waits_for.wait(lambda _bound: None))
    await asyncio.sleep(10 * QUIET)
    assert not waiting.done()
    delete(cluster.api, PODS, "shop", "leaving", DeleteOptions(grace_period_seconds=0))
    await asyncio.wait_for(waiting, 2 * QUIET)
    assert cluster.api.find(PODS, "shop", "held") is not None
