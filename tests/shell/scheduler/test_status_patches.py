"""Status patches: one after another for a pod, out of the way of bindings, and never behind one."""

import asyncio
import math
from contextlib import asynccontextmanager

import msgspec
import pytest

from app.framework.testing import make_pod
from app.kube.errors import NotFound, ServerUnavailable
from app.model.budget import ByteBudget
from app.model.objects import PodCondition
from app.runtime.tasks import Spawn, spawn
from app.scheduler import status_patches
from app.scheduler.status_patches import (
    HELD_BACK_SECONDS,
    LAST_SECONDS,
    LOOK,
    StatusPatch,
    StatusPatcher,
)

pytestmark = pytest.mark.looptime

NOW = 1_790_000_000.0
#: How long the server takes for a patch, in seconds.
LATENCY = 0.01

UNFIT = StatusPatch("Unschedulable", "0/1 nodes are available")
NOMINATED = StatusPatch("Unschedulable", "0/1 nodes are available", "node-1")


class Server:
    """Notes each patch with the time when it was done; ``faults`` by pod name are raised instead, ``hanging`` are never
    done.
    """

    def __init__(self):
        self.written, self.faults = [], {}
        self.under_way, self.hanging = set(), set()
        #: The pods that were given with the patches in ``written``.
        self.pods = []

    async def patch_pod_status(self, pod, *, condition, nominated_node_name, now):
        assert pod.uid not in self.under_way, "two patches of one pod at the same time"
        assert now == NOW
        self.under_way.add(pod.uid)
        try:
            await asyncio.sleep(math.inf if pod.name in self.hanging else LATENCY)
        finally:
            self.under_way.remove(pod.uid)
        if pod.name in self.faults:
            raise self.faults[pod.name]
        reason, message = "", ""
        if condition is not None:
            assert condition[:2] == ("PodScheduled", "False")
            _type, _status, reason, message = condition
        patch = StatusPatch(reason, message, nominated_node_name)
        self.pods.append(pod)
        self.written.append((pod.name, patch, asyncio.get_running_loop().time()))

    def names(self):
        return [name for name, _patch, _time in self.written]


class World:
    """A patcher, its server, and a backlog to be turned on and off."""

    def __init__(self, start: Spawn, **options):
        self.server, self.backlog = Server(), False
        self.patcher = StatusPatcher(self.server, start, backlog=lambda: self.backlog, **options)

    def put(self, name, patch=UNFIT):
        self.patcher.put(make_pod(name), patch, NOW)


@asynccontextmanager
async def world(**options):
    async with asyncio.TaskGroup() as group:
        yield World(lambda coroutine, name: spawn(group, coroutine, name=name), **options)


async def test_a_patch_is_written_at_once_and_one_that_changes_nothing_is_not():
    async with world() as w:
        w.put("a")
        w.put("same", StatusPatch(nominated_node=""))
        assert len(w.patcher) == 1
        await w.patcher.finish()
    assert w.server.written == [("a", UNFIT, LATENCY)]
    assert len(w.patcher) == 0


async def test_patches_of_one_pod_follow_each_other_and_those_that_wait_become_one():
    async with world() as w:
        w.put("a")
        await asyncio.sleep(0)
        w.put("a", StatusPatch("Unschedulable", "another reason"))
        w.put("a", StatusPatch(nominated_node="node-2"))
        await w.patcher.finish()
    both = StatusPatch("Unschedulable", "another reason", "node-2")
    assert w.server.written == [("a", UNFIT, LATENCY), ("a", both, 2 * LATENCY)]


async def test_only_so_many_are_under_way():
    async with world(workers=2) as w:
        for number in range(5):
            w.put(f"p{number}")
        await w.patcher.finish()
    times = [time for _name, _patch, time in w.server.written]
    assert times == pytest.approx([LATENCY, LATENCY, 2 * LATENCY, 2 * LATENCY, 3 * LATENCY])


async def test_a_nomination_waits_for_the_end_of_the_backlog():
    async with world() as w:
        w.backlog = True
        w.put("preemptor", NOMINATED)
        w.put("other", UNFIT)
        await asyncio.sleep(HELD_BACK_SECONDS / 2)
        assert w.server.names() == ["other"]
        w.backlog = False
        await asyncio.sleep(LOOK + LATENCY)
        assert w.server.names() == ["other", "preemptor"]


async def test_a_nomination_waits_only_so_long():
    async with world() as w:
        w.backlog = True
        w.put("first", NOMINATED)
        await asyncio.sleep(HELD_BACK_SECONDS / 2)
        w.put("second", NOMINATED)
        await asyncio.sleep(HELD_BACK_SECONDS / 2 + 2 * LOOK)
        assert w.server.names() == ["first"]
        assert asyncio.get_running_loop().time() < 1.5, "people and tests look for the nomination"
        await asyncio.sleep(HELD_BACK_SECONDS / 2)
        assert w.server.names() == ["first", "second"]


