"""``python -m tests.bench``; ``make bench BENCH='...'``."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from app.cli.process import explained, run_loop
from app.kube.errors import KubeError
from app.tools.subprocesses import ChildFailed, interruptible
from tests.bench.cluster import NotOurs
from tests.bench.extender import FAILING
from tests.bench.measuring import OURS, Load, Place, embedded_cluster, measure
from tests.bench.results import (
    Result,
    Thresholds,
    as_json,
    medians,
    ratios,
    shortfalls,
    summary,
)
from tests.bench.workload import SHAPES

POSITIVE = click.IntRange(min=1)


def _read_delays(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    """Milliseconds, a word for an extender that fails, or nothing."""
    for text in texts:
        if text not in ("", *FAILING) and not text.replace(".", "", 1).isdecimal():
            said = f"{text!r} is neither a number of milliseconds nor one of {', '.join(FAILING)}"
            raise click.BadParameter(said)
    return texts


@click.command(context_settings={"show_default": True})
@click.option("--nodes", type=POSITIVE, default=1000)
@click.option("--pods", type=POSITIVE, default=1000, help="The backlog to bind.")
@click.option("--shape", type=click.Choice(SHAPES), default="basic", help="What the pods demand.")
@click.option("--existing", default=0, help="Pods that run already (4 a node for preemption).")
@click.option(
    "--apart-every",
    default=0,
    metavar="N",
    help="Each N-th of them keeps away from the others of its group.",
)
@click.option("--zones", type=POSITIVE, default=3)
@click.option("--padding", default=0, metavar="BYTES", help="Makes nodes larger.")
@click.option(
    "--extender",
    multiple=True,
    default=("",),
    callback=_read_delays,
    metavar="MS|never|crash|nonsense",
    help="Ask an extender that takes so long to answer filter and prioritize; 0: at once. May be given several times, also "
    "empty for none: in turn, with ratios of the first.",
)
@click.option("--whole-nodes", is_flag=True, help="Send the extender nodes instead of names.")
@click.option("--ignorable", is_flag=True, help="The extender may fail.")
@click.option(
    "--feeds",
    type=click.IntRange(min=0),
    multiple=True,
    default=(0,),
    help="Listeners of the feed (open pages) meanwhile; may be given several times: in turn, with ratios of the first.",
)
@click.option(
    "--questions",
    type=click.FloatRange(min=0),
    multiple=True,
    default=(0.0,),
    metavar="A-SECOND",
    help="Ask where pods would go meanwhile; may be given several times: in turn, with ratios of the first.",
)
@click.option("--question-pods", type=POSITIVE, default=100, help="Pods of a question.")
@click.option(
    "--extender-options",
    default="",
    metavar="JSON",
    help="The extender's fields of the second document, such as '{\"shadow\": true}'.",
)
@click.option("--group-size", type=POSITIVE, default=4, help="Pods of a group (shape gang).")
@click.option("--min-count", default=0, help="Pods of a group that go together; 0: all.")
@click.option("--racks", default=0, help="Racks, in one of which each group goes; 0: none.")
@click.option(
    "--rate",
    default=0.0,
    metavar="PODS/S",
    help="Pods arrive so fast once the first is bound, and the latency is measured; 0: all are there from the start.",
)
@click.option("--burst", type=POSITIVE, default=1, help="How many of them arrive together.")
@click.option("--seed", default=1, help="Of this scheduler.")
@click.option("--timeout", "timeout_seconds", default=300.0, help="Seconds for a round.")
@click.option("--rounds", type=POSITIVE, default=1)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A live API server instead of the embedded cluster. Must hold nothing but what this program made.",
)
@click.option("--wipe", is_flag=True, help="Delete ALL nodes and pods of the live cluster first.")
@click.option(
    "--scheduler",
    "ours",
    default=OURS,
    show_default="this one",
    metavar="CMD",
    help="Another scheduler's command line; {config}, {kubeconfig}, {port} and {gates} are replaced.",
)
@click.option("--compare", "theirs", metavar="CMD", help="Run this one in turn; print the ratios.")
@click.option("--at-least", type=float, metavar="PODS/S", help="Fail below this rate.")
@click.option("--at-most-cpu", type=float, metavar="MS", help="Fail above this CPU a pod.")
@click.option("--at-most-memory", type=float, metavar="MIB", help="Fail above this memory.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
@click.option("--logs", type=click.Path(file_okay=False, path_type=Path), help="Keep logs here.")
def main(
    rounds: int,
    kubeconfig: Path | None,
    wipe: bool,
    ours: str,
    theirs: str | None,
    at_least: float | None,
    at_most_cpu: float | None,
    at_most_memory: float | None,
    logs: Path | None,
    feeds: tuple[int, ...],
    extender: tuple[str, ...],
    questions: tuple[float, ...],
    output: str,
    **load: object,
) -> None:
    """Measure how fast a scheduler binds a backlog of pods, and what that costs.

    The scheduler runs in one process, the embedded cluster in another. Each round prints a summary and a line of JSON;
    with
    --output json there is one line of JSON for each scheduler at the end, with the medians of its rounds.
    """
    schedulers = {"ours": ours} | ({"theirs": theirs} if theirs else {})
    rivals = [
        Rival(
            _name(who, count, delay if len(extender) > 1 else "", asked),
            command,
            Load(feeds=count, extender=delay, questions=asked, **load),  # type: ignore[arg-type]  # click's types
        )
        for who, command in schedulers.items()
        for count in feeds
        for delay in dict.fromkeys(extender)
        for asked in dict.fromkeys(questions)
    ]
    wanted = Thresholds(
        pods_per_s=at_least, cpu_ms_per_pod=at_most_cpu, peak_memory_mb=at_most_memory
    )
    with explained(NotOurs, ChildFailed, KubeError):
        rounds_of_all = run_rounds(
            rivals, rounds, kubeconfig, wipe=wipe, logs=logs, tell=output == "text"
        )
        results = run_loop(interruptible(rounds_of_all))
    if results is None:
        sys.exit(1)
    sys.exit(_conclude(results, wanted, output))


class Rival(NamedTuple):
    """What is measured in each round: a scheduler's command line with its load."""

    name: str
    command: str
    load: Load


