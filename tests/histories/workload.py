"""What happens in the cluster: its users, its kubelets, other schedulers.

Times and choices come from a generator of their own, so that the same things happen whatever fails.
"""

import random
from typing import Any

from tests.histories.apiserver import (
    NAMESPACES,
    NODES,
    PODS,
    ApiServer,
    Manifest,
    Write,
    is_live,
    key_of,
)
from tests.histories.devices import Devices, device_claims_of
from tests.histories.extenders import LIMITED
from tests.histories.rules import fits, usage
from tests.histories.shape import Shape
from tests.histories.simulation import Simulation
from tests.histories.storage import Storage, claims_of

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
PROFILE = "default-scheduler"


class Workload:
    """Lets things happen to ``server`` until ``shape.quiet_at``; the kubelets go on."""

    def __init__(self, simulation: Simulation, server: ApiServer, shape: Shape, tell) -> None:
        self._simulation = simulation
        self._server = server
        self._shape = shape
        self._rng = random.Random(f"workload {shape.seed}")
        self._tell = tell
        self._number = 0
        self._storage = Storage(simulation, server, self._rng, tell) if shape.volumes else None
        self._devices = Devices(simulation, server, self._rng, tell) if shape.devices else None

    def begin(self) -> None:
        """Makes what is there at the beginning, and plans the rest."""
        rng, server = self._rng, self._server
        for namespace in ("default", "kube-system"):
            server.create(NAMESPACES, {"metadata": {"name": namespace}})
        if self._storage is not None:
            self._storage.begin()
        if self._devices is not None:
            self._devices.begin()
        for number in range(self._shape.nodes):
            self._add_node(f"n{number}")
        early = rng.random() < 0.3 or LIMITED in self._shape.extenders
        for _ in range(self._shape.pods):
            at = 0.0 if early else rng.random() * self._shape.quiet_at * 0.9
            self._simulation.at(at, self._new_pod, self._pod())
        for _ in range(rng.randint(0, 6)):
            self._simulation.at(rng.random() * self._shape.quiet_at, self.act)

    def act(self) -> None:
        """Something that users, admins or other schedulers do."""
        self._rng.choice(
            (
                self._delete_pod,
                self._replace_pod,
                self._rival_binds,
                self._foreign_pod,
                self._foreign_pod,
                self._cordon,
                self._taint,
                self._lose_node,
                self._new_node,
                self._resize_node,
                self._end_pod,
                self._relabel_pod,
            )
        )()

    def act_unseen(self) -> None:
        """Something of which nothing can be seen but what comes out of it."""
        self._rng.choice((self.act, self._replace_node, *[self._replace_at_once] * 3))()

    def unsettled(self) -> list[str]:
        """What users still wait for."""
        return []

    def wrote(self, write: Write) -> None:
        """Kubelets run what is bound to their node, and end what is to be deleted; volumes are bound."""
        if self._storage is not None:
            self._storage.wrote(write)
        if self._devices is not None:
            self._devices.wrote(write)
        if write.resource != PODS or write.new is None or not write.new["spec"].get("nodeName"):
            return
        old, new = write.old, write.new
        meta = new["metadata"]
        if old is None or not old["spec"].get("nodeName"):
            pause = self._rng.uniform(0.1, 2.0)
            self._simulation.after(pause, self._start, write.key, meta["uid"])
        elif "deletionTimestamp" in meta and "deletionTimestamp" not in old["metadata"]:
            pause = self._rng.uniform(0.1, 3.0)
            self._simulation.after(pause, self._remove, write.key, meta["uid"])

    # ------------------------------------------------------------ kubelets

    def _is_there(self, key: str, uid: str) -> bool:
        pod = self._server.get(PODS, key)
        return pod is not None and pod["metadata"]["uid"] == uid

    def _start(self, key: str, uid: str) -> None:
        pod = self._server.get(PODS, key)
        if pod is not None and self._is_there(key, uid) and is_live(pod):
            self._server.merge(PODS, key, {"status": {"phase": "Running"}})

    def _remove(self, key: str, uid: str) -> None:
        if self._is_there(key, uid):
            self._tell("kubelet", f"removes {key}")
            self._server.remove(PODS, key)

    # ------------------------------------------------------------ nodes

    def _node(self, name: str) -> Manifest:
        rng = self._rng
        allocatable = {
            "cpu": rng.choice(("1", "2", "4")),
            "memory": rng.choice(("1Gi", "4Gi")),
            "pods": rng.choice(self._shape.places),
        }
        if rng.random() < 0.3:
            allocatable["example.com/gpu"] = rng.choice(("1", "2"))
        labels = {HOST: name, ZONE: rng.choice(("a", "b"))}
        if rng.random() < 0.5:
            labels["disk"] = "ssd"
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        }

    def _add_node(self, name: str) -> None:
        self._server.create(NODES, self._node(name))
        if self._storage is not None:
            self._storage.add_node(name)
        if self._devices is not None:
            self._devices.add_node(name)

    def _some(self, resource: tuple[str, str], which=lambda _: True) -> Manifest | None:
        found = [each for each in self._server.all(resource) if which(each)]
        return self._rng.choice(found) if found else None

    def _new_node(self) -> None:
        self._number += 1
        name = f"late{self._number}"
        self._tell("admin", f"adds node {name}")
        self._add_node(name)

    def _lose_node(self) -> None:
        """A node goes; perhaps it comes back as another."""
        node = self._some(NODES)
        if node is None:
            return
        name = node["metadata"]["name"]
        self._tell("admin", f"removes node {name}")
        self._server.remove(NODES, name)
        again = self._rng.random()
        if again < 0.7:
            self._simulation.after(again * 5.0, self._bring_back, name)
        self._simulation.after(self._rng.uniform(0.5, 10.0), self._collect, name)

    def _bring_back(self, name: str) -> None:
        if self._server.get(NODES, name) is None:
            self._tell("admin", f"makes node {name} again")
            self._add_node(name)

    def _collect(self, node: str) -> None:
        """Pods on nodes that are gone are removed."""
        if self._server.get(NODES, node) is None:
            for pod in self._server.all(PODS):
                if pod["spec"].get("nodeName") == node:
                    self._remove(key_of(pod), pod["metadata"]["uid"])

    def _replace_node(self) -> None:
        """A node is gone, and another has its name at once."""
        node = self._some(NODES)
        if node is not None:
            name = node["metadata"]["name"]
            self._tell("admin", f"replaces node {name}")
            self._server.remove(NODES, name)
            self._add_node(name)

    def _cordon(self) -> None:
        node = self._some(NODES)
        if node is not None:
            now = not node["spec"].get("unschedulable", False)
            name = node["metadata"]["name"]
            self._tell("admin", f"{'cordons' if now else 'uncordons'} {name}")
            self._server.merge(NODES, name, {"spec": {"unschedulable": now or None}})

    def _taint(self) -> None:
        node = self._some(NODES)
        if node is not None:
            taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
            taints = None if node["spec"].get("taints") else [taint]
            name = node["metadata"]["name"]
            self._tell("admin", f"{'taints' if taints else 'untaints'} {name}")
            self._server.merge(NODES, name, {"spec": {"taints": taints}})

    def _resize_node(self) -> None:
        node = self._some(NODES)
        if node is not None:
            status = self._node("x")["status"]
            name = node["metadata"]["name"]
            self._tell("admin", f"{name} now has {status['allocatable']}")
            self._server.update(NODES, name, {**node, "status": status})

    def touch_nodes(self) -> None:
        """Something changes at each node, so that pods which an extender has refused are tried again."""
        for node in self._server.all(NODES):
            labels = {"touched": str(self._rng.random())}
            self._server.merge(NODES, key_of(node), {"metadata": {"labels": labels}})

    # ------------------------------------------------------------ pods

    def _pod(self) -> Manifest:
        """A pod of one of some sorts."""
        rng = self._rng
        self._number += 1
        app = rng.choice(("web", "db"))
        requests = {"cpu": rng.choice(self._shape.requests)}
        if rng.random() < 0.3:
            requests["memory"] = rng.choice(("256Mi", "1Gi"))
        container: Manifest = {"name": "c", "resources": {"requests": requests}}
        spec: Manifest = {"schedulerName": PROFILE, "containers": [container]}
        match rng.randrange(9):
            case 0:
                requests["example.com/gpu"] = "1"
            case 1:
                container["ports"] = [{"containerPort": 80, "hostPort": 8080}]
            case 2 | 3:
                key = rng.choice((HOST, ZONE))
                term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
                required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
                spec["affinity"] = {"podAntiAffinity": required}
            case 4:
                spec["nodeSelector"] = {"disk": "ssd"}
            case 5:
                spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if rng.random() < self._shape.urgent:
            spec["priority"] = rng.choice((10, 1000))
        return {
            "metadata": {
                "name": f"p{self._number}",
                "namespace": "default",
                "labels": {"app": app},
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }

    def _new_pod(self, pod: Manifest) -> None:
        if self._server.get(PODS, key_of(pod)) is None:
            if self._storage is not None and self._rng.random() < 0.5:
                self._storage.claim_for(pod)
            if self._devices is not None and self._rng.random() < 0.7:
                self._devices.claim_for(pod)
            self._tell("user", f"creates {pod['metadata']['name']} {_outline(pod)}")
            self._server.create(PODS, pod)

    def _delete_pod(self) -> None:
        pod = self._some(PODS)
        if pod is not None:
            self._delete(pod)

    def remove_pod(self) -> None:
        """A pod that is on a node is gone at once."""
        pod = self._some(PODS, lambda p: p["spec"].get("nodeName"))
        if pod is not None:
            self._tell("user", f"deletes {pod['metadata']['name']} without grace")
            self._server.remove(PODS, key_of(pod))

    def _delete(self, pod: Manifest) -> None:
        meta, key = pod["metadata"], key_of(pod)
        self._tell("user", f"deletes {meta['name']}")
        waits = not pod["spec"].get("nodeName") and is_live(pod)
        if not is_live(pod) or (waits and self._rng.random() < 0.6):
            self._server.remove(PODS, key)
        elif "deletionTimestamp" not in meta:
            when = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
            self._server.merge(PODS, key, {"metadata": when})
            if waits:  # for its finalizers
                pause = self._rng.uniform(0.3, 4.0)
                self._simulation.after(pause, self._remove, key, meta["uid"])

    def _replace_pod(self) -> None:
        """As a StatefulSet does: the next pod has the name of the last."""
        pod = self._some(PODS)
        if pod is None:
            return
        self._delete(pod)
        successor = self._pod()
        successor["metadata"]["name"] = pod["metadata"]["name"]
        for pause in (0.001, 3.5):
            self._simulation.after(pause * self._rng.random(), self._new_pod, successor)
        self._simulation.after(4.0, self._new_pod, successor)

    def _replace_at_once(self) -> None:
        """A pod is gone, and another has its name, perhaps bound by a rival."""
        pod = self._some(PODS)
        if pod is None:
            return
        meta = pod["metadata"]
        self._tell("user", f"deletes {meta['name']} without grace")
        self._server.remove(PODS, key_of(pod))
        successor = self._pod()
        successor["metadata"]["name"] = meta["name"]
        self._new_pod(successor)
        if self._rng.random() < 0.5:
            self._bind_elsewhere(self._server.get(PODS, key_of(pod)))

    def _end_pod(self) -> None:
        """A pod's work is done."""
        pod = self._some(PODS, lambda p: p["status"].get("phase") == "Running")
        if pod is not None:
            self._tell("kubelet", f"{pod['metadata']['name']} has ended")
            phase = self._rng.choice(("Succeeded", "Failed"))
            self._server.merge(PODS, key_of(pod), {"status": {"phase": phase}})

    def _relabel_pod(self) -> None:
        pod = self._some(PODS)
        if pod is not None:
            app = self._rng.choice(("web", "db"))
            self._tell("user", f"labels {pod['metadata']['name']} app={app}")
            self._server.merge(PODS, key_of(pod), {"metadata": {"labels": {"app": app}}})

    # ------------------------------------------------------------ other schedulers

    def _foreign_pod(self) -> None:
        """A pod that another scheduler, or nobody, has bound; there is room for it."""
        pod = self._pod()
        pod["spec"]["schedulerName"] = "other"
        pods = self._server.all(PODS)
        nodes = [n for n in self._server.all(NODES) if fits(pod, n, pods, self._server.all(NODES))]
        if nodes:
            name = self._rng.choice(nodes)["metadata"]["name"]
            pod["spec"]["nodeName"] = name
            self._tell(
                "other scheduler", f"binds {pod['metadata']['name']} {_outline(pod)} to {name}"
            )
            self._server.create(PODS, pod)

    def _rival_binds(self) -> None:
        """A scheduler that takes our pods for its own binds one."""
        self._bind_elsewhere(
            self._some(PODS, lambda p: not p["spec"].get("nodeName") and is_live(p))
        )

    def _bind_elsewhere(self, pod: Manifest | None) -> None:
        """The rival binds a pod if it fits anywhere."""
        if pod is None or claims_of(pod) or device_claims_of(pod):
            return
        pods, all_nodes = self._server.all(PODS), self._server.all(NODES)
        nodes = [n for n in all_nodes if fits(pod, n, pods, all_nodes)]
        if nodes:
            name = self._rng.choice(nodes)["metadata"]["name"]
            self._tell("rival", f"binds {pod['metadata']['name']} to {name}")
            self._server.merge(PODS, key_of(pod), {"spec": {"nodeName": name}})


def _outline(pod: Manifest) -> str:
    """What a pod asks for, for the story."""
    spec: Any = pod["spec"]
    parts = [f"{name}={amount}" for name, amount in sorted(usage(pod).items()) if name != "pods"]
    parts += [
        name for name in ("affinity", "nodeSelector", "tolerations", "priority") if name in spec
    ]
    if "ports" in spec["containers"][0]:
        parts.append("hostPort")
    parts += claims_of(pod) + device_claims_of(pod)
    return f"({', '.join(parts)})"
