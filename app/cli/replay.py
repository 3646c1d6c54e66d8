"""The command ``replay``: lets a recorded scheduler decide once more, and compares."""

import datetime as dt
import functools
import gc
import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console

from app.cli.process import GC_WHILE_FILLING, explained, printable, printable_json
from app.plugins import registry
from app.plugins.registry import RegistryError
from app.scheduler.profiles import PluginError
from app.scheduler.trace import TraceError
from app.settings.problems import ConfigurationError
from app.tools.replay.run import ReplayResult, replay
from app.tools.replay.world import Difference

SAME, OTHER, NO_ANSWER = range(3)
"""Exit statuses."""

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
@click.pass_context
def _replay(context: click.Context, /, trace: Path, differences: int, output: str) -> None:
    """Let a scheduler that was recorded with 'run --record' decide once more, in virtual time, and compare.

    TRACE is the directory of a recording, or one of its files. Nothing is contacted and nothing is waited for. The hash is that of
    all decisions in their order.

    Exits with 0 if every decision is as recorded, 1 if one differs, 2 if there is no answer.
    """
    gc.set_threshold(*GC_WHILE_FILLING)
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


command: Final = _replay
