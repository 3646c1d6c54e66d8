"""Validates values and their combinations, with kube-scheduler 1.36's texts.

See docs/spec/configuration.md#validation-and-errors, docs/spec/extenders.md#validation.

Warnings about valid values are in ``app.settings.advice``.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from app.model.features import Features
from app.model.gotext import Duration
from app.model.names import qualified_name_errors
from app.model.requests import is_extended
from app.settings.args import PluginArgs
from app.settings.base import V1
from app.settings.defaults import REMOVED_PLUGINS
from app.settings.extension import (
    AiokubeSchedulerConfiguration,
    BreakerOptions,
    ExtenderBodies,
    ExtenderOptions,
)
from app.settings.fieldtext import duplicate, invalid, redact_url, required, show
from app.settings.models import (
    FIELD_OF_POINT,
    ClientConnectionConfiguration,
    Extender,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    PluginSet,
)
from app.settings.plugins import enabled_names, merge_plugins
from app.settings.problems import Finding, Findings, Path, closest
from app.settings.validation_args import validate_args, validate_gated_args, validate_selector

_JITTER_FACTOR: Final = 1.2
_MAX_INT32: Final = 2**31 - 1
#: Bytes of request bodies, and of answers, that are kept of extenders.
_MAX_BODIES: Final = 4 * 1024 * 1024
_MOST_COMPARED: Final = 100
"""Extenders that a misspelt urlPrefix is compared with."""
_UNCHECKED_POINTS: Final = frozenset({"multiPoint", "placementGenerate", "placementScore"})
"""Where a removed plugin is merely an unknown one."""


def validate(config: KubeSchedulerConfiguration) -> Findings:
    """The mistakes in the values of the first document."""
    yield from _client_connection(config.client_connection)
    yield from leader_election(config.leader_election)
    if config.parallelism <= 0:
        detail = "should be an integer value greater than zero"
        yield invalid(("parallelism",), config.parallelism, detail)
    yield from _profiles(config.profiles)
    yield from _percentage(("percentageOfNodesToScore",), config.percentage_of_nodes_to_score)
    yield from _backoff(config)
    yield from _extenders(config.extenders)
    yield from _ignored_resources(config)


def validate_features(config: KubeSchedulerConfiguration, features: Features) -> Findings:
    """The fields that need a feature gate which is off."""
    for number, profile in enumerate(config.profiles):
        for index, entry in enumerate(profile.plugin_config):
            if isinstance(entry.args, PluginArgs):
                path = ("profiles", number, "pluginConfig", index, "args")
                yield from validate_gated_args(path, entry.args, features)


def _client_connection(client: ClientConnectionConfiguration) -> Findings:
    if client.burst < 0:
        yield invalid(("clientConnection", "burst"), client.burst, "must be non-negative")


def leader_election(election: LeaderElectionConfiguration) -> Findings:
    """Nothing is checked without election. The last rule is the elector's own (docs/spec/election.md#settings)."""
    if not election.leader_elect:
        return
    path: Path = ("leaderElection",)
    lease, renew, retry = election.lease_duration, election.renew_deadline, election.retry_period
    for name, value in (("leaseDuration", lease), ("renewDeadline", renew), ("retryPeriod", retry)):
        if value <= Duration(0):
            yield invalid((*path, name), value, "must be greater than zero")
    near = (*path, "renewDeadline")
    if lease <= renew:
        detail = "must be greater than `RenewDeadline`"
        yield invalid((*path, "leaseDuration"), renew, detail, near=near)
    elif Duration(0) < renew and int(lease.seconds) <= renew.seconds:
        detail = "is written to the lease in whole seconds, which must be more than renewDeadline"
        yield invalid((*path, "leaseDuration"), lease, detail, near=near)
    if lease.seconds > _MAX_INT32:
        detail = f"must be at most {_MAX_INT32}s, which is what a lease can hold"
        yield invalid((*path, "leaseDuration"), lease, detail)
    if Duration(0) < renew <= Duration.of(_JITTER_FACTOR * retry.seconds):
        detail = "renewDeadline must be greater than retryPeriod*JitterFactor"
        yield invalid((*path, "renewDeadline"), renew, detail, near=(*path, "retryPeriod"))
    yield from _lock(path, election)


def _lock(path: Path, election: LeaderElectionConfiguration) -> Findings:
    for name, value in (
        ("resourceLock", election.resource_lock),
        ("resourceNamespace", election.resource_namespace),
        ("resourceName", election.resource_name),
    ):
        if not value:
            yield required((*path, name))
    if election.resource_lock not in {"leases", ""}:
        detail = 'resourceLock value must be "leases"'
        yield invalid((*path, "resourceLock"), election.resource_lock, detail)


