"""Gangs that compete for room while everything may fail: none is bound in part, and each runs in the end."""

import os

import pytest

from tests.histories.bugs import GANG_BUGS
from tests.histories.playing import play, told

CONTESTS = int(os.environ.get("CONTESTS", "150"))
BATCH = 50
#: Within so many contests each planted bug must be found.
LIMIT = 100


@pytest.mark.parametrize("first", range(0, CONTESTS, BATCH))
def test_no_contest_breaks_a_rule(first):
    seeds = range(first, min(first + BATCH, CONTESTS))
    failed = [outcome for outcome in play(seeds, contests=True) if outcome.violations]
    assert not failed, "\n\n".join(map(told, failed[:3]))


@pytest.mark.parametrize("bug", sorted(GANG_BUGS))
def test_a_planted_bug_is_found(bug):
    found = next((o for o in play(range(LIMIT), bug=bug, contests=True) if o.violations), None)
    assert found is not None, f"{bug}: not found within {LIMIT} contests"
    print(f"{bug}: found by contest {found.seed}: {found.violations[0]}")
