"""StatefulSets: pods with ordinals and claims of their own, created and replaced in order."""

from app.sim.controllers.workloads.plan import (
    BURST,
    Create,
    Delete,
    ObjectChange,
    Plan,
    Scene,
    counted,
    is_active,
    ready_for,
)
from app.sim.controllers.workloads.revisions import current_revision, forgotten, revision_name
from app.sim.controllers.workloads.templates import (
    CLAIMS,
    REVISION_LABEL,
    stateful_claims,
    stateful_pod,
)
from app.sim.objects import has_ended, is_being_deleted, labels_of
from app.sim.resources.kinds import PODS
from app.sim.store import Object


def plan_stateful_set(scene: Scene) -> Plan:
    """Creates missing pods in order, deletes surplus ones from the end, and replaces old ones from the end."""
    owner = scene.workload
    mark, actions = current_revision(scene)
    update = revision_name(owner, mark)
    pods = {_ordinal(pod): pod for pod in scene.pods}
    before = owner.get("status") or {}
    current = before.get("currentRevision") or update
    status = _status(scene, list(pods.values()), current, update)
    plan = Plan(status, actions)
    plan.again = counted(
        list(pods.values()), owner["spec"].get("minReadySeconds", 0), scene.now
    ).soonest
    plan.actions += _steps(scene, pods, current, update)
    live = {_revision(pod) for pod in scene.pods} | {current, update}
    prefix = len(owner["metadata"]["name"]) + 1
    plan.actions += forgotten(scene, {name[prefix:] for name in live})
    return plan


def _steps(scene: Scene, pods: dict[int, Object], current: str, update: str) -> list[ObjectChange]:
    """The next pods to create or to delete. Unless pods are managed in parallel, one after the other."""
    owner = scene.workload
    spec = owner["spec"]
    parallel = spec.get("podManagementPolicy") == "Parallel"
    first = (spec.get("ordinals") or {}).get("start", 0)
    wanted = range(first, first + spec["replicas"])
    rolling = spec.get("updateStrategy") or {}
    partition = (rolling.get("rollingUpdate") or {}).get("partition", 0)
    steps: list[ObjectChange] = []
    for ordinal in wanted:
        pod = pods.get(ordinal)
        if pod is None:
            revision = current if ordinal < first + partition else update
            made = stateful_pod(_at_revision(scene, revision), ordinal, revision)
            steps += [
                Create(CLAIMS, claim, if_absent=True) for claim in stateful_claims(owner, ordinal)
            ]
            steps.append(Create(PODS, made))
        elif has_ended(pod) and not is_being_deleted(pod):
            steps.append(Delete(PODS, pod))
        if len(steps) >= BURST:
            return steps
        if not parallel and (pod is None or not _is_healthy(pod, spec, scene.now)):
            return steps
    surplus = sorted((each for each in pods if each not in wanted), reverse=True)
    for ordinal in surplus:
        if not is_being_deleted(pods[ordinal]):
            steps.append(Delete(PODS, pods[ordinal]))
        if not parallel:
            return steps
    if rolling.get("type", "RollingUpdate") == "RollingUpdate" and not surplus and not steps:
        steps += _replaced(scene, pods, [o for o in wanted if o >= first + partition], update)
    return steps


def _replaced(
    scene: Scene, pods: dict[int, Object], ordinals: list[int], update: str
) -> list[ObjectChange]:
    """Deletes the last pod with an old template, once those behind it are healthy again."""
    for ordinal in reversed(ordinals):
        pod = pods.get(ordinal)
        if pod is None or is_being_deleted(pod):
            return []
        if _revision(pod) != update:
            return [Delete(PODS, pod)]
        if not _is_healthy(pod, scene.workload["spec"], scene.now):
            return []
    return []


def _at_revision(scene: Scene, revision: str) -> Object:
    """The StatefulSet with the template that it had at a revision."""
    for each in scene.revisions:
        if each["metadata"]["name"] == revision:
            template = dict(each["data"]["spec"]["template"])
            template.pop("$patch", None)
            return scene.workload | {"spec": scene.workload["spec"] | {"template": template}}
    return scene.workload


def _is_healthy(pod: Object, spec: Object, now: float) -> bool:
    ready = ready_for(pod, now)
    return is_active(pod) and ready >= 0 and ready >= spec.get("minReadySeconds", 0)


def _ordinal(pod: Object) -> int:
    text = pod["metadata"]["name"].rpartition("-")[2]
    return int(text) if text.isdecimal() else -1


def _revision(pod: Object) -> str:
    return labels_of(pod).get(REVISION_LABEL, "")


def _status(scene: Scene, pods: list[Object], current: str, update: str) -> Object:
    owner = scene.workload
    spec = owner["spec"]
    counts = counted(pods, spec.get("minReadySeconds", 0), scene.now)
    living = [pod for pod in pods if is_active(pod)]
    updated = sum(_revision(pod) == update for pod in living)
    finished = updated == counts.replicas == counts.ready == spec["replicas"]
    if finished and not (spec.get("updateStrategy", {}).get("rollingUpdate") or {}).get(
        "partition"
    ):
        current = update
    return {
        "observedGeneration": owner["metadata"].get("generation", 1),
        "replicas": counts.replicas,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "currentReplicas": sum(_revision(pod) == current for pod in living),
        "updatedReplicas": updated,
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": 0,
    }
