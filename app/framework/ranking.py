"""The totals of one template by row, in blocks, so that the best row is found without a pass over all rows.

Each block has its highest total and the number of rows with that total. A change of a row concerns its block alone. Equal
totals have equal chances, as in ``app.scheduler.attempt.best``, which this module equals draw for draw.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from app.state.columns.resources import Int64
from app.state.view import Rows

#: Totals of rows: any signed integers.
Totals = npt.NDArray[np.signedinteger[Any]]

#: The total of rows that are not feasible; totals are never negative.
INFEASIBLE: Final = -1
#: Rows of a block: with 100,000 rows there are about as many blocks.
_BLOCK: Final = 256


class Best(NamedTuple):
    """The chosen row, and the number of feasible rows."""

    row: int
    feasible: int


class Ranking:
    """The totals of all rows; rows that are not feasible have INFEASIBLE."""

    def __init__(self, dtype: np.dtype[np.signedinteger[Any]]) -> None:
        """``dtype`` must hold every total."""
        self._size = 0
        #: dtype[blocks, _BLOCK]; entries behind the last row are INFEASIBLE.
        self._totals: Totals = np.full((0, _BLOCK), INFEASIBLE, dtype)
        #: By block: the highest total, and the number of rows that have it.
        self._highest: Totals = np.zeros(0, dtype)
        self._holders: Int64 = np.zeros(0, np.int64)
        #: The number of feasible rows.
        self.feasible = 0

    @property
    def totals(self) -> Totals:
        """dtype[size]. Must not be changed."""
        return self._totals.reshape(-1)[: self._size]

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return self._totals.nbytes + self._highest.nbytes + self._holders.nbytes

    def fill(self, totals: Totals) -> None:
        """Sets all rows."""
        self._size = len(totals)
        blocks = -(-len(totals) // _BLOCK)
        if len(self._totals) != blocks:
            self._totals = np.empty((blocks, _BLOCK), self._totals.dtype)
        flat = self._totals.reshape(-1)
        flat[: len(totals)] = totals
        flat[len(totals) :] = INFEASIBLE
        self._highest, self._holders = _summed_up(self._totals)
        self.feasible = int(np.count_nonzero(totals >= 0))

    def add(self, amounts: Int64) -> None:
        """Adds int64[size] to the totals of the feasible rows."""
        totals = self.totals
        self.fill(np.where(totals >= 0, totals + amounts, INFEASIBLE))

    def put(self, rows: Rows, totals: Totals) -> None:
        """Sets some rows, each once."""
        flat = self._totals.reshape(-1)
        before = flat[rows]
        self.feasible += int(np.count_nonzero(totals >= 0)) - int(np.count_nonzero(before >= 0))
        flat[rows] = totals
        blocks = np.unique(rows // _BLOCK)
        self._highest[blocks], self._holders[blocks] = _summed_up(self._totals[blocks])

    def put_one(self, row: int, total: int) -> None:
        """Sets one row: the same as ``put``, faster for a few rows."""
        block, place = divmod(row, _BLOCK)
        totals = self._totals[block]
        self.feasible += (total >= 0) - (totals.item(place) >= 0)
        totals[place] = total
        highest = totals.item(totals.argmax())
        self._highest[block] = highest
        self._holders[block] = np.count_nonzero(totals == highest)

    def best(self, rng: np.random.Generator, without: Rows) -> Best | None:
        """A random one of the rows with the highest total; ``without`` (ascending) are not feasible this time.

        None if fewer than two rows are feasible: a single feasible node is not scored.
        """
        if len(without):
            return self._best_without(rng, without)
        if self.feasible < 2:
            return None
        return self._draw(rng, {}, self._highest, self._holders, self.feasible)

    def _best_without(self, rng: np.random.Generator, without: Rows) -> Best | None:
        blocks = np.unique(without // _BLOCK)
        totals = self._totals[blocks]
        places = np.searchsorted(blocks, without // _BLOCK), without % _BLOCK
        feasible = self.feasible - int(np.count_nonzero(totals[places] >= 0))
        if feasible < 2:
            return None
        totals[places] = INFEASIBLE
        highest, holders = self._highest.copy(), self._holders.copy()
        highest[blocks], holders[blocks] = _summed_up(totals)
        changed = dict(zip(blocks.tolist(), totals, strict=True))
        return self._draw(rng, changed, highest, holders, feasible)

    def _draw(
        self,
        rng: np.random.Generator,
        changed: Mapping[int, Totals],
        highest: Totals,
        holders: Int64,
        feasible: int,
    ) -> Best:
        """``changed``: the totals of blocks that differ this time."""
        top = highest.item(highest.argmax())
        blocks = (highest == top).nonzero()[0]
        if len(blocks) == 1:
            block = blocks.item(0)
            winners = holders.item(block)
            draw = int(rng.random() * winners) if winners > 1 else 0
        else:
            chances = holders[blocks].cumsum()
            draw = int(rng.random() * chances.item(-1))
            place = int(chances.searchsorted(draw, side="right"))
            block = blocks.item(place)
            draw -= chances.item(place - 1) if place else 0
        own = changed.get(block)
        own = self._totals[block] if own is None else own
        return Best(block * _BLOCK + (own == top).nonzero()[0].item(draw), feasible)


def _summed_up(totals: Totals) -> tuple[Totals, Int64]:
    """By block of k blocks: the highest total, and the number of rows that have it."""
    highest = totals.max(axis=1)
    return highest, np.count_nonzero(totals == highest[:, None], axis=1)
