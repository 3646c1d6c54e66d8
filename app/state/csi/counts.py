"""How many distinct volumes of each CSI driver every row has, kept up to date one volume at a time.

A volume is on a row while a pod there uses it or a VolumeAttachment holds it there; however often, it counts once.
Pods are known by row, attachments by node name.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np

from app.state.columns.resources import Int64
from app.state.columns.sparse import SparseColumn
from app.state.columns.volumes import Uses, count_use
from app.state.csi.nodes import RowNames
from app.state.csi.volumes import CsiVolume
from app.state.view import View

_NOBODY: Final[Uses] = {}


class CsiCounts:
    """Volumes in use or attached, by row."""

    def __init__(self, names: RowNames, capacity: int) -> None:
        self._names = names
        self._capacity = capacity
        self._uses: dict[CsiVolume, Uses] = {}
        #: How many attachments hold a volume, by node name.
        self._held: defaultdict[str, dict[CsiVolume, int]] = defaultdict(dict)
        #: By driver.
        self._counts: dict[str, SparseColumn] = {}

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self._capacity = capacity
        for counts in self._counts.values():
            counts.grow(capacity)

    def use(self, volume: CsiVolume, row: int, step: int) -> None:
        """Counts ``step`` more (or fewer) uses of a volume by pods on a row."""
        before = self._used(volume, row)
        count_use(self._uses, volume, row, step)
        if 0 in {before, before + step} and not self._held_on(row, volume):
            self._shift(volume.driver, row, 1 if step > 0 else -1)

    def hold(self, volume: CsiVolume, node_name: str, step: int) -> None:
        """Counts one more (or fewer) attachment of a volume to a node."""
        held = self._held[node_name]
        before = held.pop(volume, 0)
        if before + step:
            held[volume] = before + step
        elif not held:
            del self._held[node_name]
        row = self._names.row(node_name)
        if row is not None and 0 in {before, before + step} and not self._used(volume, row):
            self._shift(volume.driver, row, step)

    def sync(self, lost: Iterable[tuple[int, str]], found: Iterable[tuple[int, str]]) -> None:
        """Follows rows to their new names (see RowNames.catch_up)."""
        for step, pairs in ((-1, lost), (1, found)):
            for row, name in pairs:
                for volume in self._held.get(name, ()):
                    if not self._used(volume, row):
                        self._shift(volume.driver, row, step)

    def _used(self, volume: CsiVolume, row: int) -> int:
        return self._uses.get(volume, _NOBODY).get(row, 0)

    def _held_on(self, row: int, volume: CsiVolume) -> bool:
        return volume in self._held.get(self._names.name(row), ())

    def _shift(self, driver: str, row: int, step: int) -> None:
        counts = self._counts.get(driver)
        if counts is None:
            counts = self._counts[driver] = SparseColumn(self._capacity)
        counts.add(row, step)
        if not counts.used:
            del self._counts[driver]

    # ------------------------------------------------------------ questions

    def on(self, view: View, driver: str) -> Int64:
        """int64[n]: how many volumes of a driver each row has, imagined pods left out of account."""
        counts = self._counts.get(driver)
        return np.zeros(view.n, np.int64) if counts is None else counts.at(view.rows)

    def unused(self, view: View, volumes: Collection[CsiVolume]) -> Int64:
        """int64[n]: how many of these volumes no pod on the row uses, imagined pods left out of account."""
        fresh = np.full(self._capacity, len(volumes), np.int64)
        for volume in volumes:
            rows = self._uses.get(volume, _NOBODY)
            fresh[np.fromiter(rows, np.intp, len(rows))] -= 1
        return fresh[view.rows]

    def changes(
        self, view: View, shifts: Mapping[tuple[int, CsiVolume], int]
    ) -> Iterable[tuple[int, CsiVolume, int, bool]]:
        """What imagined uses change: (position, volume, +1 or -1, whether it changes the row's count too).

        ``shifts``: by position and volume, how many more (or fewer) uses by pods are imagined. A volume is reported
        where it gets its first use or loses its last.
        """
        for (position, volume), shift in shifts.items():
            row = int(view.rows[position])
            before = self._used(volume, row)
            if (before > 0) != (before + shift > 0):
                yield position, volume, 1 if shift > 0 else -1, not self._held_on(row, volume)
