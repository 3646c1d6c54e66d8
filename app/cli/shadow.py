"""The command ``shadow``: stands beside the scheduler of a cluster, and ``shadow report``: what its journal says."""

import datetime as dt
import logging
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from app.cli.console import console
from app.cli.flags import chosen, read_level, version_flags
from app.cli.process import explained, printable, printable_json, run_loop
from app.cli.run import serving_flags, serving_options
from app.kube.errors import ConnectionSettingsError
from app.model.features import FeaturesError
from app.model.gotext import Duration, DurationError
from app.plugins.registry import RegistryError
from app.runtime import logs
from app.runtime.clock import SystemClock
from app.scheduler.profiles import PluginError
from app.serving.options import ServingError
from app.settings.load import Loaded, Settings, load
from app.settings.problems import ConfigurationError
from app.tools.shadow.journal import JournalError, as_json, read
from app.tools.shadow.report import Report, as_page, as_text, report
from app.tools.shadow.run import ShadowOptions, run

log = logging.getLogger(__name__)

_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_EXPECTED: Final = (
    ConfigurationError,
    ConnectionSettingsError,
    FeaturesError,
    JournalError,
    PluginError,
    RegistryError,
    ServingError,
)


@click.group("shadow", invoke_without_command=True)
@click.option("--config", type=_FILE, help="KubeSchedulerConfiguration; all defaults without.")
@click.option(
    "--kubeconfig",
    default="",
    metavar="FILE",
    help="Kubeconfig; without, the one of the configuration, or the in-cluster settings.",
)
@click.option("--journal", type=_FOLDER, metavar="DIR", help="Folder for the verdicts.")
@click.option(
    "--journal-size",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    metavar="MIB",
    help="Size of the journal; the oldest verdicts are deleted.",
)
@click.option(
    "--record",
    type=_FOLDER,
    metavar="DIR",
    help="Record the objects of the cluster into files in this directory, for the command replay.",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Hide names, namespaces and labels in the recording; it replays the same.",
)
@click.option(
    "--summary-interval",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two summaries on the terminal.",
)
@click.option(
    "--logging-format", type=click.Choice(["text", "json"]), default="text", help="Of the log."
)
@click.option(
    "-v",
    "--v",
    "verbosity",
    type=read_level,
    default="0",
    metavar="LEVEL",
    help="Verbosity of the log.",
)
@click.pass_context
def _shadow(context: click.Context, /, config: Path | None, **given: Any) -> None:
    """Judge the decisions of a cluster's scheduler, without writing anything.

    Reads what a scheduler reads, decides every pod when its outcome shows, and counts where the configuration would
    have decided otherwise and through which plugin. Runs until SIGINT or SIGTERM.
    """
    if context.invoked_subcommand is not None:
        return
    if given["redact"] and given["record"] is None:
        raise click.UsageError("--redact is for --record")
    logs.configure(logging_format=given["logging_format"], verbosity=given["verbosity"])
    with explained(*_EXPECTED, OSError):
        loaded = Loaded(Settings()) if config is None else load(config, features=None)
        for warning in loaded.warnings:
            log.warning("%s", warning.render(loaded.source))
        version, gates = chosen(given)
        options = ShadowOptions(
            version=version,
            gates=gates,
            kubeconfig=given["kubeconfig"],
            journal=given["journal"],
            journal_bytes=given["journal_size"] << 20,
            serving=serving_options(given),
            summary_seconds=given["summary_interval"],
            record=given["record"],
            redact=given["redact"],
        )
        context.exit(run_loop(run(loaded, options, _show)))


_shadow.params += [*version_flags(), *serving_flags()]


def _show(line: str) -> None:
    click.echo(printable(line))


def _moment(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """Seconds since the epoch, of an RFC 3339 time or of a duration before now."""
    if value is None:
        return None
    try:
        return SystemClock().wall() - Duration.parse(value).seconds
    except DurationError:
        pass
    try:
        return dt.datetime.fromisoformat(value).timestamp()
    except ValueError:
        raise click.BadParameter("give a time as in 2026-01-31T12:00:00Z, or a duration") from None


@_shadow.command("report")
@click.option(
    "--journal", type=_FOLDER, required=True, metavar="DIR", help="Folder with the verdicts."
)
@click.option(
    "--since", callback=_moment, metavar="TIME", help="From this time on, or for so long: 1h30m."
)
@click.option("--until", callback=_moment, metavar="TIME", help="Before this time.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "html"]), default="text", show_default=True
)
def _report(journal: Path, since: float | None, until: float | None, output: str) -> None:
    """Say what a journal says: classes, plugins, loss of score, and one sentence."""
    with explained(JournalError):
        told = report(read(journal), since or 0.0, float("inf") if until is None else until)
    match output:
        case "json":
            click.echo(as_json(told))
        case "html":
            click.echo(as_page(told), nl=False)
        case _:
            console().print(as_text(_printable(told)))


def _printable(told: Report) -> Report:
    """The report with texts for a terminal: pods and nodes may have written them."""
    return msgspec.convert(printable_json(msgspec.to_builtins(told)), Report)


command: Final = _shadow
