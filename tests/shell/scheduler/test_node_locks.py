"""Bindings through an extender that locks the node for each pod for two seconds."""

import asyncio

import pytest

from tests.shell.scheduler.extender_world import World, scripted
from tests.shell.scheduler.test_extender_cycle import until

pytestmark = pytest.mark.looptime
HELD = 2.0


class Locking:
    """Says what HAMi says; ``refused`` counts that."""

    def __init__(self):
        self.until, self.refused = {}, 0

    def __call__(self, verb, request):
        if verb == "filter":
            return {"NodeNames": request["NodeNames"]}
        now, node = asyncio.get_running_loop().time(), request["Node"]
        if now < self.until.get(node, -1.0):
            self.refused += 1
            return {"Error": f"node {node} has been locked within 5 minutes"}
        self.until[node] = now + HELD
        self.world.bound[request["PodName"]] = node
        return {"Error": ""}


async def play(nodes, pods=40):
    """The world after all pods are bound, the extender, and how long it took."""
    locking = Locking()
    async with World(scripted(locking, bind_verb="bind")).running() as world:
        locking.world = world
        world.nodes(*(f"n{number}" for number in range(nodes)), cpu="99")
        began = asyncio.get_running_loop().time()
        for number in range(pods):
            world.pod(f"p{number}", cpu=str(99 * nodes // pods))
        await until(lambda: len(world.bound) == pods, seconds=300)
        seconds = asyncio.get_running_loop().time() - began
    return world, locking, seconds


async def test_pods_on_one_node_follow_one_another_without_backoff():
    world, locking, seconds = await play(1)
    assert seconds <= 1.1 * 40 * HELD
    assert {reason for _, reason, _ in world.told} == {"Scheduled"}
    assert locking.refused < 4 * 40


async def test_other_nodes_go_on():
    world, _, seconds = await play(20)
    assert seconds <= 1.3 * 2 * HELD
    assert {reason for _, reason, _ in world.told} == {"Scheduled"}


async def test_a_node_that_stays_locked_is_given_up():
    locking = Locking()
    async with World(scripted(locking, bind_verb="bind")).running() as world:
        locking.world, locking.until = world, {"n0": 1e9}
        world.nodes("n0")
        world.pod("p")
        await asyncio.sleep(50)
        assert not world.told
        await asyncio.sleep(30)
        assert [reason for _, reason, _ in world.told] == ["SchedulerError"]
