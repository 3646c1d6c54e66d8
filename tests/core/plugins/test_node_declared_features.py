import pytest

from app.framework.interface import CycleState, QueueingHint
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import (
    Container,
    ContainerRestartRule,
    Node,
    NodeStatus,
    ObjectMeta,
    PodSpec,
)
from app.model.pod import make_pod
from app.model.status import SKIP, SUCCESS, Code
from app.plugins.node_declared_features import NodeDeclaredFeatures, required_features
from app.state.view import View
from tests.core.framework.worlds import World, check_filter, verdict
from tests.core.plugins.twins import node_declared_features as twin

RESTARTS = Container(
    restart_policy_rules=(
        ContainerRestartRule("Restart"),
        ContainerRestartRule("RestartAllContainers"),
    )
)
BOTH = ("UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits")


def pod_with(uid="u", **spec):
    return make_pod(PodSpec(**spec), namespace="ns", name="p", uid=uid)


def node(*features, name="n"):
    return Node(
        metadata=ObjectMeta(name=name), status=NodeStatus(declared_features=features or None)
    )


NEEDY = {"host_network": True, "host_users": False, "containers": (RESTARTS,)}


def test_agrees_with_its_twin():
    rejected = skipped = 0
    for seed in range(15):
        world = World(seed)
        plugin = NodeDeclaredFeatures(None, world.handle)
        for _ in range(6):
            pod, state = world.random_pod(), CycleState()
            skips = not twin.required(pod)
            assert plugin.pre_filter(state, pod) == (SKIP if skips else SUCCESS)
            if skips:
                skipped += 1
                continue
            rejected += check_filter(world, plugin, pod, twin.filter_node, state=state)
            world.set_node(world.rng.choice(list(world.nodes)))
    assert rejected
    assert skipped


def test_follows_nodes_that_come_change_and_go():
    world = World(4, nodes=60)
    plugin, pod, state = NodeDeclaredFeatures(None, world.handle), pod_with(**NEEDY), CycleState()
    plugin.pre_filter(state, pod)
    for number in range(12):
        check_filter(world, plugin, pod, twin.filter_node, state=state)
        world.set_node(f"extra-{number}")
        gone = world.rng.choice(list(world.nodes))
        world.table.remove_node(gone)
        del world.nodes[gone]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ()),
        ({"host_network": True}, ()),
        ({"host_network": True, "host_users": True}, ()),
        ({"host_users": False}, ()),
        ({"host_network": True, "host_users": False}, BOTH[:1]),
        ({"init_containers": (RESTARTS,)}, BOTH[1:]),
        (NEEDY, BOTH),
    ],
)
def test_required_features(spec, expected):
    assert required_features(PodSpec(**spec)) == frozenset(expected)


def test_reason():
    world = World(0, nodes=4)
    rows = [world.table.set_node(node(BOTH[0])), world.table.set_node(node(*BOTH, "X", name="m"))]
    plugin, state, pod = NodeDeclaredFeatures(None, world.handle), CycleState(), pod_with(**NEEDY)
    plugin.pre_filter(state, pod)
    verdicts = plugin.filter(state, pod, View.everything(world.table))
    assert verdict(verdicts, rows[0]) == (
        Code.UnschedulableAndUnresolvable,
        ("node(s) didn't match Pod's required features",),
    )
    assert verdict(verdicts, rows[1]) is None


def hint_for(resource, action):
    plugin = NodeDeclaredFeatures(None, World(0, nodes=4).handle)
    event = ClusterEvent(resource, action)
    (registration,) = [r for r in plugin.events_to_register() if r.event == event]
    return registration


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, node(), QueueingHint.QUEUE),
        (node("A"), node("A", "B"), QueueingHint.QUEUE),
        (node("A"), node("A"), QueueingHint.SKIP),
    ],
)
def test_node_hint(old, new, expected):
    registration = hint_for(Resource.Node, Action.Add | Action.UpdateNodeDeclaredFeature)
    assert registration.template_only
    assert registration.hint(pod_with(**NEEDY), old, new) is expected


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (pod_with(), QueueingHint.QUEUE),
        (pod_with(**NEEDY), QueueingHint.SKIP),
        (pod_with("other"), QueueingHint.SKIP),
    ],
)
def test_pod_hint(new, expected):
    registration = hint_for(Resource.Pod, Action.Update)
    assert not registration.template_only
    assert registration.hint(pod_with(**NEEDY), pod_with(**NEEDY), new) is expected
