"""Jobs: pods that run to their end, until enough have succeeded or too many have failed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.model.timestamps import format_time, parse_time
from app.sim.controllers.workloads.gangs import plain_reference, plan_gang
from app.sim.controllers.workloads.plan import (
    BURST,
    Create,
    Delete,
    ObjectChange,
    Plan,
    Replace,
    Scene,
    counted,
    is_active,
    is_ready,
)
from app.sim.controllers.workloads.templates import INDEX_MARK, indexed_pod, pod_of
from app.sim.objects import generated_name, has_ended, is_being_deleted, without_finalizer
from app.sim.resources.kinds import PODS
from app.sim.resources.workloads import job_marks
from app.sim.store import Object

TRACKING: Final = "batch.kubernetes.io/job-tracking"
"""The finalizer of a pod that is not yet counted in its Job's status."""
_BACKOFF_LIMIT: Final = 6
_MOST_INDEXES: Final = 100_000
_FINAL: Final = ("Complete", "Failed")


def plan_job(scene: Scene) -> Plan:
    """Creates as many pods as may run at the same time, and ends the Job when it is done."""
    job = scene.workload
    spec, before = job["spec"], job.get("status") or {}
    active = [pod for pod in scene.pods if is_active(pod)]
    tally = _tally(scene.pods, before)
    if any(_holds(before, type_) for type_ in _FINAL):
        return _after_end(scene, before, active, tally)
    gang = plan_gang(scene)
    if isinstance(gang, Create):
        return Plan(dict(before), [gang])
    done = _indexes(scene.pods, "Succeeded") | parse_indexes(before.get("completedIndexes", ""))
    indexed = spec.get("completionMode") == "Indexed"
    succeeded = len(done) if indexed else tally.succeeded
    status: Object = {
        "startTime": before.get("startTime", scene.timestamp),
        "active": len(active),
        "ready": counted(active, 0, scene.now).ready,
        "terminating": sum(is_being_deleted(pod) for pod in scene.pods),
    } | tally.status
    if indexed:
        status |= {"completedIndexes": written_indexes(done), "succeeded": succeeded}
    plan = Plan(status, list(tally.actions))
    if spec.get("suspend"):
        del status["startTime"]
        plan.actions += [Delete(PODS, pod) for pod in active]
        _set(status, scene, "Suspended", "JobSuspended", "The Job is suspended.")
        return plan
    failure = _failure(scene, tally.failed, status["startTime"])
    completions = spec.get("completions")
    wanted = _wanted(spec, succeeded, len(active))
    if failure:
        plan.actions += [Delete(PODS, pod) for pod in active]
        _set(status, scene, "FailureTarget", *failure)
        status |= {"active": 0, "ready": 0}
        if not any(map(is_tracked, scene.pods)) and not tally.is_open:
            _set(status, scene, "Failed", *failure)
    elif wanted == 0 and not active and succeeded >= (1 if completions is None else completions):
        reason = ("CompletionsReached", "The Job has reached its completions.")
        _set(status, scene, "SuccessCriteriaMet", *reason)
        if not tally.is_open:
            _set(status, scene, "Complete", *reason)
            status["completionTime"] = scene.timestamp
    else:
        made = _resize(scene, plan, active, wanted, done)
        plan.actions += [_created(pod, gang) for pod in made]
        plan.again = _left(scene, status["startTime"])
    if failure or "completionTime" in status:
        plan.again = spec.get("ttlSecondsAfterFinished")
    return plan


@dataclass(frozen=True, slots=True)
class _Tally:
    """The pods of a Job that have ended, and those that are being deleted, which count as failed."""

    succeeded: int
    failed: int
    status: Object
    """The fields of the status: those counted, and those that are counted once they have lost their finalizer."""
    actions: Sequence[ObjectChange]
    """What removes the finalizers."""
    is_open: bool
    """Whether the status does not count all of them yet."""


def _tally(pods: Sequence[Object], before: Object) -> _Tally:
    """Counts the pods that have ended, each one once: also those that are removed afterwards."""
    tracked = {pod["metadata"]["uid"]: pod for pod in pods if is_tracked(pod)}
    uncounted = before.get("uncountedTerminatedPods") or {}
    known = [uid for part in uncounted.values() for uid in part]
    totals, counts, left = {}, {}, {}
    for field in ("succeeded", "failed"):
        ended = [uid for uid, pod in tracked.items() if uid not in known and _outcome(pod) == field]
        others = sum(not is_tracked(pod) and _phase_outcome(pod) == field for pod in pods)
        left[field] = [uid for uid in uncounted.get(field) or () if uid in tracked]
        counts[field] = before.get(field, 0) + len(uncounted.get(field) or ()) - len(left[field])
        counts[field] = max(counts[field], others)
        totals[field] = counts[field] + len(left[field]) + len(ended)
        left[field] += ended[: max(0, BURST - sum(map(len, left.values())))]
    return _Tally(
        **totals,
        status=counts | {"uncountedTerminatedPods": {name: u for name, u in left.items() if u}},
        actions=[released(tracked[uid]) for part in left.values() for uid in part],
        is_open=any(left.values()),
    )


def is_tracked(pod: Object) -> bool:
    """Whether a pod stays until its Job has counted it."""
    return TRACKING in pod["metadata"].get("finalizers", ())


