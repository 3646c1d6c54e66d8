"""Scores of extended resources that are devices: nodes offer the devices they reach, less those in use."""

import pytest

from app.framework.testing import FakeCluster, make_node, make_pod
from app.plugins.args import BalancedAllocationArgs, NodeResourcesFitArgs, ResourceSpec
from app.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from app.plugins.node_resources_fit import NodeResourcesFit
from tests.core.plugins.claim_world import a_claim, a_class, a_slice, allocated

GPU = "example.com/gpu"
FIT = NodeResourcesFitArgs(resources=(ResourceSpec(GPU, 1),))


def asking(amount="1", **more):
    requests = {GPU: amount, **more}
    return make_pod(spec={"containers": [{"name": "m", "resources": {"requests": requests}}]})


def world(*objects, nodes=(), resource=GPU, **spec):
    cluster = FakeCluster(*(nodes or map(make_node, "abc")))
    cluster.store(a_class(extendedResourceName=resource, **spec), *objects)
    return cluster


def fit(cluster, args=FIT):
    return NodeResourcesFit(args, cluster.handle)


def test_free_devices_make_the_score():
    cluster = world(
        a_slice("a", "d0", "d1", "d2", "d3"),
        a_slice("b", "d0", "d1"),
        a_claim("x", status=allocated("a", "d0", "d1")),
    )
    plugin = fit(cluster)
    assert cluster.score(plugin, asking()) == {"a": 25, "b": 50, "c": 0}


def test_scores_follow_claims_slices_and_nodes():
    cluster = world(a_slice("a", "d0", "d1"))
    plugin = fit(cluster)
    assert cluster.score(plugin, asking())["a"] == 50
    claim = a_claim("x", status=allocated("a", "d0"))
    cluster.store(claim)
    assert cluster.score(plugin, asking())["a"] == 0
    cluster.handle.cluster.resource_claims.remove(claim)
    assert cluster.score(plugin, asking())["a"] == 50
    cluster.store(a_slice("a", "d0", "d1", "d2", "d3"), a_slice("new", "d0", "d1"))
    assert cluster.score(plugin, asking()) == {"a": 75, "b": 0, "c": 0}
    cluster.set_node(make_node("new"))
    assert cluster.score(plugin, asking())["new"] == 50
    cluster.store(a_class())
    assert set(cluster.judge(plugin, asking())) == {"a", "b", "c", "new"}


def test_what_a_node_advertises_counts_instead():
    own = make_node("own", status={"allocatable": {"cpu": "4", "pods": "10", GPU: "10"}})
    cluster = world(a_slice("own", "d0", "d1"), nodes=[own, make_node("a")])
    assert cluster.score(fit(cluster), asking()) == {"own": 90, "a": 0}


def test_devices_count_once_shared_or_not():
    share = {"shareID": "s", "consumedCapacity": {"memory": "1Gi"}}
    device = {"name": "d0", "allowMultipleAllocations": True}
    cluster = world(
        a_slice("a", device, "d1", "d2", "d3"),
        a_claim("x", status=allocated("a", "d0", **share)),
        a_claim("y", status=allocated("a", "d0", **{**share, "shareID": "t"})),
    )
    assert cluster.score(fit(cluster), asking())["a"] == 50


def test_the_class_chooses():
    model = "device.attributes['gpu.example.com'].model"
    cluster = world(
        a_slice(
            "a",
            *(
                {"name": f"d{n}", "attributes": {"model": {"string": "xy"[n % 2]}}}
                for n in range(8)
            ),
        ),
        a_slice("b", "without"),
        a_slice("c", {"name": "d", "attributes": {"model": {"string": "x"}}}),
        selectors=[{"cel": {"expression": f"{model} == 'x'"}}],
    )
    assert cluster.score(fit(cluster), asking()) == {"a": 75, "b": 0, "c": 0}


def in_zone(zone):
    term = {"key": "zone", "operator": "In", "values": [zone]}
    return {"nodeSelectorTerms": [{"matchExpressions": [term]}]}


@pytest.mark.parametrize(
    ("where", "scores"),
    [
        ({"nodeName": None, "allNodes": True}, {"a": 75, "b": 75}),
        ({"nodeName": None, "nodeSelector": in_zone("z")}, {"a": 75, "b": 0}),
        ({"nodeName": "b"}, {"a": 0, "b": 75}),
    ],
)
def test_devices_count_where_they_can_be_reached_from(where, scores):
    nodes = [make_node("a", labels={"zone": "z"}), make_node("b")]
    cluster = world(a_slice("a", "d0", "d1", "d2", "d3", pool="p", **where), nodes=nodes)
    assert cluster.score(fit(cluster), asking()) == scores


def test_devices_may_be_reached_one_by_one():
    nodes = [make_node("a", labels={"zone": "z"}), make_node("b")]
    devices = [
        {"name": "d0", "allNodes": True},
        {"name": "d1", "nodeSelector": in_zone("z")},
        {"name": "d2", "nodeName": "a"},
        {"name": "d3", "nodeName": "a"},
        {"name": "nowhere"},
    ]
    one = a_slice("a", *devices, pool="p", nodeName=None, perDeviceNodeSelection=True)
    cluster = world(one, nodes=nodes)
    plugin = fit(cluster)
    assert cluster.score(plugin, asking()) == {"a": 75, "b": 0}
    cluster.set_node(make_node("b", labels={"zone": "z"}))
    assert cluster.score(plugin, asking()) == {"a": 75, "b": 50}


def test_balance_counts_devices_too():
    args = BalancedAllocationArgs(resources=(ResourceSpec("cpu", 1), ResourceSpec(GPU, 1)))
    cluster = world(a_slice("a", "d0", "d1"), a_slice("b", "d0", "d1", "d2", "d3"))
    plugin = NodeResourcesBalancedAllocation(args, cluster.handle)
    even = cluster.score(plugin, asking("2", cpu="4"))
    assert even["a"] > even["b"]
    cluster.place(asking(), "c")
    cluster.check(plugin, asking("2", cpu="4"), make_pod())


def test_pods_that_ask_for_no_devices_are_scored_as_ever():
    args = NodeResourcesFitArgs()
    cluster = world(a_slice("a", "d0"))
    plugin = fit(cluster, args)
    before = plugin.epoch()
    cluster.store(a_claim("x", status=allocated("a", "d0")))
    assert plugin.epoch() == before
    cluster.check(fit(cluster), make_pod())
