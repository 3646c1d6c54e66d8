"""Metrics that are computed when they are scraped: queue, cache, plugins, watches, election, events, limits."""

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from app.extender.memory import AnswerMemory
from app.framework.runner import Framework
from app.kube.credentials import CredentialFailures
from app.kube.events import EventStatistics
from app.kube.informer import InformerStatistics
from app.model.budget import ByteBudget
from app.model.features import Features
from app.model.gates import GATES
from app.observe.events import ElectionStatistics
from app.observe.metrics.series import ALPHA, BETA, STABLE, Labels, MetricFamilies, Values
from app.plugins.dynamic_resources import DynamicResources
from app.plugins.volume_binding import VolumeBinding
from app.runtime.limits import Limits
from app.runtime.shortages import Shortages
from app.state.cache import CacheStatistics
from app.state.queue.queued_pod import QueueStatistics

#: The election's name in metrics.
_ELECTION: Final = "kube-scheduler"
_PREEMPTION: Final = "DefaultPreemption"

Frameworks = Mapping[str, Framework]


class Sources(NamedTuple):
    """What the metrics of a scheduler are computed from."""

    queue: Callable[[], QueueStatistics]
    cache: Callable[[], CacheStatistics]
    frameworks: Frameworks
    informers: Callable[[], Iterable[InformerStatistics]]
    #: Tasks in progress, by what they do (``operation`` of scheduler_goroutines).
    workers: Callable[[], Mapping[str, float]]
    #: Status patches that wait or are being written.
    patches: Callable[[], int]
    #: Status patches that were dropped because too many waited.
    patches_dropped: Callable[[], int]
    #: Bindings that were sent and whose outcome is unknown.
    doubts: Callable[[], int]
    #: Pods that were decided again because pods of other schedulers had filled their nodes.
    decided_again: Callable[[], int] = int
    #: Pods that a kubelet rejected, by reason.
    kubelet_rejections: Callable[[], Values] = dict
    #: Releases by extender and what became of them.
    releases: Callable[[], Values] = dict
    #: Comparisons with extenders in shadow, by extender, verb and result.
    shadow_results: Callable[[], Values] = dict
    #: Decisions that an extender in shadow was not asked about, by extender and reason.
    shadow_not_asked: Callable[[], Values] = dict


class _Computed(NamedTuple):
    """A metric whose series are computed from Sources."""

    name: str
    text: str
    values: Callable[[Sources], Values]
    labels: Labels = ()
    counter: bool = False
    stability: str = ALPHA


