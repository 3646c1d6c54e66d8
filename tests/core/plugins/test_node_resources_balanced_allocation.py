import numpy as np
import pytest

from app.framework.interface import CycleState
from app.framework.testing import FakeCluster, make_node
from app.framework.testing import make_pod as make_test_pod
from app.model.objects import (
    Container,
    Node,
    NodeStatus,
    ObjectMeta,
    PodSpec,
    ResourceRequirements,
)
from app.model.pod import make_pod
from app.model.status import SKIP, SUCCESS
from app.plugins.args import BalancedAllocationArgs, ResourceSpec
from app.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from app.state.view import View
from tests.core.framework.worlds import World, check_score
from tests.core.plugins.twins import node_resources as twin

RESOURCES = (
    ("cpu", "memory"),
    ("memory", "example.com/gpu", "cpu"),
    ("cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi"),
    ("cpu",),
    ("example.com/never", "memory"),
)


def test_agrees_with_its_twin():
    scores, skipped = [], 0
    for seed in range(50):
        world = World(seed)
        names = RESOURCES[seed % len(RESOURCES)]
        args = BalancedAllocationArgs(tuple(ResourceSpec(name) for name in names))
        plugin = NodeResourcesBalancedAllocation(args, world.handle)
        pod, state = world.random_pod(), CycleState()
        status = plugin.pre_score(state, pod, View.everything(world.table))
        if twin.skips_balance(pod, args):
            assert status == SKIP
            skipped += 1
            continue
        assert status == SUCCESS
        scores += check_score(
            world,
            plugin,
            pod,
            lambda pod, scene, args=args: twin.balance_node(pod, scene, args),
            state=state,
        )
    assert len(set(scores)) > 10
    assert skipped


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"cpu": "1", "memory": "1Gi"}, 75),
        ({"cpu": "4"}, 50),
        ({"memory": "2Gi"}, 62),
        ({"example.com/gpu": "1"}, None),
        ({}, None),
    ],
)
def test_an_empty_node(requests, expected):
    world = World(0, nodes=4)
    status = NodeStatus(allocatable={"cpu": "4", "memory": "4Gi", "pods": "10"})
    row = world.table.set_node(Node(metadata=ObjectMeta(name="n"), status=status))
    container = Container(resources=ResourceRequirements(requests=requests))
    pod = make_pod(PodSpec(containers=(container,)), namespace="ns", name="p", uid="u")
    view = View(world.table, np.array([row]))
    plugin, state = NodeResourcesBalancedAllocation(None, world.handle), CycleState()
    if expected is None:
        assert plugin.pre_score(state, pod, view) == SKIP
    else:
        plugin.pre_score(state, pod, view)
        assert plugin.score(state, pod, view).tolist() == [expected]


def test_two_resources_of_three_are_rounded_as_two_alone():
    def asking(uid, node_name="", **requests):
        container = Container(resources=ResourceRequirements(requests=requests))
        fields = {"namespace": "ns", "name": uid, "uid": uid, "node_name": node_name}
        return make_pod(PodSpec(containers=(container,)), **fields)

    world, gpu = World(0, nodes=4), "example.com/gpu"
    status = NodeStatus(allocatable={"cpu": "10", "memory": "10", "pods": "10"})
    row = world.table.set_node(Node(metadata=ObjectMeta(name="n"), status=status))
    world.table.add_pod(asking("there", "n", cpu="1", memory="4"))
    args = BalancedAllocationArgs(tuple(map(ResourceSpec, ("cpu", "memory", gpu))))
    plugin = NodeResourcesBalancedAllocation(args, world.handle)
    pod, view = asking("p", memory="4", **{gpu: "1"}), View(world.table, np.array([row]))
    assert plugin.score(CycleState(), pod, view).tolist() == [64]


@pytest.mark.parametrize(("rows", "number"), [(1001, 9), (3000, 9), (1001, 300), (500, 500)])
def test_rows_have_the_scores_that_they_have_in_parts(rows, number):
    cluster = FakeCluster()
    for row in range(rows):
        status = {"allocatable": {"cpu": f"{row % 7 + 1}", "memory": f"{row % 11 + 1}Gi"}}
        cluster.set_node(make_node(f"n{row}", status=status))
    table = cluster.handle.table
    container = {"name": "c", "resources": {"requests": {"cpu": "700m", "memory": "300Mi"}}}
    pod = make_test_pod(spec={"containers": [container]})
    plugin, state = NodeResourcesBalancedAllocation(None, cluster.handle), CycleState()
    together = plugin.score(state, pod, View.everything(table))
    parts = [
        plugin.score(state, pod, View(table, part))
        for part in np.array_split(table.all_rows(), number)
    ]
    assert np.array_equal(together, np.concatenate(parts))
