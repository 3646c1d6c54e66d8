"""Which nodes extenders are shown, and which node wins."""

from collections import Counter

import numpy as np
import pytest

from app.cycle.attempt import best, best_first, feasible_nodes_to_find

TOTALS = np.array([10, 30, 20, 30, 0, -5], np.int64)
ROWS = np.array([7, 8, 9, 11, 12, 14])


@pytest.mark.parametrize("spread", [1, 1000, 2**13 + 1, 2**40])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_come_first(spread, seed):
    rng = np.random.default_rng(seed)
    totals = rng.integers(-40, 40, 1000) * spread
    rows = rng.permutation(5000)[:1000]
    chosen = best_first(rows, totals, 420, rng)
    by_row = dict(zip(rows.tolist(), totals.tolist(), strict=True))
    shown = [by_row[row] for row in chosen.tolist()]
    assert len(set(chosen.tolist())) == 420
    assert shown == sorted(totals.tolist(), reverse=True)[:420]


def test_few_rows():
    rng = np.random.default_rng(0)
    assert best_first(ROWS[:1], TOTALS[:1], 100, rng).tolist() == [7]
    assert best_first(ROWS, TOTALS, 100, rng).tolist()[2:] == [9, 7, 12, 14]


def test_equals_take_turns():
    rng = np.random.default_rng(1)
    totals = np.array([5, 9, 5, 5, 5], np.int64)
    places = Counter()
    for _ in range(2000):
        first, *others = best_first(np.arange(5), totals, 3, rng).tolist()
        assert first == 1
        places.update(enumerate(others))
    for place in range(2):
        for row in (0, 2, 3, 4):
            assert 400 < places[place, row] < 600


def test_any_of_the_best_wins():
    rng = np.random.default_rng(2)
    wins = Counter(best(TOTALS, rng) for _ in range(1000))
    assert wins.keys() == {1, 3}
    assert min(wins.values()) > 400
    assert best(np.array([3], np.int64), rng) == 0


@pytest.mark.parametrize(
    ("nodes", "percentage", "expected"),
    [
        pytest.param(99, 5, 99, id="all of a small cluster"),
        pytest.param(100, 5, 100, id="100 at least"),
        pytest.param(5000, 30, 1500, id="the configured share"),
        pytest.param(5000, 1, 100, id="a small share"),
        pytest.param(5000, 100, 5000, id="all of them"),
        pytest.param(125, 0, 100, id="adaptive, 100 at least"),
        pytest.param(1000, 0, 420, id="adaptive: 50 less one for each 125 nodes"),
        pytest.param(5000, 0, 500, id="adaptive, large"),
        pytest.param(6000, 0, 300, id="adaptive, 5 percent at least"),
    ],
)
def test_how_many_nodes_extenders_are_shown(nodes, percentage, expected):
    assert feasible_nodes_to_find(nodes, percentage) == expected
