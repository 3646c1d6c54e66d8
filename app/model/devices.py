"""The kinds of resource.k8s.io/v1 (KEP-4381), as far as a scheduler reads and writes them.

Structs as in ``app.model.objects``: frozen, unknown fields ignored, None for absent. An AllocationResult goes back to the API
server as it stands here, so its structs have every field that kube-scheduler fills in.
"""

import msgspec

from app.model.limits import Expression, Few, FewByName, Many, ManyDevices
from app.model.objects import Int64, Named, NodeSelector, Object, ObjectMeta, Quantity

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Keeps a claim while it is allocated."""
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""Annotation ("true") of a claim that stands for a pod's extended resources."""
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim made from a template: the name of the entry in the pod."""
CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Before the name of a DeviceClass: the extended resource that every class has."""
MAX_RESERVED_FOR = 256
MAX_RESULTS = 32
MAX_ALTERNATIVES = 8


# ---------------------------------------------------------------- what drivers offer


class DeviceAttribute(Object, frozen=True):
    """One of the values is set. The lists belong to a feature gate that is off."""

    integer: Int64 | None = msgspec.field(default=None, name="int")
    boolean: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class CapacityRange(Object, frozen=True):
    """CapacityRequestPolicyRange."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityPolicy(Object, frozen=True):
    """CapacityRequestPolicy: how much of a shared device's capacity a request may take."""

    default: Quantity | None = None
    valid_values: Few[Quantity] | None = None
    valid_range: CapacityRange | None = None


class DeviceCapacity(Object, frozen=True):
    """An amount of something, and how it is shared."""

    value: Quantity = "0"
    request_policy: CapacityPolicy | None = None


class Counter(Object, frozen=True):
    """An amount that partitions of a device share."""

    value: Quantity = "0"


class CounterSet(Object, frozen=True):
    """Counters by name."""

    name: str = ""
    counters: FewByName[Counter] | None = None


class CounterConsumption(Object, frozen=True):
    """DeviceCounterConsumption: what a device takes of a set."""

    counter_set: str = ""
    counters: FewByName[Counter] | None = None


class DeviceTaint(Object, frozen=True):
    """Keeps away requests that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(Object, frozen=True, weakref=True):
    """One device of a slice. Keys of attributes and capacity are qualified or not (then by the driver's name)."""

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


class ResourcePool(Object, frozen=True):
    """The pool that a slice is part of; only the slices of its highest generation count."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Object, frozen=True):
    """Devices of one driver, and the nodes that reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: ManyDevices[Device] | None = None
    shared_counters: Few[CounterSet] | None = None


class ResourceSlice(Named, frozen=True, kw_only=True):
    """resource.k8s.io/v1 ResourceSlice."""

    spec: ResourceSliceSpec = ResourceSliceSpec()


# ---------------------------------------------------------------- what pods ask for


class CELSelector(Object, frozen=True):
    """CELDeviceSelector."""

    expression: Expression = ""


class DeviceSelector(Object, frozen=True):
    """Selects devices."""

    cel: CELSelector | None = None


class OpaqueConfiguration(Object, frozen=True):
    """OpaqueDeviceConfiguration: handed on to the driver as it is."""

    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"null")


class DeviceConfiguration(Object, frozen=True):
    """Of a class (without requests) or a claim."""

    requests: Few[str] | None = None
    opaque: OpaqueConfiguration | None = None


class DeviceToleration(Object, frozen=True):
    """Of taints of devices."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(Object, frozen=True):
    """What a request needs of the capacity of one device."""

    requests: FewByName[Quantity] | None = None


class ExactDeviceRequest(Object, frozen=True):
    """A request without alternatives."""

    device_class_name: str = ""
    selectors: Few[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: Few[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Object, frozen=True):
    """One of several alternatives."""

    name: str = ""
    device_class_name: str = ""
    selectors: Few[DeviceSelector] | None = None
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: Few[DeviceToleration] | None = None
    capacity: CapacityRequirements | None = None


class DeviceRequest(Object, frozen=True):
    """Exactly this, or the first of these that is available."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: Few[DeviceSubRequest] | None = None


class DeviceConstraint(Object, frozen=True):
    """Of the devices of some requests together (of all where none are named)."""

    requests: Few[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Object, frozen=True):
    """What a claim asks for."""

    requests: Few[DeviceRequest] | None = None
    constraints: Few[DeviceConstraint] | None = None
    config: Few[DeviceConfiguration] | None = None


class ResourceClaimSpec(Object, frozen=True):
    """Does not change once it is written."""

    devices: DeviceClaim = DeviceClaim()


class DeviceClassSpec(Object, frozen=True):
    """What all requests for the class ask for, too."""

    selectors: Few[DeviceSelector] | None = None
    config: Few[DeviceConfiguration] | None = None
    extended_resource_name: str | None = None


class DatedMeta(ObjectMeta, frozen=True):
    """Metadata with the time of creation: of two classes for one extended resource the newer counts."""

    creation_timestamp: str | None = None


class DeviceClass(Named, frozen=True, kw_only=True):
    """resource.k8s.io/v1 DeviceClass."""

    metadata: DatedMeta = DatedMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


# ---------------------------------------------------------------- what was allocated


class DeviceResult(Object, frozen=True):
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


class AllocatedConfiguration(Object, frozen=True):
    """DeviceAllocationConfiguration: ``source`` is FromClass or FromClaim."""

    source: str = ""
    requests: Few[str] | None = None
    opaque: OpaqueConfiguration | None = None


class DeviceResults(Object, frozen=True):
    """DeviceAllocationResult."""

    results: ManyDevices[DeviceResult] | None = None
    config: Many[AllocatedConfiguration] | None = None


class AllocationResult(Object, frozen=True):
    """Devices for a claim, and the nodes that reach them (None: all)."""

    devices: DeviceResults = DeviceResults()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ConsumerReference(Object, frozen=True):
    """ResourceClaimConsumerReference."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(Object, frozen=True):
    """metav1.Condition, as drivers set it."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(Object, frozen=True):
    """What a driver says of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: Few[DeviceCondition] | None = None


class ResourceClaimStatus(Object, frozen=True):
    """Whether a claim is allocated, and for whom it is reserved."""

    allocation: AllocationResult | None = None
    reserved_for: ManyDevices[ConsumerReference] | None = None
    devices: ManyDevices[AllocatedDeviceStatus] | None = None


class ClaimMeta(ObjectMeta, frozen=True):
    """Metadata with what the scheduler writes to a claim."""

    finalizers: Many[str] | None = None
    generate_name: str = ""


class ResourceClaim(Named, frozen=True, kw_only=True):
    """resource.k8s.io/v1 ResourceClaim."""

    metadata: ClaimMeta = ClaimMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()
