"""One ear for each part of the scheduler, and behind it the metrics, the stories and the log.

The log's lines are kube-scheduler's own, at the verbosity it has them, so that tools which read its log read ours.
"""

import logging
from collections.abc import Iterable
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from app.cycle.attempt import Attempt, Choice
from app.extender.breaker import State
from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.extender.errors import ExtenderError, Outcome
from app.model.pod import Pod
from app.observe.extender_reports import ExtenderReports
from app.observe.histories import Stories
from app.observe.metrics.client import ClientMetrics, LoopLag
from app.observe.metrics.extenders import ExtenderMetrics
from app.observe.metrics.scheduler import (
    AttemptMetrics,
    FrameworkMetrics,
    QueueMetrics,
    WatchMetrics,
)
from app.observe.metrics.series import Families
from app.observe.recorder import Failed
from app.runtime import logs
from app.runtime.clock import Clock, stopwatch
from app.state.queue.queued_pod import QueuedPod

log = logging.getLogger(__name__)

#: Verbosity at which pods bound or not, and every score, are logged.
_OUTCOMES: Final = 2
_SCORES: Final = 10


class Telemetry:
    """Everything that listens, made once per process. A Recorder (app.observe.recorder)."""

    def __init__(self, clock: Clock, rng: np.random.Generator) -> None:
        self.registry: Final = CollectorRegistry()
        self.families: Final = Families(self.registry)
        self.stories: Final = Stories(clock.wall)
        self.probe: Final = FrameworkMetrics(self.families, monotonic=stopwatch(), rng=rng)
        self.queue: Final = QueueMetrics(self.families, self.probe)
        self.watches: Final = WatchMetrics(self.families)
        self.extenders: Final = ExtenderTelemetry(
            ExtenderMetrics(self.families),
            self.stories,
            ExtenderReports(wall=clock.wall, monotonic=clock.monotonic),
        )
        self.client: Final = ClientMetrics(self.families)
        self.lag: Final = LoopLag(self.families, self.probe.now)
        self._attempts: Final = AttemptMetrics(self.families)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)

    # ------------------------------------------------------------ Recorder

    def asking(self, queued: QueuedPod, profile: str) -> None:
        """See Recorder."""
        self.stories.asking(queued, profile)

    def decided(self, queued: QueuedPod, attempt: Attempt, choice: Choice, seconds: float) -> None:
        """See Recorder."""
        self._attempts.decided(seconds)
        self.stories.decided(queued, attempt.framework.profile_name, choice, seconds)
        if logs.enabled(_SCORES):
            log_scores(attempt)

    def binding_step(self, queued: QueuedPod, step: str, status: str, seconds: float) -> None:
        """See Recorder."""
        self.stories.binding_step(queued, step, status, seconds)

    def bound(self, queued: QueuedPod, pod: Pod, profile: str, seconds: float, now: float) -> None:
        """See Recorder."""
        self._attempts.bound(queued, profile, seconds, now)
        attempt = self.stories.bound(queued, profile, seconds, now)
        if logs.enabled(_OUTCOMES):
            logs.info(
                log,
                "Successfully bound pod to node",
                v=_OUTCOMES,
                pod=pod.key,
                node=pod.node_name,
                evaluatedNodes=attempt.evaluated,
                feasibleNodes=attempt.feasible,
            )

    def failed(self, failed: Failed) -> None:
        """See Recorder."""
        self._attempts.failed(failed)
        self.stories.failed(failed)
        pod = failed.queued.pod.key
        if failed.result == "error":
            logs.error(log, "Error scheduling pod; retrying", pod=pod, err=failed.message)
        elif logs.enabled(_OUTCOMES):
            logs.info(
                log,
                "Unable to schedule pod; no fit; waiting",
                v=_OUTCOMES,
                pod=pod,
                err=failed.message,
            )

    def permit_waited(self, result: str, seconds: float) -> None:
        """See Recorder."""
        self._attempts.permit_waited(result, seconds)

    def preempting(self, preemptor: Pod, node_name: str, victims: int) -> None:
        """See Recorder."""
        self._attempts.preempting(victims)
        self.stories.preempting(preemptor, victims)
        if logs.enabled(_OUTCOMES):
            logs.info(
                log,
                "Preempting pods to make room",
                v=_OUTCOMES,
                preemptor=preemptor.key,
                node=node_name,
                victims=victims,
            )

    def preempted(self, seconds: float, *, done: bool) -> None:
        """See Recorder."""
        self._attempts.preempted(seconds, done=done)


def log_scores(attempt: Attempt) -> None:
    """Every plugin's weighted score of every node, and the totals, in kube-scheduler's words. For verbosity 10."""
    pod = attempt.pod.key
    try:
        nodes, by_plugin, totals = attempt.scores()
    except Exception:
        log.exception("The scores of pod %s could not be worked out for the log", pod)
        return
    columns = {plugin: scores.tolist() for plugin, scores in by_plugin.items()}
    for number, node in enumerate(nodes):
        for plugin, scores in columns.items():
            logs.info(
                log,
                "Plugin scored node for pod",
                v=_SCORES,
                pod=pod,
                plugin=plugin,
                node=node,
                score=scores[number],
            )
    for node, score in zip(nodes, totals.tolist(), strict=True):
        logs.info(
            log,
            "Calculated node's final score for pod",
            v=_SCORES,
            pod=pod,
            node=node,
            score=score,
        )


class ExtenderTelemetry:
    """An Observer (app.extender.observer)."""

    def __init__(
        self, metrics: ExtenderMetrics, stories: Stories, reports: ExtenderReports
    ) -> None:
        self.metrics: Final = metrics
        self.reports: Final = reports
        self._stories: Final = stories

    def expect(self, extenders: Iterable[HTTPExtender]) -> None:
        """Shows the metrics of these extenders before they are first called."""
        for extender in extenders:
            for verb in filter(extender.supports, Verb):
                self.metrics.expect(extender.name, verb)

    def call_started(self, extender: str, verb: Verb) -> None:
        """See Observer."""
        self.metrics.call_started(extender, verb)

    def call_finished(
        self,
        extender: str,
        verb: Verb,
        outcome: Outcome,
        *,
        seconds: float,
        sent: int,
        received: int,
    ) -> None:
        """See Observer."""
        self.metrics.call_finished(
            extender, verb, outcome, seconds=seconds, sent=sent, received=received
        )
        self._stories.call_finished(
            extender, verb, outcome, seconds=seconds, sent=sent, received=received
        )
        if outcome is Outcome.SUCCESS:
            self.reports.answered(extender, verb)

    def call_held_back(self, extender: str, verb: Verb) -> None:
        """See Observer."""
        self.metrics.call_held_back(extender, verb)
        self._stories.call_held_back(extender, verb)

    def nodes_dropped(self, extender: str, count: int) -> None:
        """See Observer."""
        self.metrics.nodes_dropped(extender, count)
        self._stories.nodes_dropped(extender, count)

    def breaker_changed(self, extender: str, verb: Verb, state: State) -> None:
        """See Observer."""
        self.metrics.breaker_changed(extender, verb, state)
        level = logging.WARNING if state is State.OPEN else logging.INFO
        log.log(level, "Extender %s: the breaker of %s is %s", extender, verb.value, state.value)

    def error_ignored(self, error: ExtenderError, pod: Pod) -> None:
        """See Observer."""
        self.metrics.error_ignored(error)
        self._stories.error_ignored(error)
        self.reports.ignored(error, pod)

    def warned(self, extender: str, text: str) -> None:
        """See Observer."""
        log.warning("Extender %s: %s", extender, text)
