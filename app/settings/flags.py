"""Applies kube-scheduler's command-line flags to the configuration.

See docs/spec/configuration.md#decoding, docs/spec/endpoints.md#flags.

Flags of leader election override the file. The deprecated flags apply only without a file, except ``--kubeconfig``,
which also applies if the file names none; kube-scheduler would ignore it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from app.model.gotext import Duration, DurationError
from app.settings.base import replaced
from app.settings.fieldtext import show
from app.settings.load import Loaded, Settings
from app.settings.models import LeaderElectionConfiguration
from app.settings.problems import ConfigurationError, Problem
from app.settings.validation import leader_election


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """Flags by their names; None for one that was not given."""

    leader_elect: bool | None = None
    leader_elect_lease_duration: str | None = None
    leader_elect_renew_deadline: str | None = None
    leader_elect_retry_period: str | None = None
    leader_elect_resource_lock: str | None = None
    leader_elect_resource_name: str | None = None
    leader_elect_resource_namespace: str | None = None
    kubeconfig: str | None = None
    """Ignored when there is a file that names one."""
    profiling: bool | None = None
    """Deprecated, like all below: ignored when there is a file."""
    contention_profiling: bool | None = None
    kube_api_content_type: str | None = None
    kube_api_qps: float | None = None
    kube_api_burst: int | None = None


_ELECTION: Final[Mapping[str, str]] = {
    "leader_elect": "leaderElect",
    "leader_elect_lease_duration": "leaseDuration",
    "leader_elect_renew_deadline": "renewDeadline",
    "leader_elect_retry_period": "retryPeriod",
    "leader_elect_resource_lock": "resourceLock",
    "leader_elect_resource_name": "resourceName",
    "leader_elect_resource_namespace": "resourceNamespace",
}
_DURATIONS: Final = frozenset({"leaseDuration", "renewDeadline", "retryPeriod"})
_CLIENT: Final[Mapping[str, str]] = {
    "kubeconfig": "kubeconfig",
    "kube_api_content_type": "contentType",
    "kube_api_qps": "qps",
    "kube_api_burst": "burst",
}
_TOP: Final[Mapping[str, str]] = {
    "profiling": "enableProfiling",
    "contention_profiling": "enableContentionProfiling",
}


def apply_flags(loaded: Loaded | None, flags: Flags) -> Loaded:
    """The configuration with the flags applied; ``loaded`` is None without ``--config``.

    Raises ConfigurationError if a flag cannot be parsed or the election is not valid with it.
    """
    base = loaded or Loaded(Settings(), source="flags")
    given = {
        name: value
        for name in Flags.__struct_fields__
        if (value := getattr(flags, name)) is not None
    }
    changed = _with_election(base, given)
    if loaded is None:
        return _with_deprecated(changed, given)
    client = changed.settings.configuration.client_connection
    if "kubeconfig" in given and not client.kubeconfig:
        client = replaced(client, kubeconfig=given.pop("kubeconfig"))
        changed = _replace(changed, client_connection=client)
    ignored = tuple(_ignored(given))
    return msgspec.structs.replace(changed, warnings=(*changed.warnings, *ignored))


def flag_name(name: str) -> str:
    """``leader_elect`` as it is typed: ``--leader-elect``."""
    return f"--{name.replace('_', '-')}"


def _with_election(loaded: Loaded, given: Mapping[str, Any]) -> Loaded:
    changes, problems = _election_changes(given)
    config = loaded.settings.configuration
    election = replaced(
        config.leader_election, **{_attribute(field): value for field, value in changes.items()}
    )
    flag_of = {field: flag_name(flag) for flag, field in _ELECTION.items() if flag in given}
    for finding in leader_election(election) if changes and not problems else ():
        problem = loaded.locator.problem(finding)
        flag = flag_of.get(str(finding.path[-1]))
        if flag is not None:
            problem = Problem(0, 0, problem.path, f"{problem.message} ({flag})")
        problems.append(problem)
    if problems:
        raise ConfigurationError(problems, source=loaded.source, warnings=loaded.warnings)
    return _replace(loaded, leader_election=election)


def _election_changes(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """Field -> value for each flag of the election, and findings about flags that cannot be parsed."""
    changes: dict[str, Any] = {}
    problems: list[Problem] = []
    for flag, field in _ELECTION.items():
        if flag not in given:
            continue
        value = given[flag]
        try:
            changes[field] = Duration.parse(value) if field in _DURATIONS else value
        except DurationError as error:
            said = f"invalid argument {show(value)} for {show(flag_name(flag))} flag: {error}"
            problems.append(Problem(0, 0, "", said))
    return changes, problems


def _attribute(field: str) -> str:
    fields = msgspec.structs.fields(LeaderElectionConfiguration)
    return next(each.name for each in fields if each.encode_name == field)


def _with_deprecated(loaded: Loaded, given: Mapping[str, Any]) -> Loaded:
    config = loaded.settings.configuration
    changes = {
        {"contentType": "content_type"}.get(field, field): given[flag]
        for flag, field in _CLIENT.items()
        if flag in given
    }
    client = replaced(config.client_connection, **changes)
    if client.burst < 0:
        said = f"Invalid value: {client.burst}: must be non-negative (--kube-api-burst)"
        raise ConfigurationError([Problem(0, 0, "clientConnection.burst", said)], source="flags")
    profiling = given.get("profiling", config.enable_profiling)
    contention = given.get("contention_profiling", config.enable_contention_profiling)
    return _replace(
        loaded,
        client_connection=client,
        enable_profiling=profiling,
        enable_contention_profiling=contention,
    )


def _ignored(given: Mapping[str, Any]) -> Iterator[Problem]:
    places = {flag: f"clientConnection.{field}" for flag, field in _CLIENT.items()} | dict(_TOP)
    for flag, place in places.items():
        if flag in given:
            said = f"{flag_name(flag)} is ignored because there is a configuration file; set {place} there"
            yield Problem(0, 0, "", said)


def _replace(loaded: Loaded, **changes: Any) -> Loaded:
    """The same with some fields of the first document replaced."""
    config = replaced(loaded.settings.configuration, **changes)
    settings = msgspec.structs.replace(loaded.settings, configuration=config)
    return msgspec.structs.replace(loaded, settings=settings)
