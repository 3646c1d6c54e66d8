"""Thousands of short histories in which everything may fail: none breaks a rule, and each can be repeated."""

import itertools
import os
import subprocess
import sys

import pytest

from tests.histories.__main__ import seeds_from
from tests.histories.playing import play, told
from tests.histories.shape import draw

HISTORIES = int(os.environ.get("HISTORIES", "10000"))
BATCH = 100


@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
def test_no_history_breaks_a_rule(first):
    seeds = range(first, min(first + BATCH, HISTORIES))
    failed = [outcome for outcome in play(seeds) if outcome.violations]
    assert not failed, "\n\n".join(map(told, failed[:3]))


def test_histories_can_be_chosen_by_their_extenders():
    chosen = list(itertools.islice(seeds_from(3, ("limited", "locking")), 5))
    assert chosen == [
        n for n in range(3, chosen[-1] + 1) if {"limited", "locking"} & {*draw(n).extenders}
    ]
    assert list(itertools.islice(seeds_from(3, ()), 2)) == [3, 4]


def test_a_seed_gives_the_same_history_in_every_process():
    """However the process hashes its texts."""
    code = (
        "from tests.histories.playing import play\n"
        "print([outcome.trace for outcome in play(range(20))])"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(traces) == 1
    assert len(set(eval(traces.pop()))) == 20
