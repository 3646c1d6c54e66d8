"""Which nodes extenders are shown, and which node wins."""

from collections import Counter

import numpy as np
import pytest

from app.cycle.select import best, best_first

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