def _percentage(path: Path, value: int | None) -> Findings:
    if value is not None and not 0 <= value <= 100:
        yield invalid(path, value, "not in valid range [0-100]")


def _backoff(config: KubeSchedulerConfiguration) -> Findings:
    first, longest = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
    if first <= 0:
        yield invalid(("podInitialBackoffSeconds",), first, "must be greater than 0")
    if longest < first:
        detail = "must be greater than or equal to PodInitialBackoffSeconds"
        near = ("podInitialBackoffSeconds",)
        yield invalid(("podMaxBackoffSeconds",), longest, detail, near=near)


# ---------------------------------------------------------------- profiles


def _profiles(profiles: Sequence[KubeSchedulerProfile]) -> Findings:
    seen: dict[str, int] = {}
    for index, profile in enumerate(profiles):
        path = ("profiles", index)
        name = profile.scheduler_name
        if not name:
            yield required((*path, "schedulerName"))
        elif name in seen:
            other = f"profiles[{seen[name]}] has the name {show(name)} too"
            yield duplicate((*path, "schedulerName"), {}, other)
        seen.setdefault(name, index)
        yield from _percentage(
            (*path, "percentageOfNodesToScore"), profile.percentage_of_nodes_to_score
        )
        for point in FIELD_OF_POINT:
            yield from _plugin_set((*path, "plugins", point), point, profile.plugins.at(point))
        yield from _plugin_config((*path, "pluginConfig"), profile)
    yield from _queue_sort(profiles)


def _plugin_set(path: Path, point: str, plugin_set: PluginSet) -> Findings:
    for index, plugin in enumerate(plugin_set.enabled):
        here = (*path, "enabled", index)
        if not plugin.name:
            yield required((*here, "name"))
        elif plugin.name in REMOVED_PLUGINS and point not in _UNCHECKED_POINTS:
            yield _removed(here, plugin.name)
    for index, plugin in enumerate(plugin_set.disabled):
        if not plugin.name:
            yield required((*path, "disabled", index, "name"))


def _removed(path: Path, name: str) -> Finding:
    detail = f'was invalid in version "v1" (KubeSchedulerConfiguration is version "{V1}")'
    return invalid(path, name, detail)


def _plugin_config(path: Path, profile: KubeSchedulerProfile) -> Findings:
    seen: set[str] = set()
    for index, entry in enumerate(profile.plugin_config):
        here = (*path, index)
        if not entry.name:
            yield required((*here, "name"))
        elif entry.name in seen:
            yield duplicate(here, entry.name)
        seen.add(entry.name)
        if entry.name in REMOVED_PLUGINS:
            yield _removed(here, entry.name)
        elif isinstance(entry.args, PluginArgs):
            yield from validate_args((*here, "args"), entry.args)


def _queue_sort(profiles: Sequence[KubeSchedulerProfile]) -> Findings:
    """All profiles share one queue, so their queue sort must be the same."""
    first = profiles[0]
    enabled = first.plugins.queue_sort.enabled
    if len(enabled) > 1:
        path: Path = ("profiles", 0, "plugins", "queueSort")
        detail = "only one queue sort plugin can be enabled"
        yield invalid((*path, "Enabled"), len(enabled), detail, near=(*path, "enabled"))
    name = enabled[0].name if enabled else ""
    for index, profile in enumerate(profiles[1:], start=1):
        if profile.plugins.queue_sort != first.plugins.queue_sort:
            path = ("profiles", index, "plugins", "queueSort")
            yield invalid(path, profile.plugins.queue_sort, "must be the same for all profiles")
        for entry_index, entry in enumerate(profile.plugin_config):
            if name and entry.name == name and entry.args != first.args.get(name):
                path = ("profiles", index, "pluginConfig")
                detail = "queueSort must be the same for all profiles"
                near = (*path, entry_index, "args")
                yield invalid((*path, "args"), entry.args, detail, near=near)


# ---------------------------------------------------------------- extenders


def _extenders(extenders: Sequence[Extender]) -> Findings:
    resources: set[str] = set()
    for index, extender in enumerate(extenders):
        path = ("extenders", index)
        if extender.prioritize_verb and extender.weight <= 0:
            detail = "must have a positive weight applied to it"
            near = (*path, "prioritizeVerb")
            yield invalid((*path, "weight"), extender.weight, detail, near=near)
        for number, resource in enumerate(extender.managed_resources):
            here = (*path, "managedResources", number, "name")
            yield from _extended_resource(here, resource.name)
            if resource.name in resources:
                yield invalid(here, resource.name, "duplicate extender managed resource name")
            resources.add(resource.name)
        yield from _transport(path, extender)


