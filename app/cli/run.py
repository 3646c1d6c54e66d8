"""``run``: the scheduler, with kube-scheduler's flags."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from app.cli.flags import WITHOUT_EFFECT, FlagCommand, attribute, flags, with_dashes
from app.cli.process import explained, run_loop
from app.cli.root import version_option
from app.cli.serving_flags import serving_flags, serving_options
from app.extender.config import ExtenderConfigError
from app.kube.errors import ConfigurationError as ConnectionSettingsError
from app.plugins.registry import RegistryError
from app.runtime import logs
from app.scheduler.options import RunOptions
from app.scheduler.process import run as run_scheduler
from app.scheduler.profiles import PluginError
from app.serving.options import ServingError, ServingOptions
from app.settings.dump import to_yaml
from app.settings.duration import Duration
from app.settings.flags import Flags, apply_flags
from app.settings.load import Loaded, load
from app.settings.problems import ConfigurationError, Problem

log = logging.getLogger(__name__)

_EXPECTED: Final = (
    ConfigurationError,
    ConnectionSettingsError,
    ExtenderConfigError,
    PluginError,
    RegistryError,
    ServingError,
)


def _run(**given: Any) -> None:
    logs.configure(logging_format=given["logging_format"], verbosity=given["verbosity"])
    with explained(*_EXPECTED):
        loaded = _configuration(given)
        _warn(loaded.warnings, loaded.source)
        for text in _without_effect(given):
            log.warning("%s", text)
        if given["write_config_to"] is not None:
            _write_configuration(loaded, Path(given["write_config_to"]))
            return
        status = run_loop(run_scheduler(loaded, _options(given)))
        click.get_current_context().exit(status)


def _configuration(given: Mapping[str, Any]) -> Loaded:
    """The file with the flags applied. Raises ConfigurationError, after warnings that may explain it."""
    try:
        loaded = load(Path(given["config"])) if given["config"] is not None else None
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
        if given[attribute(flag)] is not None:
            yield f"{flag} has no effect: {reason}"


def _write_configuration(loaded: Loaded, file: Path) -> None:
    try:
        file.write_text(to_yaml(loaded.settings), encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(file), error.strerror) from error
    log.info("Wrote configuration to: %s", file)


def _options(given: Mapping[str, Any]) -> RunOptions:
    """What is no part of the configuration."""
    serving = serving_options(given)
    return RunOptions(
        config=given["config"] and Path(given["config"]),
        master=given["master"],
        verbosity=given["verbosity"],
        logging_format=given["logging_format"],
        max_unschedulable_seconds=given["pod_max_in_unschedulable_pods_duration"],
        serving=serving,
        flags=_flags(given, serving),
    )


def _flags(given: Mapping[str, Any], serving: ServingOptions) -> dict[str, str]:
    """Flag -> value, as Go writes it: those that were given, and the defaults of those that no file can set."""
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
        params=[*flags(), *serving_flags()],
        help="Run the scheduler until SIGTERM (exit status 0) or until its lease is lost (1).\n\n"
        "Takes kube-scheduler's flags; those without a meaning here are accepted with a warning.",
        context_settings={"token_normalize_func": with_dashes},
    )
)
