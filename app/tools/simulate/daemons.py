"""Which nodes a DaemonSet wants a pod on, and what its controller adds to each pod."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from app.model.objects import Node
from app.model.pod import Pod
from app.plugins.helpers.node_selector import RequiredNodeAffinity
from app.plugins.helpers.tolerations import find_untolerated
from app.wire.kube import NodeDecoder, PodDecoder

Object = dict[str, Any]

_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_TOLERATED_ON_HOST_NETWORK: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def daemon_spec(spec: Object) -> Object:
    """A DaemonSet's pod spec with the tolerations that all daemons have."""
    keys = list(_TOLERATED)
    if spec.get("hostNetwork"):
        keys.append(_TOLERATED_ON_HOST_NETWORK)
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in keys]
    given = spec.get("tolerations", [])
    return spec | {"tolerations": given + [each for each in added if each not in given]}


def pinned(spec: Object, node: str) -> Object:
    """The spec of the pod for one node: its required node affinity is that node, whatever it was before."""
    affinity = spec.get("affinity", {})
    name = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [name]}]}}
    node_affinity = affinity.get("nodeAffinity", {}) | required
    return spec | {"affinity": affinity | {"nodeAffinity": node_affinity}}


def pinned_to(pod: Object) -> str:
    """The node that a daemon's pod is for, by its affinity."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    for term in affinity.get(_REQUIRED, {}).get("nodeSelectorTerms", ()):
        for field in term.get("matchFields", ()):
            if field["key"] == "metadata.name":
                return str(field["values"][0])
    return ""


def wanted_nodes(spec: Object, nodes: Iterable[Object]) -> Iterator[str]:
    """The nodes that the spec's name, selector, affinity and tolerations allow, whether or not there is room."""
    pod = PodDecoder().decode(msgspec.json.encode({"metadata": {"name": "daemon"}, "spec": spec}))
    affinity = RequiredNodeAffinity.of(pod.spec)
    decoder = NodeDecoder()
    for value in nodes:
        node = decoder.decode(msgspec.json.encode(value))
        if _suits(pod, node) and affinity.matches_node(node):
            yield node.name


def _suits(pod: Pod, node: Node) -> bool:
    return pod.node_name in ("", node.name) and (
        find_untolerated(node.spec.taints or (), pod.spec.tolerations or ()) is None
    )
