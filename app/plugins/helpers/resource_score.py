"""What the resource scores share: which resources of a pod count, and what nodes have of them.

See docs/spec/plugins/node-resources-fit.md#score.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import numpy as np

from app.framework.args import ResourceSpec
from app.model.requests import CPU, MEMORY, is_scalar, to_units
from app.state.columns.resources import Int64
from app.state.table import CPU_ROW, MEMORY_ROW
from app.state.view import View

#: Amounts beyond int64 are as good as the largest one: no node has either.
MAX_INT64: Final = 2**63 - 1

# Arrays without dimensions meet small arrays in half the time that Python numbers need.
ZERO: Final = np.array(0)
HUNDRED: Final = np.array(100)

_NONZERO_ROWS: Final = {CPU: CPU_ROW, MEMORY: MEMORY_ROW}
_CPU_AND_MEMORY: Final = (CPU, MEMORY)


def column_of(amounts: Iterable[int]) -> Int64:
    """int64[k, 1]: amounts that meet every row of a block."""
    return np.array([[min(amount, MAX_INT64)] for amount in amounts], np.int64).reshape(-1, 1)


class ScoredResources(msgspec.Struct, frozen=True):
    """The resources that count for one pod: k names, its amounts int64[k, 1] in scheduler units, weights int64[k].

    ``total_weight``: int64 without dimensions.
    """

    names: tuple[str, ...]
    amounts: Int64
    weights: Int64
    total_weight: Int64

    @classmethod
    def of(cls, nanos: Mapping[str, int], configured: Iterable[ResourceSpec]) -> "ScoredResources":
        """Leaves out the scalar resources that the pod does not ask for. ``nanos``: exact requests by name."""
        counted = [
            (resource.name, to_units(resource.name, nanos.get(resource.name, 0)), resource.weight)
            for resource in configured
        ]
        counted = [(n, amount, w) for n, amount, w in counted if amount or not is_scalar(n)]
        weights = np.array([weight for _, _, weight in counted], np.int64)
        return cls(
            tuple(name for name, _, _ in counted),
            column_of(amount for _, amount, _ in counted),
            weights,
            np.array(weights.sum()),
        )


def nonzero_allocated(view: View, names: tuple[str, ...]) -> Int64:
    """int64[k, n]: what pods on each node ask for, for cpu and memory with stand-ins for those that ask for nothing."""
    if names == _CPU_AND_MEMORY:
        return view.nonzero_of_both()
    allocated = view.requested_of(names).copy()
    for position, name in enumerate(names):
        if name in _NONZERO_ROWS:
            allocated[position] = view.nonzero_requested(_NONZERO_ROWS[name])
    return allocated
