import itertools
import random

import numpy as np
import pytest

from app.model.objects import Node, NodeSpec, ObjectMeta, Taint, Toleration
from app.plugins.helpers import tolerations as module
from app.plugins.helpers.tolerations import (
    TaintTable,
    find_untolerated,
    tolerated,
    tolerates,
)
from app.state.table import NodeTable
from app.state.view import View
from tests.core.plugins.twins import taints as twin

TAINT = Taint("key", "value", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration("key", "Equal", "value", "NoSchedule"), True),
        (Toleration("key", "", "value", "NoSchedule"), True),
        (Toleration("key", "Equal", "value", ""), True),
        (Toleration("key", "Equal", "other", "NoSchedule"), False),
        (Toleration("key", "Equal", "value", "NoExecute"), False),
        (Toleration("other", "Equal", "value", "NoSchedule"), False),
        (Toleration("key", "Exists", "", ""), True),
        (Toleration("key", "Exists", "ignored", ""), True),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("", "Equal", "value", ""), True),
        (Toleration("", "", "", ""), False),
        (Toleration("key", "Gt", "1", ""), False),
        (Toleration("key", "Lt", "9", ""), False),
        (Toleration("key", "Unheard", "value", ""), False),
    ],
)
def test_tolerates(toleration, expected):
    assert tolerates(toleration, TAINT) is expected


def test_every_combination_agrees_with_the_twin():
    keys, values = ("", "a", "b"), ("", "x")
    effects = ("", "NoSchedule", "NoExecute", "PreferNoSchedule")
    operators = ("", "Equal", "Exists", "Gt")
    taints = [Taint(*parts) for parts in itertools.product(keys, values, effects[1:])]
    for parts in itertools.product(keys, operators, values, effects):
        toleration = Toleration(*parts)
        for taint in taints:
            assert tolerates(toleration, taint) == twin.tolerates(toleration, taint)


def test_the_first_untolerated_taint_is_found():
    soft = Taint("soft", "", "PreferNoSchedule")
    execute = Taint("run", "", "NoExecute")
    tolerations = (Toleration("key", "Exists"),)
    assert find_untolerated((soft, TAINT, execute), ()) is TAINT
    assert find_untolerated((soft, TAINT, execute), tolerations) is execute
    assert find_untolerated((soft, TAINT), tolerations) is None
    assert tolerated(TAINT, tolerations)
    assert not tolerated(TAINT, ())


def put(nodes, name, *taints):
    nodes.set_node(Node(metadata=ObjectMeta(name=name), spec=NodeSpec(taints=taints)))


def test_a_table_has_the_count_of_each_row():
    nodes, table = NodeTable(), TaintTable(())
    put(nodes, "a")
    put(nodes, "b", Taint("x", "", "PreferNoSchedule"))
    assert table.rows(View.everything(nodes)) is None
    assert table.nonzero(View.everything(nodes)) is None
    put(nodes, "c", TAINT)
    put(nodes, "d", TAINT, Taint("x", "", "NoExecute"), TAINT)
    view = View.everything(nodes)
    assert table.rows(view).tolist() == [0, 0, 1, 3]
    assert table.nonzero(view).tolist() == [False, False, True, True]
    assert table.nonzero(View(nodes, np.array([1, 0]))) is None


@pytest.mark.parametrize("seed", range(10))
def test_tables_agree_with_the_tolerations_whatever_nodes_come_and_go(seed):
    dice = random.Random(seed)
    keys, values, effects = (
        ("a", "b", "c"),
        ("", "x"),
        ("NoSchedule", "NoExecute", "PreferNoSchedule"),
    )
    nodes = NodeTable()
    templates = []
    for _ in range(12):
        tolerations = [
            Toleration(
                dice.choice(("", *keys)),
                dice.choice(("", "Equal", "Exists", "Lt")),
                dice.choice(values),
                dice.choice(("", *effects)),
            )
            for _ in range(dice.randrange(4))
        ]
        wanted = dice.choice(({"NoSchedule", "NoExecute"}, {"PreferNoSchedule"}, {"Other"}))
        templates.append((tolerations, wanted, TaintTable(tolerations, wanted)))
    for step in range(300):
        own = Taint(f"own-{step}", "", dice.choice(effects))
        taints = [
            Taint(*map(dice.choice, (keys, values, effects))) for _ in range(dice.randrange(3))
        ]
        put(nodes, f"n{dice.randrange(9)}", own, *taints)
        view = View.everything(nodes)
        for tolerations, wanted, table in dice.sample(templates, 3):
            counts = [
                sum(
                    taint.effect in wanted and not any(tolerates(t, taint) for t in tolerations)
                    for taint in node.spec.taints
                )
                for node in nodes.nodes
            ]
            rows, failed = table.rows(view), table.nonzero(view)
            assert (rows is None and not any(counts)) or rows.tolist() == counts
            assert (failed is None and not any(counts)) or failed.tolist() == [
                c > 0 for c in counts
            ]
    assert len(nodes.taints.index.taints) < 200


def test_a_toleration_looks_at_few_of_many_taints(monkeypatch):
    nodes = NodeTable()
    for number in range(1000):
        put(nodes, f"n{number}", Taint("dedicated", f"team-{number}", "NoSchedule"))
    looked = []
    real = module.tolerates
    monkeypatch.setattr(module, "tolerates", lambda *pair: looked.append(pair) or real(*pair))
    table = TaintTable((Toleration("dedicated", "Equal", "team-7", "NoSchedule"),))
    assert np.flatnonzero(~table.nonzero(View.everything(nodes))).tolist() == [7]
    assert len(looked) == 1
