"""DaemonSets: one pod on each node that the template allows."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from app.model.objects import Node
from app.model.pod import Pod
from app.plugins.helpers.node_selector import RequiredNodeAffinity
from app.plugins.helpers.tolerations import find_untolerated
from app.sim.api import Api
from app.sim.controllers.workloads.plan import (
    BURST,
    Create,
    Delete,
    ObjectChange,
    Plan,
    Scene,
    counted,
    is_active,
    ready_for,
    scaled,
)
from app.sim.controllers.workloads.revisions import current_revision, forgotten
from app.sim.controllers.workloads.templates import REVISION_LABEL, pod_of
from app.sim.objects import has_ended, labels_of
from app.sim.resources.kinds import NODES, PODS
from app.sim.store import Object, Record
from app.wire.kube import DecodeError, NodeDecoder, PodDecoder

_LOOKED_AT_ONCE: Final = 500
"""Nodes that are compared with a template before other work has its turn."""
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
    """The spec of the pod for one node: its required node affinity is replaced by that node."""
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


def wanted_nodes(spec: Object, nodes: Iterable[Node]) -> Iterator[str]:
    """The nodes that the spec's name, selector, affinity and tolerations allow, whether or not there is room.

    Raises DecodeError if the spec cannot be read.
    """
    pod = PodDecoder().decode(msgspec.json.encode({"metadata": {"name": "daemon"}, "spec": spec}))
    affinity = RequiredNodeAffinity.of(pod.spec)
    for node in nodes:
        if _suits(pod, node) and affinity.matches_node(node):
            yield node.name


def _suits(pod: Pod, node: Node) -> bool:
    return pod.node_name in ("", node.name) and (
        find_untolerated(node.spec.taints or (), pod.spec.tolerations or ()) is None
    )


class NodeChoice:
    """The nodes that a template wants a pod on. Each node is looked at once, and again after it has changed."""

    def __init__(self, spec: Object) -> None:
        """``spec``: that of the template."""
        self.spec = spec
        self.nodes: list[str] = []
        """The names of those nodes."""
        self._verdicts: dict[str, bool] = {}
        """name -> whether a pod is wanted there."""

    def forget(self, name: str) -> None:
        """Looks at a node again, or forgets it."""
        self._verdicts.pop(name, None)

    def look(self, api: Api) -> bool:
        """Brings ``nodes`` up to date. Returns whether it was enough to look at some hundred nodes; if not, call it
        again.

        Raises DecodeError if the template cannot be read.
        """
        verdicts, records = self._verdicts, api.store[NODES.storage].records
        new = [key for key in records if key[1] not in verdicts]
        looked = [records[key] for key in new[:_LOOKED_AT_ONCE]]
        if looked:
            wanted = set(wanted_nodes(daemon_spec(self.spec), _decoded(looked)))
            verdicts |= {record.name: record.name in wanted for record in looked}
        if len(looked) < len(new):
            return False
        self.nodes = [name for name, verdict in verdicts.items() if verdict]
        return True


def _decoded(records: Iterable[Record]) -> Iterator[Node]:
    """All nodes that can be decoded."""
    for record in records:
        with contextlib.suppress(DecodeError):
            yield NodeDecoder().decode(record.raw)


def plan_daemon_set(scene: Scene) -> Plan:
    """Creates the missing pods, deletes those on other nodes, and replaces old ones as the strategy says."""
    owner = scene.workload
    mark, actions = current_revision(scene)
    by_node: dict[str, list[Object]] = defaultdict(list)
    for pod in scene.pods:
        by_node[_node_of(pod)].append(pod)
    wanted = set(scene.nodes)
    spec = daemon_spec(owner["spec"]["template"]["spec"])
    missing = [node for node in scene.nodes if node not in by_node]
    plan = Plan({}, actions)
    plan.actions += [
        Create(PODS, pod_of(owner, labels={REVISION_LABEL: mark}, spec=pinned(spec, node)))
        for node in missing[:BURST]
    ]
    kept: list[Object] = []
    misplaced = 0
    for node, pods in by_node.items():
        if len(pods) == 1 and node in wanted and is_active(pods[0]):
            kept.append(pods[0])  # nearly all of them
            continue
        living = list(filter(is_active, pods))
        if len(living) > 1:
            living.sort(key=_keeping_order)
        stays = 1 if node in wanted else 0
        misplaced += bool(living) and not stays
        kept += living[:stays]
        plan.actions += [Delete(PODS, pod) for pod in living[stays:]]
        if len(living) < len(pods):
            plan.actions += [Delete(PODS, pod) for pod in filter(has_ended, pods)]
    min_ready = owner["spec"].get("minReadySeconds", 0)
    counts = counted(kept, min_ready, scene.now)
    plan.again = counts.soonest
    old = [pod for pod in kept if _mark(pod) != mark]
    plan.actions += _replaced(scene, old, counts.available)
    if len(scene.revisions) > 1:
        plan.actions += forgotten(scene, {_mark(pod) for pod in scene.pods} | {mark})
    plan.status = {
        "currentNumberScheduled": counts.replicas,
        "numberMisscheduled": misplaced,
        "desiredNumberScheduled": len(wanted),
        "numberReady": counts.ready,
        "observedGeneration": owner["metadata"].get("generation", 1),
        "updatedNumberScheduled": len(kept) - len(old),
        "numberAvailable": counts.available,
        "numberUnavailable": len(wanted) - counts.available,
    }
    return plan


def _replaced(scene: Scene, old: Sequence[Object], available: int) -> list[ObjectChange]:
    """Deletes pods of an old template: those that are not available, and as many others as may be unavailable.

    ``available``: how many pods are, of the old and the new template.
    """
    spec = scene.workload["spec"]
    strategy = spec.get("updateStrategy") or {}
    if not old or strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return []
    wanted = len(scene.nodes)
    rolling = strategy.get("rollingUpdate") or {}
    bound = rolling.get("maxUnavailable") or rolling.get("maxSurge") or 1
    min_ready = max(0, spec.get("minReadySeconds", 0))
    free = max(1, scaled(bound, wanted, round_up=True)) - (wanted - available)
    idle: list[Object] = []
    busy: list[Object] = []
    for pod in old:
        (busy if ready_for(pod, scene.now) >= min_ready else idle).append(pod)
    return [Delete(PODS, pod) for pod in (*idle, *busy[: max(0, free)])]


def _keeping_order(pod: Object) -> tuple[bool, str]:
    """Of several pods for a node the oldest one that is bound stays."""
    return not pod["spec"].get("nodeName"), pod["metadata"]["creationTimestamp"]


def _node_of(pod: Object) -> str:
    return pod["spec"].get("nodeName") or pinned_to(pod)


def _mark(pod: Object) -> str:
    return labels_of(pod).get(REVISION_LABEL, "")
