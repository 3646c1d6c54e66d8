"""scheduling.k8s.io: PodGroups and Workloads, as Kubernetes 1.37 has them; its older version is a module of its own."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.model.pod_groups_v1alpha2 import VERSION as V1ALPHA2
from app.sim.errors import (
    Cause,
    duplicate_value,
    invalid_value,
    required,
)
from app.sim.lookup import Lookup
from app.sim.resources import pod_groups_v1alpha2 as older
from app.sim.resources.devices.allocation import condition, condition_type
from app.sim.resources.devices.checks import (
    distinct,
    each,
    label,
    named,
    named_by,
    subdomain,
    text,
    union,
)
from app.sim.resources.priority import HIGHEST_USER_PRIORITY, admit_group_priority
from app.sim.resources.strategy import KindStrategy, WithoutStatus
from app.sim.resources.validation import label_key_mistakes, segment_mistakes
from app.sim.store import Object

PROTECTION: Final = "scheduling.k8s.io/podgroup-protection"
"""The finalizer of a PodGroup that pods may still belong to."""
V1BETA1: Final = "scheduling.k8s.io/v1beta1"
V1ALPHA3: Final = "scheduling.k8s.io/v1alpha3"

_MOST_TEMPLATES: Final = 8
_MOST_CLAIMS: Final = 4
_LOWEST_PRIORITY: Final = -(2**31)
_HIGHEST_COUNT: Final = 2**31 - 1
_IMMUTABLE: Final = "field is immutable"
_NEVER: Final = "-"
"""Stands for a gate that is not known here and so always off."""

_GATED_NEWER: Final = {
    "schedulingConstraints": "TopologyAwareWorkloadScheduling",
    "resourceClaims": "DRAWorkloadResourceClaims",
    "preemptionPolicy": "PodGroupPreemptionPolicy",
    "parentCompositePodGroupName": _NEVER,
}
_GATED: Final[Mapping[str, Mapping[str, str]]] = {
    V1ALPHA2: older.GATED,
    V1BETA1: _GATED_NEWER,
    V1ALPHA3: _GATED_NEWER,
}
"""version -> field of a group or a template -> the gate without which it is dropped."""
_FIXED_NEWER: Final = (
    *("workloadRef", "disruptionMode", "priorityClassName", "priority"),
    *_GATED_NEWER,
)
_FIXED: Final[Mapping[str, Sequence[str]]] = {
    V1ALPHA2: older.FIXED,
    V1BETA1: _FIXED_NEWER,
    V1ALPHA3: _FIXED_NEWER,
}
"""version -> fields of a group that cannot change."""


def set_group_defaults(group: Object) -> None:
    """Sets the defaults of a PodGroup, and the fields that are shown when they are empty."""
    spec = group.setdefault("spec", {})
    if group["apiVersion"] == V1ALPHA2:
        older.set_group_defaults(spec)
    else:
        spec.setdefault("disruptionMode", {"single": {}})
    _drop_empty_topology(spec)
    group.setdefault("status", {})


def set_workload_defaults(workload: Object) -> None:
    """Sets the fields of a Workload that are shown when they are empty."""
    for template in workload.setdefault("spec", {}).get("podGroupTemplates") or ():
        if workload["apiVersion"] == V1ALPHA2:
            older.set_template_defaults(template)
        _drop_empty_topology(template)


def _drop_empty_topology(spec: Object) -> None:
    constraints = spec.get("schedulingConstraints") or {}
    if constraints.get("topology") == []:
        spec["schedulingConstraints"] = {
            name: part for name, part in constraints.items() if name != "topology"
        }


def drop_scheduling_group(spec: Object, old: Object, api: Lookup) -> None:
    """Removes a pod's group if there are no groups, unless the pod had one before."""
    if "GenericWorkload" not in api.features and "schedulingGroup" not in old:
        spec.pop("schedulingGroup", None)


def scheduling_group_mistakes(spec: Object, path: str) -> list[Cause]:
    """Checks the group that a pod spec names."""
    if "schedulingGroup" not in spec:
        return []
    field, name = (
        f"{path}.schedulingGroup.podGroupName",
        spec["schedulingGroup"].get("podGroupName"),
    )
    if name is None:
        return [invalid_value(field, None, "must specify one of: `podGroupName`")]
    return subdomain(text(name), field)


