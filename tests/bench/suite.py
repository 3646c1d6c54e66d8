"""``python -m tests.bench.suite``; ``make bench-suite SUITE='...'``: several workloads, and their ratios in one
table.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import yaml

from app.cli.process import explained, run_loop
from app.kube.errors import KubeError
from app.tools.subprocesses import ChildFailed, interruptible
from tests.bench.__main__ import POSITIVE, Rival, run_rounds
from tests.bench.cluster import NotOurs
from tests.bench.measuring import OURS, Load
from tests.bench.results import Result, medians, ratios

WORKLOADS: Final = Path(__file__).with_name("suite.yaml")
_HEAD: Final = (
    "workload",
    "pods/s",
    "theirs",
    "ratio",
    "CPU a pod, ms",
    "theirs",
    "ratio",
    "first binding, ratio",
    "last binding, ratio",
    "CPU in all, ratio",
    "memory, ratio",
    "latency p99, ms",
    "theirs",
    "ratio",
)


@click.command(context_settings={"show_default": True})
@click.option(
    "--workloads",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=WORKLOADS,
    show_default="tests/bench/suite.yaml",
)
@click.option("--only", default="", metavar="REGEX", help="Of the names of workloads.")
@click.option("--nodes", type=POSITIVE, default=5000)
@click.option("--pods", default=0, help="Instead of the numbers in the file; 0: those.")
@click.option("--rounds", type=POSITIVE, default=1)
@click.option("--timeout", "timeout_seconds", default=300.0, help="Seconds for a round.")
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A live API server instead of the embedded cluster, as for tests.bench.",
)
@click.option("--wipe", is_flag=True, help="Delete ALL nodes and pods of the live cluster first.")
@click.option("--scheduler", "ours", default=OURS, show_default="this one", metavar="CMD")
@click.option("--compare", "theirs", metavar="CMD", help="Run this one in turn.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def main(
    workloads: Path,
    only: str,
    nodes: int,
    pods: int,
    rounds: int,
    timeout_seconds: float,
    kubeconfig: Path | None,
    wipe: bool,
    ours: str,
    theirs: str | None,
    output: str,
) -> None:
    """Measure a scheduler with every workload of a file, and print a table in Markdown.

    Pods/s and CPU a pod count from the first binding on; where that comes late, as with preemption, read the time of
    the last binding and the CPU in all, which count from the start of the process.
    With --output json there is one line of JSON for each workload and scheduler instead. Fails if a pod was not bound.
    """
    schedulers = {"ours": ours} | ({"theirs": theirs} if theirs else {})
    if output == "text":
        click.echo(_row(_HEAD) + "\n" + _row("---" for _ in _HEAD))
    complete = True
    for name, load in loads(workloads, only, pods, nodes=nodes, timeout_seconds=timeout_seconds):
        rivals = [Rival(who, command, load) for who, command in schedulers.items()]
        with explained(NotOurs, ChildFailed, KubeError):
            work = run_rounds(rivals, rounds, kubeconfig, wipe=wipe, logs=None, tell=False)
            results = run_loop(interruptible(work))
        if results is None:
            sys.exit(1)
        complete &= all(result.complete for some in results.values() for result in some)
        for line in told(name, results, output):
            click.echo(line)
    sys.exit(0 if complete else 1)


def loads(file: Path, only: str, pods: int, **others: Any) -> Iterator[tuple[str, Load]]:
    """Names and loads of the workloads whose names match ``only``. ``pods``: instead of the numbers in the file; 0:
    those. ``others``: fields that the file may replace."""
    for each in read(file):
        given = {**others, **each}
        name = given.pop("name")
        if re.search(only, name):
            yield name, Load(**given | ({"pods": pods} if pods else {}))


def read(file: Path) -> list[dict[str, Any]]:
    """The workloads of a file, each with the fields of a Load and a name."""
    return [
        {key.replace("-", "_"): value for key, value in workload.items()}
        for workload in yaml.safe_load(file.read_text())
    ]


def told(name: str, results: Mapping[str, Sequence[Result]], output: str) -> list[str]:
    """The lines about a workload."""
    if output == "json":
        return [
            json.dumps({"workload": name, "scheduler": who, **medians(some)})
            for who, some in results.items()
        ]
    ours, theirs = results["ours"], results.get("theirs")
    own, other = medians(ours), medians(theirs) if theirs else {}
    compared = ratios(ours, theirs) if theirs else {}
    figures = [name]
    for field in ("pods_per_s", "cpu_ms_per_pod"):
        figures += [own[field], other.get(field), compared.get(field)]
    whole = ("first_bind_s", "last_bind_s", "cpu_s", "peak_memory_mb")
    figures += [compared.get(field) for field in whole]
    latency = "latency_p99_ms"
    figures += [own[latency], other.get(latency), compared.get(latency)]
    return [_row(figures)]


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join("-" if cell is None else str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    main()
