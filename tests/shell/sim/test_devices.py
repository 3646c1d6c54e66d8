"""The kinds of resource.k8s.io/v1: defaults, what is refused and where, what may change."""

import pytest

from app.model.devices import FINALIZER
from app.sim.api import MERGE_PATCH, Api
from app.sim.errors import ApiError
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import (
    DEVICE_CLASSES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.shell.sim.client import pod

DRIVER = "gpu.example.com"
LONG = "x" * 64
OPAQUE = {"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}
TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
REASONS = {
    "required": "FieldValueRequired",
    "invalid": "FieldValueInvalid",
    "duplicate": "FieldValueDuplicate",
    "unknown": "FieldValueNotSupported",
    "many": "FieldValueTooMany",
    "long": "FieldValueTooLong",
    "forbidden": "FieldValueForbidden",
    "missing": "FieldValueNotFound",
}


@pytest.fixture
def api():
    made = Api(now=lambda: 0.0)
    made.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    return made


def request(name="r", **fields):
    return {"name": name, "exactly": {"deviceClassName": "c", **fields}}


def alternatives(*names, **fields):
    options = [{"name": name, "deviceClassName": "c", **fields} for name in names]
    return {"name": "r", "firstAvailable": options}


def asking(*requests, **devices):
    return {"devices": {"requests": list(requests), **devices}}


def offering(*devices, **fields):
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return {"driver": DRIVER, "pool": pool, "nodeName": "n", "devices": list(devices)} | fields


def anywhere(*devices, **fields):
    """A slice that does not say which node reaches it."""
    spec = offering(*devices, **fields)
    del spec["nodeName"]
    return spec


def device(name="d", **fields):
    return {"name": name, **fields}


def counting(*counters, **fields):
    spec = offering(sharedCounters=list(counters), **fields)
    del spec["devices"]
    return spec


def result(request="a", **fields):
    return {"request": request, "driver": DRIVER, "pool": "p", "device": "d"} | fields


def allocated(*results, **fields):
    return {"devices": {"results": list(results)}, **fields}


def consumer(uid="1", **fields):
    return {"resource": "pods", "name": "p", "uid": uid} | fields


def make(api, kind, spec, name="x", **metadata):
    namespace = "default" if kind.namespaced else ""
    return api.create(kind, namespace, {"metadata": {"name": name, **metadata}, "spec": spec}).value


def change(api, kind, patch, subresource=""):
    namespace = "default" if kind.namespaced else ""
    return api.patch(kind, namespace, "x", patch, patch_type=MERGE_PATCH, subresource=subresource)[
        0
    ].value


def set_status(api, **status):
    return change(api, RESOURCE_CLAIMS, {"status": status}, "status")


def mistakes(refused):
    """What a request is refused for: (path, reason), sorted."""
    with pytest.raises(ApiError) as caught:
        refused()
    status = caught.value.status()
    assert (status["code"], status["reason"]) == (422, "Invalid")
    names = {reason: name for name, reason in REASONS.items()}
    return sorted((cause["field"], names[cause["reason"]]) for cause in status["details"]["causes"])


def expected(text):
    """Reads ``path reason, path reason``."""
    return sorted(tuple(part.split()) for part in text.split(", "))


# ---------------------------------------------------------------- what is asked for


def test_requests_are_filled_in(api) -> None:
    tolerations = [{"key": "a", "value": "b"}, {"operator": "Exists"}]
    spec = asking(
        request(tolerations=tolerations),
        {"name": "all", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
        alternatives("s", "t", count=2) | {"name": "f"},
    )
    found = make(api, RESOURCE_CLAIMS, spec)
    template = make(api, RESOURCE_CLAIM_TEMPLATES, {"spec": spec})
    assert found["spec"] == template["spec"]["spec"]
    assert found["status"] == {}
    first, whole, choice = found["spec"]["devices"]["requests"]
    assert (first["exactly"]["allocationMode"], first["exactly"]["count"]) == ("ExactCount", 1)
    operators = [each["operator"] for each in first["exactly"]["tolerations"]]
    assert operators == ["Equal", "Exists"]
    assert "count" not in whole["exactly"]
    wanted = [(each["allocationMode"], each["count"]) for each in choice["firstAvailable"]]
    assert wanted == [("ExactCount", 2)] * 2


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        (asking({"exactly": {"deviceClassName": "c"}}, request("R_"), request(LONG)), "requests[0].name invalid, requests[1].name invalid, requests[2].name invalid"),
        (asking(request(f"{LONG}.x")), "requests[0].name invalid, requests[0].name invalid"),
        (asking(request(), request()), "requests[1] duplicate"),
        (asking(*(request(f"r{number}") for number in range(33))), "requests many"),
        (asking({"name": "r"}, {"name": "s", "firstAvailable": []}), "requests[0] required, requests[1] required"),
        (asking(request() | alternatives("s")), "requests[0] invalid"),
        (asking({"name": "r", "exactly": {}}), "requests[0].exactly.deviceClassName required"),
        (asking(request(deviceClassName="C_")), "requests[0].exactly.deviceClassName invalid"),
        (asking(request(count=-1)), "requests[0].exactly.count invalid"),
        (asking(request(allocationMode="All", count=1)), "requests[0].exactly.count invalid"),
        (asking(request(allocationMode="Some")), "requests[0].exactly.allocationMode unknown"),
        (asking(alternatives("s", "s")), "requests[0].firstAvailable[1] duplicate"),
        (asking(alternatives(*"abcdefghi")), "requests[0].firstAvailable many"),
        (asking(alternatives("s", count=-1)), "requests[0].firstAvailable[0].count invalid"),
        (asking(request(selectors=[{}])), "requests[0].exactly.selectors[0].cel required"),
        (asking(request(selectors=[{"cel": {"expression": "true"}}] * 33)), "requests[0].exactly.selectors many"),
        (asking(request(selectors=[{"cel": {"expression": "x" * 10241}}])), "requests[0].exactly.selectors[0].cel.expression long"),
        (asking(request(selectors=[{"cel": {"expression": "device.name"}}, {"cel": {}}])), "requests[0].exactly.selectors[0].cel.expression invalid, requests[0].exactly.selectors[1].cel.expression invalid"),
        (asking(request(tolerations=[{"operator": "Exists", "value": "x"}])), "requests[0].exactly.tolerations[0].value invalid"),
        (asking(request(tolerations=[{"operator": "In"}])), "requests[0].exactly.tolerations[0].operator unknown"),
        (asking(request(tolerations=[{"key": "a b", "value": "-"}])), "requests[0].exactly.tolerations[0].key invalid, requests[0].exactly.tolerations[0].value invalid"),
        (asking(alternatives("s", tolerations=[{"effect": "PreferNoSchedule"}])), "requests[0].firstAvailable[0].tolerations[0].effect unknown"),
        (asking(request(), constraints=[{}]), "constraints[0] required"),
        (asking(request(), constraints=[{"matchAttribute": "model"}]), "constraints[0].matchAttribute invalid"),
        (asking(request(), constraints=[{"distinctAttribute": "d_/a-b"}]), "constraints[0].distinctAttribute invalid, constraints[0].distinctAttribute invalid"),
        (asking(request(), constraints=[{"matchAttribute": f"d/{'x' * 33}"}]), "constraints[0].matchAttribute long"),
        (asking(request(), constraints=[{"matchAttribute": "d/a"}] * 33), "constraints many"),
        (
            asking(alternatives("s"), constraints=[{"matchAttribute": "d/a", "requests": ["r", "r/s", "s", "r/t", "r/s/t", "r"]}]),
            "constraints[0].requests[2] invalid, constraints[0].requests[3] invalid, constraints[0].requests[4] invalid, constraints[0].requests[5] duplicate",
        ),
        (asking(request(), config=[{"requests": ["q"], **OPAQUE}]), "config[0].requests[0] invalid"),
        (asking(request(), config=[{}, {"opaque": {}}]), "config[0].opaque required, config[1].opaque.driver required, config[1].opaque.parameters required"),
        (asking(request(), config=[{"opaque": {"driver": "d_", "parameters": [1]}}]), "config[0].opaque.driver invalid, config[0].opaque.parameters invalid"),
        (asking(request(), config=[{"opaque": {"driver": LONG, "parameters": {"a": "x" * 10240}}}]), "config[0].opaque.driver long, config[0].opaque.parameters long"),
        (asking(request(), config=[OPAQUE] * 33), "config many"),
        (asking(request("a"), request(adminAccess=True)), "requests[1].adminAccess forbidden"),
    ],
)  # fmt: skip
def test_bad_requests(api, spec, wrong) -> None:
    """In a claim, and in a template, where it lies deeper; whether access is granted is told of either as of a claim."""
    found = mistakes(lambda: make(api, RESOURCE_CLAIMS, spec))
    assert found == [(f"spec.devices.{path}", reason) for path, reason in expected(wrong)]
    deeper = mistakes(lambda: make(api, RESOURCE_CLAIM_TEMPLATES, {"spec": spec}))
    root = "spec.devices." if "adminAccess" in wrong else "spec.spec.devices."
    assert deeper == [(f"{root}{path}", reason) for path, reason in expected(wrong)]


def test_labels_have_no_dots(api) -> None:
    with pytest.raises(ApiError, match=r'Invalid value: "a\.b": must not contain dots$'):
        make(api, RESOURCE_CLAIMS, asking(request("a.b")))


def test_admin_access_needs_a_label_of_the_namespace(api) -> None:
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    api.patch(NAMESPACES, "", "default", label, patch_type=MERGE_PATCH)
    make(api, RESOURCE_CLAIMS, asking(request("a", adminAccess=True)))
    make(api, RESOURCE_CLAIM_TEMPLATES, {"spec": asking(request(adminAccess=True))})
    set_status(api, allocation=allocated(result(adminAccess=True)))


def test_what_is_asked_for_does_not_change(api) -> None:
    make(api, RESOURCE_CLAIMS, asking(request()))
    spec = {"spec": asking(request("other", count=-1))}
    assert mistakes(lambda: change(api, RESOURCE_CLAIMS, spec)) == expected("spec invalid")
    make(api, RESOURCE_CLAIM_TEMPLATES, {"spec": asking(request())})
    labels = {"spec": {"metadata": {"labels": {"a": "b"}}}}
    refused = mistakes(lambda: change(api, RESOURCE_CLAIM_TEMPLATES, labels))
    assert refused == expected("spec invalid")
    for kind in (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES):
        labelled = change(api, kind, {"metadata": {"labels": {"a": "b"}}})
        assert labelled["metadata"]["labels"] == {"a": "b"}


def test_templates_give_claims_labels_and_annotations_only(api) -> None:
    metadata = {"labels": {"a b": "c"}, "annotations": {"d e": "f"}, "name": "x"}
    spec = {"metadata": metadata, "spec": asking(request())}
    wrong = "spec.metadata.labels invalid, spec.metadata.annotations invalid, spec.metadata.name forbidden"
    assert mistakes(lambda: make(api, RESOURCE_CLAIM_TEMPLATES, spec)) == expected(wrong)


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({"selectors": [{}]}, "spec.selectors[0].cel required"),
        ({"selectors": [{"cel": {"expression": "1"}}]}, "spec.selectors[0].cel.expression invalid"),
        ({"config": [{}]}, "spec.config[0].opaque required"),
        ({"config": [OPAQUE] * 33}, "spec.config many"),
        *(
            ({"extendedResourceName": name}, "spec.extendedResourceName invalid")
            for name in ("gpu", "kubernetes.io/gpu", "requests.example.com/gpu", "d_/gpu", f"d/{LONG}", "")
        ),
    ],
)  # fmt: skip
def test_bad_classes(api, spec, wrong) -> None:
    assert mistakes(lambda: make(api, DEVICE_CLASSES, spec)) == expected(wrong)


