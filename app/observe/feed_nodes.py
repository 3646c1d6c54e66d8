"""The section ``nodes`` of the feed: all rows of the node table, then those that changed (docs/dashboard.md).

A change costs what has changed; only a snapshot looks at all rows. What a cluster may have very many of is limited:
resource names and label keys to those that most nodes have.
"""

from array import array
from collections.abc import Generator
from typing import Any, Final

import numpy as np

from app.model.objects import Node
from app.model.requests import PODS, allocatable_units
from app.state.columns.arrays import Int64
from app.state.table import NodeTable
from app.wire.sanitize import encode

#: With more Node objects changed at once, a snapshot is sent to all listeners.
MAX_OBJECTS: Final = 256
#: Resources that are shown, without the number of pods.
MAX_RESOURCES: Final = 32
#: Label keys that are shown; those with more values are left out.
MAX_LABELS: Final = 64
MAX_LABEL_VALUES: Final = 256
#: Label keys that are counted to find those that most nodes have.
_COUNTED_LABELS: Final = 1024
#: Names of what is left out that are told.
_TOLD: Final = 20
#: Work between two pauses: Node objects, and labels.
_OBJECTS_AT_ONCE: Final = 256
_LABELS_AT_ONCE: Final = 4096
#: Flags of a row: no pods are placed there; pods are there, but there is no Node object.
UNSCHEDULABLE_FLAG: Final = 1
UNKNOWN_FLAG: Final = 2

#: Pauses in which other tasks may run.
_Steps = Generator[None, None, None]


class NodeRows:
    """The rows as they were last sent."""

    def __init__(self, table: NodeTable) -> None:
        self._table: Final = table
        self._generation = -1
        self._names: list[str] = []
        self._nodes: list[Node | None] = []
        #: The resources that are shown; and their amounts by row, with the number of pods.
        self._resources: tuple[str, ...] = ()
        self._requested: dict[str, Int64] = {}
        self._allocatable: dict[str, Int64] = {}
        #: Label keys that are shown, and that are not.
        self._labels: set[str] = set()
        self._left_out: set[str] = set()
        #: The part of a snapshot that follows from the Node objects, encoded.
        self._objects = b""

    # ------------------------------------------------------------ changes

    def changes(self) -> Generator[None, None, dict[str, Any] | None]:
        """What changed since the last call; None if a snapshot is needed.

        What has changed is noted before the first pause, and only compared later.
        """
        table, first = self._table, self._generation < 0
        rows = table.rows_since(self._generation)
        self._generation = table.last_generation
        replaced = self._replaced(rows.tolist())
        complete = not first
        if replaced or first:
            complete &= not self._choose_resources()
            self._allocatable = {
                name: table.allocatable.column(name)[: table.size].copy()
                for name in self._resources
            }
            self._allocatable[PODS] = table.allocatable_pods[: table.size].copy()
        changed, requested = self._take_amounts(rows)
        if not complete:
            self._objects = b""
            return None
        shown = []
        for number, (row, before) in enumerate(replaced):
            if not _same(before, (self._names[row], self._nodes[row])):
                shown.append(row)
                self._objects = b""
                if len(shown) > MAX_OBJECTS:
                    return None
            if number % _OBJECTS_AT_ONCE == _OBJECTS_AT_ONCE - 1:
                yield
        found: dict[str, Any] = {}
        if shown:
            found["objects"] = [self._object(row) for row in shown]
        if changed:
            found |= {"rows": changed, "requested": requested}
        return found

    def _replaced(self, rows: list[int]) -> list[tuple[int, tuple[str, Node | None]]]:
        """The rows with another name or Node object, with those of before; notes the new ones."""
        table, names, nodes = self._table, self._names, self._nodes
        more = table.size - len(names)
        names += [""] * more
        nodes += [None] * more
        found = []
        for row in rows:
            name, node = table.names[row], table.nodes[row]
            if node is not nodes[row] or name != names[row]:
                found.append((row, (names[row], nodes[row])))
                names[row], nodes[row] = name, node
        return found

    def _choose_resources(self) -> bool:
        """Chooses the resources that are shown: those of before, and others that most nodes have.

        Whether they are others now.
        """
        table, before = self._table, self._resources
        offered = table.allocatable
        chosen = [name for name in before if offered.rows_with(name)]
        if len(chosen) < MAX_RESOURCES:
            others = [name for name in offered.names if name not in chosen]
            others.sort(key=offered.rows_with, reverse=True)
            chosen += others[: MAX_RESOURCES - len(chosen)]
        self._resources = tuple(chosen)
        if self._resources == before:
            return False
        self._requested = {name: table.requested.column(name).copy() for name in chosen}
        self._requested[PODS] = table.pod_count.copy()
        return True

    def _take_amounts(self, rows: Int64) -> tuple[list[int], dict[str, list[int] | int]]:
        """Those of the rows of which an amount is another now, and their amounts by resource."""
        table, differ, now = self._table, np.zeros(len(rows), bool), {}
        if more := table.capacity - len(self._requested[PODS]):
            self._requested = {n: np.pad(old, (0, more)) for n, old in self._requested.items()}
        for name, column in self._requested.items():
            now[name] = (
                table.pod_count[rows] if name == PODS else table.requested.block((name,), rows)[0]
            )
            differ |= column[rows] != now[name]
            column[rows] = now[name]
        changed = rows[differ].tolist()
        return changed, {name: _column(column[differ]) for name, column in now.items()}

    def _object(self, row: int) -> list[Any]:
        """Row, name, flags, labels, taints, allocatable amounts."""
        node = self._nodes[row]
        flags = _flags(self._names[row], node)
        if node is None:
            return [row, self._names[row], flags, {}, [], {}]
        labels = {key: value for key, value in node.labels.items() if self._is_shown(key)}
        units = allocatable_units(node.status.allocatable)
        amounts = {name: units[name] for name in (*self._resources, PODS) if name in units}
        return [row, self._names[row], flags, labels, _taints(node), amounts]

    def _is_shown(self, label: str) -> bool:
        """Whether a label key is shown; a new one is from now on, if there is room."""
        if label in self._labels:
            return True
        if label in self._left_out or len(self._labels) >= MAX_LABELS:
            return False
        self._labels.add(label)
        return True

    # ------------------------------------------------------------ snapshot

    def snapshot(self) -> Generator[None, None, bytes]:
        """All rows as columns, in steps; ``changes`` must not be called meanwhile.

        Labels and taints are numbers of values.
        """
        if not self._objects:
            self._objects = yield from self._encode_objects()
        size, parts = len(self._names), []
        for name, column in self._requested.items():
            parts.append(b"%b:%b" % (encode(name), encode(_column(column[:size]))))
            yield
        return b'{%b,"requested":{%b}}' % (self._objects, b",".join(parts))

    def _encode_objects(self) -> Generator[None, None, bytes]:
        common = yield from self._common_labels()
        size, nodes = len(self._nodes), self._nodes
        columns = {key: _Coded(size) for key in common[:MAX_LABELS]}
        left_out = set(common[MAX_LABELS:])
        taints, seen = _Coded(size), 0
        for row, node in enumerate(nodes):
            if node is None:
                continue
            for key, value in node.labels.items():
                column = columns.get(key)
                if column is not None:
                    column.set(row, value)
                    if len(column.values) > MAX_LABEL_VALUES:
                        left_out.add(key)
                        del columns[key]
                if not (seen := (seen + 1) % _LABELS_AT_ONCE):
                    yield
            if node.spec.taints:
                taints.set(row, tuple(map(tuple, _taints(node))))
            if row % _OBJECTS_AT_ONCE == 0:
                yield
        flags = [_flags(name, node) for name, node in zip(self._names, nodes, strict=True)]
        told = {"labels": sorted(left_out)[:_TOLD], "resources": self._resources_left_out()}
        parts = [
            b'"names":' + encode(self._names),
            b'"flags":' + encode(flags),
            b'"leftOut":' + encode(told),
            b'"taints":' + encode(taints.packed()),
        ]
        keyed = []
        for key, column in columns.items():
            keyed.append(b"%b:%b" % (encode(key), encode(column.packed())))
            yield
        parts.append(b'"labels":{%b}' % b",".join(keyed))
        amounts = []
        for name, numbers in self._allocatable.items():
            amounts.append(b"%b:%b" % (encode(name), encode(_column(numbers))))
            yield
        parts.append(b'"allocatable":{%b}' % b",".join(amounts))
        self._labels, self._left_out = set(columns), left_out
        return b",".join(parts)

    def _common_labels(self) -> Generator[None, None, list[str]]:
        """The label keys by the number of nodes that have them, the most frequent first.

        Of very many keys only the frequent ones are found: if there is no room to count another one, all counts are
        lowered by one instead (Misra and Gries), so that those of rare keys vanish.
        """
        counts: dict[str, int] = {}
        seen = 0
        for node in self._nodes:
            for key in node.labels if node is not None else ():
                if key in counts:
                    counts[key] += 1
                elif len(counts) < _COUNTED_LABELS:
                    counts[key] = 1
                else:
                    counts = {other: count - 1 for other, count in counts.items() if count > 1}
                if not (seen := (seen + 1) % _LABELS_AT_ONCE):
                    yield
        return sorted(counts, key=lambda key: -counts[key])

    def _resources_left_out(self) -> list[str]:
        if len(self._resources) < MAX_RESOURCES:
            return []
        others = (name for name in self._table.allocatable.names if name not in self._resources)
        return [name for name, _ in zip(others, range(_TOLD), strict=False)]


