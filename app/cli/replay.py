"""The command ``replay``: lets a recorded scheduler decide once more, or others in its place, and compares."""

import datetime as dt
import functools
import gc
import json
import logging
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from app.cli.console import console
from app.cli.flags import chosen, version_flags
from app.cli.process import GC_WHILE_FILLING, explained, printable, printable_json
from app.model.features import FeaturesError
from app.plugins import registry
from app.plugins.registry import RegistryError
from app.runtime.distributions import entry_points
from app.scheduler.profiles import PluginError
from app.scheduler.trace import TraceError
from app.settings.problems import ConfigurationError
from app.tools.replay.course import Comparison
from app.tools.replay.run import ReplayResult, replay
from app.tools.replay.tables import as_page, as_tables
from app.tools.replay.variants import VariantChoice, run_all
from app.tools.replay.world import Difference

SAME, OTHER, NO_ANSWER = range(3)
"""Exit statuses."""

#: Options that ask for a comparison.
_OTHERS: Final = ("configs", "emulated_version", "feature_gates", "extenders", "plugins")
_option: Final = functools.partial(click.option, show_default=True)


class _Command(click.Command):
    #: Usage errors need another status than 1, which means that decisions differ.
    usage_status: Final = NO_ANSWER


@click.command("replay", cls=_Command)
@click.argument("trace", type=click.Path(path_type=Path))
@_option(
    "--differences",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Stop after so many decisions that differ.",
)
@_option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--config",
    "configs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="What would another configuration do? May be repeated.",
)
@click.option(
    "--extenders",
    type=click.Choice(["cassette", "live", "none"]),
    help="Extenders answer as recorded (the default), are called, or are left out.",
)
@click.option(
    "--plugins",
    type=click.Path(path_type=Path),
    help="A folder with further distributions of plugins, as 'pip install --target' fills it.",
)
@_option("--jobs", type=click.IntRange(min=1), default=1, help="Configurations at the same time.")
@click.option(
    "--page", type=click.Path(path_type=Path), help="Write the comparison to a page (HTML), too."
)
@click.pass_context
def _replay(
    context: click.Context, /, trace: Path, differences: int, output: str, **given: Any
) -> None:
    """Let a scheduler that was recorded with 'run --record' decide once more, in virtual time, and compare.

    TRACE is the directory of a recording, or one of its files. Nothing is contacted and nothing is waited for. The hash
    is that of all decisions in their order.

    With --config, --emulated-version, --feature-gates, --extenders or --plugins, what these make of the recording is
    compared with what the recorded configuration makes of it; what follows from decisions comes from a model of the
    API server.

    Exits with 0 if every decision is as recorded, 1 if one differs, 2 if there is no answer. A comparison exits with 0.
    """
    gc.set_threshold(*GC_WHILE_FILLING)
    if any(given[name] for name in _OTHERS):
        _compare(trace, output, given)
        context.exit(SAME)
    console = Console(stderr=True, highlight=False)
    with explained(TraceError, ConfigurationError, PluginError, RegistryError, status=NO_ANSWER):
        classes = registry.registry(entry_points(group=registry.GROUP))
        with console.status("Replaying") as status:

            def look(records: int) -> None:
                status.update(f"Replaying: {records} records")

            result = replay(trace, classes, most=differences, look=look)
    _show(result, output)
    if result.incomplete:
        click.secho(f"WARNING: {printable(result.incomplete)}", err=True, fg="yellow", bold=True)
    context.exit(OTHER if result.differences else SAME)


def _compare(trace: Path, output: str, given: dict[str, Any]) -> None:
    """Lets others live through the recording."""
    page: Path | None = given["page"]
    if page is not None and not page.absolute().parent.is_dir():
        raise click.UsageError(f"--page {page}: there is no folder {page.parent}")
    # What the schedulers log is not part of the answer.
    logging.getLogger().addHandler(logging.NullHandler())
    expected = (TraceError, ConfigurationError, PluginError, RegistryError, FeaturesError, OSError)
    errors = Console(stderr=True, highlight=False)
    with explained(*expected, status=NO_ANSWER), errors.status("Replaying") as status:

        def look(name: str, share: float) -> None:
            status.update(f"Replaying: {name}: {100 * share:.0f} %")

        found = run_all(trace, _choices(given), jobs=given["jobs"], look=look)
        if page is not None:
            page.write_text(as_page(found, f"Replays of {trace.name}"), encoding="utf-8")
    if output == "json":
        text = printable_json(msgspec.to_builtins(found))
        click.echo(json.dumps(text, indent=2, ensure_ascii=False))
    else:
        console().print(
            as_tables(msgspec.convert(printable_json(msgspec.to_builtins(found)), Comparison))
        )
    if found.incomplete:
        click.secho(f"WARNING: {printable(found.incomplete)}", err=True, fg="yellow", bold=True)


def _choices(given: dict[str, Any]) -> list[VariantChoice]:
    """Raises FeaturesError."""
    version, gates = chosen(given)
    extenders = given["extenders"] or "cassette"
    parts = [version and f"rules of {version}", given["extenders"] and f"extenders {extenders}"]
    parts += [given["plugins"] and f"plugins {given['plugins'].name}"]
    parts += [",".join(f"{name}={str(on).lower()}" for name, on in gates.items())]
    more = ", ".join(filter(None, parts))
    configs: list[Path | None] = list(given["configs"]) or [None]
    names = [", ".join(filter(None, (config.name if config else "", more))) for config in configs]
    if len(set(names)) < len(names):
        names = [f"{number} {name}" for number, name in enumerate(names, 1)]
    return [
        VariantChoice(name, config, version, gates, extenders, given["plugins"])
        for name, config in zip(names, configs, strict=True)
    ]


def _show(result: ReplayResult, output: str) -> None:
    if output == "json":
        found = printable_json(msgspec.to_builtins(result))
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for difference in result.differences:
        click.echo(_story(difference))
    click.echo(f"decisions     {result.decisions}")
    if result.adopted:
        click.echo(f"as recorded   {result.adopted} (with extenders, or of a group)")
    click.echo(f"differences   {len(result.differences)}")
    if result.gaps:
        click.echo(f"gaps          {result.gaps}")
    click.echo(f"recorded time {result.seconds} s")
    click.echo(f"hash          {result.hash}")


def _story(difference: Difference) -> str:
    when = dt.datetime.fromtimestamp(difference.time, dt.UTC).isoformat(timespec="milliseconds")
    lines = (
        f"{when} pod {difference.pod}",
        f"  recorded: {difference.recorded}",
        f"  replayed: {difference.replayed}",
    )
    return "\n".join(printable(line) for line in lines)


_replay.params += list(version_flags())

command: Final = _replay
