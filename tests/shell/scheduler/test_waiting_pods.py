"""Thousands of pods that fit nowhere: they cost nothing while they wait, and a node that helps some of them is used at
once.
"""

import asyncio

import pytest

from app.framework.testing import make_node, make_pod
from app.model.objects import Node
from app.state.queue.queued_pod import Place
from tests.shell.scheduler.world import running

pytestmark = pytest.mark.looptime

MANY = 1500
SMALL = {"allocatable": {"cpu": "1", "memory": "16Gi", "pods": "110"}}
LARGE = {"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}}


def waiting(number):
    """A pod of one of ten kinds that want 2 to 11 CPUs."""
    requests = {"cpu": str(2 + number % 10)}
    containers = [{"name": "main", "resources": {"requests": requests}}]
    return make_pod(f"p{number}", spec={"containers": containers})


class Counted:
    """Counts the calls of a method of the queue."""

    def __init__(self, monkeypatch, queue, name):
        self.times, method = 0, getattr(queue, name)

        def counted(*args):
            self.times += 1
            return method(*args)

        monkeypatch.setattr(queue, name, counted)


async def test_waiting_costs_nothing_and_a_node_is_used_at_once(monkeypatch):
    async with running() as world:
        queue = world.state.queue
        world.change(Node, None, make_node("small", status=SMALL))
        for number in range(MANY):
            world.add(waiting(number))
        await world.settle()
        assert queue.count(Place.UNSCHEDULABLE) == MANY
        scheduling = asyncio.ensure_future(world.lead())
        await asyncio.sleep(1)
        pops, looks = (Counted(monkeypatch, queue, n) for n in ("pop", "next_flush_time"))
        await asyncio.sleep(60)
        assert (pops.times, looks.times) == (0, 0)

        before = world.clock.monotonic()
        world.change(Node, None, make_node("large", status=LARGE))
        while not world.state.cache.statistics().assumed_pods:
            await asyncio.sleep(0)
        assert world.clock.monotonic() - before < 1
        assert queue.count(Place.UNSCHEDULABLE) > MANY * 0.6, "those it cannot help wait on"
        scheduling.cancel()
        await asyncio.wait([scheduling])
