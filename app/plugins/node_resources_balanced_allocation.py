"""NodeResourcesBalancedAllocation: prefers nodes on which the resources are used in equal proportion.

See docs/spec/plugins/node-resources-balanced-allocation.md.
"""

from collections.abc import Hashable
from typing import ClassVar, Final

import numpy as np

from app.framework.handle import Handle
from app.framework.interface import CycleState, NodeLocal
from app.framework.optional import IgnoresOtherPods
from app.model.pod import Pod
from app.model.requests import CPU, MEMORY
from app.model.status import SKIP, SUCCESS, Status
from app.plugins.args import BalancedAllocationArgs
from app.plugins.helpers.device_counts import DeviceCounts
from app.plugins.helpers.resource_score import ZERO, ScoredResources
from app.state.columns.arrays import Float64, Int64
from app.state.columns.labels import Mask
from app.state.view import View

_CPU_AND_MEMORY: Final = (CPU, MEMORY)
_SCORE_STATE: Final = "NodeResourcesBalancedAllocation/score"

_TWO: Final = np.array(2)
_FIFTY: Final = np.array(50)
_ONE: Final = np.array(1.0)
_TWO_PARTS: Final = np.array(2.0)
#: From so many rows on both worlds are computed in turn (see ``_balance_of_two``); for fewer, array calls cost more.
_MANY_ROWS: Final = 1000
#: Up to so many rows numbers are faster than arrays.
_FEW_ROWS: Final = 4
_HUNDRED_PERCENT: Final = np.array(100.0)


class NodeResourcesBalancedAllocation(NodeLocal, IgnoresOtherPods):
    """Scores whether the pod makes the use of a node's resources more balanced (above 75) or less (below)."""

    NAME: ClassVar[str] = "NodeResourcesBalancedAllocation"

    def __init__(self, args: BalancedAllocationArgs | None, handle: Handle) -> None:
        """None for the default arguments."""
        self._args: Final = args or BalancedAllocationArgs()
        self._devices: Final = DeviceCounts(
            handle.table, handle.cluster, [each.name for each in self._args.resources]
        )
        #: int64[size]: the balance of cpu and memory on each row in percent, and the generation at which it was
        #: computed.
        self._balance: Int64 = np.zeros(0, np.int64)
        self._balanced_at = 0

    def epoch(self) -> Hashable:
        """Changes with the devices of scored extended resources."""
        return self._devices.epoch()

    def pre_score(self, state: CycleState, pod: Pod, _view: View) -> Status:
        """Skips pods that request none of the resources."""
        names, worlds = self._worlds(pod)
        if not worlds.any():
            return SKIP
        state.write(_SCORE_STATE, (names, worlds))
        return SUCCESS

    def _worlds(self, pod: Pod) -> tuple[tuple[str, ...], Int64]:
        scored = ScoredResources.of(pod.template.exact_request, self._args.resources)
        return scored.names, _with_and_without(scored.amounts)

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64 | None:
        """int64[n], 50 to 100, from the actual requests. Without PreScore: 0 for pods that it would skip."""
        prepared = state.get(_SCORE_STATE)
        names, worlds = prepared or self._worlds(pod)
        if prepared is None and not worlds.any():
            return None
        capacity, used = self._devices.fill_in(
            names, view, view.allocatable_of(names), view.requested_of(names)
        )
        if len(names) == 2 and np.count_nonzero(capacity) == capacity.size:
            if view.n <= _FEW_ROWS:
                return _scores_of_few(used, worlds, capacity)
            if view.n > _MANY_ROWS:
                score = _balance_of_two(used + worlds[0], capacity)
                score -= self._without(names, view, used, capacity)
            else:
                shares = np.minimum((used + worlds) / capacity, _ONE)
                balance = _percent(_of_two(shares[:, 0], shares[:, 1]))
                score = balance[0] - balance[1]
        else:
            present = capacity != ZERO
            shares = (used + worlds) / np.where(present, capacity, 1)
            balance = _percent(_of_many(np.minimum(shares, _ONE) * present, present))
            score = balance[0] - balance[1]
        score += _FIFTY
        score //= _TWO
        score += _FIFTY
        return score

    def _without(self, names: tuple[str, ...], view: View, used: Int64, capacity: Int64) -> Int64:
        """int64[n]: the balance without the pod, in percent: of all rows, it is kept for the next template."""
        table = view.table
        if names != _CPU_AND_MEMORY or not isinstance(view.at, slice) or view.n != table.size:
            return _balance_of_two(used, capacity)
        if len(self._balance) != view.n:
            self._balance = _balance_of_two(used, capacity)
        else:
            rows = table.rows_since(self._balanced_at)
            if len(rows):
                self._balance[rows] = _balance_of_two(used[:, rows], capacity[:, rows])
        self._balanced_at = table.last_generation
        return self._balance


