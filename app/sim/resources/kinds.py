"""The table of kinds that the embedded cluster serves. Adding a kind is adding one line to ``KINDS``.

Everything else (paths, discovery, storage, watches, kubectl's short names) is driven by this table. Rules that only
some kinds have (defaults, validation, columns, merge keys, selectable fields) live in the modules named after them
and are looked up by resource; a kind without such rules is simply stored.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.model import pod_groups_v1alpha2

STORED_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
STATUS_VERBS: Final = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A path below an object, such as ``pods/binding``; its body may be of a kind from another group."""

    name: str
    kind: str
    verbs: tuple[str, ...] = ("create",)
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """One served resource in one version."""

    group: str
    """API group, empty for the core group."""
    version: str
    kind: str
    plural: str
    """Name in paths: ``pods``."""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = STORED_VERBS
    """The verbs in discovery.

    Only kinds with STORED_VERBS are stored; others, such as reviews, are answered at once.
    """
    has_status: bool = False
    """There is a ``/status`` subresource, and writes to the object itself do not change the status."""
    counts_generations: bool = False
    """``metadata.generation`` starts at 1 and rises with every change outside metadata and status."""
    create_on_update: bool = False
    """PUT creates an object that does not exist."""
    returns_deleted: bool = False
    """DELETE returns the object that it removed, not a Status."""
    subresources: tuple[Subresource, ...] = ()
    stored_as: str = ""
    """Resource of the kind whose objects these are, seen in another version (``events``)."""
    stored_version: str = ""
    """Group and version in which the objects of a custom resource are stored, if that is another one."""
    group_version: str = field(init=False)
    resource: str = field(init=False)
    """Plural with group, as in error texts: ``leases.coordination.k8s.io``."""
    storage: str = field(init=False)
    """Resource under which the objects are kept."""

    def __post_init__(self) -> None:
        group_version = f"{self.group}/{self.version}" if self.group else self.version
        object.__setattr__(self, "group_version", group_version)
        resource = f"{self.plural}.{self.group}" if self.group else self.plural
        object.__setattr__(self, "resource", resource)
        object.__setattr__(self, "storage", self.stored_as or resource)

    @property
    def qualified_kind(self) -> str:
        """Kind with group, as in validation errors: ``PriorityClass.scheduling.k8s.io``."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def all_subresources(self) -> tuple[Subresource, ...]:
        own = (Subresource("status", self.kind, STATUS_VERBS),) if self.has_status else ()
        return tuple(sorted(self.subresources + own, key=lambda sub: sub.name))


def _core(kind: str, plural: str, *short_names: str, **flags: Any) -> Kind:
    return _grouped("v1", kind, plural, *short_names, **flags)


def _grouped(group_version: str, kind: str, plural: str, *short_names: str, **flags: Any) -> Kind:
    group, _, version = group_version.rpartition("/")
    return Kind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        short_names=short_names,
        **flags,
    )


_WORKLOAD: Final[Mapping[str, Any]] = {
    "categories": ("all",),
    "has_status": True,
    "counts_generations": True,
}
_CLUSTER: Final[Mapping[str, Any]] = {"namespaced": False}
_REVIEW: Final[Mapping[str, Any]] = {"namespaced": False, "verbs": ("create",)}

_SCALED: Final[Mapping[str, Any]] = {
    **_WORKLOAD,
    "subresources": (Subresource("scale", "Scale", STATUS_VERBS, "autoscaling", "v1"),),
}
#: What the API server itself reads: for the whole cluster, with generations.
_OF_SERVER: Final[Mapping[str, Any]] = {"namespaced": False, "counts_generations": True}
_METRICS: Final[Mapping[str, Any]] = {"verbs": ("get", "list")}

_POD_SUBRESOURCES: Final = (
    Subresource("binding", "Binding"),
    Subresource("eviction", "Eviction", group="policy", version="v1"),
    Subresource("log", "Pod", ("get",)),
)
_NAMESPACE_VERBS: Final = tuple(verb for verb in STORED_VERBS if verb != "deletecollection")
_FINALIZE: Final = (Subresource("finalize", "Namespace", ("update",)),)

_APPS: Final = "apps/v1"
_AUTHENTICATION: Final = "authentication.k8s.io/v1"
_AUTHORIZATION: Final = "authorization.k8s.io/v1"
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_RESOURCE: Final = "resource.k8s.io/v1"
_STORAGE: Final = "storage.k8s.io/v1"

# fmt: off
KINDS: Final[tuple[Kind, ...]] = (
    _core("Binding", "bindings", verbs=("create",)),
    _core("ConfigMap", "configmaps", "cm"),
    _core("Endpoints", "endpoints", "ep"),
    _core("Event", "events", "ev", create_on_update=True),
    _core("LimitRange", "limitranges", "limits", create_on_update=True),
    _core("Namespace", "namespaces", "ns", **_CLUSTER, verbs=_NAMESPACE_VERBS, has_status=True,
        returns_deleted=True, subresources=_FINALIZE),
    _core("Node", "nodes", "no", **_CLUSTER, has_status=True),
    _core("PersistentVolume", "persistentvolumes", "pv", **_CLUSTER, has_status=True, returns_deleted=True),
    _core("PersistentVolumeClaim", "persistentvolumeclaims", "pvc", has_status=True, returns_deleted=True),
    _core("Pod", "pods", "po", categories=("all",), has_status=True, counts_generations=True, returns_deleted=True,
        subresources=_POD_SUBRESOURCES),
    _core("PodTemplate", "podtemplates", returns_deleted=True),
    _core("ReplicationController", "replicationcontrollers", "rc", **_SCALED),
    _core("ResourceQuota", "resourcequotas", "quota", has_status=True, returns_deleted=True),
    _core("Secret", "secrets"),
    _core("Service", "services", "svc", categories=("all",), has_status=True, create_on_update=True,
        returns_deleted=True),
    _core("ServiceAccount", "serviceaccounts", "sa", returns_deleted=True),
    _grouped(_APPS, "ControllerRevision", "controllerrevisions"),
    _grouped(_APPS, "DaemonSet", "daemonsets", "ds", **_WORKLOAD),
    _grouped(_APPS, "Deployment", "deployments", "deploy", **_SCALED),
    _grouped(_APPS, "ReplicaSet", "replicasets", "rs", **_SCALED),
    _grouped(_APPS, "StatefulSet", "statefulsets", "sts", **_SCALED),
    _grouped("events.k8s.io/v1", "Event", "events", "ev", create_on_update=True, stored_as="events"),
    _grouped("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations",
        **_OF_SERVER),
    _grouped("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations", **_OF_SERVER),
    _grouped("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", "crd", "crds",
        **_CLUSTER, categories=("api-extensions",), has_status=True, counts_generations=True),
    _grouped("apiregistration.k8s.io/v1", "APIService", "apiservices", **_CLUSTER, categories=("api-extensions",),
        has_status=True),
    _grouped("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", categories=("all",),
        has_status=True),
    _grouped("batch/v1", "CronJob", "cronjobs", "cj", **_WORKLOAD),
    _grouped("batch/v1", "Job", "jobs", **_WORKLOAD),
    _grouped("coordination.k8s.io/v1", "Lease", "leases", create_on_update=True),
    _grouped("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", counts_generations=True),
    _grouped("metrics.k8s.io/v1beta1", "NodeMetrics", "nodes", **_CLUSTER, **_METRICS),
    _grouped("metrics.k8s.io/v1beta1", "PodMetrics", "pods", **_METRICS),
    _grouped("networking.k8s.io/v1", "Ingress", "ingresses", "ing", has_status=True, counts_generations=True),
    _grouped("networking.k8s.io/v1", "IngressClass", "ingressclasses", **_CLUSTER, counts_generations=True),
    _grouped("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", "netpol", counts_generations=True),
    _grouped("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", **_CLUSTER),
    _grouped("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", has_status=True,
        counts_generations=True),
    _grouped(_RBAC, "ClusterRole", "clusterroles", **_CLUSTER),
    _grouped(_RBAC, "ClusterRoleBinding", "clusterrolebindings", **_CLUSTER),
    _grouped(_RBAC, "Role", "roles"),
    _grouped(_RBAC, "RoleBinding", "rolebindings"),
    _grouped(_RESOURCE, "DeviceClass", "deviceclasses", **_CLUSTER, counts_generations=True, returns_deleted=True),
    _grouped(_RESOURCE, "ResourceClaim", "resourceclaims", has_status=True, returns_deleted=True),
    _grouped(_RESOURCE, "ResourceClaimTemplate", "resourceclaimtemplates", returns_deleted=True),
    _grouped(_RESOURCE, "ResourceSlice", "resourceslices", **_CLUSTER, counts_generations=True, returns_deleted=True),
    _grouped("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "pc", **_CLUSTER, counts_generations=True),
    _grouped(_STORAGE, "CSIDriver", "csidrivers", **_CLUSTER, returns_deleted=True),
    _grouped(_STORAGE, "CSINode", "csinodes", **_CLUSTER, returns_deleted=True),
    _grouped(_STORAGE, "CSIStorageCapacity", "csistoragecapacities", returns_deleted=True),
    _grouped(_STORAGE, "StorageClass", "storageclasses", "sc", **_CLUSTER, returns_deleted=True),
    _grouped(_STORAGE, "VolumeAttachment", "volumeattachments", **_CLUSTER, has_status=True, returns_deleted=True),
    _grouped(_STORAGE, "VolumeAttributesClass", "volumeattributesclasses", "vac", **_CLUSTER, returns_deleted=True),
    _grouped(_AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", **_REVIEW),
    _grouped(_AUTHENTICATION, "TokenReview", "tokenreviews", **_REVIEW),
    _grouped(_AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=("create",)),
    _grouped(_AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", **_REVIEW),
    _grouped(_AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", **_REVIEW),
    _grouped(_AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", **_REVIEW),
)
# fmt: on

OPTIONAL_KINDS: Final[Mapping[str, tuple[Kind, ...]]] = {
    version: (
        _grouped(version, "PodGroup", "podgroups", has_status=True),
        _grouped(version, "Workload", "workloads"),
    )
    for version in (
        *(pod_groups_v1alpha2.VERSION, "scheduling.k8s.io/v1beta1"),
        "scheduling.k8s.io/v1alpha3",
    )
}
"""Group and version -> kinds that are served only if they are switched on."""
NEWER_KINDS: Final[tuple[Kind, ...]] = (
    _grouped(
        _RESOURCE,
        "DeviceTaintRule",
        "devicetaintrules",
        **_CLUSTER,
        has_status=True,
        counts_generations=True,
        returns_deleted=True,
    ),
)
"""Kinds that are served from Kubernetes 1.37 on."""
POD_GROUPS: Final = "podgroups.scheduling.k8s.io"
"""Where PodGroups are stored, in the version that is served."""

BY_PATH: Final[Mapping[tuple[str, str, str], Kind]] = {
    (kind.group, kind.version, kind.plural): kind for kind in KINDS
}
"""(group, version, plural) -> kind."""

BY_RESOURCE: Final[Mapping[str, Kind]] = {kind.resource: kind for kind in KINDS}
"""``pods``, ``leases.coordination.k8s.io`` -> kind."""

BY_GROUP_KIND: Final[Mapping[tuple[str, str], Kind]] = {
    (kind.group_version, kind.kind): kind for kind in KINDS
}
"""(apiVersion, kind) of a manifest -> kind."""

PODS: Final = BY_RESOURCE["pods"]
NODES: Final = BY_RESOURCE["nodes"]
SERVICE_ACCOUNTS: Final = BY_RESOURCE["serviceaccounts"]
CONFIG_MAPS: Final = BY_RESOURCE["configmaps"]
RESOURCE_QUOTAS: Final = BY_RESOURCE["resourcequotas"]
LIMIT_RANGES: Final = BY_RESOURCE["limitranges"]
CUSTOM_RESOURCE_DEFINITIONS: Final = BY_RESOURCE["customresourcedefinitions.apiextensions.k8s.io"]
NAMESPACES: Final = BY_RESOURCE["namespaces"]
EVENTS: Final = BY_RESOURCE["events"]
PRIORITY_CLASSES: Final = BY_RESOURCE["priorityclasses.scheduling.k8s.io"]
RUNTIME_CLASSES: Final = BY_RESOURCE["runtimeclasses.node.k8s.io"]
POD_DISRUPTION_BUDGETS: Final = BY_RESOURCE["poddisruptionbudgets.policy"]
STORAGE_CLASSES: Final = BY_RESOURCE["storageclasses.storage.k8s.io"]
DEVICE_CLASSES: Final = BY_RESOURCE["deviceclasses.resource.k8s.io"]
RESOURCE_CLAIMS: Final = BY_RESOURCE["resourceclaims.resource.k8s.io"]
RESOURCE_CLAIM_TEMPLATES: Final = BY_RESOURCE["resourceclaimtemplates.resource.k8s.io"]
RESOURCE_SLICES: Final = BY_RESOURCE["resourceslices.resource.k8s.io"]


def is_stored(kind: Kind) -> bool:
    """Whether objects of this kind are kept (reviews, bindings and metrics are not)."""
    return "watch" in kind.verbs


class KindTable:
    """The kinds that a cluster serves: those of KINDS, and the custom ones that its
    CustomResourceDefinitions define.
    """

    def __init__(self, versions: Iterable[str] = (), *, newer: bool = False) -> None:
        """``versions``: those of OPTIONAL_KINDS that are served; ``newer``: NEWER_KINDS are."""
        self.by_path: dict[tuple[str, str, str], Kind] = dict(BY_PATH)
        self.by_type: dict[tuple[str, str], Kind] = dict(BY_GROUP_KIND)
        self.by_storage: dict[str, Kind] = {
            kind.storage: kind for kind in KINDS if is_stored(kind) and not kind.stored_as
        }
        """Where objects are stored -> their kind: in the stored version, or in another one if that is not served."""
        self.schemas: dict[Kind, dict[str, Any]] = {}
        """custom kind -> the schema of its objects (OpenAPI v3)."""
        self.version = 0
        """Counts the changes."""
        for kind in NEWER_KINDS if newer else ():
            self.add(kind, {"type": "object"})
        for version in versions:
            for kind in OPTIONAL_KINDS[version]:
                self.add(kind, {"type": "object"})

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self.by_path.values()))

    def add(self, kind: Kind, schema: dict[str, Any]) -> None:
        """Serves a custom kind, or replaces the one with the same path."""
        self.schemas[kind] = schema
        self.by_path[kind.group, kind.version, kind.plural] = kind
        self.by_type[kind.group_version, kind.kind] = kind
        if not kind.stored_as or kind.storage not in self.by_storage:
            self.by_storage[kind.storage] = kind
        self.version += 1

    def remove(self, kind: Kind) -> None:
        """Serves a kind no longer."""
        self.schemas.pop(kind, None)
        self.by_path.pop((kind.group, kind.version, kind.plural), None)
        self.by_type.pop((kind.group_version, kind.kind), None)
        if self.by_storage.get(kind.storage) is kind:
            del self.by_storage[kind.storage]
        self.version += 1
