"""Cluster events: changes that can make an unschedulable pod schedulable (docs/spec/cluster-events.md)."""

import enum

import msgspec


class Action(enum.IntFlag):
    """The kind of a change; the bits are kube-scheduler's. ``Update`` has all bits from 4 to 4096, ``All`` every
    bit."""

    Add = 1
    Delete = 2
    UpdateNodeAllocatable = 4
    UpdateNodeLabel = 8
    UpdateNodeTaint = 16
    UpdateNodeCondition = 32
    UpdateNodeAnnotation = 64
    UpdateNodeDeclaredFeature = 128
    UpdatePodLabel = 256
    UpdatePodScaleDown = 512
    UpdatePodToleration = 1024
    UpdatePodSchedulingGatesEliminated = 2048
    UpdatePodGeneratedResourceClaim = 4096
    Update = 8188
    All = 8191


class Resource(enum.StrEnum):
    """The kinds of objects with cluster events, by their name in event labels."""

    Any = "*"
    Pod = "Pod"
    AssignedPod = "AssignedPod"
    UnschedulablePod = "UnschedulablePod"
    Node = "Node"
    PersistentVolume = "PersistentVolume"
    PersistentVolumeClaim = "PersistentVolumeClaim"
    CSINode = "storage.k8s.io/CSINode"
    CSIDriver = "storage.k8s.io/CSIDriver"
    CSIStorageCapacity = "storage.k8s.io/CSIStorageCapacity"
    StorageClass = "storage.k8s.io/StorageClass"
    VolumeAttachment = "storage.k8s.io/VolumeAttachment"
    ResourceClaim = "resource.k8s.io/ResourceClaim"
    ResourceSlice = "resource.k8s.io/ResourceSlice"
    DeviceClass = "resource.k8s.io/DeviceClass"
    DeviceTaintRule = "resource.k8s.io/DeviceTaintRule"
    PodGroup = "scheduling.k8s.io/PodGroup"


def action_of(old: object | None, new: object | None) -> Action:
    """The kind of a change of one object; ``old`` is None for an addition, ``new`` for a deletion."""
    if old is None:
        return Action.Add
    return Action.Delete if new is None else Action.Update


_POD_KINDS = frozenset({Resource.Pod, Resource.AssignedPod, Resource.UnschedulablePod})


class ClusterEvent(msgspec.Struct, frozen=True):
    """A kind and the kinds of changes; also the pattern that a plugin registers."""

    resource: Resource
    action: Action
    custom_label: str = ""

    @property
    def label(self) -> str:
        """The name in metrics and logs, such as ``NodeAdd`` or ``AssignedPodDelete``."""
        return self.custom_label or f"{self.resource.value}{self.action.name}"

    @property
    def wildcard(self) -> bool:
        """Whether this matches every event."""
        return self.resource is Resource.Any and self.action == Action.All

    def matches(self, incoming: "ClusterEvent") -> bool:
        """Whether a plugin that registered this event is interested in ``incoming``."""
        if self.wildcard:
            return True
        if self.resource is not incoming.resource and (
            self.resource is not Resource.Pod or incoming.resource not in _POD_KINDS
        ):
            return False
        return bool(self.action & incoming.action) and incoming.action <= self.action


NODE_ADD = ClusterEvent(Resource.Node, Action.Add)
NODE_DELETE = ClusterEvent(Resource.Node, Action.Delete)
ASSIGNED_POD_ADD = ClusterEvent(Resource.AssignedPod, Action.Add)
ASSIGNED_POD_DELETE = ClusterEvent(Resource.AssignedPod, Action.Delete)
UNSCHEDULABLE_POD_ADD = ClusterEvent(Resource.UnschedulablePod, Action.Add)
UNSCHEDULABLE_POD_UPDATE = ClusterEvent(Resource.UnschedulablePod, Action.Update)
UNSCHEDULABLE_POD_DELETE = ClusterEvent(Resource.UnschedulablePod, Action.Delete)
UNSCHEDULABLE_TIMEOUT = ClusterEvent(Resource.Any, Action.All, "UnschedulableTimeout")
EVENTS_DROPPED = ClusterEvent(Resource.Any, Action.All, "EventsDropped")
FORCE_ACTIVATE = ClusterEvent(Resource.Any, Action.All, "ForceActivate")

# Labels of queue moves without a cluster event.
SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POP_FROM_BACKOFF_Q = "PopFromBackoffQ"
