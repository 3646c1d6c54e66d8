"""kube-scheduler's metrics with its names, labels and buckets, so that its dashboards and alerts work.

See docs/spec/metrics.md#scheduler-metrics. Some values mean something else, because this scheduler works differently:

* ``plugin_evaluation_total`` counts attempts in which a plugin took part, not calls: one call answers for all nodes.
* ``plugin_execution_duration_seconds`` times such a call, in about one attempt of ten, and
  ``queueing_hint_execution_duration_seconds`` about one call of ten.
* ``framework_extension_point_duration_seconds`` may be observed more than once per attempt with extenders, which are
  called between two passes of Filter and Score.
"""

import logging
from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np

from app.framework.probe import Observe, Probe
from app.model.cluster_event import Resource
from app.model.pod import Pod
from app.observe.events import (
    AttemptFailed,
    BindingStepFinished,
    ByType,
    GroupAttempted,
    NodeSelected,
    PodBound,
    PreemptionFinished,
    PreemptionStarted,
)
from app.observe.metrics.series import (
    BETA,
    STABLE,
    MetricFamilies,
    exponential,
)
from app.state.queue.recorder import HintFunction, QueueRecorder
from app.state.scheduler_state import RESOURCES, Change

log = logging.getLogger(__name__)

SCHEDULED: Final = "scheduled"
#: Share of the attempts in which single plugins are timed.
SAMPLED: Final = 0.1
#: Random numbers drawn at a time, which takes no longer than drawing one.
_DRAWN: Final = 256
#: The ``attempts`` label of pod_scheduling_sli_duration_seconds, by number of attempts.
_ATTEMPTS: Final = (*map(str, range(15)), "15+")

_ATTEMPT_BUCKETS: Final = exponential(0.001, 2, 15)
_POINT_BUCKETS: Final = exponential(0.0001, 2, 12)
_PLUGIN_BUCKETS: Final = exponential(0.00001, 1.5, 20)


class AttemptMetrics:
    """Results and durations of attempts."""

    def __init__(self, families: MetricFamilies) -> None:
        self._results: Final = families.counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, "
            "'error' an internal problem.",
            ("result", "profile"),
            stability=STABLE,
        )
        self._durations: Final = families.histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Latency of a scheduling attempt, from its start until the pod is bound or the attempt has failed.",
            _ATTEMPT_BUCKETS,
            ("result", "profile"),
            stability=STABLE,
        )
        self._algorithm: Final = families.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Latency of choosing a node.",
            _ATTEMPT_BUCKETS,
        ).labels()
        self._attempts: Final = families.histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            exponential(1, 2, 5),
            stability=STABLE,
        ).labels()
        self._sli: Final = families.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Latency from a pod's first entry into the active queue until it is bound.",
            exponential(0.01, 2, 20),
            ("attempts",),
            stability=BETA,
        )
        self._after_flush: Final = families.counter(
            "scheduler_pod_scheduled_after_flush_total",
            "Number of pods scheduled after they had waited in unschedulablePods for too long.",
        ).labels()
        self._permit: Final = families.histogram(
            "scheduler_permit_wait_duration_seconds",
            "Duration of waiting on permit.",
            _ATTEMPT_BUCKETS,
            ("result",),
            stability=BETA,
        )
        #: Counts and times attempts.
        self.on: Final = ByType(
            {
                NodeSelected: lambda event: self._algorithm.observe(event.seconds),
                BindingStepFinished: self._step_finished,
                PodBound: self._bound,
                AttemptFailed: lambda e: self._ended(e.result, e.profile, e.seconds),
            }
        )

    #: The bounds of ``counts`` and ``algorithm``.
    bounds: Final = _ATTEMPT_BUCKETS

    def results(self) -> dict[str, float]:
        """Attempts by result, of all profiles."""
        found: dict[str, float] = {}
        for (result, _), counter in self._results.of.items():
            found[result] = found.get(result, 0.0) + counter.value
        return found

    def counts(self) -> list[int]:
        """The durations of all attempts, counted by ``bounds``."""
        histograms = [histogram.counts for histogram in self._durations.of.values()]
        none = [0] * (len(self.bounds) + 1)
        return [sum(counts) for counts in zip(none, *histograms, strict=True)]

    def algorithm(self) -> list[int]:
        """The durations of choosing a node, counted by ``bounds``."""
        return list(self._algorithm.counts)

    def _step_finished(self, event: BindingStepFinished) -> None:
        if event.step == "WaitOnPermit":
            self._permit.labels(event.status).observe(event.seconds)

    def _bound(self, event: PodBound) -> None:
        queued = event.queued
        self._ended(SCHEDULED, event.profile, event.seconds)
        self._attempts.observe(queued.attempts)
        if queued.initial_attempt_timestamp is not None:
            sli = self._sli.of[_ATTEMPTS[min(queued.attempts, 15)],]
            sli.observe(event.now - queued.initial_attempt_timestamp)
        if queued.was_flushed_from_unschedulable:
            self._after_flush.inc()

    def _ended(self, result: str, profile: str, seconds: float) -> None:
        labels = result, profile
        self._results.of[labels].value += 1.0
        self._durations.of[labels].observe(seconds)


