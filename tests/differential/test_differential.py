"""No change leaves anything behind in a long-lived state that alters a decision."""

import os

import pytest

from app.plugins.inter_pod_affinity.plugin import InterPodAffinity
from app.state.table import NodeTable
from tests.differential.playing import Difference, play

SEQUENCES = int(os.environ.get("DIFFERENTIAL_SEQUENCES", "300"))
BATCH = 50


@pytest.mark.parametrize("first", range(0, SEQUENCES, BATCH))
def test_a_long_lived_state_decides_as_a_new_one(first):
    for seed in range(first, min(first + BATCH, SEQUENCES)):
        try:
            play(seed)
        except Difference as difference:
            pytest.fail(f"sequence {seed}: {difference}")


def play_all(seeds):
    for seed in seeds:
        play(seed)


def test_a_promise_that_is_not_kept_is_found(monkeypatch):
    monkeypatch.setattr(InterPodAffinity, "skips_scoring_steadily", lambda _self, _template: True)
    with pytest.raises(Difference):
        play_all(range(400))


def test_changes_that_are_not_counted_are_found(monkeypatch):
    monkeypatch.setattr(NodeTable, "surroundings", property(lambda _self: (0, 0)))
    with pytest.raises(Difference):
        play_all(range(400))
