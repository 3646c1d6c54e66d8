"""Objects of which too much would be read are refused; large ones of which little is read are not."""

import json

import msgspec
import pytest

from app.framework import testing
from app.model import limits
from app.model.devices import ResourceClaim, ResourceSlice
from app.model.objects import Node, PodDisruptionBudget
from app.plugins.args import InterPodAffinityArgs, NodeResourcesFitArgs
from app.plugins.inter_pod_affinity import InterPodAffinity
from app.plugins.node_resources_fit import NodeResourcesFit
from app.wire.envelope import DecodeError
from app.wire.kube import NodeDecoder, PodDecoder, decoder_for
from app.wire.size import size_check

TEXT = "x" * 1_000_000


def pod(node="", **spec):
    where = {"nodeName": node} if node else {}
    return {
        "metadata": {"name": "p", "namespace": "shop", "uid": "u"},
        "spec": {"containers": [{"name": "c"}], **where, **spec},
    }


def read(decoder, obj):
    return decoder.decode(json.dumps(obj, separators=(",", ":")).encode())


def refused(decoder, obj, why):
    with pytest.raises(DecodeError, match=why) as caught:
        read(decoder, obj)
    skipped = []
    items = decoder.decode_all([msgspec.Raw(json.dumps(obj).encode())], skipped)
    assert [item is not None for item in items] == [True] * (caught.value.instead is not None)
    assert [err.key for err in skipped] == [caught.value.key]
    line = json.dumps({"type": "MODIFIED", "object": obj}, separators=(",", ":")).encode()
    with pytest.raises(DecodeError, match=why) as caught_in_line:
        decoder.decode_line(line)
    assert caught_in_line.value.event == "MODIFIED"
    return caught.value


def numbered(count, make):
    return [make(number) for number in range(count)]


TOLERATION = {"key": "k", "operator": "Exists"}


def test_a_list_may_be_filled_to_its_limit_and_no_further():
    fill = [TOLERATION] * (limits.MAX_ENTRIES - 10)
    assert len(read(PodDecoder(), pod(tolerations=fill)).spec.tolerations) == len(fill)
    refused(PodDecoder(), pod(tolerations=[TOLERATION] * 1001), "tolerations")


@pytest.mark.parametrize(
    ("decoder", "obj"),
    [
        (NodeDecoder(), {"spec": {"taints": numbered(1001, lambda i: {"key": f"k{i}"})}}),
        (NodeDecoder(), {"metadata": {"labels": {f"k{i}": "" for i in range(1001)}}}),
        (NodeDecoder(), {"status": {"allocatable": {f"a.b/r{i}": "1" for i in range(257)}}}),
        (NodeDecoder(), {"status": {"allocatable": {"r" * 321: "1"}}}),
        (
            decoder_for(PodDisruptionBudget),
            {"spec": {"selector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"] * 20_001}]}}},
        ),
        (decoder_for(ResourceSlice), {"spec": {"devices": [{"name": "d"}] * 513}}),
        (
            decoder_for(ResourceClaim),
            {"spec": {"devices": {"requests": [{"exactly": {"selectors": [{"cel": {"expression": "x" * 16_385}}]}}]}}},
        ),
    ],
)  # fmt: skip
def test_lists_maps_and_texts_have_limits(decoder, obj):
    obj = obj | {"metadata": {"name": "n", **obj.get("metadata", {})}}
    assert refused(decoder, obj, "length <= ").key == "n"


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [TOLERATION] * 500, "schedulingGates": [{"name": "g"}] * 600},
        {"containers": [{"name": "c", "image": "i" * 300_000}]},
    ],
)
def test_a_spec_as_a_whole_has_limits(spec):
    refused(PodDecoder(), pod(**spec), "of the spec are read, and the limit is")


def test_a_pod_asks_for_so_many_resources_at_most():
    containers = numbered(
        3, lambda c: {"resources": {"requests": {f"e.x/r{c}-{i}": "1" for i in range(100)}}}
    )
    refused(PodDecoder(), pod(containers=containers), "more than 256 resources")
    refused(PodDecoder(), pod(initContainers=containers), "more than 256 resources")


@pytest.mark.parametrize(
    "obj",
    [
        pod(tolerations=numbered(60_000, lambda i: {"key": f"k{i}"})),
        pod(containers=[{}] * 400_000),
        pod(containers=numbered(40_000, lambda i: {"name": f"c{i}"})),
        pod(containers=[{"resources": {"requests": {f"e.x/r{i}": "1" for i in range(70_000)}}}]),
        pod("n", initContainers=[{}] * 400_000),
    ],
    ids=["tolerations", "empty", "containers", "resources", "bound"],
)
def test_what_would_take_long_is_not_read_at_all(obj):
    err = refused(PodDecoder(), obj, "bytes would be read")
    if "nodeName" in obj["spec"]:
        assert (err.instead.key, err.instead.node_name) == ("shop/p", "n")
        assert err.outcome == "counts as all of node n, which takes no other pods"
    else:
        assert (err.instead, err.outcome) == (None, "is ignored")


def test_of_a_bound_pod_counts_what_it_takes_whatever_else_is_too_large():
    container = {"resources": {"requests": {"cpu": "2"}}, "ports": [{"hostPort": 80}]}
    tolerations = numbered(5_000, lambda i: {"key": f"k{i}"})
    obj = pod("n", containers=[container], tolerations=tolerations)
    obj["metadata"]["labels"] = {"app": "web"}
    err = refused(PodDecoder(), obj, "length <= 1000")
    assert err.outcome == "counts on node n with its requests, ports and labels"
    assert err.instead.template.request["cpu"] == 2000
    assert [port.port for port in err.instead.template.host_ports] == [80]
    assert dict(err.instead.labels) == {"app": "web"}


