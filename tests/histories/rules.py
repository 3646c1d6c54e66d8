"""The rules of placement once more, one pod and one node at a time, in plain Python: what the checker judges by.

Nothing of the product is used here. Only what the workload makes is understood.
"""

import functools
from collections.abc import Iterable, Iterator

from tests.histories.apiserver import Manifest, is_live

_UNITS = {"m": 0.001, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@functools.cache
def amount(text: str) -> int:
    """A quantity in thousandths."""
    for unit, factor in _UNITS.items():
        if text.endswith(unit):
            return round(float(text.removesuffix(unit)) * factor * 1000)
    return int(text) * 1000


def usage(*pods: Manifest) -> dict[str, int]:
    """What pods take of a node, in thousandths; themselves under ``pods``."""
    total = {"pods": 1000 * len(pods)}
    for pod in pods:
        for container in pod["spec"]["containers"]:
            for name, text in container.get("resources", {}).get("requests", {}).items():
                total[name] = total.get(name, 0) + amount(text)
    return total


def capacity(node: Manifest) -> dict[str, int]:
    """What a node has, in thousandths."""
    return {name: amount(text) for name, text in node["status"]["allocatable"].items()}


def host_ports(pod: Manifest) -> set[int]:
    """The ports of its node that a pod takes."""
    return {
        port["hostPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
        if "hostPort" in port
    }


def anti_affinity(pod: Manifest) -> Iterator[tuple[dict[str, str], str]]:
    """The labels that it must not meet, each with the topology key."""
    rules = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
        yield term["labelSelector"]["matchLabels"], term["topologyKey"]


def labelled(thing: Manifest, wanted: dict[str, str]) -> bool:
    labels = thing["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, value in wanted.items())


def repels(pod: Manifest, other: Manifest, here: Manifest, there: Manifest) -> bool:
    """Whether two pods must not be on these two nodes, by the anti-affinity of ``pod``."""
    return any(
        labelled(other, wanted)
        and key in here["metadata"]["labels"]
        and here["metadata"]["labels"][key] == there["metadata"].get("labels", {}).get(key)
        for wanted, key in anti_affinity(pod)
    )


def at_odds(pod: Manifest, other: Manifest, here: Manifest, there: Manifest) -> bool:
    """Whether either keeps the other away."""
    return repels(pod, other, here, there) or repels(other, pod, there, here)


def refusals(node: Manifest, pod: Manifest) -> Iterator[str]:
    """Why a node takes no such pod at all."""
    spec = pod["spec"]
    if not labelled(node, spec.get("nodeSelector", {})):
        yield "nodeSelector"
    tolerated = {t["key"] for t in spec.get("tolerations", ())}
    if any(t["key"] not in tolerated for t in node["spec"].get("taints") or ()):
        yield "taint"
    if node["spec"].get("unschedulable"):
        yield "cordoned node"


def on_nodes(pods: Iterable[Manifest]) -> list[Manifest]:
    """The pods that take something of a node."""
    return [pod for pod in pods if pod["spec"].get("nodeName") and is_live(pod)]


def shortages(
    pod: Manifest, node: Manifest, others: Iterable[Manifest]
) -> Iterator[tuple[str, str]]:
    """What there is too little of on a node for a pod beside others, and how much of it there would have to be."""
    wanted, taken, room = usage(pod), usage(*others), capacity(node)
    for name, more in sorted(wanted.items()):
        needed = taken.get(name, 0) + more
        if needed > room.get(name, 0):
            yield name, f"{needed} of {room.get(name, 0)} thousandths"


def fits(
    pod: Manifest, node: Manifest, pods: Iterable[Manifest], nodes: Iterable[Manifest]
) -> bool:
    """Whether a pod can go to a node as things are."""
    if any(refusals(node, pod)):
        return False
    name, by_name = node["metadata"]["name"], {n["metadata"]["name"]: n for n in nodes}
    there = on_nodes(pods)
    here = [other for other in there if other["spec"]["nodeName"] == name]
    if any(shortages(pod, node, here)):
        return False
    if any(host_ports(pod) & host_ports(other) for other in here):
        return False
    return not any(
        other["spec"]["nodeName"] in by_name
        and at_odds(pod, other, node, by_name[other["spec"]["nodeName"]])
        for other in there
    )
