"""The objects of the storage API: volumes, claims, classes and drivers."""

from app.model.limits import Few, Many, Values
from app.model.objects import (
    CSI,
    AWSElasticBlockStore,
    AzureDisk,
    Cinder,
    GCEPersistentDisk,
    Int32,
    Named,
    NodeSelector,
    ObjectStruct,
    Portworx,
    Quantity,
    ResourceRequirements,
    Resources,
)
from app.model.selectors import LabelSelector


class ObjectReference(ObjectStruct, frozen=True):
    """core/v1 ObjectReference, as a PersistentVolume's claimRef."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(ObjectStruct, frozen=True):
    """core/v1 VolumeNodeAffinity."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(ObjectStruct, frozen=True):
    """core/v1 PersistentVolumeSpec."""

    capacity: Resources | None = None
    access_modes: Few[str] | None = None
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSI | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: Cinder | None = None
    portworx_volume: Portworx | None = None


class PhaseStatus(ObjectStruct, frozen=True):
    """A status of which only the phase matters."""

    phase: str = ""


class PersistentVolume(Named, frozen=True, kw_only=True):
    """core/v1 PersistentVolume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PhaseStatus = PhaseStatus()


class PersistentVolumeClaimSpec(ObjectStruct, frozen=True):
    """core/v1 PersistentVolumeClaimSpec."""

    access_modes: Few[str] | None = None
    selector: LabelSelector | None = None
    resources: ResourceRequirements | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(Named, frozen=True, kw_only=True):
    """core/v1 PersistentVolumeClaim."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PhaseStatus = PhaseStatus()


class TopologySelectorRequirement(ObjectStruct, frozen=True):
    """core/v1 TopologySelectorLabelRequirement."""

    key: str = ""
    values: Values = ()


class TopologySelectorTerm(ObjectStruct, frozen=True):
    """core/v1 TopologySelectorTerm."""

    match_label_expressions: Many[TopologySelectorRequirement] | None = None


class StorageClass(Named, frozen=True, kw_only=True):
    """storage.k8s.io/v1 StorageClass."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: Many[TopologySelectorTerm] | None = None


class VolumeNodeResources(ObjectStruct, frozen=True):
    """storage.k8s.io/v1 VolumeNodeResources."""

    count: Int32 | None = None


class CSINodeDriver(ObjectStruct, frozen=True):
    """storage.k8s.io/v1 CSINodeDriver."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ObjectStruct, frozen=True):
    """storage.k8s.io/v1 CSINodeSpec."""

    drivers: Many[CSINodeDriver] | None = None


class CSINode(Named, frozen=True, kw_only=True):
    """storage.k8s.io/v1 CSINode."""

    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(ObjectStruct, frozen=True):
    """storage.k8s.io/v1 CSIDriverSpec."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Named, frozen=True, kw_only=True):
    """storage.k8s.io/v1 CSIDriver."""

    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Named, frozen=True, kw_only=True):
    """storage.k8s.io/v1 CSIStorageCapacity."""

    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
    node_topology: LabelSelector | None = None


class VolumeAttachmentSource(ObjectStruct, frozen=True):
    """storage.k8s.io/v1 VolumeAttachmentSource."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(ObjectStruct, frozen=True):
    """storage.k8s.io/v1 VolumeAttachmentSpec."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Named, frozen=True, kw_only=True):
    """storage.k8s.io/v1 VolumeAttachment."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