class PodGroupStrategy(KindStrategy):
    """A group gets its priority and its finalizer when it is created, and little of it can change."""

    def admit(self, value: Object, api: Lookup) -> None:
        spec, metadata = value["spec"], value["metadata"]
        if value["apiVersion"] != V1ALPHA2 or older.has_priorities(api):
            admit_group_priority(value, api)
        metadata["finalizers"] = _with(metadata.get("finalizers", []), PROTECTION)
        _drop_disabled(spec, {}, value["apiVersion"], api)
        value["status"] = {}

    def prepare_for_create(self, value: Object, api: Lookup) -> None:
        if value["apiVersion"] == V1ALPHA2:
            older.check_template(value, api)

    def prepare_for_update(self, value: Object, old: Object, api: Lookup) -> None:
        super().prepare_for_update(value, old, api)
        _drop_disabled(value["spec"], old["spec"], value["apiVersion"], api)

    def mistakes(self, value: Object) -> list[Cause]:
        spec, path = value.get("spec") or {}, "spec"
        if value["apiVersion"] == V1ALPHA2:
            causes = older.template_mistakes(spec, path)
        else:
            causes = _workload_ref(spec.get("workloadRef"), f"{path}.workloadRef")
        return causes + _group_mistakes(spec, path, value["apiVersion"])

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:
        spec, before, version = value["spec"], old["spec"], value["apiVersion"]
        changed = [name for name in _FIXED[version] if spec.get(name) != before.get(name)]
        if spec["schedulingPolicy"].keys() != before["schedulingPolicy"].keys():
            changed += [] if "schedulingPolicy" in changed else ["schedulingPolicy"]
        return [invalid_value(f"spec.{name}", None, _IMMUTABLE) for name in changed]

    def prepare_status(self, value: Object, old: Object) -> None:
        """Nothing but the status changes."""
        value["metadata"] = dict(old["metadata"])
        value.setdefault("status", {})

    def status_mistakes(self, value: Object, old: Object, api: Lookup) -> list[Cause]:  # noqa: ARG002
        status = value["status"]
        conditions = _list(status.get("conditions") or [])
        causes = distinct(
            conditions, "status.conditions", condition, key=condition_type, at=".type"
        )
        statuses = _list(status.get("resourceClaimStatuses") or [])
        where = "status.resourceClaimStatuses"
        if len(statuses) <= _MOST_CLAIMS:
            causes += _duplicates(statuses, where)
        claims = {claim["name"] for claim in value["spec"].get("resourceClaims") or ()}
        for index, entry in enumerate(statuses):
            if entry.get("name") not in claims:
                detail = "must match the name of an entry in `spec.resourceClaims`"
                field = f"{where}[{index}].name"
                causes.append(invalid_value(field, entry.get("name", ""), detail))
        return causes + each(statuses, where, _claim_status, most=_MOST_CLAIMS)


class GroupWorkloadStrategy(WithoutStatus):
    """A Workload is templates of groups, which nothing acts on; most of it cannot change."""

    def admit(self, value: Object, api: Lookup) -> None:
        for template in _list(value["spec"].get("podGroupTemplates") or []):
            _drop_disabled(template, {}, value["apiVersion"], api)
        value.pop("status", None)

    def prepare_for_update(self, value: Object, old: Object, api: Lookup) -> None:
        templates = _list(value["spec"].get("podGroupTemplates") or [])
        before = old["spec"].get("podGroupTemplates") or []
        for index, template in enumerate(templates):
            known = before[index] if index < len(before) else {}
            _drop_disabled(template, known, value["apiVersion"], api)
        value.pop("status", None)

    def mistakes(self, value: Object) -> list[Cause]:
        spec, version = value.get("spec") or {}, value["apiVersion"]
        causes = _controller_ref(spec.get("controllerRef"), "spec.controllerRef")
        templates, path = _list(spec.get("podGroupTemplates") or []), "spec.podGroupTemplates"
        if not templates:
            return [*causes, required(path)]
        if len(templates) <= _MOST_TEMPLATES:
            causes += _duplicates(templates, path)

        def template(item: Any, where: str) -> list[Cause]:
            name = text(item.get("name", ""))
            own = label(name, f"{where}.name") if name else [required(f"{where}.name")]
            return own + _group_mistakes(item, where, version)

        return causes + each(templates, path, template, most=_MOST_TEMPLATES)

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:
        spec, before = (_comparable(each["spec"], value["apiVersion"]) for each in (value, old))
        return [
            invalid_value(f"spec.{name}", None, _IMMUTABLE)
            for name in ("controllerRef", "podGroupTemplates")
            if spec.get(name) != before.get(name)
        ]


