"""Nodes, and the devices on them, for clusters that run no containers.

The driver, class and devices have the names that the Kubernetes documentation uses, so that its manifests work.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import NAMESPACE_DNS, uuid5

from app.sim.store import Object

DRIVER: Final = "gpu.example.com"
_MOST_IN_A_SLICE: Final = 128

_KUBELET_VERSION: Final = "v1.36.0"
_FIRST_ADDRESS: Final = (10 << 24) | (1 << 16)
_CONDITIONS: Final = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("Ready", "True", "KubeletReady"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The number of nodes and their properties. Resources are Kubernetes quantities (``32``, ``256Gi``)."""

    count: int = 0
    prefix: str = "node-"
    """Names are the prefix and a number, padded to the same width."""
    zones: int = 3
    """Nodes are in ``zone-0``, ``zone-1`` ... in turn."""
    region: str = "region-0"
    cpu: str = "32"
    memory: str = "256Gi"
    ephemeral_storage: str = "100Gi"
    pods: str = "110"
    instance_types: tuple[str, ...] = ("m5.large", "m5.xlarge", "m5.2xlarge")
    """The instance types of nodes in turn, as a label only."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Additional labels of every node."""
    taints: tuple[Mapping[str, str], ...] = ()
    """Taints of every node: ``{"key": ..., "value": ..., "effect": ...}``."""
    images: Mapping[str, int] = field(default_factory=dict)
    """Images that every node has: name -> size in bytes."""
    devices: int = 0
    """The number of devices of every node, of the class ``gpu.example.com``."""
    first: int = 0
    """Number of the first node."""


def make_nodes(options: NodeOptions, *, timestamp: str) -> Iterator[Object]:
    """Yields Node objects that are ready; ``timestamp`` is that of their conditions, in RFC 3339."""
    width = len(str(max(options.first + options.count - 1, 0)))
    for number in range(options.first, options.first + options.count):
        yield _node(options, number, f"{options.prefix}{number:0{width}d}", timestamp)


def _node(options: NodeOptions, number: int, name: str, timestamp: str) -> Object:
    spec: Object = {"taints": [dict(taint) for taint in options.taints]} if options.taints else {}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": _labels(options, number, name)},
        "spec": spec,
        "status": _status(options, number, name, timestamp),
    }


def _labels(options: NodeOptions, number: int, name: str) -> dict[str, str]:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": options.region,
    }
    if options.zones > 0:
        labels["topology.kubernetes.io/zone"] = f"zone-{number % options.zones}"
    if options.instance_types:
        instance_type = options.instance_types[number % len(options.instance_types)]
        labels["node.kubernetes.io/instance-type"] = instance_type
    return labels | dict(options.labels)


def _status(options: NodeOptions, number: int, name: str, timestamp: str) -> Object:
    resources = {
        "cpu": options.cpu,
        "memory": options.memory,
        "ephemeral-storage": options.ephemeral_storage,
        "pods": options.pods,
    }
    address = ".".join(str(byte) for byte in (_FIRST_ADDRESS + number + 1).to_bytes(4, "big"))
    return {
        "capacity": resources,
        "allocatable": dict(resources),
        "conditions": [
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "lastHeartbeatTime": timestamp,
                "lastTransitionTime": timestamp,
            }
            for type_, status, reason in _CONDITIONS
        ],
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "kubeletVersion": _KUBELET_VERSION,
            "osImage": "pretended",
            "kernelVersion": "pretended",
            "containerRuntimeVersion": "pretended://1.0",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "images": [{"names": [image], "sizeBytes": size} for image, size in options.images.items()],
    }


# ---------------------------------------------------------------- devices


def device_class() -> Object:
    """The class of all devices of the driver, with the driver's name."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    return {"metadata": {"name": DRIVER}, "spec": {"selectors": [selector]}}


def make_slices(node: Object, count: int) -> Iterator[Object]:
    """Yields the slices of a node with ``count`` devices. The node owns them."""
    name, uid = (node["metadata"][part] for part in ("name", "uid"))
    parts = -(-count // _MOST_IN_A_SLICE)
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
    for part in range(parts):
        numbers = range(part * _MOST_IN_A_SLICE, min((part + 1) * _MOST_IN_A_SLICE, count))
        yield {
            "metadata": {"name": slice_name(name, part), "ownerReferences": [owner]},
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": parts},
                "devices": [_device(name, number) for number in numbers],
            },
        }


def slice_name(node: str, part: int) -> str:
    return f"{node}-{DRIVER}-{part}"


def _device(node: str, number: int) -> Object:
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "index": {"int": number},
            "uuid": {"string": f"gpu-{uuid5(NAMESPACE_DNS, f'{number}.{node}')}"},
            "model": {"string": "LATEST-GPU-MODEL"},
            "driverVersion": {"version": "1.0.0"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }
