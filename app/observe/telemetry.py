"""Passes events to the metrics, the pod histories, the log and the API events about extenders.

The log has kube-scheduler's messages at its verbosity, so that tools that read its log can read this one.
"""

import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from app.extender.breaker import State
from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.extender.events import (
    BreakerChanged,
    CallFinished,
    ExtenderWarning,
    NodesScored,
)
from app.model.clock import Clock
from app.observe.bodies import beginning, without_secrets
from app.observe.events import (
    AttemptFailed,
    ByType,
    NodeSelected,
    PodBound,
    PreemptionStarted,
    ShadowAnswered,
)
from app.observe.extender_reports import ExtenderReports
from app.observe.feed import RecentEvents
from app.observe.group_histories import GroupHistories
from app.observe.histories import Histories
from app.observe.metrics.extenders import ExtenderMetrics
from app.observe.metrics.process import ClientMetrics, LoopLag, ServingMetrics
from app.observe.metrics.scheduler import (
    AttemptMetrics,
    FrameworkMetrics,
    GroupMetrics,
    PreemptionMetrics,
    QueueMetrics,
    WatchMetrics,
)
from app.observe.metrics.series import MetricFamilies
from app.runtime import logs
from app.runtime.clock import stopwatch

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logging.getLogger(__name__)

#: Verbosity at which outcomes of attempts, calls to extenders, and every score are logged.
_OUTCOMES: Final = 2
_CALLS: Final = 5
_SCORES: Final = 10
#: Verbosity at which the bodies of calls are logged -> bytes of each, as in client-go's log.
_BODIES: Final = {8: 1024, 9: 10 * 1024, 10: 64 * 1024}


class Telemetry:
    """Owns the sinks and passes each event to all of them. One instance per process."""

    def __init__(self, clock: Clock, rng: np.random.Generator, *also: ByType) -> None:
        """``also``: further sinks of events about pods."""
        self.families: Final = MetricFamilies()
        self.histories: Final = Histories(clock.wall)
        self.group_histories: Final = GroupHistories(clock.wall)
        #: For the feed.
        self.recent: Final = RecentEvents(clock.wall)
        self.families.computed(
            "aiokube_scheduler_histories_forgotten_total",
            "Pod histories dropped for later ones.",
            lambda: {(): self.histories.forgotten},
            counter=True,
        )
        self.probe: Final = FrameworkMetrics(self.families, monotonic=stopwatch(), rng=rng)
        self.queue: Final = QueueMetrics(self.families, self.probe)
        self.watches: Final = WatchMetrics(self.families)
        self.extender_metrics: Final = ExtenderMetrics(self.families)
        self.extender_reports: Final = ExtenderReports(wall=clock.wall, monotonic=clock.monotonic)
        self.client: Final = ClientMetrics(self.families)
        self.lag: Final = LoopLag(self.families, self.probe.now)
        self.serving: Final = ServingMetrics(self.families)
        self.attempts: Final = AttemptMetrics(self.families)
        self._errors: Final = logs.Repeats(clock.monotonic)
        #: Takes the events about pods.
        self.on: Final = ByType.together(
            self.attempts.on,
            PreemptionMetrics(self.families).on,
            GroupMetrics(self.families).on,
            self.group_histories.on,
            self.histories.on,
            self.recent.on,
            ByType({AttemptFailed: self._log_failed}),
            log_event,
            *also,
        )
        #: Takes the events about extenders.
        self.on_extender: Final = ByType.together(
            self.extender_metrics.on, self.histories.on, self.extender_reports.on, log_event
        )
        #: Takes the events about extenders in shadow, whose calls belong to no attempt.
        self.on_shadow: Final = ByType.together(self.extender_metrics.on, log_event)

    @functools.cached_property
    def registry(self) -> "CollectorRegistry":
        """All metrics; made when they are first asked for, because the library takes long to import."""
        from app.observe.metrics.exposition import registry_of  # noqa: PLC0415

        return registry_of(self.families)

    def _log_failed(self, event: AttemptFailed) -> None:
        pod, text = event.queued.pod, event.message
        if event.result == "error":
            cause = text.replace(pod.uid, "").replace(pod.name, "")
            message = "Error scheduling pod; retrying"
            self._errors.error(log, message, cause, pod=pod.key, err=text)
        elif logs.enabled(_OUTCOMES):
            message = "Unable to schedule pod; no fit; waiting"
            logs.info(log, message, v=_OUTCOMES, pod=pod.key, err=text)

    def expect(self, extenders: Iterable[HTTPExtender]) -> None:
        """Creates the series of these extenders before their first calls."""
        for extender in extenders:
            for verb in filter(extender.supports, Verb):
                self.extender_metrics.expect(extender.name, verb)


