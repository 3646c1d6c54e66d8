"""The nodes and pods that are measured. Everything made here bears the label MADE."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from tests.bench import devices

Object = dict[str, Any]

MADE: Final = "bench.aiokube-scheduler.io/made"
"""Label: ``measured`` or ``existing`` on pods, ``node`` on nodes, ``devices`` on classes, slices and claims,
``groups`` on PodGroups, ``volumes`` on volumes and their claims, ``churn`` on what comes and goes meanwhile."""
ZONE: Final = "topology.kubernetes.io/zone"
HOST: Final = "kubernetes.io/hostname"
TYPE: Final = "node.kubernetes.io/instance-type"
SHAPES: Final = (
    "basic",
    "mixed",
    "spread",
    "antiaffinity",
    "affinity",
    "preemption",
    "dra",
    "extended",
    "gang",
    "volumes",
    "gated",
    "unschedulable",
    "churn",
    "templates",
    "labels",
    "unique",
    "nodeaffinity",
    "daemonset",
    "namespaces",
    "ratherspread",
    "ratherapart",
    "rathertogether",
)
GROUP_VERSION: Final = "scheduling.k8s.io/v1alpha2"
RACK: Final = "bench.aiokube-scheduler.io/rack"
PRIORITIES: Final = {"bench-high": 1000, "bench-low": 1}

_FAMILIES: Final = 20
_TEMPLATES: Final = 1000
_GROUPS: Final = 200
_TYPES: Final = ("m5.large", "m5.xlarge", "m5.2xlarge")
_VICTIMS_PER_NODE: Final = 4
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SOME_ZONES: Final = {"key": ZONE, "operator": "In", "values": ["zone-1", "zone-2"]}
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class Gangs(NamedTuple):
    """The pod groups of the shape ``gang``."""

    size: int = 4
    #: How many of its pods are bound together at least; 0: all.
    minimum: int = 0
    #: Nodes are in so many racks, and each group in one of them; 0: no racks.
    racks: int = 0

    def gates(self, shape: str) -> str:
        """The feature gates that API server and scheduler need, as the value of --feature-gates."""
        gates = ["GenericWorkload", "GangScheduling"] if shape == "gang" else []
        gates += ["TopologyAwareWorkloadScheduling"] if gates and self.racks else []
        return ",".join(f"{gate}=true" for gate in gates)

    def groups(self, pods: int) -> Iterator[Object]:
        """The PodGroups of so many pods; the last one may be smaller."""
        for first in range(0, pods, self.size):
            size = min(self.size, pods - first)
            minimum = min(self.minimum or size, size)
            spec: Object = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
            if self.racks:
                spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
            yield {
                "apiVersion": GROUP_VERSION,
                "kind": "PodGroup",
                "metadata": {
                    "name": self.group_of(first),
                    "namespace": "default",
                    "labels": {MADE: "groups"},
                },
                "spec": spec,
            }

    def group_of(self, number: int) -> str:
        """The name of a pod's group."""
        return f"gang-{number // self.size:05d}"


GANGS: Final = Gangs()


def node(number: int, *, zones: int, shape: str, padding: int, gangs: Gangs = GANGS) -> Object:
    """A node of 32 CPUs (4 for preemption); ``padding`` bytes of annotation make it larger to send.

    Each node of the shape ``extended`` offers one of an extended resource that no other node has.
    """
    name = f"node-{number:05d}"
    amounts = {"cpu": "4" if shape == "preemption" else "32", "memory": "256Gi", "pods": "110"}
    if shape == "extended":
        amounts[_extended_resource(number)] = "1"
    metadata: Object = {
        "name": name,
        "labels": {
            HOST: name,
            ZONE: f"zone-{number % zones}",
            TYPE: _TYPES[number % len(_TYPES)],
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            MADE: "node",
        },
    }
    if gangs.racks:
        metadata["labels"][RACK] = f"rack-{number % gangs.racks}"
    if padding:
        metadata["annotations"] = {"bench.aiokube-scheduler.io/padding": "x" * padding}
    image = {"names": [f"registry.example/image-{number % 50}:1"], "sizeBytes": 200_000_000}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "images": [image],
        },
    }


def measured_pod(number: int, shape: str, gangs: Gangs = GANGS) -> Object:
    """A pod of the backlog."""
    labels = {"app": f"app-{number % _FAMILIES}", MADE: "measured"}
    pod = _pod(f"pod-{number:06d}", labels, cpu="100m")
    _SHAPES[shape](pod, number)
    if shape == "gang":
        group = gangs.group_of(number)
        labels["app"] = group
        pod["spec"]["schedulingGroup"] = {"podGroupName": group}
    return pod


