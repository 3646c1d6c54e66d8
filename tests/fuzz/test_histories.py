"""Guests come, change and go among normal pods. Nothing of them is left, and nobody else is hurt."""

from random import Random

import pytest

from tests.fuzz import driver
from tests.fuzz.histories import Guests, cut_down, from_json, to_json

#: Seconds of CPU that nothing may take here. The long run goes by the real budget, which a busy machine would miss.
GENEROUS = 0.5


@pytest.mark.parametrize("seed", range(10))
def test_histories(seed):
    driver.run(Guests(Random(seed)).events(120), budget=GENEROUS)


@pytest.mark.parametrize("seed", range(3))
def test_histories_of_valid_objects(seed):
    driver.run(Guests(Random(seed), harm=0.0).events(150), budget=GENEROUS)


def test_a_file_tells_the_same_events():
    events = Guests(Random(3)).events(300)
    about, again = from_json(to_json(events, what="x"))
    assert about == {"what": "x"}
    assert again == events


def test_events_are_cut_down_to_those_to_blame():
    events = Guests(Random(4)).events(60)
    blamed = [events[7], events[41]]
    assert cut_down(events, lambda fewer: set(blamed) <= set(fewer)) == blamed


def test_refused_objects_change_nothing():
    refused = driver.refused_objects_change_nothing(Guests(Random(5), harm=0.03).events(250))
    assert refused > 10
