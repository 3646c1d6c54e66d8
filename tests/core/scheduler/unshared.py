"""Clusters in which nothing is shared: each node, pod and other object has values of its own."""

from collections.abc import Callable
from typing import Any

from app.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from app.model.objects import Namespace, PodDisruptionBudget, ReplicaSet, Service
from app.model.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from tests.core.scheduler.full_state import FullState

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

Step = Callable[[FullState, str], None]


def _host(name: str) -> dict[str, str]:
    return {HOST: f"node-{name}", ZONE: f"zone-{len(name)}"}


def _node(full: FullState, name: str, labels: dict[str, str] | None = None, **parts: Any) -> None:
    full.node(f"node-{name}", labels=_host(name) | (labels or {}), **parts)


def _selecting(affinity: str, name: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": f"key-{name}", "operator": affinity, "values": [name]}]}
    return {
        "nodeAffinity": {
            _REQUIRED: {"nodeSelectorTerms": [term]},
            _PREFERRED: [{"weight": 5, "preference": term}],
        }
    }


def _alike(name: str, topology: str) -> dict[str, Any]:
    return {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": f"app-{name}"}}}


def label_keys(full: FullState, name: str) -> None:
    """A label key on each node, and a pod that selects it."""
    _node(full, name, {f"key-{name}": name})
    full.pod(f"pod-{name}", {"nodeSelector": {f"key-{name}": name}})


def label_values(full: FullState, name: str) -> None:
    """A value of one label on each node, and a pod that selects it."""
    _node(full, name, {"rack": f"rack-{name}"})
    full.pod(f"pod-{name}", {"nodeSelector": {"rack": f"rack-{name}"}})


def node_affinity(full: FullState, name: str) -> None:
    """Required and preferred node affinity of each pod."""
    _node(full, name, {f"key-{name}": name})
    full.pod(f"pod-{name}", {"affinity": _selecting("In", name)})


def unknown_labels(full: FullState, name: str) -> None:
    """Keys that no node has: pods that wait."""
    _node(full, name)
    full.pod(f"pod-{name}", {"nodeSelector": {f"key-{name}": name}})


def taints(full: FullState, name: str) -> None:
    """A taint on each node, and a pod that tolerates it."""
    taint = {"key": f"key-{name}", "value": name, "effect": "NoSchedule"}
    softly = {"key": f"soft-{name}", "value": name, "effect": "PreferNoSchedule"}
    _node(full, name, spec={"taints": [taint, softly]})
    tolerations = [{"key": f"key-{name}", "operator": "Exists"}]
    full.pod(f"pod-{name}", {"tolerations": tolerations})


def topology_keys(full: FullState, name: str) -> None:
    """Pods that spread over a topology key of their own."""
    _node(full, name, {f"topology-{name}": name, "everywhere": name})
    hard = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    soft = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    constraints = [
        hard | _alike(name, f"topology-{name}"),
        soft | _alike(name, "everywhere"),
        soft | _alike(name, f"nowhere-{name}"),
    ]
    full.pod(
        f"pod-{name}", {"topologySpreadConstraints": constraints}, labels={"app": f"app-{name}"}
    )


def pod_affinity(full: FullState, name: str) -> None:
    """Affinity terms, required and preferred, of each pod to its own kind."""
    _node(full, name, {f"topology-{name}": name})
    affinity = {
        "podAffinity": {_PREFERRED: [{"weight": 3, "podAffinityTerm": _alike(name, ZONE)}]},
        "podAntiAffinity": {
            _REQUIRED: [_alike(name, HOST), _alike(name, f"topology-{name}")],
            _PREFERRED: [{"weight": 3, "podAffinityTerm": _alike(f"x{name}", ZONE)}],
        },
    }
    full.pod(f"pod-{name}", {"affinity": affinity}, labels={"app": f"app-{name}"})


def host_ports(full: FullState, name: str) -> None:
    """A host port of each pod."""
    _node(full, name)
    number = 1024 + int(name.rpartition("-")[2])
    container = {"name": "main", "ports": [{"containerPort": 80, "hostPort": number}]}
    full.pod(f"pod-{name}", {"containers": [container]})


def images(full: FullState, name: str) -> None:
    """Images that one node has."""
    image = {"names": [f"registry.example.com/{name}:1"], "sizeBytes": 10**9}
    _node(full, name, status={"images": [image], "allocatable": {"cpu": "8", "pods": "9"}})
    container = {"name": "main", "image": f"registry.example.com/{name}:1"}
    full.pod(f"pod-{name}", {"containers": [container]})


def resources(full: FullState, name: str) -> None:
    """A resource that one node has."""
    resource = f"example.com/{name}"
    _node(full, name, status={"allocatable": {"cpu": "8", "pods": "9", resource: "1"}})
    container = {"name": "main", "resources": {"requests": {resource: "1"}}}
    full.pod(f"pod-{name}", {"containers": [container]})


def features(full: FullState, name: str) -> None:
    """Features that one node declares."""
    status = {"declaredFeatures": [f"Feature-{name}", "RestartAllContainersOnContainerExits"]}
    _node(full, name, status=status | {"allocatable": {"cpu": "8", "pods": "9"}})
    rule = {"action": "RestartAllContainers"}
    container = {"name": f"main-{name}", "restartPolicyRules": [rule]}
    full.pod(f"pod-{name}", {"containers": [container]})


def namespaces(full: FullState, name: str) -> None:
    """A namespace for each pod, that its terms select."""
    _node(full, name)
    full.add(Namespace, f"space-{name}", metadata={"labels": {"team": name}})
    term = _alike(name, HOST) | {"namespaceSelector": {"matchLabels": {"team": name}}}
    full.pod(
        f"pod-{name}",
        {"affinity": {"podAntiAffinity": {_REQUIRED: [term]}}},
        namespace=f"space-{name}",
        labels={"app": f"app-{name}"},
    )


def owners(full: FullState, name: str) -> None:
    """A service, a replica set and a budget for each pod."""
    _node(full, name)
    labels = {"app": f"app-{name}"}
    place = {"namespace": "default"}
    full.add(Service, f"service-{name}", metadata=place, spec={"selector": labels})
    selector = {"selector": {"matchLabels": labels}}
    full.add(ReplicaSet, f"set-{name}", metadata=place, spec=selector)
    full.add(PodDisruptionBudget, f"budget-{name}", metadata=place, spec=selector)
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": f"set-{name}",
        "uid": f"set-{name}",
        "controller": True,
    }
    container = {"name": f"main-{name}"}
    full.pod(f"pod-{name}", {"containers": [container]}, labels=labels, ownerReferences=[owner])


def _claiming(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": f"claim-{name}"}}]}


def bound_volumes(full: FullState, name: str) -> None:
    """A claim of each pod, bound to a volume of a driver and class of its own that one node reaches."""
    _node(full, name)
    driver = f"{name}.csi.example.com"
    limits = [{"name": driver, "nodeID": name, "topologyKeys": [HOST], "allocatable": {"count": 2}}]
    full.add(CSIDriver, driver)
    full.add(CSINode, f"node-{name}", spec={"drivers": limits})
    full.add(StorageClass, f"class-{name}", provisioner=driver)
    here = {"key": HOST, "operator": "In", "values": [f"node-{name}"]}
    full.add(
        PersistentVolume,
        f"volume-{name}",
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"class-{name}",
            "csi": {"driver": driver, "volumeHandle": f"handle-{name}"},
            "claimRef": {"namespace": "default", "name": f"claim-{name}", "uid": f"claim-{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
        status={"phase": "Bound"},
    )
    full.add(
        PersistentVolumeClaim,
        f"claim-{name}",
        metadata={
            "namespace": "default",
            "uid": f"claim-{name}",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        spec={
            "volumeName": f"volume-{name}",
            "storageClassName": f"class-{name}",
            "resources": {"requests": {"storage": "1Gi"}},
            "accessModes": ["ReadWriteOnce"],
        },
        status={"phase": "Bound"},
    )
    full.add(
        VolumeAttachment,
        f"attachment-{name}",
        spec={
            "attacher": driver,
            "nodeName": f"node-{name}",
            "source": {"persistentVolumeName": f"volume-{name}"},
        },
    )
    full.pod(f"pod-{name}", _claiming(name))


def waiting_volumes(full: FullState, name: str) -> None:
    """A claim of each pod, to be bound to a volume that waits for its first consumer, or provisioned."""
    _node(full, name)
    first = {"volumeBindingMode": "WaitForFirstConsumer"}
    full.add(StorageClass, f"class-{name}", provisioner=f"{name}.example.com", **first)
    here = {"matchLabels": {HOST: f"node-{name}"}}
    full.add(
        CSIStorageCapacity,
        f"capacity-{name}",
        metadata={"namespace": "kube-system"},
        storageClassName=f"class-{name}",
        capacity="10Gi",
        nodeTopology=here,
    )
    full.add(CSIDriver, f"{name}.example.com", spec={"storageCapacity": True})
    full.add(
        PersistentVolumeClaim,
        f"claim-{name}",
        metadata={"namespace": "default", "uid": f"claim-{name}"},
        spec={
            "storageClassName": f"class-{name}",
            "resources": {"requests": {"storage": "1Gi"}},
            "accessModes": ["ReadWriteOnce"],
        },
        status={"phase": "Pending"},
    )
    full.pod(f"pod-{name}", _claiming(name))


def disks(full: FullState, name: str) -> None:
    """A disk that each pod names itself."""
    _node(full, name)
    disk = {"name": "v", "gcePersistentDisk": {"pdName": f"disk-{name}"}}
    full.pod(f"pod-{name}", {"volumes": [disk]})


def nominations(full: FullState, name: str) -> None:
    """A pod nominated to each node, of a priority of its own, that does not fit there any more."""
    _node(full, name)
    container = {"name": "main", "resources": {"requests": {"cpu": "64"}}}
    priority = 1 + int(name.rpartition("-")[2])
    full.pod(
        f"pod-{name}",
        {"containers": [container], "priority": priority},
        nominated=f"node-{name}",
    )


def devices(full: FullState, name: str) -> None:
    """A slice of a driver, a class and a claim of its own for each node."""
    _node(full, name)
    driver = f"{name}.dra.example.com"
    full.add(
        ResourceSlice,
        f"slice-{name}",
        spec={
            "driver": driver,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "nodeName": f"node-{name}",
            "devices": [{"name": "device", "attributes": {"serial": {"string": name}}}],
        },
    )
    expression = f'device.driver == "{driver}"'
    full.add(
        DeviceClass,
        f"class-{name}",
        spec={
            "selectors": [{"cel": {"expression": expression}}],
            "extendedResourceName": f"example.com/{name}",
        },
    )
    exactly = {"deviceClassName": f"class-{name}", "allocationMode": "ExactCount", "count": 1}
    request = {"name": "r", "exactly": exactly}
    full.add(
        ResourceClaim,
        f"claim-{name}",
        metadata={"namespace": "default", "uid": f"claim-{name}"},
        spec={"devices": {"requests": [request]}},
    )
    claims = [{"name": "c", "resourceClaimName": f"claim-{name}"}]
    full.pod(f"pod-{name}", {"resourceClaims": claims})


def missing_claims(full: FullState, name: str) -> None:
    """Pods held back by a claim that does not exist."""
    _node(full, name)
    claims = [{"name": "c", "resourceClaimName": f"claim-{name}"}]
    full.pod(f"pod-{name}", {"resourceClaims": claims})


def templates(full: FullState, name: str) -> None:
    """Pods with nothing in common but that they fit anywhere."""
    _node(full, name)
    full.pod(f"pod-{name}", {"containers": [{"name": f"main-{name}"}]}, labels={f"l-{name}": name})


ALL: tuple[Step, ...] = (
    label_keys,
    label_values,
    node_affinity,
    unknown_labels,
    taints,
    topology_keys,
    pod_affinity,
    host_ports,
    images,
    resources,
    features,
    namespaces,
    owners,
    bound_volumes,
    waiting_volumes,
    disks,
    nominations,
    devices,
    missing_claims,
    templates,
)