def _name(who: str, feeds: int, extender: str, questions: float) -> str:
    name = f"{who}-{feeds}-feeds" if feeds else who
    name = f"{name}-extender-{extender}" if extender else name
    return f"{name}-{questions:g}-questions" if questions else name


async def run_rounds(
    rivals: Sequence[Rival],
    rounds: int,
    kubeconfig: Path | None,
    *,
    wipe: bool,
    logs: Path | None,
    tell: bool,
) -> dict[str, list[Result]]:
    """The results by name, in the order of the rounds; with ``tell`` prints each as it comes.

    Every second round goes the other way: what changes slowly on the machine favours nobody.
    """
    results: dict[str, list[Result]] = {rival.name: [] for rival in rivals}
    turns = [
        (number, rival)
        for number in range(1, rounds + 1)
        for rival in (rivals if number % 2 else rivals[::-1])
    ]
    for number, (name, command, load) in turns:
        with _folder(logs, f"{name}-{number}") as folder:
            async with _place(kubeconfig, folder, load) as place:
                result = await measure(load, place, command, wipe=wipe)
        if tell:
            click.echo(f"{summary(name, result)}\n{as_json(name, result)}")
        results[name].append(result)
    return results


@contextlib.contextmanager
def _folder(logs: Path | None, name: str) -> Iterator[Path]:
    """Where a round keeps its files: below ``logs``, or for its own time only."""
    if logs is not None:
        folder = logs / name
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="aiokube-scheduler-bench-") as temporary:
        yield Path(temporary)


def _place(
    kubeconfig: Path | None, folder: Path, load: Load
) -> contextlib.AbstractAsyncContextManager[Place]:
    """The live cluster, or an embedded one that is new."""
    if kubeconfig is None:
        return embedded_cluster(folder, load)
    return contextlib.nullcontext(Place(kubeconfig.absolute(), folder))


def _conclude(results: Mapping[str, Sequence[Result]], wanted: Thresholds, output: str) -> int:
    """Prints the ratios, or the medians as JSON, and what falls short; the exit status."""
    (first, measured), *others = results.items()
    if output == "json":
        for name, some in results.items():
            click.echo(json.dumps({"scheduler": name, **medians(some)}))
    else:
        for name, compared in others:
            alike = sum(a.decisions == b.decisions for a, b in zip(measured, compared, strict=True))
            told = {**ratios(measured, compared), "rounds_with_same_decisions": alike}
            click.echo(f"{first} / {name}: {json.dumps(told)}")
    missing = [text for result in measured for text in shortfalls(result, wanted)]
    for text in missing:
        click.echo(f"Error: {text}", err=True)
    return 1 if missing else 0


if __name__ == "__main__":
    main()