def test_classes_count_generations(api) -> None:
    assert make(api, DEVICE_CLASSES, {})["metadata"]["generation"] == 1
    changed = change(api, DEVICE_CLASSES, {"spec": {"extendedResourceName": "example.com/gpu"}})
    assert changed["metadata"]["generation"] == 2


# ---------------------------------------------------------------- what is offered

SHARED = {"allowMultipleAllocations": True}


def amount(policy=None, value="10"):
    return {"value": value} if policy is None else {"value": value, "requestPolicy": policy}


def policies(*given):
    """A device that may be shared, with a capacity of 10 for each policy."""
    return device(capacity={f"c{number}": amount(each) for number, each in enumerate(given)}, **SHARED)  # fmt: skip


GOOD_SLICES = [
    offering(),
    offering(device(attributes={"a": {"int": 1}, "d.e/b": {"bool": False}, "c": {"string": ""}, "v": {"version": "1.2.3-a.b+c"}})),
    offering(*(device(f"d{number}") for number in range(128))),
    anywhere(nodeSelector={"nodeSelectorTerms": [TERM]}),
    anywhere(allNodes=True),
    anywhere(device(nodeName="n"), device("e", allNodes=True), perDeviceNodeSelection=True),
    counting({"name": "s", "counters": {"memory": {"value": "1Gi"}}}),
    offering(device(consumesCounters=[{"counterSet": "s", "counters": {"memory": {}}}])),
    offering(device(bindingConditions=["a"], bindingFailureConditions=["b"])),
    offering(policies({"default": "1", "validValues": ["1", "2"]}, {"default": "2", "validRange": {"min": "2", "max": "8", "step": "2"}}, {"default": "1"})),
    offering(device(taints=[{"key": "a", "value": "b", "effect": "None"}])),
]  # fmt: skip


