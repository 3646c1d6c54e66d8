"""How many nodes to offer to extenders, which ones, and which node wins (spec: plugins.md 7.2 and 7.6)."""

from typing import Final

import numpy as np

from app.state.columns.resources import Int64
from app.state.view import Rows

_MIN_FEASIBLE_NODES: Final = 100
_MIN_PERCENTAGE: Final = 5


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
    winners = np.flatnonzero(totals == totals.max())
    return int(winners[0] if len(winners) == 1 else winners[rng.integers(len(winners))])


def best_first(rows: Rows, totals: Int64, limit: int, rng: np.random.Generator) -> Rows:
    """At most ``limit`` rows in descending order of total, equals in random order."""
    shuffled = rng.permutation(len(rows))
    order = np.argsort(-totals[shuffled], kind="stable")[:limit]
    chosen: Rows = rows[shuffled[order]]
    return chosen
