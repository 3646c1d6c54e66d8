"""The result of a simulation. ``--output json`` prints these structs as JSON (docs/simulate.md).

Amounts are in the scheduler's units: thousandths for cpu, bytes for memory and storage, whole units for all else.
"""

import msgspec

from app.model.features import OLDEST

#: Increased when a field of the JSON is removed or changes its meaning; fields may be added without that.
VERSION = 1


class _JsonStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Names in the JSON are in camelCase."""


class Placement(_JsonStruct, frozen=True, kw_only=True):
    """A pod that has a node."""

    pod: str
    """Its name, in the workload's namespace."""
    node: str
    zone: str
    """The zone of the node, ``?`` without one."""


class Reason(_JsonStruct, frozen=True, kw_only=True):
    """Why pods are pending."""

    pods: int
    message: str
    """The message of FailedScheduling, or the last error of pods that were neither bound nor rejected."""
    is_decided: bool
    """Whether the scheduler rejected them; otherwise the simulation timed out first."""


class WorkloadResult(_JsonStruct, frozen=True, kw_only=True):
    """One object of the workload, or the pods of one owner that were pending in the cluster."""

    kind: str
    namespace: str
    name: str
    existing: int
    """Pods of it that the cluster had before, which are not in the other numbers."""
    pods: int
    """Pods to be placed."""
    placed: int
    pending: int
    evicted: int
    """Pods that were placed and then preempted for others."""
    zones: dict[str, int]
    """Pods placed in each zone."""
    nodes: dict[str, int]
    """Pods placed on each node."""
    placements: list[Placement]
    reasons: list[Reason]

    @property
    def title(self) -> str:
        """A name for tables: ``Deployment shop/web``."""
        return f"{self.kind} {self.namespace}/{self.name}"


class GroupResult(_JsonStruct, frozen=True, kw_only=True):
    """A pod group."""

    api: str
    """``scheduling.k8s.io`` or ``scheduling.x-k8s.io``."""
    namespace: str
    name: str
    min_count: int
    """How many pods are scheduled together at least; 0 if they do not wait for each other."""
    pods: int
    """Its pods that have not ended, those that ran before included."""
    placed: int
    """Those with a node at the end."""
    runs: bool
    """Whether enough of its pods have a node."""
    reason: str
    """Why not; empty if it runs."""


class PreemptedPod(_JsonStruct, frozen=True, kw_only=True):
    """A pod that was preempted."""

    pod: str
    """``namespace/name``."""
    owner: str
    """Its controller, such as ``ReplicaSet shop/web-5d8f``; empty without one."""
    priority: int
    node: str
    by: str
    """``namespace/name`` of the preemptor."""


class Usage(_JsonStruct, frozen=True, kw_only=True):
    """The usage of one resource of one node."""

    allocatable: int
    before: int
    """Requested by the pods of the dump."""
    after: int
    """Requested at the end."""

    @property
    def share(self) -> float:
        """How much of it is requested at the end, 0 to 1; more if too much is."""
        return self.after / self.allocatable if self.allocatable else 0.0


class NodeUse(_JsonStruct, frozen=True, kw_only=True):
    """One node."""

    name: str
    zone: str
    resources: dict[str, Usage]
    """cpu, memory, pods and any other resource that is allocatable or requested."""

    @property
    def is_changed(self) -> bool:
        """Whether the requests have changed."""
        return any(usage.before != usage.after for usage in self.resources.values())

    @property
    def fullness(self) -> float:
        """The largest share of any resource."""
        return max((usage.share for usage in self.resources.values()), default=0.0)


class SimulationResult(_JsonStruct, frozen=True, kw_only=True):
    """The whole result."""

    version: int = VERSION
    is_complete: bool
    """Whether every pod was bound or rejected before the timeout."""
    seconds: float
    """How long it took, from the start of the scheduler."""
    workloads: list[WorkloadResult]
    """What was to be placed."""
    pending_before: list[WorkloadResult]
    """The pods that were pending in the cluster, by owner."""
    groups: list[GroupResult] = []
    """All pod groups of the cluster and the workload."""
    preempted: list[PreemptedPod]
    nodes: list[NodeUse]
    other_schedulers: dict[str, int]
    """Pods that wait for schedulers which the configuration has no profile for, by name."""
    passed_over: dict[str, int]
    """Objects of kinds that scheduling does not read, by kind."""
    extenders_left_out: list[str]
    warnings: list[str]
    rules: str = OLDEST
    """The version of kube-scheduler whose rules decided."""

    @property
    def pending(self) -> int:
        """Pods of the workload without a node at the end."""
        return sum(each.pending for each in self.workloads)

    @property
    def is_placed(self) -> bool:
        """Whether every pod of the workload has a node at the end."""
        return self.is_complete and all(each.placed == each.pods for each in self.workloads)
