"""Groups of scheduling.k8s.io in the versions of Kubernetes 1.37."""

import contextlib

import msgspec
import pytest

from app.framework.testing import make_object, make_pod
from app.model.features import Features
from app.model.pod import Pod
from app.model.pod_groups import PodGroup
from tests.shell.scheduler.test_group_cycle import bindings, evictions
from tests.shell.scheduler.test_group_placements import RACK, placing
from tests.shell.scheduler.world import running

pytestmark = pytest.mark.looptime


@contextlib.asynccontextmanager
async def newer(*nodes, version="v1beta1"):
    """A world with the one gate that these versions have."""
    async with running(*nodes, features={"GenericWorkload"}) as world:
        world.serve_groups(version)
        yield world


def pod(name, group="gang", cpu="1", **spec):
    spec = {
        "schedulerName": "default-scheduler",
        "schedulingGroup": {"podGroupName": group} if group else None,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
    } | spec
    return make_pod(name, spec=spec)


def gang(world, size, name="gang", old=None, **spec):
    spec = {"schedulingPolicy": {"gang": {"minCount": size}} if size else {"basic": {}}} | spec
    manifest = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}
    group = make_object(PodGroup, manifest)
    world.change(PodGroup, old, group)
    return group


def conditions(world):
    """(type, reason, message) of what was written."""
    written = (s.body["status"] for s in world.transport.sent if "podgroups" in s.path)
    found = (each for status in written for each in status["conditions"])
    return [(each["type"], each["reason"], each["message"]) for each in found]


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3"])
async def test_the_condition_says_how_many_are_missing(version):
    async with newer("a", version=version) as world:
        gang(world, 6)
        for i in range(7):
            world.add(pod(f"p{i}"))
        await world.run_for(0.5)
        text = "minCount (6) cannot be satisfied: 4 scheduled, 1 remaining"
        told = [("PodGroupInitiallyScheduled", "Unschedulable", text)]
        assert conditions(world)[0][:2] == told[0][:2]
        assert conditions(world)[0][2].startswith(text)
        histories = (world.telemetry.histories.of("default", f"p{i}") for i in range(7))
        messages = [history.attempts[-1].message for history in histories]
        assert messages.count(text) == 4, "those that had room"


async def test_what_is_said_of_a_preemption_is_said_of_the_group():
    async with newer("a") as world:
        victim = pod("victim", "", cpu="3")
        world.change(Pod, None, victim.on("a"))
        gang(world, 3, priority=10)
        for i in range(3):
            world.add(pod(f"p{i}", priority=10))
        await world.run_for(0.5)
        too_few = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"
        freed = "deallocation and deletion of ResourceClaims completed"
        about = "pod group preemption: found a placement for podgroup, preempting 1 victims"
        ((_, _, message),) = conditions(world)
        assert message == f"{too_few}, {freed}, {about}"
        told = {
            world.telemetry.histories.of("default", f"p{i}").attempts[-1].message for i in range(3)
        }
        assert told == {"0/1 nodes are available: 1 Insufficient cpu.", message}
        assert evictions(world) == ["victim"]


async def test_why_no_preemption_helps_the_group():
    async with newer("a") as world:
        gang(world, 9)
        for i in range(9):
            world.add(pod(f"p{i}"))
        await world.run_for(0.5)
        freed = "deallocation and deletion of ResourceClaims completed"
        about = "pod group preemption: No preemption victims found for incoming preemptor"
        ((_, _, message),) = conditions(world)
        assert message.endswith(f", {freed}, {about}")


async def test_a_basic_group_without_room():
    async with newer("a") as world:
        gang(world, 0)
        world.add(pod("p", cpu="9"))
        await world.run_for(0.5)
        ((_, _, message),) = conditions(world)
        assert message.startswith("minCount (1) cannot be satisfied: 0 scheduled, 0 remaining")


async def test_a_minimum_that_falls_lets_the_gang_run():
    async with newer("a") as world:
        group = gang(world, 6)
        pods = [world.add(pod(f"p{i}")) for i in range(4)]
        await world.settle()
        assert not bindings(world)
        gang(world, 4, old=group)
        await world.settle()
        assert bindings(world).keys() == {each.name for each in pods}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"priority": 5}, "the same priority as the pod group's priority, got 5 and 0"),
        (
            {"preemptionPolicy": "Never"},
            "the same preemption policy, got Never and PreemptLowerPriority",
        ),
    ],
)
async def test_pods_that_are_not_alike_are_not_scheduled(fields, text):
    async with newer("a") as world:
        gang(world, 2)
        world.add(pod("p0"))
        world.add(pod("p1", **fields))
        await world.run_for(0.5)
        told = f"all pods in a single pod group should have {text}"
        assert conditions(world) == [("PodGroupInitiallyScheduled", "SchedulerError", told)]
        assert not bindings(world)


