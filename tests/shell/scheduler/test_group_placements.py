"""Pod groups with a topology constraint: all pods go to nodes with the same value of a label."""

import asyncio
import contextlib

import msgspec
import pytest

from app.framework.testing import make_node, make_object, make_pod
from app.model.objects import Node
from app.model.pod_groups import PodGroup
from app.scheduler.group_algorithm import NO_PLACEMENTS, NO_PREEMPTION_IN_PLACEMENTS
from app.scheduler.group_cycle import TOO_FEW
from app.state.queue.queued_pod import BACKOFF, UNSCHEDULABLE
from tests.shell.extender.fakes import extender
from tests.shell.scheduler.world import CONFIG, GANGS, running

pytestmark = pytest.mark.looptime

GATES = GANGS | {"TopologyAwareWorkloadScheduling"}
RACK = "example.com/rack"


@contextlib.asynccontextmanager
async def placing(config=CONFIG, extenders=lambda _sink: [], features=GATES, **racks):
    """A world of nodes by rack: their CPUs in order; those of ``none`` have no label."""
    async with running(features=features, config=config, extenders=extenders) as world:
        for rack, sizes in racks.items():
            for number, cpu in enumerate(sizes):
                add_node(world, f"{rack}{number}", cpu, rack)
        yield world


def add_node(world, name, cpu, rack):
    labels = {} if rack == "none" else {RACK: rack}
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    node = make_node(name, labels=labels, status={"allocatable": amounts})
    world.change(Node, None, node)
    return node


def pod(name, group="gang", cpu="1", labels=None, **spec):
    spec = {
        "schedulerName": "default-scheduler",
        "schedulingGroup": {"podGroupName": group},
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
    } | spec
    return make_pod(name, labels=labels, spec=spec)


def gang(world, size, name="gang", key=RACK):
    spec = {"schedulingPolicy": {"gang": {"minCount": size}} if size else {"basic": {}}}
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    manifest = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}
    group = make_object(PodGroup, manifest)
    world.change(PodGroup, None, group)
    return group


def bindings(world):
    return {
        sent.body["metadata"]["name"]: sent.body["target"]["name"]
        for sent in world.transport.sent
        if sent.path.endswith("/binding")
    }


def racks(world):
    return {node[:-1] for node in bindings(world).values()}


def members(world, count, group="gang", **spec):
    return [world.add(pod(f"{group}-{i}", group, **spec)) for i in range(count)]


def told(world, what):
    """The last message of each pod, or the last condition of each group."""
    found = {}
    for sent in world.transport.sent:
        if what == "pods" and sent.path.endswith("/status") and "/pods/" in sent.path:
            [condition] = sent.body["status"]["conditions"]
            found[sent.path.split("/")[-2]] = condition["message"]
        elif what == "groups" and "/podgroups/" in sent.path:
            [condition] = sent.body["status"]["conditions"]
            found[sent.path.split("/")[-2]] = (condition["reason"], condition["message"])
    return found


async def test_a_gang_goes_to_the_rack_that_takes_all_of_it():
    async with placing(a=[2, 1], b=[2, 2], none=[8]) as world:
        gang(world, 4)
        members(world, 4)
        await world.settle()
        assert len(bindings(world)) == 4
        assert racks(world) == {"b"}


async def test_the_fullest_rack_that_takes_the_gang_is_chosen():
    async with placing(a=[8], b=[3, 3], c=[2], d=[4, 3]) as world:
        gang(world, 3)
        members(world, 3)
        await world.settle()
        assert racks(world) == {"b"}


async def test_more_pods_count_more_than_a_fuller_rack():
    """Rack a would be full with two pods; rack b takes three, of which the gang needs two."""
    async with placing(a=[2], b=[3, 1]) as world:
        gang(world, 2)
        members(world, 3)
        await world.settle()
        assert racks(world) == {"b"}
        assert len(bindings(world)) == 3


