"""What one configuration made of a recording: a course, and the comparison of several (``replay --config``)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from app.tools.replay.story import Story

#: The version of the JSON; increased when a field is removed or changes its meaning.
VERSION: Final = 1
#: Pods that moved that are named.
MOST_MOVED: Final = 1000
MOST_REASONS: Final = 20


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class WaitingTimes(_Json, frozen=True, kw_only=True):
    """Seconds from a pod's arrival to its binding, of the pods that were bound."""

    pods: int
    mean: float
    p50: float
    p99: float
    longest: float


class UnfitReason(_Json, frozen=True, kw_only=True):
    """Why pods fit nowhere."""

    message: str
    pods: int


class Course(_Json, frozen=True, kw_only=True):
    """What one configuration made of the recording."""

    name: str
    hash: str
    """Of all bindings, rejections and evictions in their order; empty for what was recorded."""
    pods: int
    """Pods that were to be placed."""
    bound: int
    pending: int
    """Pods that are there at the end without a node."""
    preempted: int
    waiting: dict[str, WaitingTimes]
    """By priority, and ``all``."""
    unschedulable: list[UnfitReason]
    """The last reason of each pod that fitted nowhere at least once, the most frequent first."""
    unschedulable_pods: int
    pending_reasons: list[UnfitReason] = []
    """The reasons of those that are pending."""
    times: list[float] = []
    """Seconds since the beginning of the courses below."""
    utilisation: dict[str, list[float]] = {}
    """Part of the allocatable amount that is requested, by resource."""
    mean_utilisation: dict[str, float] = {}
    fragmentation: list[float] = []
    """Part of the free CPUs that a pod of the recording cannot use, on average over its pods."""
    mean_fragmentation: float = 0.0
    waiting_pods: list[int] = []
    nodes_in_use: list[int] = []
    """Nodes with pods."""
    mean_nodes_in_use: float = 0.0
    questions: dict[str, int] = {}
    """Calls to extenders by how they were answered: exact, composed, unknown."""
    left_out: int = 0
    """Changes of objects that the model of the API server did not take."""
    left_out_example: str = ""


class Moved(_Json, frozen=True, kw_only=True):
    """A pod with another node than under the first configuration; empty: none."""

    pod: str
    before: str
    after: str


class CourseDifference(_Json, frozen=True, kw_only=True):
    """A course compared with the first one."""

    name: str
    moved: int
    """Pods that have another node, or a node in one of both only."""
    same: int
    moves: list[Moved]
    """The first MOST_MOVED of them by name."""
    waiting: dict[str, dict[str, float]]
    """By priority: seconds more (mean, p50, p99)."""
    utilisation: dict[str, float]
    """More on average, by resource."""
    fragmentation: float
    nodes_in_use: float
    preempted: int
    bound: int
    unschedulable_pods: int


class Comparison(_Json, frozen=True, kw_only=True):
    """All courses; the first is that of the recorded configuration under the same model of the API server."""

    version: int = VERSION
    recorded: Course
    courses: list[Course]
    differences: list[CourseDifference]
    incomplete: str = ""


class Lived(msgspec.Struct):
    """A course, and the node of each pod by uid."""

    course: Course
    nodes: dict[str, str]


def waiting_times(waits: Iterable[tuple[int, float]]) -> dict[str, WaitingTimes]:
    """From pairs of a priority and seconds."""
    by: dict[str, list[float]] = {"all": []}
    for priority, seconds in waits:
        by.setdefault(str(priority), []).append(seconds)
        by["all"].append(seconds)
    return {name: _waiting(by[name]) for name in sorted(by, key=_by_number) if by[name]}


def _by_number(name: str) -> tuple[bool, int]:
    return name != "all", 0 if name == "all" else -int(name)


def _waiting(seconds: list[float]) -> WaitingTimes:
    array = np.array(seconds)
    return WaitingTimes(
        pods=len(seconds),
        mean=round(float(array.mean()), 4),
        p50=round(float(np.percentile(array, 50)), 4),
        p99=round(float(np.percentile(array, 99)), 4),
        longest=round(float(array.max()), 4),
    )


def reasons(messages: Iterable[str]) -> list[UnfitReason]:
    """The most frequent messages."""
    counts = Counter(messages).most_common(MOST_REASONS)
    return [UnfitReason(message=message, pods=pods) for message, pods in counts]


def recorded_course(story: Story) -> Lived:
    """What was recorded itself."""
    ours = {uid: pod for uid, pod in story.pods.items() if pod.ours}
    bound = [pod for pod in ours.values() if pod.bound is not None]
    waits = ((pod.priority, pod.bound - pod.arrived) for pod in bound if pod.bound is not None)
    unfit = [pod.unfit for pod in ours.values() if pod.unfit]
    pending = [pod for pod in ours.values() if pod.bound is None and pod.gone is None]
    course = Course(
        name="recorded",
        hash="",
        pods=len(ours),
        bound=len(bound),
        pending=len(pending),
        preempted=story.preempted,
        waiting=waiting_times(waits),
        unschedulable=reasons(unfit),
        unschedulable_pods=len(unfit),
        pending_reasons=reasons(pod.unfit for pod in pending if pod.unfit),
    )
    return Lived(course, {uid: pod.node for uid, pod in ours.items() if pod.node})


def compare(story_names: Mapping[str, str], outcomes: Sequence[Lived]) -> list[CourseDifference]:
    """Each outcome but the first with the first. ``story_names``: of pods by uid."""
    first = outcomes[0]
    return [_difference(story_names, first, other) for other in outcomes[1:]]


def _difference(names: Mapping[str, str], first: Lived, other: Lived) -> CourseDifference:
    before, after = first.course, other.course
    uids = sorted(first.nodes.keys() | other.nodes.keys(), key=lambda uid: names.get(uid, uid))
    moved = [uid for uid in uids if first.nodes.get(uid) != other.nodes.get(uid)]
    moves = [
        Moved(
            pod=names.get(uid, uid),
            before=first.nodes.get(uid, ""),
            after=other.nodes.get(uid, ""),
        )
        for uid in moved[:MOST_MOVED]
    ]
    both = before.waiting.keys() & after.waiting.keys()
    return CourseDifference(
        name=after.name,
        moved=len(moved),
        same=len(uids) - len(moved),
        moves=moves,
        waiting={
            name: {
                "mean": round(after.waiting[name].mean - before.waiting[name].mean, 4),
                "p50": round(after.waiting[name].p50 - before.waiting[name].p50, 4),
                "p99": round(after.waiting[name].p99 - before.waiting[name].p99, 4),
            }
            for name in sorted(both, key=_by_number)
        },
        utilisation={
            name: round(share - before.mean_utilisation.get(name, 0.0), 4)
            for name, share in after.mean_utilisation.items()
        },
        fragmentation=round(after.mean_fragmentation - before.mean_fragmentation, 4),
        nodes_in_use=round(after.mean_nodes_in_use - before.mean_nodes_in_use, 4),
        preempted=after.preempted - before.preempted,
        bound=after.bound - before.bound,
        unschedulable_pods=after.unschedulable_pods - before.unschedulable_pods,
    )
