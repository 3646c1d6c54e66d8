"""The candidate placements of a pod group: sets of nodes of which one has to take the pods."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from app.state.columns.arrays import Int64, Rows
from app.state.columns.labels import MISSING, Mask
from app.state.table import NodeTable
from app.state.view import View


class DomainRoom(msgspec.Struct, frozen=True, rename="camel"):
    """For how many pods of a group there is room on the nodes with one value of the label of its topology
    constraint."""

    name: str
    #: How many pods got a node there, or at most could if it was not ``tried``.
    room: int
    tried: bool
    #: The first message of a pod that got none; empty if it was not tried.
    because: str = ""


class Placements:
    """k placements: the nodes with the same value of a label.

    ``names``: the values. ``rows``: intp[n], the nodes, grouped by placement; ``starts``: intp[k], where each placement
    begins in ``rows``. Both are valid until a node changes.
    """

    def __init__(
        self, table: NodeTable, key: str, names: Sequence[str], rows: Rows, starts: Rows
    ) -> None:
        self.key: Final = key
        self.names: Final = names
        self.rows: Final = rows
        self.starts: Final = starts
        self._table: Final = table

    @classmethod
    def by_label(cls, table: NodeTable, key: str, only: str | None = None) -> "Placements":
        """One placement for each value of a label, or for the value ``only``. Nodes without the label are in none."""
        column = table.labels.column(key)
        codes = column.codes[: table.size]
        chosen = table.exists[: table.size] & (codes != MISSING)
        if only is not None:
            chosen &= codes == column.code(only)
        rows = chosen.nonzero()[0]
        rows = rows[codes[rows].argsort(kind="stable")]
        found, starts = np.unique(codes[rows], return_index=True)
        return cls(table, key, [str(column.values[code]) for code in found.tolist()], rows, starts)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def view(self) -> View:
        """The nodes, in the order of ``rows``."""
        return View(self._table, self.rows)

    @property
    def sizes(self) -> npt.NDArray[np.intp]:
        """intp[k]: the number of nodes of each placement."""
        return np.diff(self.starts, append=len(self.rows))

    def sums(self, values: Int64) -> Int64:
        """int64[..., k]: the sum over each placement of int64[..., n], given in the order of ``rows``."""
        sums: Int64 = np.add.reduceat(values, self.starts, axis=-1)
        return sums

    def take(self, numbers: Sequence[int]) -> "Placements":
        """Some of the placements."""
        ends = np.append(self.starts[1:], len(self.rows))
        parts = [self.rows[self.starts[number] : ends[number]] for number in numbers]
        starts = np.cumsum([0, *map(len, parts)])[:-1]
        names = [self.names[number] for number in numbers]
        return Placements(self._table, self.key, names, np.concatenate(parts), starts)

    def mask(self, number: int) -> Mask:
        """bool[table.size]: the nodes of a placement as the table is now."""
        size, column = self._table.size, self._table.labels.column(self.key)
        mask: Mask = column.codes[:size] == column.code(self.names[number])
        return mask & self._table.exists[:size]
