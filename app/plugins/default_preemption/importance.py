"""Which pods are spared first, and which node loses least (docs/spec/preemption.md#choice-of-the-node).

A pod without status.startTime counts as started last. (kube-scheduler takes the present moment for it, which is the same
unless the clock of a node runs ahead.)
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from app.model.pod import Pod
from app.wire.extender_v1 import Victims

#: Added to every priority so that more victims always sum up to more.
_PRIORITY_OFFSET: Final = 2**31


def _started(pod: Pod) -> float:
    return math.inf if pod.start_time is None else pod.start_time


def by_importance(pods: Iterable[Pod]) -> list[Pod]:
    """The most important first: higher priority, then the earlier start."""
    return sorted(pods, key=lambda pod: (-pod.template.priority, _started(pod)))


class Loss(NamedTuple):
    """What a node loses with its victims; the smaller, the better. The fields decide in their order."""

    violated_budgets: int
    #: Of the first victim.
    priority: int
    priorities: int
    victims: int
    #: When the first of the victims with the highest priority has started, negative: the later, the better.
    started: float


def loss(victims: Victims) -> Loss:
    """What evicting these pods (at least one) costs."""
    pods = victims.pods
    priorities = [pod.priority for pod in pods]
    highest = max(priorities)
    started = min(_started(p) for p, own in zip(pods, priorities, strict=True) if own == highest)
    total = sum(priorities) + len(pods) * _PRIORITY_OFFSET
    return Loss(victims.num_pdb_violations, priorities[0], total, len(pods), -started)
