"""Common parts of the resource scores: the scored resources of a pod, and the nodes' amounts.

See docs/spec/plugins/node-resources-fit.md#score.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import numpy as np

from app.model.requests import CPU, MEMORY, is_scalar, to_units
from app.plugins.args import ResourceSpec
from app.state.columns.arrays import Int64
from app.state.table import CPU_ROW, MEMORY_ROW
from app.state.view import View

#: Amounts beyond int64 are clamped: no node has as much.
MAX_INT64: Final = 2**63 - 1

# Operations of small arrays with 0-d arrays take half the time of those with Python numbers.
ZERO: Final = np.array(0)
HUNDRED: Final = np.array(100)

_KNOWN_WEIGHTS: Final = 64
_NONZERO_ROWS: Final = {CPU: CPU_ROW, MEMORY: MEMORY_ROW}
_CPU_AND_MEMORY: Final = (CPU, MEMORY)


def column_of(amounts: Iterable[int]) -> Int64:
    """int64[k, 1]: amounts, to be broadcast over the rows."""
    return np.array([[min(amount, MAX_INT64)] for amount in amounts], np.int64).reshape(-1, 1)


class ScoredResources(msgspec.Struct, frozen=True):
    """The scored resources of one pod: k names, the pod's amounts int64[k, 1] in scheduler units, weights int64[k].

    ``total_weight``: int64, 0-d.
    """

    names: tuple[str, ...]
    amounts: Int64
    weights: Int64
    total_weight: Int64
    #: Whether there are two resources, each with weight 1.
    two_alike: bool

    @classmethod
    def of(cls, nanos: Mapping[str, int], configured: Iterable[ResourceSpec]) -> "ScoredResources":
        """Without scalar resources that the pod does not request. ``nanos``: exact requests in nano-units."""
        counted = [
            (resource.name, to_units(resource.name, nanos.get(resource.name, 0)), resource.weight)
            for resource in configured
        ]
        return _scored(
            tuple([(n, amount, w) for n, amount, w in counted if amount or not is_scalar(n)])
        )


@functools.lru_cache(_KNOWN_WEIGHTS)
def _scored(counted: tuple[tuple[str, int, int], ...]) -> ScoredResources:
    """The same for two plugins and for templates with equal requests."""
    names, amounts, weights = zip(*counted, strict=True) if counted else ((), (), ())
    return ScoredResources(names, column_of(amounts), *_weights(weights), weights == (1, 1))


@functools.lru_cache(_KNOWN_WEIGHTS)
def _weights(weights: tuple[int, ...]) -> tuple[Int64, Int64]:
    """The weights and their sum as arrays."""
    array = np.array(weights, np.int64)
    return array, np.array(array.sum())


def nonzero_allocated(view: View, names: tuple[str, ...]) -> Int64:
    """int64[k, n]: the pods' requests on each node; cpu and memory with defaults for absent requests."""
    if names == _CPU_AND_MEMORY:
        return view.nonzero_of_both()
    allocated = view.requested_of(names).copy()
    for position, name in enumerate(names):
        if name in _NONZERO_ROWS:
            allocated[position] = view.nonzero_requested(_NONZERO_ROWS[name])
    return allocated