def _phase_outcome(pod: Object) -> str:
    """``succeeded``, ``failed``, or empty for a pod that has not ended."""
    return str(pod["status"]["phase"]).lower() if has_ended(pod) else ""


def _outcome(pod: Object) -> str:
    return _phase_outcome(pod) or ("failed" if is_being_deleted(pod) else "")


def released(pod: Object) -> ObjectChange:
    """Removes the finalizer of a pod that is counted, or never will be."""
    return Replace(PODS, without_finalizer(pod, TRACKING))


def _wanted(spec: Object, succeeded: int, active: int) -> int:
    """How many pods should run. Without completions, none is added after the first one has succeeded."""
    parallelism = int(spec.get("parallelism", 1))
    if spec.get("completions") is not None:
        return min(parallelism, max(0, int(spec["completions"]) - succeeded))
    return min(parallelism, active) if succeeded else parallelism


def _resize(
    scene: Scene, plan: Plan, active: Sequence[Object], wanted: int, done: set[int]
) -> Iterator[Object]:
    """Deletes surplus pods, and yields the missing ones."""
    job, missing = scene.workload, min(wanted - len(active), BURST)
    if missing < 0:
        surplus = sorted(active, key=is_ready)[:-missing]
        plan.actions += [Delete(PODS, pod) for pod in surplus]
    elif job["spec"].get("completionMode") == "Indexed":
        busy = done | {_index(pod) for pod in active}
        total = job["spec"].get("completions") or 0
        free = (index for index in range(total) if index not in busy)
        for index, _ in zip(free, range(missing), strict=False):
            name = generated_name(f"{job['metadata']['name']}-{index}-")
            yield indexed_pod(job, index, name)
    else:
        for _ in range(missing):
            yield pod_of(job, labels=job_marks(job))


def _created(pod: Object, group: Object | None) -> ObjectChange:
    """Creates a pod that is not removed before it is counted, as a member of a group."""
    metadata = pod["metadata"] | {"finalizers": [TRACKING]}
    if group is None:
        return Create(PODS, pod | {"metadata": metadata})
    metadata["ownerReferences"] = [*metadata["ownerReferences"], plain_reference(group)]
    membership = {"schedulingGroup": {"podGroupName": group["metadata"]["name"]}}
    return Create(PODS, {"metadata": metadata, "spec": pod["spec"] | membership})


def _failure(scene: Scene, failed: int, started: str) -> tuple[str, str] | None:
    """Why the Job has failed: reason and message."""
    spec = scene.workload["spec"]
    if failed > spec.get("backoffLimit", _BACKOFF_LIMIT):
        return (
            "BackoffLimitExceeded",
            "More pods of the Job have failed than its backoffLimit allows.",
        )
    left = _left(scene, started)
    if left is not None and left <= 0:
        return "DeadlineExceeded", "The Job has run for longer than its activeDeadlineSeconds."
    return None


def _left(scene: Scene, started: str) -> float | None:
    """The seconds until the deadline of the Job."""
    deadline = scene.workload["spec"].get("activeDeadlineSeconds")
    return None if deadline is None else float(parse_time(started) + deadline - scene.now)


def _after_end(scene: Scene, before: Object, active: Sequence[Object], tally: _Tally) -> Plan:
    """Deletes the pods that are left, and the Job itself when its time is over."""
    status = before | tally.status
    if "completedIndexes" in before:
        status["succeeded"] = before.get("succeeded", 0)
    plan = Plan(status, [*tally.actions, *(Delete(PODS, pod) for pod in active)])
    ttl = scene.workload["spec"].get("ttlSecondsAfterFinished")
    if ttl is not None:
        ended = before.get("completionTime") or _ended_at(before) or format_time(scene.now)
        plan.again = parse_time(ended) + ttl - scene.now
        plan.delete = plan.again <= 0
    return plan


def _ended_at(status: Object) -> str:
    return next(
        (each["lastTransitionTime"] for each in status["conditions"] if each["type"] in _FINAL), ""
    )


def _holds(status: Object, type_: str) -> bool:
    conditions: Iterable[Object] = status.get("conditions") or ()
    return any(each.get("type") == type_ and each.get("status") == "True" for each in conditions)


def _set(status: Object, scene: Scene, type_: str, reason: str, message: str) -> None:
    known = status.get("conditions") or (scene.workload.get("status") or {}).get("conditions") or []
    new = {
        "type": type_,
        "status": "True",
        "lastProbeTime": scene.timestamp,
        "lastTransitionTime": scene.timestamp,
        "reason": reason,
        "message": message,
    }
    for each in known:
        if each.get("type") == type_ and each.get("status") == "True":
            new = each
    status["conditions"] = [each for each in known if each.get("type") != type_] + [new]


def _index(pod: Object) -> int:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_MARK, "")
    return int(text) if text.isdecimal() else -1


def _indexes(pods: Iterable[Object], phase: str) -> set[int]:
    return {_index(pod) for pod in pods if pod["status"].get("phase") == phase} - {-1}


def parse_indexes(text: str) -> set[int]:
    """Reads indexes as in ``status.completedIndexes``: ``0-2,5``."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first), _MOST_INDEXES) + 1))
    return found


def written_indexes(indexes: Iterable[int]) -> str:
    """Writes indexes as in ``status.completedIndexes``: ``0-2,5``."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1] = [runs[-1][0], index]
        else:
            runs.append([index])
    return ",".join("-".join(map(str, run)) for run in runs)
