"""The kinds of objects that the scheduler watches: pods and nodes always, others if a plugin reads them."""

from collections.abc import Collection, Iterator
from typing import Any, Final

from app.kube.watch_decoder import ResourceKind
from app.model import devices, objects, pod_groups, pod_groups_v1alpha2, storage
from app.model.features import RECORDED, Features, Rule
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
    storage.PersistentVolume: ("/api/v1/persistentvolumes", _VOLUMES),
    storage.PersistentVolumeClaim: ("/api/v1/persistentvolumeclaims", _VOLUMES),
    storage.StorageClass: ("/apis/storage.k8s.io/v1/storageclasses", _VOLUMES),
    storage.CSINode: ("/apis/storage.k8s.io/v1/csinodes", {"NodeVolumeLimits", "VolumeBinding"}),
    storage.CSIDriver: (
        "/apis/storage.k8s.io/v1/csidrivers",
        {"VolumeBinding", "NodeVolumeLimits"},
    ),
    storage.CSIStorageCapacity: ("/apis/storage.k8s.io/v1/csistoragecapacities", {"VolumeBinding"}),
    storage.VolumeAttachment: ("/apis/storage.k8s.io/v1/volumeattachments", {"NodeVolumeLimits"}),
    devices.DeviceClass: ("/apis/resource.k8s.io/v1/deviceclasses", _DEVICES),
    devices.ResourceClaim: ("/apis/resource.k8s.io/v1/resourceclaims", _DEVICES),
    devices.ResourceSlice: ("/apis/resource.k8s.io/v1/resourceslices", _DEVICES),
    devices.DeviceTaintRule: ("/apis/resource.k8s.io/v1/devicetaintrules", _DEVICES),
    pod_groups.PodGroup: ("/apis/scheduling.k8s.io/v1beta1/podgroups", _GROUPS),
    pod_groups.LabelledPodGroup: ("/apis/scheduling.x-k8s.io/v1alpha1/podgroups", _GROUPS),
}

#: The feature gates for PodGroups of scheduling.k8s.io; v1beta1 and v1alpha3 need the first one only.
GROUP_GATES: Final = ("GenericWorkload", pod_groups_v1alpha2.GANGS)
#: The feature gate for DeviceTaintRules.
TAINT_RULES: Final = "DRADeviceTaintRules"
_OLDER_TAINT_RULES: Final = ("/apis/resource.k8s.io/v1beta2/devicetaintrules",)
_OLDER_GROUPS: Final = (
    "/apis/scheduling.k8s.io/v1alpha3/podgroups",
    pod_groups_v1alpha2.PATH,
)

#: The names of all kinds that can be watched.
NAMES: Final = frozenset({"Pod", "Node", *(kind.__name__ for kind in _OTHERS)})


def pods(
    *,
    keep_raw: KeepRaw | bool,
    keep_bound_raw: bool,
    features: Features = RECORDED,
    theirs: Features | None = None,
) -> ResourceKind[Pod]:
    """Pods that have not ended; their JSON is kept where extenders need it (see PodDecoder).

    ``theirs``: rules that a shadow compares with its own.
    """
    changed = () if theirs is None else features.changed_to(theirs)
    decoder = PodDecoder(
        keep_raw=keep_raw,
        keep_bound_raw=keep_bound_raw,
        sums_of_resize=Rule.SumsOfResize in features.rules,
        otherwise=Rule.SumsOfResize in changed,
    )
    return ResourceKind("Pod", "/api/v1/pods", decoder, LIVE_PODS)


def nodes(*, keep_raw: bool) -> ResourceKind[objects.Node]:
    """Nodes; their JSON is kept where extenders are sent whole nodes."""
    return ResourceKind("Node", "/api/v1/nodes", NodeDecoder(keep_raw=keep_raw))


def others(
    plugins: Collection[str],
    *,
    foreign: bool,
    also: Collection[type] = (),
    features: Collection[str] = (),
) -> Iterator[tuple[type[objects.Named], ResourceKind[Any]]]:
    """The other kinds that these plugins read, and ``also``; all of them if there are ``foreign`` (out-of-tree)
    plugins.

    PodGroups of scheduling.k8s.io only with the feature gate GenericWorkload, DeviceTaintRules only with
    DRADeviceTaintRules.
    """
    for kind, (path, readers) in _OTHERS.items():
        if not foreign and kind not in also and set(plugins).isdisjoint(readers):
            continue
        older: tuple[str, ...] = ()
        if kind is pod_groups.PodGroup:
            if GROUP_GATES[0] not in features:
                continue
            older = _OLDER_GROUPS if GROUP_GATES[1] in features else _OLDER_GROUPS[:1]
        if kind is devices.DeviceTaintRule:
            if TAINT_RULES not in features:
                continue
            older = _OLDER_TAINT_RULES
        optional = readers is _GROUPS or kind is devices.DeviceTaintRule
        decoder = decoder_for(kind)
        yield kind, ResourceKind(kind.__name__, path, decoder, optional=optional, older=older)


def paths() -> dict[str, str]:
    """The path of each kind but pods, as its newest version is served."""
    return {"Node": "/api/v1/nodes"} | {kind.__name__: path for kind, (path, _) in _OTHERS.items()}


def decoders() -> dict[str, ObjectDecoder[Any]]:
    """The decoder of each kind."""
    found: dict[str, ObjectDecoder[Any]] = {kind.__name__: decoder_for(kind) for kind in _OTHERS}
    return found | {"Pod": PodDecoder(), "Node": NodeDecoder()}
