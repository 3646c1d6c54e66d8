"""Builders and a recorder for the tests of the scheduling queue."""

from collections import Counter
from collections.abc import Iterable

from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import PodSpec
from app.model.pod import LabelSet, Pod, PodTemplate
from app.state.nominator import Nominator
from app.state.queue.hints import EventRegistration
from app.state.queue.queued_pod import Place, QueuedPod
from app.state.queue.recorder import QueueRecorder
from app.state.queue.scheduling_queue import QueuePlugins, SchedulingQueue

PROFILE = "default-scheduler"
NOW = 1_700_000_000.0

NODE_ADDED = ClusterEvent(Resource.Node, Action.Add)
POD_DELETED = ClusterEvent(Resource.Pod, Action.Delete)


def spec(**fields) -> PodSpec:
    return PodSpec(**{"scheduler_name": PROFILE, **fields})


def make_pod(name: str = "pod", *, uid: str = "", template: PodTemplate | None = None, labels=None, priority: int = 0,
             **fields) -> Pod:  # fmt: skip
    """A pod of its own template, unless one is given; the uid is the name unless given."""
    return Pod(
        namespace="ns",
        name=name,
        uid=uid or name,
        template=template or PodTemplate(spec(priority=priority)),
        labels=LabelSet(labels or {}),
        **fields,
    )


def priority_sort(queued: QueuedPod) -> tuple[int, float]:
    return -queued.pod.priority, queued.timestamp


class Recorder(QueueRecorder):
    """Keeps what a queue reports."""

    def __init__(self) -> None:
        self.entered: list[tuple[str, str]] = []
        self.waiting: Counter[tuple[str, str]] = Counter()
        self.faults: list[tuple[str, str, str, str]] = []
        self.dropped = 0

    def incoming(self, queue: str, event: str) -> None:
        self.entered.append((queue, event))

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        self.waiting[plugin, profile] += delta

    def events_dropped(self, count: int) -> None:
        self.dropped += count

    def plugin_failed(self, plugin: str, point: str, pod: Pod, error: Exception) -> None:
        self.faults.append((plugin, point, pod.name, str(error)))

    @property
    def gauge(self) -> dict[str, int]:
        """The unschedulable_pods gauge by plugin, all profiles together, without zeros."""
        total: Counter[str] = Counter()
        for (plugin, _), count in self.waiting.items():
            total[plugin] += count
        return {plugin: count for plugin, count in total.items() if count}


def registered(
    event: ClusterEvent, plugin: str, hint=None, template_only=False, narrow=None
) -> EventRegistration:
    """A plugin's registration."""
    return EventRegistration(event, hint, template_only, narrow, plugin)


def make_queue(
    registrations: Iterable[EventRegistration] = (),
    *,
    sort_key=priority_sort,
    pre_enqueue=lambda pod: (),
    hints=None,
    **options,
) -> SchedulingQueue:
    hints = {PROFILE: tuple(registrations)} if hints is None else hints
    plugins = QueuePlugins(sort_key, pre_enqueue, hints)
    return SchedulingQueue(plugins, Nominator(), **options)


def pop_all(queue: SchedulingQueue, now: float = NOW) -> list[str]:
    names = []
    while queued := queue.pop(now):
        names.append(queued.pod.name)
    return names


def attempt(
    queue: SchedulingQueue,
    pod: Pod,
    *,
    by: Iterable[str] = ("Fit",),
    pending: Iterable[str] = (),
    now: float = NOW,
) -> QueuedPod:
    """Adds a pod to an idle queue and has it fail at once, rejected by these plugins."""
    queue.add(pod, now)
    return fail_next(queue, by=by, pending=pending, now=now)


def fail_next(
    queue: SchedulingQueue,
    *,
    by: Iterable[str] = ("Fit",),
    pending: Iterable[str] = (),
    now: float = NOW,
) -> QueuedPod:
    queued = queue.pop(now)
    assert queued is not None
    queued.reject(by, pending)
    queue.add_unschedulable_if_not_present(queued, now)
    return queued


def places(queue: SchedulingQueue) -> dict[str, Place]:
    """Where every pod is, by name."""
    return {entry.pod.name: entry.place for entry in queue.dump()}
