"""The command ``aiokube-scheduler``: finds its subcommands and sets their exit statuses."""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import click

PROGRAM: Final = "aiokube-scheduler"


class _Entry(NamedTuple):
    module: str
    """In this package."""
    summary: str
    attribute: str = "command"
    """Of the module: the command."""


_COMMANDS: Final = {
    "run": _Entry("run", "Run the scheduler."),
    "demo": _Entry(
        "demo", "See it work: an embedded cluster, an extender and the scheduler in one go."
    ),
    "apiserver": _Entry("apiserver", "Run the embedded cluster alone, for kubectl."),
    "check-config": _Entry("check_config", "Validate a configuration file."),
    "convert-config": _Entry(
        "convert_config", "Write a scheduler policy or an old configuration as v1."
    ),
    "check-extender": _Entry(
        "check_extender", "Call extenders and print problems of their answers."
    ),
    "simulate": _Entry("simulate", "Show where a workload would go in the cluster of a dump."),
    "record": _Entry("record", "Take the last minutes of a running scheduler, to replay them."),
    "replay": _Entry("replay", "Let a recorded scheduler decide once more, and compare."),
    "shadow": _Entry("shadow", "Judge the decisions of a cluster's scheduler; write nothing."),
    "explain": _Entry("explain", "Say why a pod is where it is, or why it is pending."),
    "why": _Entry("why", "Say in a line why pods are pending."),
    "fits": _Entry("whatif", "Say where pods would go now, and whom they would preempt.", "fits"),
    "how-many": _Entry("whatif", "Say how many more pods there is room for.", "how_many"),
    "drain": _Entry("whatif", "Say what draining nodes would do.", "drain"),
    "lose": _Entry("whatif", "Say what losing the nodes with a label would do.", "lose"),
    "needs": _Entry("whatif", "Say how many nodes of a shape pods need.", "needs"),
    "mcp": _Entry("mcp", "Answer an assistant's questions about a running scheduler (MCP)."),
    "dashboard": _Entry("dashboard", "Show a running scheduler on a page."),
    "top": _Entry("top", "Show a running scheduler in the terminal."),
    "completion": _Entry("about", "Print a completion script for a shell.", "completion_command"),
    "help": _Entry("about", "Show the help page of a command.", "help_command"),
    "version": _Entry("about", "Print the version.", "version_command"),
}
_OTHER_NAMES: Final = {
    "kube-scheduler": _Entry("kube_scheduler", "As kube-scheduler."),
    "kubectl-aiokube": _Entry("kubectl", "As a plugin of kubectl."),
    "kubectl_complete-aiokube": _Entry("kubectl", "Completes its words.", "completion"),
}
"""Names under which the program is called, by a link or a copy, to be another command."""
_OWN_OPTIONS: Final = frozenset({"-h", "--help", "--version"})


@contextlib.contextmanager
def _exit_code_of_kube_scheduler() -> Iterator[None]:
    """Usage errors end with status 1, not with click's 2 (docs/spec/endpoints.md#flags).

    Commands for which 1 has another meaning set ``usage_status``.
    """
    try:
        yield
    except click.UsageError as error:
        command = error.ctx.command if error.ctx is not None else None
        vars(error)["exit_code"] = getattr(command, "usage_status", 1)
        raise


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Disables garbage collections, which take a quarter of the time of imports; their objects stay anyway."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _imported(entry: _Entry) -> click.Command:
    # Nothing here uses OpenBLAS; NumPy would start its threads, which wait busily for a tenth of a second.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # pydantic would search all installed distributions for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with _without_collections():
        module = importlib.import_module(f"{__package__}.{entry.module}")
    command: click.Command = getattr(module, entry.attribute)
    return command


class CommandLine(click.Group):
    """Finds the subcommands. Options without a command are those of ``run``: ``--config=FILE`` starts the scheduler."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of the help page."""
        return list(_COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """The command of that name, imported on demand."""
        entry = _COMMANDS.get(cmd_name)
        return None if entry is None else _imported(entry)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click.Group. Raises UsageError with a similar command name, if there is one."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415 - for mistakes only

            meant = get_close_matches(name, _COMMANDS, n=1)
            hint = f" Did you mean '{meant[0]}'?" if meant else ""
            raise click.UsageError(f"No such command '{name}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in _COMMANDS.items()])

    def __call__(self, *args: Any, **extra: Any) -> Any:
        """What the program does when it is started: by one of _OTHER_NAMES it is that command."""
        other = _OTHER_NAMES.get(os.path.basename(sys.argv[0]))
        return super().__call__(*args, **extra) if other is None else _imported(other)()

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """See click.Command."""
        with _exit_code_of_kube_scheduler():
            return super().make_context(*args, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts ``run`` before options that are not the program's own."""
        if args and args[0].startswith("-") and args[0] not in _OWN_OPTIONS:
            args.insert(0, "run")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """See click.Command."""
        with _exit_code_of_kube_scheduler():
            return super().invoke(ctx)


version_option: Final = click.version_option(package_name=PROGRAM, prog_name=PROGRAM)

main: Final = version_option(
    CommandLine(
        name=PROGRAM,
        help="A Kubernetes scheduler: kube-scheduler's decisions, faster, and at its best with extenders.",
        epilog="Options without a command are those of run: 'aiokube-scheduler --config=FILE' starts the scheduler.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
)
