"""What ``check-extender`` sends: a pod, nodes and victims, made up or from manifests, in the bytes a scheduler would send."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from app.model.pod import Pod
from app.wire.extender_v1 import ExtenderArgs, Victims
from app.wire.kube import NodeDecoder, PodDecoder

#: In a namespace of its own, so that nobody takes it for a pod of theirs.
_NAME: Final = "check-extender"
_POD_UID: Final = "00000000-0000-4000-8000-00000c43c000"
_CREATED: Final = "2026-01-01T00:00:00Z"

Manifest = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Material:
    """A pod and nodes to ask about; ``nodes`` by name, as extenders are sent them."""

    pod: Pod
    nodes: Mapping[str, bytes]

    def args(self) -> ExtenderArgs:
        """The question to filter and prioritize."""
        return ExtenderArgs(self.pod, list(self.nodes), self.nodes.get)

    def victims(self) -> Mapping[str, Victims]:
        """A pod to evict on each of the first two nodes."""
        names = list(self.nodes)[:2]
        return {name: Victims((_victim(name, number),)) for number, name in enumerate(names)}

    def of_nodes(self, count: int, resource: str) -> "Material":
        """The same pod, and ``count`` nodes made up, each with some of the resource, 7 KB apiece."""
        return Material(self.pod, _nodes(made_up_nodes(count, resource, images=40)))


def made_up(resource: str, nodes: int = 3) -> Material:
    """A pod that asks for one of ``resource`` (empty for none), and nodes that have it."""
    return Material(_pod(_pod_manifest(resource)), _nodes(made_up_nodes(nodes, resource)))


def from_manifests(material: Material, pod: Manifest | None, nodes: Sequence[Manifest]) -> Material:
    """The material with this pod and these nodes in place of those made up. Raises ValueError."""
    return Material(
        material.pod if pod is None else _pod(pod),
        _nodes(nodes) if nodes else material.nodes,
    )


def _pod(manifest: Manifest) -> Pod:
    """Decodes a pod; what only the API server gives is made up."""
    given = {"namespace": _NAME, "uid": _POD_UID, "creationTimestamp": _CREATED}
    metadata = manifest.get("metadata") or {}
    if isinstance(metadata, Mapping):
        metadata = {**given, **metadata}
    raw = msgspec.json.encode({**manifest, "metadata": metadata})
    return PodDecoder(keep_raw=True, keep_bound_raw=True).decode(raw)


def _nodes(manifests: Iterable[Manifest]) -> dict[str, bytes]:
    decoder = NodeDecoder(keep_raw=True)
    nodes = [decoder.decode(msgspec.json.encode(manifest)) for manifest in manifests]
    return {node.name: node.raw or b"" for node in nodes}


# ---------------------------------------------------------------- made up


def _pod_manifest(resource: str) -> Manifest:
    amounts = {"cpu": "100m", "memory": "64Mi"} | ({resource: "1"} if resource else {})
    container = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"limits": amounts, "requests": amounts},
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "metadata": {"name": _NAME, "labels": {"app": _NAME}},
        "spec": {
            "containers": [container],
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "priority": 0,
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


def _victim(node: str, number: int) -> Pod:
    manifest = dict(_pod_manifest(""))
    manifest["metadata"] = {
        "name": f"victim-{number}",
        "namespace": _NAME,
        "uid": f"{_POD_UID[:-1]}{number + 1}",
        "creationTimestamp": _CREATED,
    }
    manifest["spec"] = {**manifest["spec"], "nodeName": node}
    return _pod(manifest)


def made_up_nodes(count: int, resource: str = "", *, images: int = 4) -> list[Manifest]:
    """Nodes like those of a real cluster; the more ``images``, the larger."""
    return [_node_manifest(number, resource, images) for number in range(count)]


def _node_manifest(number: int, resource: str, images: int) -> Manifest:
    name = f"check-extender-node-{number:04}"
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    if resource:
        amounts[resource] = "4"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"00000000-0000-4000-8000-{number:012x}",
            "resourceVersion": str(1000 + number),
            "creationTimestamp": _CREATED,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
            },
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"podCIDR": f"10.{number // 256}.{number % 256}.0/24"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [_ready()],
            "addresses": [{"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"kubeletVersion": "v1.36.2", "architecture": "amd64"},
            "images": [_image(image) for image in range(images)],
        },
    }


def _ready() -> Manifest:
    return {
        "type": "Ready",
        "status": "True",
        "lastHeartbeatTime": _CREATED,
        "lastTransitionTime": _CREATED,
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
    }


def _image(number: int) -> Manifest:
    digest = f"{number:064x}"
    name = f"registry.example.com/team/service-{number}"
    return {"names": [f"{name}@sha256:{digest}", f"{name}:v1"], "sizeBytes": 10_000_000 + number}
