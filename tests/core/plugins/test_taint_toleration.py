import numpy as np
import pytest

from app.framework.interface import CycleState, QueueingHint
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import Node, NodeSpec, ObjectMeta, PodSpec, Taint, Toleration
from app.model.pod import make_pod
from app.model.status import Code
from app.plugins.taint_toleration import TaintToleration
from app.state.view import View
from tests.core.framework.worlds import World, check_filter, check_score, verdict
from tests.core.plugins.twins import taint_toleration as twin

TAINT = Taint("a", "x", "NoSchedule")
TOLERATION = Toleration(key="a", operator="Exists")


def pod_with(*tolerations, uid="u"):
    return make_pod(PodSpec(tolerations=tolerations), namespace="ns", name="p", uid=uid)


def node(*taints):
    return Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(taints=taints or None))


def test_filter_agrees_with_its_twin():
    rejected = 0
    for seed in range(12):
        world = World(seed)
        plugin = TaintToleration(None, world.handle)
        for _ in range(5):
            rejected += check_filter(world, plugin, world.random_pod(), twin.filter_node)
    assert rejected


def test_taint_lists_that_appear_later_are_judged_too():
    world = World(1)
    plugin, pod, state = TaintToleration(None, world.handle), pod_with(), CycleState()
    for _ in range(10):
        check_filter(world, plugin, pod, twin.filter_node, state=state)
        world.set_node(world.rng.choice(list(world.nodes)))


def test_score_agrees_with_its_twin():
    scores = []
    for seed in range(12):
        world = World(seed)
        plugin = TaintToleration(None, world.handle)
        pod, state = world.random_pod(), CycleState()
        assert plugin.pre_score(state, pod, View.everything(world.table)).ok
        scores += check_score(world, plugin, pod, twin.score_node, state=state)
    assert len(set(scores)) > 2


@pytest.mark.parametrize("raw", [[0, 0], [3, 0, 1], [2], []])
def test_normalize(raw):
    world = World(0, nodes=4)
    view = View(world.table, np.zeros(0, np.intp))
    plugin = TaintToleration(None, world.handle)
    got = plugin.normalize(CycleState(), pod_with(), np.array(raw, np.int64), view)
    assert got.tolist() == twin.normalize(raw)


def test_reason():
    world = World(0, nodes=4)
    row = world.table.set_node(node(TAINT))
    plugin = TaintToleration(None, world.handle)
    view = View.everything(world.table)
    verdicts = plugin.filter(CycleState(), pod_with(), view)
    reason = (Code.UnschedulableAndUnresolvable, ("node(s) had untolerated taint(s)",))
    assert verdict(verdicts, row) == reason
    assert verdict(plugin.filter(CycleState(), pod_with(TOLERATION), view), row) is None


def test_untainted_cluster_passes():
    world = World(0)
    for name in list(world.nodes):
        world.table.set_node(Node(metadata=ObjectMeta(name=name)))
    plugin = TaintToleration(None, world.handle)
    assert plugin.filter(CycleState(), pod_with(), View.everything(world.table)) is None


def hint_for(event):
    plugin = TaintToleration(None, World(0, nodes=4).handle)
    (registration,) = [r for r in plugin.events_to_register() if r.event == event]
    return registration


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, node(), QueueingHint.QUEUE),
        (None, node(TAINT), QueueingHint.SKIP),
        (node(TAINT), node(), QueueingHint.QUEUE),
        (node(TAINT), node(Taint("b", "", "PreferNoSchedule")), QueueingHint.QUEUE),
        (node(), node(), QueueingHint.SKIP),
        (node(), node(TAINT), QueueingHint.SKIP),
    ],
)
def test_node_hint(old, new, expected):
    registration = hint_for(ClusterEvent(Resource.Node, Action.Add | Action.UpdateNodeTaint))
    assert registration.template_only
    assert registration.hint(pod_with(), old, new) is expected


@pytest.mark.parametrize(
    ("uid", "expected"), [("u", QueueingHint.QUEUE), ("other", QueueingHint.SKIP)]
)
def test_toleration_hint(uid, expected):
    registration = hint_for(ClusterEvent(Resource.Pod, Action.UpdatePodToleration))
    assert not registration.template_only
    assert registration.hint(pod_with(), pod_with(), pod_with(uid=uid)) is expected
