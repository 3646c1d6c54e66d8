"""Classes of nodes: rows with equal traits, about one of which a plugin is called that looks across nodes.

From 20,000 rows on this is faster than a pass over all rows (docs/performance.md). Only ``Framework.best`` decides so,
with plugins that are ``ByTraits``.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from app.framework.ranking import Classes
from app.state.columns.arrays import Int64, Rows
from app.state.columns.labels import MISSING, LabelColumn, Mask
from app.state.table import NodeTable
from app.state.view import View

#: Numbers of pods by row of a view: int64[n], at least 0.
Counted = Callable[[View], Int64]
#: From so many rows on plugins that look across nodes are called about one row of each class. With fewer rows all rows
#: are faster.
_CLASSES_FROM: Final = 20_000
#: The most classes of rows (see Trait).
MAX_CLASSES: Final = 32
#: The limits for the values of a trait and the number of traits, which are combined in an integer of 64 bits.
_MOST_VALUES: Final = 2**12
_MOST_TRAITS: Final = 5


def is_large(table: NodeTable) -> bool:
    """Whether calling plugins about classes of rows is faster than about all rows."""
    return table.size >= _CLASSES_FROM


class SampleView(View):
    """A view whose rows stand for others with the same answers: ``numbers`` (int64[n]) of them, each with itself."""

    def __init__(self, table: NodeTable, rows: Rows, numbers: Int64) -> None:
        super().__init__(table, rows)
        self._numbers = numbers

    def take(self, positions: npt.NDArray[np.intp] | Mask) -> "SampleView":
        return SampleView(self.table, self.rows[positions], self._numbers[positions])

    def number_of(self, rows: Mask) -> int:
        return int(self._numbers[rows].sum())


class Trait(msgspec.Struct, frozen=True):
    """Something about rows on which the answers of a plugin that looks across nodes depend.

    To rows with equal traits the plugin answers alike, as long as the table does not change. A trait of a row changes
    with the row, or with the ``key``.
    """

    key: Hashable
    #: int[n], at least 0.
    of: Callable[[View], npt.NDArray[np.integer[Any]]]


def label_trait(column: LabelColumn, counted: Mapping[Hashable, Counted]) -> list[Trait] | None:
    """The traits of rows for answers that depend on the domains of a label.

    They are the domains themselves if these are few, or what is ``counted`` on each row, by a key of its own, if each
    domain is one row; else None.
    """
    if len(column.values) <= MAX_CLASSES:
        return [Trait((column.key, column.epoch), lambda view: view.label(column.key)[1])]
    if not column.unique:
        return None
    return [count_trait(column.key, key, one) for key, one in counted.items()]


def count_trait(label: str, key: Hashable, counted: Counted) -> Trait:
    """The trait of rows for answers that depend on what is counted on the row itself, if it has the label."""

    def of(view: View) -> Int64:
        return np.where(view.label(label)[1] == MISSING, 0, counted(view) + 1)

    return Trait((label, key), of)


class ClassesByTraits:
    """Numbers rows by their traits; rows with equal traits are in one class."""

    def __init__(self, traits: Sequence[Trait]) -> None:
        self._traits = traits
        self._number_of: Final[dict[int, int]] = {}
        #: Whether there are too many classes.
        self.crowded = False

    @property
    def room(self) -> int:
        """Every class is below it."""
        return MAX_CLASSES if self._traits else 1

    def again(self, traits: Sequence[Trait]) -> bool:
        """Whether classes by these traits are the same; if so, the traits are used for further rows."""
        same = self.are_by(traits)
        if same:
            self._traits = traits  # what is counted may be counted elsewhere now
        return same

    def are_by(self, traits: Sequence[Trait]) -> bool:
        """Whether classes by other traits would be the same."""
        if not traits:
            return not self._traits
        return [t.key for t in traits] == [t.key for t in self._traits]

    def of(self, view: View) -> Classes | None:
        """uint8[n]; None if there are no traits or the classes are ``crowded``."""
        if not self._traits or self.crowded:
            return None
        mixed = np.zeros(view.n, np.int64)
        for trait in self._traits:
            values = trait.of(view)
            self.crowded = self.crowded or bool((values >= _MOST_VALUES).any())
            mixed = mixed * _MOST_VALUES + values
        found, places = np.unique(mixed, return_inverse=True)
        known = self._number_of
        if self.crowded or len(found) > MAX_CLASSES or len(self._traits) > _MOST_TRAITS:
            self.crowded = True
            return None
        numbers = [known.setdefault(value, len(known)) for value in found.tolist()]
        self.crowded = len(known) > MAX_CLASSES
        return None if self.crowded else np.array(numbers, np.uint8)[places]
