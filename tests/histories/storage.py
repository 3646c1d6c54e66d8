"""Volumes: what there is at the beginning, claims for pods, and the controllers that bind and provision."""

import random
from collections.abc import Callable, Iterator

from tests.histories.apiserver import (
    CLAIMS,
    CSI_NODES,
    STORAGE_CLASSES,
    VOLUMES,
    ApiServer,
    Manifest,
    Write,
)
from tests.histories.simulation import Simulation

DRIVER = "csi.example.com"
HOST = "kubernetes.io/hostname"
SELECTED = "volume.kubernetes.io/selected-node"
_BOUND = "pv.kubernetes.io/bind-completed"
_WAIT = "WaitForFirstConsumer"
#: Claims that one pod at a time may use.
SHARED = ("shared-0", "shared-1")


class Storage:
    """The storage of one cluster."""

    def __init__(
        self,
        simulation: Simulation,
        server: ApiServer,
        rng: random.Random,
        tell: Callable[[str, str], None],
    ) -> None:
        self._simulation = simulation
        self._server = server
        self._rng = rng
        self._tell = tell

    def begin(self) -> None:
        """Classes, and the claims that are bound from the beginning."""
        for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("dynamic", DRIVER)):
            parts = {"provisioner": provisioner, "volumeBindingMode": _WAIT}
            self._server.create(STORAGE_CLASSES, {"metadata": {"name": name}, **parts})
        for name in SHARED:
            claim = self._server.create(CLAIMS, _claim(name, "dynamic", "ReadWriteOncePod"))
            self._provide(claim)

    def add_node(self, name: str) -> None:
        """What a node brings with it: a driver with few places, and perhaps a disk."""
        if self._server.get(CSI_NODES, name) is None:
            places = {"count": self._rng.choice((1, 2, 3))}
            driver = {"name": DRIVER, "nodeID": name, "topologyKeys": [HOST], "allocatable": places}
            spec = {"drivers": [driver]}
            self._server.create(CSI_NODES, {"metadata": {"name": name}, "spec": spec})
            for number in range(self._rng.choice((0, 1, 1, 2))):
                self._server.create(VOLUMES, _disk(f"disk-{name}-{number}", name))

    def claim_for(self, pod: Manifest) -> None:
        """Gives a pod a claim that it shares with others, or one of its own."""
        if self._rng.random() < 0.4:
            name = self._rng.choice(SHARED)
        else:
            name = f"data-{pod['metadata']['name']}"
            if self._server.get(CLAIMS, f"default/{name}") is None:
                kind = self._rng.choice(("local", "dynamic"))
                self._server.create(CLAIMS, _claim(name, kind, "ReadWriteOnce"))
        pod["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]

    def wrote(self, write: Write) -> None:
        """The controllers look at claims and volumes that have changed."""
        if write.new is None:
            return
        if write.resource == CLAIMS:
            annotations = write.new["metadata"].get("annotations", {})
            if SELECTED in annotations and "volumeName" not in write.new["spec"]:
                pause = self._rng.uniform(0.1, 2.0)
                self._simulation.after(pause, self._provision, write.key)
        elif write.resource == VOLUMES and _is_promised(write.new):
            self._simulation.after(self._rng.uniform(0.05, 1.0), self._bind, write.key)

    def _provision(self, key: str) -> None:
        """Makes a volume for a claim that a node was selected for; sometimes in vain."""
        claim = self._server.get(CLAIMS, key)
        if claim is None or "volumeName" in claim["spec"]:
            return
        if claim["spec"]["storageClassName"] != "dynamic":
            return
        if self._rng.random() < 0.15:
            self._tell("provisioner", f"cannot provide {key}")
            self._server.merge(CLAIMS, key, {"metadata": {"annotations": {SELECTED: None}}})
        else:
            self._provide(claim)

    def _provide(self, claim: Manifest) -> None:
        meta = claim["metadata"]
        name = f"pv-{meta['name']}"
        if self._server.get(VOLUMES, name) is None:
            csi = {"driver": DRIVER, "volumeHandle": name}
            reference = {k: meta[k] for k in ("namespace", "name", "uid")}
            spec = {"csi": csi, "claimRef": reference, "storageClassName": "dynamic"}
            volume = _volume(name, **spec, accessModes=claim["spec"]["accessModes"])
            self._server.create(VOLUMES, volume)
        self._bind(name)

    def _bind(self, name: str) -> None:
        """Binds a volume to the claim that it names, and the claim to it."""
        volume = self._server.get(VOLUMES, name)
        if volume is None:
            return
        reference = volume["spec"]["claimRef"]
        key = f"{reference['namespace']}/{reference['name']}"
        claim = self._server.get(CLAIMS, key)
        if claim is None or claim["metadata"]["uid"] != reference["uid"]:
            return
        if claim["spec"].get("volumeName", name) != name:
            return
        self._server.merge(VOLUMES, name, {"status": {"phase": "Bound"}})
        bound = {"metadata": {"annotations": {_BOUND: "yes"}}, "status": {"phase": "Bound"}}
        self._tell("volume controller", f"binds {key} to {name}")
        self._server.merge(CLAIMS, key, {**bound, "spec": {"volumeName": name}})


# ---------------------------------------------------------------- rules


def claims_of(pod: Manifest) -> list[str]:
    """The keys of a pod's claims."""
    return [
        f"{pod['metadata']['namespace']}/{volume['persistentVolumeClaim']['claimName']}"
        for volume in pod["spec"].get("volumes", ())
    ]


def shared_claims(server: ApiServer, pod: Manifest, other: Manifest) -> list[str]:
    """The claims of both pods that only one pod at a time may use."""
    both = set(claims_of(pod)).intersection(claims_of(other))
    return [
        key
        for key in sorted(both)
        if "ReadWriteOncePod" in server.get(CLAIMS, key)["spec"]["accessModes"]
    ]


def places(server: ApiServer, node: str) -> int:
    """How many volumes of the driver a node can have."""
    found = server.get(CSI_NODES, node)
    return found["spec"]["drivers"][0]["allocatable"]["count"] if found else 10**6


def driver_volumes(server: ApiServer, pods: list[Manifest]) -> set[str]:
    """The claims of pods whose volumes are, or will be, the driver's."""
    keys = {key for pod in pods for key in claims_of(pod)}
    return {
        key
        for key in keys
        if (claim := server.get(CLAIMS, key)) and claim["spec"]["storageClassName"] == "dynamic"
    }


def out_of_reach(server: ApiServer, pod: Manifest, node: Manifest) -> list[str]:
    """The keys of a pod's claims that have no volume yet, or one that the node does not reach."""
    return [key for key in claims_of(pod) if not _is_usable(server, key, node)]


def _is_usable(server: ApiServer, key: str, node: Manifest) -> bool:
    claim = server.get(CLAIMS, key)
    volume = server.get(VOLUMES, claim["spec"].get("volumeName", "")) if claim else None
    return volume is not None and _reaches(volume, node)


def obstacles(
    server: ApiServer, pod: Manifest, node: Manifest, pods: list[Manifest]
) -> Iterator[str]:
    """Why a pod cannot go to a node for its volumes, ``pods`` being all that are on nodes."""
    name = node["metadata"]["name"]
    here = [other for other in pods if other["spec"]["nodeName"] == name]
    if any(shared_claims(server, pod, other) for other in pods):
        yield "ReadWriteOncePod"
    wanted = driver_volumes(server, [pod])
    if wanted and len(driver_volumes(server, here) | wanted) > places(server, name):
        yield "volume limit"
    for key in claims_of(pod):
        claim = server.get(CLAIMS, key)
        if claim is None:
            yield "no claim"
        elif "volumeName" in claim["spec"]:
            if not _is_usable(server, key, node):
                yield "volume is elsewhere"
        elif claim["spec"]["storageClassName"] == "local":
            mine = claim["metadata"]["uid"]
            free = [v for v in server.all(VOLUMES) if _is_free(v, mine) and _reaches(v, node)]
            if not free:
                yield "no disk"


def _is_promised(volume: Manifest) -> bool:
    """Whether a claim is to have it, but does not yet."""
    return "claimRef" in volume["spec"] and volume["status"]["phase"] == "Available"


def _is_free(volume: Manifest, uid: str) -> bool:
    spec = volume["spec"]
    return spec["storageClassName"] == "local" and spec.get("claimRef", {}).get("uid", uid) == uid


def _reaches(volume: Manifest, node: Manifest) -> bool:
    affinity = volume["spec"].get("nodeAffinity")
    if affinity is None:
        return True
    [term] = affinity["required"]["nodeSelectorTerms"]
    return node["metadata"]["labels"].get(HOST) in term["matchExpressions"][0]["values"]


def _claim(name: str, kind: str, mode: str) -> Manifest:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": [mode],
            "storageClassName": kind,
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    }


def _volume(name: str, **spec: object) -> Manifest:
    capacity = {"storage": "1Gi"}
    return {
        "metadata": {"name": name},
        "spec": {"capacity": capacity, "accessModes": ["ReadWriteOnce"], **spec},
        "status": {"phase": "Available"},
    }


def _disk(name: str, node: str) -> Manifest:
    here = {"key": HOST, "operator": "In", "values": [node]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    return _volume(name, local={"path": "/disk"}, nodeAffinity=affinity, storageClassName="local")
