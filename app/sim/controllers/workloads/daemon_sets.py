"""DaemonSets: one pod on each node that the template allows."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from app.model.objects import Node
from app.model.pod import Pod
from app.plugins.helpers.node_selector import RequiredNodeAffinity
from app.plugins.helpers.tolerations import find_untolerated
from app.sim.controllers.workloads.plan import (
    Action,
    Create,
    Delete,
    Plan,
    Scene,
    counted,
    is_active,
    ready_for,
    scaled,
)
from app.sim.controllers.workloads.replica_sets import BURST
from app.sim.controllers.workloads.revisions import current_revision, forgotten
from app.sim.controllers.workloads.templates import REVISION_LABEL, pod_of
from app.sim.objects import has_ended, labels_of
from app.sim.resources.kinds import PODS
from app.sim.store import Object
from app.wire.kube import PodDecoder

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


def plan_daemon_set(scene: Scene) -> Plan:
    """Creates the missing pods, deletes those on other nodes, and replaces old ones as the strategy says."""
    owner = scene.workload
    mark, actions = current_revision(scene)
    by_node: dict[str, list[Object]] = defaultdict(list)
    for pod in scene.pods:
        by_node[_node_of(pod)].append(pod)
    wanted = set(scene.nodes)
    spec = daemon_spec(owner["spec"]["template"]["spec"])
    missing = [node for node in scene.nodes if not by_node.get(node)]
    plan = Plan({}, actions)
    plan.actions += [
        Create(PODS, pod_of(owner, labels={REVISION_LABEL: mark}, spec=pinned(spec, node)))
        for node in missing[:BURST]
    ]
    kept: list[Object] = []
    for node, pods in by_node.items():
        living = sorted(filter(is_active, pods), key=_keeping_order)
        ended = [pod for pod in pods if has_ended(pod)]
        surplus = living[1:] if node in wanted else living
        plan.actions += [Delete(PODS, pod) for pod in (*surplus, *ended)]
        kept += living[:1] if node in wanted else []
    min_ready = owner["spec"].get("minReadySeconds", 0)
    counts = counted(kept, min_ready, scene.now)
    plan.again = counts.soonest
    plan.actions += _replaced(scene, kept, mark)
    plan.actions += forgotten(scene, {_mark(pod) for pod in scene.pods} | {mark})
    misplaced = sum(
        any(map(is_active, pods)) for node, pods in by_node.items() if node not in wanted
    )
    plan.status = {
        "currentNumberScheduled": counts.replicas,
        "numberMisscheduled": misplaced,
        "desiredNumberScheduled": len(wanted),
        "numberReady": counts.ready,
        "observedGeneration": owner["metadata"].get("generation", 1),
        "updatedNumberScheduled": sum(_mark(pod) == mark for pod in kept),
        "numberAvailable": counts.available,
        "numberUnavailable": len(wanted) - counts.available,
    }
    return plan


def _replaced(scene: Scene, pods: Sequence[Object], mark: str) -> list[Action]:
    """Deletes pods of an old template: those that are not available, and as many others as may be unavailable."""
    spec = scene.workload["spec"]
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return []
    wanted = len(scene.nodes)
    rolling = strategy.get("rollingUpdate") or {}
    bound = rolling.get("maxUnavailable") or rolling.get("maxSurge") or 1
    min_ready = spec.get("minReadySeconds", 0)
    available = {id(pod) for pod in pods if ready_for(pod, scene.now) >= max(0, min_ready)}
    free = max(1, scaled(bound, wanted, round_up=True)) - (wanted - len(available))
    old = [pod for pod in pods if _mark(pod) != mark]
    idle = [pod for pod in old if id(pod) not in available]
    busy = [pod for pod in old if id(pod) in available]
    return [Delete(PODS, pod) for pod in (*idle, *busy[: max(0, free)])]


def _keeping_order(pod: Object) -> tuple[bool, str]:
    """Of several pods for a node the oldest one that is bound stays."""
    return not pod["spec"].get("nodeName"), pod["metadata"]["creationTimestamp"]


def _node_of(pod: Object) -> str:
    return pod["spec"].get("nodeName") or pinned_to(pod)


def _mark(pod: Object) -> str:
    return labels_of(pod).get(REVISION_LABEL, "")
