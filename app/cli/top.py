"""The command ``top``: shows a running scheduler in the terminal."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any, Final

import click
from rich.console import Console
from rich.live import Live

from app.cli.console import console
from app.cli.process import explained, run_loop
from app.cli.target_flags import target_options
from app.cli.top_view import view
from app.kube.errors import ConnectionSettingsError
from app.tools.feed_model import FeedModel
from app.tools.scheduler_client import Link, NotAnswered, SchedulerTarget
from app.tools.subprocesses import interruptible

#: Seconds until a scheduler that is gone is looked for again.
RETRY_SECONDS: Final = 1.0

#: The size of what is printed once.
_WIDTH: Final = 200
_LINES: Final = 50

#: Shows a model, and why it is not up to date.
Show = Callable[[FeedModel, str], None]


async def follow(target: SchedulerTarget, show: Show, *, once: bool) -> None:
    """Shows each change; with ``once`` the first only. Raises NotAnswered, ConnectionSettingsError if there never was
    one.
    """
    link, model, after = Link(target, "top"), FeedModel(), ""
    async with contextlib.aclosing(link):
        while True:
            problem = "the scheduler has ended the feed"
            try:
                async with contextlib.aclosing(link.events(after)) as events:
                    async for event in events:
                        after = event.number
                        model.apply(event.kind, event.data)
                        if model.sections:
                            show(model, "")
                            if once:
                                return
            except (NotAnswered, ConnectionSettingsError, ValueError) as error:
                if not model.sections:
                    raise
                problem = str(error)
            if not model.sections:
                raise NotAnswered(f"{problem} before it said anything")
            show(model, problem)
            await asyncio.sleep(RETRY_SECONDS)


async def _watch(target: SchedulerTarget, label: str, screen: Console) -> None:
    with Live(console=screen, screen=True, auto_refresh=False) as live:

        def show(model: FeedModel, problem: str) -> None:
            live.update(view(model, label, screen.size, problem), refresh=True)

        await follow(target, show, once=False)


@click.command("top")
@target_options
@click.option(
    "--by",
    "label",
    default="topology.kubernetes.io/zone",
    show_default=True,
    metavar="LABEL",
    help="The label by which nodes are grouped.",
)
@click.option("--once", is_flag=True, help="Print it once and exit; so it is in a pipe.")
def _top(*, label: str, once: bool, **target: Any) -> None:
    """Show a running scheduler in the terminal: health, queue, room, decisions, extenders. Ctrl-C ends it.

    It takes the right to "get" the nonResourceURL /debug/feed.
    """
    screen = console()
    with explained(NotAnswered, ConnectionSettingsError, ValueError):
        if once or not sys.stdout.isatty():

            def show(model: FeedModel, problem: str) -> None:
                screen.print(view(model, label, (min(screen.width, _WIDTH), _LINES), problem))

            run_loop(interruptible(follow(SchedulerTarget(**target), show, once=True)))
        else:
            run_loop(interruptible(_watch(SchedulerTarget(**target), label, screen)))


command: Final = _top