class GroupMetrics:
    """Results and durations of the cycles of pod groups."""

    def __init__(self, families: MetricFamilies) -> None:
        self._results: Final = families.counter(
            "scheduler_podgroup_schedule_attempts_total",
            "Number of attempts to schedule pod groups, by the result.",
            ("result", "profile"),
        )
        self._durations: Final = families.histogram(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Latency of deciding a pod group, without its binding cycles.",
            _ATTEMPT_BUCKETS,
            ("result", "profile"),
        )
        self._algorithm: Final = families.histogram(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Latency of finding nodes for the pods of a pod group.",
            _ATTEMPT_BUCKETS,
        ).labels()
        #: Counts and times cycles.
        self.on: Final = ByType({GroupAttempted: self._attempted})

    def _attempted(self, event: GroupAttempted) -> None:
        self._results.labels(event.result, event.profile).inc()
        self._durations.labels(event.result, event.profile).observe(event.seconds)
        self._algorithm.observe(event.algorithm_seconds)


class PreemptionMetrics:
    """Victims, results and durations of preemptions."""

    def __init__(self, families: MetricFamilies) -> None:
        self._victims: Final = families.histogram(
            "scheduler_preemption_victims",
            "Number of selected preemption victims.",
            exponential(1, 2, 7),
            stability=STABLE,
        ).labels()
        self._evictions: Final = families.counter(
            "scheduler_preemption_goroutines_execution_total",
            "Number of preemptions whose victims were to be evicted, by the result.",
            ("result",),
        )
        self._evicting: Final = families.histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "How long evicting all victims of a preemption took, by the result.",
            exponential(0.01, 2, 20),
            ("result",),
        )
        #: Counts and times preemptions.
        self.on: Final = ByType(
            {
                PreemptionStarted: lambda event: self._victims.observe(len(event.victims)),
                PreemptionFinished: self._finished,
            }
        )

    def _finished(self, event: PreemptionFinished) -> None:
        result = "success" if event.succeeded else "error"
        self._evictions.labels(result).inc()
        self._evicting.labels(result).observe(event.seconds)


class FrameworkMetrics(Probe):
    """Durations of extension points and plugins: the Probe of the framework (app.framework.probe)."""

    def __init__(
        self, families: MetricFamilies, *, monotonic: Callable[[], float], rng: np.random.Generator
    ) -> None:
        super().__init__(monotonic)
        self._rng: Final = rng
        self._samples: list[int] = []
        self._points: Final = families.histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            _POINT_BUCKETS,
            ("extension_point", "status", "profile"),
            stability=STABLE,
        )
        self._plugins: Final = families.histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point.",
            _PLUGIN_BUCKETS,
            ("plugin", "extension_point", "status"),
        )

    def next_sample(self) -> int:
        """See Probe: SAMPLED of the extension points, at random."""
        if not self._samples:
            self._samples = self._rng.geometric(SAMPLED, _DRAWN).tolist()
        return self._samples.pop()

    def extension_point(self, point: str, status: str, profile: str) -> Observe:
        return self._points.labels(point, status, profile).observe

    def plugin(self, plugin: str, point: str, status: str) -> Observe:
        return self._plugins.labels(plugin, point, status).observe


