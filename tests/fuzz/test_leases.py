"""Whatever a lease holds, the election goes on, and ends well once the lease is gone."""

import pytest

from tests.fuzz import electing
from tests.fuzz.driver import Figures


@pytest.mark.parametrize("seed", range(3))
def test_leases(seed):
    electing.run(seed, 25, Figures())