@pytest.mark.parametrize("spec", GOOD_SLICES)
def test_good_slices(api, spec) -> None:
    assert make(api, RESOURCE_SLICES, spec)["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({}, "driver required, pool.name required, pool.resourceSliceCount invalid, spec required"),
        (offering(driver=f"{LONG}_"), "driver long, driver invalid"),
        (offering(pool={"name": "a/B", "generation": -1, "resourceSliceCount": -1}), "pool.name invalid, pool.generation invalid, pool.resourceSliceCount invalid"),
        (offering(nodeName="N_"), "nodeName invalid"),
        (offering(nodeName=""), "nodeName invalid, spec required"),
        (offering(allNodes=True), "spec invalid"),
        (anywhere(allNodes=False, perDeviceNodeSelection=False), "allNodes invalid, perDeviceNodeSelection invalid, spec required"),
        (anywhere(nodeSelector={}), "nodeSelector.nodeSelectorTerms required, nodeSelector.nodeSelectorTerms invalid"),
        (anywhere(nodeSelector={"nodeSelectorTerms": [TERM, TERM]}), "nodeSelector.nodeSelectorTerms invalid"),
        (offering(sharedCounters=[]), "spec invalid"),
        (offering(*(device(f"d{number}") for number in range(129))), "devices many"),
        (offering(*(device(f"d{number}", taints=[{"key": "a", "effect": "None"}]) for number in range(65))), "devices many"),
        (offering(device("D_"), device()), "devices[0].name invalid"),
        (offering(device(), device()), "devices[1] duplicate"),
        (offering(device(nodeName="n")), "devices[0] invalid"),
        (
            anywhere(device(), device("e", nodeName="n", allNodes=True), device("f", nodeName=""), device("g", allNodes=False), perDeviceNodeSelection=True),
            "devices[0] required, devices[1] invalid, devices[2] required, devices[2].nodeName invalid, devices[3] required, devices[3].allNodes invalid",
        ),
        (offering(device(attributes={"a": {}, "b": {"int": 1, "bool": True}})), "devices[0].attributes[a] invalid, devices[0].attributes[b] invalid"),
        (offering(device(attributes={"a": {"string": "x" * 65}, "b": {"version": "1.2"}})), "devices[0].attributes[a].string long, devices[0].attributes[b].version invalid"),
        (offering(device(attributes={"a-b": {"int": 1}, "/c": {"int": 1}, "d.e/": {"int": 1}})), "devices[0].attributes invalid, devices[0].attributes invalid, devices[0].attributes invalid"),
        (offering(device(attributes={f"a{number}": {"int": 1} for number in range(32)}, capacity={"c": amount()})), "devices[0] invalid"),
        (offering(device(taints=[{"effect": "None"}, {"key": "a"}, {"key": "a", "effect": "X", "value": "-"}])), "devices[0].taints[0].key invalid, devices[0].taints[0].key invalid, devices[0].taints[1].effect required, devices[0].taints[2].effect unknown, devices[0].taints[2].value invalid"),
        (offering(device(taints=[{"key": "a", "effect": "None"}] * 17)), "devices[0].taints many"),
        (counting({"counters": {"c": {}}}, {"name": "S_"}), "sharedCounters[0].name required, sharedCounters[1].name invalid, sharedCounters[1].counters required"),
        (counting({"name": "s", "counters": {f"c{number}": {} for number in range(33)}}), "sharedCounters[0].counters many"),
        (counting(*({"name": f"s{number}", "counters": {"c": {}}} for number in range(9))), "sharedCounters many"),
        (offering(device(consumesCounters=[{}])), "devices[0].consumesCounters[0].counterSet required, devices[0].consumesCounters[0].counters required"),
        (offering(device(consumesCounters=[{"counterSet": "s", "counters": {"c": {}}}] * 2)), "devices[0].consumesCounters[1] duplicate"),
        (offering(device(consumesCounters=[{"counterSet": "s", "counters": {"c": {}}}] * 3)), "devices[0].consumesCounters many"),
        (offering(device(bindingConditions=["a"]), device("e", bindingFailureConditions=["a"])), "devices[0].bindingFailureConditions invalid, devices[1].bindingConditions invalid"),
        (offering(device(bindingConditions=["a", "a"], bindingFailureConditions=["a"])), "devices[0].bindingConditions[1] duplicate, devices[0].bindingFailureConditions[0] invalid"),
        (offering(device(capacity={"c": amount({"default": "1"})})), "devices[0].capacity[c].requestPolicy forbidden"),
        (offering(policies({"validValues": ["1"], "validRange": {"min": "1"}})), "devices[0].capacity[c0].requestPolicy forbidden"),
        (offering(policies({"validValues": ["1"]}, {"validRange": {"min": "1"}})), "devices[0].capacity[c0].requestPolicy.default required, devices[0].capacity[c1].requestPolicy.default required"),
        (offering(policies({"default": "3", "validValues": ["1", "2"]})), "devices[0].capacity[c0].requestPolicy.validValues invalid"),
        (offering(policies({"default": "2", "validValues": ["2", "1", "20"]})), "devices[0].capacity[c0].requestPolicy.validValues[1] invalid, devices[0].capacity[c0].requestPolicy.validValues[2] invalid"),
        (offering(policies({"default": "2", "validValues": ["2", "2"]})), "devices[0].capacity[c0].requestPolicy.validValues[1] duplicate"),
        (offering(policies({"default": "2", "validRange": {}})), "devices[0].capacity[c0].requestPolicy.validRange.min required"),
        (offering(policies({"default": "1", "validRange": {"min": "2", "max": "1"}})), "devices[0].capacity[c0].requestPolicy.validRange.min invalid, devices[0].capacity[c0].requestPolicy.validRange.max invalid"),
        (offering(policies({"default": "5", "validRange": {"min": "2", "max": "20", "step": "2"}})), "devices[0].capacity[c0].requestPolicy.validRange.max invalid, devices[0].capacity[c0].requestPolicy.validRange.step invalid"),
    ],
)  # fmt: skip
def test_bad_slices(api, spec, wrong) -> None:
    found = mistakes(lambda: make(api, RESOURCE_SLICES, spec))
    paths = ((path if path == "spec" else f"spec.{path}", why) for path, why in expected(wrong))
    assert found == sorted(paths)


