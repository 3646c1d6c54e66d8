"""Taints and tolerations (docs/spec/matching.md#tolerations).

Nodes share taint lists, so each distinct list is evaluated once and looked up per row.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.devices import DeviceTaint, DeviceToleration
from app.model.objects import Taint, Toleration
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask, TaintIndex
from app.state.view import View

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"

#: Effects for which a node is rejected.
DO_NOT_SCHEDULE: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})

#: The taint that corresponds to spec.unschedulable.
UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


def tolerates(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint) -> bool:
    """Whether a toleration tolerates a taint. Unknown operators never do."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in {"", "Equal"}:
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether any of the tolerations tolerates a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def find_untolerated(taints: Iterable[Taint], tolerations: Collection[Toleration]) -> Taint | None:
    """The first taint that keeps pods away and is not tolerated."""
    for taint in taints:
        if taint.effect in DO_NOT_SCHEDULE and not tolerated(taint, tolerations):
            return taint
    return None


class TaintTable:
    """For each distinct taint list, the number of taints with given effects that a pod template does not tolerate."""

    __slots__ = ("_all_zero", "_effects", "_epoch", "_known", "_table", "_tolerations")

    def __init__(
        self, tolerations: Sequence[Toleration], effects: Collection[str] = DO_NOT_SCHEDULE
    ) -> None:
        self._tolerations = tolerations
        self._effects = effects
        self._epoch = -1
        self._known = 0
        self._table: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._all_zero = True

    def _update(self, view: View) -> None:
        sets = view.table.taints
        if self._epoch == sets.epoch and len(sets.values) == self._known:
            return
        self._epoch, self._known = sets.epoch, len(sets.values)
        self._table = self._count(sets.index, len(sets.values))
        self._all_zero = not np.count_nonzero(self._table)

    def _count(self, index: TaintIndex, lists: int) -> npt.NDArray[np.int32]:
        """int32[lists]; each distinct taint is evaluated once."""
        taints = index.taints
        counted = index.with_effect(self._effects)
        for toleration in self._tolerations:
            value = None if toleration.operator == "Exists" else toleration.value
            for number in index.like(toleration.key, value):
                if counted[number] and tolerates(toleration, taints[number]):
                    counted[number] = False
        owners = index.owners[counted[index.numbers]]
        return np.bincount(owners, minlength=lists).astype(np.int32)

    def rows(self, view: View) -> Int64 | None:
        """int64[n]: the counts of each row; None if all are known to be 0."""
        self._update(view)
        return None if self._all_zero else self._table[view.taints()].astype(np.int64)

    def nonzero(self, view: View) -> Mask | None:
        """bool[n]: whether the row's count is not 0; None if all are 0."""
        self._update(view)
        if self._all_zero:
            return None
        mask: Mask = (self._table != 0)[view.taints()]
        return mask if np.count_nonzero(mask) else None