class _Coded:
    """A column of values as numbers; 0 is none."""

    def __init__(self, size: int) -> None:
        self.values: Final[dict[Any, int]] = {}
        self._codes: Final = array("I", bytes(size * array("I").itemsize))

    def set(self, row: int, value: Any) -> None:
        """Sets the value of a row."""
        self._codes[row] = self.values.setdefault(value, len(self.values) + 1)

    def packed(self) -> dict[str, Any]:
        """The values, and the number of each row's."""
        return {"values": list(self.values), "codes": self._codes.tolist()}


def _flags(name: str, node: Node | None) -> int:
    if node is None:
        return UNKNOWN_FLAG if name else 0
    return UNSCHEDULABLE_FLAG if node.spec.unschedulable else 0


def _same(old: tuple[str, Node | None], new: tuple[str, Node | None]) -> bool:
    """Whether two rows, as names and Node objects, look the same in the feed."""
    (name, before), (other, after) = old, new
    if name != other or before is None or after is None:
        return name == other and before is after
    return (
        before.labels == after.labels
        and before.spec == after.spec
        and before.status.allocatable == after.status.allocatable
    )


def _taints(node: Node) -> list[list[str]]:
    return [[taint.key, taint.value, taint.effect] for taint in node.spec.taints or ()]


def _column(column: Int64) -> list[int] | int:
    """The numbers of a column; one number if all are equal."""
    if len(column) and bool((column == column[0]).all()):
        return int(column[0])
    return column.tolist()  # type: ignore[no-any-return]  # numpy says Any