def test_amounts_that_are_none_are_bad_requests(api) -> None:
    spec = offering(device(capacity={"c": amount(value="much")}))
    with pytest.raises(ApiError, match="quantities must match") as caught:
        make(api, RESOURCE_SLICES, spec)
    assert caught.value.code == 400


def test_slices_keep_driver_pool_and_node(api) -> None:
    make(api, RESOURCE_SLICES, offering(device()))
    moved = {"spec": {"driver": "d", "nodeName": "m", "pool": {"name": "q"}}}
    wrong = "spec.driver invalid, spec.nodeName invalid, spec.pool.name invalid"
    assert mistakes(lambda: change(api, RESOURCE_SLICES, moved)) == expected(wrong)
    taint = {"key": "a", "effect": "NoSchedule"}
    spec = {"devices": [device("e", taints=[taint])], "pool": {"generation": 2}}
    changed = change(api, RESOURCE_SLICES, {"spec": spec})
    assert changed["metadata"]["generation"] == 2
    (found,) = changed["spec"]["devices"]
    assert found["taints"] == [taint | {"timeAdded": "1970-01-01T00:00:00Z"}]


# ---------------------------------------------------------------- what is allocated


@pytest.fixture
def claimed(api):
    """An API with a claim ``x`` that has the requests ``a``, and ``r`` with alternatives."""
    make(api, RESOURCE_CLAIMS, asking(request("a"), alternatives("s")))
    return api