def _extended_resource(path: Path, name: str) -> Findings:
    errors = qualified_name_errors(name)
    for error in errors:
        yield invalid(path, name, error)
    if not errors and not is_extended(name):
        yield invalid(path, name, "is an invalid extended resource name")


def _transport(path: Path, extender: Extender) -> Findings:
    """Values with which the client could not be built, and timeouts without an end."""
    if not _is_callable(extender.url_prefix):
        shown = redact_url(extender.url_prefix)
        detail = "must be an http:// or https:// URL with a host"
        yield invalid((*path, "urlPrefix"), shown, detail)
    if extender.http_timeout < Duration(0):
        yield invalid(
            (*path, "httpTimeout"), extender.http_timeout, "must be zero (5s) or positive"
        )
    tls = extender.tls_config
    if tls is not None and tls.insecure and tls.has_ca:
        detail = "specifying a root certificates file with the insecure flag is not allowed"
        yield invalid((*path, "tlsConfig", "insecure"), tls.insecure, detail)


def _is_callable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme.lower() in {"http", "https"} and bool(parts.hostname)


def validate_binders(extenders: Iterable[tuple[Extender, ExtenderOptions]]) -> Findings:
    """One binder as in kube-scheduler, or several that no pod can concern at the same time."""
    binders = [each for each in extenders if each[0].bind_verb and not each[1].shadow]
    for one, other in itertools.combinations(binders, 2):
        managed = one[0].managed_resources and other[0].managed_resources
        profiles = set(one[1].profiles), set(other[1].profiles)
        if not managed and (not all(profiles) or profiles[0] & profiles[1]):
            found = f"found {len(binders)} extenders implementing bind"
            detail = (
                "only one extender can implement bind; several can if each has managedResources, "
                "or if the second document gives them different profiles"
            )
            yield invalid(("extenders",), found, detail)
            return


def _ignored_resources(config: KubeSchedulerConfiguration) -> Findings:
    """Resources that only extenders check need NodeResourcesFit in the profile.

    See docs/spec/extenders.md#order-and-side-effects.
    """
    ignoring = [
        ("extenders", index, "managedResources", number, "ignoredByScheduler")
        for index, extender in enumerate(config.extenders)
        for number, resource in enumerate(extender.managed_resources)
        if resource.ignored_by_scheduler
    ]
    for profile in config.profiles if ignoring else ():
        known = enabled_names(merge_plugins(profile.plugins)) | profile.args.keys()
        if "NodeResourcesFit" not in known:
            said = "couldn't build extenders: can't find NodeResourcesFitArgs in plugin config"
            yield Finding(ignoring[0], f"{said} of profile {show(profile.scheduler_name)}")


# ---------------------------------------------------------------- the second document


def validate_extension(
    extension: AiokubeSchedulerConfiguration, config: KubeSchedulerConfiguration
) -> Findings:
    """The mistakes in the values of the second document, given the first."""
    if (bindings := extension.max_bindings_in_flight) <= 0:
        yield invalid(("maxBindingsInFlight",), bindings, "must be greater than zero")
    yield from _bodies(("extenderBodies",), extension.extender_bodies)
    extenders = {trimmed(extender.url_prefix): extender for extender in config.extenders}
    known = set(extenders)
    profiles = [profile.scheduler_name for profile in config.profiles]
    seen: set[str] = set()
    for index, options in enumerate(extension.extenders):
        path: Path = ("extenders", index)
        prefix = trimmed(options.url_prefix)
        yield from _option_key((*path, "urlPrefix"), prefix, known=known, seen=seen)
        if options.parallelism < 0:
            detail = "must be zero (found out) or positive"
            yield invalid((*path, "parallelism"), options.parallelism, detail)
        yield from _breaker((*path, "breaker"), options.breaker)
        yield from validate_selector((*path, "podSelector"), options.pod_selector)
        yield from validate_selector((*path, "namespaceSelector"), options.namespace_selector)
        yield from _profile_names((*path, "profiles"), options.profiles, profiles)
        yield from _shared_answers((*path, "answersForTemplate"), options)
        yield from _dry_runs((*path, "dryRun"), options, extenders.get(prefix))
        seen.add(prefix)


def _shared_answers(path: Path, options: ExtenderOptions) -> Findings:
    """An extender that reserves has to be asked about each pod."""
    reserves = {"serial: true": options.serial is True, "releaseVerb": bool(options.release_verb)}
    named = " and ".join(name for name, given in reserves.items() if given)
    if options.answers_for_template and named:
        detail = f"is for extenders that reserve nothing, and {named} is for extenders that reserve: remove one of them"
        yield invalid(path, True, detail)


