"""The public interface for plugins: third-party plugins import from this module only.

docs/plugins.md is the guide; tests use ``app.framework.testing``.
"""

from app.framework.args import PluginArgs
from app.framework.diagnosis import Diagnosis
from app.framework.handle import (
    Effects,
    Eviction,
    EvictionProgress,
    Handle,
    WaitingPod,
    WaitingPods,
)
from app.framework.interface import (
    MAX_NODE_SCORE,
    CycleState,
    NodeLocal,
    PermitResult,
    PostFilterResult,
    PreFilterResult,
    Queued,
    QueueingHint,
    Verdicts,
    default_normalize,
    reject,
    reject_first,
)
from app.framework.optional import (
    AcceptsAll,
    ColumnScore,
    IgnoresOtherPods,
    OnlyNarrows,
    SteadySkip,
    UndecidedOnly,
    ZeroNormalized,
)
from app.framework.per_node import NodeFilter, NodeInfo, NodeScore, node_infos
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import (
    Named,
    Namespace,
    Node,
    PodDisruptionBudget,
    PodSpec,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    Taint,
    Toleration,
)
from app.model.pod import Pod, PodTemplate
from app.model.status import (
    SKIP,
    SUCCESS,
    Code,
    SchedulingError,
    Status,
    unresolvable,
    unschedulable,
)
from app.model.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from app.state.cluster import Cluster
from app.state.columns.arrays import Int64
from app.state.columns.labels import Codes, LabelColumn, Mask
from app.state.lister import Lister
from app.state.queue.hints import EventRegistration
from app.state.queue.recorder import HintFunction
from app.state.table import CPU_ROW, MEMORY_ROW, NodeTable
from app.state.view import View

__all__ = [
    "CPU_ROW",
    "MAX_NODE_SCORE",
    "MEMORY_ROW",
    "SKIP",
    "SUCCESS",
    "AcceptsAll",
    "Action",
    "CSINode",
    "CSIStorageCapacity",
    "Cluster",
    "ClusterEvent",
    "Code",
    "Codes",
    "ColumnScore",
    "CycleState",
    "Diagnosis",
    "Effects",
    "EventRegistration",
    "Eviction",
    "EvictionProgress",
    "Handle",
    "HintFunction",
    "IgnoresOtherPods",
    "Int64",
    "LabelColumn",
    "Lister",
    "Mask",
    "Named",
    "Namespace",
    "Node",
    "NodeFilter",
    "NodeInfo",
    "NodeLocal",
    "NodeScore",
    "NodeTable",
    "OnlyNarrows",
    "PermitResult",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PluginArgs",
    "Pod",
    "PodDisruptionBudget",
    "PodSpec",
    "PodTemplate",
    "PostFilterResult",
    "PreFilterResult",
    "Queued",
    "QueueingHint",
    "ReplicaSet",
    "ReplicationController",
    "Resource",
    "SchedulingError",
    "Service",
    "StatefulSet",
    "Status",
    "SteadySkip",
    "StorageClass",
    "Taint",
    "Toleration",
    "UndecidedOnly",
    "Verdicts",
    "View",
    "VolumeAttachment",
    "WaitingPod",
    "WaitingPods",
    "ZeroNormalized",
    "default_normalize",
    "node_infos",
    "reject",
    "reject_first",
    "unresolvable",
    "unschedulable",
]
