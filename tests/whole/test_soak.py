"""The long run: what it takes for growth, and that it runs."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.whole.soak import CYCLE, HEADER, Sample, growth, summary

QUIET = Sample(0.0, 100.0, 50, 40, 3, 400, 20.0, 160.0, 5.0)


def samples(*cycles: Sample, minutes: int = 21) -> list[Sample]:
    """One a minute; the last cycles of faults are as given."""
    calm = [QUIET] * (minutes - CYCLE * len(cycles))
    made = [*calm, *(each for each in cycles for _ in range(CYCLE))]
    return [each._replace(minutes=float(n)) for n, each in enumerate(made, 1)]


def test_what_stays_is_no_growth():
    assert growth(samples(), 10) == []
    assert growth(samples(QUIET._replace(memory=103.0, files=49, queue=6)), 10) == []


def test_what_waiting_pods_hold_for_a_while_is_no_growth():
    found = samples()
    found[-1] = found[-1]._replace(memory=150.0, files=90, tasks=80, queue=60)
    assert growth(found, 10) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"memory": 103.1}, "memory: 100.0 MiB after 10 minutes, 103.1 MiB later"),
        ({"files": 51}, "files: at most 50 in the first 10 minutes, 51 and more at the end"),
        ({"tasks": 41}, "tasks: at most 40 in the first 10 minutes, 41 and more at the end"),
        ({"queue": 7}, "queue: at most 3 pods in the first minutes, 7 later"),
    ],
)
def test_growth_is_told(change, said):
    assert growth(samples(*[QUIET._replace(**change)] * 2), 10) == [said]


def test_connections_that_are_idle_for_a_while_are_no_growth():
    assert growth(samples(QUIET._replace(files=60), QUIET, QUIET, QUIET), 5) == []
    assert growth(samples(*[QUIET._replace(files=60)] * 3), 5) != []


def test_a_minute_without_bindings_is_told():
    found = samples()
    found[14] = found[14]._replace(bound=0, mean_ms=math.nan)
    assert growth(found, 10) == ["nothing was bound before minute 15.0"]


def test_what_a_start_needs_is_no_growth_and_memory_is_compared_with_the_end_of_it():
    start = [QUIET._replace(minutes=0.2, memory=150.0, files=60)] * CYCLE
    assert growth([*start, *samples()], 10) == []
    assert growth([*start, *samples(QUIET._replace(memory=110.0))], 10) != []


def test_a_short_run_says_nothing():
    assert growth(samples(minutes=9), 10) != []
    assert growth([], 10) != []


def test_the_summary_has_the_figures():
    text = summary(samples(QUIET._replace(memory=101.0)), 10)
    assert "8400 pods bound in 21 minutes" in text
    assert "101.0 MiB at the end (+1.0 %)" in text


@pytest.mark.whole
def test_a_run_measures_the_scheduler(tmp_path: Path) -> None:
    asked = ["--hours=0.003", "--minute=2", "--settle=0.1", "--nodes=20", "--existing=20"]
    command = [sys.executable, "-m", "tests.whole.soak", *asked, "--rate=2"]
    done = subprocess.run(
        [*command, f"--logs={tmp_path / 'logs'}"],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    header, *rows = done.stdout.splitlines()
    assert header == HEADER, done.stderr
    figures = [[float(word) for word in row.split()] for row in rows if "pods bound" not in row]
    assert len(figures) >= 2, done.stderr
    for _, memory, files, tasks, *_ in figures[1:]:
        assert memory > 50
        assert files > 5
        assert tasks > 10
    assert sum(row[5] for row in figures) > 0  # in single rows the extender may answer nobody
    assert "Traceback" not in done.stderr
