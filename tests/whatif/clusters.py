"""Random clusters, and random questions about them."""

import random
from typing import Any

Manifest = dict[str, Any]

ZONES = ("z1", "z2", "z3")
APPS = ("web", "db", "cache", "batch")
PRIORITIES = (0, 0, 0, 5, 10)
GROUPS = "scheduling.k8s.io/v1alpha2"
DRIVER = "gpu.example.com"


def _far(app: str, key: str) -> Manifest:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def _spec(rng: random.Random, app: str, *, scale: int = 1) -> Manifest:
    """The spec of a pod: seldom plain, so that every kind of plugin has a say."""
    cpu, memory = rng.randrange(1, 16) * 100 * scale, rng.randrange(1, 24) * 128 * scale
    container = {
        "name": "main",
        "image": "registry.example.com/app:1",
        "resources": {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}},
    }
    spec: Manifest = {"containers": [container]}
    if priority := rng.choice(PRIORITIES):
        spec["priorityClassName"] = f"p{priority}"
    match rng.randrange(12):
        case 0:
            spec["nodeSelector"] = {"disk": rng.choice(("ssd", "hdd"))}
        case 1:
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        case 2:
            terms = [_far(app, rng.choice(("kubernetes.io/hostname", "zone")))]
            spec["affinity"] = {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            }
        case 3:
            terms = [_far(rng.choice(APPS), "zone")]
            spec["affinity"] = {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            }
        case 4:
            constraint = {
                "maxSkew": rng.randrange(1, 3),
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
            }
            spec["topologySpreadConstraints"] = [constraint]
        case 5:
            container["ports"] = [{"containerPort": 80, "hostPort": rng.choice((8080, 8081))}]
        case 6:
            wanted = {"key": "disk", "operator": "In", "values": ["ssd"]}
            preferred = {"weight": 50, "preference": {"matchExpressions": [wanted]}}
            spec["affinity"] = {
                "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}
            }
        case _:
            pass
    return spec


def _pod(name: str, app: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": spec,
    }


def _node(rng: random.Random, number: int) -> Manifest:
    name = f"n{number}"
    labels = {
        "kubernetes.io/hostname": name,
        "zone": rng.choice(ZONES),
        "disk": rng.choice(("ssd", "hdd")),
    }
    spec: Manifest = {}
    if rng.random() < 0.15:
        spec["taints"] = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
    elif rng.random() < 0.08:
        spec["unschedulable"] = True
        spec["taints"] = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    # Odd amounts: nodes that are equally good are rare then.
    offered = {
        "cpu": f"{rng.randrange(2000, 9000)}m",
        "memory": f"{rng.randrange(4000, 17000)}Mi",
        "pods": str(rng.choice((5, 110, 110))),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": offered, "capacity": offered},
    }


def _device_object(kind: str, name: str, spec: Manifest) -> Manifest:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _device_class() -> Manifest:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return _device_object("DeviceClass", DRIVER, {"selectors": [selector]})


def _slices(rng: random.Random, nodes: list[Manifest]) -> list[Manifest]:
    """Devices of some nodes."""
    found = []
    for node in nodes:
        if rng.random() < 0.4:
            name = node["metadata"]["name"]
            devices = [{"name": f"gpu-{place}"} for place in range(rng.randrange(1, 4))]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
            found.append(_device_object("ResourceSlice", f"{name}-gpu", spec))
    return found


