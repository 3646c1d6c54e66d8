"""``python -m tests.bench.recording``: what ``--record`` costs, measured within runs of the workloads of a file.

Two runs of one program differ by more than a recording costs. So records are turned on and off within each run: for so
many pods everything is recorded, for as many nothing, in pairs whose order is drawn. The cost is the ratio of the two
times of a pair.
"""

import json
import math
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import click

from app.cli import main as run_scheduler
from app.cli.process import explained, run_loop
from app.kube.client import Observer
from app.kube.errors import KubeError
from app.model.pod_groups import GroupKey
from app.scheduler.recording import RecordedState, Recorder
from app.state.queue.active_queue import Admits
from app.state.queue.queued_pod import QueuedPod
from app.state.scheduler_state import SchedulerState
from app.tools.subprocesses import ChildFailed, interruptible
from tests.bench.__main__ import POSITIVE, Rival, run_rounds
from tests.bench.cluster import NotOurs
from tests.bench.suite import WORKLOADS, loads

#: The first argument of the process that is measured.
_WITHIN: Final = "--within"
#: Begins the pairs of a run.
_RUN: Final = "run\n"

#: Seconds: wall, CPU.
_Times = tuple[float, float]
#: The pairs of each run: times with records, and without.
Runs = Sequence[Sequence[Sequence[Sequence[float]]]]


class Turns:
    """Turns the records of a process on and off, and writes each pair: wall and CPU with records, then without."""

    def __init__(self, pods: int, out: TextIO, rng: random.Random, *, control: bool) -> None:
        """``pods``: those of half a pair. ``control``: nothing is recorded in either half."""
        self._control: Final = control
        #: Which half it is, and whether anything is recorded in it.
        self.on = self.records = True
        self.recorder: Recorder | None = None
        self.state: SchedulerState | None = None
        self._pods: Final = pods
        self._left = pods
        self._out: Final = out
        self._rng: Final = rng
        self._began: _Times = (0.0, 0.0)
        #: The first half of the pair that is measured; None before it has ended.
        self._first: _Times | None = None
        #: Whether a pair is being measured: the first pods come while the caches are cold.
        self._measures = False

    def popped(self, pods: int) -> None:
        """So many pods were popped."""
        self._left -= pods
        if self._left > 0:
            return
        wall, cpu = time.perf_counter(), time.process_time()
        took = wall - self._began[0], cpu - self._began[1]
        if self._measures and self._first is None:
            self._first = took
            self._turn(not self.on)
        else:
            if self._first is not None:
                halves = (took, self._first) if self.on else (self._first, took)
                self._out.write(json.dumps(halves) + "\n")
                self._out.flush()
            self._first, self._measures = None, True
            self._turn(self._rng.random() < 0.5)
        self._left = self._pods
        self._began = time.perf_counter(), time.process_time()

    def _turn(self, on: bool) -> None:
        assert self.state is not None
        assert self.recorder is not None
        self.recorder.elsewhere.clear()  # the ends of these pods were not all seen
        self.on, self.records = on, on and not self._control
        self.state.__class__ = _Recorded if self.records else _NotRecorded


def _counting(base: Any) -> Any:
    """A state that counts what is popped."""

    class Counting(base):  # type: ignore[misc]  # any state
        turns: Turns

        def pop(self, now: float, admits: Admits | None = None) -> QueuedPod | None:
            queued: QueuedPod | None = base.pop(self, now, admits)
            if queued is not None:
                self.turns.popped(1)
            return queued

        def pop_group(self, group: GroupKey, now: float) -> list[QueuedPod]:
            popped: list[QueuedPod] = base.pop_group(self, group, now)
            self.turns.popped(len(popped))
            return popped

    return Counting


_Recorded: Final = _counting(RecordedState)
_NotRecorded: Final = _counting(SchedulerState)