_SCHEDULER: Final = (
    _Computed(
        "scheduler_pending_pods",
        "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of "
        "pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to "
        "schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to "
        "schedule because they are gated.",
        lambda sources: _pending(sources.queue()),
        ("queue",),
        stability=STABLE,
    ),
    _Computed(
        "scheduler_cache_size",
        "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
        lambda sources: _cached(sources.cache()),
        ("type",),
    ),
    _Computed(
        "aiokube_scheduler_pods_in_flight",
        "Pods that are being tried, or wait for their permit.",
        lambda sources: {(): sources.queue().in_flight},
    ),
    _Computed(
        "aiokube_scheduler_unconfirmed_bindings",
        "Pods whose binding is written and that the watch has not shown as bound yet.",
        lambda sources: {(): sources.cache().unconfirmed_pods},
    ),
    _Computed(
        "scheduler_goroutines",
        "Number of running tasks split by the work they do.",
        lambda sources: {(name,): count for name, count in sources.workers().items()},
        ("operation",),
        stability=BETA,
    ),
    _Computed(
        "scheduler_plugin_evaluation_total",
        "Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, "
        "Filter, PreScore, and Score).",
        lambda sources: {
            (plugin, point, profile): count
            for profile, framework in sources.frameworks.items()
            for (plugin, point), count in framework.participation.counts().items()
        },
        ("plugin", "extension_point", "profile"),
        counter=True,
        stability=BETA,
    ),
    _Computed(
        "scheduler_preemption_attempts_total",
        "Total preemption attempts in the cluster till now.",
        lambda sources: {
            (): sum(f.commit.post_filter_calls[_PREEMPTION] for f in sources.frameworks.values())
        },
        counter=True,
        stability=STABLE,
    ),
    _Computed(
        "scheduler_volume_scheduling_stage_error_total",
        "Volume scheduling stage error count.",
        lambda sources: _stage_errors(sources.frameworks),
        ("operation",),
        counter=True,
    ),
    _Computed(
        "scheduler_resourceclaim_creates_total",
        "Number of ResourceClaims creation requests within scheduler",
        lambda sources: _claims_created(sources.frameworks),
        ("status",),
        counter=True,
    ),
    _Computed(
        "scheduler_dra_bindingconditions_allocations_total",
        "Number of allocations using devices with BindingConditions, counted per driver per scheduling attempt",
        lambda sources: _conditions_awaited(sources.frameworks),
        ("profile", "driver", "status"),
        counter=True,
    ),
    _Computed(
        "aiokube_scheduler_status_patches_pending",
        "Pod status patches that wait or are being written.",
        lambda sources: {(): sources.patches()},
    ),
    _Computed(
        "aiokube_scheduler_status_patches_dropped_total",
        "Pod status patches that were dropped because too many waited.",
        lambda sources: {(): sources.patches_dropped()},
        counter=True,
    ),
    _Computed(
        "aiokube_scheduler_bindings_in_doubt",
        "Bindings that were sent and whose outcome is unknown; their pods keep their places.",
        lambda sources: {(): sources.doubts()},
    ),
    _Computed(
        "aiokube_scheduler_pods_decided_again_total",
        "Pods that were decided again before they were bound, because pods of other schedulers had filled their nodes.",
        lambda sources: {(): sources.decided_again()},
        counter=True,
    ),
    _Computed(
        "aiokube_scheduler_kubelet_rejections_total",
        "Pods of this scheduler that a kubelet rejected, by reason: OutOfcpu and the like.",
        lambda sources: sources.kubelet_rejections(),
        ("reason",),
        counter=True,
    ),
    _Computed(
        "aiokube_scheduler_extender_releases_total",
        "Placements that were given up and that an extender with a release verb may have heard of, by what became of the call.",
        lambda sources: sources.releases(),
        ("extender", "result"),
        counter=True,
    ),
    _Computed(
        "aiokube_scheduler_extender_shadow_comparisons_total",
        "Answers of extenders in shadow by how they compare with the decisions.",
        lambda sources: sources.shadow_results(),
        ("extender", "verb", "result"),
        counter=True,
    ),
    _Computed(
        "aiokube_scheduler_extender_shadow_not_asked_total",
        "Decisions that an extender in shadow was not asked about, because too many waited or its breaker was open.",
        lambda sources: sources.shadow_not_asked(),
        ("extender", "reason"),
        counter=True,
    ),
)

#: Metric, help, value of one informer, whether it is a counter.
_WATCHES: Final[Sequence[tuple[str, str, Callable[[InformerStatistics], float | None], bool]]] = (
    (
        "aiokube_scheduler_watch_age_seconds",
        "Time since anything was last received from the API server about this kind.",
        lambda s: s.age,
        False,
    ),
    (
        "aiokube_scheduler_watch_synced",
        "1 once the first list of this kind has been handled.",
        lambda s: float(s.synced),
        False,
    ),
    (
        "aiokube_scheduler_watch_objects",
        "Objects of this kind that are known.",
        lambda s: s.objects,
        False,
    ),
    (
        "aiokube_scheduler_watch_unreadable_objects",
        "Objects of this kind that exist and cannot be decoded; the log names them.",
        lambda s: s.unreadable,
        False,
    ),
    (
        "aiokube_scheduler_watch_lists_total",
        "Complete lists taken of this kind.",
        lambda s: s.lists,
        True,
    ),
    (
        "aiokube_scheduler_watch_reconnects_total",
        "Watches of this kind that were restarted.",
        lambda s: s.reconnects,
        True,
    ),
    (
        "aiokube_scheduler_watch_decode_errors_total",
        "Objects or lines of this kind that could not be decoded.",
        lambda s: s.decode_errors,
        True,
    ),
    (
        "aiokube_scheduler_watch_refused_objects",
        "Objects of this kind that exist, can be decoded and cannot be used; the log names them.",
        lambda s: s.refused,
        False,
    ),
    (
        "aiokube_scheduler_watch_handler_errors_total",
        "Changes to objects of this kind that could not be handled.",
        lambda s: s.handler_errors,
        True,
    ),
)


