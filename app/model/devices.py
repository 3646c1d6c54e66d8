"""The kinds of resource.k8s.io/v1 (KEP-4381), as far as a scheduler reads and writes them.

Structs as in ``app.model.objects``: frozen, unknown fields ignored, None for absent. An AllocationResult is written
to the API server in this form, so its structs have every field that kube-scheduler sets.
"""

import msgspec

from app.model.limits import Expression, Few, FewByName, Many, ManyDevices
from app.model.objects import Int64, Named, NodeSelector, ObjectMeta, ObjectStruct, Quantity

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Keeps a claim while it is allocated."""
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""Annotation ("true") of a claim for a pod's extended resources."""
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim made from a template: the name of the entry in the pod."""
CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Before the name of a DeviceClass: the extended resource that every class has."""
MAX_RESERVED_FOR = 256
MAX_RESULTS = 32
MAX_ALTERNATIVES = 8


# ---------------------------------------------------------------- what drivers offer


class DeviceAttribute(ObjectStruct, frozen=True):
    """Exactly one value is set. The lists belong to a feature gate that is off."""

    integer: Int64 | None = msgspec.field(default=None, name="int")
    boolean: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class CapacityRange(ObjectStruct, frozen=True):
    """CapacityRequestPolicyRange."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityPolicy(ObjectStruct, frozen=True):
    """CapacityRequestPolicy: how much of a shared device's capacity a request may take."""

    default: Quantity | None = None
    valid_values: Few[Quantity] | None = None
    valid_range: CapacityRange | None = None


class DeviceCapacity(ObjectStruct, frozen=True):
    """The amount of a capacity, and how it is shared."""

    value: Quantity = "0"
    request_policy: CapacityPolicy | None = None


class Counter(ObjectStruct, frozen=True):
    """An amount shared by the partitions of a device."""

    value: Quantity = "0"


class CounterSet(ObjectStruct, frozen=True):
    """Counters by name."""

    name: str = ""
    counters: FewByName[Counter] | None = None


class CounterConsumption(ObjectStruct, frozen=True):
    """DeviceCounterConsumption: what a device consumes of a counter set."""

    counter_set: str = ""
    counters: FewByName[Counter] | None = None


class DeviceTaint(ObjectStruct, frozen=True):
    """A taint of a device, which excludes requests that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(ObjectStruct, frozen=True, weakref=True):
    """One device of a slice. Attribute and capacity names without a domain belong to the driver's domain."""

    name: str = ""
    attributes: FewByName[DeviceAttribute] | None = None
    capacity: FewByName[DeviceCapacity] | None = None
    consumes_counters: Few[CounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: Few[DeviceTaint] | None = None
    binds_to_node: bool | None = None
    binding_conditions: Few[str] | None = None
    binding_failure_conditions: Few[str] | None = None
    allow_multiple_allocations: bool | None = None


class ResourcePool(ObjectStruct, frozen=True):
    """The pool that a slice is part of; only the slices of its highest generation count."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(ObjectStruct, frozen=True):
    """Devices of one driver, and the nodes that can access them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: ManyDevices[Device] | None = None
    shared_counters: Few[CounterSet] | None = None


class DeviceTaintSelector(ObjectStruct, frozen=True):
    """The devices of a DeviceTaintRule: those that have all that is given."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ObjectStruct, frozen=True):
    """A taint, and the devices that have it."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Named, frozen=True, kw_only=True):
    """resource.k8s.io/v1 DeviceTaintRule."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


class ResourceSlice(Named, frozen=True, kw_only=True):
    """resource.k8s.io/v1 ResourceSlice."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


# ---------------------------------------------------------------- what pods ask for


class CELSelector(ObjectStruct, frozen=True):
    """CELDeviceSelector."""

    expression: Expression = ""


class DeviceSelector(ObjectStruct, frozen=True):
    """A condition on devices."""

    cel: CELSelector | None = None


class OpaqueConfiguration(ObjectStruct, frozen=True):
    """OpaqueDeviceConfiguration: passed to the driver unchanged."""

    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"null")


class DeviceConfiguration(ObjectStruct, frozen=True):
    """Configuration of a class (without requests) or a claim."""

    requests: Few[str] | None = None
    opaque: OpaqueConfiguration | None = None