def _only_when_recorded(turns: Turns, method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *given: method(*given) if turns.records else None


def run_within(turns: Turns) -> None:
    """Runs the scheduler in this process, whose arguments say ``run --record``."""
    make_observer = Recorder.observer

    def make_state(recorder: Recorder, **parts: Any) -> Any:
        state = _Recorded(recorder, **parts)
        state.turns = turns
        turns.recorder, turns.state = recorder, state
        return state

    def observer(recorder: Recorder, observe: Observer) -> Observer:
        recorded = make_observer(recorder, observe)

        def either(method: str, status: int, seconds: float) -> None:
            (recorded if turns.records else observe)(method, status, seconds)

        return either

    methods: dict[str, Any] = {"make_state": make_state, "observer": observer}
    for name in ("unfit", "rejected", "draws_elsewhere", "before_drawing", "_call"):
        methods[name] = _only_when_recorded(turns, getattr(Recorder, name))
    for name, method in methods.items():
        setattr(Recorder, name, method)
    run_scheduler()


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
@click.option("--half", type=POSITIVE, default=100, help="Pods of half a pair.")
@click.option("--rounds", type=POSITIVE, default=3)
@click.option("--control", is_flag=True, help="Record in neither half: the error of the method.")
@click.option("--timeout", "timeout_seconds", default=300.0, help="Seconds for a round.")
def main(
    workloads: Path,
    only: str,
    nodes: int,
    pods: int,
    half: int,
    rounds: int,
    control: bool,
    timeout_seconds: float,
) -> None:
    """Measure what recording costs of the throughput and the CPU of each workload.

    Prints the geometric means of the ratios, records on to records off, with their standard errors, and the medians.
    An error is that of a mean over runs, so that it needs two at least.
    """
    click.echo("| workload | pairs | wall | median | CPU | median |\n|---|---|---|---|---|---|")
    everything: list[Any] = []
    for name, load in loads(workloads, only, pods, nodes=nodes, timeout_seconds=timeout_seconds):
        with tempfile.TemporaryDirectory() as folder:
            found = Path(folder, "pairs")
            values = [found, half, int(control), "run", "--record", f"{folder}/records"]
            command = shlex.join([sys.executable, "-m", __spec__.name, _WITHIN, *map(str, values)])
            command += " --config {config} --bind-address=127.0.0.1 --secure-port={port} --feature-gates={gates}"
            with explained(NotOurs, ChildFailed, KubeError):
                rivals = [Rival("ours", command, load)]
                work = run_rounds(rivals, rounds, None, wipe=False, logs=None, tell=False)
                if run_loop(interruptible(work)) is None:
                    sys.exit(1)
            runs = [
                [json.loads(line) for line in run.splitlines()]
                for run in found.read_text().split(_RUN)[1:]
            ]
        click.echo(row(name, runs))
        everything += runs
    click.echo(row("all", everything))


def row(name: str, runs: Runs) -> str:
    """A row of the table."""
    runs = [run for run in runs if run]
    pairs = sum(map(len, runs))
    cells = [name, str(pairs)]
    for which in (0, 1):
        logs = [[math.log(on[which] / off[which]) for on, off in run] for run in runs]
        if len(runs) < 2:
            cells += ["", ""]
            continue
        everything = [each for run in logs for each in run]
        mean = statistics.mean(everything)
        # Pairs of one run are not independent, so what counts is how much the runs differ.
        squares = sum(sum(each - mean for each in run) ** 2 for run in logs)
        error = math.sqrt(squares * len(runs) / (len(runs) - 1)) / pairs
        cells += [
            f"{math.exp(mean):.4f} ± {error:.4f}",
            f"{math.exp(statistics.median(everything)):.4f}",
        ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    if sys.argv[1:2] == [_WITHIN]:
        _, _, file, size, nothing, *arguments = sys.argv
        sys.argv[1:] = arguments
        with Path(file).open("a") as pairs_file:
            pairs_file.write(_RUN)
            run_within(Turns(int(size), pairs_file, random.Random(), control=nothing == "1"))
    else:
        main()
