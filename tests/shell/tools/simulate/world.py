"""Objects for simulations, and the way into a cluster that does not listen."""

import json
from pathlib import Path

from app.sim import EmbeddedCluster
from app.sim.resources.kinds import NODES, PODS
from app.tools.simulate.loader import CLUSTER_KINDS, WORKLOAD_KINDS, Loader, read

ZONE = "topology.kubernetes.io/zone"
CONTAINER = {"name": "c", "image": "i"}


def node(name, *, zone="z", cpu="4", uid="", **spec):
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, ZONE: zone}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels} | ({"uid": uid} if uid else {}),
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod(name, *, cpu="1", phase="", owner=None, **spec):
    """As a server would show it if it has a phase."""
    metadata = {"name": name, "namespace": "shop"}
    if owner:
        kind, _, owner_name = owner.partition("/")
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner_name, "uid": "u"}
        metadata["ownerReferences"] = [reference | {"controller": True}]
    if phase:
        metadata["uid"] = f"uid-of-{name}"
    container = CONTAINER | {"resources": {"requests": {"cpu": cpu}}}
    value = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    value["spec"] = {"containers": [container], **spec}
    return value | ({"status": {"phase": phase}} if phase else {})


def workload(kind, name="web", *, replicas=None, template=None, uid="", **spec):
    """A workload whose pods are labelled ``app: NAME``."""
    groups = {"Job": "batch/v1", "ReplicationController": "v1"}
    labels = {"app": name}
    if kind not in groups:
        spec.setdefault("selector", {"matchLabels": labels})
    if replicas is not None:
        spec["replicas"] = replicas
    spec["template"] = {
        "metadata": {"labels": labels, "annotations": {"note": "kept"}},
        "spec": {"containers": [CONTAINER]} | (template or {}),
    }
    metadata = {"name": name, "namespace": "shop"} | ({"uid": uid} if uid else {})
    version = groups.get(kind, "apps/v1")
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def write(path: Path, *objects):
    """A file with a list of objects."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path


class World:
    """A cluster filled from files; nothing runs in it."""

    def __init__(self, folder: Path, *dump, schedulers=("default-scheduler",)):
        self.cluster = EmbeddedCluster()
        self.loader = Loader(self.cluster, schedulers)
        self._folder = folder
        self.loader.load_cluster(read([write(folder / "dump.json", *dump)], CLUSTER_KINDS))
        self._before = set(self._pods())

    def add(self, *objects):
        """Loads a workload; the pods that it brought, in order of their names."""
        file = write(self._folder / "workload.json", *objects)
        self.loader.load_workload(read([file], WORKLOAD_KINDS))
        return [pod for key, pod in self._pods().items() if key not in self._before]

    def _pods(self):
        return {
            (r.namespace, r.name): r.value for r in self.cluster.api.store[PODS.storage].ordered()
        }

    def find(self, kind, name, namespace="shop"):
        record = self.cluster.api.find(kind, namespace if kind is not NODES else "", name)
        return None if record is None else record.value

    def names(self, group=0):
        """The pods followed for a workload."""
        title = self.loader.groups[group].title
        return [name for (_, name), g in self.loader._workloads.items() if g.title == title]
