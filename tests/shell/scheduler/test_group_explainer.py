"""Explanations of pod groups: who is missing, who waits, and what the last cycles said."""

import asyncio

import msgspec
import pytest

from app.framework.testing import make_pod
from app.model.pod_groups import GROUP_LABEL, GroupKey, LabelledPodGroup
from app.observe.events import GroupAttempted
from app.observe.group_histories import MAX_CYCLES, GroupHistories
from tests.shell.scheduler.test_explainer import cpus, explainer, shown
from tests.shell.scheduler.test_group_cycle import gang, pod
from tests.shell.scheduler.test_group_placements import RACK, placing
from tests.shell.scheduler.test_group_placements import gang as constrained
from tests.shell.scheduler.test_group_placements import pod as member
from tests.shell.scheduler.world import running

KEY = GroupKey(LabelledPodGroup, "default", "gang")
pytestmark = pytest.mark.looptime


async def test_a_pod_whose_group_does_not_exist():
    async with running("a") as world:
        world.add(pod("p0"))
        await world.settle()
        told = explainer(world).explain("default", "p0").group
    assert (told.exists, told.waits_for) == (False, "pod group gang does not exist")
    assert told.members[0].place == "gated"
    assert "waiting for pods's pod group" in told.members[0].message


async def test_a_group_with_too_few_pods():
    async with running("a") as world:
        gang(world, 3)
        world.add(pod("p0"))
        world.add(pod("p1"))
        await world.settle()
        told = explainer(world).explain("default", "p0")
    assert (told.group.min_count, told.group.pods, told.group.scheduled) == (3, 2, 0)
    assert told.group.waits_for == "pod group gang: 2 of 3 pods exist"
    text = shown(told)
    assert "Pod group gang (PodGroup.scheduling.x-k8s.io/v1alpha1)" in text
    assert "3 pods together" in text
    assert "2 of 3 pods exist" in text


async def test_a_group_without_room_says_which_pods_fit_and_why_not_the_others():
    async with running("a") as world:
        gang(world, 5)
        for i in range(5):
            world.add(pod(f"p{i}"))
        await world.settle()
        told = explainer(world).explain("default", "p0")
    lacks = "0/1 nodes are available: 1 Insufficient cpu."
    assert told.group.waits_for.startswith(
        f"pod group gang: room for 4 of 5 pods; another: {lacks}"
    )
    (cycle,) = told.group.cycles
    assert (cycle.result, cycle.placed, cycle.tried) == ("unschedulable", 4, 5)
    assert cycle.because.startswith(lacks)
    messages = [each.message.partition(",")[0] for each in told.group.members]
    assert messages.count("pod group is unschedulable") == 4
    assert told.group.retry_at > 0
    assert "tried again" in shown(told)


async def test_a_group_that_runs_waits_for_nothing():
    async with running("a") as world:
        gang(world, 2)
        for i in range(3):
            world.add(pod(f"p{i}"))
        world.add(pod("alone", group=None))
        await world.settle()
        told = explainer(world).explain("default", "p0")
        assert explainer(world).explain("default", "alone").group is None
    assert (told.group.waits_for, told.group.scheduled) == ("", 3)
    assert {each.node for each in told.group.members} == {"a"}
    assert told.group.cycles[-1].result == "scheduled"


async def test_a_label_without_its_kind_is_named():
    async with running("a") as world:
        world.state.cluster.pod_groups.watch(LabelledPodGroup, lambda: "")
        world.add(pod("p0"))
        await world.settle()
        told = explainer(world).explain("default", "p0")
    assert not told.group.read
    assert told.node == "a"
    assert "are not read here" in shown(told)


async def test_the_same_end_is_counted_and_few_cycles_are_kept():
    async with running("a") as world:
        gang(world, 5)
        for i in range(5):
            world.add(pod(f"p{i}"))
        work = asyncio.ensure_future(world.lead())
        await asyncio.sleep(20)
        work.cancel()
        await asyncio.wait([work])
        (cycle,) = world.telemetry.group_histories.of(KEY)
    assert cycle.repeats > 1
    assert cycle.at > cycle.first_at


def test_histories_are_bounded():
    histories = GroupHistories(lambda: 1.0, max_groups=2)
    for name in ("a", "b", "c"):
        for number in range(MAX_CYCLES + 3):
            key = KEY._replace(name=name)
            histories.on(
                GroupAttempted(key, "p", "error", f"text {number}", 1, 0, "x" * 10_000, 0.1, 0.1)
            )
    assert not histories.of(KEY._replace(name="a"))
    kept = histories.of(KEY._replace(name="c"))
    assert len(kept) == MAX_CYCLES
    assert len(msgspec.json.encode(kept)) < 10_000


async def test_a_large_group_is_shown_in_part():
    async with running("a") as world:
        gang(world, 100)
        for i in range(99):
            world.add(pod(f"p{i}"))
        world.add(make_pod("q", labels={GROUP_LABEL: "gang"}, spec=cpus(1)))
        await world.settle()
        told = explainer(world).explain("default", "p0")
    assert len(told.group.members) == 50
    assert "without 50 more" in shown(told)


async def test_a_group_with_a_constraint_says_which_domain_has_how_much_room():
    async with placing(east=[2, 1], west=[1], none=[9]) as world:
        constrained(world, 4)
        for i in range(4):
            world.add(member(f"p{i}"))
        await world.run_for(0.5)
        told = explainer(world).explain("default", "p0")
    (cycle,) = told.group.cycles
    assert [(each.name, each.room, each.tried) for each in cycle.domains] == [
        ("east", 3, False),
        ("west", 1, False),
    ]
    text = shown(told)
    assert "The domains with the most room" in text
    assert "at most 3" in text


async def test_a_domain_that_was_tried_says_why_a_pod_did_not_fit():
    """The pods have to be spread over the racks, which is seen when they are placed."""
    spread = {
        "maxSkew": 1,
        "topologyKey": RACK,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    async with placing(east=[4], west=[4]) as world:
        constrained(world, 2)
        for i in range(2):
            world.add(member(f"p{i}", labels={"app": "a"}, topologySpreadConstraints=[spread]))
        await world.run_for(0.5)
        told = explainer(world).explain("default", "p0")
    domains = told.group.cycles[-1].domains
    assert [(each.room, each.tried) for each in domains] == [(1, True), (1, True)]
    assert all("topology spread constraints" in each.because for each in domains)
    assert "topology spread" in shown(told).partition("domains with the most room")[2]
