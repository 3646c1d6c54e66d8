"""A few of the random cases; ``python -m tests.changes`` plays many."""

import pytest

from tests.changes.playing import play

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("seed", [11, 33, 96, 104, 160, 222, 501488, 803867])
async def test_suggestions_place_the_pod_and_one_change_is_found(seed):
    counts = await play(seed)
    assert counts["pods"] == 1