def _comparable(spec: Object, version: str) -> Object:
    """The part of a Workload's spec that cannot change: in v1beta1 the size of a gang can."""
    if version == V1ALPHA2:
        return spec
    templates = [
        template | {"schedulingPolicy": sorted(template.get("schedulingPolicy") or {})}
        for template in spec.get("podGroupTemplates") or ()
    ]
    return spec | {"podGroupTemplates": templates}


def _with(names: list[str], name: str) -> list[str]:
    return names if name in names else [*names, name]


def _drop_disabled(spec: Object, old: Object, version: str, api: Lookup) -> None:
    """Removes the fields whose gates are off, unless they were in use before."""
    for name, gate in _GATED[version].items():
        if gate not in api.features and old.get(name) is None and spec.get(name) is not None:
            spec.pop(name)


# ---------------------------------------------------------------- parts


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"a list is expected, not {value!r}")
    return value


def _number(value: Any) -> int:
    """A number of 32 bits."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a number is expected, not {value!r}")
    if not _LOWEST_PRIORITY <= value <= _HIGHEST_COUNT:
        raise ValueError(f"{value} does not fit into 32 bits")
    return value


def _duplicates(items: list[Any], path: str) -> list[Cause]:
    """Checks that no two items have the same name."""
    names = [named(item) for item in items]
    return [
        duplicate_value(f"{path}[{index}]", items[index])
        for index, name in enumerate(names)
        if name in names[:index]
    ]


def _workload_ref(value: Any, path: str) -> list[Cause]:
    if value is None:
        return []
    causes = named_by(value, path, "workloadName", subdomain)
    return causes + named_by(value, path, "templateName", label)


def _controller_ref(value: Any, path: str) -> list[Cause]:
    if value is None:
        return []
    group = text(value.get("apiGroup", ""))
    causes = subdomain(group, f"{path}.apiGroup") if group else []
    for name in ("kind", "name"):
        causes += named_by(value, path, name, _segment)
    return causes


def _segment(name: str, path: str) -> list[Cause]:
    return segment_mistakes(path, name)


def _group_mistakes(spec: Object, path: str, version: str) -> list[Cause]:
    """Checks what a group and a template of one have in common."""
    policy, where = spec.get("schedulingPolicy") or {}, f"{path}.schedulingPolicy"
    causes = union(policy, where, "basic", "gang")
    if policy.get("gang") is not None:
        causes += _gang(policy["gang"], f"{where}.gang")
    constraints = spec.get("schedulingConstraints") or {}
    topology = _list(constraints.get("topology") or [])
    causes += each(topology, f"{path}.schedulingConstraints.topology", _topology, most=1)
    claims, where = _list(spec.get("resourceClaims") or []), f"{path}.resourceClaims"
    if len(claims) <= _MOST_CLAIMS:
        causes += _duplicates(claims, where)
    causes += each(claims, where, _claim, most=_MOST_CLAIMS)
    if spec.get("disruptionMode") is not None:
        causes += _disruption_mode(spec["disruptionMode"], f"{path}.disruptionMode", version)
    class_name = text(spec.get("priorityClassName", ""))
    causes += subdomain(class_name, f"{path}.priorityClassName") if class_name else []
    priority = spec.get("priority")
    if priority is not None and priority > HIGHEST_USER_PRIORITY:
        detail = f"must be less than or equal to {HIGHEST_USER_PRIORITY}"
        causes.append(invalid_value(f"{path}.priority", _number(priority), detail))
    return causes


def _gang(value: Object, path: str) -> list[Cause]:
    count = _number(value.get("minCount", 0))
    if count == 0:
        return [required(f"{path}.minCount")]
    detail = "must be greater than or equal to 1"
    return [invalid_value(f"{path}.minCount", count, detail)] if count < 0 else []


def _topology(value: Object, path: str) -> list[Cause]:
    key = text(value.get("key", ""))
    return label_key_mistakes(f"{path}.key", key) if key else [required(f"{path}.key")]


def _claim(value: Object, path: str) -> list[Cause]:
    sources = ("resourceClaimName", "resourceClaimTemplateName")
    causes = union(value, path, *sources) + named_by(value, path, "name", label)
    for name in sources:
        if value.get(name) is not None:
            causes += subdomain(text(value[name]), f"{path}.{name}")
    return causes


def _claim_status(value: Object, path: str) -> list[Cause]:
    name = value.get("resourceClaimName")
    return [] if name is None else subdomain(text(name), f"{path}.resourceClaimName")


def _disruption_mode(value: Any, path: str, version: str) -> list[Cause]:
    if version == V1ALPHA2:
        return older.disruption_mistakes(value, path)
    return union(value, path, "single", "all")
