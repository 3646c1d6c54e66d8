"""Priority admission: from ``priorityClassName`` to ``spec.priority`` and ``spec.preemptionPolicy``."""

from collections.abc import Iterable
from typing import Any, Final

from app.sim.errors import forbidden
from app.sim.lookup import Lookup
from app.sim.resources.kinds import PODS, Kind
from app.sim.store import Object

HIGHEST_USER_PRIORITY: Final = 1_000_000_000
_DEFAULT_POLICY: Final = "PreemptLowerPriority"

SYSTEM_CLASSES: Final = {
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}
"""name -> (value, description)."""


def system_priority_classes() -> list[dict[str, Any]]:
    """The two classes that every cluster has."""
    return [
        {"metadata": {"name": name}, "value": value, "description": description}
        for name, (value, description) in SYSTEM_CLASSES.items()
    ]


def admit_priority(pod: Object, classes: Iterable[Object]) -> None:
    """Sets priority and preemption policy of a new pod from its class, or from the default class.

    Raises 403 if the class does not exist or the pod claims other values than its class gives.
    """
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    found = _default(classes) if not name else _named(name, classes, PODS, pod)
    value, policy = 0, _DEFAULT_POLICY
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
        value, policy = found["value"], found.get("preemptionPolicy", _DEFAULT_POLICY)
    _check_unclaimed(pod, value, policy)
    spec["priority"] = value
    spec["preemptionPolicy"] = policy


def admit_group_priority(group: Object, api: Lookup) -> None:
    """Sets the priority of a new PodGroup from its class, or from the default class. Raises 403."""
    spec, kind = group["spec"], api.kinds.by_type[group["apiVersion"], group["kind"]]
    name, classes = spec.get("priorityClassName", ""), api.priority_classes()
    found = _default(classes) if not name else _named(name, classes, kind, group)
    value = 0 if found is None else found["value"]
    if spec.get("priority", value) != value:
        why = (
            f"priority set in the pod group ({spec['priority']}) must match the priority computed "
            f"({value}) based on the priority class set in the spec"
        )
        raise forbidden(kind, group["metadata"].get("name", ""), why)
    spec["priority"] = value
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
        if "PodGroupPreemptionPolicy" in api.features:
            spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", _DEFAULT_POLICY))


def _named(name: str, classes: Iterable[Object], kind: Kind, value: Object) -> Object:
    for candidate in classes:
        if candidate["metadata"]["name"] == name:
            return candidate
    why = f"no PriorityClass with name {name} was found"
    raise forbidden(kind, value["metadata"].get("name", ""), why)


def _default(classes: Iterable[Object]) -> Object | None:
    """The class marked as global default; of several, the one of lowest value."""
    marked = [candidate for candidate in classes if candidate.get("globalDefault")]
    return min(marked, key=lambda candidate: candidate["value"], default=None)


def _check_unclaimed(pod: Object, value: int, policy: str) -> None:
    spec = pod["spec"]
    explanation = "must not be provided in pod spec; priority admission controller computed"
    end = "from the given PriorityClass name"
    if spec.get("priority", value) != value:
        claim = f"the integer value of priority ({spec['priority']})"
        raise forbidden(PODS, pod["metadata"]["name"], f"{claim} {explanation} {value} {end}")
    if spec.get("preemptionPolicy", policy) != policy:
        claim = f"the string value of PreemptionPolicy ({spec['preemptionPolicy']})"
        raise forbidden(PODS, pod["metadata"]["name"], f"{claim} {explanation} {policy} {end}")
