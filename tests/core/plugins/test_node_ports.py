import pytest

from app.framework.interface import CycleState, QueueingHint
from app.model.cluster_event import NODE_ADD, Action, ClusterEvent, Resource
from app.model.objects import Container, ContainerPort, Node, ObjectMeta, PodSpec
from app.model.pod import make_pod
from app.model.status import SKIP, SUCCESS, Code
from app.plugins.node_ports import NodePorts
from app.state.view import View
from tests.core.framework.worlds import World, check_filter, verdict
from tests.core.plugins.twins import node_ports as twin


def pod_claiming(*ports, **fields):
    container = Container(ports=tuple(ContainerPort(p, ip, proto) for p, ip, proto in ports))
    fields = {"namespace": "ns", "name": "p", "uid": "u", **fields}
    return make_pod(PodSpec(containers=(container,)), **fields)


def test_agrees_with_its_twin():
    rejected = skipped = 0
    for seed in range(15):
        world = World(seed, nodes=14)
        plugin = NodePorts(None, world.handle)
        for _ in range(6):
            pod, state = world.random_pod(), CycleState()
            assert plugin.pre_filter(state, pod) == (SKIP if twin.skips(pod) else SUCCESS)
            skipped += twin.skips(pod)
            rejected += check_filter(world, plugin, pod, twin.filter_node, state=state)
    assert rejected
    assert skipped


def test_agrees_with_its_twin_on_views_too_large_to_look_rows_up():
    world = World(3, nodes=80)
    plugin = NodePorts(None, world.handle)
    assert sum(check_filter(world, plugin, world.random_pod(), twin.filter_node) for _ in range(6))


def test_reason():
    world = World(0, nodes=4)
    row = world.table.set_node(Node(metadata=ObjectMeta(name="n")))
    world.table.add_pod(pod_claiming((80, "", "TCP"), uid="other", node_name="n"))
    plugin = NodePorts(None, world.handle)
    view = View.everything(world.table)
    verdicts = plugin.filter(CycleState(), pod_claiming((80, "10.0.0.1", "")), view)
    reason = "node(s) didn't have free ports for the requested pod ports"
    assert verdict(verdicts, row) == (Code.Unschedulable, (reason,))
    assert plugin.filter(CycleState(), pod_claiming((81, "", "")), view) is None


def test_events():
    deleted, added = NodePorts(None, World(0, nodes=4).handle).events_to_register()
    assert deleted.event == ClusterEvent(Resource.Pod, Action.Delete)
    assert deleted.template_only
    assert added.event == NODE_ADD
    assert added.hint is None


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (pod_claiming((80, "", ""), node_name="n"), QueueingHint.QUEUE),
        (pod_claiming((80, "", ""), nominated_node_name="n"), QueueingHint.QUEUE),
        (pod_claiming((80, "", "")), QueueingHint.SKIP),
        (pod_claiming((81, "", ""), node_name="n"), QueueingHint.SKIP),
        (pod_claiming((80, "", "UDP"), node_name="n"), QueueingHint.SKIP),
        (pod_claiming((80, "10.0.0.2", ""), node_name="n"), QueueingHint.SKIP),
        (pod_claiming(node_name="n"), QueueingHint.SKIP),
    ],
)
def test_deletion_hint(gone, expected):
    deleted, _ = NodePorts(None, World(0, nodes=4).handle).events_to_register()
    assert deleted.hint(pod_claiming((80, "10.0.0.1", "TCP")), gone, None) is expected
