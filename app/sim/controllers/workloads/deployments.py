"""Deployments: a ReplicaSet for each template, and how pods move from the old ones to the new one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.model.timestamps import parse_time
from app.sim.controllers.workloads.plan import (
    Create,
    Delete,
    ObjectChange,
    Plan,
    Replace,
    Scene,
    condition,
    scaled,
)
from app.sim.controllers.workloads.templates import (
    HASH_LABEL,
    REPLICA_SETS,
    replica_set_of,
    template_hash,
)
from app.sim.objects import find_condition, is_being_deleted, with_condition
from app.sim.store import Object

REVISION: Final = "deployment.kubernetes.io/revision"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_FINISHED: Final = "NewReplicaSetAvailable"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a ReplicaSet."""

    replicas: int
    """As its spec says."""
    available: int


def rolling_sizes(
    wanted: int, surge: int, unavailable: int, new: Size, olds: Sequence[Size]
) -> tuple[int, list[int]]:
    """The next sizes of the new ReplicaSet and of the old ones.

    At most ``wanted + surge`` pods exist, and at least ``wanted - unavailable`` stay available. Old pods are deleted
    when the new ReplicaSet cannot grow, those that are not available first.
    """
    total = new.replicas + sum(old.replicas for old in olds)
    grown = min(wanted, new.replicas + max(0, wanted + surge - total))
    target = wanted if new.replicas > wanted else grown
    sizes = [old.replicas for old in olds]
    if target != new.replicas:
        return target, sizes
    fewest = wanted - unavailable
    room = max(0, total - fewest - (new.replicas - new.available))
    for index, old in enumerate(olds):
        cut = min(room, max(0, old.replicas - old.available))
        sizes[index] -= cut
        room -= cut
    surplus = max(0, new.available + sum(old.available for old in olds) - fewest)
    for index, size in enumerate(sizes):
        cut = min(size, surplus)
        sizes[index] -= cut
        surplus -= cut
    return target, sizes


def revision_of(replica_set: Object) -> int:
    """The revision of a ReplicaSet; 0 without one."""
    text = (replica_set["metadata"].get("annotations") or {}).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def plan_deployment(scene: Scene) -> Plan:
    """Brings the pods to the ReplicaSet of the present template, as the strategy says."""
    deployment = scene.workload
    sets = sorted(
        scene.replica_sets, key=lambda each: (revision_of(each), each["metadata"]["name"])
    )
    new = _newest(deployment, sets)
    olds = [each for each in sets if each is not new]
    revision = _revision(new, olds)
    actions: list[ObjectChange] = []
    if deployment["spec"].get("paused"):
        actions += _resized(sets, _paused_sizes(deployment["spec"], new, sets))
    elif new is None:
        actions.append(_created(deployment, olds, revision))
    else:
        actions += _rolled(deployment, _annotated(new, deployment, revision), new, olds)
    status, again = _status(scene, new, olds, is_new=new is None)
    plan = Plan(status, actions, again=again)
    if not deployment["spec"].get("paused"):
        plan.annotations = {REVISION: str(revision)}
    if status.get("updatedReplicas") == status.get("replicas"):
        plan.actions += _forgotten(deployment, olds)
    return plan


def _newest(deployment: Object, sets: Sequence[Object]) -> Object | None:
    """The ReplicaSet of the present template."""
    wanted = deployment["spec"]["template"]
    for each in sets:
        if _plain(each["spec"]["template"]) == _plain(wanted):
            return each
    return None


def _plain(template: Object) -> Object:
    """A template without the label of its hash."""
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {
        name: value for name, value in (metadata.get("labels") or {}).items() if name != HASH_LABEL
    }
    return template | {"metadata": metadata}


def _revision(new: Object | None, olds: Sequence[Object]) -> int:
    """The revision of the new ReplicaSet: a higher one than all others have."""
    highest = max(map(revision_of, olds), default=0)
    return highest + 1 if new is None else max(revision_of(new), highest + 1)


def _copied(deployment: Object, revision: int) -> dict[str, str]:
    """The annotations of the new ReplicaSet."""
    given = deployment["metadata"].get("annotations") or {}
    copied = {name: text for name, text in given.items() if name not in (_LAST_APPLIED, REVISION)}
    return copied | {REVISION: str(revision)}


