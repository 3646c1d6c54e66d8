"""Random objects of every kind that a decision may depend on: templates of pods, nodes, volumes, devices and the
rest.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from app.framework.testing import make_node, make_object
from app.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from app.model.objects import Named, Namespace, Node, Service
from app.model.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

Manifest = Mapping[str, Any]

NODES: Final = tuple(f"node-{number}" for number in range(7))
NAMESPACES: Final = ("default", "other")
HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
IMAGE: Final = "registry.example.com/app:1"
GPU: Final = "example.com/gpu"
DRIVER: Final = "disks.example.com"
DEVICES: Final = "devices.example.com"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
#: Labels that pods may have; the terms and constraints below select some of them.
LABELS: Final[Sequence[Mapping[str, str]]] = (
    {},
    {"app": "web"},
    {"app": "web", "tier": "front"},
    {"app": "cache"},
    {"app": "batch", "tier": "back"},
)


def _select(**labels: str) -> Manifest:
    return {"labelSelector": {"matchLabels": labels}}


def _container(**requests: str) -> Manifest:
    return {"name": "main", "image": IMAGE, "resources": {"requests": requests}}


def _requires(kind: str, key: str, term: Manifest) -> Manifest:
    return {"affinity": {kind: {_REQUIRED: [{"topologyKey": key, **term}]}}}


def _prefers(kind: str, key: str, term: Manifest, weight: int = 7) -> Manifest:
    one = {"weight": weight, "podAffinityTerm": {"topologyKey": key, **term}}
    return {"affinity": {kind: {_PREFERRED: [one]}}}


def _spread(action: str, *keys: str, **term: Any) -> Manifest:
    one = {"maxSkew": 1, "whenUnsatisfiable": action, **(term or _select(app="web"))}
    return {"topologySpreadConstraints": [one | {"topologyKey": key} for key in keys]}


def _node_affinity(**parts: Any) -> Manifest:
    return {"affinity": {"nodeAffinity": parts}}


def _in(key: str, *values: str) -> Manifest:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def _claims(*names: str) -> Manifest:
    return {
        "volumes": [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names],
    }


def _devices(claim: str) -> Manifest:
    return {"resourceClaims": [{"name": "c", "resourceClaimName": claim}]}


_WEB, _CACHE, _FRONT = _select(app="web"), _select(app="cache"), _select(tier="front")
_ANYWHERE: Final = _WEB | {"namespaceSelector": {}}
_OF_TEAM: Final = _CACHE | {"namespaceSelector": {"matchLabels": {"team": "a"}}}

#: Specs of pods. Each also occurs with labels of every kind.
TEMPLATES: Final[Sequence[Manifest]] = (
    {},
    {"containers": [_container(cpu="900m", memory="300Mi")]},
    {"containers": [_container(cpu="3")]},
    {"containers": [_container(**{GPU: "1"})]},
    {"containers": [_container() | {"ports": [{"containerPort": 80, "hostPort": 80}]}]},
    {"containers": [_container(cpu="100m")], "nodeSelector": {"size": "large"}},
    {"tolerations": [{"operator": "Exists"}]},
    {"nodeName": ""} | _node_affinity(**{_REQUIRED: {"nodeSelectorTerms": [_in(HOST, NODES[2])]}}),
    _node_affinity(**{_PREFERRED: [{"weight": 5, "preference": _in("size", "large")}]}),
    _node_affinity(
        **{
            _REQUIRED: {
                "nodeSelectorTerms": [
                    {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": [NODES[1]]}
                        ]
                    }
                ]
            }
        }
    ),
    _spread("DoNotSchedule", ZONE),
    _spread("DoNotSchedule", HOST),
    _spread("DoNotSchedule", ZONE, HOST, **_select(tier="front")),
    _spread("ScheduleAnyway", ZONE),
    _spread("ScheduleAnyway", HOST, **_select(app="cache")),
    _spread("ScheduleAnyway", HOST, ZONE),
    _spread("DoNotSchedule", ZONE, nodeTaintsPolicy="Honor", **_select(app="web")),
    _spread("ScheduleAnyway", ZONE) | {"nodeSelector": {"size": "large"}},
    _requires("podAffinity", ZONE, _WEB),
    _requires("podAffinity", HOST, _FRONT),
    _requires("podAffinity", ZONE, _ANYWHERE),
    _requires("podAntiAffinity", HOST, _WEB),
    _requires("podAntiAffinity", ZONE, _CACHE),
    _requires("podAntiAffinity", HOST, _OF_TEAM),
    _prefers("podAffinity", HOST, _CACHE),
    _prefers("podAffinity", ZONE, _WEB, 40),
    _prefers("podAntiAffinity", HOST, _WEB),
    _prefers("podAntiAffinity", ZONE, _OF_TEAM),
    _prefers("podAffinity", HOST, _ANYWHERE) | {"containers": [_container(cpu="1")]},
    _requires("podAntiAffinity", HOST, _WEB) | _spread("DoNotSchedule", ZONE),
    {
        "containers": [
            _container() | {"restartPolicyRules": [{"action": "RestartAllContainers"}]},
        ]
    },
    _claims("claim-0"),
    _claims("claim-1", "claim-2"),
    {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "disk"}}]},
    _devices("devices-0"),
    _devices("devices-1"),
    {"containers": [_container(**{"example.com/mapped": "1"})]},
)

# ---------------------------------------------------------------- nodes


def node(rng: random.Random, name: str) -> Node:
    """A node, or another version of it: plain in two of three cases."""
    plain = rng.random() < 0.66
    zone = "a" if plain else rng.choice(["a", "b", "c", None])
    labels = {"size": rng.choice(["large", "small"])}
    labels |= {} if zone is None else {ZONE: zone}
    labels |= {} if not plain and rng.random() < 0.1 else {HOST: name}
    taints = [] if plain else rng.choice([[], _TAINT, _SOFT_TAINT])
    status: dict[str, Any] = {
        "allocatable": {"cpu": rng.choice(["2", "4"]), "memory": "4Gi", "pods": "6"},
    }
    if rng.random() < 0.4:
        status["allocatable"] |= {GPU: "2"}
    if rng.random() < 0.3:
        status["images"] = [{"names": [IMAGE], "sizeBytes": 900_000_000}]
    if rng.random() < 0.5:
        status["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
    spec = {"unschedulable": not plain and rng.random() < 0.25, "taints": taints}
    return make_node(name, labels=labels, spec=spec, status=status)


_TAINT: Final = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
_SOFT_TAINT: Final = [{"key": "old", "effect": "PreferNoSchedule"}]

# ---------------------------------------------------------------- other kinds


def _namespace(rng: random.Random) -> Named:
    labels = {"team": rng.choice("ab")}
    return make_object(Namespace, {"metadata": {"name": rng.choice(NAMESPACES), "labels": labels}})


def _service(rng: random.Random) -> Named:
    meta = {"name": "web", "namespace": rng.choice(NAMESPACES)}
    selector = {"app": rng.choice(["web", "cache", "nothing"])}
    return make_object(Service, {"metadata": meta, "spec": {"selector": selector}})


def _storage_class(rng: random.Random) -> Named:
    mode = rng.choice(["WaitForFirstConsumer", "Immediate"])
    provisioner = rng.choice([DRIVER, "kubernetes.io/no-provisioner"])
    manifest = {"metadata": {"name": "class"}, "provisioner": provisioner}
    return make_object(StorageClass, manifest | {"volumeBindingMode": mode})


def _volume(rng: random.Random) -> Named:
    number = rng.randrange(3)
    required = {"nodeSelectorTerms": [_in(rng.choice([HOST, ZONE]), "a", *rng.sample(NODES, 3))]}
    spec = {
        "capacity": {"storage": rng.choice(["1Gi", "2Gi"])},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "class",
        "csi": {"driver": DRIVER, "volumeHandle": f"handle-{number}"},
        "nodeAffinity": {"required": required},
    }
    if rng.random() < 0.5:
        spec["claimRef"] = {
            "namespace": "default",
            "name": f"claim-{number}",
            "uid": f"uid-claim-{number}",
        }
    labels = {ZONE: rng.choice("ab")} if rng.random() < 0.3 else {}
    meta = {"name": f"volume-{number}", "labels": labels}
    phase = {"phase": "Bound" if "claimRef" in spec else "Available"}
    return make_object(PersistentVolume, {"metadata": meta, "spec": spec, "status": phase})


def _claim(rng: random.Random) -> Named:
    number = rng.randrange(3)
    meta: dict[str, Any] = {
        "name": f"claim-{number}",
        "namespace": rng.choice(NAMESPACES),
        "uid": f"uid-claim-{number}",
    }
    spec = {
        "storageClassName": "class",
        "resources": {"requests": {"storage": "1Gi"}},
        "accessModes": [rng.choice(["ReadWriteOnce", "ReadWriteOncePod"])],
    }
    if rng.random() < 0.6:
        spec["volumeName"] = f"volume-{number}"
        meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    return make_object(PersistentVolumeClaim, {"metadata": meta, "spec": spec})


def _csi_node(rng: random.Random) -> Named:
    name = rng.choice(NODES)
    limit = {"allocatable": {"count": rng.randrange(3)}}
    driver = {"name": DRIVER, "nodeID": name, "topologyKeys": [HOST]} | limit
    return make_object(CSINode, {"metadata": {"name": name}, "spec": {"drivers": [driver]}})


def _csi_driver(rng: random.Random) -> Named:
    spec = {"storageCapacity": rng.random() < 0.7}
    return make_object(CSIDriver, {"metadata": {"name": DRIVER}, "spec": spec})


def _capacity(rng: random.Random) -> Named:
    meta = {"name": f"capacity-{rng.randrange(2)}", "namespace": "kube-system"}
    topology = {"matchLabels": {ZONE: rng.choice("ab")}}
    manifest = {"metadata": meta, "storageClassName": "class", "nodeTopology": topology}
    return make_object(CSIStorageCapacity, manifest | {"capacity": rng.choice(["0", "10Gi"])})


def _attachment(rng: random.Random) -> Named:
    number = rng.randrange(3)
    source = {"persistentVolumeName": f"volume-{number}"}
    spec = {"attacher": DRIVER, "nodeName": rng.choice(NODES), "source": source}
    return make_object(
        VolumeAttachment, {"metadata": {"name": f"attachment-{number}"}, "spec": spec}
    )


def _device_class(rng: random.Random) -> Named:
    selector = {"cel": {"expression": f'device.driver == "{DEVICES}"'}}
    spec: dict[str, Any] = {"selectors": [selector]}
    if rng.random() < 0.5:
        spec["extendedResourceName"] = "example.com/mapped"
    return make_object(DeviceClass, {"metadata": {"name": "devices"}, "spec": spec})


def _slice(rng: random.Random) -> Named:
    name = rng.choice(NODES)
    spec = {
        "driver": DEVICES,
        "pool": {"name": name, "generation": rng.randrange(1, 3), "resourceSliceCount": 1},
        "nodeName": name,
        "devices": [{"name": f"device-{n}"} for n in range(rng.randrange(1, 3))],
    }
    return make_object(ResourceSlice, {"metadata": {"name": f"slice-{name}"}, "spec": spec})


def _resource_claim(rng: random.Random) -> Named:
    number = rng.randrange(2)
    meta = {"name": f"devices-{number}", "namespace": "default", "uid": f"uid-devices-{number}"}
    exactly = {"deviceClassName": "devices", "allocationMode": "ExactCount"}
    requests = [{"name": "r", "exactly": exactly | {"count": rng.randrange(1, 3)}}]
    status: dict[str, Any] = {}
    if rng.random() < 0.4:
        pool = rng.choice(NODES)
        device = {"request": "r", "driver": DEVICES, "pool": pool, "device": "device-0"}
        fields = [{"key": "metadata.name", "operator": "In", "values": [pool]}]
        selector = {"nodeSelectorTerms": [{"matchFields": fields}]}
        allocation = {"devices": {"results": [device]}, "nodeSelector": selector}
        status["allocation"] = allocation
    manifest = {"metadata": meta, "spec": {"devices": {"requests": requests}}, "status": status}
    return make_object(ResourceClaim, manifest)


#: Each makes an object of one kind, or another version of one.
OTHERS: Final[Sequence[Callable[[random.Random], Named]]] = (
    _namespace,
    _service,
    _storage_class,
    _volume,
    _claim,
    _csi_node,
    _csi_driver,
    _capacity,
    _attachment,
    _device_class,
    _slice,
    _resource_claim,
)
