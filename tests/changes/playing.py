"""One random case: a small cluster, a pod that no node takes, what is suggested, and what then happens.

Suggestions are carried out on the manifests, by their patches, in a new cluster with a new scheduler. Whether a single
change is enough is found by trying every single change that there is, with code that shares nothing with that of the
suggestions.
"""

import contextlib
import copy
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from app.framework.testing import make_node, make_object, make_pod
from app.model.objects import Node, PodDisruptionBudget
from app.model.pod import Pod
from app.wire.whatif_v1 import WhatIfQuestion
from tests.shell.kube.fakes import FakeTransport, ok
from tests.shell.scheduler.world import running

Manifest = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
GPU = "example.com/gpu"
#: What users may give as a priority at most.
MOST_PRIORITY = 1_000_000_000


class WrongSuggestionError(Exception):
    """A suggestion that does not help, or one that is missing."""


# ---------------------------------------------------------------- random clusters


def cluster(rng: random.Random) -> Manifest:
    """Manifests of nodes, running pods and budgets."""
    nodes = [_node(rng, f"n{number}") for number in range(rng.randint(2, 7))]
    pods = [_running(rng, f"p{number}", rng.choice(nodes)) for number in range(rng.randint(0, 14))]
    taken = set()
    for pod in pods:  # no node runs two pods with the same host port
        [container] = pod["spec"]["containers"]
        held = [(pod["spec"]["nodeName"], port["hostPort"]) for port in container.get("ports", ())]
        if not taken.isdisjoint(held):
            del container["ports"]
        taken.update(held)
    budget = {
        "metadata": {"name": "budget", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": rng.randint(0, 1)},
    }
    return {"nodes": nodes, "pods": pods, "budgets": [budget] * rng.randint(0, 1)}


def _node(rng: random.Random, name: str) -> Manifest:
    labels = {HOSTNAME: name}
    if rng.random() < 0.8:
        labels[ZONE] = rng.choice("ab")
    if rng.random() < 0.4:
        labels["disk"] = rng.choice(["ssd", "hdd"])
    if rng.random() < 0.4:
        labels["cores"] = rng.choice(["4", "16"])
    taints = [
        {"key": key, "value": rng.choice(["", "yes"]), "effect": effect}
        for key, effect in (("team", "NoSchedule"), ("maintenance", "NoExecute"))
        if rng.random() < 0.3
    ]
    cordoned = rng.random() < 0.2
    if cordoned:
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    allocatable = {
        "cpu": str(rng.choice([2, 4, 8])),
        "memory": rng.choice(["4Gi", "8Gi"]),
        "pods": str(rng.choice([3, 110])),
    }
    if rng.random() < 0.3:
        allocatable[GPU] = str(rng.randint(1, 4))
    return {
        "name": name,
        "labels": labels,
        "spec": {"taints": taints, "unschedulable": cordoned},
        "status": {"allocatable": allocatable},
    }


def _container(rng: random.Random, name: str, most: int) -> Manifest:
    requests = {"cpu": f"{rng.randint(1, most) * 250}m", "memory": f"{rng.randint(1, most)}00Mi"}
    container: Manifest = {"name": name, "resources": {"requests": requests}}
    if rng.random() < 0.15:
        container["ports"] = [{"hostPort": rng.choice([80, 443]), "containerPort": 80}]
    return container


def _running(rng: random.Random, name: str, node: Manifest) -> Manifest:
    spec: Manifest = {
        "nodeName": node["name"],
        "priority": rng.choice([0, 0, 10, 2_000_001_000]),
        "containers": [_container(rng, "c", 8)],
    }
    app = rng.choice(["web", "db"])
    if rng.random() < 0.15:
        spec["affinity"] = {"podAntiAffinity": {REQUIRED: [_term(rng)]}}
    return {"name": name, "labels": {"app": app}, "spec": spec}


def _term(rng: random.Random) -> Manifest:
    selector = {"matchLabels": {"app": rng.choice(["web", "db"])}}
    return {"labelSelector": selector, "topologyKey": rng.choice([HOSTNAME, ZONE])}


def _requirement(rng: random.Random) -> Manifest:
    operator = rng.choice(["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    match operator:
        case "In" | "NotIn":
            key, values = rng.choice(["disk", ZONE]), rng.choice([["a"], ["c", "ssd"]])
        case "Gt" | "Lt":
            key, values = "cores", [rng.choice(["4", "8"])]
        case _:
            key, values = rng.choice(["disk", "cores"]), []
    return {"key": key, "operator": operator} | ({"values": values} if values else {})


def asked(rng: random.Random) -> Manifest:
    """A pod with some wishes."""
    spec: Manifest = {
        "containers": [_container(rng, f"c{n}", 14) for n in range(rng.randint(1, 2))],
        "tolerations": [],
        "priority": rng.choice([0, 0, 5]),
    }
    wish = lambda part: rng.random() < part  # noqa: E731
    if wish(0.2):
        spec["initContainers"] = [_container(rng, "i", 14)]
    if wish(0.2):
        amount = {GPU: str(rng.randint(1, 6))}
        spec["containers"][0]["resources"]["requests"] |= amount
        spec["containers"][0]["resources"]["limits"] = amount
    if wish(0.3):
        spec["nodeSelector"] = {"disk": rng.choice(["ssd", "nvme"])}
        if wish(0.3):
            spec["nodeSelector"][ZONE] = rng.choice("abc")
    affinity: Manifest = {}
    if wish(0.2):
        terms = [{"matchExpressions": [_requirement(rng)]} for _ in range(rng.choice([1, 1, 2]))]
        if wish(0.3):
            terms[0]["matchExpressions"].append(_requirement(rng))
        affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
    for part in ("podAffinity", "podAntiAffinity"):
        if wish(0.15):
            affinity[part] = {REQUIRED: [_term(rng) for _ in range(rng.randint(1, 2))]}
    if affinity:
        spec["affinity"] = affinity
    if wish(0.2):
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": rng.choice([ZONE, HOSTNAME]),
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
            | rng.choice([{}, {}, {"nodeTaintsPolicy": "Honor"}, {"minDomains": 3}])
        ]
    if wish(0.1):
        spec["schedulingGates"] = [{"name": f"g{n}"} for n in range(rng.randint(1, 2))]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asked", "namespace": "default", "labels": {"app": "web"}},
        "spec": spec,
    }


# ---------------------------------------------------------------- worlds


@contextlib.asynccontextmanager
async def world_of(found: Manifest):
    """A scheduler with this cluster."""
    answer = lambda sent: ok({"items": []} if "priorityclasses" in sent.path else None)  # noqa: E731
    async with running(transport=FakeTransport(handler=answer), features=()) as world:
        for informer in world.scheduler.informers:
            informer.synced.set()
        for node in found["nodes"]:
            world.change(Node, None, make_node(**node))
        for pod in found["pods"]:
            world.change(Pod, None, make_pod(**pod))
        for budget in found["budgets"]:
            made = make_object(PodDisruptionBudget, budget)
            world.change(PodDisruptionBudget, None, made)
        try:
            yield world
        finally:
            world.scheduler.whatif.close()


async def fits(world, pod: Manifest, *, changes: bool = False):
    """The row of the pod in the answer."""
    question = WhatIfQuestion("fits", objects=[copy.deepcopy(pod)], changes=changes)
    answer = await world.scheduler.whatif.ask(question)
    assert not answer.truncated, answer.message
    assert all("not every change" in each for each in answer.warnings), answer.warnings
    return answer.pods[0]


async def node_of(found: Manifest, pod: Manifest) -> str:
    """The node that a scheduler binds the pod to, or promises it; empty for none."""
    async with world_of(found) as world:
        meta = pod["metadata"]
        made = world.add(make_pod(meta["name"], labels=meta["labels"], spec=pod["spec"]))
        await world.settle()
        bound = world.state.cache.get(made.uid)
        if bound is not None:
            return str(bound.node_name)
        promised = {p.uid: node for p, node in world.state.nominator.all_nominations()}
        return promised.get(made.uid, "")


# ---------------------------------------------------------------- carrying out


def patched(value: Manifest, operations: list[Manifest]) -> Manifest:
    """A JSON Patch, in which missing parents are made."""
    value = copy.deepcopy(value)
    for operation in operations:
        parts = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"][1:].split("/")]
        place: Any = value
        for part, after in itertools.pairwise(parts):
            if isinstance(place, list):
                place = place[int(part)]
            else:
                place = place.setdefault(part, [] if after == "-" else {})
        last = parts[-1]
        if operation["op"] == "remove":
            del place[int(last) if isinstance(place, list) else last]
        elif isinstance(place, list):
            place.append(operation["value"]) if last == "-" else place.__setitem__(
                int(last), operation["value"]
            )
        else:
            place[last] = operation["value"]
    return value


def carried_out(found: Manifest, pod: Manifest, changes: list[Any]) -> tuple[Manifest, Manifest]:
    """The cluster and the pod after these changes."""
    found = copy.deepcopy(found)
    for change in changes:
        gone = {each.name for each in change.evict}
        found["pods"] = [each for each in found["pods"] if each["name"] not in gone]
        if change.node and change.patch:
            [node] = [each for each in found["nodes"] if each["name"] == change.node]
            whole = {"metadata": {"labels": node["labels"]}, "spec": node["spec"]}
            whole = patched(whole, change.patch)
            node["labels"], node["spec"] = whole["metadata"]["labels"], whole["spec"]
            if change.kind == "uncordon":  # which the node controller does
                node["spec"]["taints"] = [
                    t for t in node["spec"]["taints"] if "unschedulable" not in t["key"]
                ]
        elif change.patch:
            pod = patched(pod, change.patch)
    return found, pod


# ---------------------------------------------------------------- every single change


def single_changes(found: Manifest, pod: Manifest) -> Iterator[tuple[str, Manifest, Manifest]]:
    """All single changes there are: what it is, the cluster and the pod with it."""
    for edited in _of_the_pod(found, pod):
        yield edited[0], found, edited[1]
    for number, node in enumerate(found["nodes"]):
        changed = copy.deepcopy(found)
        own = changed["nodes"][number]
        if node["spec"]["unschedulable"]:
            own["spec"]["unschedulable"] = False
            own["spec"]["taints"] = [
                t for t in own["spec"]["taints"] if "unschedulable" not in t["key"]
            ]
            yield f"uncordon {node['name']}", changed, pod
        for key, value in _selected(pod):
            if key not in node["labels"]:
                changed = copy.deepcopy(found)
                changed["nodes"][number]["labels"][key] = value
                yield f"label {node['name']} {key}={value}", changed, pod
        changed = copy.deepcopy(found)
        changed["pods"] = [
            each
            for each in changed["pods"]
            if each["spec"]["nodeName"] != node["name"] or each["spec"]["priority"] > MOST_PRIORITY
        ]
        if len(changed["pods"]) < len(found["pods"]):
            yield f"evict all of {node['name']}", changed, pod


def _selected(pod: Manifest) -> Iterator[tuple[str, str]]:
    yield from pod["spec"].get("nodeSelector", {}).items()
    nodes = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {})
    for term in nodes.get("nodeSelectorTerms", ()):
        for each in term["matchExpressions"]:
            for value in {
                "In": each.get("values"),
                "Gt": ["5", "9"],
                "Lt": ["3", "7"],
                "Exists": [""],
            }.get(each["operator"]) or ():
                yield each["key"], value


