"""The importance of pods, and the order of candidate nodes (docs/spec/preemption.md#choice-of-the-node).

A pod without status.startTime counts as started last. (kube-scheduler uses the current time, which is the same unless
a node's clock is ahead.)
"""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

from app.model.pod import Pod
from app.wire.extender_v1 import Victims

_DISRUPTION_TARGET: Final = "DisruptionTarget"
#: Reason of the DisruptionTarget condition that a scheduler gives to its victims.
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
#: Added to every priority so that a sum grows with the number of victims.
_PRIORITY_OFFSET: Final = 2**31


def started_at(pod: Pod) -> float:
    """When the pod started, in seconds since the epoch."""
    return math.inf if pod.start_time is None else pod.start_time


def being_preempted(pod: Pod) -> bool:
    """Whether a scheduler has preempted the pod and it is terminating; the first condition of the type decides."""
    condition = pod.condition(_DISRUPTION_TARGET) if pod.terminating else None
    return condition is not None and (condition.status, condition.reason) == (
        "True",
        PREEMPTION_BY_SCHEDULER,
    )


def by_importance(pods: Iterable[Pod]) -> list[Pod]:
    """Sorts pods by importance: higher priority first, then the earlier start."""
    return sorted(pods, key=lambda pod: (-pod.template.priority, started_at(pod)))


class Loss(NamedTuple):
    """The sort key of candidate nodes, lowest first. Fields are compared in order."""

    violated_budgets: int
    #: The priority of the first victim.
    priority: int
    priorities: int
    victims: int
    #: Negative start time of the earliest victim with the highest priority: later is better.
    started: float


def loss(victims: Victims) -> Loss:
    """The loss of evicting these pods (at least one)."""
    pods = victims.pods
    priorities = [pod.priority for pod in pods]
    highest = max(priorities)
    started = min(started_at(p) for p, own in zip(pods, priorities, strict=True) if own == highest)
    total = sum(priorities) + len(pods) * _PRIORITY_OFFSET
    return Loss(victims.num_pdb_violations, priorities[0], total, len(pods), -started)
