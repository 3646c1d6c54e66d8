"""Whether the nodes that a scheduler chooses look like the best ones of a part of the nodes (percentageOfNodesToScore).

A scheduler that looks at K of F feasible nodes chooses a node than which r others are better only if it looked at none
of these: the probability is about (1 - K/F)^r. Over many decisions the ranks r are spread like that, and the best node
is missed as often as that.
"""

import math
from typing import Final

import numpy as np

from app.cycle.attempt import feasible_nodes_to_find

#: A rank that is less probable is none of a sample: one in ten thousand decisions is taken for something else. The
#: nodes that are looked at lie side by side in kube-scheduler's list, so that it is more where they are alike.
_IMPROBABLE: Final = 1e-4
#: -ln of the lowest probability that counts: a single outlier, which may have another reason, does not speak for all
#: decisions.
_MOST: Final = 10.0
#: Standard deviations, and outliers, by which the ranks of all decisions may be higher than those of a sample.
#: Successive parts of the nodes are not independent: three would be passed too often.
_DEVIATIONS: Final = 4.0
_OUTLIERS: Final = 1.0
#: The best nodes were missed so seldom that it is less probable than this: no part of the nodes is looked at.
_TOO_SELDOM: Final = 0.01
#: Decisions that are remembered.
_OBSERVED: Final = 512
#: Percentages that make a difference: from 95 on hardly a node is missed.
_PERCENTAGES: Final = range(95, 0, -1)


class RankHistory:
    """The ranks of the nodes that a scheduler chose lately."""

    def __init__(self) -> None:
        self._number = 0
        #: Of each decision: the feasible nodes, those that are better than the chosen one, and those that are the best.
        self._feasible: Final = np.ones(_OBSERVED)
        self._better: Final = np.zeros(_OBSERVED)
        self._equal: Final = np.ones(_OBSERVED)

    def add(self, feasible: int, better: int, equal: int) -> None:
        """Adds a decision."""
        at = self._number % _OBSERVED
        self._feasible[at], self._better[at], self._equal[at] = feasible, better, equal
        self._number += 1

    def may_be_sampled(self, nodes: int, percentage: int, feasible: int, better: int) -> bool:
        """Whether a node than which ``better`` are better may be the best of those that are looked at, as may be the
        earlier ones."""
        looked_at = feasible_nodes_to_find(nodes, percentage)
        return _is_plausible(looked_at, feasible, better) and self._are_plausible(looked_at)

    def highest_percentage(self, nodes: int, feasible: int, better: int) -> int:
        """The highest percentageOfNodesToScore that may be the reason for a choice; 0 if none can, by this and the
        earlier ones."""
        if not better or not self._are_plausible(feasible_nodes_to_find(nodes, 1)):
            return 0
        for percentage in _PERCENTAGES:
            looked_at = feasible_nodes_to_find(nodes, percentage)
            if _is_plausible(looked_at, feasible, better):
                return percentage if self._misses_enough(looked_at) else 0
        return 0

    def _are_plausible(self, looked_at: int) -> bool:
        """Whether all ranks may be those of samples of this size: they are not too high in sum."""
        number = min(self._number, _OBSERVED)
        rest = 1.0 - looked_at / self._feasible[:number]
        better = self._better[:number]
        some = rest > 0.0
        rest = rest[some]
        weight = -np.log(rest)
        total = np.minimum(better[some] * weight, _MOST).sum() + _MOST * (better[~some] > 0).sum()
        expected = (weight * rest / (1.0 - rest)).sum()
        variance = (weight**2 * rest / (1.0 - rest) ** 2).sum()
        return bool(total <= expected + _DEVIATIONS * math.sqrt(variance) + _OUTLIERS * _MOST)

    def _misses_enough(self, looked_at: int) -> bool:
        """Whether the best nodes are missed as often as by a scheduler that looks at so many, or may be by chance."""
        number = min(self._number, _OBSERVED)
        rest = np.clip(1.0 - looked_at / self._feasible[:number], 0.0, 1.0)
        expected = float((rest ** self._equal[:number]).sum())
        missed = int(np.count_nonzero(self._better[:number])) + 1  # with this one
        term = probability = math.exp(-expected)
        for n in range(1, missed + 1):
            term *= expected / n
            probability += term
        return probability >= _TOO_SELDOM


def _is_plausible(looked_at: int, feasible: int, better: int) -> bool:
    """Whether the best of ``looked_at`` of the feasible nodes has a rank such as this with some probability."""
    if not better:
        return True
    rest = 1.0 - looked_at / feasible
    return rest > 0.0 and rest**better >= _IMPROBABLE
