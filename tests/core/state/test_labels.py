"""Encoded columns: whatever nodes come and go, they say what was stored, and hold no more than that."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.objects import Taint
from app.model.selectors import Selector
from app.state.columns import labels as module
from app.state.columns.labels import MISSING, NO_CODE, LabelColumns, TaintSets

ROWS = 6
VALUES = ("", "0", "1", "2", "x", "y", "z")
REQUIREMENTS = [
    ("In", ("x", "y")),
    ("In", ("nobody",)),
    ("NotIn", ("x",)),
    ("Exists", ()),
    ("DoesNotExist", ()),
    ("Gt", ("0",)),
    ("Lt", ("2",)),
]
node_labels = st.dictionaries(st.sampled_from("ab"), st.sampled_from(VALUES), max_size=2)
steps = st.lists(st.tuples(st.integers(0, ROWS - 1), st.none() | node_labels), max_size=60)


@pytest.fixture(autouse=True, scope="module")
def _thrifty():
    """Unused values are dropped as early as can be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW_VALUES", 2)
        yield


def text_at(column, row):
    return column.values[column.codes[row]]


@given(steps, st.sampled_from(REQUIREMENTS))
def test_label_columns_say_what_a_dict_says(steps, requirement):
    columns, rows = LabelColumns(ROWS), {}
    columns.column("a")
    for number, (row, labels) in enumerate(steps):
        if labels is None:
            columns.clear(row)
            rows.pop(row, None)
        else:
            columns.set(row, labels)
            rows[row] = labels
        for key in "ab" if number % 2 else "a":
            column = columns.column(key)
            assert [text_at(column, r) for r in range(ROWS)] == [
                rows.get(r, {}).get(key) for r in range(ROWS)
            ]
            assert (column.codes == MISSING).tolist() == [
                key not in rows.get(r, {}) for r in range(ROWS)
            ]
            one = Selector(((key, *requirement),))
            assert column.truth(*requirement)[column.codes].tolist() == [
                one.matches(rows.get(r, {})) for r in range(ROWS)
            ]
            for value in (*VALUES, "nobody"):
                assert (column.codes == column.code(value)).tolist() == [
                    rows.get(r, {}).get(key) == value for r in range(ROWS)
                ]
            assert len(column.values) <= 2 * (ROWS + 1)


@given(steps)
def test_codes_mean_the_same_for_a_whole_epoch(steps):
    columns, meant = LabelColumns(ROWS), {}
    for row, labels in steps:
        columns.set(row, labels or {})
        for key in "ab":
            column = columns.column(key)
            for code, value in enumerate(column.values):
                assert meant.setdefault((column.epoch, code), (key, value)) == (key, value)


def test_a_value_that_no_node_has_is_not_the_value_of_nodes_without_the_label():
    columns = LabelColumns(ROWS)
    columns.set(0, {"a": "x"})
    column = columns.column("a")
    assert column.code("y") == NO_CODE
    assert not np.count_nonzero(column.codes == column.code("y"))


def test_taint_lists_are_given_back_too():
    sets, epochs = TaintSets(ROWS), set()
    for number in range(100):
        taints = (Taint(key="k", value=str(number), effect="NoSchedule"),)
        sets.set(number % ROWS, taints)
        epochs.add(sets.epoch)
        assert sets.values[sets.codes[number % ROWS]] == taints
        assert sets.values[0] == ()
        assert len(sets.values) <= 2 * (ROWS + 1)
    assert len(epochs) > 5


def test_a_column_nobody_has_asked_for_lately_is_dropped_and_made_again(monkeypatch):
    monkeypatch.setattr(module, "_MAX_COLUMNS", 8)
    columns = LabelColumns(ROWS)
    columns.set(3, {"often": "x", "once": "y"})
    first = columns.column("once").epoch
    for number in range(100):
        assert text_at(columns.column("often"), 3) == "x"
        columns.column(f"key-{number}")
        assert len(columns) <= 8
    columns.set(2, {"once": "z"})
    again = columns.column("once")
    assert [text_at(again, row) for row in (2, 3)] == ["z", "y"]
    assert again.epoch != first