def spoken(**fields):
    return {"driver": DRIVER, "pool": "p", "device": "d", **fields}


CONDITION = {"type": "Ready", "status": "True", "reason": "Up", "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
GOOD_STATUS = [
    {"allocation": {}},
    {"allocation": allocated(result())},
    {"allocation": allocated(result(), result("r/s", device="e"), result("r", device="f"))},
    {"allocation": allocated(result()), "reservedFor": [consumer(str(number)) for number in range(256)]},
    {"allocation": allocated(result(shareID="11111111-1111-4111-8111-11111111111a"))},
    {"allocation": allocated(nodeSelector={"nodeSelectorTerms": [TERM]})},
    {"allocation": allocated(result()), "devices": [spoken(conditions=[CONDITION], data={}, networkData={"ips": ["10.0.0.1/24"]})]},
]  # fmt: skip


@pytest.mark.parametrize("status", GOOD_STATUS)
def test_good_status(claimed, status) -> None:
    assert set_status(claimed, **status)["status"].keys() == status.keys()


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        ({"reservedFor": [consumer()]}, "reservedFor forbidden"),
        ({"allocation": {}, "reservedFor": [{}]}, "reservedFor[0].resource required, reservedFor[0].name required, reservedFor[0].uid required"),
        ({"allocation": {}, "reservedFor": [consumer(), consumer(name="q")]}, "reservedFor[1] duplicate"),
        ({"allocation": {}, "reservedFor": [consumer(str(number)) for number in range(257)]}, "reservedFor many"),
        ({"allocation": allocated(result("z"), result("r/t"))}, "allocation.devices.results[0].request invalid, allocation.devices.results[1].request invalid"),
        ({"allocation": allocated(result(driver="d_", pool="P", device=""))}, "allocation.devices.results[0].driver invalid, allocation.devices.results[0].pool invalid, allocation.devices.results[0].device invalid"),
        ({"allocation": allocated(*[result()] * 33)}, "allocation.devices.results many"),
        ({"allocation": allocated(result(bindingConditions=["a"]))}, "allocation.devices.results[0].bindingFailureConditions invalid"),
        ({"allocation": allocated(result(shareID="1"), result(shareID="11111111-1111-4111-8111-11111111111A"))}, "allocation.devices.results[0].shareID invalid, allocation.devices.results[1].shareID invalid"),
        ({"allocation": {"devices": {"config": [OPAQUE, {"source": "X", **OPAQUE}, {"source": "FromClass"}]}}}, "allocation.devices.config[0].source required, allocation.devices.config[1].source unknown, allocation.devices.config[2].opaque required"),
        ({"allocation": {"devices": {"config": [{"source": "FromClass", **OPAQUE}] * 65}}}, "allocation.devices.config many"),
        ({"allocation": allocated(nodeSelector={})}, "allocation.nodeSelector.nodeSelectorTerms required"),
        ({"allocation": allocated(result(adminAccess=True))}, "allocation.devices.results[0].adminAccess forbidden"),
        ({"devices": [spoken()]}, "devices[0] invalid"),
        ({"allocation": allocated(result()), "devices": [spoken(), spoken(), spoken(device="e")]}, "devices[1] duplicate, devices[2] invalid"),
        ({"allocation": allocated(result()), "devices": [spoken(conditions=[CONDITION, {"type": "Ready", "status": "X"}])]}, "devices[0].conditions[1].type duplicate, devices[0].conditions[1].status unknown, devices[0].conditions[1].reason required, devices[0].conditions[1].lastTransitionTime required"),
        ({"allocation": allocated(result()), "devices": [spoken(conditions=[CONDITION | {"type": f"T{number}"} for number in range(9)])]}, "devices[0].conditions many"),
        ({"allocation": allocated(result()), "devices": [spoken(data=[1], networkData={"interfaceName": "x" * 257, "ips": ["10.0.0.1", "10.0.0.1/24", "10.0.0.1/24"]})]}, "devices[0].data invalid, devices[0].networkData.interfaceName long, devices[0].networkData.ips[0] invalid, devices[0].networkData.ips[2] duplicate"),
    ],
)  # fmt: skip
def test_bad_status(claimed, status, wrong) -> None:
    found = mistakes(lambda: set_status(claimed, **status))
    assert found == [(f"status.{path}", reason) for path, reason in expected(wrong)]


