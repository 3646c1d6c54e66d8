"""What docs/devices.md shows can be used, and what it says is missing is missing."""

import re
from pathlib import Path

import pytest

from app.cel.devices import compile_error
from app.cel.environment import ABSENT

GUIDE = Path(__file__).parents[3] / "docs" / "devices.md"
EXAMPLES = [
    line
    for block in re.findall(r"```cel\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.parametrize("expression", EXAMPLES)
def test_examples_compile(expression: str) -> None:
    assert compile_error(expression) is None


def test_what_is_missing_is_named() -> None:
    missing = GUIDE.read_text().partition("## What is missing")[2]
    named = set(re.findall(r"`([\w.]+)`", missing.partition(";")[0]))
    assert named | {"bytes"} == ABSENT
