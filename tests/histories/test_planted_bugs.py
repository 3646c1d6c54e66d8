"""Defects are found: most of those that the scheduler had, put back, and some others, each within a thousand
histories."""

import pytest

from tests.histories.bugs import BUGS
from tests.histories.playing import play

LIMIT = 1000


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_is_found(bug, record_property):
    found = next((o for o in play(range(LIMIT), bug=bug) if o.violations), None)
    assert found is not None, f"{bug}: not found within {LIMIT} histories"
    record_property("histories", found.seed + 1)
    print(f"{bug}: found by history {found.seed}: {found.violations[0]}")