def _with_and_without(amounts: Int64) -> Int64:
    """int64[2, k, 1]: the pod's amounts (with the pod) and zeros (without)."""
    worlds = np.zeros((2, *amounts.shape), np.int64)
    worlds[0] = amounts
    return worlds


def _balance_of_two(used: Int64, capacity: Int64) -> Int64:
    """int64[n]: the balance of int64[2, n] in percent; the same as ``_percent(_of_two(...))``.

    It is called for the amounts with the pod and without it in turn, and writes over its own arrays: the memory of
    larger temporary arrays is returned to the kernel after each operation, which takes several times as long for 5000
    rows.
    """
    shares: Float64 = used / capacity
    np.minimum(shares, _ONE, out=shares)
    deviation = np.subtract(shares[0], shares[1], out=shares[0])
    np.abs(deviation, out=deviation)
    deviation /= _TWO_PARTS
    np.subtract(_ONE, deviation, out=deviation)
    deviation *= _HUNDRED_PERCENT
    balance: Int64 = deviation.astype(np.int64)
    return balance


def _scores_of_few(used: Int64, worlds: Int64, capacity: Int64) -> Int64:
    """int64[n]: the scores from int64[2, n], with the same operations on numbers, row by row."""
    (more_a,), (more_b,) = worlds[0].tolist()
    scores = []
    for a, b, all_a, all_b in zip(*used.tolist(), *capacity.tolist(), strict=True):
        gained = _balance_of_row(a + more_a, b + more_b, all_a, all_b)
        gained -= _balance_of_row(a, b, all_a, all_b)
        scores.append((gained + 50) // 2 + 50)
    return np.array(scores, np.int64)


def _balance_of_row(a: int, b: int, all_a: int, all_b: int) -> int:
    """The balance of the use of two resources in percent, as ``_balance_of_two``."""
    one, other = min(float(a) / float(all_a), 1.0), min(float(b) / float(all_b), 1.0)
    return int((1.0 - abs(one - other) / 2.0) * 100.0)


def _percent(deviation: Float64) -> Int64:
    """The balance in percent, rounded down."""
    balance: Int64 = ((_ONE - deviation) * _HUNDRED_PERCENT).astype(np.int64)
    return balance


def _of_two(first: Float64, second: Float64) -> Float64:
    """Standard deviation of two fractions, with kube-scheduler's rounding."""
    deviation: Float64 = np.abs(first - second) / _TWO_PARTS
    return deviation


def _of_many(fractions: Float64, present: Mask) -> Float64:
    """float64[2, n]: population standard deviation over the ``present`` (bool[k, n]) of float64[2, k, n].

    Sums run in the order of the resources, because rounding depends on it; absent fractions are 0.
    """
    count = np.maximum(np.add.reduce(present), 1)
    total = np.zeros_like(fractions[:, 0])
    for k in range(len(present)):
        total += fractions[:, k]
    mean = total / count
    squares = np.zeros_like(mean)
    for k in range(len(present)):
        squares += np.where(present[k], fractions[:, k] - mean, 0.0) ** 2
    deviation: Float64 = np.sqrt(squares / count)
    pairs = count == 2
    if pairs.any():
        highest = np.where(present, fractions, -np.inf).max(axis=1)
        lowest = np.where(present, fractions, np.inf).min(axis=1)
        deviation[:, pairs] = _of_two(highest, lowest)[:, pairs]
    deviation[:, count == 1] = 0.0
    return deviation
