"""The pod, nodes and victims that check-extender sends: made up, or read from manifests."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from app.model.pod import Pod
from app.model.pod_groups import GroupKey, LabelledPodGroup
from app.wire.extender_v1 import ExtenderArgs, Victims, pod_json
from app.wire.group_v1 import GroupArgs, GroupQuestion
from app.wire.kube import NodeDecoder, PodDecoder

#: Name and namespace of the sample pod, so that it is not mistaken for a real one.
_NAME: Final = "check-extender"
_POD_UID: Final = "00000000-0000-4000-8000-00000c43c000"
_CREATED: Final = "2026-01-01T00:00:00Z"

Manifest = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class SampleObjects:
    """A pod and nodes to send; ``nodes`` are JSON by name."""

    pod: Pod
    nodes: Mapping[str, bytes]

    def args(self) -> ExtenderArgs:
        """The arguments of filter and prioritize."""
        return ExtenderArgs(self.pod, list(self.nodes), self.nodes.get)

    def victims(self) -> Mapping[str, Victims]:
        """A pod to evict on each of the first two nodes."""
        names = list(self.nodes)[:2]
        return {name: Victims((_victim(name, number),)) for number, name in enumerate(names)}

    def mates(self) -> list[Pod]:
        """The pod, and one like it."""
        manifest = json.loads(pod_json(self.pod))
        manifest["metadata"] |= {"name": f"{self.pod.name}-2", "uid": f"{self.pod.uid}-2"}
        return [self.pod, _pod(manifest)]

    def group(self) -> GroupArgs:
        """The arguments of the group verb."""
        key = GroupKey(LabelledPodGroup, self.pod.namespace, _NAME)
        return GroupArgs(key, 2, [GroupQuestion(self.mates(), list(self.nodes))])

    def of_nodes(self, count: int, resource: str) -> "SampleObjects":
        """The same pod, and ``count`` generated nodes of 7 KB with some of the resource."""
        return SampleObjects(self.pod, _nodes(made_up_nodes(count, resource, images=40)))


def made_up(resource: str) -> SampleObjects:
    """A generated pod that requests one of ``resource`` (empty for none), and nodes that have it."""
    return SampleObjects(_pod(_pod_manifest(resource)), _nodes(made_up_nodes(3, resource)))


def from_manifests(
    material: SampleObjects, pod: Manifest | None, nodes: Sequence[Manifest]
) -> SampleObjects:
    """The sample objects with this pod and these nodes instead of the generated ones. Raises ValueError."""
    return SampleObjects(
        material.pod if pod is None else _pod(pod),
        _nodes(nodes) if nodes else material.nodes,
    )


def _pod(manifest: Manifest) -> Pod:
    """Decodes a pod; fields that the API server would set are generated."""
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
    """Nodes like those of a real cluster; ``images`` determines their size."""
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
