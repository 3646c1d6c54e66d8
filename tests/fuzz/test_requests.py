"""Whatever a caller of the endpoints sends, the answer is no failure, and the next caller is served."""

from tests.fuzz import calling
from tests.fuzz.driver import Figures


def test_requests():
    statuses = calling.run(1, 120, Figures())
    assert statuses[b"200"] > 20
    assert statuses[b"400"] > 20
