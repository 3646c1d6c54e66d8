"""The recorded outcomes of pod groups under 1.37, with the groups that its API server has: each other decision has its
rule.

    python -m tests.parity.gangs.compare [STEP]

takes every STEP-th scenario and prints how many outcomes are the same, or differ by which rule. What is said about the
groups differs in every scenario in which one waits, so texts are not compared here.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final
from unittest import mock

from app.framework.interface import PodGroupPostFilterResult
from app.model.status import unschedulable
from app.scheduler.group_algorithm import GroupAlgorithm
from app.state.pod_groups import PodGroups
from tests.histories.replica import simulated
from tests.parity.gangs.replay import play, play_newer
from tests.parity.gangs.scenarios import Scenario, read

#: The pods of a group have its priority, and one preemption policy.
ALIKE: Final = "all pods in a single pod group should have the same p"
#: Preemption sees groups as a whole without a gate of its own.
WHOLE: Final = "WorkloadAwarePreemption"
#: Seeds that are tried where the choice between equal nodes is random.
_SEEDS: Final = 16

Outcomes = Sequence[dict[str, Any]]


def reason(scenario: Scenario) -> str:
    """``same``, the rule by which the decisions differ, or ``""`` if none explains them.

    ``racks``: a group with a topology constraint preempts. ``held``: a pod with a scheduling gate holds its group,
    which without that would be decided, or refused as ``alike``.
    """
    recorded = decisions(scenario.ours if scenario.differs else scenario.outcomes)
    outcomes = play_newer(scenario)
    newer = decisions(outcomes)
    if newer == recorded:
        return "same"
    if _unlike(outcomes):
        return "alike"
    if newer == decisions(play(scenario, more_gates=(WHOLE,))):
        return "whole"
    with mock.patch.object(PodGroups, "is_held", return_value=False):
        free = play_newer(scenario)
    if decisions(free) == recorded or _unlike(free):
        return "held"
    with mock.patch.object(GroupAlgorithm, "_preempt_in_a_placement", _preempts_nothing):
        if decisions(play_newer(scenario)) == recorded:
            return "racks"
    seeds = range(1, _SEEDS)
    return "same" if any(decisions(play_newer(scenario, seed=s)) == recorded for s in seeds) else ""


async def _preempts_nothing(*_: object) -> PodGroupPostFilterResult:
    return PodGroupPostFilterResult(unschedulable("as in 1.36"))


def decisions(outcomes: Outcomes) -> list[Any]:
    """Outcomes without texts, and without the name of the condition."""
    return [
        (
            each["bound"],
            sorted(_counted(each["waiting"]).items()),
            [(group, status, why) for group, _, status, why, _ in each["groups"]],
        )
        for each in outcomes
    ]


def _unlike(outcomes: Outcomes) -> bool:
    """Whether a group was refused because its pods differ."""
    return any(ALIKE in text for each in outcomes for text in _texts(each))


def _texts(outcome: dict[str, Any]) -> Iterator[str]:
    """What is said about groups and pods."""
    yield from (text for *_, text in outcome["groups"])
    yield from (text for _, _, text, _ in outcome["waiting"])


def _counted(waiting: Sequence[Sequence[Any]]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for name, why, _, count in waiting:
        counts[name, why] += count
    return counts


def main() -> None:
    """Prints the counts."""
    found: Counter[str] = Counter()
    with simulated():
        for scenario in read()[:: int(sys.argv[1]) if len(sys.argv) > 1 else 1]:
            why = reason(scenario)
            found[why] += 1
            if not why:
                print(f"{scenario.family}-{scenario.seed} is not explained")
    print(dict(found))


if __name__ == "__main__":
    main()