def existing_pod(number: int, *, nodes: int, shape: str, apart_every: int = 0) -> Object:
    """A pod that runs already, on one of the nodes in turn; each ``apart_every``-th keeps away from others of its
    group.
    """
    labels = {"app": f"app-{number % _FAMILIES}", MADE: "existing"}
    pod = _pod(f"old-{number:06d}", labels, cpu="900m" if shape == "preemption" else "100m")
    pod["spec"]["nodeName"] = f"node-{number % nodes:05d}"
    if shape == "preemption":
        pod["spec"] |= {"priorityClassName": "bench-low", "terminationGracePeriodSeconds": 0}
    if apart_every and number % apart_every == 0:
        labels["group"] = f"group-{number // apart_every % _GROUPS}"
        pod["spec"]["affinity"] = _apart(HOST, {"group": labels["group"]})
    return pod


def existing_count(asked: int, *, nodes: int, shape: str) -> int:
    """How many pods run at the start: for preemption the nodes are full unless said otherwise."""
    return asked or (_VICTIMS_PER_NODE * nodes if shape == "preemption" else 0)


def surroundings(shape: str, *, nodes: int, pods: int, gangs: Gangs = GANGS) -> Iterator[Object]:
    """What there has to be beside nodes and measured pods.

    The classes of preemption; devices, volumes and their claims; pod groups; as many pods as are measured that wait for
    good.
    """
    if shape == "gang":
        yield from gangs.groups(pods)
    if shape == "volumes":
        for number in range(pods):
            yield from _volume(number)
    if shape in ("gated", "unschedulable"):
        yield from (_waiting_pod(number, shape) for number in range(pods))
    if shape == "preemption":
        yield from _priority_classes()
    if shape == "dra":
        labels = {MADE: "devices"}
        yield devices.device_class(labels)
        yield from devices.slices(nodes, labels)
        yield from devices.claims(pods, labels)


def _priority_classes() -> Iterator[Object]:
    for name, value in PRIORITIES.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }


def _volume(number: int) -> Iterator[Object]:
    """A volume that any node can mount, and its claim, bound to each other as a volume controller leaves them."""
    labels, size = {MADE: "volumes"}, {"storage": "1Gi"}
    volume, claim = f"volume-{number:06d}", _claim_name(number)
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume, "labels": labels},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "csi": {"driver": "bench.aiokube-scheduler.io", "volumeHandle": volume},
            "claimRef": {"namespace": "default", "name": claim},
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim,
            "namespace": "default",
            "labels": labels,
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": size},
        },
    }


def _claim_name(number: int) -> str:
    return f"claim-{number:06d}"


def _waiting_pod(number: int, shape: str) -> Object:
    """A pod with a scheduling gate, or one that fits on no node."""
    cpu = "100m" if shape == "gated" else "1000"
    pod = _pod(f"waiting-{number:06d}", {"app": "waiting", MADE: "existing"}, cpu=cpu)
    if shape == "gated":
        pod["spec"]["schedulingGates"] = [{"name": "bench.aiokube-scheduler.io/gate"}]
    return pod


def churned(number: int) -> Iterator[Object]:
    """What comes and goes every second of the shape ``churn``: a node without room, a pod that fits nowhere, and a
    service.
    """
    labels, name = {MADE: "churn"}, f"churn-{number}"
    nothing = {"cpu": "0", "memory": "0", "pods": "0"}
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": nothing, "allocatable": nothing},
    }
    yield _pod(name, {**labels, "app": "churn"}, cpu="1000")
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"selector": {"app": "churn"}, "ports": [{"port": 80}]},
    }


def _pod(name: str, labels: dict[str, str], *, cpu: str) -> Object:
    container = {
        "name": "c",
        "image": "registry.example/pause:3.9",
        "resources": {"requests": {"cpu": cpu, "memory": "200Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"schedulerName": "default-scheduler", "containers": [container]},
    }


def _apart(topology: str, labels: dict[str, str]) -> Object:
    term = {"topologyKey": topology, "labelSelector": {"matchLabels": labels}}
    return {"podAntiAffinity": {_REQUIRED: [term]}}


def _same_app(pod: Object) -> Object:
    return {"labelSelector": {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}}}


def _basic(_pod: Object, _number: int) -> None:
    pass


def _spread(pod: Object, _number: int) -> None:
    constraint = {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    pod["spec"]["topologySpreadConstraints"] = [constraint | _same_app(pod)]


def _antiaffinity(pod: Object, _number: int) -> None:
    pod["metadata"]["labels"]["color"] = "green"
    pod["spec"]["affinity"] = _apart(HOST, {"color": "green"})


def _affinity(pod: Object, _number: int) -> None:
    pod["metadata"]["labels"]["color"] = "blue"
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"color": "blue"}}}
    pod["spec"]["affinity"] = {"podAffinity": {_REQUIRED: [term]}}


