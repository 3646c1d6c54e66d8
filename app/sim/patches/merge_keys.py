"""Where a strategic merge patch merges lists instead of replacing them, and by which key.

Kubernetes publishes these rules as ``x-kubernetes-patch-strategy`` and ``x-kubernetes-patch-merge-key`` in its OpenAPI
document; this is that information for the kinds served here (1.36). Whatever is not listed is replaced whole: taints
and tolerations are such lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """The rules of one object type: field name -> how a patch of that field is applied."""

    fields: Mapping[str, "MergeRule"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MergeRule:
    """How one field is patched."""

    struct: Struct | None = None
    """Rules inside: of the object, or of each element when the field is a list of objects."""
    merge: bool = False
    """A list that is merged: by ``merge_key``, or as a set when it holds plain values."""
    merge_key: str = ""
    replace: bool = False
    """An object that is replaced whole."""


ANY: Final = Struct()


def _inside(**fields: MergeRule) -> MergeRule:
    return MergeRule(struct=Struct(fields))


def _by(merge_key: str, struct: Struct = ANY) -> MergeRule:
    return MergeRule(struct=struct, merge=True, merge_key=merge_key)


_AS_SET: Final = MergeRule(merge=True)
_BY_NAME: Final = _by("name")
_BY_TYPE: Final = _by("type")

_METADATA: Final = _inside(finalizers=_AS_SET, ownerReferences=_by("uid"))

_CONTAINER: Final = Struct(
    {
        "env": _BY_NAME,
        "ports": _by("containerPort"),
        "volumeDevices": _by("devicePath"),
        "volumeMounts": _by("mountPath"),
    }
)
_POD_SPEC: Final = _inside(
    containers=_by("name", _CONTAINER),
    initContainers=_by("name", _CONTAINER),
    ephemeralContainers=_by("name", _CONTAINER),
    hostAliases=_by("ip"),
    imagePullSecrets=_BY_NAME,
    resourceClaims=_BY_NAME,
    schedulingGates=_BY_NAME,
    topologySpreadConstraints=_by("topologyKey"),
    volumes=_BY_NAME,
)
_POD_STATUS: Final = _inside(
    conditions=_BY_TYPE,
    hostIPs=_by("ip"),
    podIPs=_by("ip"),
    resourceClaimStatuses=_BY_NAME,
)
_TEMPLATE: Final = _inside(metadata=_METADATA, spec=_POD_SPEC)
_CONDITIONS: Final = _inside(conditions=_BY_TYPE)
_TEMPLATED: Final = _inside(template=_TEMPLATE)
_JOB_SPEC: Final = _inside(template=_TEMPLATE)


def _object(**fields: MergeRule) -> Struct:
    return Struct({"metadata": _METADATA, **fields})


_DEFAULT: Final = _object()

STRUCTS: Final[Mapping[str, Struct]] = {
    "pods": _object(spec=_POD_SPEC, status=_POD_STATUS),
    "podtemplates": _object(template=_TEMPLATE),
    "nodes": _object(
        spec=_inside(podCIDRs=_AS_SET), status=_inside(addresses=_BY_TYPE, conditions=_BY_TYPE)
    ),
    "namespaces": _object(status=_CONDITIONS),
    "persistentvolumeclaims": _object(status=_CONDITIONS),
    "serviceaccounts": _object(secrets=_BY_NAME),
    "services": _object(spec=_inside(ports=_by("port")), status=_CONDITIONS),
    "replicationcontrollers": _object(spec=_TEMPLATED, status=_CONDITIONS),
    "replicasets.apps": _object(spec=_TEMPLATED, status=_CONDITIONS),
    "deployments.apps": _object(spec=_TEMPLATED, status=_CONDITIONS),
    "daemonsets.apps": _object(spec=_TEMPLATED, status=_CONDITIONS),
    "statefulsets.apps": _object(spec=_TEMPLATED, status=_CONDITIONS),
    "jobs.batch": _object(spec=_JOB_SPEC, status=_CONDITIONS),
    "cronjobs.batch": _object(spec=_inside(jobTemplate=_inside(spec=_JOB_SPEC))),
    "poddisruptionbudgets.policy": _object(
        spec=_inside(selector=MergeRule(replace=True)), status=_CONDITIONS
    ),
    "podgroups.scheduling.k8s.io": _object(
        spec=_inside(resourceClaims=_BY_NAME),
        status=_inside(conditions=_BY_TYPE, resourceClaimStatuses=_BY_NAME),
    ),
    "csinodes.storage.k8s.io": _object(spec=_inside(drivers=_BY_NAME)),
    "resourceclaims.resource.k8s.io": _object(status=_inside(reservedFor=_by("uid"))),
}
"""resource -> rules of its objects; those of other resources have the default ones."""


def struct_of(resource: str) -> Struct:
    """Returns the merge rules of a resource's objects."""
    return STRUCTS.get(resource, _DEFAULT)
