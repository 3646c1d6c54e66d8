"""What a rule sees and what it answers, and what all rules ask of pods."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.model.timestamps import parse_time
from app.sim.objects import find_condition, has_ended, is_being_deleted, is_true
from app.sim.resources.kinds import Kind
from app.sim.store import Object

BURST: Final = 100
"""The most actions of a plan that are carried out at once. What is left is planned again afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A workload and what belongs to it."""

    workload: Object
    pods: Sequence[Object] = ()
    """The pods that it controls."""
    replica_sets: Sequence[Object] = ()
    revisions: Sequence[Object] = ()
    group_kinds: tuple[Kind, Kind] | None = None
    """Workloads and PodGroups of scheduling.k8s.io, if Jobs are to have them."""
    group_workloads: Sequence[Object] = ()
    groups: Sequence[Object] = ()
    nodes: Sequence[str] = ()
    """The names of the nodes on which a DaemonSet wants a pod."""
    now: float
    """Seconds since the epoch."""
    timestamp: str
    """The same time as RFC 3339."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object in the workload's namespace."""

    kind: Kind
    value: Object
    if_absent: bool = False
    """An object of this name may exist already."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace an object by ``value``."""

    kind: Kind
    value: Object


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object."""

    kind: Kind
    value: Object


ObjectChange = Create | Replace | Delete


@dataclass(slots=True)
class Plan:
    """What a rule wants done."""

    status: Object
    actions: list[ObjectChange] = field(default_factory=list)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations to set on the workload itself."""
    again: float | None = None
    """Seconds after which time alone changes the plan."""
    delete: bool = False
    """Delete the workload itself."""


def is_active(pod: Object) -> bool:
    """Whether a pod counts as a replica: it has not ended and is not being deleted."""
    return not (has_ended(pod) or is_being_deleted(pod))


def is_ready(pod: Object) -> bool:
    return is_true(pod, "Ready")


_seconds: Final = functools.lru_cache(maxsize=256)(parse_time)
"""Many pods become ready at the same second."""


def ready_for(pod: Object, now: float) -> float:
    """The seconds for which a pod has been ready; negative if it is not."""
    condition = find_condition(pod, "Ready")
    if condition is None or condition.get("status") != "True":
        return -1.0
    return max(0.0, now - _seconds(condition.get("lastTransitionTime", "")))


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """The replicas among some pods."""

    replicas: int
    ready: int
    available: int
    soonest: float | None
    """Seconds until another one becomes available."""


def counted(pods: Sequence[Object], min_ready: float, now: float) -> ReplicaCounts:
    """Counts replicas. One is available when it has been ready for ``min_ready`` seconds."""
    times = [ready_for(pod, now) for pod in pods]
    waits = [min_ready - time for time in times if 0 <= time < min_ready]
    return ReplicaCounts(
        replicas=len(pods),
        ready=sum(time >= 0 for time in times),
        available=sum(time >= min_ready for time in times if time >= 0),
        soonest=min(waits, default=None),
    )


def scaled(value: Any, total: int, *, round_up: bool) -> int:
    """The value of a number, or of a percentage of ``total``. Raises ValueError for something else."""
    if isinstance(value, int):
        return value
    share = int(str(value).removesuffix("%")) * total / 100
    return math.ceil(share) if round_up else math.floor(share)


def condition(
    known: Sequence[Object], type_: str, status: str, reason: str, message: str, timestamp: str
) -> Object:
    """A condition of a workload. While its status stays the same, the time of its transition does too."""
    times = {"lastUpdateTime": timestamp, "lastTransitionTime": timestamp}
    for before in known:
        if before.get("type") == type_ and before.get("status") == status:
            times["lastTransitionTime"] = before.get("lastTransitionTime", timestamp)
            if before.get("reason") == reason:
                times["lastUpdateTime"] = before.get("lastUpdateTime", timestamp)
    return {"type": type_, "status": status, "reason": reason, "message": message} | times