def _created(deployment: Object, olds: Sequence[Object], revision: int) -> ObjectChange:
    spec = deployment["spec"]
    digest = template_hash(spec["template"])
    metadata = {
        "name": f"{deployment['metadata']['name']}-{digest}",
        "annotations": _copied(deployment, revision),
    }
    if _recreates(spec):
        size = 0 if any(map(_has_pods, olds)) else spec["replicas"]
    else:
        size = rolling_sizes(spec["replicas"], *_slack(spec), Size(0, 0), list(map(_size, olds)))[0]
    return Create(REPLICA_SETS, replica_set_of(deployment, metadata, digest, size))


def _annotated(new: Object, deployment: Object, revision: int) -> Object:
    annotations = (new["metadata"].get("annotations") or {}) | _copied(deployment, revision)
    return new | {"metadata": new["metadata"] | {"annotations": annotations}}


def _rolled(
    deployment: Object, wanted: Object, new: Object, olds: Sequence[Object]
) -> list[ObjectChange]:
    """Changes the sizes of the ReplicaSets. ``wanted``: the new one with its annotations."""
    spec = deployment["spec"]
    if _recreates(spec):
        others = [0] * len(olds)
        size = 0 if any(map(_has_pods, olds)) else spec["replicas"]
    else:
        present = list(map(_size, olds))
        size, others = rolling_sizes(spec["replicas"], *_slack(spec), _size(new), present)
    changed = wanted | {"spec": wanted["spec"] | {"replicas": size}}
    own: list[ObjectChange] = [Replace(REPLICA_SETS, changed)] if changed != new else []
    return own + _resized(olds, others)


def _paused_sizes(spec: Object, new: Object | None, sets: Sequence[Object]) -> list[int]:
    """The sizes of all ReplicaSets while the rollout is paused: they share what the Deployment may have.

    ``new``: the ReplicaSet of the present template. ``sets``: all of them, the newest one last.
    """
    wanted, sizes = spec["replicas"], [each["spec"]["replicas"] for each in sets]
    total, living = sum(sizes), [index for index, size in enumerate(sizes) if size]
    if len(living) < 2:
        only = living[0] if living else len(sizes) - 1
        return [wanted if index == only else size for index, size in enumerate(sizes)]
    if new is not None and _size(new) == Size(wanted, wanted):
        return [wanted if each is new else 0 for each in sets]
    if _recreates(spec):
        return sizes
    allowed = wanted + _slack(spec)[0] if wanted else 0
    shares = [size * allowed // total for size in sizes]
    largest = max(living, key=lambda index: (sizes[index], index))
    shares[largest] += allowed - sum(shares)
    return shares


def _resized(sets: Sequence[Object], sizes: Sequence[int]) -> list[ObjectChange]:
    return [
        Replace(REPLICA_SETS, each | {"spec": each["spec"] | {"replicas": size}})
        for each, size in zip(sets, sizes, strict=True)
        if each["spec"]["replicas"] != size
    ]


def _recreates(spec: Object) -> bool:
    return bool(spec.get("strategy", {}).get("type") == "Recreate")


def _slack(spec: Object) -> tuple[int, int]:
    """How many pods may exist too many, and be unavailable, in a rolling update."""
    rolling = spec.get("strategy", {}).get("rollingUpdate") or {}
    surge = scaled(rolling.get("maxSurge", "25%"), spec["replicas"], round_up=True)
    unavailable = scaled(rolling.get("maxUnavailable", "25%"), spec["replicas"], round_up=False)
    return surge, min(unavailable, spec["replicas"]) if surge or unavailable else 1


def _size(replica_set: Object) -> Size:
    status = replica_set.get("status") or {}
    return Size(replica_set["spec"]["replicas"], status.get("availableReplicas", 0))


def _has_pods(replica_set: Object) -> bool:
    """Whether pods of a ReplicaSet exist, or may soon."""
    status = replica_set.get("status") or {}
    counts = (status.get("replicas", 0), status.get("terminatingReplicas", 0))
    return any(counts) or replica_set["spec"]["replicas"] > 0


def _forgotten(deployment: Object, olds: Sequence[Object]) -> list[ObjectChange]:
    """Deletes the oldest ReplicaSets without pods, beyond the limit of the history."""
    limit = deployment["spec"].get("revisionHistoryLimit", 10)
    empty = [each for each in olds if not _has_pods(each) and not is_being_deleted(each)]
    return [Delete(REPLICA_SETS, each) for each in empty[: max(0, len(empty) - limit)]]


# ---------------------------------------------------------------- status


def _status(
    scene: Scene, new: Object | None, olds: Sequence[Object], *, is_new: bool
) -> tuple[Object, float | None]:
    """The status, and the seconds until the deadline of the rollout."""
    deployment = scene.workload
    before = deployment.get("status") or {}
    statuses = [each.get("status") or {} for each in (*olds, *([new] if new else []))]
    updated = ((new or {}).get("status") or {}).get("replicas", 0)
    wanted = deployment["spec"]["replicas"]
    available = sum(each.get("availableReplicas", 0) for each in statuses)
    counts: Object = {
        "replicas": sum(each.get("replicas", 0) for each in statuses),
        "updatedReplicas": updated,
        "readyReplicas": sum(each.get("readyReplicas", 0) for each in statuses),
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted - available),
    }
    status = {"observedGeneration": deployment["metadata"].get("generation", 1)}
    status |= {name: count for name, count in counts.items() if count}
    conditions: list[Object] = list(before.get("conditions") or ())
    slack = 0 if _recreates(deployment["spec"]) else _slack(deployment["spec"])[1]
    enough = available >= wanted - slack
    met = ("True", "MinimumReplicasAvailable", "The Deployment has its minimum of available pods.")
    unmet = ("False", "MinimumReplicasUnavailable", "The Deployment has too few available pods.")
    new_condition = condition(conditions, "Available", *(met if enough else unmet), scene.timestamp)
    conditions = with_condition(conditions, new_condition)
    complete = counts["replicas"] == updated == available == wanted and not is_new
    progressing, again = _progress(
        scene,
        counts,
        before,
        name="" if new is None else new["metadata"]["name"],
        complete=complete,
    )
    status["conditions"] = with_condition(conditions, progressing)
    return status, again


