"""The importance of pods, and the order of candidate nodes (docs/spec/preemption.md#choice-of-the-node).

A pod without status.startTime counts as started last. (kube-scheduler uses the current time, which is the same unless
a node's clock is ahead.)
"""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from app.model.claims import ClaimKey
from app.model.pod import Pod
from app.model.pod_groups import GroupKey
from app.plugins.default_preemption.budgets import DisruptionBudgets
from app.state.pod_groups import PodGroups
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
    """The loss of evicting these pods; of nobody it is the least."""
    pods = victims.pods
    if not pods:
        return Loss(victims.num_pdb_violations, -_PRIORITY_OFFSET, 0, 0, 0.0)
    priorities = [pod.priority for pod in pods]
    highest = max(priorities)
    started = min(started_at(p) for p, own in zip(pods, priorities, strict=True) if own == highest)
    total = sum(priorities) + len(pods) * _PRIORITY_OFFSET
    return Loss(victims.num_pdb_violations, priorities[0], total, len(pods), -started)


class _Share(NamedTuple):
    """What some of the victims add to a loss. ``started``: of the earliest one with the highest ``priority``."""

    priority: int
    priorities: int
    victims: int
    started: float
    budgets: Counter[ClaimKey]


class WholeLosses:
    """The losses of evicting victims with all other pods of groups that are evicted as a whole.

    Each group is gone through once, however many nodes have its pods. Valid until a pod, a group or a budget changes.
    """

    def __init__(self, groups: PodGroups, budgets: DisruptionBudgets) -> None:
        self._groups: Final = groups
        self._budgets: Final = budgets
        self._known: Final[dict[GroupKey, _Share]] = {}

    def of(self, victims: Victims) -> Loss:
        """The loss of evicting these pods; of nobody it is the least."""
        if not victims.pods:
            return loss(victims)
        units: set[GroupKey] = set()
        alone: list[Pod] = []
        for pod in victims.pods:
            key = self._groups.unit_of(pod)
            if key is None or not self._groups.members(key).scheduled:
                alone.append(pod)
            else:
                units.add(key)
        shares = [self._unit(key) for key in units]
        if alone:
            shares.append(self._share(alone))
        highest = max(share.priority for share in shares)
        return Loss(
            self._budgets.exceeding(sum((share.budgets for share in shares), Counter())),
            highest,
            sum(share.priorities for share in shares),
            sum(share.victims for share in shares),
            -min(share.started for share in shares if share.priority == highest),
        )

    def _unit(self, key: GroupKey) -> _Share:
        known = self._known.get(key)
        if known is None:
            pods = list(self._groups.members(key).scheduled.values())
            known = self._known[key] = self._share(pods)
        return known

    def _share(self, pods: list[Pod]) -> _Share:
        of_pods = loss(Victims(tuple(pods)))
        highest = max(pod.priority for pod in pods)
        return _Share(
            highest, of_pods.priorities, len(pods), -of_pods.started, self._budgets.count(pods)
        )
