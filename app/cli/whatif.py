"""The commands ``fits``, ``how-many``, ``drain``, ``lose`` and ``needs``: ask a running scheduler what would happen."""

import contextlib
import functools
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec
from rich import box
from rich.table import Table

from app.cli.console import console
from app.cli.flags import chosen, version_flags
from app.cli.process import explained, printable, printable_json, run_loop
from app.cli.target_flags import target_options
from app.kube.errors import UNREADABLE, ConnectionSettingsError
from app.model.features import OLDEST, FeaturesError
from app.plugins.registry import RegistryError
from app.scheduler.profiles import PluginError
from app.scheduler.trace import TraceError
from app.settings.problems import ConfigurationError
from app.sim import ManifestError
from app.sim.manifests import read_objects
from app.tools.scheduler_client import Link, NotAnswered, SchedulerTarget
from app.tools.whatif import DumpOptions, ask_dump
from app.wire.whatif_v1 import (
    MAX_COPIES,
    MAX_ROWS,
    MAX_SECONDS,
    SECONDS,
    PodAnswer,
    RefusedError,
    WhatIfAnswer,
    WhatIfQuestion,
)

YES, NO, NO_ANSWER = range(3)
"""Exit statuses: everything has a node (for how-many: there is room), something has none, there is no answer."""

_PATH: Final = "/whatif"
#: Seconds that an answer may take beyond the time of the question.
_MORE_SECONDS: Final = 10.0
_FILE: Final = click.Path(path_type=Path, dir_okay=False, allow_dash=True)
_EXPECTED: Final = (
    ConfigurationError,
    ConnectionSettingsError,
    FeaturesError,
    ManifestError,
    NotAnswered,
    OSError,
    PluginError,
    RefusedError,
    RegistryError,
    TraceError,
)

F = TypeVar("F", bound=Callable[..., Any])


class _Command(click.Command):
    #: Usage errors need another status than 1, which means that something has no node.
    usage_status: Final = NO_ANSWER


_MANIFESTS: Final = (
    click.option(
        "-f",
        "--filename",
        "files",
        type=_FILE,
        multiple=True,
        required=True,
        metavar="FILE",
        help="Manifests of pods or workloads, and of what they need; - for standard input. May be repeated.",
    ),
    click.option(
        "--copies",
        type=click.IntRange(1, MAX_COPIES),
        metavar="N",
        help="So many pods of each, instead of its replicas.",
    ),
    click.option("-n", "--namespace", help="Of manifests that name none."),
)
_COMMON: Final = (
    click.option("--extenders", is_flag=True, help="Ask extenders too, those that have a dryRun."),
    click.option(
        "--timeout",
        type=click.FloatRange(0, MAX_SECONDS, min_open=True),
        default=SECONDS,
        show_default=True,
        metavar="SECONDS",
    ),
    click.option(
        "--limit",
        type=click.IntRange(1, MAX_ROWS),
        default=1000,
        show_default=True,
        metavar="N",
        help="The most pods that are listed.",
    ),
    click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table"),
    click.option(
        "--dump",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="PATH",
        help="Ask about the cluster of a dump, as simulate reads it, or of a recording, not about a running one.",
    ),
    click.option(
        "--config", type=_FILE, metavar="FILE", help="With --dump: KubeSchedulerConfiguration."
    ),
    target_options,
)


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def add(command: F) -> F:
        return functools.reduce(lambda made, option: option(made), reversed(options), command)

    return add


@click.command("fits", cls=_Command)
@_options(*_MANIFESTS, *_COMMON)
@click.option("--changes", is_flag=True, help="Say what must change for pods that stay pending.")
@click.pass_context
def fits(context: click.Context, /, **given: Any) -> None:
    """Say where pods, workloads or gangs would go now, whom they would preempt, or why they stay pending.

    Exits with 0 if every pod gets a node, 1 if some stay pending, 2 if there is no answer.
    """
    _answer(context, "fits", given, changes=given.pop("changes"))


