"""Preemptions about which extenders are asked wait for a slot: what they find is as things are then."""

import asyncio
import json

import msgspec
import pytest

from app.framework.testing import make_pod
from app.model.pod import Pod
from tests.shell.extender.fakes import extender
from tests.shell.scheduler.test_group_cycle import bindings, evictions
from tests.shell.scheduler.world import CONFIG, running

pytestmark = pytest.mark.looptime

SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
}


def pod(name, cpu, priority, app="", **spec):
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    labels = {"app": app} if app else {}
    made = make_pod(
        name, labels=labels, spec={"containers": containers, "priority": priority, **spec}
    )
    raw = {"metadata": {"name": name, "namespace": "default", "uid": made.uid, "labels": labels}}
    return msgspec.structs.replace(made, raw=json.dumps(raw).encode())


def agreeing(asked):
    """An extender that agrees with all victims after a second."""

    def reply(_verb, request):
        asked.append(request["Pod"]["metadata"]["name"])

        async def later():
            await asyncio.sleep(1.0)
            return {"NodeNameToMetaVictims": request["NodeNameToMetaVictims"]}

        return later()

    only_preempts = {"filter_verb": "", "prioritize_verb": "", "bind_verb": ""}
    return lambda sink: [extender(reply, sink=sink, **only_preempts)]


def bound(world, one, node):
    world.change(Pod, None, one.on(node))
    return one.on(node)


async def scene(world, act):
    """Preemptors fill both slots for a second, in which ``act`` is called; a third one waits for a slot."""
    for number in range(2):
        world.add_nodes(f"other-{number}", labels={"zone": f"of-{number}", "for": str(number)})
        bound(world, pod(f"theirs-{number}", "4", 0), f"other-{number}")
    world.add_nodes("a", labels={"zone": "a", "for": "web"})
    there = [
        bound(world, pod("old", "250m", 6, "web"), "a"),
        bound(world, pod("keep", "250m", 5, "web"), "a"),
        bound(world, pod("filler", "3500m", 0), "a"),
    ]
    world.add_nodes("b", labels={"zone": "b", "for": "web"})
    bound(world, pod("there", "250m", 70, "web"), "b")
    bound(world, pod("costly", "3500m", 9), "b")
    for number in range(2):
        world.add(pod(f"busy-{number}", "4", 100, nodeSelector={"for": str(number)}))
    world.add(
        pod("new", "3", 50, "web", nodeSelector={"for": "web"}, topologySpreadConstraints=[SPREAD])
    )
    leading = asyncio.ensure_future(world.lead())
    await asyncio.sleep(0.5)
    assert evictions(world) == []
    act(*there)
    await asyncio.sleep(4)
    leading.cancel()
    await asyncio.wait([leading])


async def test_a_victim_that_is_ending_meanwhile_does_not_count_for_spreading():
    asked = []
    async with running(extenders=agreeing(asked), config=f"{CONFIG}parallelism: 2\n") as world:

        def act(old, *_others):
            world.change(
                Pod, old, msgspec.structs.replace(old, deletion_timestamp="2026-01-01T00:00:00Z")
            )

        await scene(world, act)
        assert asked == ["busy-0", "busy-1", "new"]
        assert set(evictions(world)) == {"theirs-0", "theirs-1", "filler"}


async def test_a_pod_that_fits_meanwhile_evicts_nobody():
    asked = []
    async with running(extenders=agreeing(asked), config=f"{CONFIG}parallelism: 2\n") as world:

        def act(old, _keep, filler):
            for one in (old, filler):
                world.change(Pod, one, None)

        await scene(world, act)
        assert asked == ["busy-0", "busy-1"]
        assert set(evictions(world)) == {"theirs-0", "theirs-1"}
        assert bindings(world)["new"] == "a"