@pytest.mark.parametrize(
    ("plugins", "rack"),
    [
        ("{disabled: [{name: NodeResourcesFit}]}", "b"),
        ("{enabled: [{name: NodeResourcesFit, weight: 10}]}", "a"),
    ],
)
async def test_scores_and_weights_of_placements_are_those_of_the_configuration(plugins, rack):
    config = f"{CONFIG}profiles:\n- plugins: {{placementScore: {plugins}}}\n"
    async with placing(config, a=[2], b=[20]) as world:
        gang(world, 2)
        members(world, 3)
        await world.settle()
        assert racks(world) == {rack}


async def test_pods_that_run_pin_the_rack():
    async with placing(a=[8], b=[2, 2]) as world:
        gang(world, 1)
        first = pod("gang-first")
        world.add(first.on("b0"))
        members(world, 5)
        await world.settle()
        assert racks(world) == {"b"}
        assert len(bindings(world)) == 3
        messages = set(told(world, "pods").values())
        assert messages == {
            "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to placement-based pod group "
            "scheduling limitation"
        }


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        (["none0"], "no topology domain found for pod default/p0"),
        (["a0", "b0"], "more than 1 domain found for pod group: a, b"),
        (["gone"], 'getting node for pod default/p0: nodeinfo not found for node name "gone"'),
    ],
)
async def test_pods_that_run_outside_of_one_rack_are_an_error(nodes, why):
    async with placing(a=[1], b=[1], none=[4]) as world:
        gang(world, 1)
        for number, node in enumerate(nodes):
            world.add(pod(f"p{number}").on(node))
        members(world, 1)
        await world.settle()
        why = f"cannot determine domain for already scheduled pods: {why}"
        assert told(world, "pods") == {"gang-0": why}
        assert told(world, "groups") == {"gang": ("SchedulerError", why)}


async def test_a_gang_that_fits_in_no_rack_holds_nothing_and_says_so():
    async with placing(a=[1, 1], b=[2, 1], c=[1], none=[9]) as world:
        gang(world, 4)
        members(world, 4)
        await world.settle()
        assert not bindings(world)
        assert told(world, "groups") == {
            "gang": (
                "Unschedulable",
                "0/3 placements are available, first placement status: pod group is unschedulable",
            )
        }
        messages = sorted(told(world, "pods").values())
        assert messages == [
            "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to placement-based pod group "
            "scheduling limitation",
            *[TOO_FEW] * 3,
        ]
        assert not world.state.table.pod_count.any()


async def test_without_the_label_there_is_no_placement_until_a_node_gets_it():
    async with placing(none=[4]) as world:
        gang(world, 2)
        pods = members(world, 2)
        await world.settle()
        assert told(world, "groups") == {"gang": ("Unschedulable", NO_PLACEMENTS)}
        assert set(told(world, "pods").values()) == {NO_PLACEMENTS}
        assert {world.state.queue.where(one.uid) for one in pods} == {UNSCHEDULABLE}
        world.change(Node, make_node("none0"), make_node("none0", labels={RACK: "a"}))
        assert {world.state.queue.where(one.uid) for one in pods} == {BACKOFF}


async def test_a_node_that_joins_a_rack_helps():
    async with placing(a=[1], b=[1]) as world:
        gang(world, 3)
        members(world, 3)
        await world.settle()
        assert not bindings(world)
        add_node(world, "b1", 2, "b")
        await asyncio.sleep(20)
        await world.settle()
        assert racks(world) == {"b"}


async def test_an_event_that_helps_in_a_rack_that_was_not_tried_wakes_the_gang():
    """Rack a is too small; rack b is large enough, and cordoned."""
    async with placing(a=[1], b=[]) as world:
        spec = {"unschedulable": True}
        old = make_node("b0", labels={RACK: "b"}, spec=spec)
        world.change(Node, None, old)
        gang(world, 2)
        pods = members(world, 2, cpu="2")
        await world.settle()
        assert {world.state.queue.where(one.uid) for one in pods} == {UNSCHEDULABLE}
        world.change(Node, old, make_node("b0", labels={RACK: "b"}))
        assert {world.state.queue.where(one.uid) for one in pods} == {BACKOFF}


