"""Where a volume can be made for a claim: provisioner, allowed topologies, free capacity (spec: plugins.md 2.12)."""

from collections import defaultdict
from typing import Final

import numpy as np

from app.framework.helpers.node_selector import match_node_selector
from app.framework.plugins.volume_binding.claims import Delayed
from app.framework.plugins.volume_binding.reach import (
    NOWHERE,
    Place,
    first_reachable,
    place_of_labels,
)
from app.model.objects import CSIStorageCapacity, NodeSelector, NodeSelectorTerm, StorageClass
from app.model.quantity import QuantityError, parse, whole
from app.model.selectors import Requirement
from app.state.cluster import Cluster, Lister
from app.state.labels import Mask
from app.state.view import View

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


def volume_limit(capacity: CSIStorageCapacity) -> int | None:
    """Bytes of the largest volume that can be made there; None if it is not known."""
    limit = capacity.maximum_volume_size
    amount = capacity.capacity if limit is None else limit
    try:
        return None if amount is None else whole(parse(amount))
    except QuantityError:
        return None


class Capacities:
    """CSIStorageCapacity objects by storage class, kept up to date from the first question on."""

    def __init__(self, lister: Lister[CSIStorageCapacity]) -> None:
        self._lister = lister
        self._by_class: defaultdict[str, dict[str, tuple[int, Place]]] | None = None

    def room(self, view: View, class_name: str, size: int) -> Mask:
        """bool[n]: whether a volume of ``size`` bytes can be made within reach."""
        if self._by_class is None:
            self._by_class = defaultdict(dict)
            for capacity in self._lister:
                self._changed(None, capacity)
            self._lister.follow(self._changed)
        known = self._by_class.get(class_name, {}).values()
        enough = ((0, place) for limit, place in known if limit >= size)
        mask: Mask = first_reachable(view, enough, 1)[0] != NOWHERE
        return mask

    def _changed(self, old: CSIStorageCapacity | None, new: CSIStorageCapacity | None) -> None:
        if self._by_class is None:
            return
        if old is not None:
            self._by_class[old.storage_class_name].pop(old.key, None)
        limit = None if new is None else volume_limit(new)
        if new is not None and limit is not None:
            place = place_of_labels(new.node_topology)
            self._by_class[new.storage_class_name][new.key] = limit, place


class Provisioning:
    """Says where claims can be provisioned."""

    def __init__(self, cluster: Cluster) -> None:
        self._drivers = cluster.csi_drivers
        self._capacities = Capacities(cluster.csi_capacities)

    def possible(self, view: View, storage_class: StorageClass) -> Mask:
        """bool[n]: whether the class makes volumes for the node."""
        if storage_class.provisioner in {"", _NO_PROVISIONER}:
            return np.zeros(view.n, bool)
        allowed = _allowed(storage_class)
        return np.ones(view.n, bool) if allowed is None else match_node_selector(view, allowed)

    def room(self, view: View, wanted: Delayed) -> Mask:
        """bool[n]: whether there is capacity for the claim; all True where the driver does not report capacity."""
        driver = self._drivers.get(wanted.storage_class.provisioner)
        if wanted.size is None or driver is None or not driver.spec.storage_capacity:
            return np.ones(view.n, bool)
        return self._capacities.room(view, wanted.storage_class.name, whole(wanted.size))


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