def _log_bound(event: PodBound) -> None:
    if logs.enabled(_OUTCOMES):
        logs.info(
            log,
            "Successfully bound pod to node",
            v=_OUTCOMES,
            pod=event.pod.key,
            node=event.pod.node_name,
            evaluatedNodes=event.evaluated,
            feasibleNodes=event.feasible,
        )


def _log_preempting(event: PreemptionStarted) -> None:
    if logs.enabled(_OUTCOMES):
        logs.info(
            log,
            "Preempting pods to make room",
            v=_OUTCOMES,
            preemptor=event.preemptor.key,
            node=event.node,
            victims=len(event.victims),
        )


def _log_shadow(event: ShadowAnswered) -> None:
    if event.result != "same" and logs.enabled(_OUTCOMES):
        logs.info(
            log,
            "Extender in shadow differs",
            v=_OUTCOMES,
            pod=event.pod.key,
            node=event.node,
            extender=event.extender,
            verb=event.verb,
            result=event.result,
            detail=event.detail,
        )


def log_scores(event: NodeSelected) -> None:
    """Logs every plugin's weighted score of every node, and the totals, in kube-scheduler's words (verbosity 10)."""
    if not logs.enabled(_SCORES):
        return
    pod = event.queued.pod.key
    try:
        scores = event.scores()
    except Exception:
        log.exception("The scores of pod %s could not be computed for the log", pod)
        return
    columns = {plugin: column.tolist() for plugin, column in scores.by_plugin.items()}
    for number, node in enumerate(scores.nodes):
        for plugin, column in columns.items():
            about = {"pod": pod, "plugin": plugin, "node": node, "score": column[number]}
            logs.info(log, "Plugin scored node for pod", v=_SCORES, **about)
    for node, total in zip(scores.nodes, scores.totals.tolist(), strict=True):
        message = "Calculated node's final score for pod"
        logs.info(log, message, v=_SCORES, pod=pod, node=node, score=total)


def _log_extender_scores(event: NodesScored) -> None:
    if not logs.enabled(_SCORES):
        return
    for node, score in zip(event.hosts, event.scores, strict=True):
        about = {"pod": event.pod.key, "extender": event.extender, "node": node, "score": score}
        logs.info(log, "Extender scored node for pod", v=_SCORES, **about)


def _log_breaker(event: BreakerChanged) -> None:
    level = logging.WARNING if event.state is State.OPEN else logging.INFO
    verb, state = event.verb.value, event.state.value
    log.log(level, "Extender %s: the breaker of %s is %s", event.extender, verb, state)


def _log_call(event: CallFinished) -> None:
    """Logs a call, and at a high verbosity the beginning of its bodies."""
    if not logs.enabled(_CALLS):
        return
    pod = "" if event.pod is None else event.pod.key
    call = {"pod": pod, "extender": event.extender, "verb": event.verb.value}
    logs.info(
        log,
        "Called extender",
        v=_CALLS,
        **call,
        outcome=event.outcome.value,
        seconds=round(event.seconds, 6),
        sent=event.sent,
        received=event.received,
    )
    limits = [(v, limit) for v, limit in _BODIES.items() if logs.enabled(v)]
    if not limits:
        return
    v, limit = limits[-1]
    pieces = () if event.request is None else event.request.pieces
    for message, body in (
        ("Request to extender", beginning(pieces, limit)),
        ("Answer of extender", event.answer[:limit]),
    ):
        logs.info(log, message, v=v, **call, body=without_secrets(body))


#: Logs an event, scores in kube-scheduler's words.
log_event: Final = ByType(
    {
        NodeSelected: log_scores,
        PodBound: _log_bound,
        PreemptionStarted: _log_preempting,
        ShadowAnswered: _log_shadow,
        CallFinished: _log_call,
        NodesScored: _log_extender_scores,
        BreakerChanged: _log_breaker,
        ExtenderWarning: lambda e: log.warning("Extender %s: %s", e.extender, e.text),
    }
)
