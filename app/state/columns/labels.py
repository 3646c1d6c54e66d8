"""Dictionary-encoded columns of the node table: label values and taint lists.

A label column is created when a selector first uses its key: one int32 code per row, 0 for nodes without the label,
and the list of values by code. A requirement is evaluated once per distinct value and looked up per row.
"""

import itertools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from app.model.objects import Taint
from app.model.selectors import Selector
from app.state.columns.label_index import LabelIndex

Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
_Value = TypeVar("_Value", bound=Hashable)

#: Code of a row whose node lacks the label.
MISSING: Final = 0
_NO_LABELS: Final[Mapping[str, str]] = {}
#: The code of a value that no node has; no row has this code.
NO_CODE: Final = -1
#: The number of values up to which unused ones are not searched for.
_FEW_VALUES: Final = 64
#: The limits for columns that are created on demand: their number, their bytes together, and a minimum number.
_MAX_COLUMNS: Final = 512
_MAX_COLUMN_BYTES: Final = 2**25
_MIN_COLUMNS: Final = 64
#: The number of label columns for which the sums of one amount are kept; at least 2.
_MAX_SUMS: Final = 3
#: The limit in bytes for the results of requirements that a label column keeps, one byte per requirement and value.
_MAX_TABLE_BYTES: Final = 2**18


