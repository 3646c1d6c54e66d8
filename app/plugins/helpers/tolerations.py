"""Taints and tolerations (docs/spec/matching.md#tolerations).

Nodes share few distinct taint lists, so a pod judges each list once and looks the answer up per row.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

import numpy as np

from app.model.devices import DeviceTaint, DeviceToleration
from app.model.objects import Taint, Toleration
from app.state.columns.labels import Mask
from app.state.columns.resources import Int64
from app.state.view import View

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"

#: Effects that keep a pod off a node.
DO_NOT_SCHEDULE: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})

#: What cordoning a node amounts to.
UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


def tolerates(toleration: Toleration | DeviceToleration, taint: Taint | DeviceTaint) -> bool:
    """Whether a toleration tolerates a taint. Operators other than Equal (or none) and Exists never do."""
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


def find_untolerated(
    taints: Iterable[Taint],
    tolerations: Collection[Toleration],
    effects: Collection[str] = DO_NOT_SCHEDULE,
) -> Taint | None:
    """The first taint with one of these effects that is not tolerated."""
    for taint in taints:
        if taint.effect in effects and not tolerated(taint, tolerations):
            return taint
    return None


def count_untolerated(
    taints: Iterable[Taint], tolerations: Collection[Toleration], effects: Collection[str]
) -> int:
    """How many taints with one of these effects are not tolerated."""
    return sum(taint.effect in effects and not tolerated(taint, tolerations) for taint in taints)


def is_untolerated(tolerations: Collection[Toleration]) -> Callable[[tuple[Taint, ...]], int]:
    """A judgement for TaintTable: 1 for taint lists that keep such a pod off a node."""
    return lambda taints: int(find_untolerated(taints, tolerations) is not None)


class TaintTable:
    """What one pod template makes of each distinct taint list: an int64 per list, judged once per epoch of the lists."""

    __slots__ = ("_all_zero", "_epoch", "_judge", "_known", "_table")

    def __init__(self, judge: Callable[[tuple[Taint, ...]], int]) -> None:
        self._judge = judge
        self._epoch = -1
        self._known: list[int] = []
        self._table: Int64 = np.zeros(0, np.int64)
        self._all_zero = True

    def _update(self, view: View) -> None:
        sets = view.taint_sets()
        if self._epoch != view.table.taints.epoch:
            self._epoch = view.table.taints.epoch
            self._known.clear()
        if len(sets) != len(self._known):
            self._known += map(self._judge, sets[len(self._known) :])
            self._table = np.array(self._known, np.int64)
            self._all_zero = not any(self._known)

    def rows(self, view: View) -> Int64 | None:
        """int64[n]: the judgement of each row's taints; None where all of them are 0 without looking."""
        self._update(view)
        return None if self._all_zero else self._table[view.taints()]

    def nonzero(self, view: View) -> Mask | None:
        """bool[n]: the rows judged other than 0; None where there are none."""
        judged = self.rows(view)
        if judged is None or not np.count_nonzero(judged):
            return None
        mask: Mask = judged != 0
        return mask
