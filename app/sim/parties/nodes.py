"""Nodes made by the dozen, for clusters that only pretend."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from app.sim.store import Object

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
    """How many nodes, and what they are like. Quantities are Kubernetes' own (``32``, ``256Gi``)."""

    count: int = 0
    prefix: str = "node-"
    """Names are the prefix and a number from 0 on, all of the same width."""
    zones: int = 3
    """Nodes are dealt to ``zone-0``, ``zone-1`` ... in turn."""
    region: str = "region-0"
    cpu: str = "32"
    memory: str = "256Gi"
    ephemeral_storage: str = "100Gi"
    pods: str = "110"
    instance_types: tuple[str, ...] = ("m5.large", "m5.xlarge", "m5.2xlarge")
    """Dealt in turn, as a label only."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Further labels of every node."""
    taints: tuple[Mapping[str, str], ...] = ()
    """Taints of every node: ``{"key": ..., "value": ..., "effect": ...}``."""
    images: Mapping[str, int] = field(default_factory=dict)
    """Images that every node has: name -> size in bytes."""
    devices: int = 0
    """Devices of every node, of the class ``gpu.example.com``."""
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
