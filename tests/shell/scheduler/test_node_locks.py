"""Bindings through an extender that locks the node for each pod for two seconds."""

import asyncio
import types
from collections import Counter, defaultdict

import pytest

from app.model.objects import Node
from tests.shell.scheduler.extender_world import World, scripted
from tests.shell.scheduler.test_extender_cycle import until
from tests.shell.scheduler.test_gangs_with_extenders import member, one_extender
from tests.shell.scheduler.test_group_cycle import gang
from tests.shell.scheduler.world import running

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


async def test_behind_a_lock_that_does_not_end_pods_do_not_wait_one_after_the_other():
    locking = Locking()
    async with World(scripted(locking, bind_verb="bind")).running() as world:
        locking.world, locking.until = world, {"n0": 1e9}
        world.nodes("n0")
        for number in range(4):
            world.pod(f"p{number}")
        await asyncio.sleep(65)
        assert Counter(name for name, _, _ in world.told) == {f"p{n}": 1 for n in range(4)}
        locking.until.clear()
        await until(lambda: len(world.bound) == 4, seconds=20)
    assert not world.binder._extenders.locks._turns


async def test_a_pod_whose_node_goes_while_it_is_locked_is_bound_elsewhere():
    locking = Locking()
    async with World(scripted(locking, bind_verb="bind")).running() as world:
        locking.world, locking.until = world, {"n0": 1e9}
        world.nodes("n0")
        world.pod("p")
        await asyncio.sleep(5)
        world.apply(Node, world.state.table.nodes[0], None)
        world.nodes("n1")
        await until(lambda: world.bound == {"p": "n1"}, seconds=10)


async def test_a_pod_that_is_deleted_while_its_node_is_locked():
    locking = Locking()
    async with World(scripted(locking, bind_verb="bind")).running() as world:
        locking.world, locking.until = world, {"n0": 1e9}
        world.nodes("n0")
        pod = world.pod("p")
        await asyncio.sleep(5)
        world.gone(pod)
        await asyncio.sleep(5)
        asked = locking.refused
        await asyncio.sleep(60)
        assert locking.refused == asked
        assert not world.binder.cycles.count


async def test_a_pod_that_is_bound_while_its_node_is_locked():
    locking = Locking()
    async with World(scripted(locking, bind_verb="bind")).running() as world:
        locking.world, locking.until = world, {"n0": 1e9}
        world.nodes("n0")
        pod = world.pod("p")
        await asyncio.sleep(5)
        world.bound["p"] = "n0"
        world.confirm(pod)
        await asyncio.sleep(5)
        assert world.told == [("p", "Scheduled", "n0")]


async def test_gangs_complete_at_an_extender_that_locks():
    """100 gangs of 8 pods on 40 nodes, 20 pods on each: none stays half running, and no binding fails."""
    locking, times = Locking(), defaultdict(list)
    locking.world = types.SimpleNamespace(bound={})

    def reply(verb, request):
        if verb == "prioritize":
            return [{"Host": name, "Score": 0} for name in request["NodeNames"]]
        answer = locking(verb, request)
        if verb == "bind" and not answer["Error"]:
            pod = request["PodName"]
            times[pod.partition("-")[0]].append(asyncio.get_running_loop().time())
        return answer

    make, _ = one_extender(reply, bind_verb="bind")
    nodes, failed = [f"n{number}" for number in range(40)], []
    async with running(*nodes, extenders=make) as world:
        on = world.scheduler.parts.sink
        world.scheduler.binder._emit = lambda event: (failed.append(event), on(event))
        for number in range(100):
            gang(world, 8, f"g{number}")
            for each in range(8):
                world.add(member(f"g{number}-{each}", f"g{number}", cpu="10m"))
        await world.run_for(90)
    assert Counter(map(len, times.values())) == {8: 100}
    assert max(max(each) - min(each) for each in times.values()) < 20 * HELD * 1.3
    assert not [each for each in failed if getattr(each, "status", "Success") != "Success"]
