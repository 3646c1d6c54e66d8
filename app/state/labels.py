"""Dictionary-encoded label columns and distinct taint sets of the node table.

A label column exists once a selector has asked for its key: one int32 code per row, 0 where the node lacks the label,
and the list of values behind the codes. A requirement is then judged once per distinct value and looked up per row.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.objects import Taint
from app.model.selectors import Selector

Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

#: Code of a row whose node lacks the label.
MISSING: Final = 0


class LabelColumn:
    """One label key over all rows. ``values[code]`` is the text; ``values[0]`` stands for a missing label."""

    def __init__(self, key: str, capacity: int) -> None:
        self.key: Final = key
        self.codes: Codes = np.zeros(capacity, np.int32)
        self.values: list[str | None] = [None]
        self._code_of: dict[str, int] = {}
        self._tables: dict[tuple[str, tuple[str, ...]], Mask] = {}

    def set(self, row: int, value: str | None) -> None:
        """Stores the label value of a row; None where the node lacks it."""
        self.codes[row] = MISSING if value is None else self._encode(value)

    def code(self, value: str) -> int:
        """The code of a value, MISSING if no node ever had it."""
        return self._code_of.get(value, MISSING)

    def _encode(self, value: str) -> int:
        code = self._code_of.get(value)
        if code is None:
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        return code

    def truth(self, operator: str, wanted: tuple[str, ...]) -> Mask:
        """bool[len(values)]: whether the requirement holds, by code."""
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

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self.codes = np.concatenate((self.codes, np.zeros(capacity - len(self.codes), np.int32)))


class LabelColumns:
    """The label columns in use, made on demand from the labels of the nodes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._labels: dict[int, Mapping[str, str]] = {}
        self._columns: dict[str, LabelColumn] = {}

    def set(self, row: int, labels: Mapping[str, str]) -> None:
        """Stores the labels of a row."""
        self._labels[row] = labels
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def clear(self, row: int) -> None:
        """Forgets a row."""
        self._labels.pop(row, None)
        for column in self._columns.values():
            column.set(row, None)

    def column(self, key: str) -> LabelColumn:
        """The column of a key; made now if this is the first question about it."""
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(key, self._capacity)
            for row, labels in self._labels.items():
                column.set(row, labels.get(key))
        return column

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self._capacity = capacity
        for column in self._columns.values():
            column.grow(capacity)


class TaintSets:
    """The distinct taint lists in the cluster and which one each row has. ``sets[0]`` is the empty list."""

    def __init__(self, capacity: int) -> None:
        self.codes: Codes = np.zeros(capacity, np.int32)
        self.sets: list[tuple[Taint, ...]] = [()]
        self._code_of: dict[tuple[Taint, ...], int] = {(): 0}

    def set(self, row: int, taints: tuple[Taint, ...]) -> None:
        """Stores the taints of a row."""
        code = self._code_of.get(taints)
        if code is None:
            code = self._code_of[taints] = len(self.sets)
            self.sets.append(taints)
        self.codes[row] = code

    def judge(
        self, verdict: Callable[[tuple[Taint, ...]], int], known: list[int]
    ) -> npt.NDArray[np.int64]:
        """int64[len(sets)]: ``verdict`` of each distinct taint list.

        ``known`` holds what was judged before and is extended, so each list is judged once per caller.
        """
        known.extend(verdict(taints) for taints in self.sets[len(known) :])
        return np.array(known, np.int64)

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self.codes = np.concatenate((self.codes, np.zeros(capacity - len(self.codes), np.int32)))
