"""Whatever a configuration file holds, it is valid or its mistakes are listed."""

from random import Random

import pytest

from tests.fuzz.configurations import read, text


@pytest.mark.parametrize("harm", [0.0, 0.02, 0.2])
def test_files(harm):
    random = Random(1)
    outcomes = [read(text(random, harm)) for _ in range(40)]
    assert "refused" in outcomes
    assert harm or "valid" in outcomes
