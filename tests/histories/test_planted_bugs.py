"""Defects are found: most of those that the scheduler had, put back, within a thousand histories, and some others."""

import pytest

from tests.histories.bugs import BUGS
from tests.histories.playing import play

LIMIT = 1000
#: Not found within LIMIT histories yet: the faults they need coincide too rarely, or (the lease) the plant is out of date.
NOT_FOUND = {
    "a refused lookup means not bound",
    "any 404 to a lookup means gone",
    "pods in flight miss what happens",
    "the lease is looked at before the connection is made",
}


def test_what_is_not_found_is_planted():
    assert set(BUGS) >= NOT_FOUND


@pytest.mark.parametrize("bug", sorted(set(BUGS) - NOT_FOUND))
def test_a_planted_bug_is_found(bug):
    found = next((o for o in play(range(LIMIT), bug=bug) if o.violations), None)
    assert found is not None
    print(f"{bug}: found by history {found.seed}: {found.violations[0]}")