async def test_of_two_gangs_for_one_rack_one_runs():
    async with placing(a=[3], b=[1]) as world:
        for name in ("one", "two"):
            gang(world, 2, name)
            members(world, 2, name)
        await world.settle()
        assert len(bindings(world)) == 2
        assert racks(world) == {"a"}


async def test_a_group_without_a_constraint_uses_all_nodes_and_may_preempt():
    async with placing(a=[1], b=[1]) as world:
        world.add(pod("low", "", priority=-1).on("a0"))
        gang(world, 2, key="")
        members(world, 2)
        await world.settle()
        assert not bindings(world)
        assert [sent for sent in world.transport.sent if sent.method == "DELETE"]


@pytest.mark.parametrize(
    ("gates", "more"),
    [
        (GATES, ""),
        (GATES | {"WorkloadAwarePreemption"}, f", {NO_PREEMPTION_IN_PLACEMENTS}"),
    ],
)
async def test_a_constrained_group_evicts_nobody(gates, more):
    async with placing(features=gates, a=[1, 1]) as world:
        world.add(pod("low", "", priority=-1).on("a0"))
        gang(world, 2)
        members(world, 2)
        await world.settle()
        assert not [sent for sent in world.transport.sent if sent.method == "DELETE"]
        [(_, message)] = told(world, "groups").values()
        assert message == (
            "0/1 placements are available, first placement status: pod group is unschedulable"
            + more
        )


async def test_a_basic_group_uses_the_rack_that_takes_most_of_it():
    async with placing(a=[2], b=[3], c=[1]) as world:
        gang(world, 0)
        members(world, 5)
        await world.settle()
        assert racks(world) == {"b"}
        assert len(bindings(world)) == 3


async def test_filters_that_look_across_nodes_decide_per_rack():
    """One pod per node: rack a has room for three pods on one node, rack b on three nodes."""
    apart = {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {"app": "gang"}},
                        "topologyKey": "kubernetes.io/hostname",
                    }
                ]
            }
        }
    }
    async with placing(a=[3], b=[9, 9, 9]) as world:
        for name in ("a0", "b0", "b1", "b2"):
            old = world.state.table.nodes[world.state.table.row_of[name]]
            labels = {RACK: name[0], "kubernetes.io/hostname": name}
            world.change(Node, old, make_node(name, labels=labels))
        gang(world, 3)
        for number in range(3):
            one = pod(f"p{number}", **apart)
            world.add(make_pod(one.name, labels={"app": "gang"}, spec=SPREAD | apart))
        await world.settle()
        assert set(bindings(world).values()) == {"b0", "b1", "b2"}


SPREAD = {
    "schedulingGroup": {"podGroupName": "gang"},
    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
}


async def test_an_extender_is_sent_the_nodes_of_the_placement_only():
    asked = []

    def choose(verb, sent):
        names = sent.get("nodenames", sent.get("NodeNames"))
        if verb == "filter":
            asked.append(set(names))
            return {"nodenames": [name for name in names if name[0] != "a"]}
        return []

    def extenders(sink):
        return [extender(choose, sink=sink, bind_verb="", preempt_verb="", prioritize_verb="")]

    async with placing(extenders=extenders, a=[2], b=[4, 4]) as world:
        gang(world, 2)
        for number in range(2):
            one = pod(f"p{number}")
            world.add(msgspec.structs.replace(one, raw=b'{"metadata":{"name":"p"}}'))
        await world.settle()
        assert racks(world) == {"b"}
        assert asked == [{"a0"}, {"b0", "b1"}, {"b0", "b1"}]
