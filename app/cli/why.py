"""The command ``why``: asks a running scheduler in a few words why pods are pending."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
import msgspec
from rich import box
from rich.table import Table

from app.cli.console import console
from app.cli.explain import asked_for, decoded
from app.cli.explain_view import where
from app.cli.process import explained, printable, printable_json, run_loop
from app.cli.target_flags import target_options
from app.kube.errors import UNREADABLE, ConnectionSettingsError
from app.observe.explain import Explanation
from app.runtime.clock import SystemClock
from app.tools.scheduler_client import Link, NotAnswered, SchedulerTarget, story_of

_QUEUE: Final = "/debug/queue"
_SHOWN: Final = 3


@click.command("why")
@click.argument("pod", metavar="[NAMESPACE/POD]", default="")
@click.option(
    "-n",
    "--namespace",
    help="Of the pod: by default that of the kubeconfig's context. Without a pod: only those of this namespace.",
)
@target_options
def _why(*, pod: str, namespace: str | None, **target: Any) -> None:
    """Say in a line why a pod is pending, or of all pending pods who rejects them.

    ``explain`` says all that the scheduler knows about a pod. Without a pod it takes the right to "get" the
    nonResourceURL /debug/queue.
    """
    asked = SchedulerTarget(**target)
    with explained(NotAnswered, ConnectionSettingsError):
        if pod:
            told = decoded(run_loop(story_of(asked, *asked_for(pod, namespace, asked))))
            for line in _lines(told, SystemClock().wall()):
                click.echo(line)
            return
        waiting = [each for each in _waiting(run_loop(_queue(asked))) if _is_in(each, namespace)]
        if waiting:
            console().print(_table(waiting))
        else:
            click.echo("No pod is pending.")


def _lines(told: Explanation, now: float) -> Iterator[str]:
    """Where the pod is, and what the last attempt ended with."""
    yield f"{told.namespace}/{told.name}: {where(told, now)}"
    if told.waiting is not None and told.attempts and (message := told.attempts[-1].message):
        yield f"  {message}"
    if told.group is not None and told.group.waits_for:
        yield f"  Its group {told.group.name} waits for {told.group.waits_for}"


async def _queue(target: SchedulerTarget) -> bytes:
    async with contextlib.aclosing(Link(target, "why")) as link:
        return await link.get(_QUEUE, _QUEUE)


class _Pod(msgspec.Struct, rename="camel"):
    """A line of /debug/queue."""

    pod: str
    place: str
    timestamp: float
    rejectors: list[str] = []
    gating_plugin: str = ""
    gating_message: str = ""


class _Queue(msgspec.Struct):
    pods: list[_Pod]


def _waiting(answer: bytes) -> list[_Pod]:
    """The pods that wait. Raises NotAnswered."""
    try:
        return msgspec.convert(printable_json(msgspec.json.decode(answer)), _Queue).pods
    except UNREADABLE as err:
        raise NotAnswered(
            f"what answers is no aiokube-scheduler of this version: {printable(str(err))}"
        ) from err


def _is_in(pod: _Pod, namespace: str | None) -> bool:
    return namespace is None or pod.pod.partition("/")[0] == namespace


def _because(pod: _Pod) -> str:
    if pod.gating_plugin:
        return f"{pod.gating_plugin}: {pod.gating_message}"
    if pod.rejectors:
        return f"rejected by {', '.join(pod.rejectors)}"
    return "an error" if pod.place == "error backoff" else ""


def _table(waiting: Iterable[_Pod]) -> Table:
    """A row for all pods that wait for the same, the most first."""
    alike: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in sorted(waiting, key=lambda pod: (pod.timestamp, pod.pod)):
        alike[each.place, _because(each)].append(each.pod)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("Pods", justify="right")
    for name in ("Where", "Because of", "First"):
        table.add_column(name)
    for (place, because), pods in sorted(alike.items(), key=lambda each: (-len(each[1]), each[0])):
        shown = ", ".join(pods[:_SHOWN]) + (", ..." if len(pods) > _SHOWN else "")
        table.add_row(str(len(pods)), place, because, shown)
    return table


command: Final = _why
