"""Every kind but pods and nodes, as last seen: what plugins look things up in.

The shell stores objects as their watches deliver them; plugins read. ``versions`` counts the changes per kind so that
whatever is derived from a kind can be kept until it changes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from app.model.objects import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Named,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    StorageClass,
    VolumeAttachment,
)

if TYPE_CHECKING:
    from app.state.assume_cache import AssumedVolumes

T = TypeVar("T", bound=Named)

#: ``follower(old, new)``: ``old`` is None for an object that is new, ``new`` for one that is gone.
Follower = Callable[[T | None, T | None], None]


class Lister(Generic[T]):
    """The objects of one kind by namespace and name (namespace "" for cluster-scoped kinds)."""

    def __init__(self) -> None:
        self._by_namespace: defaultdict[str, dict[str, T]] = defaultdict(dict)
        self._followers: list[Follower[T]] = []
        #: Grows with every change.
        self.version = 0

    def get(self, name: str, namespace: str = "") -> T | None:
        """One object, or None."""
        return self._by_namespace[namespace].get(name) if namespace in self._by_namespace else None

    def in_namespace(self, namespace: str) -> Mapping[str, T]:
        """The objects of a namespace by name."""
        return self._by_namespace.get(namespace, {})

    def __iter__(self) -> Iterator[T]:
        for objects in self._by_namespace.values():
            yield from objects.values()

    def __len__(self) -> int:
        return sum(len(objects) for objects in self._by_namespace.values())

    def follow(self, follower: Follower[T]) -> None:
        """Has every later change told to an index that is derived from these objects, after it was made."""
        self._followers.append(follower)

    def store(self, obj: T) -> None:
        """Adds an object or takes over its new version."""
        objects = self._by_namespace[obj.namespace]
        old = objects.get(obj.name)
        objects[obj.name] = obj
        self.version += 1
        for follower in self._followers:
            follower(old, obj)

    def remove(self, obj: T) -> None:
        """Forgets an object; one that is not there is no error."""
        objects = self._by_namespace.get(obj.namespace, {})
        old = objects.pop(obj.name, None)
        if not objects:
            self._by_namespace.pop(obj.namespace, None)
        self.version += 1
        if old is not None:
            for follower in self._followers:
                follower(old, None)


class Cluster:
    """One lister per kind."""

    def __init__(self) -> None:
        self.namespaces: Final = Lister[Namespace]()
        self.services: Final = Lister[Service]()
        self.replication_controllers: Final = Lister[ReplicationController]()
        self.replica_sets: Final = Lister[ReplicaSet]()
        self.stateful_sets: Final = Lister[StatefulSet]()
        self.disruption_budgets: Final = Lister[PodDisruptionBudget]()
        self.volumes: Final = Lister[PersistentVolume]()
        self.claims: Final = Lister[PersistentVolumeClaim]()
        self.storage_classes: Final = Lister[StorageClass]()
        self.csi_nodes: Final = Lister[CSINode]()
        self.csi_drivers: Final = Lister[CSIDriver]()
        self.csi_capacities: Final = Lister[CSIStorageCapacity]()
        self.attachments: Final = Lister[VolumeAttachment]()
        #: Volumes and claims as assumed, from when a plugin first asks for them (see assumed_volumes).
        self.assumed: AssumedVolumes | None = None
        self._by_kind: Final[dict[type[Named], Lister[Any]]] = {
            Namespace: self.namespaces,
            Service: self.services,
            ReplicationController: self.replication_controllers,
            ReplicaSet: self.replica_sets,
            StatefulSet: self.stateful_sets,
            PodDisruptionBudget: self.disruption_budgets,
            PersistentVolume: self.volumes,
            PersistentVolumeClaim: self.claims,
            StorageClass: self.storage_classes,
            CSINode: self.csi_nodes,
            CSIDriver: self.csi_drivers,
            CSIStorageCapacity: self.csi_capacities,
            VolumeAttachment: self.attachments,
        }

    def lister(self, kind: type[T]) -> Lister[T]:
        """The lister of a kind. Raises KeyError for kinds that are not kept here."""
        return self._by_kind[kind]
