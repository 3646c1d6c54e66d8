"""The node table: one row per node, one column per property (docs/architecture.md, "Nodes are columns").

Invariants:

1. Every change to a row goes through ``set_node``, ``remove_node``, ``add_pod(s)``, ``remove_pod`` or ``replace_pod``
  and
   gives the row a new generation, so results that are kept per row are computed again for newer rows only.
2. A row is used while its Node object exists (``exists``) or pods are on it. Unused rows are reused.
3. Columns hold what kube-scheduler's NodeInfo holds, in its units and with its integer arithmetic
(docs/spec/cache.md#node-accounting).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

from app.model.objects import Node, Resources
from app.model.pod import Pod
from app.model.requests import CPU, MEMORY, PODS, allocatable_units
from app.state.columns.arrays import Int64
from app.state.columns.families import PodFamilies
from app.state.columns.images import Images
from app.state.columns.labels import LabelColumns, Mask, TaintSets
from app.state.columns.ports import HostPorts
from app.state.columns.resources import ResourceColumns
from app.state.columns.terms import Terms
from app.state.columns.volumes import VolumeIndex
from app.state.pod_batch import PodBatch

_FIRST_CAPACITY: Final = 64
#: Up to this many changes ``rows_since`` uses the list of latest rows, beyond it the generations of all rows.
_FEW_CHANGES: Final = 64
#: The list of latest rows is cut to _FEW_CHANGES when it is longer than this.
_MAX_LATEST: Final = 1024


#: Rows of ``NodeTable.nonzero.matrix``.
CPU_ROW: Final = 0
MEMORY_ROW: Final = 1


class PodIndex(Protocol):
    """An index by row that follows every pod added to a row or removed from it."""

    def add(self, pod: Pod, row: int) -> None:
        """A pod was added to a row."""

    def remove(self, pod: Pod, row: int) -> None:
        """A pod was removed from a row."""

    def grow(self, capacity: int) -> None:
        """The table now has this capacity in rows."""


Index = TypeVar("Index", bound=PodIndex)


class NodeTable:
    """All nodes as columns. Arrays have ``capacity`` entries; rows from ``size`` on were never used."""

    def __init__(self) -> None:
        capacity = _FIRST_CAPACITY
        self.capacity = capacity
        self.size = 0
        #: The number of rows with a Node object.
        self.node_count = 0
        #: The highest generation of any row.
        self.last_generation = 0
        #: Changes whenever a row gets or loses its name.
        self.layout = 0
        #: The number of changes of objects other than pods (SchedulerState counts them).
        self.changes_around = 0
        self.row_of: Final[dict[str, int]] = {}
        self.names: Final[list[str]] = []
        self.nodes: Final[list[Node | None]] = []
        #: Pods by uid, per row.
        self.pods: Final[list[dict[str, Pod]]] = []
        self.exists: Mask = np.zeros(capacity, bool)
        self.generation: Int64 = np.zeros(capacity, np.int64)
        self.unschedulable: Mask = np.zeros(capacity, bool)
        self.allocatable: Final = ResourceColumns(capacity)
        self.requested: Final = ResourceColumns(capacity)
        #: cpu and memory, with kube-scheduler's defaults for containers without a request (see PodResources).
        self.nonzero: Final = ResourceColumns(capacity)
        self.allocatable_pods: Int64 = np.zeros(capacity, np.int64)
        self.pod_count: Int64 = np.zeros(capacity, np.int64)
        self.labels: Final = LabelColumns(capacity)
        self.taints: Final = TaintSets(capacity)
        self.images: Final = Images()
        self.ports: Final = HostPorts()
        self.families: Final = PodFamilies(capacity)
        self.terms: Final = Terms(capacity)
        self.volumes: Final = VolumeIndex()
        self._columns: Final = (
            self.allocatable,
            self.requested,
            self.nonzero,
            self.labels,
            self.taints,
        )
        self._indexes: Final[list[PodIndex]] = [self.families, self.terms, self.volumes]
        #: The indexes in use, by class (see ``index``).
        self._made_later: Final[dict[type[PodIndex], PodIndex]] = {}
        self._free: Final[list[int]] = []
        self._all_rows: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        #: The rows of the latest generations, in order; emptied by a generation that changes many rows at once.
        self._latest: Final[list[int]] = []
        #: The generations of the last ``rows_since``, and its result.
        self._asked = ((0, 0), np.zeros(0, np.intp))
        #: ``names`` as an array, and the layout at which it was made.
        self._name_column: npt.NDArray[np.object_] = np.zeros(0, object)
        self._named_at = -1

    @property
    def free_rows(self) -> Sequence[int]:
        """The rows without a name, in the order of which the last is used first."""
        return self._free

    @property
    def surroundings(self) -> tuple[int, int]:
        """Changes with every change of an object other than a pod, and of the pods on rows that have affinity terms."""
        return self.changes_around, self.terms.changes

    # ------------------------------------------------------------ rows

    def index(self, kind: type[Index], make: Callable[[], Index]) -> Index:
        """The table's index of this class; created at the first use and filled with the present pods."""
        known = self._made_later.get(kind)
        if known is None:
            known = self._made_later[kind] = make()
            known.grow(self.capacity)
            for row, pods in enumerate(self.pods):
                for pod in pods.values():
                    known.add(pod, row)
            self._indexes.append(known)
        return cast("Index", known)

    def row_for(self, name: str) -> int:
        """The row of a node name; a new row, without a Node object, if there is none."""
        row = self.row_of.get(name)
        if row is None:
            row = self.row_of[name] = self._free.pop() if self._free else self._append()
            self.names[row] = name
            self.layout += 1
            self._touch(row)
        return row

    def _append(self) -> int:
        row = self.size
        self.size += 1
        if self.size > self.capacity:
            self._grow(2 * self.capacity)
        self.names.append("")
        self.nodes.append(None)
        self.pods.append({})
        return row

    def _grow(self, capacity: int) -> None:
        extra = capacity - self.capacity
        flags, numbers = np.zeros(extra, bool), np.zeros(extra, np.int64)
        self.exists = np.concatenate((self.exists, flags))
        self.unschedulable = np.concatenate((self.unschedulable, flags))
        self.generation = np.concatenate((self.generation, numbers))
        self.allocatable_pods = np.concatenate((self.allocatable_pods, numbers))
        self.pod_count = np.concatenate((self.pod_count, numbers))
        for column in self._columns:
            column.grow(capacity)
        for index in self._indexes:
            index.grow(capacity)
        self.capacity = capacity

    def _touch(self, row: int) -> None:
        self.last_generation += 1
        self.generation[row] = self.last_generation
        self._latest.append(row)
        if len(self._latest) > _MAX_LATEST:
            del self._latest[:-_FEW_CHANGES]

    def _touch_many(self, rows: npt.NDArray[np.intp]) -> None:
        self.last_generation += 1
        self.generation[rows] = self.last_generation
        self._latest.clear()

    def _release_if_empty(self, row: int) -> None:
        if self.nodes[row] is None and not self.pods[row]:
            del self.row_of[self.names[row]]
            self.names[row] = ""
            self.layout += 1
            self._free.append(row)

    def all_rows(self) -> npt.NDArray[np.intp]:
        """Every row ever used, ascending. Must not be changed."""
        if len(self._all_rows) != self.size:
            self._all_rows = np.arange(self.size, dtype=np.intp)
        return self._all_rows

    def live_rows(self) -> npt.NDArray[np.intp]:
        """The rows that have a node object, ascending."""
        return np.flatnonzero(self.exists[: self.size])

    def rows_since(self, generation: int) -> npt.NDArray[np.intp]:
        """The rows changed after ``generation``, ascending. Must not be changed."""
        key = generation, self.last_generation
        if key != self._asked[0]:
            self._asked = key, self._rows_since(generation)
        return self._asked[1]

    def _rows_since(self, generation: int) -> npt.NDArray[np.intp]:
        changes = self.last_generation - generation
        if changes <= _FEW_CHANGES and changes <= len(self._latest):
            rows = set(self._latest[len(self._latest) - changes :])
            return np.array(sorted(rows), np.intp)
        return (self.generation[: self.size] > generation).nonzero()[0]

    def names_of(self, rows: npt.NDArray[np.intp]) -> list[str]:
        """The node names of some rows."""
        if self._named_at != self.layout:
            self._named_at = self.layout
            self._name_column = np.array(self.names, object)
        names: list[str] = self._name_column.take(rows).tolist()
        return names

    def node_json(self, name: str) -> bytes | None:
        """A node's JSON as it is sent to extenders, if it is kept; None for an unknown node."""
        row = self.row_of.get(name)
        node = None if row is None else self.nodes[row]
        return None if node is None else node.raw

    # ------------------------------------------------------------ nodes

    def set_node(self, node: Node) -> int:
        """Adds or updates a node; returns its row. If it raises, the row has no Node object."""
        try:
            return self._set_node(node)
        except Exception:
            self._clear_node(self.row_of[node.name])
            raise

    def _set_node(self, node: Node) -> int:
        row = self.row_for(node.name)
        self._set_allocatable(row, node.status.allocatable)
        if self.nodes[row] is None:
            self.node_count += 1
        self.nodes[row] = node
        self.exists[row] = True
        self.unschedulable[row] = node.spec.unschedulable
        self.labels.set(row, node.labels)
        self.taints.set(row, node.spec.taints or ())
        self.images.set(row, node.status.images or ())
        self._touch(row)
        return row

    def remove_node(self, name: str) -> None:
        """Removes a Node object; its row stays while pods are on it. Raises KeyError."""
        row = self.row_of[name]
        if self.nodes[row] is None:
            raise KeyError(name)
        self._clear_node(row)

    def _clear_node(self, row: int) -> None:
        self._set_allocatable(row, None)
        self.node_count -= self.nodes[row] is not None
        self.nodes[row] = None
        self.exists[row] = False
        self.unschedulable[row] = False
        self.labels.clear(row)
        self.taints.set(row, ())
        self.images.clear(row)
        self._touch(row)
        self._release_if_empty(row)

    def _set_allocatable(self, row: int, new: Resources | None) -> None:
        """Sets the allocatable amounts of a row from ``node``; ``nodes`` still has the previous version."""
        known = self.nodes[row]
        old = None if known is None else known.status.allocatable
        if new == old:
            return
        before, after = allocatable_units(old), allocatable_units(new)
        before.pop(PODS, None)
        self.allocatable_pods[row] = after.pop(PODS, 0)
        self.allocatable.add(row, before.items(), -1)
        self.allocatable.add(row, after.items())

    # ------------------------------------------------------------ pods

    def add_pod(self, pod: Pod) -> int:
        """Adds a pod to the row of its node; returns the row. If an index raises, nothing is changed."""
        ports = pod.template.host_ports
        row = self.row_for(pod.node_name)
        try:
            self._index(pod, row)
        except Exception:
            self._release_if_empty(row)
            raise
        self.pods[row][pod.uid] = pod
        self._count(pod, row, 1)
        self.ports.add(row, ports)
        self._touch(row)
        return row

    def add_pods(self, pods: Sequence[Pod]) -> list[tuple[Pod, Exception]]:
        """Adds many pods, column by column. Returns the pods that could not be added, with the exceptions."""
        batch = PodBatch(pods)
        rows = [self.row_for(pod.node_name) for pod in pods]
        indexed = 0
        try:
            for pod, row in zip(pods, rows, strict=True):
                self._index(pod, row)
                indexed += 1
        except Exception:  # noqa: BLE001 - it is reported below
            for pod, row in zip(pods[:indexed], rows, strict=False):
                for index in self._indexes:
                    index.remove(pod, row)
            return self._add_each(pods)
        for pod, row in zip(pods, rows, strict=True):
            self.pods[row][pod.uid] = pod
        at = np.array(rows, np.intp)
        for name, amounts in batch.amounts.items():
            self.requested.add_at(name, at, amounts)
        for i, rare in batch.rare.items():
            self.requested.add(rows[i], rare)
        for name, amounts in batch.nonzero.items():
            self.nonzero.add_at(name, at, amounts)
        np.add.at(self.pod_count, at, 1)
        for i in batch.with_ports:
            self.ports.add(rows[i], pods[i].template.host_ports)
        self._touch_many(at)
        return []

    def _add_each(self, pods: Sequence[Pod]) -> list[tuple[Pod, Exception]]:
        failed: list[tuple[Pod, Exception]] = []
        for pod in pods:
            try:
                self.add_pod(pod)
            except Exception as error:  # noqa: BLE001 - concerns this pod alone
                failed.append((pod, error))
        return failed

    def _index(self, pod: Pod, row: int) -> None:
        """Adds a pod to the indexes. If one raises, the pod is removed again from those before it."""
        added = 0
        try:
            for index in self._indexes:
                index.add(pod, row)
                added += 1
        except Exception:
            for index in self._indexes[:added]:
                index.remove(pod, row)
            raise

    def remove_pod(self, pod: Pod) -> None:
        """Removes a pod, in the version last added. Raises KeyError; an index's exception after the removal."""
        row = self.row_of[pod.node_name]
        del self.pods[row][pod.uid]
        self._count(pod, row, -1)
        self.ports.remove(row, pod.template.host_ports)
        failure: Exception | None = None
        for index in self._indexes:
            try:
                index.remove(pod, row)
            except Exception as error:  # noqa: BLE001 - the other indexes must be updated as well
                failure = error
        self._touch(row)
        self._release_if_empty(row)
        if failure is not None:
            raise failure

    def replace_pod(self, old: Pod, new: Pod) -> None:
        """Replaces a pod by its new version on the same node; cheap if no column changes.

        If an index raises, the pod is removed from the row.
        """
        if new.same_on_node(old):
            row = self.row_of[new.node_name]
            self.pods[row][new.uid] = new
            if old.start_time != new.start_time:
                self._touch(row)
            return
        self.remove_pod(old)
        self.add_pod(new)

    def _count(self, pod: Pod, row: int, sign: int) -> None:
        resources = pod.resources
        self.requested.add(row, resources.requested, sign)
        nonzero = ((CPU, resources.nonzero_cpu), (MEMORY, resources.nonzero_memory))
        self.nonzero.add(row, nonzero, sign)
        self.pod_count[row] += sign

    def pods_on(self, name: str) -> Iterator[Pod]:
        """The pods on a node."""
        row = self.row_of.get(name)
        return iter(()) if row is None else iter(self.pods[row].values())
