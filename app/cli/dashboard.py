"""The command ``dashboard``: a page that shows a running scheduler."""

import asyncio
from typing import Any, Final

import click

from app.cli.process import PORT, explained, run_loop
from app.cli.target_flags import target_options
from app.kube.errors import ConnectionSettingsError
from app.tools.dashboard.server import open_browser, serving_page
from app.tools.scheduler_client import NotAnswered, SchedulerTarget
from app.tools.subprocesses import interruptible


async def _serve(target: SchedulerTarget, port: int, *, browser: bool) -> None:
    async with serving_page(target, port) as url:
        click.echo(
            f"The dashboard is at\n\n    {url}\n\nuntil Ctrl-C. Whoever has this address sees what you may see."
        )
        if browser:
            await open_browser(url)
        await asyncio.Event().wait()


@click.command("dashboard")
@target_options
@click.option("--port", type=PORT, default=0, help="Port of the page; any free one by default.")
@click.option("--browser/--no-browser", default=True, help="Open a browser, if there is one.")
def _dashboard(*, port: int, browser: bool, **target: Any) -> None:
    """Show a running scheduler on a page: nodes, queue, decisions, extenders.

    Serves the page on this machine and asks the scheduler with your credentials. It takes the right to "get" the
    nonResourceURLs /debug/feed, /debug/pods/* and /debug/nodes/*. Nothing is written.
    """
    with explained(NotAnswered, ConnectionSettingsError, OSError):
        run_loop(interruptible(_serve(SchedulerTarget(**target), port, browser=browser)))


command: Final = _dashboard
