"""The commands ``version``, ``help`` and ``completion``."""

import json
import platform
from typing import Final

import click
from click.shell_completion import get_completion_class

from app.cli.root import PROGRAM, main
from app.runtime.distributions import version

_SHELLS: Final = ("bash", "zsh", "fish")


@click.command("version")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def version_command(output: str) -> None:
    """Print the version."""
    known = {
        "version": version(PROGRAM),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    if output == "json":
        click.echo(json.dumps(known))
    else:
        click.echo("{0} {version} (Python {python}, {platform})".format(PROGRAM, **known))


@click.command("help")
@click.argument("command", default="")
def help_command(command: str) -> None:
    """Show the help page of a COMMAND, or of the program."""
    program = click.Context(main, info_name=PROGRAM)
    if not command:
        click.echo(main.get_help(program))
        return
    name, found, _ = main.resolve_command(program, [command])
    assert found is not None  # noqa: S101 - else resolve_command raises
    with click.Context(found, info_name=name, parent=program) as context:
        click.echo(found.get_help(context))


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion_command(shell: str) -> None:
    """Print the completion script of SHELL for commands and options.

    For bash put this into ~/.bashrc: eval "$(aiokube-scheduler completion bash)"
    """
    found = get_completion_class(shell)
    assert found is not None  # noqa: S101 - click has all of _SHELLS
    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    click.echo(found(main, {}, PROGRAM, variable).source())
