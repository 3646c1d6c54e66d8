"""Bodies in protobuf, as typed Go clients send them."""

import pytest

from app.sim.errors import ApiError
from app.sim.http.protobuf import decode_protobuf
from app.sim.http.protobuf_messages import MESSAGES, ROOTS
from tests.shell.sim.client import PODS, RESOURCE_CLAIMS, Client, pod

PROTOBUF = "application/vnd.kubernetes.protobuf"


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(version: str, kind: str, message: bytes) -> bytes:
    type_ = field(1, version) + field(2, kind)
    return b"k8s\x00" + field(1, type_) + field(2, message) + field(3, "") + field(4, "")


META = field(1, "x") + field(2, "") + field(8, b"") + field(11, field(1, "k") + field(2, "v"))


def test_metadata_texts_maps_and_zero_times() -> None:
    body = envelope("v1", "ConfigMap", field(1, META) + field(2, field(1, "a") + field(2, "b")))
    assert decode_protobuf(body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x", "labels": {"k": "v"}},
        "data": {"a": "b"},
    }


def test_numbers_times_bytes_and_flags() -> None:
    spec = field(1, "me") + field(2, 15) + field(4, field(1, 1_700_000_000) + field(2, 5_000))
    lease = envelope("coordination.k8s.io/v1", "Lease", field(2, spec + field(5, 0)))
    assert decode_protobuf(lease)["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2023-11-14T22:13:20.000005Z",
        "leaseTransitions": 0,
    }
    secret = envelope("v1", "Secret", field(2, field(1, "k") + field(2, b"\xff")) + field(5, 1))
    assert decode_protobuf(secret)["data"] == {"k": "/w=="}
    assert decode_protobuf(secret)["immutable"] is True
    priority = envelope("scheduling.k8s.io/v1", "PriorityClass", field(2, -5))
    assert decode_protobuf(priority)["value"] == -5


def test_quantities_and_numbers_or_texts() -> None:
    quota = field(1, field(1, "cpu") + field(2, field(1, "500m")))
    assert decode_protobuf(envelope("v1", "ResourceQuota", field(2, quota)))["spec"]["hard"] == {
        "cpu": "500m"
    }
    spec = field(1, field(1, 1) + field(2, 0) + field(3, "50%")) + field(2, b"")
    budget = decode_protobuf(envelope("policy/v1", "PodDisruptionBudget", field(2, spec)))
    assert budget["spec"] == {"minAvailable": "50%", "selector": {}}
    spec = field(3, field(1, 0) + field(2, 3) + field(3, ""))
    budget = decode_protobuf(envelope("policy/v1", "PodDisruptionBudget", field(2, spec)))
    assert budget["spec"] == {"maxUnavailable": 3}


def test_pod_groups() -> None:
    pod = envelope("v1", "Pod", field(2, field(43, field(1, "g"))))
    assert decode_protobuf(pod)["spec"]["schedulingGroup"] == {"podGroupName": "g"}
    reference = field(1, field(1, field(1, "w") + field(2, "t")))
    gang = field(2, field(2, field(1, 3)))
    topology = field(3, field(1, field(1, "rack")))
    spec = reference + gang + topology + field(5, "PodGroup") + field(6, "high") + field(7, 9)
    group = envelope("scheduling.k8s.io/v1alpha2", "PodGroup", field(2, spec))
    assert decode_protobuf(group)["spec"] == {
        "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "disruptionMode": "PodGroup",
        "priorityClassName": "high",
        "priority": 9,
    }
    template = field(1, "t") + field(2, field(1, b""))
    owner = field(1, field(1, "batch") + field(2, "Job") + field(3, "j"))
    workload = envelope(
        "scheduling.k8s.io/v1alpha2", "Workload", field(2, owner + field(2, template))
    )
    assert decode_protobuf(workload)["spec"] == {
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "j"},
        "podGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}}],
    }


async def test_a_binding_and_a_deletion(client: Client) -> None:
    created = await client.create(PODS, pod("p"))
    uid = created["metadata"]["uid"]
    target = field(1, "Node") + field(3, "n")
    body = envelope("v1", "Binding", field(1, field(1, "p") + field(5, uid)) + field(2, target))
    answer = await client.post(f"{PODS}/p/binding", body, content_type=PROTOBUF)
    assert answer.status == 201
    assert (await client.get(f"{PODS}/p")).body["spec"]["nodeName"] == "n"
    options = envelope("v1", "DeleteOptions", field(1, 0) + field(2, field(1, uid)))
    answer = await client.request("DELETE", f"{PODS}/p", options, content_type=PROTOBUF)
    assert answer.status == 200
    assert (await client.get(f"{PODS}/p")).status == 404


