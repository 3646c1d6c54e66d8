"""The command ``record``: takes the last minutes of a running scheduler that records."""

from pathlib import Path
from typing import Any

import click

from app.cli.process import explained, run_loop
from app.cli.target_flags import target_options
from app.kube.errors import ConnectionSettingsError
from app.model.gotext import Duration, DurationError
from app.tools.scheduler_client import NotAnswered, SchedulerTarget, last_recorded


def _duration(_context: click.Context, _option: click.Parameter, text: str) -> str:
    try:
        Duration.parse(text)
    except DurationError as error:
        raise click.BadParameter(str(error)) from None
    return text


@click.command("record")
@click.option(
    "--last",
    default="5m",
    show_default=True,
    callback=_duration,
    metavar="DURATION",
    help="How much of the recording, at least: as 5m or 1h30m.",
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="Where to write it, for the command replay.",
)
@target_options
def command(last: str, file: Path, **target: Any) -> None:
    """Take the last minutes of a running scheduler, to replay them.

    The scheduler must run with --record. It takes the right to "get" the nonResourceURL /recording.
    """
    with explained(NotAnswered, ConnectionSettingsError, OSError):
        size = run_loop(_save(SchedulerTarget(**target), last, file))
    click.echo(f"Wrote {size} bytes: aiokube-scheduler replay {file}")


async def _save(target: SchedulerTarget, last: str, file: Path) -> int:
    """Writes the recording, as a whole or not at all; its bytes. Raises NotAnswered, OSError."""
    part = file.with_name(f"{file.name}.part")
    size = 0
    try:
        async with last_recorded(target, last) as chunks:
            with part.open("wb") as out:
                async for chunk in chunks:
                    size += out.write(chunk)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return size
