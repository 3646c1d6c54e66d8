"""The fields of Kubernetes objects that the scheduler reads, as frozen structs decoded from JSON.

Every struct ignores unknown fields. ``None`` means an absent (or null) field where absence matters; lists are tuples
so that structs can be compared and shared.
"""

from typing import Annotated, Final

import msgspec

from app.model.limits import ByResource, Few, Many, Name, Ports, TextMap
from app.model.selectors import LabelSelector, Requirement

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""Go's int32: an object with a number beyond it is refused, as API servers refuse it."""
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Go's int64."""
Quantity = str | Int64 | float
"""As JSON has it; ``app.model.quantity.parse`` reads it. API servers write texts."""
Resources = ByResource[Quantity]


class ObjectStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of the nested structs."""


class OwnerReference(ObjectStruct, frozen=True):
    """metav1.OwnerReference."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = ""


class ObjectMeta(ObjectStruct, frozen=True):
    """metav1.ObjectMeta. Timestamps are kept as text: only their presence is used."""

    name: Name = ""
    namespace: Name = ""
    uid: Name = ""
    resource_version: Name = ""
    generation: Int64 = 0
    labels: TextMap | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    owner_references: Many[OwnerReference] | None = None


class Named(ObjectStruct, frozen=True):
    """An object with metadata; the accessors common to all kinds."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """metadata.namespace, empty for cluster-scoped kinds."""
        return self.metadata.namespace

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return self.metadata.uid

    @property
    def resource_version(self) -> str:
        """metadata.resourceVersion."""
        return self.metadata.resource_version

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone for cluster-scoped kinds."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def labels(self) -> dict[str, str]:
        """metadata.labels, empty when absent."""
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        """metadata.annotations, empty when absent."""
        return self.metadata.annotations or {}

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the object."""
        owners = self.metadata.owner_references or ()
        return next((owner for owner in owners if owner.controller), None)

    @property
    def controller_uid(self) -> str:
        """The uid of the owner that controls the object; empty without one."""
        owner = self.controller
        return "" if owner is None else owner.uid


# ---------------------------------------------------------------- node selection and affinity


class NodeSelectorTerm(ObjectStruct, frozen=True):
    """Expressions over labels and fields, all of which must match; an empty term matches nothing."""

    match_expressions: Many[Requirement] | None = None
    match_fields: Many[Requirement] | None = None


class NodeSelector(ObjectStruct, frozen=True):
    """Terms of which one must match."""

    node_selector_terms: Many[NodeSelectorTerm] | None = None


class PreferredSchedulingTerm(ObjectStruct, frozen=True):
    """A node selector term with a weight (1 to 100)."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(ObjectStruct, frozen=True):
    """core/v1 NodeAffinity."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: Many[PreferredSchedulingTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(ObjectStruct, frozen=True):
    """core/v1 PodAffinityTerm; matchLabelKeys are merged into the selector by the API server."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: Many[str] | None = None
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(ObjectStruct, frozen=True):
    """A pod affinity term with a weight (1 to 100)."""

    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(ObjectStruct, frozen=True):
    """core/v1 PodAffinity and PodAntiAffinity: the same shape."""

    required: Many[PodAffinityTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: Many[WeightedPodAffinityTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(ObjectStruct, frozen=True):
    """core/v1 Affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(ObjectStruct, frozen=True):
    """core/v1 Toleration."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Taint(ObjectStruct, frozen=True):
    """core/v1 Taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(ObjectStruct, frozen=True):
    """core/v1 TopologySpreadConstraint."""

    max_skew: Int32 = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: Many[str] | None = None


# ---------------------------------------------------------------- containers and volumes


class ResourceRequirements(ObjectStruct, frozen=True):
    """Requests and limits by resource name; quantities as they are on the wire."""

    requests: Resources | None = None
    limits: Resources | None = None


class ContainerPort(ObjectStruct, frozen=True):
    """core/v1 ContainerPort."""

    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class ContainerRestartRule(ObjectStruct, frozen=True):
    """core/v1 ContainerRestartRule."""

    action: str = ""


class VolumeMount(ObjectStruct, frozen=True, gc=False):
    """core/v1 VolumeMount."""

    bind_mount_options: Few[str] | None = None


class Container(ObjectStruct, frozen=True):
    """core/v1 Container, init containers included."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: Ports[ContainerPort] | None = None
    restart_policy: str | None = None
    restart_policy_rules: Many[ContainerRestartRule] | None = None
    volume_mounts: Many[VolumeMount] | None = None


class GCEPersistentDisk(ObjectStruct, frozen=True):
    """core/v1 GCEPersistentDiskVolumeSource."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(ObjectStruct, frozen=True):
    """core/v1 AWSElasticBlockStoreVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class ISCSI(ObjectStruct, frozen=True):
    """core/v1 ISCSIVolumeSource."""

    iqn: str = ""
    read_only: bool = False


class RBD(ObjectStruct, frozen=True):
    """core/v1 RBDVolumeSource; ``monitors`` is set, ``pool`` defaulted to rbd by the API server."""

    monitors: Few[str] | None = None
    image: str = ""
    pool: str = ""
    read_only: bool = False


class AzureDisk(ObjectStruct, frozen=True):
    """core/v1 AzureDiskVolumeSource."""

    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None


class Cinder(ObjectStruct, frozen=True):
    """core/v1 CinderVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class Portworx(ObjectStruct, frozen=True):
    """core/v1 PortworxVolumeSource."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class CSI(ObjectStruct, frozen=True):
    """core/v1 CSIVolumeSource (inline) and CSIPersistentVolumeSource."""

    driver: str = ""
    volume_handle: str = ""


class ClaimSource(ObjectStruct, frozen=True):
    """core/v1 PersistentVolumeClaimVolumeSource."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralSource(ObjectStruct, frozen=True):
    """core/v1 EphemeralVolumeSource; only its presence matters."""


