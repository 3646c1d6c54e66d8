"""The rows on which a volume can be provisioned for a claim: provisioner, allowed topologies, capacity.

See docs/spec/plugins/volume-binding.md#filter.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.objects import NodeSelector, NodeSelectorTerm
from app.model.quantity import QuantityError, parse, whole
from app.model.requests import LARGEST
from app.model.selectors import Requirement
from app.model.storage import CSIStorageCapacity, StorageClass
from app.plugins.helpers.node_selector import match_node_selector
from app.plugins.volume_binding.claims import Delayed
from app.plugins.volume_binding.volume_topology import NOWHERE, Topologies, topology_of_labels
from app.state.cluster import Cluster
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask
from app.state.lister import Lister
from app.state.view import View

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_MOST: Final = 2**63 - 1


def volume_limit(capacity: CSIStorageCapacity) -> int | None:
    """Bytes of the largest volume that can be provisioned; None if unknown."""
    limit = capacity.maximum_volume_size
    amount = capacity.capacity if limit is None else limit
    try:
        return None if amount is None else whole(parse(amount))
    except QuantityError:
        return None


def _free_bytes(capacity: CSIStorageCapacity) -> int:
    """Bytes that are free, 0 if unknown."""
    try:
        free = 0 if capacity.capacity is None else whole(parse(capacity.capacity))
    except QuantityError:
        return 0
    return max(0, min(free, LARGEST))


class _ClassCapacities:
    """The capacities of one class: bytes of the largest volume (-1: none) and the number of the topology."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._unused: list[int] = []
        self._limits: list[int] = []
        self._topologies: list[int] = []
        #: Bytes that are free.
        self._free: list[int] = []
        self._columns: tuple[Int64, npt.NDArray[np.int32], Int64] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def set(self, key: str, limit: int, topology: int, free: int) -> None:
        """Adds or updates a capacity."""
        slot = self._slots.get(key)
        if slot is None:
            if not self._unused:
                self._unused.append(len(self._limits))
                self._limits.append(-1)
                self._topologies.append(0)
                self._free.append(0)
                self._columns = None
            slot = self._slots[key] = self._unused.pop()
        self._write(slot, limit, topology, free)

    def drop(self, key: str) -> None:
        """Removes a capacity."""
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._unused.append(slot)
            self._write(slot, -1, 0, 0)

    def _write(self, slot: int, limit: int, topology: int, free: int) -> None:
        self._limits[slot], self._topologies[slot], self._free[slot] = limit, topology, free
        if self._columns is not None:
            self._columns[0][slot], self._columns[1][slot] = limit, topology
            self._columns[2][slot] = free

    def places_with(self, size: int) -> tuple[npt.NDArray[np.int32], Int64]:
        """Where a volume of ``size`` bytes can be made: numbers of topologies, and the bytes that are free there."""
        if self._columns is None:
            self._columns = (
                np.array(self._limits, np.int64),
                np.array(self._topologies, np.int32),
                np.array(self._free, np.int64),
            )
        limits, topologies, free = self._columns
        enough = limits >= size
        return topologies[enough], free[enough]


