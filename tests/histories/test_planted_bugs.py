"""Defects are found: each of those that the scheduler had, put back, within a thousand histories, and some others."""

import pytest

from tests.histories.bugs import BUGS
from tests.histories.playing import play

LIMIT = 1000


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    found = next((o for o in play(range(LIMIT), bug=bug) if o.violations), None)
    assert found is not None
    print(f"{bug}: found by history {found.seed}: {found.violations[0]}")
