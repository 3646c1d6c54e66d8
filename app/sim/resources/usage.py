"""metrics.k8s.io: what nodes and pods use, as a metrics-server would tell.

Containers that only pretend use part of what they request; which part depends on the pod's name and stays the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from app.model.quantity import parse
from app.model.timestamps import format_time
from app.sim.api import Api
from app.sim.resources.kinds import NODES, PODS, Kind
from app.sim.store import Object

_NANO: Final = 10**9
_KIB: Final = 1024
_IDLE_CPU: Final = 1_000_000
"""Nano-cores of a container without a request."""
_IDLE_MEMORY: Final = 8 * 1024 * 1024
_WINDOW_SECONDS: Final = 15


class Use(NamedTuple):
    cpu: int
    """Nano-cores."""
    memory: int
    """Bytes."""


def usage(api: Api, kind: Kind) -> list[Object]:
    """All NodeMetrics or PodMetrics objects."""
    if kind.kind == "PodMetrics":
        return [_pod_metrics(api, pod) for pod in _running(api)]
    used: dict[str, list[Use]] = defaultdict(list)
    for pod in _running(api):
        used[pod["spec"]["nodeName"]] += [_use(pod, each) for each in pod["spec"]["containers"]]
    nodes = (record.value for record in api.store[NODES.storage].ordered())
    return [_node_metrics(api, node, used[node["metadata"]["name"]]) for node in nodes]


def _running(api: Api) -> Iterator[Object]:
    for record in api.store[PODS.storage].ordered():
        if record.value["status"].get("phase") == "Running" and record.value["spec"].get(
            "nodeName"
        ):
            yield record.value


def _use(pod: Object, container: Object) -> Use:
    """Between 20 and 80 percent of the requests."""
    requests = (container.get("resources") or {}).get("requests") or {}
    share = 20 + crc32(f"{pod['metadata']['name']}/{container['name']}".encode()) % 61
    cpu = parse(str(requests["cpu"])) * share // 100 if "cpu" in requests else _IDLE_CPU
    memory = parse(str(requests["memory"])) // _NANO * share // 100 if "memory" in requests else 0
    return Use(cpu, memory or _IDLE_MEMORY)


def _written(used: Use) -> Object:
    return {"cpu": f"{used.cpu}n", "memory": f"{used.memory // _KIB}Ki"}


def _frame(api: Api, value: Object, kind: str) -> Object:
    metadata = value["metadata"]
    names = ("name", "namespace", "labels")
    return {
        "kind": kind,
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {name: metadata[name] for name in names if name in metadata}
        | {"creationTimestamp": api.timestamp()},
        "timestamp": format_time(api.now() - _WINDOW_SECONDS),
        "window": f"{_WINDOW_SECONDS}s",
    }


def _pod_metrics(api: Api, pod: Object) -> Object:
    containers = [
        {"name": each["name"], "usage": _written(_use(pod, each))}
        for each in pod["spec"]["containers"]
    ]
    return _frame(api, pod, "PodMetrics") | {"containers": containers}


def _node_metrics(api: Api, node: Object, uses: Iterable[Use]) -> Object:
    listed = [Use(_IDLE_CPU, _IDLE_MEMORY), *uses]
    total = Use(sum(each.cpu for each in listed), sum(each.memory for each in listed))
    return _frame(api, node, "NodeMetrics") | {"usage": _written(total)}
