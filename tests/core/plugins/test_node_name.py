from app.framework.interface import CycleState
from app.model.cluster_event import NODE_ADD
from app.model.status import Code
from app.plugins.node_name import NodeName
from app.state.view import View
from tests.core.framework.worlds import World, check_filter, verdict
from tests.core.plugins.twins import node_name as twin


def test_agrees_with_its_twin():
    rejected = 0
    for seed in range(6):
        world = World(seed)
        plugin = NodeName(None, world.handle)
        for name in ("", "node-3", "node-5", "unheard-of"):
            pod = world.random_pod().on(name)
            rejected += check_filter(world, plugin, pod, twin.filter_node)
    assert rejected


def test_reason():
    world = World(0)
    pod = world.random_pod().on("unheard-of")
    verdicts = NodeName(None, world.handle).filter(CycleState(), pod, View.everything(world.table))
    assert verdict(verdicts, 0) == (
        Code.UnschedulableAndUnresolvable,
        ("node(s) didn't match the requested node name",),
    )


def test_any_new_node_wakes():
    (registration,) = NodeName(None, World(0, nodes=4).handle).events_to_register()
    assert registration.event == NODE_ADD
    assert registration.hint is None
