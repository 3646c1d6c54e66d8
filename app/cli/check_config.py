"""The command ``check-config``: validates configuration files and prints their plugins and extenders."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import msgspec

from app.cli.flags import chosen, version_flags
from app.cli.process import explained
from app.model.features import OLDEST, Features, FeaturesError
from app.plugins import registry
from app.runtime.distributions import entry_points
from app.scheduler.profiles import plugin_problems
from app.settings.check import Checked, as_object, as_text
from app.settings.load import decode_text, load
from app.settings.problems import ConfigurationError, Problem

STDIN: Final = "<stdin>"
_COLOURS: Final = (
    (re.compile(r"^ +\| +\^$|(?<=: )not valid(?=: \d+ mistakes?)", re.MULTILINE), "red"),
    (re.compile(r"(?<=: )warning(?=: )"), "yellow"),
    (re.compile(r"(?<=: )valid(?=,|$)", re.MULTILINE), "green"),
)


@click.command("check-config")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.pass_context
def _check_config(
    context: click.Context, /, files: tuple[str, ...], output: str, **given: str | None
) -> None:
    """Validate configuration FILEs; - is standard input.

    Prints every mistake with its line, or the resulting plugins and extenders of a file. Installed third-party plugins
    are known. Exits with 1 if the scheduler could not start with one of the files.
    """
    with explained(registry.RegistryError, FeaturesError):
        version, gates = chosen(given)
        features = Features.of(version or OLDEST, gates)
        classes = registry.registry(entry_points(group=registry.GROUP))
    checked = [_check(file, classes, features) for file in files]
    if output == "json":
        value = msgspec.json.encode([as_object(each) for each in checked])
        click.echo(msgspec.json.format(value).decode())
    else:
        click.echo("\n".join(_coloured(as_text(each)) for each in checked), nl=False)
    context.exit(0 if all(each.is_valid for each in checked) else 1)


def _coloured(text: str) -> str:
    """Adds colours for terminals; click removes them elsewhere."""
    for pattern, colour in _COLOURS:
        text = pattern.sub(click.style(r"\g<0>", fg=colour), text)
    return text


def _check(file: str, classes: Mapping[str, type], features: Features) -> Checked:
    name, text = (STDIN if file == "-" else file), ""
    known = registry.capabilities(classes)
    try:
        text = decode_text(content(file, name), name)
        loaded = load(text, name=name, capabilities=known, features=features)
        problems = plugin_problems(loaded, classes, features)
        profiles = loaded.to_plain(known, features)
    except ConfigurationError as error:
        return Checked(name, text, error)
    if problems:
        rejected = ConfigurationError(problems, source=name, warnings=loaded.warnings)
        return Checked(name, text, rejected)
    return Checked(name, text, loaded, profiles)


def content(file: str, name: str) -> bytes:
    """The bytes of a file, - for standard input; ``name`` is for the message. Raises ConfigurationError."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise ConfigurationError([Problem(0, 0, "", message)], source=name) from error


_check_config.params += list(version_flags())

command: Final = _check_config
