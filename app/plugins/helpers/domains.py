"""Topology domains: the rows that share a value of a node label, and what sits in them as a whole.

A domain is a code of the key's label column; rows that lack the label (code MISSING) are in no domain. Whatever is known
per row becomes an array by code with ``totals``, and whatever is known by code goes back to the rows with ``by_row``.
"""

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from app.state.columns.labels import MISSING, Codes, LabelColumn
from app.state.columns.resources import Int64

_Scalar = TypeVar("_Scalar", bound=np.generic)


def by_row(by_code: npt.NDArray[_Scalar], codes: Codes) -> npt.NDArray[_Scalar]:
    """What ``by_code`` (one entry per code) says of each row."""
    return by_code.take(
        codes, mode="clip"
    )  # all codes are valid: clipping spares NumPy a pass of checks


def totals(column: LabelColumn, codes: Codes, amounts: npt.NDArray[Any]) -> Int64:
    """int64[len(column.values)]: the sum of whole-numbered ``amounts`` (one per row) over each domain; 0 for MISSING."""
    sums = np.bincount(codes, weights=amounts, minlength=len(column.values)).astype(np.int64)
    sums[MISSING] = 0
    return sums