def _of_the_pod(found: Manifest, pod: Manifest) -> Iterator[tuple[str, Manifest]]:
    def edited() -> tuple[Manifest, Manifest]:
        copied = copy.deepcopy(pod)
        return copied, copied["spec"]

    spec = pod["spec"]
    for resource in ("cpu", "memory", GPU):
        changed, own = edited()
        for container in (*own["containers"], *own.get("initContainers", ())):
            for amounts in container["resources"].values():
                amounts.pop(resource, None)
        if changed != pod:
            yield f"no {resource}", changed
    taints = {
        (t["key"], t.get("value", ""), t["effect"])
        for node in found["nodes"]
        for t in node["spec"]["taints"]
        if "unschedulable" not in t["key"]
    }
    for key, value, effect in sorted(taints):
        changed, own = edited()
        toleration = {"key": key, "operator": "Equal", "value": value, "effect": effect}
        own["tolerations"].append(toleration)
        yield f"tolerate {key}={value}", changed
    for key in spec.get("nodeSelector", {}):
        changed, own = edited()
        del own["nodeSelector"][key]
        yield f"no nodeSelector {key}", changed
    if "nodeAffinity" in spec.get("affinity", {}):
        changed, own = edited()
        del own["affinity"]["nodeAffinity"]
        yield "no node affinity", changed
    for part in ("podAffinity", "podAntiAffinity"):
        for number in range(len(spec.get("affinity", {}).get(part, {}).get(REQUIRED, ()))):
            changed, own = edited()
            del own["affinity"][part][REQUIRED][number]
            yield f"no {part} {number}", changed
    for number in range(len(spec.get("topologySpreadConstraints", ()))):
        changed, own = edited()
        own["topologySpreadConstraints"][number]["whenUnsatisfiable"] = "ScheduleAnyway"
        yield f"spread anyway {number}", changed
    for part in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(part, ())):
            if "ports" in container:
                changed, own = edited()
                del own[part][number]["ports"][0]["hostPort"]
                yield f"no port of {part} {number}", changed
    if len(spec.get("schedulingGates", ())) == 1:
        changed, own = edited()
        del own["schedulingGates"]
        yield "no gate", changed


