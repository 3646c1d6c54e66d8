"""The node table: one row per node, one column per fact (docs/architecture.md, "Nodes are columns").

Rules that keep it right:

1. Every change to a row goes through ``set_node``, ``remove_node``, ``add_pod(s)``, ``remove_pod`` or ``replace_pod`` and
   gives the row a new generation, so a caller that keeps results per row refreshes just the rows that are newer.
2. A row exists while its node object is known or pods sit on it; ``exists`` tells the first. Rows of nodes that have
   gone are used again.
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
from app.state.columns.families import PodFamilies
from app.state.columns.images import Images
from app.state.columns.labels import LabelColumns, Mask, TaintSets
from app.state.columns.ports import HostPorts
from app.state.columns.resources import Int64, ResourceColumns
from app.state.columns.terms import Terms
from app.state.columns.volumes import VolumeIndex
from app.state.pod_batch import PodBatch

_FIRST_CAPACITY: Final = 64
#: Up to this many changes ``rows_since`` looks at the latest rows one by one, beyond at the generations of all rows.
_FEW_CHANGES: Final = 64
#: The latest rows are cut down to _FEW_CHANGES when there are more than this many.
_MAX_LATEST: Final = 1024


#: Rows of ``NodeTable.nonzero.matrix``.
CPU_ROW: Final = 0
MEMORY_ROW: Final = 1


class PodIndex(Protocol):
    """Something that plugins look up by row and that follows every pod that comes to a row or leaves it."""

    def add(self, pod: Pod, row: int) -> None:
        """A pod has come to a row."""

    def remove(self, pod: Pod, row: int) -> None:
        """A pod has left a row."""

    def grow(self, capacity: int) -> None:
        """There are now this many rows."""


Index = TypeVar("Index", bound=PodIndex)


class NodeTable:
    """All nodes as columns. Arrays have ``capacity`` entries; rows at ``size`` and beyond were never used."""

    def __init__(self) -> None:
        capacity = _FIRST_CAPACITY
        self.capacity = capacity
        self.size = 0
        #: How many rows have a node object.
        self.node_count = 0
        #: Number of the last change anywhere in the table.
        self.last_generation = 0
        #: Changes whenever a row gets or loses its name.
        self.layout = 0
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
        #: cpu and memory, with stand-ins for containers that ask for none (see PodResources).
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
        #: Those of the indexes that plugins have asked for (see ``index``), by their class.
        self._made_later: Final[dict[type[PodIndex], PodIndex]] = {}
        self._free: Final[list[int]] = []
        self._all_rows: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        #: The rows of the latest generations, in order. A generation that changed many rows at once empties it.
        self._latest: Final[list[int]] = []
        #: ``names`` as an array, and the layout that it is of.
        self._name_column: npt.NDArray[np.object_] = np.zeros(0, object)
        self._named_at = -1

    # ------------------------------------------------------------ rows

    def index(self, kind: type[Index], make: Callable[[], Index]) -> Index:
        """The table's one index of a kind: made when first asked for and given the pods present, it follows them from then on."""
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
        """The row of a node name; a new one, without a node object, if there is none."""
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
        self.exists = np.concatenate((self.exists, np.zeros(extra, bool)))
        self.unschedulable = np.concatenate((self.unschedulable, np.zeros(extra, bool)))
        self.generation = np.concatenate((self.generation, np.zeros(extra, np.int64)))
        self.allocatable_pods = np.concatenate((self.allocatable_pods, np.zeros(extra, np.int64)))
        self.pod_count = np.concatenate((self.pod_count, np.zeros(extra, np.int64)))
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
        """Every row ever used, ascending; not to be changed."""
        if len(self._all_rows) != self.size:
            self._all_rows = np.arange(self.size, dtype=np.intp)
        return self._all_rows

    def live_rows(self) -> npt.NDArray[np.intp]:
        """The rows that have a node object, ascending."""
        return np.flatnonzero(self.exists[: self.size])

    def rows_since(self, generation: int) -> npt.NDArray[np.intp]:
        """The rows changed after ``generation``, ascending."""
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

    # ------------------------------------------------------------ nodes

    def set_node(self, node: Node) -> int:
        """Adds a node or takes over its new version; returns its row. If it raises, the node object is gone."""
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
        """Forgets a node object; its row stays, unseen by cycles, while pods sit on it. Raises KeyError."""
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
        """Takes over what a row's node offers, of which ``nodes`` still has the version before."""
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
        """Puts a pod on the row of its node; returns the row. If an index raises, nothing has changed."""
        ports = pod.template.host_ports
        row = self.row_for(pod.node_name)
        try:
            self._index([pod], [row])
        except Exception:
            self._release_if_empty(row)
            raise
        self.pods[row][pod.uid] = pod
        self._count(pod, row, 1)
        self.ports.add(row, ports)
        self._touch(row)
        return row

    def add_pods(self, pods: Sequence[Pod]) -> list[tuple[Pod, Exception]]:
        """The same for many pods, whose amounts are added column by column. Returns those that could not be added, and why."""
        batch = PodBatch(pods)
        rows = [self.row_for(pod.node_name) for pod in pods]
        try:
            self._index(pods, rows)
        except Exception:  # noqa: BLE001 - one of them is found below
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

    def _index(self, pods: Sequence[Pod], rows: Sequence[int]) -> None:
        """Tells the indexes of pods that come to rows. If one raises, those that were told are told the opposite."""
        for number, index in enumerate(self._indexes):
            for at, pod in enumerate(pods):
                try:
                    index.add(pod, rows[at])
                except Exception:
                    for earlier in self._indexes[:number]:
                        self._unindex(earlier, pods, rows)
                    self._unindex(index, pods[:at], rows)
                    raise

    @staticmethod
    def _unindex(index: PodIndex, pods: Sequence[Pod], rows: Sequence[int]) -> None:
        for pod, row in zip(pods, rows, strict=False):
            index.remove(pod, row)

    def remove_pod(self, pod: Pod) -> None:
        """Takes a pod, as it was last added, off its row. Raises KeyError, and what an index raises once the pod is gone."""
        row = self.row_of[pod.node_name]
        del self.pods[row][pod.uid]
        self._count(pod, row, -1)
        self.ports.remove(row, pod.template.host_ports)
        failure: Exception | None = None
        for index in self._indexes:
            try:
                index.remove(pod, row)
            except Exception as error:  # noqa: BLE001 - the others must hear of it, too
                failure = error
        self._touch(row)
        self._release_if_empty(row)
        if failure is not None:
            raise failure

    def replace_pod(self, old: Pod, new: Pod) -> None:
        """Takes over a pod's new version on the same node; costs little where no column is concerned.

        If an index raises, the pod is gone from the row.
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