def test_an_allocation_is_written_and_removed_as_a_whole(claimed) -> None:
    set_status(claimed, allocation=allocated(result()), reservedFor=[consumer()])
    other = {"devices": {"results": [result(device="e")]}}
    refused = mistakes(lambda: set_status(claimed, allocation=other))
    assert refused == expected("status.allocation invalid")
    refused = mistakes(lambda: set_status(claimed, allocation=None))
    assert refused == expected("status.reservedFor forbidden")
    assert set_status(claimed, allocation=None, reservedFor=None)["status"] == {}
    assert set_status(claimed, allocation=other)["status"] == {"allocation": other}


def test_what_drivers_said_goes_with_the_device(claimed) -> None:
    set_status(claimed, allocation=allocated(result()), devices=[spoken()])
    assert set_status(claimed, allocation=None)["status"] == {}


def test_a_status_changes_nothing_else(claimed) -> None:
    before = claimed.get(RESOURCE_CLAIMS, "default", "x").value
    patch = {
        "metadata": {"labels": {"a": "b"}, "finalizers": [FINALIZER]},
        "spec": asking(request("other")),
        "status": {"allocation": allocated(result())},
    }
    after = change(claimed, RESOURCE_CLAIMS, patch, "status")
    assert after["spec"] == before["spec"]
    assert after["metadata"].keys() == before["metadata"].keys()
    unchanged = change(claimed, RESOURCE_CLAIMS, {"status": {"allocation": None}})
    assert unchanged["status"] == after["status"]


