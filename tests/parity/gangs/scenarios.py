"""Scenarios of pod groups: steps of operations on a cluster, and the outcome after each step.

An operation is a list of JSON, its name first:

    ["node", name, cpu, rank, rack, {more}]   adds a node; pods prefer a higher ``rank``, so that the choice of node is
    never random ["-node", name]                       deletes a node
    ["group", name, minimum, {more}]      creates a PodGroup; without a minimum its policy is basic; more fields of its
    spec ["-group", name]                      deletes a PodGroup, and what holds it
    ["pods", set, count, cpu, {more}]     creates equal pods; group, priority, gated, never (no preemption by them),
    more of the spec ["-pods", set, where, count]          deletes pods of a set: on this node, those without a node
    (""), or any ("*") ["ungate", set, count]                removes the scheduling gates of all pods, or of so many
    ["end", set, where, count]            pods end, chosen as by "-pods"
    ["make", kind, {object}]              creates an object of another kind
    ["patch", kind, name, {changes}]      merges changes into a node or another object
    ["remove", kind, name]                deletes it

OWN in any text stands for the namespace of the scenario, which the names of its nodes begin with.
Pods of a set are equal, and which of them gets which node is random: the outcome has only their numbers.
Which of two nodes with equal victims is taken is random as well; with the seed of ``replay.play`` it is the recorded
one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

Manifest = dict[str, Any]
Operation = Sequence[Any]

RECORDED: Final = Path(__file__).with_name("recorded.jsonl")
#: The gates with which each family of scenarios is recorded.
GATES: Final[Mapping[str, Sequence[str]]] = {
    "plain": ("GenericWorkload", "GangScheduling"),
    "priority": ("GenericWorkload", "GangScheduling"),
    "topology": ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling"),
    "preemption": ("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption"),
    "kinds": ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling"),
    "all gates": (
        "GenericWorkload",
        "GangScheduling",
        "TopologyAwareWorkloadScheduling",
        "WorkloadAwarePreemption",
    ),
}
#: Those in which all plugins are on.
ALL_KINDS: Final = frozenset({"kinds", "all gates"})
#: What an operation calls a kind: its path, and whether it has namespaces.
KINDS: Final[Mapping[str, tuple[str, str, bool]]] = {
    "node": ("/api/v1", "nodes", False),
    "volume": ("/api/v1", "persistentvolumes", False),
    "claim": ("/api/v1", "persistentvolumeclaims", True),
    "storage class": ("/apis/storage.k8s.io/v1", "storageclasses", False),
    "budget": ("/apis/policy/v1", "poddisruptionbudgets", True),
    "device class": ("/apis/resource.k8s.io/v1", "deviceclasses", False),
    "device claim": ("/apis/resource.k8s.io/v1", "resourceclaims", True),
    "slice": ("/apis/resource.k8s.io/v1", "resourceslices", False),
}
#: The second profile.
SECOND: Final = "second-scheduler"
_OWN: Final = "OWN"
GROUP_VERSION: Final = "scheduling.k8s.io/v1alpha2"
#: Node label and node selector of each scenario: some are recorded in one cluster.
SCENARIO: Final = "scenario"
_RANK: Final = "rank"
#: What a node of each rank is worth to all pods.
_WEIGHTS: Final = (1, 14, 28, 42, 57, 71, 86, 100)
_GATE: Final = "example.com/wait"
#: What is said about the nodes of other scenarios, also by preemption.
_OTHERS: Final = "node(s) didn't match Pod's node affinity/selector"
_NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
_NODES: Final = re.compile(r"0/(-?\d+) nodes are available: (-?\d+ [^.]*?(?:, -?\d+ [^.]*?)*)\.")


#: Why outcomes differ on purpose.
DIFFERENCES: Final[Mapping[str, str]] = {
    "events": "a pod that nothing has helped is not tried again, and its message keeps the number of nodes that there were",
    "victims": "pods of lower priority are evicted only if with their room the gang has enough pods",
    "first placement": "of a topology constraint's placements, the one that takes the most pods says why they do not fit",
    "deleted group": "the pods of a deleted group wait for it, and do not fail again after each backoff",
    "backoff": "a failed group is tried as soon as an event may help it; in kube-scheduler others take the room before its backoff ends",
    "room": "no pod takes the room of victims that end before the group does, so that it would have to be evicted as well",
    "plan": "the pods of a group that preempts as a whole go to the nodes of its plan; in kube-scheduler they are placed again "
    "when all victims have ended",
    "whole": "a single pod evicts a group with disruptionMode PodGroup as a whole, or not at all",
    "mates": "the anti-affinity and the ReadWriteOncePod claims of a gang's pods count when the other pods of the gang are decided",
    "order": "of a gang's pods of equal priority that are new the oldest is first; in kube-scheduler usually the one that came last",
}


class Scenario(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One scenario; ``outcomes`` has one for each step."""

    seed: int
    family: str
    steps: list[list[list[Any]]]
    outcomes: list[dict[str, Any]] = []
    #: Why the outcome here differs on purpose, of DIFFERENCES; empty: it must not.
    differs: str = ""
    #: What the outcome here is, where it differs.
    ours: list[dict[str, Any]] = []

    @property
    def namespace(self) -> str:
        """Of its pods and groups."""
        return f"s{self.seed}"


