"""Resource columns: one int64 array per resource over all rows."""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY

Int64 = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

#: How many combinations of resources are remembered by their positions.
_MAX_BLOCKS: Final = 1024


class ResourceColumns:
    """Amounts per resource and row, in scheduler units (milli-CPUs, bytes, devices).

    ``matrix`` is int64[resources, capacity]; the first three resources are cpu, memory and ephemeral-storage, others
    are added when first seen. All instances of one table share ``index``, the resource names by position.
    """

    def __init__(self, index: dict[str, int], capacity: int) -> None:
        self.index: Final = index
        self.matrix: Int64 = np.zeros((len(index), capacity), np.int64)
        self._blocks: dict[tuple[str, ...], slice | Rows] = {}

    @staticmethod
    def new_index() -> dict[str, int]:
        """The resources every table has."""
        return {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 2}

    def column(self, name: str) -> Int64:
        """int64[capacity]: the amounts of one resource; zeros for one that nobody has mentioned."""
        position = self.index.get(name)
        if position is None or position >= len(self.matrix):
            return np.zeros(self.matrix.shape[1], np.int64)
        column: Int64 = self.matrix[position]
        return column

    def block(self, names: tuple[str, ...], at: Rows | slice) -> Int64:
        """int64[len(names), rows]: the amounts of several resources at some rows; zeros for one nobody has mentioned.

        Shares memory with the matrix where ``at`` is a slice: not to be changed.
        """
        chosen = self._blocks.get(names)
        if chosen is None:
            chosen = self._choose(names)
            if chosen is None:
                return np.stack([self.column(name)[at] for name in names])
        if isinstance(at, slice):
            return self.matrix[chosen, at]
        if isinstance(chosen, slice):
            return self.matrix[chosen].take(at, axis=1)
        return self.matrix.take(at, axis=1)[chosen]

    def _choose(self, names: tuple[str, ...]) -> slice | Rows | None:
        """How the matrix is indexed for these resources, remembered; None while it lacks one of them."""
        positions = [self.index.get(name, len(self.matrix)) for name in names]
        if max(positions) >= len(self.matrix):
            return None
        first, count = positions[0], len(positions)
        chosen: slice | Rows = np.array(positions, np.intp)
        if positions == list(range(first, first + count)):
            chosen = slice(first, first + count)
        if len(self._blocks) >= _MAX_BLOCKS:
            self._blocks.clear()
        self._blocks[names] = chosen
        return chosen

    def _position(self, name: str) -> int:
        position = self.index.setdefault(name, len(self.index))
        if position >= len(self.matrix):
            extra = np.zeros((len(self.index) - len(self.matrix), self.matrix.shape[1]), np.int64)
            self.matrix = np.concatenate((self.matrix, extra))
        return position

    def add(self, row: int, amounts: Iterable[tuple[str, int]], sign: int = 1) -> None:
        """Adds (or with sign -1 takes away) amounts on a row."""
        for name, amount in amounts:
            position = self._position(name)  # may replace the matrix, so it comes first
            self.matrix[position, row] += sign * amount

    def add_at(self, rows: Rows, amounts: Mapping[str, Int64]) -> None:
        """Adds amounts by resource, one for each of ``rows``, which may name a row several times."""
        for name, column in amounts.items():
            position = self._position(name)
            np.add.at(self.matrix[position], rows, column)

    def set(self, row: int, amounts: Mapping[str, int]) -> None:
        """Replaces all amounts of a row."""
        self.matrix[:, row] = 0
        self.add(row, amounts.items())

    def of(self, row: int) -> dict[str, int]:
        """The non-zero amounts of a row, for dumps and messages."""
        return {
            name: int(self.matrix[position, row])
            for name, position in self.index.items()
            if position < len(self.matrix) and self.matrix[position, row]
        }

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        extra = np.zeros((len(self.matrix), capacity - self.matrix.shape[1]), np.int64)
        self.matrix = np.concatenate((self.matrix, extra), axis=1)
