"""The kinds of objects that the scheduler watches: pods and nodes always, others if a plugin reads them."""

from collections.abc import Collection, Iterator
from typing import Any, Final

from app.kube.watch_decoder import ResourceKind
from app.model import devices, objects, pod_groups
from app.model.pod import Pod
from app.wire.kube import NodeDecoder, ObjectDecoder, PodDecoder, decoder_for
from app.wire.pods import KeepRaw

#: Leaves out pods that have ended; the server reports a pod that ends as deleted.
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"

_SPREADING: Final = frozenset({"PodTopologySpread"})
_VOLUMES: Final = frozenset(
    {"VolumeBinding", "VolumeRestrictions", "VolumeZone", "NodeVolumeLimits"}
)
_DEVICES: Final = frozenset({"DynamicResources"})
_GROUPS: Final = frozenset({"GangScheduling"})

#: kind -> (collection, plugins that read it).
_OTHERS: Final[dict[type[objects.Named], tuple[str, Collection[str]]]] = {
    objects.Namespace: ("/api/v1/namespaces", {"InterPodAffinity"}),
    objects.Service: ("/api/v1/services", _SPREADING),
    objects.ReplicationController: ("/api/v1/replicationcontrollers", _SPREADING),
    objects.ReplicaSet: ("/apis/apps/v1/replicasets", _SPREADING),
    objects.StatefulSet: ("/apis/apps/v1/statefulsets", _SPREADING),
    objects.PodDisruptionBudget: ("/apis/policy/v1/poddisruptionbudgets", {"DefaultPreemption"}),
    objects.PersistentVolume: ("/api/v1/persistentvolumes", _VOLUMES),
    objects.PersistentVolumeClaim: ("/api/v1/persistentvolumeclaims", _VOLUMES),
    objects.StorageClass: ("/apis/storage.k8s.io/v1/storageclasses", _VOLUMES),
    objects.CSINode: ("/apis/storage.k8s.io/v1/csinodes", {"NodeVolumeLimits", "VolumeBinding"}),
    objects.CSIDriver: ("/apis/storage.k8s.io/v1/csidrivers", {"VolumeBinding"}),
    objects.CSIStorageCapacity: ("/apis/storage.k8s.io/v1/csistoragecapacities", {"VolumeBinding"}),
    objects.VolumeAttachment: ("/apis/storage.k8s.io/v1/volumeattachments", {"NodeVolumeLimits"}),
    devices.DeviceClass: ("/apis/resource.k8s.io/v1/deviceclasses", _DEVICES),
    devices.ResourceClaim: ("/apis/resource.k8s.io/v1/resourceclaims", _DEVICES),
    devices.ResourceSlice: ("/apis/resource.k8s.io/v1/resourceslices", _DEVICES),
    pod_groups.PodGroup: (f"{pod_groups.PodGroup.API}/podgroups", _GROUPS),
    pod_groups.LabelledPodGroup: (f"{pod_groups.LabelledPodGroup.API}/podgroups", _GROUPS),
}

#: The names of all kinds that can be watched.
NAMES: Final = frozenset({"Pod", "Node", *(kind.__name__ for kind in _OTHERS)})


def pods(*, keep_raw: KeepRaw | bool, keep_bound_raw: bool) -> ResourceKind[Pod]:
    """Pods that have not ended; their JSON is kept where extenders need it (see PodDecoder)."""
    decoder = PodDecoder(keep_raw=keep_raw, keep_bound_raw=keep_bound_raw)
    return ResourceKind("Pod", "/api/v1/pods", decoder, LIVE_PODS)


def nodes(*, keep_raw: bool) -> ResourceKind[objects.Node]:
    """Nodes; their JSON is kept where extenders are sent whole nodes."""
    return ResourceKind("Node", "/api/v1/nodes", NodeDecoder(keep_raw=keep_raw))


def others(
    plugins: Collection[str], *, foreign: bool, also: Collection[type] = ()
) -> Iterator[tuple[type[objects.Named], ResourceKind[Any]]]:
    """The other kinds that these plugins read, and ``also``; all of them if there are ``foreign`` (out-of-tree) plugins."""
    for kind, (path, readers) in _OTHERS.items():
        if foreign or kind in also or not set(plugins).isdisjoint(readers):
            optional = readers is _GROUPS
            yield kind, ResourceKind(kind.__name__, path, decoder_for(kind), optional=optional)


def decoders() -> dict[str, ObjectDecoder[Any]]:
    """The decoder of each kind."""
    found: dict[str, ObjectDecoder[Any]] = {kind.__name__: decoder_for(kind) for kind in _OTHERS}
    return found | {"Pod": PodDecoder(), "Node": NodeDecoder()}
