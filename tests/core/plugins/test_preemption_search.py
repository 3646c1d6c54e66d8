"""Which nodes a preemption tries out: as many as kube-scheduler would, whatever is remembered of them."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from app.framework.testing import make_pod
from app.plugins.default_preemption.candidates import (
    DryRunResults,
    FindingsByFamily,
    search,
)
from app.plugins.default_preemption.dry_run import NO_VICTIMS
from app.runtime.tasks import at_once
from app.wire.extender_v1 import Victims

HOPELESS = NO_VICTIMS
HARMLESS = Victims((make_pod(),), 0)
VIOLATING = Victims((make_pod(),), 1)


class Cluster:
    """Rows of which each has a finding; ``tried`` are the rows of each trial."""

    def __init__(self, findings):
        self.truth = list(findings)
        self.table = SimpleNamespace(generation=np.ones(len(self.truth), np.int64))
        self.known = DryRunResults(None, len(self.truth))
        self.tried = []

    def change(self, row, finding):
        self.truth[row] = finding
        self.table.generation[row] += 1

    def trial(self, rows):
        assert not self.known.fresh(rows, self.table).any(), "nothing is tried twice"
        self.tried.append(rows.tolist())
        return [self.truth[row] for row in rows.tolist()]

    def search(self, rows, enough, most=0):
        steps = search(np.array(rows), enough, self.known, self.trial, self.table, most)
        found, looked_at = at_once(steps)
        assert all(self.known.by_row[row] is self.truth[row] for row in looked_at.tolist())
        return found.tolist(), looked_at.tolist()

    def one_by_one(self, rows, enough):
        """The rule (docs/spec/preemption.md#candidate-nodes): on until there are enough, one of them harmless."""
        harmless, violating, looked_at = [], [], []
        for row in rows:
            looked_at.append(row)
            if self.truth[row] is not HOPELESS:
                (harmless if self.truth[row] is HARMLESS else violating).append(row)
            if harmless and len(harmless) + len(violating) >= enough > 0:
                break
        return harmless[:enough] + violating[:enough], looked_at


@pytest.mark.parametrize("seed", range(30))
def test_finds_what_trying_one_row_after_the_other_finds(seed):
    dice = random.Random(seed)
    kinds = [HOPELESS, *dice.choices([HOPELESS, HARMLESS, VIOLATING], k=3)]
    cluster = Cluster(dice.choices(kinds, k=dice.choice([1, 7, 300])))
    rows = list(range(len(cluster.truth)))
    for _ in range(12):
        start, enough = dice.choice(rows), dice.choice([0, 1, 3, 100])
        order = rows[start:] + rows[:start]
        found = cluster.search(order, enough, most=dice.choice([0, 1, 64]))
        assert found == cluster.one_by_one(order, enough)
        for _ in range(dice.choice([0, 1, 5, 40])):
            cluster.change(dice.choice(rows), dice.choice(kinds))


def test_what_has_changed_on_the_way_is_tried_all_at_once():
    cluster = Cluster([HARMLESS] * 20)
    rows = list(range(20))
    cluster.search(rows, 10)
    assert cluster.tried == [rows[:10]]
    for row in (2, 5, 15):
        cluster.change(row, HOPELESS)
    found, looked_at = cluster.search(rows, 10)
    assert found == [0, 1, 3, 4, 6, 7, 8, 9, 10, 11]
    assert looked_at == rows[:12]
    assert cluster.tried[1] == [2, 5]


def test_a_search_that_disappoints_takes_larger_steps():
    cluster = Cluster([HOPELESS] * 1000)
    assert cluster.search(list(range(1000)), 1) == ([], list(range(1000)))
    assert [len(rows) for rows in cluster.tried] == [1, 64, 128, 256, 512, 39]


def test_findings_last_as_long_as_what_they_follow_from():
    table = SimpleNamespace(size=3)
    families = FindingsByFamily(table)
    template, other = (make_pod(spec={"priority": n}).template for n in range(2))
    known = families.of(template, "today")
    assert families.of(other, "today") is not known
    assert families.of(template, "today") is known
    known = families.of(template, "tomorrow")
    assert families.of(template, "tomorrow") is known
    table.size += 1
    assert families.of(template, "tomorrow") is not known


def test_the_families_that_preempted_last_are_remembered():
    families = FindingsByFamily(SimpleNamespace(size=1))
    templates = [make_pod(spec={"priority": n}).template for n in range(17)]
    first, *others = [families.of(template, None) for template in templates]
    assert [families.of(template, None) for template in templates[1:]] == others
    assert families.of(templates[0], None) is not first
    assert families.of(templates[2], None) is others[1]
    assert families.of(templates[1], None) is not others[0]