# ---------------------------------------------------------------- a case


async def play(seed: int) -> Counter[str]:
    """Counts of what was suggested and carried out. Raises WrongSuggestionError."""
    rng = random.Random(seed)
    while True:
        found, pod = cluster(rng), asked(rng)
        async with world_of(found) as world:
            row = await fits(world, pod, changes=True)
        if not row.node:
            break
    counts: Counter[str] = Counter(pods=1)
    sets = [frozenset(change.text for change in each.changes) for each in row.suggestions]
    if len(sets) != len(set(sets)):
        raise WrongSuggestionError(f"told twice: {sets}")
    for suggestion in row.suggestions:
        evictions = [change for change in suggestion.changes if change.evict]
        nodes = [change.node for change in evictions]
        if len(nodes) != len(set(nodes)) or any(
            pod.node != change.node for change in evictions for pod in change.evict
        ):
            raise WrongSuggestionError(f"not one eviction for each node: {evictions}")
        after, changed = carried_out(found, pod, suggestion.changes)
        told = [each.text for each in suggestion.changes]
        if not await node_of(after, changed):
            raise WrongSuggestionError(
                f"{told} does not place the pod: {msgspec.json.encode([after, changed])!r}"
            )
        counts["suggestions"] += 1
        counts[f"of {len(told)} changes"] += 1
        counts.update(change.kind for change in suggestion.changes)
    single = any(len(each.changes) == 1 for each in row.suggestions)
    counts["helped by one change"] += single
    counts["not helped"] += not row.suggestions
    for what, after, changed in single_changes(found, pod):
        if single:
            break
        if await node_of(after, changed):
            raise WrongSuggestionError(
                f"{what} is enough, and was not found for {msgspec.json.encode([found, pod])!r}"
            )
    return counts