class ImageSource(ObjectStruct, frozen=True):
    """core/v1 ImageVolumeSource."""

    reference: str = ""


class Volume(ObjectStruct, frozen=True):
    """core/v1 Volume: the sources relevant to scheduling; all None for other sources."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    csi: CSI | None = None
    image: ImageSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    iscsi: ISCSI | None = None
    rbd: RBD | None = None
    azure_disk: AzureDisk | None = None
    cinder: Cinder | None = None
    portworx_volume: Portworx | None = None

    @property
    def matters(self) -> bool:
        """Whether the volume is relevant to any plugin."""
        return any(getattr(self, name) is not None for name in _SOURCES)


_SOURCES = tuple(f for f in Volume.__struct_fields__ if f != "name")


class SchedulingGate(ObjectStruct, frozen=True):
    """core/v1 PodSchedulingGate."""

    name: str = ""


class PodResourceClaim(ObjectStruct, frozen=True):
    """core/v1 PodResourceClaim."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(ObjectStruct, frozen=True):
    """core/v1 PodResourceClaimStatus: the claim created for an entry of the spec; None if none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodSpec(msgspec.Struct, rename="camel", omit_defaults=True, eq=False, weakref=True):
    """The part of core/v1 PodSpec that is relevant to scheduling and that replicas share."""

    scheduler_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    containers: Many[Container] = ()
    init_containers: Many[Container] | None = None
    overhead: Resources | None = None
    resources: ResourceRequirements | None = None
    node_selector: TextMap | None = None
    affinity: Affinity | None = None
    tolerations: Many[Toleration] | None = None
    topology_spread_constraints: Many[TopologySpreadConstraint] | None = None
    volumes: Many[Volume] | None = None
    resource_claims: Many[PodResourceClaim] | None = None
    scheduling_gates: Many[SchedulingGate] | None = None
    host_network: bool = False
    host_users: bool | None = None


class PodCondition(ObjectStruct, frozen=True):
    """core/v1 PodCondition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_probe_time: str | None = None
    observed_generation: Int64 = 0


class ContainerStatus(ObjectStruct, frozen=True):
    """The fields of core/v1 ContainerStatus for in-place resize."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Resources | None = None


# ---------------------------------------------------------------- nodes


class ContainerImage(ObjectStruct, frozen=True):
    """core/v1 ContainerImage."""

    names: tuple[str, ...] | None = None
    size_bytes: Int64 = 0


class NodeCondition(ObjectStruct, frozen=True):
    """core/v1 NodeCondition."""

    type: str = ""
    status: str = ""


class NodeSpec(ObjectStruct, frozen=True):
    """core/v1 NodeSpec."""

    unschedulable: bool = False
    taints: Many[Taint] | None = None


class NodeStatus(ObjectStruct, frozen=True):
    """core/v1 NodeStatus."""

    allocatable: Resources | None = None
    conditions: Many[NodeCondition] | None = None
    images: tuple[ContainerImage, ...] | None = None
    declared_features: Many[str] | None = None


#: Fields of a node's status.nodeInfo (NodeSystemInfo). Generated clients require all of them, and Go writes empty
#: ones too.
NODE_INFO_FIELDS: Final = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion"),
    *("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture"),
)


class Node(Named, frozen=True, kw_only=True):
    """core/v1 Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    #: The object's JSON for extenders, kept when one needs whole nodes; set by wire, never read from the wire.
    raw: bytes | None = msgspec.field(default=None, name="<raw>")


# ---------------------------------------------------------------- the other kinds


class Namespace(Named, frozen=True):
    """core/v1 Namespace."""


class ServiceSpec(ObjectStruct, frozen=True):
    """core/v1 ServiceSpec and ReplicationControllerSpec: a map selector."""

    selector: TextMap | None = None


class Service(Named, frozen=True, kw_only=True):
    """core/v1 Service."""

    spec: ServiceSpec = ServiceSpec()


class ReplicationController(Named, frozen=True, kw_only=True):
    """core/v1 ReplicationController."""

    spec: ServiceSpec = ServiceSpec()


class WorkloadSpec(ObjectStruct, frozen=True):
    """The selector of an apps/v1 ReplicaSet or StatefulSet."""

    selector: LabelSelector | None = None


class ReplicaSet(Named, frozen=True, kw_only=True):
    """apps/v1 ReplicaSet."""

    spec: WorkloadSpec = WorkloadSpec()


class StatefulSet(Named, frozen=True, kw_only=True):
    """apps/v1 StatefulSet."""

    spec: WorkloadSpec = WorkloadSpec()


class PodDisruptionBudgetStatus(ObjectStruct, frozen=True):
    """policy/v1 PodDisruptionBudgetStatus."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Named, frozen=True, kw_only=True):
    """policy/v1 PodDisruptionBudget."""

    spec: WorkloadSpec = WorkloadSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
