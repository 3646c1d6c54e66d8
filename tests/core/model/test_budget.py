"""Bytes that several queues share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.framework.testing import make_node, make_pod
from app.model.budget import ByteBudget, memory_of


@given(st.lists(st.integers(0, 60), max_size=20))
def test_never_more_is_taken_than_there_is(sizes):
    budget, taken = ByteBudget(100), []
    for size in sizes:
        if budget.take(size):
            taken.append(size)
        assert budget.used == sum(taken) <= 100
    for size in taken:
        budget.give_back(size)
    assert budget.used == 0


@pytest.mark.parametrize("make", [make_node, make_pod])
def test_the_memory_of_an_object_grows_with_its_labels(make):
    few, many = (
        memory_of(make("n", labels={f"k{i}": "v" * 50 for i in range(n)})) for n in (1, 101)
    )
    assert 100 * 50 < many - few < 100 * 500


@pytest.mark.parametrize("item", [2**70, {(1, 2): 3}, "\ud800", object()])
def test_anything_can_be_asked_about(item):
    assert memory_of(item) > 0


def test_no_object_takes_no_memory():
    assert memory_of(None) == 0
