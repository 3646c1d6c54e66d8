"""Resource columns: the amount of each resource by row."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import Final

import numpy as np

from app.model.objects import Node
from app.model.pod import Pod
from app.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, allocatable_units
from app.state.columns.arrays import Int64, Rows
from app.state.columns.sparse import LIMIT, SparseColumns, clamp, largest_sum

#: Up to this many amounts are added one by one, which is faster than array calls.
_FEW: Final = 4
#: The resources that are rows of the matrix.
_BASIC: Final[Mapping[str, int]] = {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 2}


def _index(names: tuple[str, ...]) -> slice | Rows:
    """The index into the matrix for these resources."""
    positions = [_BASIC[name] for name in names]
    first, count = positions[0], len(positions)
    if positions == list(range(first, first + count)):
        return slice(first, first + count)
    return np.array(positions, np.intp)


_BLOCKS: Final = {
    names: _index(names) for count in (1, 2, 3) for names in permutations(_BASIC, count)
}


def offered_by(node: Node) -> dict[str, int]:
    """A node's allocatable amounts by resource, without the number of pods and without zeros."""
    amounts = allocatable_units(node.status.allocatable)
    amounts.pop(PODS, None)
    return {name: amount for name, amount in amounts.items() if amount}


def requested_by(pods: Iterable[Pod]) -> dict[str, int]:
    """The sum of the pods' requests by resource, without zeros."""
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.resources.requested:
            total[name] = total.get(name, 0) + amount
    return {name: amount for name, amount in total.items() if amount}


class ResourceColumns:
    """Amounts per resource and row, in scheduler units (milli-CPUs, bytes, devices).

    ``matrix`` is int64[3, capacity]: cpu, memory and ephemeral-storage. Every other resource has a sparse column,
    which is dropped when no row has the resource. Sums are kept exactly and read clamped to LIMIT.
    """

    def __init__(self, capacity: int) -> None:
        self.matrix: Int64 = np.zeros((len(_BASIC), capacity), np.int64)
        self._capacity = capacity
        self._others: Final = SparseColumns(capacity)
        #: The sums of the matrix beyond LIMIT, by position and row.
        self._beyond: Final[dict[tuple[int, int], int]] = {}
        #: An upper bound of the absolute values in the matrix.
        self._bound = 0

    @property
    def names(self) -> Iterator[str]:
        """The resources of the matrix, and the others that any row has."""
        yield from _BASIC
        yield from self._others

    def rows_with(self, name: str) -> int:
        """How many rows have a resource; those of the matrix count as being on all."""
        if name in _BASIC:
            return self._capacity
        column = self._others.get(name)
        return 0 if column is None else column.used

    def saturated(self, name: str) -> bool:
        """Whether any sum of a resource may be beyond LIMIT."""
        column = self._others.get(name)
        return bool(self._beyond) if column is None else bool(column.saturated)

    def exact(self, name: str, row: int) -> int:
        """The exact amount of a resource on a row."""
        position = _BASIC.get(name)
        if position is not None:
            known = self._beyond.get((position, row))
            return self.matrix.item(position, row) if known is None else known
        column = self._others.get(name)
        return 0 if column is None else column.exact(row)

    # ------------------------------------------------------------ questions

    def column(self, name: str) -> Int64:
        """int64[capacity]: the amounts of one resource. Must not be changed."""
        position = _BASIC.get(name)
        if position is not None:
            basic: Int64 = self.matrix[position]
            return basic
        column = self._others.get(name)
        return np.zeros(self._capacity, np.int64) if column is None else column.column()

    def block(self, names: tuple[str, ...], at: Rows | slice) -> Int64:
        """int64[len(names), rows]: the amounts of several resources at some rows.

        May share memory with the matrix if ``at`` is a slice: must not be changed.
        """
        chosen = _BLOCKS.get(names)
        if chosen is None:
            return self._mixed_block(names, at)
        if isinstance(at, slice):
            return self.matrix[chosen, at]
        if isinstance(chosen, slice):
            return self.matrix[chosen].take(at, axis=1)
        return self.matrix.take(at, axis=1)[chosen]

    def _mixed_block(self, names: tuple[str, ...], at: Rows | slice) -> Int64:
        n = len(range(self._capacity)[at]) if isinstance(at, slice) else len(at)
        block = np.zeros((len(names), n), np.int64)
        for out, name in zip(block, names, strict=True):
            position, column = _BASIC.get(name), self._others.get(name)
            if position is not None:
                out[:] = self.matrix[position][at]
            elif column is not None:
                out[:] = column.at(at)
        return block

    # ------------------------------------------------------------ changes

    def add(self, row: int, amounts: Iterable[tuple[str, int]], sign: int = 1) -> None:
        """Adds (sign 1) or subtracts (sign -1) amounts on a row."""
        matrix = self.matrix
        for name, amount in amounts:
            position = _BASIC.get(name)
            if position is None:
                if amount:
                    self._others.add(name, row, sign * amount)
                continue
            total = matrix.item(position, row) + sign * amount
            if self._beyond or not -self._bound <= total <= self._bound:
                self._add_basic(position, row, sign * amount)
            else:
                matrix[position, row] = total

    def add_at(self, name: str, rows: Rows, amounts: Int64) -> None:
        """Adds one amount of a resource for each of ``rows``, which may contain a row several times."""
        position = _BASIC.get(name)
        if position is None:
            self._others.add_at(name, rows, amounts)
        elif len(rows) > _FEW and self._fits(amounts):
            np.add.at(self.matrix[position], rows, amounts)
        else:
            for row, amount in zip(rows.tolist(), amounts.tolist(), strict=True):
                self._add_basic(position, row, amount)

    def _fits(self, amounts: Int64) -> bool:
        """Whether no sum can exceed LIMIT when these amounts (at least one) are added anywhere."""
        more = largest_sum(amounts)
        if self._bound + more > LIMIT:
            self._bound = max(-int(self.matrix.min()), int(self.matrix.max()))
            if self._bound + more > LIMIT:
                return False
        self._bound += more
        return True

    def _add_basic(self, position: int, row: int, amount: int) -> None:
        key = (position, row)
        total = self._beyond.pop(key, None) if self._beyond else None
        total = (self.matrix.item(key) if total is None else total) + amount
        if abs(total) > self._bound:
            self._bound = min(abs(total), LIMIT)
            if abs(total) > LIMIT:
                self._beyond[key] = total
                total = clamp(total)
        self.matrix[key] = total

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        extra = np.zeros((len(self.matrix), capacity - self._capacity), np.int64)
        self.matrix = np.concatenate((self.matrix, extra), axis=1)
        self._capacity = capacity
        self._others.grow(capacity)
