"""A claim that the pods of a group share, when too few of them fit (KEP-5729)."""

import contextlib

import pytest

from app.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from app.model.pod import Pod
from app.model.pod_groups import CLAIMS
from tests.core.plugins.claim_world import a_claim, a_class, a_slice, allocated
from tests.shell.kube.fakes import FakeTransport, ok
from tests.shell.scheduler.test_newer_groups import bindings, conditions, evictions, gang, pod
from tests.shell.scheduler.world import running

pytestmark = pytest.mark.looptime

ENTRY = {"name": "e", "resourceClaimName": "c"}
OF_GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "gang"}
DEALLOCATED = "deallocation of PodGroup ResourceClaim completed"
UNRESERVED = "ResourceClaim unreserved for PodGroup"
TOO_FEW = "minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"
NO_VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"


@contextlib.asynccontextmanager
async def sharing(*consumers, gates=(CLAIMS,), everywhere=False):
    """Nodes a and b with a device each; that of a is allocated to the claim c of a gang of two."""
    status = allocated("a", "d0") | {"reservedFor": list(consumers)}
    if everywhere:
        del status["allocation"]["nodeSelector"]
    manifest = {"metadata": {"name": "c", "namespace": "default", "uid": "uid-of-c"}}

    def answer(sent):
        return ok(manifest) if "/resourceclaims/" in sent.path else ok(status=201)

    transport = FakeTransport(handler=answer)
    features = {"GenericWorkload", *gates}
    async with running("a", "b", features=features, transport=transport) as world:
        world.serve_groups("v1beta1")
        world.change(DeviceClass, None, a_class())
        for node in "ab":
            world.change(ResourceSlice, None, a_slice(node, "d0"))
        world.change(ResourceClaim, None, a_claim(status=status))
        yield world


def member(name, cpu="1", **spec):
    return pod(name, cpu=cpu, resourceClaims=[ENTRY], **spec)


def filled(world, node):
    """A node without room, whose pod nobody may evict."""
    world.change(Pod, None, pod(f"on-{node}", "", cpu="4", priority=100).on(node))


def freed(world):
    """What was written to the claim."""
    return [s.body["status"] for s in world.transport.sent if "/resourceclaims/" in s.path]


@pytest.mark.parametrize("consumers", [(), (OF_GROUP,)])
async def test_a_claim_that_keeps_the_group_from_nodes_is_deallocated(consumers):
    async with sharing(*consumers) as world:
        filled(world, "a")
        gang(world, 2, resourceClaims=[ENTRY])
        for name in ("p0", "p1"):
            world.add(member(name))
        await world.run_for(0.5)
        assert freed(world)[0] == {"allocation": None, "reservedFor": None, "devices": None}
        assert not bindings(world)
        if consumers:  # else the first pod frees it
            assert conditions(world)[0][2] == f"{TOO_FEW}, {DEALLOCATED}, {NO_VICTIMS}"


async def test_a_claim_that_is_available_is_unreserved_and_nothing_preempted():
    async with sharing(OF_GROUP, everywhere=True) as world:
        for node in "ab":
            world.change(Pod, None, pod(f"on-{node}", "", cpu="4").on(node))
        gang(world, 2, resourceClaims=[ENTRY], priority=10)
        for name in ("p0", "p1"):
            world.add(member(name, priority=10))
        await world.run_for(0.5)
        assert freed(world) == [{"reservedFor": []}]
        assert conditions(world)[0][2] == f"{TOO_FEW}, {UNRESERVED}"
        assert not evictions(world)


async def test_a_group_with_a_pod_that_has_a_node_keeps_its_claim():
    async with sharing(OF_GROUP) as world:
        filled(world, "a")
        gang(world, 3, resourceClaims=[ENTRY])
        world.change(Pod, None, member("bound", cpu="100m").on("b"))
        for name in ("p0", "p1"):
            world.add(member(name))
        await world.run_for(0.5)
        assert not freed(world)
        assert "deallocation and deletion of ResourceClaims completed" in conditions(world)[0][2]


async def test_a_group_of_which_enough_pods_fit_keeps_its_claim():
    async with sharing(OF_GROUP) as world:
        gang(world, 2, resourceClaims=[ENTRY])
        for number in range(5):
            world.add(member(f"p{number}"))
        await world.run_for(0.5)
        assert len(bindings(world)) == 4, "node a has room for four"
        assert not freed(world)


async def test_without_the_gate_nothing_is_freed_for_the_group():
    async with sharing(OF_GROUP, gates=()) as world:
        filled(world, "a")
        gang(world, 2, resourceClaims=[ENTRY])
        for name in ("p0", "p1"):
            world.add(member(name))
        await world.run_for(0.5)
        assert not freed(world)
