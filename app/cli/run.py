"""The command ``run``: runs the scheduler with kube-scheduler's flags."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from app.cli.flags import (
    WITHOUT_EFFECT,
    Flag,
    FlagCommand,
    attribute,
    boolean_flag,
    chosen,
    flags,
    joined,
    read_port,
    read_seconds,
    text_flag,
    with_dashes,
)
from app.cli.process import explained, run_loop
from app.cli.root import version_option
from app.extender.config import ExtenderConfigError
from app.kube.errors import ConnectionSettingsError
from app.model.features import Features, FeaturesError
from app.model.gotext import Duration
from app.plugins.registry import RegistryError
from app.runtime import logs
from app.scheduler.options import RunOptions
from app.scheduler.process import run as run_scheduler
from app.scheduler.profiles import PluginError
from app.serving.options import ServingError, ServingOptions
from app.settings.dump import to_yaml
from app.settings.flags import Flags, apply_flags
from app.settings.load import Loaded, load
from app.settings.problems import ConfigurationError, Problem

_SERVING: Final = "Serving"
_ACCESS: Final = "Authentication and authorization"
_LOOPBACK: Final = "127.0.0.1"


def serving_flags() -> Iterator[Flag]:
    """The options of the endpoints."""
    yield text_flag(
        "--secure-port",
        _SERVING,
        "Port of the HTTPS endpoints; 0 for none (10259).",
        type=read_port,
        metavar="PORT",
    )
    yield text_flag("--bind-address", _SERVING, "Address to listen on (0.0.0.0).")
    yield boolean_flag(
        "--permit-port-sharing",
        _SERVING,
        "Let another process listen on the same address and port (SO_REUSEPORT).",
    )
    for name, text in {
        "--tls-cert-file": "Certificate chain, PEM; reloaded when it changes. "
        "Without one, a self-signed one is generated.",
        "--tls-private-key-file": "Its key, PEM, without a password.",
    }.items():
        yield text_flag(name, _SERVING, text, metavar="FILE")
    yield text_flag("--tls-min-version", _SERVING, "VersionTLS12 (the default) or VersionTLS13.")
    yield boolean_flag(
        "--insecure-http",
        _SERVING,
        f"For development: serve without TLS, on {_LOOPBACK} unless --bind-address says otherwise.",
    )
    yield from _access_flags()


def _recording_flags() -> Iterator[Flag]:
    yield text_flag(
        "--record",
        "Recording",
        "Record all that happens into files in this directory, for the command replay.",
        metavar="DIR",
    )
    yield boolean_flag(
        "--redact",
        "Recording",
        "Hide names, namespaces and labels in the recording; it replays the same.",
    )


def _access_flags() -> Iterator[Flag]:
    for name, text in {
        "--client-ca-file": "Authorities of client certificates; without them client certificates are not used.",
        "--authentication-kubeconfig": "Kubeconfig of the server that reviews tokens; by default the scheduler's own.",
        "--authorization-kubeconfig": "Kubeconfig of the server that reviews access; by default the scheduler's own.",
    }.items():
        yield text_flag(name, _ACCESS, text, metavar="FILE")
    yield boolean_flag(
        "--authentication-skip-lookup",
        _ACCESS,
        "Review no tokens; clients with tokens are anonymous.",
    )
    for name in (
        "--authentication-token-webhook-cache-ttl",
        "--authorization-webhook-cache-authorized-ttl",
        "--authorization-webhook-cache-unauthorized-ttl",
    ):
        yield text_flag(
            name,
            _ACCESS,
            "How long the result of a review is cached (10s).",
            type=read_seconds,
            metavar="DURATION",
        )
    yield text_flag(
        "--authorization-always-allow-paths",
        _ACCESS,
        "Paths without authorization, separated by commas (/healthz,/readyz,/livez).",
        multiple=True,
        callback=joined,
    )


def serving_options(given: Mapping[str, Any]) -> ServingOptions:
    """The options of the endpoints; click's parameters have the names of the fields. Raises ServingError."""
    fields = ServingOptions.__struct_fields__
    options = {name: given[name] for name in fields if given.get(name) is not None}
    if options.get("insecure_http"):
        options.setdefault("bind_address", _LOOPBACK)
    paths = options.get("authorization_always_allow_paths")
    if paths is not None:
        options["authorization_always_allow_paths"] = tuple(p for p in paths.split(",") if p)
    return ServingOptions(**options)


