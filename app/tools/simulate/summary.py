"""Computes parts of the result from the cluster and the tracker."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from app.model.devices import CLASS_PREFIX
from app.model.objects import Node
from app.model.requests import PODS as POD_COUNT
from app.model.requests import Amounts, allocatable_units
from app.sim import EmbeddedCluster
from app.sim.resources.devices.allocation import results_of
from app.sim.resources.kinds import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Kind,
)
from app.sim.store import Object
from app.tools.pod_tracker import ZONE, TrackedPod
from app.tools.simulate.loader import Group
from app.tools.simulate.result import NodeUse, Placement, Reason, Usage, WorkloadResult
from app.wire.kube import NodeDecoder, PodDecoder

_Pool = tuple[str, str]
"""(driver, pool)."""


def offered(cluster: EmbeddedCluster) -> dict[str, Amounts]:
    """The number of devices on each node, by driver."""
    counts: dict[str, Counter[str]] = {}
    for spec in _slices(cluster):
        if "nodeName" in spec:
            counts.setdefault(spec["nodeName"], Counter())[spec["driver"]] += len(
                spec.get("devices", ())
            )
    return {node: dict(amounts) for node, amounts in counts.items()}


def taken(cluster: EmbeddedCluster) -> dict[str, Amounts]:
    """The number of allocated devices on each node, by driver, without administrative access."""
    places = {
        (_pool(spec), device["name"]): spec["nodeName"]
        for spec in _slices(cluster)
        if "nodeName" in spec
        for device in spec.get("devices", ())
    }
    given = {
        ((result["driver"], result["pool"]), result["device"])
        for claim in _all(cluster, RESOURCE_CLAIMS)
        for result in results_of(claim.get("status", {}))
        if not result.get("adminAccess")
    }
    counts: dict[str, Counter[str]] = {}
    for pool, device in given & places.keys():
        counts.setdefault(places[pool, device], Counter())[pool[0]] += 1
    return {node: dict(amounts) for node, amounts in counts.items()}


def extended_resources(cluster: EmbeddedCluster) -> set[str]:
    """The extended resources that are backed by device classes."""
    classes = list(_all(cluster, DEVICE_CLASSES))
    names = {CLASS_PREFIX + each["metadata"]["name"] for each in classes}
    return names | {each["spec"].get("extendedResourceName", "") for each in classes}


def _slices(cluster: EmbeddedCluster) -> Iterator[Object]:
    """The specs of slices of the newest generation of each pool."""
    specs = [value["spec"] for value in _all(cluster, RESOURCE_SLICES)]
    newest: dict[_Pool, int] = {}
    for spec in specs:
        newest[_pool(spec)] = max(newest.get(_pool(spec), 0), spec["pool"]["generation"])
    return (spec for spec in specs if spec["pool"]["generation"] == newest[_pool(spec)])


def _pool(spec: Object) -> _Pool:
    return spec["driver"], spec["pool"]["name"]


def _all(cluster: EmbeddedCluster, kind: Kind) -> Iterator[Object]:
    return (record.value for record in cluster.api.store[kind.storage].records.values())


#: Resources that are always shown, in this order; others follow by name.
_USUAL: Final = ("cpu", "memory", POD_COUNT)
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_UNKNOWN: Final = "?"
_NOT_TRIED: Final = "not tried yet"


def requested(cluster: EmbeddedCluster) -> dict[str, Amounts]:
    """The sums of requests on each node, with the number of pods and the devices of their claims."""
    decoder = PodDecoder()
    sums = taken(cluster)
    for record in cluster.api.store[PODS.storage].records.values():
        pod = decoder.decode(record.raw)
        if not pod.node_name or pod.phase in _ENDED:
            continue
        amounts = sums.setdefault(pod.node_name, {})
        for name, amount in (*pod.resources.requested, (POD_COUNT, 1)):
            amounts[name] = amounts.get(name, 0) + amount
    return sums


def node_uses(
    cluster: EmbeddedCluster, before: Mapping[str, Amounts], after: Mapping[str, Amounts]
) -> list[NodeUse]:
    """All nodes in the order of their names."""
    decoder = NodeDecoder()
    nodes = [decoder.decode(record.raw) for record in cluster.api.store[NODES.storage].ordered()]
    devices, other_names = offered(cluster), extended_resources(cluster)
    uses = []
    for node in nodes:
        allocatable = allocatable_units(node.status.allocatable) | devices.get(node.name, {})
        hidden = other_names - allocatable.keys()
        uses.append(
            _node_use(
                node,
                allocatable,
                *(_without(hidden, amounts.get(node.name, {})) for amounts in (before, after)),
            )
        )
    return uses


def _without(names: Collection[str], amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if name not in names}


def _node_use(node: Node, allocatable: Amounts, before: Amounts, after: Amounts) -> NodeUse:
    names = {name for name, amount in {**allocatable, **before, **after}.items() if amount}
    others = sorted(names - set(_USUAL))
    return NodeUse(
        name=node.name,
        zone=node.labels.get(ZONE, _UNKNOWN),
        resources={
            name: Usage(
                allocatable=allocatable.get(name, 0),
                before=before.get(name, 0),
                after=after.get(name, 0),
            )
            for name in (*_USUAL, *others)
        },
    )


def workload(
    group: Group, entries: Iterable[TrackedPod], zones: Mapping[str, str]
) -> WorkloadResult:
    """The result for one workload. ``zones``: zone of each node."""
    pods = list(entries)
    placed = [pod for pod in pods if pod.node and not pod.is_gone]
    pending = [pod for pod in pods if not pod.node and not pod.is_gone]
    return WorkloadResult(
        kind=group.kind,
        namespace=group.namespace,
        name=group.name,
        existing=group.existing,
        pods=len(pods),
        placed=len(placed),
        pending=len(pending),
        evicted=sum(pod.is_gone for pod in pods),
        zones=_counted(zones.get(pod.node, _UNKNOWN) for pod in placed),
        nodes=_counted(pod.node for pod in placed),
        placements=[
            Placement(
                pod=pod.pod.partition("/")[2],
                node=pod.node,
                zone=zones.get(pod.node, _UNKNOWN),
            )
            for pod in placed
        ],
        reasons=_reasons(pending),
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items()))


def _reasons(pending: Iterable[TrackedPod]) -> list[Reason]:
    """The most frequent first."""
    counts = Counter(
        (pod.rejection or pod.error or _NOT_TRIED, pod.is_decided) for pod in pending
    ).most_common()
    return [
        Reason(pods=count, message=message, is_decided=is_decided)
        for (message, is_decided), count in counts
    ]
