"""Objects of resource.k8s.io/v1 with mistakes, and without: for the embedded API server, and to compare it with a real
one.

Mistakes are written ``path reason``, with a comma between them; paths are those below the devices of a claim, the spec
of a slice and the status of a claim.
"""

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


def expected(text, root=""):
    """Reads ``path reason, path reason``, with the paths below a root, of which ``spec`` itself may be one."""
    found = (part.split() for part in text.split(", "))
    return sorted((path if path == "spec" else f"{root}{path}", reason) for path, reason in found)


def told(status):
    """The same of a Status: what a request was refused for."""
    assert (status["code"], status["reason"]) == (422, "Invalid"), status
    names = {reason: name for name, reason in REASONS.items()}
    return sorted((cause["field"], names[cause["reason"]]) for cause in status["details"]["causes"])


# ---------------------------------------------------------------- parts


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


# ---------------------------------------------------------------- what is asked for

BAD_REQUESTS = [
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
]  # fmt: skip

BAD_CLASSES = [
    ({"selectors": [{}]}, "spec.selectors[0].cel required"),
    ({"selectors": [{"cel": {"expression": "1"}}]}, "spec.selectors[0].cel.expression invalid"),
    ({"config": [{}]}, "spec.config[0].opaque required"),
    ({"config": [OPAQUE] * 33}, "spec.config many"),
    *(
        ({"extendedResourceName": name}, "spec.extendedResourceName invalid")
        for name in ("gpu", "kubernetes.io/gpu", "requests.example.com/gpu", "d_/gpu", f"d/{LONG}", "")
    ),
]  # fmt: skip

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


BAD_SLICES = [
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
]  # fmt: skip

# ---------------------------------------------------------------- what is allocated


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


BAD_STATUS = [
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
]  # fmt: skip