@pytest.mark.parametrize(
    ("own", "others", "text"),
    [
        ("Never", {"preemptionPolicy": "Never"}, ""),
        ("PreemptLowerPriority", {}, ""),
        (None, {}, ""),
        ("Never", {}, "got PreemptLowerPriority and Never"),
        (None, {"preemptionPolicy": "Never"}, "got Never and PreemptLowerPriority"),
    ],
)
async def test_pods_have_the_preemption_policy_of_their_group(own, others, text):
    features = Features.of("1.37", {"GenericWorkload", "PodGroupPreemptionPolicy"})
    async with running("a", features=features) as world:
        world.serve_groups("v1beta1")
        gang(world, 2, **({"preemptionPolicy": own} if own else {}))
        for name in ("p0", "p1"):
            world.add(pod(name, **others))
        await world.run_for(0.5)
        start = "all pods in a single pod group should have the same preemption policy as the pod group's"
        told = [message for _, reason, message in conditions(world) if reason == "SchedulerError"]
        assert told == ([f"{start} preemption policy, {text}"] if text else [])
        assert len(bindings(world)) == (0 if text else 2)


async def test_pods_of_the_older_version_may_differ():
    async with running("a") as world:
        gang(world, 2)
        world.add(pod("p0"))
        world.add(pod("p1", priority=5))
        await world.settle()
        assert bindings(world).keys() == {"p0", "p1"}


async def test_a_group_whose_mode_is_all_is_evicted_whole_without_a_further_gate():
    async with newer("a", "b") as world:
        gang(world, 2, "victims", disruptionMode={"all": {}})
        for name, node in (("v0", "a"), ("v1", "b")):
            world.change(Pod, None, pod(name, "victims", cpu="3").on(node))
        gang(world, 1, "vips", priority=10)
        world.add(pod("vip", "vips", cpu="3", priority=10))
        await world.run_for(2)
        assert sorted(evictions(world)) == ["v0", "v1"]


@pytest.mark.parametrize("end", ["ungated", "deleted"])
async def test_a_pod_with_a_scheduling_gate_holds_the_whole_group(end):
    async with newer("a") as world:
        gang(world, 2)
        gated = world.add(pod("gated", schedulingGates=[{"name": "wait"}]))
        for i in range(2):
            world.add(pod(f"p{i}"))
        await world.run_for(20)
        assert not bindings(world)
        if end == "deleted":
            world.change(Pod, gated, None)
        else:
            free = pod("gated")
            free = msgspec.structs.replace(free, uid=gated.uid, resource_version="9")
            world.change(Pod, gated, free)
        await world.settle()
        others = {"gated"} if end == "ungated" else set()
        assert bindings(world).keys() == {"p0", "p1"} | others


async def test_a_pod_with_a_scheduling_gate_holds_no_group_of_the_older_version():
    async with running("a") as world:
        gang(world, 2)
        world.add(pod("gated", schedulingGates=[{"name": "wait"}]))
        for i in range(2):
            world.add(pod(f"p{i}"))
        await world.settle()
        assert bindings(world).keys() == {"p0", "p1"}


TOPOLOGY = {"schedulingConstraints": {"topology": [{"key": RACK}]}}


@contextlib.asynccontextmanager
async def in_racks(version="v1beta1", **racks):
    """Racks with nodes of these CPUs, and pods without a group that fill them: by node, their priority."""
    features = {"GenericWorkload", "TopologyAwareWorkloadScheduling"}
    features |= {"GangScheduling", "WorkloadAwarePreemption"} if version == "v1alpha2" else set()
    async with placing(features=features, **racks) as world:
        world.serve_groups(version)
        yield world


def fill(world, **priorities):
    for node, (cpu, priority) in priorities.items():
        filler = pod(f"on-{node}", "", cpu=str(cpu), priority=priority)
        world.change(Pod, None, filler.on(node))


async def test_a_group_with_a_topology_constraint_preempts_in_one_rack():
    """Rack a has too few CPUs, rack b more victims than c; a node without the label does not count."""
    async with in_racks(a=[1], b=[2, 2, 2], c=[4, 1], none=[9]) as world:
        fill(world, b0=(2, 0), b1=(2, 0), b2=(2, 0), c0=(4, 0), none0=(9, 0))
        gang(world, 4, priority=10, **TOPOLOGY)
        for i in range(4):
            world.add(pod(f"p{i}", priority=10))
        await world.run_for(1)
        assert evictions(world) == ["on-c0"]
        assert not bindings(world)
        ((_, _, message),) = conditions(world)
        start = "0/3 placements are available, first placement status: minCount (4) cannot be"
        assert message.startswith(start)
        end = ", pod group preemption: found a placement for podgroup, preempting 1 victims"
        assert message.endswith(end)
        world.change(Pod, pod("on-c0", "").on("c0"), None)
        await world.run_for(12)
        assert set(bindings(world).values()) <= {"c0", "c1"}
        assert len(bindings(world)) == 4


async def test_a_group_with_a_topology_constraint_evicts_nothing_in_vain():
    """Both racks together would have room for it."""
    async with in_racks(a=[2], b=[2]) as world:
        fill(world, a0=(2, 0), b0=(2, 10))
        gang(world, 3, priority=10, **TOPOLOGY)
        for i in range(3):
            world.add(pod(f"p{i}", priority=10))
        await world.run_for(1)
        assert not evictions(world)
        ((_, _, message),) = conditions(world)
        assert ", pod group preemption: " in message


async def test_a_group_of_the_older_version_with_a_constraint_does_not_preempt():
    async with in_racks("v1alpha2", a=[2]) as world:
        fill(world, a0=(2, 0))
        gang(world, 2, priority=10, **TOPOLOGY)
        for i in range(2):
            world.add(pod(f"p{i}", priority=10))
        await world.run_for(1)
        assert not evictions(world)
