"""Dictionary-encoded columns of the node table: label values and taint lists.

A label column exists once a selector has asked for its key: one int32 code per row, 0 where the node lacks the label,
and the list of values behind the codes. A requirement is then judged once per distinct value and looked up per row.
"""

import itertools
from collections.abc import Callable, Hashable, Mapping
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from app.model.objects import Taint
from app.model.selectors import Selector

Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
Value = TypeVar("Value", bound=Hashable)

#: Code of a row whose node lacks the label.
MISSING: Final = 0
#: Stands for the code of a value that no node has; no row has it.
NO_CODE: Final = -1
#: So many values are kept before it is looked for those that no row has any more.
_FEW_VALUES: Final = 64
#: Label columns at most; beyond, those that were not asked for lately are dropped.
_MAX_COLUMNS: Final = 512
#: Requirements at most whose truth is remembered by a label column.
_MAX_TABLES: Final = 256


class EncodedColumn(Generic[Value]):
    """One value per row, as int32[capacity] ``codes``; ``values[code]`` is the value, ``values[0]`` that of unused rows.

    Values that no row has any more are dropped from time to time, so that there are about as many as rows at most, however
    many nodes come and go. The others are renumbered then, and ``epoch`` changes: codes, and arrays by code, mean
    something only together with those of the same epoch. Within an epoch values are only added, at the end. Two columns
    that share ``epochs`` never have the same one.
    """

    def __init__(self, capacity: int, unused: Value, epochs: Callable[[], int]) -> None:
        self.codes: Codes = np.zeros(capacity, np.int32)
        self.values: list[Value] = [unused]
        self.epoch = epochs()
        self._epochs: Final = epochs
        self._code_of: dict[Value, int] = {unused: 0}
        self._room = _FEW_VALUES

    def set(self, row: int, value: Value) -> None:
        """Stores the value of a row."""
        code = self._code_of.get(value)
        if code is None:
            if len(self.values) >= self._room:
                self._drop_unused()
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        self.codes[row] = code

    def _drop_unused(self) -> None:
        used = np.zeros(len(self.values), bool)
        used[self.codes] = True
        used[0] = True
        kept = np.flatnonzero(used)
        if len(kept) < len(self.values):
            renumbered = np.zeros(len(self.values), np.int32)
            renumbered[kept] = np.arange(len(kept))
            self.codes = renumbered[self.codes]
            self.values = [self.values[code] for code in kept.tolist()]
            self._code_of = {value: code for code, value in enumerate(self.values)}
            self.epoch = self._epochs()
        self._room = max(_FEW_VALUES, 2 * len(kept))

    def code(self, value: Value) -> int:
        """The code of a value; NO_CODE, which equals no row's, if there is none."""
        return self._code_of.get(value, NO_CODE)

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self.codes = np.concatenate((self.codes, np.zeros(capacity - len(self.codes), np.int32)))


class LabelColumn(EncodedColumn[str | None]):
    """One label key over all rows. ``values[code]`` is the text; MISSING is the code of None, for a missing label."""

    def __init__(self, key: str, capacity: int, epochs: Callable[[], int]) -> None:
        super().__init__(capacity, None, epochs)
        self.key: Final = key
        #: When it was last asked for, as LabelColumns tells the time.
        self.asked = 0
        self._tables: dict[tuple[str, tuple[str, ...]], Mask] = {}
        self._tables_epoch = self.epoch

    def truth(self, operator: str, wanted: tuple[str, ...]) -> Mask:
        """bool[len(values)]: whether the requirement holds, by code."""
        if self._tables_epoch != self.epoch or len(self._tables) >= _MAX_TABLES:
            self._tables.clear()
            self._tables_epoch = self.epoch
        table = self._tables.get((operator, wanted))
        have = 0 if table is None else len(table)
        if table is None or have < len(self.values):
            one = Selector(((self.key, operator, wanted),))
            new = [one.matches({} if v is None else {self.key: v}) for v in self.values[have:]]
            table = np.concatenate(
                (np.zeros(0, bool) if table is None else table, np.array(new, bool))
            )
            self._tables[operator, wanted] = table
        return table


class LabelColumns:
    """The label columns in use, made on demand from the labels of the nodes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._labels: dict[int, Mapping[str, str]] = {}
        self._columns: dict[str, LabelColumn] = {}
        self._epochs: Final = itertools.count().__next__
        #: How many columns were made so far, which serves as a clock.
        self._made = 0

    def __len__(self) -> int:
        return len(self._columns)

    def set(self, row: int, labels: Mapping[str, str]) -> None:
        """Stores the labels of a row."""
        if self._labels.get(row) == labels:
            return
        self._labels[row] = labels
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def clear(self, row: int) -> None:
        """Forgets a row."""
        self._labels.pop(row, None)
        for column in self._columns.values():
            column.set(row, None)

    def column(self, key: str) -> LabelColumn:
        """The column of a key; made now if it was not used lately. Not to be kept while nodes may change."""
        column = self._columns.get(key)
        if column is None:
            column = self._make(key)
        column.asked = self._made
        return column

    def _make(self, key: str) -> LabelColumn:
        if len(self._columns) >= _MAX_COLUMNS:
            by_age = sorted(self._columns.values(), key=lambda column: column.asked)
            for old in by_age[: _MAX_COLUMNS // 4]:
                del self._columns[old.key]
        self._made += 1
        column = self._columns[key] = LabelColumn(key, self._capacity, self._epochs)
        for row, labels in self._labels.items():
            column.set(row, labels.get(key))
        return column

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self._capacity = capacity
        for column in self._columns.values():
            column.grow(capacity)


class TaintSets(EncodedColumn[tuple[Taint, ...]]):
    """The distinct taint lists in the cluster and which one each row has. ``values[0]`` is the empty list."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, (), itertools.count().__next__)