@click.command("how-many", cls=_Command)
@_options(*_MANIFESTS, *_COMMON)
@click.pass_context
def how_many(context: click.Context, /, **given: Any) -> None:
    """Say how many more pods of each manifest there is room for, and which reason stops it.

    Exits with 0 if there is room for at least one of each, 1 if not, 2 if there is no answer.
    """
    _answer(context, "how-many", given)


@click.command("drain", cls=_Command)
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@_options(*_COMMON)
@click.pass_context
def drain(context: click.Context, /, nodes: tuple[str, ...], **given: Any) -> None:
    """Say where the pods of nodes would go if these were drained, and which budgets stand against it.

    Exits with 0 if every pod gets another node and no budget is exceeded, 1 if not, 2 if there is no answer.
    """
    _answer(context, "drain", given, nodes=list(nodes))


@click.command("lose", cls=_Command)
@click.argument("label", metavar="LABEL=VALUE")
@_options(*_COMMON)
@click.pass_context
def lose(context: click.Context, /, label: str, **given: Any) -> None:
    """Say what happens if all nodes with a label were gone, such as topology.kubernetes.io/zone=z1.

    Exits with 0 if every pod gets another node, 1 if not, 2 if there is no answer.
    """
    _answer(context, "lose", given, label=label)


@click.command("needs", cls=_Command)
@_options(*_MANIFESTS)
@click.option("--like", default="", metavar="NODE", help="A node that has the shape.")
@click.option(
    "--node", "shape", type=_FILE, metavar="FILE", help="Instead, the manifest of a Node."
)
@_options(*_COMMON)
@click.pass_context
def needs(context: click.Context, /, like: str, shape: Path | None, **given: Any) -> None:
    """Say how many more nodes of a shape are needed so that all these pods get a node.

    Exits with 0 if some number of nodes is enough, 1 if none is, 2 if there is no answer.
    """
    if (shape is None) == (not like):
        raise click.UsageError("give the shape either with --like NODE or with --node FILE")
    with explained(*_EXPECTED, status=NO_ANSWER):
        node = None if shape is None else _objects([shape])[0]
    _answer(context, "needs", given, like=like, node=node)


