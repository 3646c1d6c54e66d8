"""Victims are known by the events about them."""

import pytest

from app.runtime.simulation.preemptions import Preemptions
from app.sim.resources.kinds import EVENTS
from tests.shell.simulation.world import World, pod


@pytest.fixture
def world(tmp_path):
    return World(
        tmp_path,
        pod("old", phase="Running", nodeName="a", priority=-1, owner="ReplicaSet/batch"),
        pod("alone", phase="Running", nodeName="a"),
        pod("vip", phase="Pending"),
    )


def tell(world, about, by, *, reason="Preempted", suffix="", uid=""):
    regarding = {"kind": "Pod", "namespace": "shop", "name": about, "uid": uid or f"uid-of-{about}"}
    event = {"metadata": {"generateName": "e-", "namespace": "shop"}, "involvedObject": regarding}
    event |= {"reason": reason, "message": f"Preempted by pod {by} on node a{suffix}"}
    world.cluster.apply(EVENTS, event | {"type": "Normal"})


def test_who_had_to_go_for_whom(world):
    found = Preemptions(world.cluster).found
    tell(world, "old", "uid-of-vip")
    tell(world, "alone", "somebody", suffix=" (in kube-scheduler memory).")
    first, second = found
    assert (first.pod, first.owner, first.priority) == ("shop/old", "ReplicaSet shop/batch", -1)
    assert (first.node, first.by) == ("a", "shop/vip")
    assert (second.pod, second.owner, second.node, second.by) == ("shop/alone", "", "a", "somebody")


def test_each_victim_once_and_nothing_else(world):
    found = Preemptions(world.cluster).found
    for by in ("uid-of-vip", "uid-of-alone"):
        tell(world, "old", by)
    tell(world, "vip", "uid-of-old", reason="FailedScheduling")
    tell(world, "unknown", "uid-of-vip")
    assert [(each.pod, each.by) for each in found] == [("shop/old", "shop/vip")]


def test_pods_that_come_later(world):
    found = Preemptions(world.cluster).found
    (late,) = world.add(pod("late"))
    tell(world, "late", "uid-of-vip", uid=late["metadata"]["uid"])
    assert [each.pod for each in found] == ["shop/late"]
