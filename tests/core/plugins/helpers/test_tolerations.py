import itertools

import numpy as np
import pytest

from app.model.objects import Node, NodeSpec, ObjectMeta, Taint, Toleration
from app.plugins.helpers.tolerations import (
    TaintTable,
    count_untolerated,
    find_untolerated,
    is_untolerated,
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
    assert find_untolerated((soft, TAINT), (), {"PreferNoSchedule"}) is soft
    assert count_untolerated((soft, soft, TAINT), tolerations, {"PreferNoSchedule"}) == 2
    assert tolerated(TAINT, tolerations)
    assert not tolerated(TAINT, ())


def test_a_table_judges_each_taint_list_once():
    nodes = NodeTable()

    def put(name, *taints):
        nodes.set_node(Node(metadata=ObjectMeta(name=name), spec=NodeSpec(taints=taints)))

    judged = []

    def judge(taints):
        judged.append(taints)
        return is_untolerated(())(taints)

    table = TaintTable(judge)
    put("a")
    put("b", Taint("x", "", "PreferNoSchedule"))
    assert table.rows(View.everything(nodes)) is None
    assert table.nonzero(View.everything(nodes)) is None
    put("c", TAINT)
    put("d", TAINT)
    view = View.everything(nodes)
    assert table.rows(view).tolist() == [0, 0, 1, 1]
    assert table.nonzero(view).tolist() == [False, False, True, True]
    assert table.nonzero(View(nodes, np.array([1, 0]))) is None
    assert len(judged) == 3
