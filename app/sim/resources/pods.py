"""Pods as the API server treats them: admission, quality of service, what may change after creation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.model.quantity import QuantityError, parse
from app.sim.errors import (
    Cause,
    duplicate_value,
    forbidden_value,
    invalid_value,
    required,
    unsupported_value,
)
from app.sim.lookup import Lookup
from app.sim.objects import labels_of
from app.sim.resources.devices.pod_entries import entry_mistakes, entry_status_mistakes
from app.sim.resources.pod_groups import drop_scheduling_group, scheduling_group_mistakes
from app.sim.resources.priority import admit_priority
from app.sim.resources.quotas import admit_limits
from app.sim.resources.runtime_class import admit_runtime_class
from app.sim.resources.strategy import KindStrategy
from app.sim.resources.validation import name_mistakes
from app.sim.store import Object

_TOLERATED_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_SECONDS: Final = 300
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_COMPUTE: Final = ("cpu", "memory")
_LABEL_KEY_OPERATORS: Final = {"matchLabelKeys": "In", "mismatchLabelKeys": "NotIn"}

_IMMUTABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_FREE_FIELDS: Final = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "schedulingGates")


class PodStrategy(KindStrategy):
    """The rules of pods: they are created as Pending with defaults from admission, and most of the spec
    is immutable.
    """

    def admit(self, value: Object, api: Lookup) -> None:
        drop_scheduling_group(value["spec"], {}, api)

    def prepare_for_create(self, value: Object, api: Lookup) -> None:
        admit_priority(value, api.priority_classes())
        admit_runtime_class(value, api)
        admit_limits(value, api)
        _merge_label_keys(value)
        _tolerate_for_a_while(value["spec"])
        status: Object = {"phase": "Pending"}
        if value["spec"].get("schedulingGates"):
            status["conditions"] = [_gated(api.timestamp())]
        value["status"] = status | {"qosClass": qos_class(value["spec"])}

    def prepare_for_update(self, value: Object, old: Object, api: Lookup) -> None:
        super().prepare_for_update(value, old, api)
        spec = value["spec"]
        drop_scheduling_group(spec, old["spec"], api)
        for name in ("priority", "preemptionPolicy", "priorityClassName"):
            if name in old["spec"]:
                spec.setdefault(name, old["spec"][name])
        _tolerate_for_a_while(spec)

    def mistakes(self, value: Object) -> list[Cause]:
        return pod_spec_mistakes(value.get("spec") or {}, "spec")

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:
        gates = _new_gates(value["spec"], old["spec"])
        if gates:
            return gates
        if _frozen_part(value["spec"], old["spec"]) != _frozen_part(old["spec"], old["spec"]):
            return [forbidden_value("spec", _IMMUTABLE)]
        return []

    def status_mistakes(self, value: Object, old: Object, api: Lookup) -> list[Cause]:  # noqa: ARG002
        return entry_status_mistakes(value)


def _gated(timestamp: str) -> Object:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastTransitionTime": timestamp,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def _tolerate_for_a_while(spec: Object) -> None:
    """DefaultTolerationSeconds: five minutes on a node that is not ready or unreachable."""
    tolerations = spec.get("tolerations", [])
    missing = [key for key in _TOLERATED_TAINTS if not _tolerates(tolerations, key)]
    if missing:
        spec["tolerations"] = tolerations + [
            {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _TOLERATION_SECONDS,
            }
            for key in missing
        ]


def _tolerates(tolerations: Sequence[Mapping[str, Any]], key: str) -> bool:
    return any(
        toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")
        for toleration in tolerations
    )


def _all_containers(spec: Object) -> list[Object]:
    return [*spec.get("initContainers", ()), *spec.get("containers", ())]


def qos_class(spec: Object) -> str:
    """Guaranteed: limits equal requests for CPU and memory everywhere; BestEffort: neither set anywhere."""
    guaranteed, best_effort = True, True
    for container in _all_containers(spec):
        resources = container.get("resources", {})
        requests = _amounts(resources.get("requests", {}))
        limits = _amounts(resources.get("limits", {}))
        best_effort = best_effort and not requests and not limits
        guaranteed = guaranteed and len(limits) == len(_COMPUTE) and requests == limits
    if best_effort:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    """The CPU and memory in a resource list that are not zero, in nano-units."""
    parsed = {name: parse(resources[name]) for name in _COMPUTE if name in resources}
    return {name: amount for name, amount in parsed.items() if amount}


def pod_spec_mistakes(spec: Object, path: str) -> list[Cause]:
    """Checks a pod spec at ``path``."""
    containers = spec.get("containers") or []
    causes = [] if containers else [required(f"{path}.containers")]
    seen: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            causes += _container_mistakes(container, f"{path}.{field}[{index}]", seen)
    policy = spec.get("restartPolicy", "Always")
    if policy not in _RESTART_POLICIES:
        causes.append(unsupported_value(f"{path}.restartPolicy", f'"{policy}"', _RESTART_POLICIES))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        detail = "cannot be set until all schedulingGates have been cleared"
        causes.append(forbidden_value(f"{path}.nodeName", detail))
    causes += scheduling_group_mistakes(spec, path)
    return causes + _gate_mistakes(spec, path) + entry_mistakes(spec, path)


def _container_mistakes(container: Object, path: str, seen: set[str]) -> list[Cause]:
    name = container.get("name", "")
    if not name:
        causes = [required(f"{path}.name")]
    elif name in seen:
        causes = [duplicate_value(f"{path}.name", name)]
    else:
        causes = name_mistakes(f"{path}.name", name, single_label=True)
    seen.add(name)
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    return causes + _resource_mistakes(container.get("resources", {}), f"{path}.resources")


def _resource_mistakes(resources: Object, path: str) -> list[Cause]:
    causes: list[Cause] = []
    amounts: dict[str, dict[str, int]] = {"requests": {}, "limits": {}}
    for field, parsed in amounts.items():
        for name, text in resources.get(field, {}).items():
            try:
                parsed[name] = parse(text)
            except QuantityError as error:
                causes.append(invalid_value(f"{path}.{field}[{name}]", str(text), str(error)))
                continue
            if parsed[name] < 0:
                detail = "must be greater than or equal to 0"
                causes.append(invalid_value(f"{path}.{field}[{name}]", str(text), detail))
    for name, limit in amounts["limits"].items():
        if amounts["requests"].get(name, 0) > limit:
            text = str(resources["requests"][name])
            detail = f"must be less than or equal to {name} limit of {resources['limits'][name]}"
            causes.append(invalid_value(f"{path}.requests", text, detail))
    return causes


def _gate_mistakes(spec: Object, path: str) -> list[Cause]:
    names = [gate.get("name", "") for gate in spec.get("schedulingGates", ())]
    return [
        duplicate_value(f"{path}.schedulingGates[{index}]", name)
        for index, name in enumerate(names)
        if name in names[:index]
    ]


def _new_gates(new: Object, old: Object) -> list[Cause]:
    known = [gate["name"] for gate in old.get("schedulingGates", ())]
    return [
        forbidden_value(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate['name']}'",
        )
        for index, gate in enumerate(new.get("schedulingGates", ()))
        if gate["name"] not in known
    ]


def _frozen_part(spec: Object, old: Object) -> Object:
    """The part of ``spec`` that may not differ from the ``old`` one."""
    frozen = {name: part for name, part in spec.items() if name not in _FREE_FIELDS}
    for field in ("containers", "initContainers"):
        if field in frozen:
            frozen[field] = [container | {"image": ""} for container in frozen[field]]
    kept = old.get("tolerations", [])
    if all(toleration in spec.get("tolerations", ()) for toleration in kept):
        frozen["tolerations"] = kept
    if old.get("schedulingGates"):
        frozen.pop("nodeSelector", None)
        frozen["affinity"] = frozen.get("affinity", {}) | {"nodeAffinity": {}}
    return frozen


def _merge_label_keys(pod: Object) -> None:
    """Adds the pod's values of ``matchLabelKeys`` and ``mismatchLabelKeys`` to the selectors of its affinity terms
    (KEP-3633).
    """
    labels = labels_of(pod)
    for term in _affinity_terms(pod["spec"].get("affinity") or {}):
        selector = term.get("labelSelector")
        added = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for field, operator in _LABEL_KEY_OPERATORS.items()
            for key in term.get(field) or ()
            if key in labels
        ]
        if selector is not None and added:
            expressions = [*(selector.get("matchExpressions") or ()), *added]
            term["labelSelector"] = selector | {"matchExpressions": expressions}


def _affinity_terms(affinity: Object) -> Iterator[Object]:
    for kind in ("podAffinity", "podAntiAffinity"):
        given = affinity.get(kind) or {}
        yield from given.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for preferred in given.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield preferred.get("podAffinityTerm") or {}