_DECODER: Final = msgspec.json.Decoder(Scenario)


def read(path: Path = RECORDED) -> list[Scenario]:
    """All scenarios of a file."""
    return [_DECODER.decode(line) for line in path.read_bytes().splitlines()]


def write(scenarios: Iterable[Scenario], path: Path = RECORDED) -> None:
    """Writes one scenario a line."""
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in scenarios))


# ---------------------------------------------------------------- objects


def node_name(scenario: Scenario, name: str) -> str:
    """Nodes have no namespace."""
    return f"{scenario.namespace}-{name}"


def own(scenario: Scenario, operation: Operation) -> Operation:
    """An operation with the names of the scenario."""
    text = msgspec.json.encode(operation).replace(_OWN.encode(), scenario.namespace.encode())
    found: Operation = msgspec.json.decode(text)
    return found


def node(
    scenario: Scenario, name: str, cpu: int, rank: int, rack: str = "", more: Manifest | None = None
) -> Manifest:
    """A ready node; ``more``: labels, taints, amounts."""
    more = more or {}
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110", **more.get("amounts", {})}
    labels = {SCENARIO: scenario.namespace, _RANK: str(rank), **more.get("labels", {})}
    labels |= {topology_key(scenario): rack} if rack else {}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "metadata": {"name": node_name(scenario, name), "labels": labels},
        "spec": {"taints": more["taints"]} if "taints" in more else {},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def topology_key(scenario: Scenario) -> str:
    """The node label of racks: each scenario has its own, so that it does not see those of others."""
    return f"rack-{scenario.seed}"


def group(
    scenario: Scenario, name: str, minimum: int | None, more: Manifest | None = None
) -> Manifest:
    """A PodGroup; ``priority`` in ``more`` is that of a PriorityClass."""
    policy: Manifest = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    more = dict(more or {})
    if topology := more.pop("topology", False):
        key = topology if isinstance(topology, str) else topology_key(scenario)
        more["schedulingConstraints"] = {"topology": [{"key": key}]}
    spec = {"schedulingPolicy": policy, **_with_class(more)}
    return {"metadata": {"name": name, "namespace": scenario.namespace}, "spec": spec}


def newer(made: Manifest) -> Manifest:
    """A PodGroup as the API server of Kubernetes 1.37 has it."""
    spec = dict(made["spec"])
    if "disruptionMode" in spec:
        spec["disruptionMode"] = {"all" if spec["disruptionMode"] == "PodGroup" else "single": {}}
    return {**made, "spec": spec}


def pods(
    scenario: Scenario, name: str, numbers: Iterable[int], cpu: int, more: Manifest
) -> list[Manifest]:
    """Equal pods."""
    preferences = [
        {
            "weight": weight,
            "preference": {
                "matchExpressions": [{"key": _RANK, "operator": "In", "values": [str(rank)]}]
            },
        }
        for rank, weight in enumerate(_WEIGHTS)
    ]
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    spec: Manifest = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {SCENARIO: scenario.namespace},
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferences}
        },
    }
    if "group" in more:
        spec["schedulingGroup"] = {"podGroupName": more["group"]}
    if more.get("gated"):
        spec["schedulingGates"] = [{"name": _GATE}]
    if "priority" in more:
        never = more.get("never", False)
        spec |= _with_class({"priority": more["priority"]}, never=never)
        spec["preemptionPolicy"] = "Never" if never else "PreemptLowerPriority"
    container["resources"]["requests"] |= more.get("requests", {})
    container |= more.get("container", {})
    further = dict(more.get("spec", {}))
    spec["nodeSelector"] |= further.pop("nodeSelector", {})
    spec["affinity"] |= further.pop("affinity", {})
    spec |= further
    meta = {"namespace": scenario.namespace, "labels": {"set": name, **more.get("labels", {})}}
    numbered = msgspec.json.encode({"metadata": meta, "spec": spec}).decode()
    return [
        msgspec.json.decode(
            numbered.replace("NUMBER", str(i)).replace(
                '"metadata":{', f'"metadata":{{"name":"{name}-{i}",', 1
            )
        )
        for i in numbers
    ]