def register_scheduler(families: MetricFamilies, sources: Sources) -> None:
    """Queue, cache, plugins, bindings and watches."""
    for metric in _SCHEDULER:
        families.computed(
            metric.name,
            metric.text,
            partial(metric.values, sources),
            metric.labels,
            counter=metric.counter,
            stability=metric.stability,
        )
    for name, text, value, counter in _WATCHES:
        families.computed(
            name, text, _by_kind(sources.informers, value), ("kind",), counter=counter
        )


def _by_kind(
    informers: Callable[[], Iterable[InformerStatistics]],
    value: Callable[[InformerStatistics], float | None],
) -> Callable[[], Values]:
    def look_up() -> Values:
        found = {(each.kind,): value(each) for each in informers()}
        return {labels: number for labels, number in found.items() if number is not None}

    return look_up


def _pending(queue: QueueStatistics) -> Values:
    return {
        ("active",): queue.active,
        ("backoff",): queue.backoff + queue.error_backoff,
        ("unschedulable",): queue.unschedulable,
        ("gated",): queue.gated,
    }


def _cached(cache: CacheStatistics) -> Values:
    return {("nodes",): cache.nodes, ("pods",): cache.pods, ("assumed_pods",): cache.assumed_pods}


def _stage_errors(frameworks: Mapping[str, Framework]) -> Values:
    total: Counter[str] = Counter()
    for framework in frameworks.values():
        for plugin in framework.plugins.at("filter"):
            if isinstance(plugin, VolumeBinding):
                total += plugin.stage_errors
    return {(operation,): count for operation, count in total.items()}


def _device_plugins(
    frameworks: Mapping[str, Framework],
) -> Iterator[tuple[str, DynamicResources]]:
    """The DynamicResources plugins, each with its profile's name."""
    for profile, framework in frameworks.items():
        for plugin in framework.plugins.at("preBind"):
            if isinstance(plugin, DynamicResources):
                yield profile, plugin


def _claims_created(frameworks: Mapping[str, Framework]) -> Values:
    total: Counter[str] = Counter()
    for _, plugin in _device_plugins(frameworks):
        total += plugin.claims_created
    return {(outcome,): count for outcome, count in total.items()}


def _conditions_awaited(frameworks: Mapping[str, Framework]) -> Values:
    return {
        (profile, driver, outcome): count
        for profile, plugin in _device_plugins(frameworks)
        for (driver, outcome), count in plugin.conditions_awaited.items()
    }


def register_election(
    families: MetricFamilies, election: Callable[[], ElectionStatistics | None]
) -> None:
    """client-go's metrics of leader election; no series without election."""

    def of(value: Callable[[ElectionStatistics], float]) -> Callable[[], Values]:
        def look_up() -> Values:
            statistics = election()
            return {} if statistics is None else {(_ELECTION,): value(statistics)}

        return look_up

    families.computed(
        "leader_election_master_status",
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. "
        "'name' is the string used to identify the lease.",
        of(lambda s: float(s.is_leader)),
        ("name",),
    )
    families.computed(
        "leader_election_slowpath_total",
        "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease.",
        of(lambda s: s.slow_path),
        ("name",),
        counter=True,
    )


