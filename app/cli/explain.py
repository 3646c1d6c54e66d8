"""The command ``explain``: asks a running scheduler why a pod is where it is, or why it is pending."""

import json
from typing import Any, Final

import click
import msgspec

from app.cli.console import console
from app.cli.explain_view import render
from app.cli.process import explained, printable, run_loop
from app.cli.target_flags import target_options
from app.kube.errors import UNREADABLE, ConfigurationError
from app.observe.explain import Explanation
from app.runtime.clock import SystemClock
from app.tools.scheduler_client import NotAnswered, SchedulerTarget, story_of


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


@click.command("explain")
@click.argument("pod", metavar="NAMESPACE/POD")
@click.option("-n", "--namespace", default="default", show_default=True)
@target_options
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def _explain(*, pod: str, namespace: str, output: str, **target: Any) -> None:
    """Say why a pod is where it is, or why it is pending.

    Asks the running scheduler: its attempts, what each plugin and extender rejected, the best nodes with their scores, and what
    the pod waits for. Exits with 1 if the scheduler knows nothing of the pod.
    """
    where, name = split_name(pod, namespace)
    with explained(NotAnswered, ConfigurationError):
        answer = run_loop(story_of(SchedulerTarget(**target), where, name))
        explanation = _decoded(answer)
    if output == "json":
        click.echo(json.dumps(json.loads(answer), indent=2))
        return
    render(explanation, console(), SystemClock().wall())


def _decoded(answer: bytes) -> Explanation:
    """The answer with texts that a terminal can show. Raises NotAnswered."""
    try:
        return msgspec.convert(_printable(msgspec.json.decode(answer)), Explanation)
    except UNREADABLE as err:
        raise NotAnswered(f"what answers is no aiokube-scheduler of this version: {err}") from err


def _printable(value: Any) -> Any:
    """JSON with ``printable`` texts: pods, nodes and extenders have written them."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(each) for each in value]
    if isinstance(value, dict):
        return {printable(key): _printable(each) for key, each in value.items()}
    return value


command: Final = _explain
