"""Pods: the properties of each pod, and the template that pods with equal specs share.

The replicas of one workload differ in name and identity only. Everything that depends on the spec alone is computed
once, in PodTemplate; a Pod has a reference to it (docs/architecture.md).
"""

import functools
from collections.abc import Hashable, Mapping
from typing import Final

import msgspec

from app.model import requests
from app.model.objects import (
    Affinity,
    OwnerReference,
    PodCondition,
    PodResourceClaimStatus,
    PodSpec,
    TopologySpreadConstraint,
    Volume,
)
from app.model.requests import Amounts, PodResources


class LabelSet(dict[str, str]):
    """Labels, shared by all pods with equal labels; compared and hashed by identity. Immutable."""

    __slots__ = ("__weakref__",)

    # By identity: equal sets are one object.
    __hash__ = object.__hash__  # type: ignore[assignment]  # a dict has none
    __eq__ = object.__eq__
    __ne__ = object.__ne__


class HostPort(msgspec.Struct, frozen=True):
    """A host port; ``ip`` is 0.0.0.0 for all addresses."""

    protocol: str
    port: int
    ip: str


class PodTemplate:
    """Values that depend on a pod's spec alone, computed at their first use.

    Pods with equal specs share one template (identity is equality), so it is the key of everything that is kept per
    template.
    """

    def __init__(self, spec: PodSpec, text: bytes = b"") -> None:
        """``text``: the spec as JSON, if known."""
        self.spec: Final = spec
        self.text: Final = text

    @functools.cached_property
    def resources(self) -> PodResources:
        """The resources of such a pod on a node (without an in-place resize)."""
        plain, nonzero = self.exact_request, self.fit_score_request
        if self.spec.resources is not None:
            nonzero = requests.nonzero_requests(self.spec, None, plain)
        return requests.resources_from(plain, nonzero)

    @functools.cached_property
    def exact_request(self) -> Amounts:
        """The request of such a pod, in nano-units by resource."""
        return requests.pod_requests(self.spec)

    @functools.cached_property
    def request(self) -> Amounts:
        """The request of such a pod, in scheduler units by resource.

        See docs/spec/plugins/node-resources-fit.md#prefilter.
        """
        return requests.accounted_units(self.exact_request)

    @functools.cached_property
    def fit_score_request(self) -> Amounts:
        """The request for the score of NodeResourcesFit, in nano-units: without pod-level resources, with defaults
        for containers without a request."""
        if self.spec.resources is None and requests.need_no_defaults(self.spec):
            return self.exact_request
        return requests.pod_requests(self.spec, pod_level=False, nonzero=True)

    @functools.cached_property
    def stem(self) -> bytes | None:
        """Equal for templates whose specs differ only in what they say about other pods and volumes; None if they
        say nothing.
        """
        spec, affinity = self.spec, self.spec.affinity
        if not (self.has_affinity or spec.topology_spread_constraints or spec.volumes):
            return None
        if affinity is not None:
            nodes = affinity.node_affinity
            affinity = None if nodes is None else Affinity(node_affinity=nodes)
        stem = msgspec.structs.replace(
            spec, affinity=affinity, topology_spread_constraints=None, volumes=None
        )
        return msgspec.json.encode(stem)

    @functools.cached_property
    def priority(self) -> int:
        """spec.priority, or 0."""
        return self.spec.priority or 0

    @functools.cached_property
    def host_ports(self) -> tuple[HostPort, ...]:
        """Host ports of containers and sidecars (docs/spec/matching.md#host-ports)."""
        sidecars = (c for c in self.spec.init_containers or () if c.restart_policy == "Always")
        return tuple(
            HostPort(port.protocol or "TCP", port.host_port, port.host_ip or "0.0.0.0")  # noqa: S104 - no socket
            for container in (*sidecars, *self.spec.containers)
            for port in container.ports or ()
            if port.host_port > 0
        )

    @functools.cached_property
    def volumes(self) -> tuple[Volume, ...]:
        """The volumes relevant to scheduling."""
        return tuple(v for v in self.spec.volumes or () if v.matters)

    @functools.cached_property
    def claim_names(self) -> tuple[str, ...]:
        """Names of the PersistentVolumeClaims named by volumes, one entry per volume (generic ephemeral ones not)."""
        return tuple(
            v.persistent_volume_claim.claim_name
            for v in self.volumes
            if v.persistent_volume_claim is not None
        )

    @functools.cached_property
    def has_affinity(self) -> bool:
        """Whether spec.affinity has podAffinity or podAntiAffinity."""
        affinity = self.spec.affinity
        return affinity is not None and (
            affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
        )

    @functools.cached_property
    def spread_constraints(self) -> tuple[TopologySpreadConstraint, ...]:
        """spec.topologySpreadConstraints, empty when absent."""
        return self.spec.topology_spread_constraints or ()


