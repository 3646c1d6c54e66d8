"""The recorded outcomes of pod groups in kube-scheduler 1.36.2: the same pods bound, conditions and messages.

A scenario whose outcome differs on purpose says why, and has the outcome here as well (docs/differences.md#pod-groups).
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.histories.replica import simulated
from tests.parity.gangs.compare import reason
from tests.parity.gangs.replay import play
from tests.parity.gangs.scenarios import DIFFERENCES, Scenario, read

RECORDED = read()


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield


@pytest.mark.parametrize("scenario", RECORDED, ids=lambda each: f"{each.family}-{each.seed}")
def test_outcomes_agree(scenario: Scenario) -> None:
    expected = scenario.ours if scenario.differs else scenario.outcomes
    for step, found, wanted in zip(scenario.steps, play(scenario), expected, strict=True):
        assert found == wanted, f"after {step}"


def test_each_difference_has_a_reason() -> None:
    different = [each for each in RECORDED if each.differs]
    assert {each.differs for each in different} <= DIFFERENCES.keys()
    assert all(each.ours != each.outcomes for each in different)
    assert len(different) < len(RECORDED) / 10


def test_with_the_groups_of_1_37_other_decisions_have_their_rule() -> None:
    """A part of the scenarios; the counts of all are in docs/differences.md (tests.parity.gangs.compare)."""
    found = Counter(map(reason, RECORDED[::16]))
    assert found.keys() <= {"same", "alike", "whole", "held", "racks"}
    assert found["same"] > 10
    assert found["alike"] > 10
