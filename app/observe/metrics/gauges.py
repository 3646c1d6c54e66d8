"""Metrics that are computed when they are scraped: queue, cache, plugins, watches, election, events, limits."""

import platform
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from app.extender.memory import AnswerMemory
from app.framework.runner import Framework
from app.kube.credentials import CredentialFailures
from app.kube.events import EventStatistics
from app.kube.informer import InformerStatistics
from app.model.budget import ByteBudget
from app.model.features import Features, Rule
from app.model.gates import GATES
from app.observe.events import ElectionStatistics
from app.observe.metrics.series import BETA, STABLE, LabelValues, MetricFamilies, ValuesByLabels
from app.plugins.dynamic_resources import DynamicResources
from app.plugins.volume_binding import VolumeBinding
from app.runtime.limits import Limits
from app.runtime.shortages import Shortages
from app.state.cache import CacheStatistics
from app.state.queue.queued_pod import QueueStatistics
from app.state.queue.scheduling_queue import SchedulingQueue

#: The election's name in metrics.
_ELECTION: Final = "kube-scheduler"
_PREEMPTION: Final = "DefaultPreemption"
#: Labels of the claims that the scheduler creates: without admin access, each for the extended resources of a pod.
_FOR_PODS: Final = ("false", "", "Pod")

Frameworks = Mapping[str, Framework]


def register_queue(
    families: MetricFamilies,
    queue: SchedulingQueue,
    *,
    incoming: Callable[[], ValuesByLabels],
    rules: Collection[Rule] = (),
) -> None:
    """Pods that wait or are being tried; ``incoming``: those that came, by queue and event."""
    families.computed(
        "scheduler_pending_pods",
        "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means "
        "number of "
        "pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to "
        "schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to "
        "schedule because they are gated.",
        lambda: _pending(queue.statistics()),
        ("queue",),
        stability=STABLE,
    )
    families.computed(
        "aiokube_scheduler_pods_in_flight",
        "Pods that are being tried, or wait for their permit.",
        lambda: {(): queue.statistics().in_flight},
    )
    families.computed(
        "scheduler_inflight_events",
        "Number of events currently tracked in the scheduling queue.",
        lambda: {(label,): count for label, count in queue.in_flight_events().items()},
        ("event",),
    )
    if Rule.QueuedEntities in rules:
        families.computed(
            "scheduler_queued_entities",
            "Number of entities (pods or pod groups) in the scheduling queues, by queue and type.",
            lambda: _as_pods(_pending(queue.statistics())),
            ("queue", "type"),
        )
        families.computed(
            "scheduler_queue_incoming_entities_total",
            "Number of entities (pods or pod groups) added to scheduling queues by event, queue and type.",
            lambda: _as_pods(incoming()),
            ("queue", "event", "type"),
            counter=True,
        )


def _as_pods(values: ValuesByLabels) -> ValuesByLabels:
    """Here every entity in a queue is a pod: those of a group are counted one by one."""
    return {(*labels, "pod"): value for labels, value in values.items()}


def register_cache(families: MetricFamilies, statistics: Callable[[], CacheStatistics]) -> None:
    """Nodes and pods."""
    families.computed(
        "scheduler_cache_size",
        "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
        lambda: _cached(statistics()),
        ("type",),
    )
    families.computed(
        "aiokube_scheduler_unconfirmed_bindings",
        "Pods whose binding is written and that the watch has not shown as bound yet.",
        lambda: {(): statistics().unconfirmed_pods},
    )


