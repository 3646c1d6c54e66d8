"""How many large answers are read at a time."""

import pytest

from app.extender.memory import AnswerMemory

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("memory", "places"), [(0, 1), (128 * MIB, 1), (256 * MIB, 2), (1024 * MIB, 10), (64 << 30, 16)]
)
def test_places_are_a_quarter_of_the_memory(memory, places):
    assert AnswerMemory(memory).places == places
