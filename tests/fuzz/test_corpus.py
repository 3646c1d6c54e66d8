"""What fuzzing has found: each file is a history that once went wrong, and says how."""

from pathlib import Path

import pytest

from tests.fuzz.driver import what_fails
from tests.fuzz.histories import from_json

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.stem)
def test_what_was_found(file):
    about, events = from_json(file.read_bytes())
    error = what_fails(events)
    assert error is None, f"{about['what']}: {error}"