def test_a_claim_that_is_on_its_way_out_gets_no_new_consumers(claimed) -> None:
    change(claimed, RESOURCE_CLAIMS, {"metadata": {"finalizers": [FINALIZER]}})
    set_status(claimed, allocation=allocated(result()), reservedFor=[consumer()])
    delete(claimed, RESOURCE_CLAIMS, "default", "x", DeleteOptions())
    more = [consumer(), consumer("2", name="q")]
    refused = mistakes(lambda: set_status(claimed, reservedFor=more))
    assert refused == expected("status.reservedFor forbidden")
    with pytest.raises(ApiError, match=r"^object is being deleted: resourceclaims"):
        make(claimed, RESOURCE_CLAIMS, asking())
    assert "reservedFor" not in set_status(claimed, reservedFor=None)["status"]
    change(claimed, RESOURCE_CLAIMS, {"metadata": {"finalizers": None}})
    assert claimed.find(RESOURCE_CLAIMS, "default", "x") is None


# ---------------------------------------------------------------- pods


def entry(name="a", **fields):
    return {"name": name, "resourceClaimName": "c"} | fields


@pytest.mark.parametrize(
    ("entries", "references", "wrong"),
    [
        ([entry("")], [], "resourceClaims[0].name required"),
        ([entry("A_", resourceClaimName="C_")], [], "resourceClaims[0].name invalid, resourceClaims[0].resourceClaimName invalid"),
        ([entry(), entry()], [], "resourceClaims[1].name duplicate"),
        ([{"name": "a"}], [], "resourceClaims[0] invalid"),
        ([entry(resourceClaimTemplateName="t")], [], "resourceClaims[0] invalid"),
        ([entry()], [{"name": "b"}], "containers[0].resources.claims[0] missing"),
        ([], [{"name": "b"}], "containers[0].resources.claims[0] missing"),
        ([entry()], [{}], "containers[0].resources.claims[0] required"),
        ([entry()], [{"name": "a"}, {"name": "a", "request": "r"}], "containers[0].resources.claims[1] duplicate"),
        ([entry()], [{"name": "a", "request": "r"}, {"name": "a"}], "containers[0].resources.claims[1] duplicate"),
        ([entry()], [{"name": "a", "request": "r"}, {"name": "a", "request": "r"}], "containers[0].resources.claims[1] duplicate"),
        ([entry()], [{"name": "a", "request": "R_"}], "containers[0].resources.claims[0].request invalid"),
    ],
)  # fmt: skip
def test_bad_claims_of_pods(api, entries, references, wrong) -> None:
    value = pod("p", resourceClaims=entries)
    value["spec"]["containers"][0]["resources"] = {"claims": references}
    found = mistakes(lambda: api.create(PODS, "default", value))
    assert found == [(f"spec.{path}", reason) for path, reason in expected(wrong)]