def test_devices() -> None:
    attribute = field(1, "index") + field(2, field(2, 3))
    amount = field(1, "memory") + field(2, field(1, field(1, "80Gi")))
    pool = field(1, "p") + field(2, 1) + field(3, 1)
    device = field(1, "d") + field(2, attribute) + field(3, amount)
    spec = field(1, "gpu.example.com") + field(2, pool) + field(5, 1) + field(6, device)
    found = decode_protobuf(envelope("resource.k8s.io/v1", "ResourceSlice", field(2, spec)))
    assert found["spec"] == {
        "driver": "gpu.example.com",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "allNodes": True,
        "devices": [
            {
                "name": "d",
                "attributes": {"index": {"int": 3}},
                "capacity": {"memory": {"value": "80Gi"}},
            }
        ],
    }


async def test_the_status_of_a_claim(client: Client) -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    claim = {"metadata": {"name": "x"}, "spec": {"devices": {"requests": [request]}}}
    created = await client.create(RESOURCE_CLAIMS, claim)
    result = field(1, "r") + field(2, "gpu.example.com") + field(3, "p") + field(4, "d")
    opaque = field(1, "gpu.example.com") + field(2, field(1, b'{"a":1}'))
    config = field(1, "FromClass") + field(3, field(1, opaque))
    allocation = field(1, field(1, result) + field(2, config))
    consumer = field(1, "") + field(3, "pods") + field(4, "p") + field(5, "1")
    seen = field(1, "x") + field(6, created["metadata"]["resourceVersion"])
    message = field(1, seen) + field(3, field(1, allocation) + field(2, consumer))
    body = envelope("resource.k8s.io/v1", "ResourceClaim", message)
    answer = await client.put(f"{RESOURCE_CLAIMS}/x/status", body, content_type=PROTOBUF)
    assert answer.status == 200, answer
    assert answer.body["spec"] == created["spec"]
    device = {"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}
    told = {"driver": "gpu.example.com", "parameters": {"a": 1}}
    configured = {"source": "FromClass", "opaque": told}
    assert answer.body["status"] == {
        "allocation": {"devices": {"results": [device], "config": [configured]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}],
    }


async def test_a_status_is_not_read_from_protobuf(client: Client) -> None:
    await client.create(PODS, pod("p"))
    body = envelope("v1", "Pod", field(1, field(1, "p")))
    answer = await client.put(f"{PODS}/p/status", body, content_type=PROTOBUF)
    assert answer.status == 415


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        pytest.param(b"{}", 400, "does not begin", id="prefix"),
        pytest.param(envelope("v1", "Node", b""), 415, "but not for Node in v1", id="kind"),
        pytest.param(envelope("v1", "ConfigMap", field(99, 1)), 415, "field 99 of ConfigMap", id="field"),
        pytest.param(envelope("v1", "ConfigMap", b"\x0a\x7fx"), 400, "longer than its message", id="cut"),
        pytest.param(envelope("v1", "ConfigMap", field(1, 5)), 400, "a number where", id="number"),
        pytest.param(envelope("scheduling.k8s.io/v1", "PriorityClass", field(2, b"x")), 400, "a message where", id="message"),
        pytest.param(envelope("v1", "ConfigMap", b"\x0b"), 400, "wire type 3", id="wire-type"),
        pytest.param(envelope("v1", "ConfigMap", b"\x80"), 400, "cannot be decoded", id="varint"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(body, code, text) -> None:
    with pytest.raises(ApiError) as caught:
        decode_protobuf(body)
    assert (caught.value.code, text in caught.value.message) == (code, True), caught.value


def test_every_message_named_in_the_table_is_in_it() -> None:
    basic = {"string", "int", "bool", "bytes", "Time", "MicroTime", "Quantity", "IntOrString", "JSON", "-"}  # fmt: skip
    named = {
        entry.partition("/")[2].strip("[]{}<>") or "string"
        for line in MESSAGES.values()
        for entry in line.split()
    }
    assert named - basic <= MESSAGES.keys()
    assert set(ROOTS.values()) <= MESSAGES.keys()
