"""What is said of a few random clusters is what then happens; ``python -m tests.whatif`` plays hundreds, on a real API
server too."""

import asyncio

import pytest

from app.runtime.leaping import LeapingLoop
from tests.whatif.playing import play_embedded


@pytest.mark.parametrize("first", range(0, 24, 8))
def test_what_was_said_happens(first):
    compared = 0
    for seed in range(first, first + 8):
        with asyncio.Runner(loop_factory=LeapingLoop) as runner:
            found = runner.run(play_embedded(seed))
        assert found.wrong == [], f"cluster {seed}"
        compared += found.equal
    assert compared > 10