def register_plugins(
    families: MetricFamilies, frameworks: Frameworks, rules: Collection[Rule] = ()
) -> None:
    """What the plugins of the profiles have done."""
    families.computed(
        "scheduler_plugin_evaluation_total",
        "Number of attempts to schedule pods by each plugin and the extension point (available only in PreFilter, "
        "Filter, PreScore, and Score).",
        lambda: {
            (plugin, point, profile): count
            for profile, framework in frameworks.items()
            for (plugin, point), count in framework.participation.counts().items()
        },
        ("plugin", "extension_point", "profile"),
        counter=True,
        stability=BETA,
    )
    families.computed(
        "scheduler_preemption_attempts_total",
        "Total preemption attempts in the cluster till now.",
        lambda: {(): sum(f.commit.post_filter_calls[_PREEMPTION] for f in frameworks.values())},
        counter=True,
        stability=STABLE,
    )
    families.computed(
        "scheduler_volume_scheduling_stage_error_total",
        "Volume scheduling stage error count.",
        lambda: _stage_errors(frameworks),
        ("operation",),
        counter=True,
    )
    by_owner = Rule.QueuedEntities in rules
    families.computed(
        "dynamic_resource_allocation_resourceclaim_creates_total"
        if by_owner
        else "scheduler_resourceclaim_creates_total",
        "Number of ResourceClaims creation requests within scheduler",
        lambda: _claims_created(frameworks, _FOR_PODS if by_owner else ()),
        ("status", *(("admin_access", "owner_api_group", "owner_api_kind") if by_owner else ())),
        counter=True,
    )
    families.computed(
        "scheduler_dra_bindingconditions_allocations_total",
        "Number of allocations using devices with BindingConditions, counted per driver per scheduling attempt",
        lambda: _conditions_awaited(frameworks),
        ("profile", "driver", "status"),
        counter=True,
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


def register_watches(
    families: MetricFamilies, informers: Callable[[], Iterable[InformerStatistics]]
) -> None:
    """The watch of each kind."""
    for name, text, value, counter in _WATCHES:
        families.computed(name, text, _by_kind(informers, value), ("kind",), counter=counter)


def _by_kind(
    informers: Callable[[], Iterable[InformerStatistics]],
    value: Callable[[InformerStatistics], float | None],
) -> Callable[[], ValuesByLabels]:
    def look_up() -> ValuesByLabels:
        found = {(each.kind,): value(each) for each in informers()}
        return {labels: number for labels, number in found.items() if number is not None}

    return look_up


def _pending(queue: QueueStatistics) -> ValuesByLabels:
    return {
        ("active",): queue.active,
        ("backoff",): queue.backoff + queue.error_backoff,
        ("unschedulable",): queue.unschedulable,
        ("gated",): queue.gated,
    }


def _cached(cache: CacheStatistics) -> ValuesByLabels:
    return {("nodes",): cache.nodes, ("pods",): cache.pods, ("assumed_pods",): cache.assumed_pods}


def _stage_errors(frameworks: Mapping[str, Framework]) -> ValuesByLabels:
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


def _claims_created(
    frameworks: Mapping[str, Framework], labels: Sequence[str] = ()
) -> ValuesByLabels:
    total: Counter[str] = Counter()
    for _, plugin in _device_plugins(frameworks):
        total += plugin.claims_created
    return {(outcome, *labels): count for outcome, count in total.items()}


def _conditions_awaited(frameworks: Mapping[str, Framework]) -> ValuesByLabels:
    return {
        (profile, driver, outcome): count
        for profile, plugin in _device_plugins(frameworks)
        for (driver, outcome), count in plugin.conditions_awaited.items()
    }


def register_election(
    families: MetricFamilies, election: Callable[[], ElectionStatistics | None]
) -> None:
    """client-go's metrics of leader election; no series without election."""

    def of(value: Callable[[ElectionStatistics], float]) -> Callable[[], ValuesByLabels]:
        def look_up() -> ValuesByLabels:
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
        "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the "
        "lease.",
        of(lambda s: s.slow_path),
        ("name",),
        counter=True,
    )


def register_events(
    families: MetricFamilies, events: Callable[[], Iterable[EventStatistics]]
) -> None:
    """Events about pods: waiting, sent, lost."""

    def totals(field: str) -> Callable[[], ValuesByLabels]:
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
        "About how much memory is taken by what waits (queue), and the limit: cluster events, API events, status "
        "patches.",
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

    Not as ``kubernetes_build_info``, because alerts compare the versions there to find components that were not
    upgraded.
    """
    labels: LabelValues = (
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
