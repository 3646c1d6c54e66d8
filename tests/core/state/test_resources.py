"""Resource columns: right whatever is added and taken away, and no larger than what they hold."""

import random
import tracemalloc

import numpy as np
import pytest

from app.framework import testing
from app.model.requests import LARGEST
from app.state.columns.resources import ResourceColumns
from app.state.columns.sparse import LIMIT, SparseColumn
from app.state.pod_batch import PodBatch
from app.state.table import NodeTable
from app.state.view import DryRunView, View

BASIC = {"cpu", "memory", "ephemeral-storage"}


def make_node(name, allocatable):
    return testing.make_node(name, status={"allocatable": allocatable})


def make_pod(name, requests):
    container = {"name": "main", "resources": {"requests": requests}}
    return testing.make_pod(name, spec={"containers": [container]})


def clamped(numbers):
    return [max(-LIMIT, min(LIMIT, number)) for number in numbers]


def changes(dice, capacity):
    """(rows, amounts) of single changes and of many at once, some of which are taken back."""
    largest = dice.choice((3, LARGEST, LIMIT))
    for _ in range(dice.randrange(12)):
        size = dice.choice((0, 1, 1, 3, 50))
        rows = dice.choices(range(dice.choice((4, capacity))), k=size)
        amounts = [dice.randint(-largest // 9, largest) for _ in rows]
        yield rows, amounts
        if dice.random() < 0.5:
            yield rows, [-amount for amount in amounts]


@pytest.mark.parametrize("seed", range(60))
def test_a_column_holds_exact_sums_and_shows_them_within_the_limit(seed):
    dice = random.Random(seed)
    column, exact = SparseColumn(70), [0] * 100
    for number, (rows, amounts) in enumerate(changes(dice, 70)):
        if number == 2:
            column.grow(100)
        if len(rows) == 1:
            column.add(rows[0], amounts[0])
        else:
            column.add_at(np.array(rows, np.intp), np.array(amounts, np.int64))
        for row, amount in zip(rows, amounts, strict=True):
            exact[row] += amount
        size = len(column.column())
        assert column.column().tolist() == clamped(exact)[:size]
        assert column.used == np.count_nonzero(exact)
        assert column.saturated == sum(abs(number) > LIMIT for number in exact)
        some = [3, 69, 0, 3]
        assert column.at(np.array(some)).tolist() == clamped([exact[row] for row in some])
        assert column.at(slice(0, 50)).tolist() == clamped(exact[:50])
        assert column.at(np.arange(60)).tolist() == clamped(exact[:60])
        total = np.ones(size, np.int64)
        column.add_to(total, -1)
        assert total.tolist() == [1 - number for number in clamped(exact)[:size]]


@pytest.mark.parametrize("seed", range(60))
def test_resources_are_what_was_added(seed):
    dice = random.Random(seed)
    columns = ResourceColumns(60)
    exact = {name: [0] * 60 for name in ("cpu", "memory", "example.com/x")}
    for _ in range(6):
        name = dice.choice(list(exact))
        for rows, amounts in changes(dice, 60):
            columns.add_at(name, np.array(rows, np.intp), np.array(amounts, np.int64))
            for row, amount in zip(rows, amounts, strict=True):
                exact[name][row] += amount
    for name, numbers in exact.items():
        assert columns.column(name).tolist() == clamped(numbers)
        assert columns.saturated(name) or max(map(abs, numbers)) <= LIMIT
    for at in (slice(0, 4), np.array([5, 1]), np.arange(60)):
        want = [np.array(clamped(numbers))[at].tolist() for numbers in exact.values()]
        assert columns.block(tuple(exact), at).tolist() == want
    known = {"example.com/x"} if any(exact["example.com/x"]) else set()
    assert set(columns.names) == BASIC | known


# ---------------------------------------------------------------- what they cost


def advertised(count):
    """A table of nodes that each offer a resource of their own, with a pod that asks for it."""
    table = NodeTable()
    for number in range(count):
        name = f"example.com/resource-{number}"
        table.set_node(make_node(f"n{number}", {"cpu": "8", "pods": "9", name: "1"}))
        table.add_pod(make_pod(f"p{number}", {name: "1"}).on(f"n{number}"))
    return table


def test_resources_that_only_one_node_has_cost_what_they_hold():
    def taken(count):
        tracemalloc.start()
        table = advertised(count)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size, table

    (small, _), (large, table) = taken(1500), taken(3000)
    assert large < 2.5 * small
    view = View.everything(table)
    names = ("example.com/resource-7", "cpu", "example.com/never")
    np.testing.assert_array_equal(view.requested_of(names)[0].nonzero()[0], [7])
    np.testing.assert_array_equal(view.allocatable_of(names)[1], [8000] * 3000)
    assert not view.allocatable_of(names)[2].any()


def test_resources_are_forgotten_with_their_last_amount():
    table = advertised(200)
    assert len(set(table.allocatable.names)) == len(set(table.requested.names)) == 203
    for number in range(200):
        (pod,) = table.pods_on(f"n{number}")
        table.set_node(make_node(f"n{number}", {"cpu": "8"}))
        table.remove_pod(pod)
    assert set(table.allocatable.names) == set(table.requested.names) == BASIC
    assert View.everything(table).allocatable("cpu").tolist() == [8000] * 200


def test_many_pods_at_once_cost_what_they_ask_for():
    pods = [make_pod(f"p{i}", {"cpu": "1", f"example.com/r-{i}": "2"}) for i in range(999)]
    batch = PodBatch(pods)
    assert set(batch.amounts) == {"cpu"}
    assert batch.rare[5] == (("example.com/r-5", 2),)
    table = NodeTable()
    table.add_pods([pod.on(f"n{i % 40}") for i, pod in enumerate(pods)])
    assert table.requested.column("example.com/r-45")[table.row_of["n5"]] == 2
    rows = np.arange(40)
    view = DryRunView(table, rows)
    view.remove_many(batch, np.arange(999), np.arange(999) % 40)
    assert not any(view.requested(name).any() for name in ("cpu", "example.com/r-5"))
    view.add_many(batch, np.array([5]), np.array([3]))
    assert view.requested("example.com/r-5").nonzero()[0].tolist() == [3]


# ---------------------------------------------------------------- hostile amounts


@pytest.mark.parametrize("resource", ["memory", "example.com/bytes"])
def test_a_node_with_more_asked_of_it_than_an_int64_holds_is_full(resource):
    table = NodeTable()
    table.set_node(make_node("n", {resource: "10", "pods": "1000"}))
    pods = [make_pod(f"p{i}", {resource: "8Ei"}).on("n") for i in range(300)]
    for pod in pods[:150]:
        table.add_pod(pod)
    table.add_pods(pods[150:])
    view = View.everything(table)
    assert view.requested(resource).tolist() == [LIMIT]
    assert view.nonzero_of_both().min() >= 0
    world = DryRunView(table, table.all_rows())
    world.remove_many(PodBatch(pods[1:]), np.arange(299), np.zeros(299, np.intp))
    assert world.requested(resource).tolist() == [LARGEST + 1]
    for pod in pods[1:]:
        table.remove_pod(pod)
    assert view.requested(resource).tolist() == [LARGEST + 1]
    table.remove_pod(pods[0])
    assert view.requested(resource).tolist() == [0]
