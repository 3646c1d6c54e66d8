"""The devices that are measured, and the claims for them (KEP-4381).

Every pod has a claim of its own, which is made with it: kube-controller-manager, which makes claims from templates, may
not be there.
"""

from collections.abc import Iterator
from typing import Any, Final

Object = dict[str, Any]

CLASS: Final = "bench.aiokube-scheduler.io"
"""Driver and class."""
_PER_NODE: Final = 8
_MODELS: Final = ("small", "large")
_VERSION: Final = "resource.k8s.io/v1"


def device_class(labels: dict[str, str]) -> Object:
    """The class of all devices."""
    selector = {"cel": {"expression": f'device.driver == "{CLASS}"'}}
    spec = {"selectors": [selector]}
    return _made("DeviceClass", CLASS, labels, spec)


def slices(nodes: int, labels: dict[str, str]) -> Iterator[Object]:
    """What each node has: eight devices, of two models in turn."""
    for number in range(nodes):
        node = f"node-{number:05d}"
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [_device(node, place) for place in range(_PER_NODE)]
        spec = {"driver": CLASS, "nodeName": node, "pool": pool, "devices": devices}
        yield _made("ResourceSlice", f"{node}-{CLASS}", labels, spec)


def _device(node: str, place: int) -> Object:
    return {
        "name": f"device-{place}",
        "attributes": {
            "index": {"int": place},
            "model": {"string": _MODELS[place % len(_MODELS)]},
            "uuid": {"string": f"{node}-{place}"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def claims(pods: int, labels: dict[str, str]) -> Iterator[Object]:
    """A claim for each pod: one device that is large enough, of one of the models."""
    for number in range(pods):
        model = f'device.attributes["{CLASS}"].model == "{_MODELS[number % len(_MODELS)]}"'
        memory = f'device.capacity["{CLASS}"].memory.compareTo(quantity("40Gi")) >= 0'
        selector = {"cel": {"expression": f"{model} && {memory}"}}
        wish = {"deviceClassName": CLASS, "selectors": [selector]}
        spec = {"devices": {"requests": [{"name": "device", "exactly": wish}]}}
        claim = _made("ResourceClaim", claim_name(number), labels, spec)
        claim["metadata"]["namespace"] = "default"
        yield claim


def claim_name(number: int) -> str:
    """The name of a pod's claim."""
    return f"claim-{number:06d}"


def _made(kind: str, name: str, labels: dict[str, str], spec: Object) -> Object:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": _VERSION, "kind": kind, "metadata": metadata, "spec": spec}
