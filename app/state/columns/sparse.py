"""A sparse column: one number per row, most of them 0."""

from typing import Final

import numpy as np

from app.state.columns.arrays import Int64, Rows

#: Numbers are clamped to plus or minus this when read: two of them can be added in an int64.
LIMIT: Final = 2**62
#: Up to this many entries a column is a dict; beyond it an array, if that takes less memory.
_FEW: Final = 32
_ROWS_PER_ENTRY: Final = 24


def clamp(number: int) -> int:
    """The number, clamped to LIMIT."""
    return max(-LIMIT, min(LIMIT, number))


def largest_sum(amounts: Int64) -> int:
    """An upper bound of the absolute sum of any of these amounts. Raises ValueError if there are none."""
    return max(-int(amounts.min()), int(amounts.max())) * len(amounts)


class SparseColumns(dict[str, "SparseColumn"]):
    """Sparse columns by name; one without any number is dropped."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity

    def add(self, name: str, row: int, amount: int) -> None:
        """Adds an amount, which may be negative, to the number of a row."""
        column = self._column(name)
        column.add(row, amount)
        if not column.used:
            del self[name]

    def add_at(self, name: str, rows: Rows, amounts: Int64) -> None:
        """Adds one amount for each of ``rows``, which may contain a row several times."""
        column = self._column(name)
        column.add_at(rows, amounts)
        if not column.used:
            del self[name]

    def _column(self, name: str) -> "SparseColumn":
        column = self.get(name)
        if column is None:
            column = self[name] = SparseColumn(self._capacity)
        return column

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self._capacity = capacity
        for column in self.values():
            column.grow(capacity)


class SparseColumn:
    """One number per row, 0 by default. A dict if few rows have a number, else an array.

    Sums are kept exactly, so that what was added can be subtracted again. They are read clamped to LIMIT.
    """

    __slots__ = ("_array", "_capacity", "_most_entries", "_numbers", "saturated", "used")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        #: The most numbers that are kept in a dict.
        self._most_entries = max(_FEW, capacity // _ROWS_PER_ENTRY)
        #: By row: every number other than 0; if there is an array, only those beyond LIMIT.
        self._numbers: dict[int, int] = {}
        self._array: Int64 | None = None
        #: The number of rows with a number other than 0.
        self.used = 0
        #: The number of rows with a number beyond LIMIT.
        self.saturated = 0

    # ------------------------------------------------------------ changes

    def add(self, row: int, amount: int) -> None:
        """Adds an amount, which may be negative, to the number of a row."""
        array, numbers = self._array, self._numbers
        before = numbers.get(row, 0) if array is None else array.item(row)
        after = before + amount
        if self.saturated or not -LIMIT <= after <= LIMIT:
            before, after = self._add_exactly(row, amount)
        elif array is not None:
            array[row] = after
        elif after:
            numbers[row] = after
        else:
            numbers.pop(row, None)
        if not before or not after:
            self._count_used((after != 0) - (before != 0))

    def _add_exactly(self, row: int, amount: int) -> tuple[int, int]:
        """Adds an amount if any number is beyond LIMIT, and returns the exact number before and after it."""
        before = self.exact(row)
        after = before + amount
        self.saturated += (abs(after) > LIMIT) - (abs(before) > LIMIT)
        if self._array is not None:
            self._array[row] = clamp(after)
        if after and (self._array is None or abs(after) > LIMIT):
            self._numbers[row] = after
        else:
            self._numbers.pop(row, None)
        return before, after

    def _count_used(self, change: int) -> None:
        self.used += change
        if change > 0 and self._array is None and self.used > self._most_entries:
            self._to_array()
        elif change < 0 and self._array is not None and 2 * self.used < self._most_entries:
            self._to_dict()

    def add_at(self, rows: Rows, amounts: Int64) -> None:
        """Adds one amount for each of ``rows``, which may contain a row several times."""
        if len(rows) > _FEW:
            array = self._to_array()
            held = max(-int(array.min()), int(array.max()))
            if held + largest_sum(amounts) <= LIMIT:
                np.add.at(array, rows, amounts)
                self.used = int(np.count_nonzero(array))
                return
        for row, amount in zip(rows.tolist(), amounts.tolist(), strict=True):
            self.add(row, amount)

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        if self._array is not None:
            extra = np.zeros(capacity - self._capacity, np.int64)
            self._array = np.concatenate((self._array, extra))
        self._capacity = capacity
        self._most_entries = max(_FEW, capacity // _ROWS_PER_ENTRY)

    def _to_array(self) -> Int64:
        if self._array is None:
            self._array = self.column()
            self._numbers = {r: n for r, n in self._numbers.items() if abs(n) > LIMIT}
        return self._array

    def _to_dict(self) -> None:
        if self._array is not None:
            rows = self._array.nonzero()[0]
            numbers = dict(zip(rows.tolist(), self._array[rows].tolist(), strict=True))
            self._numbers = numbers | self._numbers
            self._array = None

    # ------------------------------------------------------------ questions

    def exact(self, row: int) -> int:
        """The exact number of a row."""
        number = self._numbers.get(row)
        if number is None:
            return 0 if self._array is None else self._array.item(row)
        return number

    def column(self) -> Int64:
        """int64[capacity]: all rows. Must not be changed."""
        if self._array is not None:
            return self._array
        column = np.zeros(self._capacity, np.int64)
        self.add_to(column)
        return column

    def at(self, rows: Rows | slice) -> Int64:
        """int64[n]: the numbers of some rows, in their order. Must not be changed."""
        if self._array is not None:
            return self._array[rows]
        if isinstance(rows, slice) or len(rows) > _FEW:
            return self.column()[rows]
        return np.array([clamp(self._numbers.get(row, 0)) for row in rows.tolist()], np.int64)

    def add_to(self, column: Int64, factor: int = 1) -> None:
        """Adds ``factor`` times the numbers to int64[size], whose entries are the first rows."""
        if self._array is not None:
            column += self._array[: len(column)] * np.int64(factor)
            return
        n, numbers = len(self._numbers), self._numbers.values()
        rows = np.fromiter(self._numbers, np.intp, n)
        found = np.fromiter(map(clamp, numbers) if self.saturated else numbers, np.int64, n)
        column[rows] += found * factor