async def test_a_nomination_that_waits_takes_up_what_is_said_later():
    async with world() as w:
        w.backlog = True
        w.put("a", NOMINATED)
        w.put("a", StatusPatch(nominated_node=""))
        await w.patcher.finish()
    cleared = StatusPatch(NOMINATED.reason, NOMINATED.message, "")
    assert w.server.written == [("a", cleared, LATENCY)]


async def test_at_the_end_nothing_gives_way():
    async with world() as w:
        w.backlog = True
        w.put("a", NOMINATED)
        finished = asyncio.ensure_future(w.patcher.finish())
        await asyncio.sleep(0)
        w.put("b", NOMINATED)
        await finished
        assert w.server.names() == ["a", "b"]
        assert asyncio.get_running_loop().time() < LOOK


async def test_nothing_is_written_about_a_pod_that_is_being_bound():
    async with world(workers=1) as w:
        w.backlog = True
        w.put("under way")
        w.put("waits for a worker")
        w.put("gives way", NOMINATED)
        await asyncio.sleep(0)
        for name in ("gives way", "waits for a worker"):
            await w.patcher.withdraw(make_pod(name))
        assert w.server.names() == []
        await w.patcher.withdraw(make_pod("under way"))
        assert w.server.names() == ["under way"], "the binding must come behind it"
        await asyncio.sleep(2 * HELD_BACK_SECONDS)
        await w.patcher.finish()
    assert w.server.names() == ["under way"]


async def test_a_patch_that_hangs_holds_up_a_binding_only_so_long(caplog):
    async with world(workers=1) as w:
        w.server.hanging.add("hangs")
        w.put("hangs")
        await asyncio.sleep(60)
        w.put("hangs", NOMINATED)
        w.put("other")
        await w.patcher.withdraw(make_pod("hangs"))
        assert asyncio.get_running_loop().time() == pytest.approx(60 + LAST_SECONDS)
        assert make_pod("hangs").uid not in w.server.under_way
        await w.patcher.finish()
    assert w.server.names() == ["other"]
    assert "Pod default/hangs is bound before its status could be written" in caplog.text


@pytest.mark.parametrize("fault", [NotFound("gone"), ServerUnavailable("busy")])
async def test_a_patch_that_fails_holds_up_nobody(fault):
    async with world(workers=1) as w:
        w.server.faults["bad"] = fault
        w.put("bad")
        w.put("good")
        await w.patcher.withdraw(make_pod("bad"))
        await w.patcher.finish()
    assert w.server.names() == ["good"]


def successor(name):
    """Another pod of this name."""
    return msgspec.structs.replace(make_pod(name), uid="another")


async def test_a_successor_of_the_same_name_takes_nothing_over():
    """The pods of a StatefulSet come back under their names."""
    async with world() as w:
        w.backlog = True
        w.put("a", NOMINATED)
        w.patcher.put(successor("a"), UNFIT, NOW)
        await w.patcher.finish()
    assert w.server.written == [("a", UNFIT, LATENCY)]


async def test_a_binding_drops_what_waits_for_an_earlier_pod_of_its_name():
    async with world() as w:
        w.backlog = True
        w.put("a", NOMINATED)
        await w.patcher.withdraw(successor("a"))
        await w.patcher.finish()
    assert w.server.written == []


async def test_a_binding_does_not_wait_for_the_patch_of_an_earlier_pod_of_its_name():
    async with world() as w:
        w.server.hanging.add("a")
        w.put("a")
        await asyncio.sleep(0)
        await w.patcher.withdraw(successor("a"))
        assert asyncio.get_running_loop().time() == 0
        await w.patcher.withdraw(make_pod("a"))
        assert asyncio.get_running_loop().time() == LAST_SECONDS


async def test_a_replaced_patch_that_is_not_needed_any_more_leaves_the_patcher_idle():
    async with world() as w:
        w.backlog = True
        w.put("a", NOMINATED)
        w.patcher.put(successor("a"), StatusPatch(nominated_node=""), NOW)
        assert len(w.patcher) == 0
        await w.patcher.finish()
    assert w.server.written == []


async def test_messages_that_wait_have_a_limit_of_bytes():
    budget = ByteBudget(5000)
    async with world(workers=1, budget=budget) as w:
        for number in range(9):
            w.put(f"p{number}", StatusPatch("Unschedulable", "x" * 1000))
            assert budget.used <= budget.limit
        w.put("p2", StatusPatch("Unschedulable", "x" * 900))
        await w.patcher.finish()
        assert w.patcher.dropped == 6
    assert w.server.names() == ["p0", "p1", "p2"]
    assert budget.used == 0