def _objects(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The objects of files. Raises ManifestError."""
    found = []
    for file in files:
        path = Path("/dev/stdin") if str(file) == "-" else file
        found += [value for value, _ in read_objects(path)]
    if not found:
        raise ManifestError("there is no object in these files")
    return found


def _answer(context: click.Context, question: str, given: dict[str, Any], **fields: Any) -> None:
    dump, output = given.pop("dump"), given.pop("output")
    logging.getLogger().addHandler(logging.NullHandler())
    with explained(*_EXPECTED, status=NO_ANSWER):
        version, gates = chosen(given)
        target = SchedulerTarget(
            **{name: given[name] for name in SchedulerTarget.__dataclass_fields__}
        )
        namespace = given.get("namespace")
        asked = {
            "question": question,
            "objects": _objects(given["files"]) if "files" in given else [],
            "copies": given.get("copies"),
            "namespace": namespace or ("default" if dump else target.namespace()),
            "extenders": given["extenders"],
            "timeoutSeconds": given["timeout"],
            "limit": given["limit"],
            **fields,
        }
        if dump:
            options = DumpOptions(
                dump=dump, config=given["config"], version=version or OLDEST, gates=gates
            )
            answer = run_loop(ask_dump(options, msgspec.convert(asked, WhatIfQuestion)))
            body = msgspec.json.encode(answer)
        else:
            body = run_loop(_ask(target, msgspec.json.encode(asked), given["timeout"]))
        found = _decoded(body)
    if output == "json":
        click.echo(json.dumps(json.loads(body), indent=2))
    else:
        _show(found)
    context.exit(YES if _is_yes(found) else NO)


async def _ask(target: SchedulerTarget, body: bytes, seconds: float) -> bytes:
    async with contextlib.aclosing(Link(target, "whatif")) as link:
        return await link.post(_PATH, body, seconds + _MORE_SECONDS)


def _decoded(body: bytes) -> WhatIfAnswer:
    """An answer with texts that a terminal can show. Raises NotAnswered."""
    try:
        return msgspec.convert(printable_json(msgspec.json.decode(body)), WhatIfAnswer)
    except UNREADABLE as err:
        raise NotAnswered(f"what answers is no aiokube-scheduler of this version: {err}") from err


def _is_yes(answer: WhatIfAnswer) -> bool:
    if answer.question == "how-many":
        return all(each.count for each in answer.counts)
    if answer.question == "needs":
        return answer.count is not None
    return not answer.pending and not answer.budgets


def _show(answer: WhatIfAnswer) -> None:
    """Prints the answer as tables and sentences."""
    screen = console()
    if answer.counts:
        screen.print(_counts(answer))
    if answer.budgets:
        screen.print(_budgets(answer))
    if answer.pods:
        screen.print(_pods(answer))
    for pod in answer.pods:
        if pod.suggestions:
            screen.print(help_for(pod))
    for line in _sentences(answer):
        click.echo(line)
    for warning in answer.warnings:
        click.secho(f"WARNING: {warning}", err=True, fg="yellow")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        right = name in {"Count", "Pods", "Allowed"}
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    return table


def _pods(answer: WhatIfAnswer) -> Table:
    moved = any(pod.node_before for pod in answer.pods)
    table = _table("Pod", *(["From"] if moved else []), "Node", "Evicts", "Why")
    for pod in answer.pods:
        node = f"{pod.node} *" if pod.tie and pod.node else pod.node or "-"
        evicts = ", ".join(f"{each.namespace}/{each.name}" for each in pod.preempts)
        why = f"{pod.reason}: {pod.message}" if pod.reason else ""
        before = [pod.node_before] if moved else []
        table.add_row(f"{pod.namespace}/{pod.name}", *before, node, evicts, why)
    return table


def help_for(pod: PodAnswer) -> Table:
    """What must change so that the pod gets a node: a line for each suggestion, of which one is enough."""
    table = _table("What would help", "Node", "Evicts", "Budgets against it")
    table.title, table.title_justify = f"{pod.namespace}/{pod.name}", "left"
    for each in pod.suggestions:
        evicts = ", ".join(f"{victim.namespace}/{victim.name}" for victim in each.preempts)
        budgets = ", ".join(
            f"{b.namespace}/{b.name} ({b.pods}, {b.allowed} allowed)" for b in each.budgets
        )
        text = "\nand ".join(change.text for change in each.changes)
        table.add_row(text, each.node, evicts, budgets)
    return table


async def changes_for(target: SchedulerTarget, key: str) -> PodAnswer:
    """What would become of a pod of the cluster now, and what must change. Raises NotAnswered,
    ConnectionSettingsError."""
    asked = {"question": "fits", "pods": [key], "changes": True, "timeoutSeconds": SECONDS}
    answer = _decoded(await _ask(target, msgspec.json.encode(asked), SECONDS))
    return answer.pods[0]


def _counts(answer: WhatIfAnswer) -> Table:
    table = _table("Object", "Count", "Because of")
    for each in answer.counts:
        count = f"{each.count}{' or more' if each.at_least else ''}"
        table.add_row(each.object, count, each.message)
    return table


def _budgets(answer: WhatIfAnswer) -> Table:
    table = _table("Budget", "Pods", "Allowed")
    for each in answer.budgets:
        table.add_row(f"{each.namespace}/{each.name}", str(each.pods), str(each.allowed))
    return table


def _sentences(answer: WhatIfAnswer) -> Iterator[str]:
    if answer.question == "needs":
        yield (
            "No number of these nodes is enough."
            if answer.count is None
            else (f"{answer.count} more nodes of this shape are enough.")
        )
    if answer.question != "how-many":
        yield f"{answer.placed} pods get a node, {answer.pending} stay pending."
    if any(pod.tie and pod.node for pod in answer.pods):
        yield "* Other nodes are as good, for this pod or one before it: chance decides."
    if answer.message:
        yield printable(answer.message)
    if len(answer.pods) < answer.placed + answer.pending:
        yield f"{answer.placed + answer.pending - len(answer.pods)} pods are not shown (--limit)."


for _each in (fits, how_many, drain, lose, needs):
    _each.params += list(version_flags())
