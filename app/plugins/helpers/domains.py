"""Topology domains: sums over the rows that share a value of a node label.

A domain is a code of the key's label column; rows without the label (code MISSING) are in no domain. ``totals`` sums
values per row into an array by code, ``by_row`` looks up an array by code for each row.
"""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from app.state.columns.arrays import Int64
from app.state.columns.labels import MISSING, Codes, LabelColumn

_Scalar = TypeVar("_Scalar", bound=np.generic)


def by_row(by_code: npt.NDArray[_Scalar], codes: Codes) -> npt.NDArray[_Scalar]:
    """``by_code`` (one entry per code) looked up for each row."""
    return by_code.take(codes, mode="clip")  # codes are valid: "clip" avoids the bounds check


def totals(column: LabelColumn, codes: Codes, amounts: npt.NDArray[Any]) -> Int64:
    """int64[len(column.values)]: the sum of the integers ``amounts`` (one per row) over each domain; 0 for MISSING."""
    sums = np.bincount(codes, weights=amounts, minlength=len(column.values)).astype(np.int64)
    sums[MISSING] = 0
    return sums
