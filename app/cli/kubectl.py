"""The program as a plugin of kubectl: ``kubectl aiokube why``.

kubectl runs ``kubectl-aiokube`` on the PATH for it, and ``kubectl_complete-aiokube`` to complete its words.
"""

import sys
from collections.abc import Sequence
from typing import Any, Final

import click
from click.shell_completion import ShellComplete

from app.cli.root import main

_NAME: Final = "kubectl aiokube"
#: The commands that ask a running scheduler.
_COMMANDS: Final = (
    "why",
    "explain",
    "fits",
    "how-many",
    "drain",
    "lose",
    "needs",
    "record",
    "top",
    "dashboard",
    "version",
)
#: kubectl's directive: complete no names of files.
_NO_FILES: Final = ":4"


class _Plugin(click.Group):
    """Some of the program's commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Their names, in the order of the help page."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported on demand."""
        return main.get_command(ctx, cmd_name) if cmd_name in _COMMANDS else None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,  # noqa: ARG002 - users type another one
        *further: Any,
        **extra: Any,
    ) -> Any:
        """Runs the command under the name that users type."""
        return super().main(args, _NAME, *further, **extra)


command: Final = _Plugin(
    _NAME,
    help="Ask a running aiokube-scheduler: why pods are pending, what would happen, and what it is doing.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def completion() -> None:
    """Prints what may follow the words on the command line, the last of which is begun, as kubectl expects it."""
    *words, begun = sys.argv[1:] or [""]
    for item in ShellComplete(command, {}, _NAME, "").get_completions(words, begun):
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(_NO_FILES)
