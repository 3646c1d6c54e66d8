"""The Workload and the PodGroup of a Job whose pods have to run together (the feature gate WorkloadWithJob of
Kubernetes 1.36).
"""

from typing import Final

from app.sim.controllers.workloads.plan import Create, Scene
from app.sim.controllers.workloads.templates import digest
from app.sim.objects import find_condition, owner_reference, spelled
from app.sim.store import Object

_HASH_LENGTH: Final = 10
_LONGEST_NAME: Final = 253


def plan_gang(scene: Scene) -> Create | Object | None:
    """What is missing of a Job's Workload and PodGroup, or the PodGroup; None if its pods have none.

    A Job is a gang if it is indexed, all its pods run at once, and its template names no group. One that has started
    without a Workload goes on without.
    """
    job = scene.workload
    if scene.group_kinds is None or not _is_gang(job["spec"]):
        return None
    workload_kind, group_kind = scene.group_kinds
    if not scene.group_workloads:
        return Create(workload_kind, _workload(job)) if _is_new(scene) else None
    workload, *others = scene.group_workloads
    templates = workload["spec"]["podGroupTemplates"]
    if others or len(templates) != 1:
        return None
    groups = [each for each in scene.groups if _workload_of(each) == workload["metadata"]["name"]]
    if not groups:
        return Create(group_kind, _group(job, workload, templates[0]))
    return groups[0] if len(groups) == 1 else None


def _is_gang(spec: Object) -> bool:
    pods = spec.get("parallelism", 1)
    return (
        pods > 1
        and spec.get("completionMode") == "Indexed"
        and spec.get("completions") == pods
        and "schedulingGroup" not in spec["template"]["spec"]
    )


def _is_new(scene: Scene) -> bool:
    """Whether a Job has never had a pod."""
    status = scene.workload.get("status") or {}
    ended = status.get("succeeded", 0) + status.get("failed", 0)
    started = "startTime" in status or find_condition(scene.workload, "Suspended") is not None
    return not (scene.pods or ended or started)


def _workload_of(group: Object) -> str:
    reference = (group["spec"].get("podGroupTemplateRef") or {}).get("workload") or {}
    return str(reference.get("workloadName", ""))


def plain_reference(owner: Object) -> Object:
    """A reference to an owner that is not the controller, and whose deletion does not wait."""
    reference = owner_reference(owner)
    return {name: reference[name] for name in ("apiVersion", "kind", "name", "uid")}


def _workload(job: Object) -> Object:
    name = job["metadata"]["name"]
    mark = spelled(digest(job["metadata"]["uid"].encode()), _HASH_LENGTH)
    policy = {"gang": {"minCount": job["spec"]["parallelism"]}}
    return {
        "metadata": {
            "name": f"{name[: _LONGEST_NAME - _HASH_LENGTH - 1]}-{mark}",
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": name},
            "podGroupTemplates": [{"name": f"{name}-pgt-0", "schedulingPolicy": policy}],
        },
    }


def _group(job: Object, workload: Object, template: Object) -> Object:
    name = workload["metadata"]["name"]
    full = f"{name}-{template['name']}"
    mark = spelled(digest(full.encode()), _HASH_LENGTH)
    reference = {"workloadName": name, "podGroupTemplateName": template["name"]}
    return {
        "metadata": {
            "name": f"{full[: _LONGEST_NAME - _HASH_LENGTH - 1]}-{mark}",
            "ownerReferences": [owner_reference(job), plain_reference(workload)],
        },
        "spec": {
            "podGroupTemplateRef": {"workload": reference},
            "schedulingPolicy": template["schedulingPolicy"],
        },
    }
