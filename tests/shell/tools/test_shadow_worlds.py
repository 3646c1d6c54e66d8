"""Comparisons of the real cluster with the imagined one: in the journal, in the report, in metrics."""

import io
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from app.observe.metrics.series import MetricFamilies
from app.tools.shadow.comparison import WAIT_BOUNDS, Comparison, Figures, Shape
from app.tools.shadow.journal import Journal, read
from app.tools.shadow.report import as_page, as_text, report
from app.tools.shadow.tally import WorldTally
from app.tools.shadow.verdict import Verdict


def figures(cpu: float, **parts: Any) -> Figures:
    given = {
        "nodes": 10,
        "idle_nodes": 1,
        "pods": 50,
        "waiting": 2,
        "utilization": {"cpu": cpu, "memory": 0.5},
        "fragmentation": 0.25,
        "room": [7],
        "preempted": 3,
    }
    return Figures(**(given | parts))


def comparison(at: float, theirs: Figures, mine: Figures) -> Comparison:
    shapes = [Shape(requests={"cpu": 500, "memory": 1 << 30}, pods=40)]
    return Comparison(at=at, shapes=shapes, theirs=theirs, mine=mine)


#: The bucket of waiting times with one second.
SECOND = next(n for n, bound in enumerate(WAIT_BOUNDS) if bound >= 1.0)
LINES = [
    comparison(1.0, figures(0.6, waits={SECOND: 10}), figures(0.6, idle_nodes=3)),
    Verdict(pod="default/p", kind="same", at=2.0),
    comparison(3.0, figures(0.8, waits={SECOND: 30}), figures(0.7, room=[9], fragmentation=0.05)),
]


def test_the_report_has_means_sums_and_the_largest_difference():
    told = report(LINES)
    assert told.pods == 1
    worlds = told.worlds
    assert worlds is not None
    assert (worlds.comparisons, worlds.first, worlds.last) == (2, 1.0, 3.0)
    assert worlds.theirs.utilization == {"cpu": 0.7, "memory": 0.5}
    assert worlds.mine.utilization == {"cpu": 0.65, "memory": 0.5}
    assert worlds.largest_difference == {"cpu": 0.1, "memory": 0.0}
    assert (worlds.theirs.bound, worlds.mine.bound) == (40, 0)
    assert worlds.theirs.wait_seconds.p50 == pytest.approx(1.0, rel=0.3)
    assert worlds.mine.wait_seconds.p50 == 0.0
    assert (worlds.theirs.preempted, worlds.theirs.idle_nodes, worlds.mine.idle_nodes) == (6, 1, 2)
    assert (worlds.theirs.room, worlds.mine.room) == ([7], [9])
    assert worlds.mine.fragmentation == 0.15
    assert "65.0 % (70.0 %) of cpu" in worlds.summary


def test_the_report_has_a_span_and_nothing_without_comparisons():
    later = report(LINES, since=2.5).worlds
    assert later is not None
    assert later.comparisons == 1
    assert report(LINES, since=1.5, until=2.5).worlds is None


async def test_the_journal_keeps_comparisons_among_verdicts(tmp_path):
    journal = Journal(tmp_path, 1 << 20)
    for line in LINES:
        journal.put(line)
    await journal.write()
    assert list(read(tmp_path)) == LINES


def test_people_see_both_clusters():
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(as_text(report(LINES)))
    page = as_page(report(LINES))
    for text in (console.export_text(), page):
        assert "own placements" in text
        assert "cpu in use" in text
        assert "70.0%" in text
        assert "cpu 0.5, memory 1Gi" in text


def test_metrics_show_the_last_comparison_and_count_the_others():
    registry = CollectorRegistry()
    tally = WorldTally(MetricFamilies(registry))
    assert tally.summary() == ""
    for line in LINES:
        if isinstance(line, Comparison):
            tally.count(line)
    text = generate_latest(registry).decode()
    name = "aiokube_scheduler_shadow_world"
    for line in (
        f'{name}_utilization{{resource="cpu",world="mine"}} 0.7',
        f'{name}_fragmentation{{world="mine"}} 0.05',
        f'{name}_idle_nodes{{world="theirs"}} 1.0',
        f'{name}_waiting{{world="theirs"}} 2.0',
        f'{name}_preempted_pods_total{{world="mine"}} 6.0',
        f'{name}_wait_seconds_count{{world="theirs"}} 40.0',
    ):
        assert line in text
    assert "(70.0 %) of cpu" in tally.summary()