def register_events(
    families: MetricFamilies, events: Callable[[], Iterable[EventStatistics]]
) -> None:
    """Events about pods: waiting, sent, lost."""

    def totals(field: str) -> Callable[[], Values]:
        return lambda: {(): sum(getattr(each, field) for each in events())}

    families.computed(
        "aiokube_scheduler_events_queued", "Events that wait to be sent.", totals("queued")
    )
    for field, text in {
        "sent": "Events sent.",
        "dropped": "Events lost because too many waited.",
        "failed": "Events not written: rejected by the API server, or not accepted in time.",
    }.items():
        families.computed(
            f"aiokube_scheduler_events_{field}_total", text, totals(field), counter=True
        )


def register_resources(
    families: MetricFamilies,
    limits: Limits,
    answers: AnswerMemory,
    shortages: Shortages,
    waiting: Mapping[str, ByteBudget],
) -> None:
    """The process's limits, and what happens when they are reached."""
    families.computed(
        "aiokube_scheduler_memory_limit_bytes",
        "Memory limit of the process: the smallest of the machine's memory, control group limits and ulimits.",
        lambda: {(): limits.memory},
    )
    families.computed(
        "aiokube_scheduler_waiting_bytes",
        "About how much memory is taken by what waits (queue), and the limit: cluster events, API events, status patches.",
        lambda: {
            (queue, kind): amount
            for queue, budget in waiting.items()
            for kind, amount in (("used", budget.used), ("limit", budget.limit))
        },
        ("queue", "kind"),
    )
    families.computed(
        "aiokube_scheduler_shortages_total",
        "Failures because file descriptors or memory ran out, each retried, by what failed.",
        lambda: {(what,): count for what, count in shortages.counts.items()},
        ("operation",),
        counter=True,
    )
    families.computed(
        "aiokube_scheduler_extender_large_answers_in_flight",
        "Large answers of extenders that are being read, or wait until others are read.",
        lambda: {("reading",): answers.reading, ("waiting",): answers.waiting},
        ("state",),
    )
    families.computed(
        "aiokube_scheduler_extender_large_answers_total",
        "Large answers of extenders; given_up are those whose call timed out while they waited for others.",
        lambda: {("read",): answers.taken, ("given_up",): answers.given_up},
        ("outcome",),
        counter=True,
    )


def register_credentials(families: MetricFamilies, failures: CredentialFailures) -> None:
    """Credentials for the API server that do not work."""
    families.computed(
        "aiokube_scheduler_credential_failures_total",
        "Requests that the API server refused for their credentials (refused), and renewals of credentials that failed "
        "(not_renewed).",
        lambda: {("refused",): failures.refused, ("not_renewed",): failures.not_renewed},
        ("reason",),
        counter=True,
    )


def register_features(families: MetricFamilies, features: Features) -> None:
    """The rules that hold, and the feature gates that are on of those that can be on and off here."""
    families.computed(
        "aiokube_scheduler_emulated_version_info",
        "A metric with a constant '1' value labeled by the version of kube-scheduler whose rules hold.",
        lambda: {(features.version,): 1.0},
        ("version",),
    )
    able = [gate.name for gate in GATES.values() if gate.switches]
    families.computed(
        "aiokube_scheduler_feature_enabled",
        "Whether a feature gate of kube-scheduler is on, of those that change something here.",
        lambda: {
            (name, GATES[name].versions[features.version].stage): float(name in features)
            for name in able
            if features.version in GATES[name].versions
        },
        ("name", "stage"),
    )


def register_build(families: MetricFamilies, version: str) -> None:
    """The version of the program.

    Not as ``kubernetes_build_info``, because alerts compare the versions there to find components that were not upgraded.
    """
    labels: Labels = (
        version,
        platform.python_version(),
        f"{platform.system()}/{platform.machine()}",
    )
    families.computed(
        "aiokube_scheduler_build_info",
        "A metric with a constant '1' value labeled by version, Python version, and platform.",
        lambda: {labels: 1.0},
        ("version", "python_version", "platform"),
    )
