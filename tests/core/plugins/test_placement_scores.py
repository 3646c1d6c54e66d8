"""The scores of placements, against the same arithmetic node by node, and what generates placements."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.framework.placements import Placements
from app.framework.testing import FakeCluster, make_node, make_object, make_pod
from app.model.pod_groups import GroupKey, PodGroup
from app.model.status import SchedulingError
from app.plugins.args import NodeResourcesFitArgs, ResourceSpec
from app.plugins.node_resources_fit import NodeResourcesFit
from app.plugins.pod_group_pods_count import NO_PODS, PodGroupPodsCount
from app.plugins.topology_placement_generator import TopologyPlacementGenerator

GPU = "example.com/gpu"
MIB = 2**20


def node(name, rack, cpu=4000, memory=1000, gpu=0):
    amounts = {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": "10"}
    amounts |= {GPU: str(gpu)} if gpu else {}
    return make_node(name, labels={"rack": rack} if rack else {}, status={"allocatable": amounts})


def pod(name, cpu=0, memory=0, gpu=0, group="g"):
    requests = {"cpu": f"{cpu}m"} if cpu else {}
    requests |= {"memory": f"{memory}Mi"} if memory else {}
    requests |= {GPU: str(gpu)} if gpu else {}
    container = {"name": "c", "resources": {"requests": requests}}
    return make_pod(
        name, spec={"containers": [container], "schedulingGroup": {"podGroupName": group}}
    )


def group(key="rack"):
    constraints = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    manifest = {"metadata": {"name": "g", "namespace": "default"}, "spec": constraints}
    return make_object(PodGroup, manifest)


def world(*nodes, key="rack"):
    cluster = FakeCluster(*nodes)
    cluster.handle.cluster.pod_groups.watch(PodGroup, lambda: "/apis/scheduling.k8s.io/v1alpha2")
    cluster.store(group(key))
    return cluster


def by_hand(nodes, running, proposed, resources):
    """MostAllocated over the sums of all nodes; amounts are (cpu, memory, gpu) with defaults for absent requests."""
    total = weights = 0
    for place, (name, weight) in enumerate(resources):
        wanted = sum(one[place] for one in proposed)
        if name == GPU and not wanted:
            continue
        offered = [one[place] for one in nodes]
        used = [sum(one[place] for one in on) for on in running]
        capacity = sum(offered)
        requested = wanted + sum(u for u, o in zip(used, offered, strict=True) if o)
        if capacity:
            total += weight * (min(requested, capacity) * 100 // capacity)
            weights += weight
    return total // weights if weights else 0


AMOUNTS = st.tuples(st.integers(0, 3) | st.just(0), st.integers(0, 300), st.integers(0, 2))
NODES = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 900), st.integers(0, 4)), min_size=1, max_size=4
)


@given(
    racks=st.lists(
        st.tuples(NODES, st.lists(AMOUNTS, max_size=6), st.lists(AMOUNTS, max_size=4)),
        min_size=1,
        max_size=4,
    ),
    weights=st.tuples(*[st.integers(1, 5)] * 3),
    count=st.integers(1, 3),
)
@settings(max_examples=80, deadline=None)
def test_a_placement_scores_as_one_large_node(racks, weights, count):
    names = list(zip(("cpu", "memory", GPU), weights, strict=True))[:count]
    cluster, expected, pods, placed = world(), [], [], []
    for number, (nodes, residents, proposed) in enumerate(racks):
        on = [[] for _ in nodes]
        for place, (cpu, memory, gpu) in enumerate(nodes):
            cluster.set_node(node(f"{number}-{place}", str(number), cpu * 1000, memory, gpu))
        for place, one in enumerate(residents):
            at = place % len(nodes)
            on[at].append(counted(one))
            cluster.place(
                pod(f"r{number}-{place}", one[0] * 1000, one[1], one[2], ""), f"{number}-{at}"
            )
        offered = [(c * 1000, m * MIB, g) for c, m, g in nodes]
        expected.append(by_hand(offered, on, [counted(one) for one in proposed], names))
        for place, (cpu, memory, gpu) in enumerate(proposed):
            pods.append(pod(f"p{number}-{place}", cpu * 1000, memory, gpu))
            placed.append(number)
    if not pods:
        return
    placements = Placements.by_label(cluster.handle.table, "rack")
    order = [int(name) for name in placements.names]
    matrix = np.array([[number == at for at in placed] for number in order])
    args = NodeResourcesFitArgs(resources=tuple(ResourceSpec(*each) for each in names))
    scores = NodeResourcesFit(args, cluster.handle).score_placements(placements, pods, matrix)
    assert scores.tolist() == [expected[number] for number in order]


def counted(amounts):
    """With the defaults of scores for absent requests."""
    cpu, memory, gpu = amounts
    return cpu * 1000 or 100, (memory or 200) * MIB, gpu


def test_pods_are_counted_with_those_that_run():
    cluster = world(node("a", "a"), node("b", "b"))
    groups = cluster.handle.cluster.pod_groups
    groups.put(pod("old").on("a"), scheduled=True)
    pods = [pod(f"p{i}") for i in range(3)]
    groups.put(pods[0].on("a"), scheduled=True)
    plugin = PodGroupPodsCount(None, cluster.handle)
    placements = Placements.by_label(cluster.handle.table, "rack")
    scores = plugin.score_placements(placements, pods, np.array([[1, 1, 1], [1, 0, 0]], bool))
    assert scores.tolist() == [4, 2]
    assert plugin.normalize_placements(scores).tolist() == [100, 50]
    with pytest.raises(SchedulingError, match=NO_PODS):
        plugin.normalize_placements(np.zeros(2, np.int64))


def test_placements_follow_from_the_constraint_and_the_pods_that_run():
    cluster = world(node("a", "a"), node("b", "b"), node("none", ""))
    plugin, key = (
        TopologyPlacementGenerator(None, cluster.handle),
        GroupKey(PodGroup, "default", "g"),
    )
    assert plugin.generate_placements(key).names == ["a", "b"]
    cluster.handle.cluster.pod_groups.put(pod("old").on("b"), scheduled=True)
    assert plugin.generate_placements(key).names == ["b"]
    cluster.store(group(""))
    assert plugin.generate_placements(key) is None
    with pytest.raises(SchedulingError, match=r'podgroup\.scheduling\.k8s\.io "other" not found'):
        plugin.generate_placements(key._replace(name="other"))


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        (None, node("n", "a"), True),
        (None, node("n", ""), False),
        (node("n", ""), node("n", "a"), True),
        (node("n", "b"), node("n", "a"), True),
        (node("n", "a"), node("n", ""), False),
    ],
)
def test_a_node_that_joins_a_placement_wakes_the_group(old, new, wakes):
    cluster = world()
    plugin = TopologyPlacementGenerator(None, cluster.handle)
    assert cluster.wakes(plugin, pod("p"), old=old, new=new) == wakes