def _progress(
    scene: Scene, counts: Object, before: Object, *, name: str, complete: bool
) -> tuple[Object, float | None]:
    """The condition Progressing, from which ``kubectl rollout status`` knows that a rollout takes too long."""
    conditions = before.get("conditions") or []
    known = find_condition({"status": before}, "Progressing")
    deadline = scene.workload["spec"].get("progressDeadlineSeconds", 600)
    reason = "" if known is None else known.get("reason", "")

    def told(status: str, reason: str, message: str) -> Object:
        return condition(conditions, "Progressing", status, reason, message, scene.timestamp)

    if scene.workload["spec"].get("paused"):
        return told("Unknown", "DeploymentPaused", "The Deployment is paused."), None
    if not name:
        fresh = told("True", "NewReplicaSetCreated", "A ReplicaSet is created.")
        return fresh | {"lastUpdateTime": scene.timestamp}, deadline
    if complete:
        return told("True", _FINISHED, f'ReplicaSet "{name}" has progressed to its end.'), None
    if known is None or reason in ("", "DeploymentPaused"):
        return told("True", "FoundNewReplicaSet", f'ReplicaSet "{name}" is used.'), deadline
    if reason == _FINISHED:
        return dict(known), None
    if _has_progressed(counts, before):
        moving = told("True", "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.')
        return moving | {"lastUpdateTime": scene.timestamp}, deadline
    left = parse_time(known["lastUpdateTime"]) + deadline - scene.now
    if left > 0:
        return dict(known), left
    late = told("False", "ProgressDeadlineExceeded", f'ReplicaSet "{name}" makes no progress.')
    return late, None


def _has_progressed(counts: Object, before: Object) -> bool:
    """Whether there are more new, ready or available pods, or fewer old ones."""
    more = any(
        counts[name] > before.get(name, 0)
        for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    olds = counts["replicas"] - counts["updatedReplicas"]
    return more or olds < before.get("replicas", 0) - before.get("updatedReplicas", 0)
