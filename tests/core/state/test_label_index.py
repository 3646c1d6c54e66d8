"""The index over labels: it leaves no item out, keeps no list of what all have, and forgets what has gone."""

import random

import pytest

from app.model.selectors import NOTHING, Selector
from app.state.columns import label_index
from app.state.columns.label_index import LabelIndex


def selector(*requirements):
    return Selector(tuple(sorted(requirements)))


def random_selector(dice):
    requirements = set()
    for _ in range(dice.randint(0, 2)):
        key, operator = dice.choice("abcd"), dice.choice(("In", "In", "NotIn", "Exists"))
        values = () if operator == "Exists" else tuple(sorted(dice.sample("xyz", 2)))
        requirements.add((key, operator, values))
    return selector(*requirements)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_comes_and_goes_all_that_match_are_found(seed, monkeypatch):
    monkeypatch.setattr(label_index, "_FEW", 3)
    dice = random.Random(seed)
    index, items = LabelIndex(), {}
    for number in range(400):
        if items and dice.random() < (0.3 if number < 250 else 0.6):
            gone = dice.choice(list(items))
            index.remove(gone)
            del items[gone]
        else:
            keys = dice.sample("abcd", dice.randint(0, 4))
            items[number] = {key: dice.choice("xyz") for key in keys}
            index.add(number, items[number])
        wanted = random_selector(dice)
        found = list(index.within(wanted))
        assert len(found) == len(set(found))
        assert set(found) >= {item for item, labels in items.items() if wanted.matches(labels)}
        key = dice.choice("abcd")
        holders = index.holders(key)
        having = {item: labels[key] for item, labels in items.items() if key in labels}
        assert holders == having if holders is not None else len(having) > 3
    for item in list(items):
        index.remove(item)
    assert not index.items
    assert not index._keys
    assert not index._by_value


def test_a_narrow_requirement_looks_at_few_items():
    index = LabelIndex()
    for number in range(1000):
        index.add(number, {"app": f"app-{number % 10}", f"own-{number}": "x", "all": "yes"})
    assert list(index.within(selector(("own-7", "Exists", ()), ("all", "In", ("yes",))))) == [7]
    assert list(index.within(selector(("app", "In", ("app-3",))))) == list(range(3, 1000, 10))
    assert list(index.within(selector(("own-none", "In", ("x",))))) == []
    assert list(index.within(NOTHING)) == []
    assert list(index.within(selector(("all", "Exists", ())))) == list(range(1000))
    assert index.holders("all") is None
    assert index.holders("own-9") == {9: "x"}