class Pod(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One pod. Immutable: an update makes a new object. Compared by identity; ``uid`` identifies the pod itself."""

    namespace: str
    name: str
    uid: str
    template: PodTemplate
    labels: LabelSet
    resource_version: str = ""
    generation: int = 0
    #: metadata.deletionTimestamp as text, None while the pod is not being deleted.
    deletion_timestamp: str | None = None
    #: Whether it is being deleted without grace period or finalizer, so that its next watch event is its deletion.
    leaves_at_once: bool = False
    #: The controlling owner reference.
    owner: OwnerReference | None = None
    #: spec.nodeName, empty while the pod is unscheduled.
    node_name: str = ""
    #: spec.schedulingGroup.podGroupName, empty for a pod that names no PodGroup.
    pod_group_name: str = ""
    nominated_node_name: str = ""
    phase: str = ""
    #: The conditions that the scheduler reads: PodScheduled (while False), DisruptionTarget, PodResizePending.
    conditions: tuple[PodCondition, ...] = ()
    #: status.startTime as seconds since the epoch.
    start_time: float | None = None
    #: The pod's resources if its status differs from its spec (in-place resize), else None.
    resized: PodResources | None = None
    #: Its resources by the rule of another version for a resize, if they differ; only a shadow asks for it.
    otherwise: PodResources | None = None
    #: status.resourceClaimStatuses: the claims created for this pod.
    claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    #: Text of status.extendedResourceClaimStatus, compared for changes only.
    extended_claim_status: bytes = b""
    #: The object's JSON, kept if an extender needs it.
    raw: bytes | None = None

    @property
    def spec(self) -> PodSpec:
        """The shared spec."""
        return self.template.spec

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def priority(self) -> int:
        """spec.priority, or 0."""
        return self.template.priority

    @property
    def resources(self) -> PodResources:
        """The pod's resources on its node."""
        return self.resized or self.template.resources

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return self.deletion_timestamp is not None

    def same_on_node(self, earlier: "Pod") -> bool:
        """Whether this version of a pod is equal to the earlier one for every column of the node table.

        Compares template, labels, resources and whether the pod is terminating.
        """
        return (
            self.template is earlier.template
            and self.labels is earlier.labels
            and self.terminating == earlier.terminating
            and self.resources == earlier.resources
        )

    @property
    def kind(self) -> Hashable:
        """Equal for replicas of one workload, if their templates are equal: pods that differ in name, times and status
        only.
        """
        return self.labels, self.namespace, self.owner, self.pod_group_name

    def condition(self, kind: str) -> PodCondition | None:
        """The first condition of this type."""
        return next((c for c in self.conditions if c.type == kind), None)

    def room(self) -> "Pod":
        """A pod with this pod's resources and none of its other properties."""
        spec = self.spec
        taken = PodSpec(
            priority=spec.priority,
            containers=spec.containers,
            init_containers=spec.init_containers,
            overhead=spec.overhead,
            resources=spec.resources,
        )
        return msgspec.structs.replace(
            self, template=PodTemplate(taken), labels=LabelSet(), pod_group_name=""
        )

    def on(self, node_name: str) -> "Pod":
        """This pod as if it were bound to ``node_name``."""
        return msgspec.structs.replace(self, node_name=node_name)


def make_pod(
    spec: PodSpec | None = None, labels: Mapping[str, str] | None = None, **fields: object
) -> Pod:
    """Creates a pod with its own template, for tools and tests; pods from the API server come from
    ``wire.PodDecoder``."""
    template = PodTemplate(spec or PodSpec())
    return Pod(template=template, labels=LabelSet(labels or {}), **fields)  # type: ignore[arg-type]
