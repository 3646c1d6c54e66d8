"""The demo's cluster: by default 60 nodes in three zones, and workloads that exercise one rule each.

Two workloads cannot be placed completely on purpose, and a third depends on the extender, so that pending pods and
their reasons are shown too.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Final

from app.sim.nodes import NodeOptions, make_nodes
from app.sim.store import Object
from app.tools.pod_tracker import ZONE

HOST: Final = "kubernetes.io/hostname"
WORKLOAD: Final = "app"
"""The label with the workload's name."""
GPU: Final = "example.com/gpu"
LICENCE: Final = "example.com/licence"
ZONES: Final = ("zone-0", "zone-1", "zone-2")

GPUS_PER_NODE: Final = 2
MIN_PODS: Final = 12
"""With fewer, some workload would have no pods."""
_MANY_PODS: Final = 60
_GPU_TAINT: Final = {"key": GPU, "value": "present", "effect": "NoSchedule"}
_IMAGE: Final = "registry.example/demo:1"


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """Pods from one template."""

    name: str
    about: str
    """In a few words, for the table."""
    count: int
    requests: Mapping[str, str]
    spec: Object = dataclasses.field(default_factory=dict)

    def pods(self) -> Iterator[Object]:
        """The Pod objects."""
        container = {
            "name": "main",
            "image": _IMAGE,
            "resources": {"requests": dict(self.requests), "limits": self._limits()},
        }
        for number in range(self.count):
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{self.name}-{number:03d}",
                    "namespace": "default",
                    "labels": {WORKLOAD: self.name},
                },
                "spec": {"containers": [container], **self.spec},
            }

    def _limits(self) -> dict[str, str]:
        """Extended resources need limits equal to their requests."""
        return {name: amount for name, amount in self.requests.items() if "/" in name}


class Scenario:
    """The cluster and its workloads, sized by the number of nodes and pods."""

    licensed: Final = "solver"
    """The workload that concerns the extender."""

    def __init__(self, *, nodes: int = 60, pods: int = 300) -> None:
        """``pods``: at least MIN_PODS."""
        self._gpu_nodes: Final = max(1, min(nodes // 5, pods // 20))
        self._plain_nodes: Final = nodes - self._gpu_nodes
        self.workloads: Final = tuple(self._workloads(nodes, pods))

    def _workloads(self, nodes: int, pods: int) -> Iterator[Workload]:
        # Once the late node has joined there are GPUs for all of them, except with many pods.
        too_many, huge = (4, 2) if pods >= _MANY_PODS else (2, 1)
        training = GPUS_PER_NODE * self._gpu_nodes + too_many
        licensed = max(3, min(pods // 6, max(10, pods // 15)))
        caches, critical = min(nodes // 3, max(1, pods // 10)), pods // 30
        rest = pods - training - licensed - caches - critical - huge
        web, api = max(1, rest * 9 // 22), max(1, rest * 6 // 22)
        yield Workload(
            "ingest", "first in the queue: high priority", critical, _cpu("500m"), _CLASS
        )
        yield Workload("web", "spread evenly over the zones", web, _cpu("250m"), _spread("web"))
        yield Workload("api", "rather not two on a node", api, _cpu("250m"), _apart("api"))
        yield Workload("cache", "never two on a node", caches, _cpu("500m"), _alone("cache"))
        yield Workload("batch", "anywhere", rest - web - api, _cpu("1"))
        yield Workload(
            "training",
            "needs a GPU, tolerates the GPU nodes' taint",
            training,
            _cpu("1") | {GPU: "1"},
            {"tolerations": [{"key": GPU, "operator": "Exists"}]},
        )
        yield Workload(
            self.licensed,
            "needs a floating licence: the extender",
            licensed,
            _cpu("1") | {LICENCE: "1"},
        )
        yield Workload("huge", "asks for more than any node has", huge, _cpu("64"))

    def workload_of(self, pod: Object) -> str | None:
        """The workload that a pod belongs to; None for other pods."""
        name = (pod["metadata"].get("labels") or {}).get(WORKLOAD)
        return name if name in {workload.name for workload in self.workloads} else None

    @property
    def seats(self) -> dict[str, int]:
        """The licences of each zone that has a licence server; fewer in all than solvers."""
        solvers = next(w.count for w in self.workloads if w.name == self.licensed)
        return {"zone-0": max(1, solvers * 2 // 5), "zone-1": max(1, solvers * 3 // 10)}

    def nodes(self, timestamp: str) -> Iterator[Object]:
        """The nodes at the start; ``timestamp`` is that of their conditions, in RFC 3339."""
        plain = NodeOptions(count=self._plain_nodes, cpu="16", memory="64Gi")
        yield from make_nodes(plain, timestamp=timestamp)
        yield from _gpu_nodes(self._gpu_nodes, 0, timestamp)

    def late_node(self, timestamp: str) -> Object:
        """A GPU node that joins later, for which some pods wait."""
        return next(_gpu_nodes(1, self._gpu_nodes, timestamp))

    def priority_class(self) -> Object:
        """The PriorityClass of ``ingest``."""
        return {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": _CLASS["priorityClassName"]},
            "value": 1_000_000,
        }


def configuration(*, kubeconfig: str, extender: str) -> str:
    """The scheduler's configuration file (JSON is YAML): kube-scheduler's defaults, and one extender."""
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 5000},
        "extenders": [
            {
                "urlPrefix": extender,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 5,
                "bindVerb": "bind",
                "nodeCacheCapable": True,
                "managedResources": [{"name": LICENCE, "ignoredByScheduler": True}],
            }
        ],
    }
    return json.dumps(document, indent=2)


def _gpu_nodes(count: int, first: int, timestamp: str) -> Iterator[Object]:
    options = NodeOptions(
        count=count,
        first=first,
        prefix="gpu-",
        cpu="32",
        memory="256Gi",
        taints=(_GPU_TAINT,),
    )
    for node in make_nodes(options, timestamp=timestamp):
        for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
            amounts[GPU] = str(GPUS_PER_NODE)
        yield node


_CLASS: Final[Object] = {"priorityClassName": "demo-critical"}


def _cpu(amount: str) -> dict[str, str]:
    return {"cpu": amount, "memory": "512Mi"}


def _selector(workload: str) -> Object:
    return {"labelSelector": {"matchLabels": {WORKLOAD: workload}}}


def _spread(workload: str) -> Object:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [constraint | _selector(workload)]}


def _apart(workload: str) -> Object:
    term = {"weight": 100, "podAffinityTerm": {"topologyKey": HOST, **_selector(workload)}}
    field = "preferredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"podAntiAffinity": {field: [term]}}}


def _alone(workload: str) -> Object:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"topologyKey": HOST, **_selector(workload)}
    return {"affinity": {"podAntiAffinity": {field: [term]}}}