def _with_class(spec: Manifest, *, never: bool = False) -> Manifest:
    if "priority" not in spec:
        return spec
    return spec | {"priorityClassName": priority_class(spec["priority"], never=never)}


def priority_class(value: int, *, never: bool) -> str:
    """The name of the class of a priority; pods of one with ``never`` do not preempt."""
    return f"priority-{value}{'-never' if never else ''}"


def priorities(scenarios: Iterable[Scenario]) -> set[int]:
    """All priorities that these scenarios use."""
    found = set()
    for scenario in scenarios:
        for step in scenario.steps:
            found.update(
                part["priority"]
                for operation in step
                for part in operation
                if isinstance(part, dict) and "priority" in part
            )
    return found


def set_of(pod: Manifest) -> str:
    """The set of a pod."""
    name: str = pod["metadata"]["name"]
    return name.rpartition("-")[0]


def is_gated(pod: Manifest, name: str) -> bool:
    """Whether a pod of a set has scheduling gates."""
    return set_of(pod) == name and bool(pod["spec"].get("schedulingGates"))


def chosen(
    scenario: Scenario, found: Iterable[Manifest], name: str, where: str, count: int
) -> list[Manifest]:
    """The pods of a set that ``-pods`` deletes: of those without a node, those first whose message is first."""
    node = node_name(scenario, where) if where else ""
    mine = [
        pod
        for pod in found
        if set_of(pod) == name and (where == "*" or pod["spec"].get("nodeName", "") == node)
    ]
    return mine if where == "*" else sorted(mine, key=_message)[:count]


def _message(pod: Manifest) -> str:
    """Why a pod is not scheduled."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


# ---------------------------------------------------------------- outcomes


class Found(NamedTuple):
    """The objects of one scenario."""

    pods: Sequence[Manifest]
    groups: Sequence[Manifest]


def outcome(found: Found) -> dict[str, Any]:
    """What counts of the objects."""
    bound: Counter[tuple[str, str]] = Counter()
    waiting: Counter[tuple[str, str, str]] = Counter()
    for pod in found.pods:
        of = set_of(pod)
        if on := pod["spec"].get("nodeName"):
            bound[of, on.partition("-")[2]] += 1
        else:
            waiting[of, *_reason(pod)] += 1

    return {
        "bound": [[*key, count] for key, count in sorted(bound.items())],
        "waiting": [[*key, count] for key, count in sorted(waiting.items())],
        "groups": sorted(
            [
                one["metadata"]["name"],
                c["type"],
                c["status"],
                c["reason"],
                own_nodes(c.get("message", "")),
            ]
            for one in found.groups
            for c in one.get("status", {}).get("conditions") or ()
        ),
    }


def _reason(pod: Manifest) -> tuple[str, str]:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled":
            return condition.get("reason", ""), own_nodes(condition.get("message", ""))
    return "", ""


def own_nodes(message: str) -> str:
    """A message as it is without the nodes of other scenarios: they fail the selector, no other node does. Reasons are
    sorted."""
    foreign = 0

    def own(found: re.Match[str]) -> str:
        nonlocal foreign
        reasons = Counter[str]()
        for part in found[2].split(", "):
            number, _, reason = part.partition(" ")
            reasons[reason] += int(number)
        if _OTHERS in reasons:
            foreign = reasons.pop(_OTHERS)
        reasons[_NOT_HELPFUL] -= foreign if _NOT_HELPFUL in reasons else 0
        left = [f"{number} {reason}" for reason, number in sorted(reasons.items()) if number]
        return f"0/{int(found[1]) - foreign} nodes are available: {', '.join(left)}."

    return _NODES.sub(own, message)
