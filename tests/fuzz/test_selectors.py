"""Whatever is written for a selector of devices, there is an answer or an error."""

import pytest

from tests.fuzz import selecting
from tests.fuzz.driver import Figures


@pytest.mark.parametrize("seed", range(3))
def test_selectors(seed):
    figures = Figures()
    selecting.run(seed, 60, figures, budget=1.0)
    assert {"selector does not compile", "selector True", "selector False"} <= set(figures.results)
