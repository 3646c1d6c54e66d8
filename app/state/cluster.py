"""All kinds except pods and nodes, as the watches last showed them.

SchedulerState stores the objects; plugins read them. Each lister has a version, so that values derived from a kind
can be kept until it changes.
"""

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from app.model.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from app.model.objects import (
    Named,
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from app.model.pod_groups import LabelledPodGroup, PodGroup
from app.model.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from app.state.assume_cache import AssumedVolumes, ClaimCache, VolumeCache
from app.state.devices import DeviceTracker
from app.state.lister import Lister
from app.state.pod_groups import PodGroups
from app.state.tainted_slices import TaintedSlices

T = TypeVar("T", bound=Named)


class Cluster:
    """One lister per kind, and the state derived from them that all profiles share."""

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
        self.resource_claims: Final = Lister[ResourceClaim]()
        self.resource_slices: Final = Lister[ResourceSlice]()
        self.device_classes: Final = Lister[DeviceClass]()
        self.device_taint_rules: Final = Lister[DeviceTaintRule]()
        self.pod_groups: Final = PodGroups()
        self._assumed: AssumedVolumes | None = None
        self._devices: DeviceTracker | None = None
        self._tainted_slices: TaintedSlices | None = None
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
            ResourceClaim: self.resource_claims,
            ResourceSlice: self.resource_slices,
            DeviceClass: self.device_classes,
            DeviceTaintRule: self.device_taint_rules,
            PodGroup: self.pod_groups.listers[PodGroup],
            LabelledPodGroup: self.pod_groups.listers[LabelledPodGroup],
        }

    def lister(self, kind: type[T]) -> Lister[T]:
        """The lister of a kind. Raises KeyError for other kinds."""
        return self._by_kind[kind]

    def kinds(self) -> Iterable[type[Named]]:
        """All kinds but pods and nodes."""
        return self._by_kind.keys()

    def listers(self) -> Iterable[Lister[Any]]:
        """The listers of all kinds."""
        return self._by_kind.values()

    @property
    def assumed(self) -> AssumedVolumes:
        """The caches of assumed volumes and claims; created at the first use."""
        if self._assumed is None:
            self._assumed = AssumedVolumes(VolumeCache(self.volumes), ClaimCache(self.claims))
        return self._assumed

    @property
    def tainted_slices(self) -> TaintedSlices:
        """The ResourceSlices with the taints of DeviceTaintRules; created at the first use."""
        if self._tainted_slices is None:
            self._tainted_slices = TaintedSlices(self.resource_slices, self.device_taint_rules)
        return self._tainted_slices

    @property
    def devices(self) -> DeviceTracker:
        """The allocated devices, including allocations in flight; created at the first use."""
        if self._devices is None:
            self._devices = DeviceTracker(self.resource_claims, self.device_classes)
        return self._devices