class DeviceToleration(ObjectStruct, frozen=True):
    """A toleration for device taints."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(ObjectStruct, frozen=True):
    """What a request needs of the capacity of one device."""

    requests: FewByName[Quantity] | None = None


class ExactDeviceRequest(ObjectStruct, frozen=True):
    """A request without alternatives."""

    device_class_name: str = ""
    selectors: Few[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: Few[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(ObjectStruct, frozen=True):
    """One of several alternatives."""

    name: str = ""
    device_class_name: str = ""
    selectors: Few[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: Few[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class DeviceRequest(ObjectStruct, frozen=True):
    """One exact request, or alternatives of which the first available one is used."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: Few[DeviceSubRequest] | None = None


class DeviceConstraint(ObjectStruct, frozen=True):
    """A constraint on the devices of several requests together (of all if none are named)."""

    requests: Few[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(ObjectStruct, frozen=True):
    """The requests of a claim."""

    requests: Few[DeviceRequest] | None = None
    constraints: Few[DeviceConstraint] | None = None
    config: Few[DeviceConfiguration] | None = None


class ResourceClaimSpec(ObjectStruct, frozen=True):
    """The immutable spec of a claim."""

    devices: DeviceClaim = DeviceClaim()


class DeviceClassSpec(ObjectStruct, frozen=True):
    """Selectors and configuration that apply to all requests for the class."""

    selectors: Few[DeviceSelector] | None = None
    config: Few[DeviceConfiguration] | None = None
    extended_resource_name: str | None = None


class DatedMeta(ObjectMeta, frozen=True):
    """Metadata with the creation time: of two classes for one extended resource the newer one counts."""

    creation_timestamp: str | None = None


class DeviceClass(Named, frozen=True, kw_only=True):
    """resource.k8s.io/v1 DeviceClass."""

    metadata: DatedMeta = DatedMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


# ---------------------------------------------------------------- what was allocated


class DeviceResult(ObjectStruct, frozen=True):
    """DeviceRequestAllocationResult: a device for a request (``request`` or ``request/alternative``)."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: Few[DeviceToleration] | None = None
    binding_conditions: Few[str] | None = None
    binding_failure_conditions: Few[str] | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: FewByName[Quantity] | None = None


class AllocatedConfiguration(ObjectStruct, frozen=True):
    """DeviceAllocationConfiguration: ``source`` is FromClass or FromClaim."""

    source: str = ""
    requests: Few[str] | None = None
    opaque: OpaqueConfiguration | None = None


class DeviceResults(ObjectStruct, frozen=True):
    """DeviceAllocationResult."""

    results: ManyDevices[DeviceResult] | None = None
    config: Many[AllocatedConfiguration] | None = None


class AllocationResult(ObjectStruct, frozen=True):
    """The devices allocated to a claim, and the nodes that can access them (None: all)."""

    devices: DeviceResults = DeviceResults()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None

    @property
    def device_names(self) -> frozenset[str]:
        """The devices, as ``driver/pool/device``."""
        results = self.devices.results or ()
        return frozenset(f"{each.driver}/{each.pool}/{each.device}" for each in results)


class ConsumerReference(ObjectStruct, frozen=True):
    """ResourceClaimConsumerReference."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(ObjectStruct, frozen=True):
    """metav1.Condition, as drivers set it."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(ObjectStruct, frozen=True):
    """The driver's status of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: Few[DeviceCondition] | None = None


class ResourceClaimStatus(ObjectStruct, frozen=True):
    """The allocation of a claim and its consumers."""

    allocation: AllocationResult | None = None
    reserved_for: ManyDevices[ConsumerReference] | None = None
    devices: ManyDevices[AllocatedDeviceStatus] | None = None


class ClaimMeta(ObjectMeta, frozen=True):
    """Metadata with the fields that the scheduler writes to a claim."""

    finalizers: Many[str] | None = None
    generate_name: str = ""


class ResourceClaim(Named, frozen=True, kw_only=True):
    """resource.k8s.io/v1 ResourceClaim."""

    metadata: ClaimMeta = ClaimMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()
