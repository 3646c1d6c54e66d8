"""How many nodes to offer to extenders, which ones, and which node wins (spec: plugins.md 7.2 and 7.6)."""

from typing import Final

import numpy as np

from app.state.columns.resources import Int64
from app.state.view import Rows

_MIN_FEASIBLE_NODES: Final = 100
_MIN_PERCENTAGE: Final = 5
_MAX_SHORT: Final = 2**16 - 1
#: 16-bit numbers in a random word.
_DRAWS_PER_WORD: Final = 4


def feasible_nodes_to_find(nodes: int, percentage: int) -> int:
    """How many feasible nodes kube-scheduler would look for among ``nodes``; percentage 0 is adaptive.

    We judge and score every node; this many of the best are offered to extenders at a time.
    """
    if nodes < _MIN_FEASIBLE_NODES or percentage >= 100:
        return nodes
    if percentage == 0:
        percentage = max(50 - nodes // 125, _MIN_PERCENTAGE)
    return max(nodes * percentage // 100, _MIN_FEASIBLE_NODES)


def best(totals: Int64, rng: np.random.Generator) -> int:
    """The position of the highest total, any of them where several are equal. ``totals`` must not be empty."""
    winners = (totals == totals[totals.argmax()]).nonzero()[0]
    return int(winners[0] if len(winners) == 1 else winners[rng.integers(len(winners))])


def best_first(rows: Rows, totals: Int64, limit: int, rng: np.random.Generator) -> Rows:
    """At most ``limit`` rows in descending order of total, equals in random order. There must be some.

    Sorted twice by keys of 16 bits, for which NumPy has a radix sort: by random ones, then by how far each total is from the
    highest.
    """
    n = len(rows)
    draws = rng.bit_generator.random_raw(n // _DRAWS_PER_WORD + 1).view(np.uint16)[:n]
    shuffled = draws.argsort(kind="stable")
    behind = totals[totals.argmax()] - totals
    if behind[behind.argmax()] <= _MAX_SHORT:
        behind = behind.astype(np.uint16)
    order = behind[shuffled].argsort(kind="stable")[:limit]
    chosen: Rows = rows[shuffled[order]]
    return chosen
