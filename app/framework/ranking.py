"""The totals of one template by row, in blocks, so that the best row is found without a pass over all rows.

Each block has its highest total and the number of rows with that total. A change of a row concerns its block alone.
Equal
totals have equal chances, as in ``app.cycle.attempt.best``, which this module equals draw for draw.

Rows may be in classes: plugins that look across nodes then add one score for each class, or reject it. Each block has
its
highest total for each class.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from app.state.columns.arrays import Int64, Rows

#: Totals of rows: any signed integers.
Totals = npt.NDArray[np.signedinteger[Any]]
#: The class of each row, or any other small numbers.
Classes = npt.NDArray[np.uint8]

#: The total of rows that are not feasible; totals are never negative.
INFEASIBLE: Final = -1
#: Rows of a block: with 100,000 rows there are about as many blocks.
_BLOCK: Final = 256
#: Less than any total with the scores of its class.
_REJECTED: Final = -(2**62)
_NO_ROWS: Final = np.zeros(0, np.intp)


class Best(NamedTuple):
    """The chosen row, and the number of feasible rows."""

    row: int
    feasible: int


class _Samples(NamedTuple):
    """A feasible row of each class that has one: the classes, the rows, and the numbers of feasible rows."""

    classes: npt.NDArray[np.intp]
    rows: Rows
    numbers: Int64


class Ranking:
    """The totals of all rows; rows that are not feasible have INFEASIBLE."""

    def __init__(self, dtype: np.dtype[np.signedinteger[Any]]) -> None:
        """``dtype`` must hold every total."""
        self._size = 0
        #: dtype[blocks, _BLOCK]; entries behind the last row are INFEASIBLE.
        self._totals: Totals = np.full((0, _BLOCK), INFEASIBLE, dtype)
        #: The same for the classes; None: there is one class.
        self._classes: Classes | None = None
        #: Whether the blocks of a ranking without classes are summed up: the first choice after ``fill`` does not need
        #: it.
        self._summed = True
        #: By class and block: the highest total, and the number of rows that have it.
        self._highest: Totals = np.zeros((1, 0), dtype)
        self._holders: Totals = np.zeros((1, 0), np.int16)
        #: The number of feasible rows by class.
        self._feasible: Int64 = np.zeros(1, np.int64)
        #: What the last choice added to the totals by class; _REJECTED for rejected classes. None: nothing.
        self._added: Int64 | None = None

    @property
    def totals(self) -> Totals:
        """dtype[size]. Must not be changed."""
        return self._totals.reshape(-1)[: self._size]

    @property
    def feasible(self) -> int:
        """The number of feasible rows."""
        feasible = self._feasible
        return feasible.item() if len(feasible) == 1 else int(feasible.sum())

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        classes = 0 if self._classes is None else self._classes.nbytes
        return self._totals.nbytes + self._highest.nbytes + self._holders.nbytes + classes

    @property
    def _classes_by_row(self) -> Classes | None:
        return None if self._classes is None else self._classes.reshape(-1)[: self._size]

    def compared(self) -> tuple[Rows, Int64]:
        """The rows among which the last choice was made, and the totals that it compared."""
        totals = self.totals.astype(np.int64)
        if self._added is not None:
            classes = self._classes_by_row
            added = self._added if classes is None else self._added[classes]
            totals = np.where((totals >= 0) & (added > _REJECTED), totals + added, INFEASIBLE)
        rows = (totals >= 0).nonzero()[0]
        return rows, totals[rows]

    # ------------------------------------------------------------ changes

    def fill(self, totals: Totals, classes: Classes | None = None, count: int = 1) -> None:
        """Sets all rows. ``classes``: uint8[size], below ``count``; None: all rows are in class 0."""
        size = self._size = len(totals)
        blocks = -(-size // _BLOCK)
        padded = np.full((blocks, _BLOCK), INFEASIBLE, self._totals.dtype)
        padded.reshape(-1)[:size] = totals
        self._totals, self._classes, self._added = padded, None, None
        self._feasible = np.zeros(count, np.int64)
        self._summed = classes is not None
        if classes is None:
            self._feasible[0] = np.count_nonzero(totals >= 0)
            return
        self._highest = np.full((count, blocks), INFEASIBLE, self._totals.dtype)
        self._holders = np.zeros((count, blocks), np.int16)
        self._classes = np.zeros((blocks, _BLOCK), np.uint8)
        self._classes.reshape(-1)[:size] = classes
        self._feasible += np.bincount(classes[totals >= 0], minlength=count)
        for number in range(int(classes.max(initial=0)) + 1):
            own = np.where(self._classes == number, padded, padded.dtype.type(INFEASIBLE))
            self._highest[number], self._holders[number] = _summed_up(own)

    def _sum_up(self) -> None:
        """Sums up the blocks of a ranking without classes, unless that was done."""
        if not self._summed:
            self._summed, shape = True, (len(self._feasible), len(self._totals))
            self._highest = np.full(shape, INFEASIBLE, self._totals.dtype)
            self._holders = np.zeros(shape, np.int16)
            self._highest[0], self._holders[0] = _summed_up(self._totals)

    def add(self, amounts: Int64) -> None:
        """Adds int64[size] to the totals of the feasible rows."""
        totals = np.where(self.totals >= 0, self.totals + amounts, INFEASIBLE)
        self.fill(totals, self._classes_by_row, len(self._feasible))

    def put(self, rows: Rows, totals: Totals, classes: Classes | None = None) -> None:
        """Sets some rows, each once."""
        self._sum_up()
        flat, blocks, count = self._totals.reshape(-1), rows // _BLOCK, len(self._feasible)
        before = flat[rows]
        flat[rows] = totals
        if self._classes is None or classes is None:
            change = int(np.count_nonzero(totals >= 0)) - int(np.count_nonzero(before >= 0))
            self._feasible[0] += change
            blocks = _distinct(blocks, len(self._totals))
            self._highest[0, blocks], self._holders[0, blocks] = _summed_up(self._totals[blocks])
            return
        flat_classes = self._classes.reshape(-1)
        former = flat_classes[rows]
        flat_classes[rows] = classes
        self._feasible += np.bincount(classes[totals >= 0], minlength=count)
        self._feasible -= np.bincount(former[before >= 0], minlength=count)
        keys = np.concatenate((blocks * count + former, blocks * count + classes))
        blocks, numbers = np.divmod(_distinct(keys, count * len(self._totals)), count)
        mine = self._classes[blocks] == numbers[:, None]
        own = np.where(mine, self._totals[blocks], self._totals.dtype.type(INFEASIBLE))
        self._highest[numbers, blocks], self._holders[numbers, blocks] = _summed_up(own)

    def put_one(self, row: int, total: int) -> None:
        """Sets one row of a ranking without classes: the same as ``put``, faster for a few rows."""
        if not self._summed:
            self._sum_up()
        block, place = divmod(row, _BLOCK)
        totals = self._totals[block]
        self._feasible[0] += (total >= 0) - (totals.item(place) >= 0)
        totals[place] = total
        highest = totals.item(totals.argmax())
        self._highest[0, block] = highest
        self._holders[0, block] = np.count_nonzero(totals == highest)

    # ------------------------------------------------------------ choices

    def samples(self) -> _Samples:
        """One row of each class that has a feasible one."""
        self._sum_up()
        numbers = self._feasible.nonzero()[0]
        blocks = self._highest[numbers].argmax(axis=1)
        good = self._totals[blocks] >= 0
        if self._classes is not None:
            good &= self._classes[blocks] == numbers[:, None]
        return _Samples(numbers, blocks * _BLOCK + good.argmax(axis=1), self._feasible[numbers])

    def best(
        self,
        rng: np.random.Generator,
        without: Rows = _NO_ROWS,
        added: Mapping[int, int] | None = None,
    ) -> Best | None:
        """A random one of the rows with the highest total; ``without`` (ascending) are not feasible this time.

        ``added``: what is added to the totals by class; other classes are rejected. Then ``without`` is not considered.
        None if fewer than two rows are feasible: a single feasible node is not scored.
        """
        self._added = None
        if added is not None:
            return self._best_of(rng, added)
        if len(without):
            return self._best_without(rng, without)
        if self.feasible < 2:
            return None
        if not self._summed:
            return self._first(rng)
        return self._draw(rng, {}, self._highest[0], self._holders[0], self.feasible)

    def _first(self, rng: np.random.Generator) -> Best:
        """As ``_draw``, with one pass over all rows: most templates that occur once are never asked for a second
        choice.
        """
        totals = self.totals
        winners = (totals == totals.item(totals.argmax())).nonzero()[0]
        draw = int(rng.random() * len(winners)) if len(winners) > 1 else 0
        return Best(winners.item(draw), self.feasible)

    def _best_of(self, rng: np.random.Generator, added: Mapping[int, int]) -> Best | None:
        self._sum_up()
        numbers = np.fromiter(added, np.intp, len(added))
        feasible = int(self._feasible[numbers].sum())
        if feasible < 2:
            return None
        amounts = np.full(len(self._feasible), _REJECTED, np.int64)
        amounts[numbers] = [*added.values()]
        self._added = amounts
        highest = self._highest[numbers]
        sums = np.where(highest >= 0, highest + amounts[numbers, None], INFEASIBLE)
        top = int(sums.max())
        chances = np.where(sums == top, self._holders[numbers], 0).sum(axis=0)
        blocks = chances.nonzero()[0]
        draw, block = _drawn(rng, blocks, chances[blocks])
        own = self._totals[block]
        more = amounts[0] if self._classes is None else amounts[self._classes[block]]
        winners = ((own >= 0) & (own + more == top)).nonzero()[0]
        return Best(block * _BLOCK + winners.item(draw), feasible)

    def _best_without(self, rng: np.random.Generator, without: Rows) -> Best | None:
        self._sum_up()
        blocks = _distinct(without // _BLOCK, len(self._totals))
        totals = self._totals[blocks]
        places = np.searchsorted(blocks, without // _BLOCK), without % _BLOCK
        feasible = self.feasible - int(np.count_nonzero(totals[places] >= 0))
        if feasible < 2:
            return None
        totals[places] = INFEASIBLE
        highest, holders = self._highest[0].copy(), self._holders[0].copy()
        highest[blocks], holders[blocks] = _summed_up(totals)
        changed = dict(zip(blocks.tolist(), totals, strict=True))
        return self._draw(rng, changed, highest, holders, feasible)

    def _draw(
        self,
        rng: np.random.Generator,
        changed: Mapping[int, Totals],
        highest: Totals,
        holders: Totals,
        feasible: int,
    ) -> Best:
        """``changed``: the totals of blocks that differ this time."""
        top = highest.item(highest.argmax())
        blocks = (highest == top).nonzero()[0]
        draw, block = _drawn(rng, blocks, holders[blocks])
        own = changed.get(block)
        own = self._totals[block] if own is None else own
        return Best(block * _BLOCK + (own == top).nonzero()[0].item(draw), feasible)


def _drawn(rng: np.random.Generator, blocks: Rows, chances: Totals) -> tuple[int, int]:
    """(number within the block, block) of a random one of the rows with the highest total, of which each block has
    ``chances``.
    """
    if len(blocks) == 1:
        winners = chances.item(0)
        return int(rng.random() * winners) if winners > 1 else 0, blocks.item(0)
    sums = chances.cumsum(dtype=np.int64)
    draw = int(rng.random() * sums.item(-1))
    place = int(sums.searchsorted(draw, side="right"))
    return draw - (sums.item(place - 1) if place else 0), blocks.item(place)


def _distinct(numbers: Rows, limit: int) -> Rows:
    """The different ones of numbers from 0 to below ``limit``, ascending: np.unique, faster where the limit is
    small.
    """
    found = np.zeros(limit, bool)
    found[numbers] = True
    return found.nonzero()[0]


def _summed_up(totals: Totals) -> tuple[Totals, Int64]:
    """By block of k blocks: the highest total, and the number of rows that have it."""
    highest = totals.max(axis=1)
    return highest, (totals == highest[:, None]).sum(axis=1)
