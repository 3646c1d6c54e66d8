"""Victims are known by the events about them."""

import pytest

from app.sim.resources.kinds import EVENTS
from app.tools.simulate.run import Preemptions
from tests.shell.tools.simulate.world import World, pod


@pytest.fixture
def world(tmp_path):
    return World(
        tmp_path,
        pod("old", phase="Running", nodeName="a", priority=-1, owner="ReplicaSet/batch"),
        pod("alone", phase="Running", nodeName="a"),
        pod("vip", phase="Pending"),
        pod("king", phase="Pending", priority=7),
    )


def tell(world, about, by, *, reason="Preempted", suffix="", uid="", at=""):
    regarding = {"kind": "Pod", "namespace": "shop", "name": about, "uid": uid or f"uid-of-{about}"}
    event = {"metadata": {"generateName": "e-", "namespace": "shop"}, "involvedObject": regarding}
    event |= {"reason": reason, "message": f"Preempted by pod {by} on node a{suffix}"}
    if at:
        event["eventTime"] = f"2026-01-01T00:00:00.{at}Z"
    world.cluster.apply(EVENTS, event | {"type": "Normal"})


def test_who_had_to_go_for_whom(world):
    preemptions = Preemptions(world.cluster)
    tell(world, "old", "uid-of-vip")
    tell(world, "alone", "somebody", suffix=" (in kube-scheduler memory).")
    first, second = preemptions.found
    assert (first.pod, first.owner, first.priority) == ("shop/old", "ReplicaSet shop/batch", -1)
    assert (first.node, first.by) == ("a", "shop/vip")
    assert (second.pod, second.owner, second.node, second.by) == ("shop/alone", "", "a", "somebody")


def test_each_victim_once_and_nothing_else(world):
    preemptions = Preemptions(world.cluster)
    for by in ("uid-of-vip", "uid-of-alone"):
        tell(world, "old", by)
    tell(world, "vip", "uid-of-old", reason="FailedScheduling")
    tell(world, "unknown", "uid-of-vip")
    assert [(each.pod, each.by) for each in preemptions.found] == [("shop/old", "shop/vip")]


def test_the_time_of_an_event_counts_and_not_when_it_was_written(world):
    preemptions = Preemptions(world.cluster)
    tell(world, "old", "uid-of-alone", at="000002")
    tell(world, "alone", "uid-of-vip", at="000003")
    tell(world, "old", "uid-of-vip", at="000001")
    told = [(each.pod, each.by) for each in preemptions.found]
    assert told == [("shop/old", "shop/vip"), ("shop/alone", "shop/vip")]


def test_the_highest_priority_came_first(world):
    preemptions = Preemptions(world.cluster)
    tell(world, "old", "uid-of-vip", at="000001")
    tell(world, "old", "uid-of-king", at="000002")
    tell(world, "old", "uid-of-alone", at="000003")
    assert [(each.pod, each.by) for each in preemptions.found] == [("shop/old", "shop/king")]


def test_pods_that_come_later(world):
    preemptions = Preemptions(world.cluster)
    (late,) = world.add(pod("late"))
    tell(world, "late", "uid-of-vip", uid=late["metadata"]["uid"])
    assert [each.pod for each in preemptions.found] == ["shop/late"]
