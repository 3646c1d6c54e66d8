"""Histories of changed objects, as in the long run, but short."""

from random import Random

import pytest

from tests.fuzz import mutations
from tests.fuzz.driver import Figures
from tests.fuzz.mutations import MutatedGuests


@pytest.mark.parametrize("seed", range(3))
def test_a_history(seed):
    """Costs are left to the long run: a test machine is busy."""
    figures = Figures()
    assert mutations.run(seed, 1200, figures, budget=1.0) == []
    assert figures.events >= 1200
    assert figures.results["selected"] >= 40
    assert {"Pod", "Node", "ResourceSlice"} <= figures.highest.keys()


def test_what_is_slow_is_told_with_its_object():
    slow = mutations.run(1, 50, Figures(), budget=0.0)
    assert len(slow) >= 50
    assert any(event is not None and event.text for _, event in slow)


def test_the_same_seed_makes_the_same_events():
    first, second = (MutatedGuests(Random(5)).events(300) for _ in range(2))
    assert first == second
    assert len({event.text for event in first}) > 200