def most_columns(capacity: int) -> int:
    """The number of int32[capacity] columns that may be kept; beyond it the least recently used ones are dropped."""
    return min(_MAX_COLUMNS, max(_MIN_COLUMNS, _MAX_COLUMN_BYTES // (4 * capacity)))


class EncodedColumn(Generic[_Value]):
    """One value per row, as int32[capacity] ``codes``; ``values[code]`` is the value, ``values[0]`` that of unused
    rows.

    Unused values are dropped from time to time, so that there are at most about as many values as rows. The others
    are then renumbered and ``epoch`` changes: codes, and arrays by code, must only be combined within one epoch.
    Within an epoch values are only appended. Two columns that share ``epochs`` never have the same epoch.
    """

    def __init__(
        self, capacity: int, unused: _Value, epochs: Callable[[], int] | None = None
    ) -> None:
        """``epochs``: returns the next epoch; None for a column with its own numbering."""
        epochs = epochs or itertools.count().__next__
        self.codes: Codes = np.zeros(capacity, np.int32)
        self.values: list[_Value] = [unused]
        self.epoch = epochs()
        #: Changes whenever the code of any row changes.
        self.version = 0
        self._epochs: Final = epochs
        self._code_of: dict[_Value, int] = {unused: 0}
        self._room = _FEW_VALUES

    def set(self, row: int, value: _Value) -> None:
        """Stores the value of a row."""
        code = self._code_of.get(value)
        if code is None:
            if len(self.values) >= self._room:
                self._drop_unused()
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        if self.codes[row] != code:
            self.codes[row] = code
            self.version += 1

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
            self.version += 1
        self._room = max(_FEW_VALUES, 2 * len(kept))

    def code(self, value: _Value) -> int:
        """The code of a value; NO_CODE, which no row has, if there is none."""
        return self._code_of.get(value, NO_CODE)

    def grow(self, capacity: int) -> None:
        """Extends the column to more rows."""
        if capacity > len(self.codes):
            fresh = np.zeros(capacity - len(self.codes), np.int32)
            self.codes = np.concatenate((self.codes, fresh))


class LabelColumn(EncodedColumn[str | None]):
    """One label key over all rows. ``values[code]`` is the text; MISSING is the code of None, for a missing label."""

    def __init__(self, key: str, capacity: int, epochs: Callable[[], int]) -> None:
        super().__init__(capacity, None, epochs)
        self.key: Final = key
        #: When the column was last used, by the counter of LabelColumns.
        self.asked = 0
        self._tables: dict[tuple[str, tuple[str, ...]], Mask] = {}
        self._tables_epoch = self.epoch
        self._counted_at = -1
        self._present: Mask = np.zeros(1, bool)
        self._labelled = 0
        self._unique = True

    @property
    def present(self) -> Mask:
        """bool[len(values)]: whether any row has the value; False for MISSING. Must not be changed."""
        self._count()
        return self._present

    @property
    def labelled(self) -> int:
        """The number of rows with the label."""
        self._count()
        return self._labelled

    @property
    def unique(self) -> bool:
        """Whether no two rows have the same value."""
        self._count()
        return self._unique

    def _count(self) -> None:
        if self._counted_at != self.version or len(self._present) != len(self.values):
            counts = np.bincount(self.codes, minlength=len(self.values))
            counts[MISSING] = 0
            self._present, self._labelled = counts > 0, int(counts.sum())
            self._unique = not (counts > 1).any()
            self._counted_at = self.version

    def truth(self, operator: str, wanted: tuple[str, ...]) -> Mask:
        """bool[len(values)]: whether the requirement holds, by code."""
        size = len(self._tables) * len(self.values)
        if self._tables_epoch != self.epoch or size > _MAX_TABLE_BYTES:
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


class _Sums:
    """The sums of one label column, as of one version of it."""

    __slots__ = ("by_code", "column", "version")

    def __init__(self, column: LabelColumn, amounts: npt.NDArray[np.integer[Any]]) -> None:
        self.column: Final = column
        self.version = column.version
        size = len(column.values)
        sums = np.bincount(column.codes[: len(amounts)], weights=amounts, minlength=size)
        sums[MISSING] = 0
        self.by_code: npt.NDArray[np.int64] = sums.astype(np.int64)

    def holds(self, column: LabelColumn) -> bool:
        """Whether the sums are those of this column as it is."""
        same = self.column is column and self.version == column.version
        return same and len(self.by_code) == len(column.values)


class DomainSums:
    """Sums of an amount per row over the domains of label columns, updated when an amount changes."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[_Sums] = []

    def add(self, row: int, amount: int) -> None:
        """The amount of a row has grown by ``amount``."""
        for sums in self._kept:
            column = sums.column
            if sums.version == column.version and row < len(column.codes):
                code = column.codes.item(row)
                if code != MISSING:
                    sums.by_code[code] += amount
            else:
                sums.version = -1

    def of(
        self, column: LabelColumn, amounts: Callable[[], npt.NDArray[np.integer[Any]]]
    ) -> npt.NDArray[np.int64]:
        """int64[len(column.values)], a fresh array; 0 for MISSING. ``amounts`` returns the present amounts by row."""
        for sums in self._kept:
            if sums.holds(column):
                return sums.by_code.copy()
        made = _Sums(column, amounts())
        kept = [one for one in self._kept if one.column.key != column.key and one.version >= 0]
        self._kept = [*kept[1 - _MAX_SUMS :], made]
        return made.by_code.copy()


class LabelColumns:
    """The label columns in use, created on demand."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        #: The labels of each row.
        self._labels: Final[LabelIndex[int]] = LabelIndex()
        self._columns: dict[str, LabelColumn] = {}
        self._epochs: Final = itertools.count().__next__
        #: The number of columns created so far; serves as a clock.
        self._made = 0

    def __len__(self) -> int:
        return len(self._columns)

    def set(self, row: int, labels: Mapping[str, str]) -> None:
        """Sets the labels of a row."""
        before = self._labels.items.get(row, _NO_LABELS)
        if before == labels:
            return
        if before:
            self._labels.remove(row)
        if labels:
            self._labels.add(row, labels)
        for key in before.keys() | labels.keys():
            column = self._columns.get(key)
            if column is not None:
                column.set(row, labels.get(key))

    def clear(self, row: int) -> None:
        """Removes the labels of a row."""
        self.set(row, _NO_LABELS)

    def column(self, key: str) -> LabelColumn:
        """The column of a key, created if necessary. Must not be kept when nodes may change."""
        column = self._columns.get(key)
        if column is None:
            column = self._make(key)
        column.asked = self._made
        return column

    def _make(self, key: str) -> LabelColumn:
        most = most_columns(self._capacity)
        if len(self._columns) >= most:
            by_age = sorted(self._columns.values(), key=lambda column: column.asked)
            for old in by_age[: len(by_age) - most + most // 4]:
                del self._columns[old.key]
        self._made += 1
        column = self._columns[key] = LabelColumn(key, self._capacity, self._epochs)
        holders = self._labels.holders(key)
        if holders is None:
            for row, labels in self._labels.items.items():
                column.set(row, labels.get(key))
        else:
            for row, value in holders.items():
                column.set(row, value)
        return column

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self._capacity = capacity
        for column in self._columns.values():
            column.grow(capacity)


class TaintSets(EncodedColumn[tuple[Taint, ...]]):
    """The distinct taint lists, and the list of each row by code. ``values[0]`` is the empty list."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, ())
        self._index = TaintIndex(self.epoch)

    @property
    def index(self) -> "TaintIndex":
        """The taints of all lists; valid until a node changes."""
        if self._index.epoch != self.epoch:
            self._index = TaintIndex(self.epoch)
        self._index.read(self.values)
        return self._index


class TaintIndex:
    """The distinct taints of the lists of one epoch, numbered in order of appearance.

    ``owners`` and ``numbers``: intp[m], the code of the list and the number of the taint for every entry of every list.
    """

    __slots__ = (
        "_by_key",
        "_by_pair",
        "_effect_codes",
        "_effects",
        "_number_of",
        "_read",
        "epoch",
        "numbers",
        "owners",
        "taints",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch: Final = epoch
        self.taints: Final[list[Taint]] = []
        self.owners: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self.numbers: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        self._number_of: Final[dict[Taint, int]] = {}
        #: Codes of the effects, and the code of each taint's effect.
        self._effect_codes: Final[dict[str, int]] = {}
        self._effects: Codes = np.zeros(0, np.int32)
        self._by_key: Final[dict[str, list[int]]] = {}
        self._by_pair: Final[dict[tuple[str, str], list[int]]] = {}
        #: The number of lists that have been read.
        self._read = 0

    def read(self, lists: Sequence[tuple[Taint, ...]]) -> None:
        """Reads the new lists."""
        if len(lists) == self._read:
            return
        entries = [
            (code, self._number(taint))
            for code in range(self._read, len(lists))
            for taint in lists[code]
        ]
        self._read = len(lists)
        codes = self._effect_codes
        effects = [
            codes.setdefault(taint.effect, len(codes))
            for taint in self.taints[len(self._effects) :]
        ]
        self._effects = np.concatenate((self._effects, np.array(effects, np.int32)))
        fresh = np.array(entries, np.intp).reshape(-1, 2)
        self.owners = np.concatenate((self.owners, fresh[:, 0]))
        self.numbers = np.concatenate((self.numbers, fresh[:, 1]))

    def _number(self, taint: Taint) -> int:
        number = self._number_of.get(taint)
        if number is None:
            number = self._number_of[taint] = len(self.taints)
            self.taints.append(taint)
            self._by_key.setdefault(taint.key, []).append(number)
            self._by_pair.setdefault((taint.key, taint.value), []).append(number)
        return number

    def with_effect(self, effects: Iterable[str]) -> Mask:
        """bool[number of taints]: which taints have one of these effects; a fresh array."""
        mask = np.zeros(len(self.taints), bool)
        for effect in effects:
            mask |= self._effects == self._effect_codes.get(effect, NO_CODE)
        return mask

    def like(self, key: str, value: str | None) -> Sequence[int]:
        """The numbers of the taints with this key (empty: any) and this value (None: any)."""
        if not key:
            return range(len(self.taints))
        if value is None:
            return self._by_key.get(key, ())
        return self._by_pair.get((key, value), ())
