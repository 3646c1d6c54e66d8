"""Piecewise linear functions from utilization to scores (docs/spec/plugins/node-resources-fit.md#score)."""

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np

from app.framework.interface import MAX_NODE_SCORE
from app.state.columns.arrays import Int64

#: The highest configured score.
MAX_CUSTOM_PRIORITY_SCORE: Final = 10


def broken_linear(points: Sequence[tuple[int, int]], x: int) -> int:
    """The value at ``x`` of the piecewise linear function through ``points`` (ascending, at least one), constant
    outside.

    Slopes are integer divisions truncated toward zero, rising or falling.
    """
    first_x, first_y = points[0]
    if x <= first_x:
        return first_y
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if x <= x1:
            rise = (y1 - y0) * (x - x0)
            step = abs(rise) // (x1 - x0)
            return y0 + (step if rise >= 0 else -step)
    return points[-1][1]


def score_table(shape: Sequence[tuple[int, int]]) -> Int64:
    """int64[101]: the node score by percent of utilization, for configured points (percent, 0 to 10)."""
    factor = MAX_NODE_SCORE // MAX_CUSTOM_PRIORITY_SCORE
    points = [(utilization, score * factor) for utilization, score in shape]
    return np.array([broken_linear(points, percent) for percent in range(101)], np.int64)