class QueueMetrics(QueueRecorder):
    """Metrics of the queue; about one hint call of ten is timed, as for plugins."""

    def __init__(self, families: MetricFamilies, probe: FrameworkMetrics) -> None:
        self._now: Final = probe.now
        self._next_sample: Final = probe.next_sample
        self._until_sample = probe.next_sample()
        self._hints: Final = families.histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration for running a queueing hint function of a plugin.",
            _PLUGIN_BUCKETS,
            ("plugin", "event", "hint"),
        )
        self._incoming: Final = families.counter(
            "scheduler_queue_incoming_pods_total",
            "Number of pods added to scheduling queues by event and queue type.",
            ("queue", "event"),
            stability=STABLE,
        )
        self._unschedulable: Final = families.gauge(
            "scheduler_unschedulable_pods",
            "The number of unschedulable pods broken down by plugin name. A pod counts for every plugin that "
            "rejected it, "
            "so the sum has no meaning.",
            ("plugin", "profile"),
            stability=BETA,
        )
        self._faults: Final = families.counter(
            "aiokube_scheduler_plugin_errors_total",
            "Exceptions raised by plugins at PreEnqueue or in a queueing hint.",
            ("plugin", "extension_point"),
        )

        self._dropped: Final = families.counter(
            "aiokube_scheduler_queue_events_dropped_total",
            "Events dropped because too many were pending, or kept for pods in flight. All pods they might wake "
            "are tried again.",
        ).labels()

    @property
    def dropped(self) -> float:
        """The number of events that were dropped."""
        return self._dropped.value

    def rejected_by(self) -> dict[str, int]:
        """Waiting pods by the plugin that rejected them; a pod counts for each of its plugins."""
        found: dict[str, int] = {}
        for (plugin, _), gauge in self._unschedulable.of.items():
            if gauge.value > 0:
                found[plugin] = found.get(plugin, 0) + int(gauge.value)
        return found

    def came(self) -> dict[tuple[str, ...], float]:
        """The pods that came, by queue and event."""
        return {labels: counter.value for labels, counter in self._incoming.of.items()}

    def incoming(self, queue: str, event: str) -> None:
        self._incoming.of[queue, event].value += 1.0

    def unschedulable(self, plugin: str, profile: str, delta: int) -> None:
        self._unschedulable.of[plugin, profile].value += delta

    def events_dropped(self, count: int) -> None:
        self._dropped.inc(count)

    def timed_hint(self, plugin: str, event: str, hint: HintFunction) -> HintFunction:
        """See QueueRecorder: a hint function that times some of its calls."""

        def timed(pod: Pod, old: object | None, new: object | None) -> bool:
            self._until_sample -= 1
            if self._until_sample:
                return hint(pod, old, new)
            self._until_sample = self._next_sample()
            started, result = self._now(), "Error"
            try:
                welcome = hint(pod, old, new)
                result = "Queue" if welcome else "QueueSkip"
            finally:
                self._hints.of[plugin, event, result].observe(self._now() - started)
            return welcome

        return timed

    def plugin_failed(self, plugin: str, point: str, pod: Pod, error: Exception) -> None:
        self._faults.labels(plugin, point).inc()
        log.error("Plugin %s has failed at %s for pod %s: %r", plugin, point, pod.key, error)


class WatchMetrics:
    """How long it takes to handle what the watches report."""

    def __init__(self, families: MetricFamilies) -> None:
        self._handling: Final = families.histogram(
            "scheduler_event_handling_duration_seconds",
            "Event handling latency.",
            _POINT_BUCKETS,
            ("event",),
        )

    def handled(self, change: Change, seconds: float) -> None:
        """A change was handled."""
        self._handling.of[_event(change),].observe(seconds)

    def listed(self, kind: type, objects: Collection[Any], seconds: float) -> None:
        """New objects of one kind, at least one, were handled together."""
        each = seconds / len(objects)
        parts = [objects]
        if kind is Pod:
            parts = [
                [pod for pod in objects if pod.node_name],
                [pod for pod in objects if not pod.node_name],
            ]
        for alike in filter(None, parts):
            event = _event(Change(kind, None, next(iter(alike))))
            self._handling.of[event,].observe_many(each, len(alike))


def _event(change: Change) -> str:
    """kube-scheduler's name for the event, except that it distinguishes updates of nodes and pods by what changed."""
    kind, old, new = change
    resource = RESOURCES.get(kind)
    of: str = kind.__name__ if resource is None else resource
    if kind is Pod:
        if old is not None and new is not None and new.node_name and not old.node_name:
            old = None  # a new assigned pod
        of = Resource.AssignedPod if (new or old).node_name else Resource.UnschedulablePod
    action = "Add" if old is None else "Delete" if new is None else "Update"
    return f"{of}{action}"
