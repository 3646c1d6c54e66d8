"""The state of the cluster and the tracker, as parts of an answer."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from app.model.objects import Node
from app.model.requests import PODS as POD_COUNT
from app.model.requests import Amounts, allocatable_units
from app.sim import EmbeddedCluster
from app.sim.resources.kinds import NODES, PODS
from app.tools.pod_tracker import ZONE, Entry
from app.tools.simulate.devices import offered, stand_ins, taken
from app.tools.simulate.loading import Group
from app.tools.simulate.result import NodeUse, Placement, Reason, Usage, Workload
from app.wire.kube import NodeDecoder, PodDecoder

#: Always told, and in this order; others by name.
_USUAL: Final = ("cpu", "memory", POD_COUNT)
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_UNKNOWN: Final = "?"
_NOT_TRIED: Final = "not tried yet"


def requested(cluster: EmbeddedCluster) -> dict[str, Amounts]:
    """What the pods on each node request, their number and the devices of their claims included, by node."""
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
    devices, other_names = offered(cluster), stand_ins(cluster)
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


def workload(group: Group, entries: Iterable[Entry], zones: Mapping[str, str]) -> Workload:
    """What became of the pods of one workload. ``zones``: that of each node."""
    pods = list(entries)
    placed = [pod for pod in pods if pod.node and not pod.is_gone]
    pending = [pod for pod in pods if not pod.node and not pod.is_gone]
    return Workload(
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


def _reasons(pending: Iterable[Entry]) -> list[Reason]:
    """The most frequent first."""
    counts = Counter(
        (pod.refusal or pod.error or _NOT_TRIED, pod.is_decided) for pod in pending
    ).most_common()
    return [
        Reason(pods=count, message=message, is_decided=is_decided)
        for (message, is_decided), count in counts
    ]
