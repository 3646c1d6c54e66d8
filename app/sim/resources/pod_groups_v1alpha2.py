"""PodGroups and Workloads of scheduling.k8s.io/v1alpha2, which Kubernetes 1.36 has and 1.37 has not.

Everything that holds for this version only is here. When 1.36 is no longer an emulated version this module goes, with
app.model.pod_groups_v1alpha2, the groups of Jobs (app.sim.controllers.workloads.gangs) and what imports any of them.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.model.pod_groups_v1alpha2 import VERSION, WHOLE_PREEMPTION
from app.sim.errors import Cause, forbidden, unsupported_value
from app.sim.lookup import Lookup
from app.sim.objects import controller_reference, group_name, is_being_deleted
from app.sim.resources.devices.checks import label, named_by, subdomain, text, union
from app.sim.resources.kinds import POD_GROUPS, Kind
from app.sim.store import Object

GATED: Final[Mapping[str, str]] = {
    "schedulingConstraints": "TopologyAwareWorkloadScheduling",
    "resourceClaims": "DRAWorkloadResourceClaims",
    "disruptionMode": WHOLE_PREEMPTION,
    "priorityClassName": WHOLE_PREEMPTION,
    "priority": WHOLE_PREEMPTION,
}
"""Field of a group or a template -> the gate without which it is dropped."""
FIXED: Final = ("podGroupTemplateRef", "schedulingPolicy", *GATED)
"""Fields of a group that cannot change."""


def set_group_defaults(spec: Object) -> None:
    """Sets the defaults of a group."""
    spec.setdefault("podGroupTemplateRef", None)
    spec.setdefault("disruptionMode", "Pod")


def set_template_defaults(template: Object) -> None:
    """Sets the defaults of a template in a Workload."""
    template.setdefault("schedulingConstraints", None)


def has_priorities(api: Lookup) -> bool:
    """Whether groups have priorities of their own."""
    return WHOLE_PREEMPTION in api.features


def disruption_mistakes(value: Any, path: str) -> list[Cause]:
    """Checks ``disruptionMode``, here a text."""
    known = ("Pod", "PodGroup")
    mode = text(value)
    return [] if mode in known else [unsupported_value(path, f'"{mode}"', known)]


def gang_of_job(job: Object, api: Lookup) -> str:
    """The name of the PodGroup with a gang policy that a Job's pods belong to; empty without one."""
    kind = api.kinds.by_storage.get(POD_GROUPS)
    if kind is None or kind.group_version != VERSION:
        return ""
    namespace, name = job["metadata"]["namespace"], group_name(job["spec"]["template"])
    if name:
        found = api.find(kind, namespace, name)
        groups = [] if found is None else [found.value]
    else:
        records = api.store[kind.storage].ordered(namespace=namespace)
        groups = [each.value for each in records if _is_controlled(each.value, job)]
    for group in groups:
        if "gang" in group["spec"].get("schedulingPolicy", {}):
            return str(group["metadata"]["name"])
    return ""


def _is_controlled(value: Object, owner: Object) -> bool:
    reference = controller_reference(value)
    return reference is not None and reference["uid"] == owner["metadata"]["uid"]


def check_template(group: Object, api: Lookup) -> None:
    """Checks that the template that a group names exists. Raises 403."""
    reference = (group["spec"].get("podGroupTemplateRef") or {}).get("workload")
    if reference is None:
        return
    kinds, metadata = api.kinds.by_type, group["metadata"]
    name, template = reference["workloadName"], reference["podGroupTemplateName"]
    found = api.find(kinds[VERSION, "Workload"], metadata["namespace"], name)
    if found is None:
        why = f'Workload "{name}" not found'
    elif is_being_deleted(found.value):
        why = f'Workload "{name}" is being deleted'
    elif all(each["name"] != template for each in found.value["spec"]["podGroupTemplates"]):
        why = f'PodGroupTemplate "{template}" not found in Workload "{name}"'
    else:
        return
    kind: Kind = kinds[VERSION, "PodGroup"]
    raise forbidden(kind, metadata["name"], f"PodGroup rejected: {why}")


def template_mistakes(spec: Object, path: str) -> list[Cause]:
    """Checks the template that a group names."""
    value, path = spec.get("podGroupTemplateRef"), f"{path}.podGroupTemplateRef"
    if value is None:
        return []
    causes = union(value, path, "workload")
    if value.get("workload") is not None:
        where = f"{path}.workload"
        causes += named_by(value["workload"], where, "workloadName", subdomain)
        causes += named_by(value["workload"], where, "podGroupTemplateName", label)
    return causes