async def test_a_patch_that_waits_is_kept_if_there_is_no_room_for_a_newer_one():
    budget = ByteBudget(2000)
    async with world(workers=1, budget=budget) as w:
        w.put("first")
        w.put("p", NOMINATED)
        w.put("p", StatusPatch("Unschedulable", "x" * 3000, "node-2"))
        await w.patcher.finish()
        assert w.patcher.dropped == 1
    assert w.server.names() == ["first", "p"]
    assert w.server.written[1][1] == StatusPatch(UNFIT.reason, UNFIT.message, "node-2")
    assert budget.used == 0


async def test_patches_that_wait_are_bounded(monkeypatch):
    monkeypatch.setattr(status_patches, "MAX_PATCHES", 3)
    async with world(workers=1) as w:
        w.backlog = True
        w.put("held", NOMINATED)
        for number in range(9):
            w.put(f"p{number}")
        w.put("held", StatusPatch("Unschedulable", "later"))
        await w.patcher.finish()
        assert w.patcher.dropped == 7
    assert w.server.names() == ["p0", "p1", "held"]


def waiting(version, message="0/1 nodes are available", node=""):
    """A pod as the watch shows it in some version."""
    condition = PodCondition("PodScheduled", "False", "Unschedulable", message, "then")
    return msgspec.structs.replace(
        make_pod("a"),
        resource_version=version,
        conditions=(condition,),
        nominated_node_name=node,
    )


OTHER = StatusPatch("Unschedulable", "other", "node-1")
FIRST = StatusPatch("Unschedulable", "0/1 nodes are available", "")


@pytest.mark.parametrize("pause", [0.0, 2 * LATENCY])
async def test_a_status_that_was_replaced_is_written_again_before_the_watch_shows_the_other(pause):
    async with world() as w:
        w.patcher.put(waiting("1"), OTHER, NOW)
        await asyncio.sleep(pause)
        w.patcher.put(waiting("1"), FIRST, NOW)
        await asyncio.sleep(3 * LATENCY)
        w.patcher.put(waiting("1"), FIRST, NOW)
    assert [patch for _name, patch, _time in w.server.written] == [OTHER, FIRST]
    [first, second] = w.server.pods
    assert first.condition("PodScheduled").message == "0/1 nodes are available"
    assert second.condition("PodScheduled") == msgspec.structs.replace(
        first.condition("PodScheduled"), message="other"
    )
    assert second.nominated_node_name == "node-1"


async def test_a_status_that_the_watch_shows_counts_more_than_what_was_written():
    async with world() as w:
        w.patcher.put(waiting("1"), OTHER, NOW)
        await asyncio.sleep(2 * LATENCY)
        w.patcher.put(waiting("2"), FIRST, NOW)
        w.patcher.put(waiting("3"), OTHER, NOW)
    assert [patch for _name, patch, _time in w.server.written] == [OTHER, OTHER]


async def test_only_so_many_written_patches_are_remembered(monkeypatch):
    monkeypatch.setattr(status_patches, "MAX_WRITTEN", 2)
    async with world() as w:
        for name in ("a", "b", "c"):
            w.put(name)
            await asyncio.sleep(2 * LATENCY)
        for name in ("c", "b", "a"):
            w.put(name)
        w.put("long", StatusPatch("Unschedulable", "x" * 5000))
        await asyncio.sleep(2 * LATENCY)
        w.put("long", StatusPatch("Unschedulable", "x" * 5000))
    assert w.server.names() == ["a", "b", "c", "a", "long", "long"]


async def test_what_was_written_is_forgotten_when_the_watch_shows_the_pod():
    async with world() as w:
        w.patcher.put(waiting("1"), OTHER, NOW)
        await asyncio.sleep(2 * LATENCY)
        w.patcher.shown(waiting("1"))
        w.patcher.put(waiting("1"), OTHER, NOW)
    assert [patch for _name, patch, _time in w.server.written] == [OTHER, OTHER]


async def test_patches_before_the_watch_shows_any_add_up():
    async with world() as w:
        w.patcher.put(waiting("1"), StatusPatch("Unschedulable", "other"), NOW)
        await asyncio.sleep(2 * LATENCY)
        w.patcher.put(waiting("1"), StatusPatch(nominated_node="node-1"), NOW)
        await asyncio.sleep(2 * LATENCY)
        w.patcher.put(waiting("1"), OTHER, NOW)
    assert len(w.server.written) == 2