log = logging.getLogger(__name__)

EXPECTED: Final = (
    ConfigurationError,
    ConnectionSettingsError,
    ExtenderConfigError,
    FeaturesError,
    PluginError,
    RegistryError,
    ServingError,
)
"""What keeps the scheduler from starting, with a text for the user."""


def _run(**given: Any) -> None:
    logs.configure(logging_format=given["logging_format"], verbosity=given["verbosity"])
    with explained(*EXPECTED):
        status = start(configuration(given), given)
    click.get_current_context().exit(status)


def start(loaded: Loaded, given: Mapping[str, Any]) -> int:
    """Runs the scheduler, or writes its configuration; returns the exit status. Raises one of EXPECTED."""
    if given.get("redact") and not given.get("record"):
        raise click.UsageError("--redact is for --record")
    _warn(loaded.warnings, loaded.source)
    for text in _without_effect(given):
        log.warning("%s", text)
    if given["write_config_to"]:
        _write_configuration(loaded, Path(given["write_config_to"]))
        return 0
    return run_loop(run_scheduler(loaded, _options(given)))


def configuration(given: Mapping[str, Any]) -> Loaded:
    """The configuration file with the flags applied. Raises FeaturesError; ConfigurationError after its warnings."""
    version, gates = chosen(given)
    features = None if version is None else Features.of(version, gates)
    try:
        loaded = load(Path(given["config"]), features=features) if given["config"] else None
        return apply_flags(loaded, Flags(**{name: given[name] for name in Flags.__struct_fields__}))
    except ConfigurationError as error:
        _warn(error.warnings, error.source)
        raise


def _warn(warnings: Iterable[Problem], source: str) -> None:
    for warning in warnings:
        log.warning("%s", warning.render(source))


def _without_effect(given: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each flag that was given and does nothing."""
    for flag, reason in WITHOUT_EFFECT.items():
        value = given[attribute(flag)]
        if value is not None:
            yield f"{flag} has no effect: {reason}"


def _write_configuration(loaded: Loaded, file: Path) -> None:
    try:
        file.write_text(to_yaml(loaded.settings), encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(file), error.strerror) from error
    log.info("Wrote configuration to: %s", file)


def _options(given: Mapping[str, Any]) -> RunOptions:
    """The options that are not in the configuration file."""
    serving = serving_options(given)
    version, gates = chosen(given)
    return RunOptions(
        config=Path(given["config"]) if given["config"] else None,
        master=given["master"],
        verbosity=given["verbosity"],
        logging_format=given["logging_format"],
        max_unschedulable_seconds=given["pod_max_in_unschedulable_pods_duration"],
        serving=serving,
        flags=_flags(given, serving),
        version=version,
        features=gates,
        record=Path(given["record"]) if given.get("record") else None,
        redact=bool(given.get("redact")),
    )


def _flags(given: Mapping[str, Any], serving: ServingOptions) -> dict[str, str]:
    """Flag -> value, formatted as in Go: the given flags, and the defaults of those that the file cannot set."""
    values = {**given, **{name: getattr(serving, name) for name in given if hasattr(serving, name)}}
    values["v"] = values.pop("verbosity")
    return {
        name.replace("_", "-"): _as_go(value, is_duration=name.endswith(("_ttl", "_duration")))
        for name, value in values.items()
        if value is not None
    }


def _as_go(value: Any, *, is_duration: bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{','.join(value)}]"
    if is_duration and isinstance(value, float):
        return str(Duration.of(value))
    return str(value)


command: Final = version_option(
    FlagCommand(
        "run",
        callback=_run,
        params=[*flags(), *serving_flags(), *_recording_flags()],
        help="Run the scheduler until SIGTERM (exit status 0) or until its lease is lost (1).\n\n"
        "Takes kube-scheduler's flags; those without a meaning here are accepted with a warning.",
        context_settings={"token_normalize_func": with_dashes},
    )
)
