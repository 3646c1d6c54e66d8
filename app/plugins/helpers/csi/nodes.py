"""The contents of CSINodes by row: volume limits by driver, and migrated in-tree plugins.

CSINodes are named by node and change independently of nodes. Rows are therefore matched to names before each use
(``sync``), which costs one array comparison and one step per changed row.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from app.model.storage import CSINode
from app.state.columns.arrays import Int64, Rows
from app.state.columns.labels import EncodedColumn, Mask
from app.state.columns.sparse import SparseColumns
from app.state.lister import Lister
from app.state.table import NodeTable

#: The limit of a driver without a limit.
NO_LIMIT: Final = 2**62

_MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"


def driver_limits(node: CSINode) -> dict[str, int]:
    """The volume limits of a node by driver; drivers without a limit are absent."""
    return {
        driver.name: max(0, driver.allocatable.count)
        for driver in node.spec.drivers or ()
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def migrated_plugins(node: CSINode) -> str:
    """The in-tree plugins that are migrated to CSI on a node: names joined by commas."""
    return node.annotations.get(_MIGRATED_PLUGINS, "")


class RowNames:
    """The node names of a table's rows at the last ``catch_up``."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._seen_generation = 0
        self._names: dict[int, str] = {}
        self._rows: dict[str, int] = {}

    def name(self, row: int) -> str:
        """The name of a row, empty if it has none."""
        return self._names.get(row, "")

    def row(self, name: str) -> int | None:
        """The row of a name."""
        return self._rows.get(name)

    def catch_up(self) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        """The (row, name) pairs that were removed, and those that were added."""
        table = self._table
        if table.last_generation == self._seen_generation:
            return [], []
        lost, found = [], []
        for row in table.rows_since(self._seen_generation).tolist():
            before, after = self.name(row), table.names[row]
            if before != after:
                lost += [(row, before)] if before else []
                found += [(row, after)] if after else []
        self._seen_generation = table.last_generation
        for row, name in lost:
            del self._names[row], self._rows[name]
        for row, name in found:
            self._names[row], self._rows[name] = name, row
        return lost, found


class CsiNodes:
    """CSINodes as columns. Arrays have one entry per row of the table.

    ``present``: rows with a CSINode. ``limited``: rows where it limits any driver.
    """

    def __init__(self, names: RowNames, nodes: Lister[CSINode], capacity: int) -> None:
        self._names = names
        self._nodes = nodes
        self.present: Mask = np.zeros(capacity, bool)
        self.limited: Mask = np.zeros(capacity, bool)
        #: By driver: each row's limit plus 1, 0 for no limit. And the limits of each row by driver.
        self._limits = SparseColumns(capacity)
        self._limits_on: dict[int, Mapping[str, int]] = {}
        #: By driver: 1 for each row that has it. And the drivers of each row.
        self._installed = SparseColumns(capacity)
        self._drivers_on: dict[int, tuple[str, ...]] = {}
        #: The annotation of each row.
        self._migrated: Final = EncodedColumn(capacity, "")
        nodes.follow(self._changed)

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        extra = capacity - len(self.present)
        self.present = np.concatenate((self.present, np.zeros(extra, bool)))
        self.limited = np.concatenate((self.limited, np.zeros(extra, bool)))
        self._migrated.grow(capacity)
        self._limits.grow(capacity)
        self._installed.grow(capacity)

    def sync(self, found: Iterable[tuple[int, str]]) -> None:
        """Applies changes of the rows' node names (see RowNames.catch_up)."""
        for row, name in found:
            self._set(row, self._nodes.get(name))

    def _changed(self, old: CSINode | None, new: CSINode | None) -> None:
        named = new or old
        row = None if named is None else self._names.row(named.name)
        if row is not None:
            self._set(row, new)

    def _set(self, row: int, node: CSINode | None) -> None:
        limits = {} if node is None else driver_limits(node)
        self.present[row] = node is not None
        self.limited[row] = bool(limits)
        self._migrated.set(row, "" if node is None else migrated_plugins(node))
        for driver, limit in self._limits_on.pop(row, {}).items():
            self._limits.add(driver, row, -(limit + 1))
        for driver, limit in limits.items():
            self._limits.add(driver, row, limit + 1)
        if limits:
            self._limits_on[row] = limits
        for driver in self._drivers_on.pop(row, ()):
            self._installed.add(driver, row, -1)
        drivers = tuple({driver.name for driver in (node.spec.drivers or ())}) if node else ()
        for driver in drivers:
            self._installed.add(driver, row, 1)
        if drivers:
            self._drivers_on[row] = drivers

    def limit(self, driver: str, rows: Rows) -> Int64 | None:
        """int64[n]: each row's limit for a driver; None if no row has one."""
        column = self._limits.get(driver)
        if column is None:
            return None
        limits = column.at(rows)
        return np.where(limits == 0, NO_LIMIT, limits - 1)

    def missing(self, driver: str, rows: Rows) -> Mask:
        """bool[n]: whether the row's CSINode does not have a driver, or there is none."""
        column = self._installed.get(driver)
        mask: Mask = np.ones(len(rows), bool) if column is None else column.at(rows) == 0
        return mask

    def migrated(self, plugin: str) -> Mask:
        """bool[capacity]: whether the in-tree plugin is migrated to CSI on the row."""
        table = np.array([plugin in text.split(",") for text in self._migrated.values], bool)
        return table[self._migrated.codes]
