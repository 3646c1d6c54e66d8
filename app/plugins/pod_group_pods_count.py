"""PodGroupPodsCount: prefers placements that take more pods of the group.

Source: docs/spec/pod-groups.md#topology-aware-placement.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from app.framework.handle import Handle
from app.framework.interface import MAX_NODE_SCORE
from app.framework.placements import Placements
from app.model.pod import Pod
from app.model.status import SchedulingError
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask

NO_PODS: Final = "no pods from pod group are assigned to any of the candidate placements"


class PodGroupPodsCount:
    """Scores a placement by the pods of the group that it takes, with those that have a node already."""

    NAME: ClassVar[str] = "PodGroupPodsCount"

    def __init__(self, _args: object, handle: Handle) -> None:
        self._groups: Final = handle.cluster.pod_groups

    def score_placements(self, _placements: Placements, pods: Sequence[Pod], placed: Mask) -> Int64:
        """int64[k]: the pods of the group in each placement."""
        key = self._groups.key_of(pods[0])
        scheduled = () if key is None else self._groups.members(key).scheduled.keys()
        others = len(set(scheduled).difference(pod.uid for pod in pods))
        count: Int64 = placed.sum(axis=1, dtype=np.int64) + others
        return count

    def normalize_placements(self, scores: Int64) -> Int64:
        """int64[k]: the scores in percent of the highest one. Raises SchedulingError if all are 0."""
        highest = int(scores.max())
        if not highest:
            raise SchedulingError(NO_PODS)
        return scores * MAX_NODE_SCORE // highest

    def grows(self, _pods: Sequence[Pod]) -> bool:
        """More pods score more."""
        return True
