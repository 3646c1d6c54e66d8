"""``check-config``: says what is wrong with a configuration file, or what it amounts to."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import click

from app.cli.process import explained
from app.plugins import registry
from app.scheduler.profiles import plugin_problems
from app.settings.check import render_check
from app.settings.load import Loaded, load
from app.settings.problems import ConfigurationError


@click.command("check-config")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_context
def _check_config(context: click.Context, file: Path) -> None:
    """Validate a configuration FILE.

    Names the line of every mistake, or prints the plugins and extenders that the file amounts to. Installed third-party
    plugins are known. Exits with 1 if the scheduler could not start with the file.
    """
    with explained(registry.RegistryError):
        classes = registry.registry(entry_points(group=registry.GROUP))
    result = _read(file, classes)
    text, status = render_check(str(file), result, registry.capabilities(classes))
    click.echo(text, nl=False)
    context.exit(status)


def _read(file: Path, classes: Mapping[str, type]) -> Loaded | ConfigurationError:
    try:
        loaded = load(file)
        problems = plugin_problems(loaded, classes)
    except ConfigurationError as error:
        return error
    if problems:
        return ConfigurationError(problems, source=str(file), warnings=loaded.warnings)
    return loaded


command: Final = _check_config