def _preemption(pod: Object, _number: int) -> None:
    pod["spec"]["priorityClassName"] = "bench-high"
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "3", "memory": "500Mi"}


def _claiming(pod: Object, number: int) -> None:
    claim = {"name": "device", "resourceClaimName": devices.claim_name(number)}
    pod["spec"]["resourceClaims"] = [claim]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "device"}]


def _extended_resource(number: int) -> str:
    return f"bench.aiokube-scheduler.io/resource-{number:05d}"


def _extended(pod: Object, number: int) -> None:
    resources = pod["spec"]["containers"][0]["resources"]
    name = _extended_resource(number)
    resources["requests"][name] = "1"
    resources["limits"] = {name: "1"}


def _with_volume(pod: Object, number: int) -> None:
    source = {"claimName": _claim_name(number)}
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": source}]


def _one_of_many(pod: Object, number: int) -> None:
    memory = f"{200 + number % _TEMPLATES}Mi"
    pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory


def _with_labels_of_its_own(pod: Object, number: int) -> None:
    """As a Job, or a pod of a StatefulSet, has them."""
    job = f"job-{number:06d}"
    pod["metadata"]["labels"] |= {"app": job, "batch.kubernetes.io/job-name": job}


def _unlike_any_other(pod: Object, number: int) -> None:
    """Labels and a request of its own."""
    _with_labels_of_its_own(pod, number)
    amounts = {"cpu": "100m", "memory": f"{200 * 1024 + number}Ki"}
    pod["spec"]["containers"][0]["resources"]["requests"] = amounts


def _in_zones(pod: Object, _number: int) -> None:
    term = {"matchExpressions": [_SOME_ZONES]}
    pod["spec"]["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [term]}}}


def _of_daemonset(pod: Object, number: int) -> None:
    """One node for each pod, as the DaemonSet controller asks for it."""
    name = {"key": "metadata.name", "operator": "In", "values": [f"node-{number:05d}"]}
    term = {"matchFields": [name]}
    pod["spec"]["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [term]}}}


def _apart_in_namespaces(pod: Object, number: int) -> None:
    _antiaffinity(pod, number)
    [term] = pod["spec"]["affinity"]["podAntiAffinity"][_REQUIRED]
    term["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}


def _rather_spread(pod: Object, _number: int) -> None:
    constraint = {"maxSkew": 5, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    pod["spec"]["topologySpreadConstraints"] = [constraint | _same_app(pod)]


def _rather_together(pod: Object, _number: int) -> None:
    term = {"weight": 1, "podAffinityTerm": {"topologyKey": HOST, **_same_app(pod)}}
    pod["spec"]["affinity"] = {"podAffinity": {_PREFERRED: [term]}}


def _selecting(pod: Object, _number: int) -> None:
    pod["spec"]["nodeSelector"] = {TYPE: _TYPES[0]}


def _tolerating(pod: Object, _number: int) -> None:
    pod["spec"]["tolerations"] = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]


def _rather_apart(pod: Object, _number: int) -> None:
    term = {"weight": 10, "podAffinityTerm": {"topologyKey": HOST, **_same_app(pod)}}
    pod["spec"]["affinity"] = {"podAntiAffinity": {_PREFERRED: [term]}}


def _rather_in_some_zones(pod: Object, _number: int) -> None:
    term = {"weight": 5, "preference": {"matchExpressions": [_SOME_ZONES]}}
    pod["spec"]["affinity"] = {"nodeAffinity": {_PREFERRED: [term]}}


_MIX: Final = (
    _basic,
    _selecting,
    _tolerating,
    _spread,
    _rather_apart,
    _rather_in_some_zones,
    _basic,
    _basic,
    _basic,
    _basic,
)


def _mixed(pod: Object, number: int) -> None:
    _MIX[number % len(_MIX)](pod, number)


_SHAPES: Final[dict[str, Callable[[Object, int], None]]] = {
    "basic": _basic,
    "mixed": _mixed,
    "spread": _spread,
    "antiaffinity": _antiaffinity,
    "affinity": _affinity,
    "preemption": _preemption,
    "dra": _claiming,
    "extended": _extended,
    "gang": _basic,
    "volumes": _with_volume,
    "gated": _basic,
    "unschedulable": _basic,
    "churn": _basic,
    "templates": _one_of_many,
    "labels": _with_labels_of_its_own,
    "unique": _unlike_any_other,
    "nodeaffinity": _in_zones,
    "daemonset": _of_daemonset,
    "namespaces": _apart_in_namespaces,
    "ratherspread": _rather_spread,
    "ratherapart": _rather_apart,
    "rathertogether": _rather_together,
}
