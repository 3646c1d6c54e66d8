"""Scores nodes by the storage that a pod's claims would use there (Kubernetes 1.37; KEP-4049).

Claims that would be bound to existing volumes count first; on nodes without any, those that would be provisioned where
the driver reports capacity. For each storage class the part that is used is scored, and the mean of the classes counts.
"""

from typing import Final

import numpy as np

from app.plugins.args import UtilizationShapePoint
from app.plugins.helpers.shape import score_table
from app.plugins.volume_binding.finding import PodVolumes
from app.plugins.volume_binding.matching import in_bytes
from app.plugins.volume_binding.provisioning import Provisioning
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask
from app.state.view import View

#: The node with the most room is the best.
_DEFAULT_SHAPE: Final = (UtilizationShapePoint(0, 10), UtilizationShapePoint(100, 0))
_FULL: Final = 100


class _OfClass:
    """What one class would use on each row: ``requested`` and ``capacity`` in bytes, int64[n]; ``used``: bool[n]."""

    def __init__(self, n: int) -> None:
        self.requested: Final[Int64] = np.zeros(n, np.int64)
        self.capacity: Final[Int64] = np.zeros(n, np.int64)
        self.used: Final[Mask] = np.zeros(n, bool)

    def add(self, where: Mask, requested: int) -> None:
        """Counts a claim on some rows."""
        self.requested[where] += requested
        self.used[where] = True

    def scores(self, table: Int64) -> Int64:
        """int64[n]: the score of the class, 0 where it is not used."""
        fits = (self.capacity > 0) & (self.requested <= self.capacity)
        percent = np.where(fits, self.requested * _FULL // np.maximum(self.capacity, 1), _FULL)
        scored: Int64 = table[percent] * self.used
        return scored


class StorageScorer:
    """Scores plans by a shape."""

    def __init__(self, shape: tuple[UtilizationShapePoint, ...]) -> None:
        """``shape``: empty for the default."""
        self._table: Final = score_table(
            [(point.utilization, point.score) for point in shape or _DEFAULT_SHAPE]
        )

    def scores(self, plan: PodVolumes, view: View, provisioning: Provisioning) -> Int64:
        """int64[n], 0 to 100: the rounded mean over the classes; 0 for rows without data."""
        classes: dict[str, _OfClass] = {}

        def of_class(name: str) -> _OfClass:
            return classes.setdefault(name, _OfClass(view.n))

        static = np.zeros(view.n, bool)
        for match in plan.matches:
            found = ~match.missing
            static |= found
            one = of_class(match.wanted.storage_class.name)
            one.add(found, in_bytes(match.wanted.size or 0))
            one.capacity[found] += match.sizes()[found]
        for wanted, where in plan.to_provision:
            free = provisioning.free(view, wanted)
            if free is None:
                continue
            here = where & ~static & (free >= 0)
            one = of_class(wanted.storage_class.name)
            one.add(here, in_bytes(wanted.size or 0))
            one.capacity[here] = free[here]
        if not classes:
            return static.astype(np.int64)
        total = sum(one.scores(self._table) for one in classes.values())
        count = sum(one.used.astype(np.int64) for one in classes.values())
        mean: Int64 = np.floor(total / np.maximum(count, 1) + 0.5).astype(np.int64)
        return mean
