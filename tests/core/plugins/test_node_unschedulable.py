import pytest

from app.framework.interface import CycleState, QueueingHint
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import Node, NodeSpec, ObjectMeta, PodSpec, Toleration
from app.model.pod import make_pod
from app.model.status import Code
from app.plugins.node_unschedulable import NodeUnschedulable
from app.state.view import View
from tests.core.framework.worlds import World, check_filter, verdict
from tests.core.plugins.twins import node_unschedulable as twin

CORDON = Toleration(key="node.kubernetes.io/unschedulable", operator="Exists")


def pod_with(*tolerations, uid="u"):
    return make_pod(PodSpec(tolerations=tolerations), namespace="ns", name="p", uid=uid)


def node(*, cordoned):
    return Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(unschedulable=cordoned))


def test_agrees_with_its_twin():
    rejected = 0
    for seed in range(12):
        world = World(seed)
        plugin = NodeUnschedulable(None, world.handle)
        for _ in range(5):
            rejected += check_filter(world, plugin, world.random_pod(), twin.filter_node)
    assert rejected


def test_reason():
    world = World(0, nodes=4)
    row = world.table.set_node(node(cordoned=True))
    view = View.everything(world.table)
    plugin = NodeUnschedulable(None, world.handle)
    verdicts = plugin.filter(CycleState(), pod_with(), view)
    assert verdict(verdicts, row) == (
        Code.UnschedulableAndUnresolvable,
        ("node(s) were unschedulable",),
    )
    assert plugin.filter(CycleState(), pod_with(CORDON), view) is None


def hint_for(event):
    plugin = NodeUnschedulable(None, World(0, nodes=4).handle)
    (registration,) = [r for r in plugin.events_to_register() if r.event == event]
    return registration


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, node(cordoned=False), QueueingHint.QUEUE),
        (None, node(cordoned=True), QueueingHint.SKIP),
        (node(cordoned=True), node(cordoned=False), QueueingHint.QUEUE),
        (node(cordoned=False), node(cordoned=False), QueueingHint.SKIP),
        (node(cordoned=False), node(cordoned=True), QueueingHint.SKIP),
        (node(cordoned=True), node(cordoned=True), QueueingHint.SKIP),
    ],
)
def test_node_hint(old, new, expected):
    registration = hint_for(ClusterEvent(Resource.Node, Action.Add | Action.UpdateNodeTaint))
    assert registration.template_only
    assert registration.hint(pod_with(), old, new) is expected


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (pod_with(CORDON), QueueingHint.QUEUE),
        (pod_with(Toleration(key="other", operator="Exists")), QueueingHint.SKIP),
        (pod_with(CORDON, uid="other"), QueueingHint.SKIP),
    ],
)
def test_toleration_hint(new, expected):
    registration = hint_for(ClusterEvent(Resource.Pod, Action.UpdatePodToleration))
    assert not registration.template_only
    assert registration.hint(pod_with(), pod_with(), new) is expected
