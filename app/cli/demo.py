"""The command ``demo``: runs an embedded cluster, a sample extender and the scheduler."""

from typing import Final

import click

from app.cli.console import console
from app.cli.process import PORT, explained, run_loop
from app.tools.demo.run import DemoFailed, DemoOptions, run_demo
from app.tools.demo.scenario import MIN_PODS
from app.tools.subprocesses import ChildFailed


@click.command("demo")
@click.option("--nodes", type=click.IntRange(min=3), default=60, show_default=True)
@click.option("--pods", type=click.IntRange(min=MIN_PODS), default=300, show_default=True)
@click.option("--page", is_flag=True, help="Show it on a page, and stay up as with --keep.")
@click.option("--keep", is_flag=True, help="Stay up for kubectl, until Ctrl-C.")
@click.option(
    "--port", type=PORT, default=0, help="Port of the API server; any free one by default."
)
@click.pass_context
def _demo(
    context: click.Context, *, nodes: int, pods: int, keep: bool, page: bool, port: int
) -> None:
    """See it work: an embedded cluster, a sample extender and the scheduler in one go.

    Shows where the pods went, which are pending and why, and what the extender rejected. Needs no cluster, and leaves
    nothing behind.
    """
    options = DemoOptions(nodes=nodes, pods=pods, keep=keep or page, page=page, port=port)
    with explained(DemoFailed, ChildFailed, OSError):
        shown = run_loop(run_demo(options, console()))
    context.exit(0 if shown else 1)


command: Final = _demo