def test_devices_of_a_claim_of_any_size_stay_in_use():
    result = {"request": "r", "driver": "d", "pool": "p", "device": "gpu"}
    reserved = numbered(10_000, lambda i: {"resource": "pods", "name": f"p{i}", "uid": "u" * 60})
    obj = {
        "metadata": {"name": "c", "namespace": "shop"},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved},
    }
    err = refused(decoder_for(ResourceClaim), obj, "bytes would be read")
    assert err.instead.status.allocation.devices.results[0].device == "gpu"


@pytest.mark.parametrize(("capacities", "kept"), [(30, True), (40, False)])
def test_results_with_too_many_fields_are_not_read(capacities, kept):
    """They would hold the event loop; their number is limited long before that by Kubernetes."""
    result = {
        "request": "r",
        "driver": "d",
        "pool": "p",
        "consumedCapacity": {f"capacity-{i}": "1" for i in range(capacities)},
    }
    results = numbered(512, lambda i: result | {"device": f"gpu-{i}"})
    obj = {
        "metadata": {"name": "c", "namespace": "shop"},
        "spec": {"devices": {"requests": numbered(200, lambda i: {"name": f"r{i}"})}},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    err = refused(decoder_for(ResourceClaim), obj, "length <= 64|bytes would be read")
    assert (err.instead is not None) is kept


def test_ports_without_a_port_of_the_host_do_not_count():
    ports = numbered(3_000, lambda i: {"containerPort": 1000 + i, "protocol": "UDP"})
    spec = read(PodDecoder(), pod(containers=[{"name": "c", "ports": ports}] * 2)).spec
    assert [len(container.ports) for container in spec.containers] == [3_000, 3_000]
    taken = [{**port, "hostPort": port["containerPort"]} for port in ports]
    refused(PodDecoder(), pod(containers=[{"name": "c", "ports": taken}]), "objects of the spec")


@pytest.mark.parametrize(
    "obj",
    [
        pod(containers=[{"name": "c", "args": [TEXT]}]),
        pod(containers=[{"name": "c", "args": [json.dumps([{"a": "b"}] * 50_000)]}]),
        pod(containers=[{"name": "c", "env": numbered(8_000, lambda i: {"name": f"V{i}", "value": "x" * 50})}]),
        pod() | {"metadata": {"name": "p", "namespace": "shop", "managedFields": [TEXT], "annotations": {"a": TEXT}}},
    ],
    ids=["args", "JSON in args", "env", "metadata"],
)  # fmt: skip
def test_large_objects_of_which_little_is_read(obj):
    assert read(PodDecoder(), obj).key == "shop/p"


def test_a_node_with_many_images_is_used():
    images = numbered(
        5_000, lambda i: {"names": [f"registry.example.com/{'x' * 100}/{i}"], "sizeBytes": i}
    )
    node = read(NodeDecoder(), {"metadata": {"name": "n"}, "status": {"images": images}})
    assert len(node.status.images) == 5_000


def test_only_what_is_read_counts():
    check = size_check(Node)
    check(msgspec.Raw(json.dumps({"x": TEXT, "spec": {"x": TEXT}, "status": None}).encode()))
    with pytest.raises(ValueError, match="1000002 bytes would be read"):
        check(msgspec.Raw(json.dumps({"spec": {"taints": TEXT}}).encode()))


@pytest.mark.parametrize("requests", [{}, {"cpu": "1"}, {"memory": "1"}])
def test_no_pod_goes_to_a_node_with_a_pod_that_counts_as_all_of_it(requests):
    labels = {"kubernetes.io/hostname": "n"}
    cluster = testing.FakeCluster(testing.make_node("n", labels=labels), testing.make_node("m"))
    unread = refused(PodDecoder(), pod("n", containers=[{}] * 400_000), "would be read").instead
    whole = cluster.place(unread, "n")
    container = {"name": "c", "resources": {"requests": requests}}
    waiting = testing.make_pod(spec={"containers": [container]})
    plugins = [
        InterPodAffinity(InterPodAffinityArgs(), cluster.handle),
        NodeResourcesFit(NodeResourcesFitArgs(), cluster.handle),
    ]
    affinity, fit = [set(cluster.judge(plugin, waiting)) for plugin in plugins]
    assert (affinity, fit) == ({"n"}, {"n"} if requests else set())
    cluster.remove(whole)
    assert not any(cluster.judge(plugin, waiting) for plugin in plugins)


def test_a_pod_on_a_node_that_no_cluster_can_have_is_ignored():
    err = refused(PodDecoder(), pod("n" * 70_000), "length <= 512")
    assert (err.instead, err.outcome) == (None, "is ignored")


@pytest.mark.parametrize(("entries", "read_at_all"), [(100, True), (5_000, False)])
def test_explicit_nulls_are_looked_for_in_small_objects_only(entries, read_at_all):
    """Looking for them takes 300 ns a byte: too long in a large object."""
    taints = [{"key": "k", "effect": None}]
    node = {"metadata": {"name": "n"}, "spec": {"taints": taints}, "x": [[]] * 3 * entries}
    if read_at_all:
        assert read(NodeDecoder(), node).spec.taints[0].effect == ""
    else:
        refused(NodeDecoder(), node, "got `null`")