def _dry_runs(path: Path, options: ExtenderOptions, extender: Extender | None) -> Findings:
    """Dry runs are of verbs that the extender has."""
    dry = options.dry_run
    if dry.node_cache_capable is not None and not dry.verbs:
        detail = "says how a dry run is asked, and no verb is named: name a filterVerb beside it"
        yield invalid((*path, "nodeCacheCapable"), dry.node_cache_capable, detail)
    if extender is None:
        return
    usual = {
        "filterVerb": extender.filter_verb or options.group_verb,
        "prioritizeVerb": extender.prioritize_verb or options.group_verb,
        "preemptVerb": extender.preempt_verb,
    }
    for field, value in dry.verbs.items():
        if not usual[field]:
            yield invalid((*path, field), value, f"the extender has no {field}")


def _bodies(path: Path, bodies: ExtenderBodies) -> Findings:
    if bodies.calls < 0:
        yield invalid((*path, "calls"), bodies.calls, "must be zero (none are kept) or positive")
    if bodies.max_bytes <= 0:
        yield invalid((*path, "maxBytes"), bodies.max_bytes, "must be greater than zero")
    elif bodies.calls * bodies.max_bytes > _MAX_BODIES:
        most = _MAX_BODIES // bodies.max_bytes
        detail = (
            f"calls * maxBytes must not be more than {_MAX_BODIES}: "
            f"at most {most} calls of {bodies.max_bytes} bytes"
        )
        yield invalid((*path, "calls"), bodies.calls, detail)


def _profile_names(path: Path, names: Sequence[str], known: Sequence[str]) -> Findings:
    """Each must be the schedulerName of a profile, once."""
    for index, name in enumerate(names):
        if name in names[:index]:
            yield duplicate((*path, index), name)
        elif name not in known:
            hint = closest(name, known) if len(known) <= _MOST_COMPARED else None
            detail = "no profile of the first document has this schedulerName"
            detail += f"; did you mean {show(hint)}?" if hint else ""
            yield invalid((*path, index), name, detail)


def _option_key(path: Path, prefix: str, *, known: set[str], seen: set[str]) -> Findings:
    """Options must belong to an extender of the first document, at most once for each."""
    if not prefix:
        yield required(path)
    elif prefix in seen:
        yield duplicate(path, redact_url(prefix))
    elif prefix not in known:
        hint = closest(prefix, known) if len(known) <= _MOST_COMPARED else None
        detail = "no extender of the first document has this urlPrefix"
        detail += f"; did you mean {show(redact_url(hint))}?" if hint else ""
        yield invalid(path, redact_url(prefix), detail)


def _breaker(path: Path, breaker: BreakerOptions) -> Findings:
    if breaker.failures < 0:
        detail = "must be zero (no breaker) or positive"
        yield invalid((*path, "failures"), breaker.failures, detail)
    if breaker.open_seconds <= Duration(0):
        yield invalid((*path, "openSeconds"), breaker.open_seconds, "must be greater than zero")
    elif breaker.max_open_seconds < breaker.open_seconds:
        detail = f"must not be less than openSeconds ({breaker.open_seconds})"
        near = (*path, "openSeconds")
        yield invalid((*path, "maxOpenSeconds"), breaker.max_open_seconds, detail, near=near)


def refuse_insecure_tls(config: KubeSchedulerConfiguration) -> Findings:
    """The extenders whose certificates would not be verified, as mistakes (``refuseInsecureTLS``)."""
    for path, why in insecure_extenders(config):
        yield Finding(
            path, f"Forbidden: {why}, and refuseInsecureTLS is set; name a CA in tlsConfig"
        )


def trimmed(url_prefix: str) -> str:
    """A urlPrefix without the slashes at its end, which do not count."""
    return url_prefix.rstrip("/")


def insecure_extenders(config: KubeSchedulerConfiguration) -> Iterator[tuple[Path, str]]:
    """The extenders whose certificates would not be verified, each with the field that causes it, as a text."""
    for index, extender in enumerate(config.extenders):
        path: Path = ("extenders", index)
        tls = extender.tls_config
        if not extender.url_prefix.lower().startswith("https:"):
            continue
        said = f"the certificate of extender {redact_url(extender.url_prefix)} is not verified"
        if tls is not None and tls.insecure:
            yield (*path, "tlsConfig", "insecure"), f"{said} (insecure: true)"
        elif extender.enable_https and (tls is None or not tls.has_ca):
            yield (*path, "enableHTTPS"), f"{said} (enableHTTPS without a CA)"