MAPPED = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}


def extended(*mappings, **fields):
    return {"extendedResourceClaimStatus": {"requestMappings": list(mappings)} | fields}


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        ({"resourceClaimStatuses": [{"name": "b"}]}, "resourceClaimStatuses[0].name invalid"),
        ({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "C_"}, {"name": "a"}]}, "resourceClaimStatuses[0].resourceClaimName invalid, resourceClaimStatuses[1].name duplicate"),
        (extended(), "extendedResourceClaimStatus.requestMappings required, extendedResourceClaimStatus.resourceClaimName required"),
        (extended(MAPPED | {"containerName": "d", "requestName": ""}, resourceClaimName="C_"), "extendedResourceClaimStatus.requestMappings[0].containerName invalid, extendedResourceClaimStatus.requestName invalid, extendedResourceClaimStatus.resourceClaimName invalid"),
        (extended(MAPPED | {"resourceName": "cpu"}, resourceClaimName="c"), "extendedResourceClaimStatus.requestMappings[0].resourceName invalid"),
        (extended(MAPPED, MAPPED, resourceClaimName="c"), ", ".join(f"extendedResourceClaimStatus.requestMappings[1].{part} duplicate" for part in MAPPED)),
    ],
)  # fmt: skip
def test_what_a_pod_is_said_to_have(api, status, wrong) -> None:
    value = pod("x", resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}])
    value["spec"]["containers"][0]["resources"] = {"requests": {"example.com/gpu": "1"}}
    api.create(PODS, "default", value)
    found = mistakes(lambda: change(api, PODS, {"status": status}, "status"))
    assert found == [(f"status.{path}", reason) for path, reason in expected(wrong)]
    good = extended(MAPPED, resourceClaimName="c") | {"resourceClaimStatuses": [{"name": "a"}]}
    assert change(api, PODS, {"status": good}, "status")["status"].keys() >= good.keys()


def test_containers_share_what_a_pod_claims(api) -> None:
    value = pod("p", resourceClaims=[entry(), {"name": "b", "resourceClaimTemplateName": "t"}])
    references = [{"name": "a", "request": "r"}, {"name": "a", "request": "s"}, {"name": "b"}]
    value["spec"]["containers"][0]["resources"] = {"claims": references}
    api.create(PODS, "default", value)
