"""The command ``explain``: asks a running scheduler why a pod is where it is, or why it is pending."""

import contextlib
import json
import sys
from contextlib import nullcontext
from typing import Any, Final

import click
import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from app.cli.console import console
from app.cli.explain_view import view
from app.cli.process import explained, printable, printable_json, run_loop
from app.cli.target_flags import target_options
from app.kube.errors import UNREADABLE, ConnectionSettingsError
from app.observe.explain import Explanation
from app.runtime.clock import SystemClock
from app.tools.scheduler_client import NotAnswered, SchedulerTarget, stories_of, story_of
from app.tools.subprocesses import interruptible

#: Seconds between two questions of ``--watch``.
WATCH_SECONDS: Final = 1.0
_OUTDATED: Final = "Not up to date: "


def split_name(pod: str, namespace: str) -> tuple[str, str]:
    """NAMESPACE/POD, or POD in ``namespace``.

    >>> split_name("shop/cart-0", "default")
    ('shop', 'cart-0')
    """
    before, slash, after = pod.rpartition("/")
    where, name = (before, after) if slash else (namespace, pod)
    if not where or not name or "/" in where:
        raise click.BadParameter(f"{pod!r} is not NAMESPACE/POD")
    return where, name


def asked_for(pod: str, namespace: str | None, target: SchedulerTarget) -> tuple[str, str]:
    """Namespace and name of the pod that is meant. Raises click.BadParameter, ConnectionSettingsError."""
    if namespace is None:
        namespace = "default" if "/" in pod else target.namespace()
    return split_name(pod, namespace)


@click.command("explain")
@click.argument("pod", metavar="NAMESPACE/POD")
@click.option("-n", "--namespace", help="By default that of the kubeconfig's context, or default.")
@target_options
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "-w", "--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C."
)
@click.option(
    "--bodies",
    is_flag=True,
    help="Show what was sent to extenders and received, if the scheduler keeps it (extenderBodies). "
    "JSON always has it.",
)
@click.option(
    "--changes",
    is_flag=True,
    help="Say by which changes a pending pod would get a node; it takes the right to ask what would happen.",
)
def _explain(
    *,
    pod: str,
    namespace: str | None,
    output: str,
    watch: bool,
    bodies: bool,
    changes: bool,
    **target: Any,
) -> None:
    """Say why a pod is where it is, or why it is pending.

    Asks the running scheduler: its attempts, what each plugin and extender rejected, the best nodes with their scores,
    and what the pod waits for. Exits with 1 if the scheduler knows nothing of the pod.
    """
    asked = SchedulerTarget(**target)
    if changes and (watch or output == "json"):
        raise click.UsageError("--changes is for text, shown once; POST /whatif has it as JSON")
    with explained(NotAnswered, ConnectionSettingsError):
        where, name = asked_for(pod, namespace, asked)
        if watch:
            run_loop(interruptible(_watch(asked, where, name, output, bodies=bodies)))
        else:
            _show(run_loop(story_of(asked, where, name)), output, bodies=bodies)
            if changes:
                _show_changes(asked, f"{where}/{name}")


def _show_changes(target: SchedulerTarget, key: str) -> None:
    """Raises NotAnswered, ConnectionSettingsError."""
    from app.cli.whatif import changes_for, help_for  # noqa: PLC0415 - imports much that is seldom needed

    pod = run_loop(changes_for(target, key))
    if pod.node:
        click.echo(f"\nIt would get node {pod.node} now.")
    elif pod.suggestions:
        console().print("", help_for(pod))
    else:
        click.echo("\nNo change was found by which it would get a node.")


async def _watch(
    target: SchedulerTarget, namespace: str, name: str, output: str, *, bodies: bool = False
) -> None:
    """Shows the story whenever it has changed; on a terminal in place of the last one. Raises NotAnswered at the first
    time.
    """
    screen = console()
    with (
        Live(console=screen, screen=True, auto_refresh=False)
        if _in_place(output)
        else nullcontext() as live
    ):
        shown, problem = b"", ""
        stories = stories_of(target, namespace, name, WATCH_SECONDS)
        async with contextlib.aclosing(stories):
            async for answer in stories:
                story = shown if isinstance(answer, NotAnswered) else answer
                before, problem = problem, str(answer) if isinstance(answer, NotAnswered) else ""
                if live is not None:
                    found = view(decoded(story), SystemClock().wall(), screen.width, bodies=bodies)
                    live.update(_with_problem(found, problem), refresh=True)
                elif problem:
                    if problem != before:
                        click.echo(f"{_OUTDATED}{printable(problem)}", err=True)
                elif story != shown or before:
                    _show(story, output, bodies=bodies)
                shown = story


def _with_problem(found: RenderableType, problem: str) -> RenderableType:
    """What is shown, below why it is not up to date."""
    if not problem:
        return found
    return Group(Text(f"{_OUTDATED}{printable(problem)}\n", style="bold red"), found)


def _in_place(output: str) -> bool:
    return output == "text" and sys.stdout.isatty()


def _show(answer: bytes, output: str, *, bodies: bool) -> None:
    explanation = decoded(answer)
    if output == "json":
        click.echo(json.dumps(json.loads(answer), indent=2))
    else:
        screen = console()
        screen.print(view(explanation, SystemClock().wall(), screen.width, bodies=bodies))


def decoded(answer: bytes) -> Explanation:
    """An answer with texts that a terminal can show. Raises NotAnswered."""
    try:
        return msgspec.convert(printable_json(msgspec.json.decode(answer)), Explanation)
    except UNREADABLE as err:
        raise NotAnswered(f"what answers is no aiokube-scheduler of this version: {err}") from err


command: Final = _explain
