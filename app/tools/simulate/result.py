"""What a simulation has to tell. The JSON of these structs is what ``--output json`` prints (docs/simulate.md).

Amounts are in the scheduler's units: thousandths for cpu, bytes for memory and storage, whole units for all else.
"""

import msgspec

#: Raised when a field of the JSON goes or changes its meaning; new fields may come at any time.
VERSION = 1


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Names in the JSON are in camelCase."""


class Placement(Struct, frozen=True, kw_only=True):
    """A pod that has a node."""

    pod: str
    """Its name, in the workload's namespace."""
    node: str
    zone: str
    """Of the node, ``?`` where it has none."""


class Reason(Struct, frozen=True, kw_only=True):
    """Why pods are pending."""

    pods: int
    message: str
    """That of FailedScheduling; of the last error if the pods could not be decided about."""
    is_decided: bool
    """Whether the scheduler has rejected them; if not, it was still at it when the time was up."""


class Workload(Struct, frozen=True, kw_only=True):
    """One object of the workload, or the pods of one owner that have been pending in the cluster."""

    kind: str
    namespace: str
    name: str
    existing: int
    """Pods of it that the cluster had running or pending before, which are in no other number here."""
    pods: int
    """That were to be placed."""
    placed: int
    pending: int
    evicted: int
    """Placed at first, then preempted for others."""
    zones: dict[str, int]
    """Pods placed in each zone."""
    nodes: dict[str, int]
    """Pods placed on each node."""
    placements: list[Placement]
    reasons: list[Reason]

    @property
    def title(self) -> str:
        """For people: ``Deployment shop/web``."""
        return f"{self.kind} {self.namespace}/{self.name}"


class Preempted(Struct, frozen=True, kw_only=True):
    """A pod that had to go."""

    pod: str
    """``namespace/name``."""
    owner: str
    """Who would make it anew: ``ReplicaSet shop/web-5d8f``; empty for nobody."""
    priority: int
    node: str
    by: str
    """``namespace/name`` of the pod it had to make room for."""


class Usage(Struct, frozen=True, kw_only=True):
    """Of one resource of one node."""

    allocatable: int
    before: int
    """Requested by the pods of the dump."""
    after: int
    """Requested at the end."""

    @property
    def share(self) -> float:
        """How much of it is requested at the end, 0 to 1; more if too much is."""
        return self.after / self.allocatable if self.allocatable else 0.0


class NodeUse(Struct, frozen=True, kw_only=True):
    """One node."""

    name: str
    zone: str
    resources: dict[str, Usage]
    """cpu, memory, pods and whatever else it has or is asked for."""

    @property
    def is_changed(self) -> bool:
        """Whether anything came or went."""
        return any(usage.before != usage.after for usage in self.resources.values())

    @property
    def fullness(self) -> float:
        """The largest share of any resource."""
        return max((usage.share for usage in self.resources.values()), default=0.0)


class Answer(Struct, frozen=True, kw_only=True):
    """All of it."""

    version: int = VERSION
    is_complete: bool
    """Whether everything was decided before the time was up."""
    seconds: float
    """How long it took, from the start of the scheduler."""
    workloads: list[Workload]
    """What was to be placed."""
    pending_before: list[Workload]
    """The pods that have been pending in the cluster, by owner."""
    preempted: list[Preempted]
    nodes: list[NodeUse]
    other_schedulers: dict[str, int]
    """Pods that wait for schedulers which the configuration has no profile for, by name."""
    passed_over: dict[str, int]
    """Objects of kinds that scheduling does not read, by kind."""
    extenders_left_out: list[str]
    warnings: list[str]

    @property
    def pending(self) -> int:
        """Pods of the workload without a node at the end."""
        return sum(each.pending for each in self.workloads)

    @property
    def is_placed(self) -> bool:
        """Whether every pod of the workload has a node at the end."""
        return self.is_complete and all(each.placed == each.pods for each in self.workloads)