class Capacities:
    """CSIStorageCapacity objects by storage class, updated from the first use on."""

    def __init__(self, lister: Lister[CSIStorageCapacity]) -> None:
        self._lister = lister
        self._topologies = Topologies()
        self._classes: dict[str, _ClassCapacities] | None = None

    def room(self, view: View, class_name: str, size: int) -> Mask:
        """bool[n]: whether a volume of ``size`` bytes can be provisioned for the row."""
        found = self._known_classes().get(class_name)
        if found is None:
            return np.zeros(view.n, bool)
        ranks = np.full((1, len(self._topologies)), NOWHERE)
        ranks[0, found.places_with(max(size, 0))[0]] = 0
        mask: Mask = self._topologies.spread(view, ranks)[0] != NOWHERE
        return mask

    def free(self, view: View, class_name: str, size: int) -> Int64:
        """int64[n]: the most bytes that are free where a volume of ``size`` bytes can be made; -1 where none can."""
        found = self._known_classes().get(class_name)
        if found is None:
            return np.full(view.n, -1, np.int64)
        places, free = found.places_with(max(size, 0))
        order = np.argsort(-free, kind="stable")
        ranks = np.full((1, len(self._topologies)), NOWHERE)
        # Of several capacities of one topology the first, largest one is assigned last.
        ranks[0, places[order[::-1]]] = np.arange(len(order), dtype=np.int32)[::-1]
        at = self._topologies.spread(view, ranks)[0]
        by_rank = np.append(free[order], np.int64(-1))
        amounts: Int64 = by_rank[np.minimum(at, len(order))]
        return amounts

    def _known_classes(self) -> dict[str, _ClassCapacities]:
        """All capacities by class; read at the first use, and again when too many topologies are unused."""
        if self._classes is None:
            self._lister.follow(self._changed)
        elif not self._topologies.is_wasteful(len(self._lister)):
            return self._classes
        self._topologies = Topologies()
        self._classes = {}
        for capacity in self._lister:
            self._changed(None, capacity)
        return self._classes

    def _changed(self, old: CSIStorageCapacity | None, new: CSIStorageCapacity | None) -> None:
        if self._classes is None:
            return
        limit = None if new is None else volume_limit(new)
        if old is not None and (
            limit is None or new is None or old.storage_class_name != new.storage_class_name
        ):
            self._drop(self._classes, old)
        if new is not None and limit is not None:
            topology = self._topologies.number(topology_of_labels(new.node_topology))
            found = self._classes.setdefault(new.storage_class_name, _ClassCapacities())
            found.set(new.key, max(-1, min(limit, _MOST)), topology, _free_bytes(new))

    @staticmethod
    def _drop(classes: dict[str, _ClassCapacities], old: CSIStorageCapacity) -> None:
        found = classes.get(old.storage_class_name)
        if found is not None:
            found.drop(old.key)
            if not found:
                del classes[old.storage_class_name]


class Provisioning:
    """Decides on which rows claims can be provisioned."""

    def __init__(self, cluster: Cluster) -> None:
        self._drivers = cluster.csi_drivers
        self._capacities = Capacities(cluster.csi_capacities)

    def possible(self, view: View, storage_class: StorageClass) -> Mask:
        """bool[n]: whether the class provisions volumes for the row."""
        if storage_class.provisioner in {"", _NO_PROVISIONER}:
            return np.zeros(view.n, bool)
        allowed = _allowed(storage_class)
        return np.ones(view.n, bool) if allowed is None else match_node_selector(view, allowed)

    def room(self, view: View, wanted: Delayed) -> Mask:
        """bool[n]: whether there is capacity for the claim; True if the driver does not report capacity."""
        size = self._counted(wanted)
        if size is None:
            return np.ones(view.n, bool)
        return self._capacities.room(view, wanted.storage_class.name, size)

    def free(self, view: View, wanted: Delayed) -> Int64 | None:
        """int64[n]: bytes that are free where a volume for the claim can be provisioned, -1 where none can.

        None if the driver does not report capacity. If several capacities fit, kube-scheduler takes any; here it is the
        largest.
        """
        size = self._counted(wanted)
        if size is None:
            return None
        return self._capacities.free(view, wanted.storage_class.name, size)

    def _counted(self, wanted: Delayed) -> int | None:
        """The bytes of a claim if its driver reports capacity."""
        driver = self._drivers.get(wanted.storage_class.provisioner)
        if wanted.size is None or driver is None or not driver.spec.storage_capacity:
            return None
        return whole(wanted.size)


def _allowed(storage_class: StorageClass) -> NodeSelector | None:
    """A class's allowedTopologies as a node selector; None if they allow every node."""
    terms = storage_class.allowed_topologies
    if not terms:
        return None
    return NodeSelector(
        tuple(
            NodeSelectorTerm(
                tuple(
                    Requirement(expression.key, "In", expression.values)
                    for expression in term.match_label_expressions or ()
                )
            )
            for term in terms
        )
    )