class RandomCluster:
    """The objects of a cluster, and a question about it."""

    def __init__(self, seed: int, *, groups: bool = False) -> None:
        """``groups``: whether the API server has PodGroups."""
        rng = self._rng = random.Random(seed)
        self.nodes = [_node(rng, number) for number in range(rng.randrange(2, 13))]
        #: Bound pods; the kind of the owner of each, by name.
        self.pods: list[Manifest] = []
        self.owners: dict[str, str] = {}
        for number in range(rng.randrange(0, 5 * len(self.nodes))):
            app = rng.choice(APPS)
            pod = _pod(f"there-{number}", app, _spec(rng, app))
            pod["spec"]["nodeName"] = rng.choice(self.nodes)["metadata"]["name"]
            self.pods.append(pod)
            owner = rng.choice(("ReplicaSet",) * 8 + ("DaemonSet", ""))
            self.owners[pod["metadata"]["name"]] = owner
        self.budgets = [self._budget(app) for app in APPS if rng.random() < 0.3]
        self.question = self._question()
        #: Volumes, and claims that are bound to them.
        self.volumes: list[Manifest] = []
        more = random.Random(f"more of {seed}")
        self._claim_volumes(more)
        #: What nodes have of devices, and their class.
        self.devices = [_device_class(), *_slices(more, self.nodes)]
        if self.question["question"] == "fits":
            self.question["objects"] += self._claim_devices(more)
        if groups and self.question["question"] == "fits" and more.random() < 0.4:
            self.question["objects"] += self._gang(more)

    def _claim_volumes(self, rng: random.Random) -> None:
        """Gives volumes of a zone to some pods; new pods that are alike share one."""
        zones = {
            node["metadata"]["name"]: node["metadata"]["labels"]["zone"] for node in self.nodes
        }
        for pod in self.pods:
            if rng.random() < 0.15:
                self._claim(pod["spec"], zones[pod["spec"]["nodeName"]])
        specs = {id(each["spec"]): each["spec"] for each in self.question.get("objects", ())}
        for spec in specs.values():
            if rng.random() < 0.2:
                self._claim(spec, rng.choice(ZONES))

    def _claim(self, spec: Manifest, zone: str) -> None:
        name = f"data-{len(self.volumes) // 2}"
        size = {"storage": "1Gi"}
        common = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
        volume = {
            "capacity": size,
            "csi": {"driver": "example.com", "volumeHandle": name},
            "claimRef": {"namespace": "default", "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        }
        claim = {"volumeName": name, "resources": {"requests": size}}
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        self.volumes += [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": common | volume,
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default", "annotations": bound},
                "spec": common | claim,
            },
        ]
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]

    def _claim_devices(self, rng: random.Random) -> list[Manifest]:
        """Claims of devices for some of the new pods; those that are alike share one."""
        claims = []
        specs = {id(each["spec"]): each["spec"] for each in self.question["objects"]}
        for number, spec in enumerate(specs.values()):
            if rng.random() < 0.2:
                wish = {"deviceClassName": DRIVER, "count": rng.choice((1, 1, 2))}
                devices = {"requests": [{"name": "gpu", "exactly": wish}]}
                claims.append(
                    _device_object("ResourceClaim", f"gpu-{number}", {"devices": devices})
                )
                claims[-1]["metadata"]["namespace"] = "default"
                spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"gpu-{number}"}]
                spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        return claims

    def _gang(self, rng: random.Random) -> list[Manifest]:
        """A group, whose pods are there, or one too few of them."""
        count = rng.randrange(2, 7)
        group = {
            "apiVersion": GROUPS,
            "kind": "PodGroup",
            "metadata": {"name": "gang", "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
        }
        app = rng.choice(APPS)
        spec = _spec(rng, app) | {"schedulingGroup": {"podGroupName": "gang"}}
        there = count - (rng.random() < 0.15)
        return [group, *(_pod(f"mate-{number}", app, spec) for number in range(there))]

    def _budget(self, app: str) -> Manifest:
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": app, "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
            "status": {
                "disruptionsAllowed": self._rng.randrange(3),
                "currentHealthy": 1,
                "desiredHealthy": 1,
                "expectedPods": 1,
                "observedGeneration": 1,
            },
        }

    def _question(self) -> Manifest:
        rng = self._rng
        names = [node["metadata"]["name"] for node in self.nodes]
        match rng.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                return {"question": "fits", "objects": self._new(rng.randrange(1, 14))}
            case 5 | 6:
                return {"question": "how-many", "objects": self._new(1), "copies": 60}
            case 7 | 8:
                some = rng.sample(names, rng.randrange(1, max(2, len(names) // 2)))
                return {"question": "drain", "nodes": some}
            case _:
                zone = rng.choice(self.nodes)["metadata"]["labels"]["zone"]
                return {"question": "lose", "label": f"zone={zone}"}

    def _new(self, count: int) -> list[Manifest]:
        found: list[Manifest] = []
        while len(found) < count:
            app = self._rng.choice(APPS)
            spec = _spec(self._rng, app, scale=self._rng.choice((1, 1, 2)))
            alike = min(self._rng.randrange(1, 6), count - len(found))
            found += [_pod(f"new-{len(found) + i}", app, spec) for i in range(alike)]
        return found
