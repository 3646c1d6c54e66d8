"""Pods as the scheduler keeps them: what is their own, and the template they share with their siblings.

Pods come in families: the replicas of one workload differ in name and identity only. Everything that follows from the
spec alone is worked out once per family, in PodTemplate; a Pod holds a reference to it (docs/architecture.md).
"""

import functools
from collections.abc import Mapping
from typing import Final

import msgspec

from app.model import requests
from app.model.objects import (
    OwnerReference,
    PodCondition,
    PodResourceClaimStatus,
    PodSpec,
    TopologySpreadConstraint,
    Volume,
)
from app.model.requests import Amounts, PodResources


class LabelSet(dict[str, str]):
    """Labels shared by every pod that has the same; compared and hashed by identity. Never changed once made."""

    __slots__ = ("__weakref__",)

    def __hash__(self) -> int:  # type: ignore[override]  # identity: the interner makes equal sets one object
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other


class HostPort(msgspec.Struct, frozen=True):
    """A port claimed on the node itself; ``ip`` is 0.0.0.0 for all addresses."""

    protocol: str
    port: int
    ip: str


class PodTemplate:
    """What follows from a pod's spec alone, computed when first asked for.

    Two pods with equal specs share one template (identity is equality), so it serves as the key of everything that
    is kept per family.
    """

    def __init__(self, spec: PodSpec, size: int = 0) -> None:
        """``size``: bytes of the spec as JSON, where that is known."""
        self.spec: Final = spec
        self.size: Final = size

    @functools.cached_property
    def resources(self) -> PodResources:
        """What such a pod occupies on a node (no in-place resize under way)."""
        return requests.pod_resources(self.spec)

    @functools.cached_property
    def request(self) -> Amounts:
        """What such a pod must find free: scheduler units by resource.

        See docs/spec/plugins/node-resources-fit.md#prefilter.
        """
        return requests.accounted_units(requests.pod_requests(self.spec))

    @functools.cached_property
    def fit_score_request(self) -> Amounts:
        """Nano-units that NodeResourcesFit scores with: pod-level resources skipped, stand-ins for nothing."""
        return requests.pod_requests(self.spec, pod_level=False, nonzero=True)

    @functools.cached_property
    def priority(self) -> int:
        """spec.priority, or 0."""
        return self.spec.priority or 0

    @functools.cached_property
    def host_ports(self) -> tuple[HostPort, ...]:
        """Ports claimed on the node, from containers and sidecars (docs/spec/matching.md#host-ports)."""
        sidecars = (c for c in self.spec.init_containers or () if c.restart_policy == "Always")
        return tuple(
            HostPort(port.protocol or "TCP", port.host_port, port.host_ip or "0.0.0.0")  # noqa: S104 - a label, no socket
            for container in (*sidecars, *self.spec.containers)
            for port in container.ports or ()
            if port.host_port > 0
        )

    @functools.cached_property
    def volumes(self) -> tuple[Volume, ...]:
        """The volumes that concern scheduling."""
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
    #: Whether it is being deleted without grace period or finalizer: the next that the watch says of it is that it is gone.
    leaves_at_once: bool = False
    #: The controlling owner reference.
    owner: OwnerReference | None = None
    #: spec.nodeName, empty while the pod waits.
    node_name: str = ""
    nominated_node_name: str = ""
    phase: str = ""
    #: Only conditions that the scheduler reads: PodScheduled (while False), DisruptionTarget, PodResizePending.
    conditions: tuple[PodCondition, ...] = ()
    #: status.startTime as seconds since the epoch.
    start_time: float | None = None
    #: What the pod occupies, where its status says something else than its spec (in-place resize).
    resized: PodResources | None = None
    #: status.resourceClaimStatuses: the claims made for this very pod.
    claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    #: Text of status.extendedResourceClaimStatus, compared for changes only.
    extended_claim_status: bytes = b""
    #: The object's JSON as it came, kept where an extender needs it.
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
        """What the pod occupies on its node."""
        return self.resized or self.template.resources

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return self.deletion_timestamp is not None

    def same_on_node(self, earlier: "Pod") -> bool:
        """Whether no column of the node table tells this version of a pod from the earlier one.

        The same template, labels and resources, and being deleted or not: the rest of a pod's status does not matter there.
        """
        return (
            self.template is earlier.template
            and self.labels is earlier.labels
            and self.terminating == earlier.terminating
            and self.resources == earlier.resources
        )

    def condition(self, kind: str) -> PodCondition | None:
        """The first condition of this type."""
        return next((c for c in self.conditions if c.type == kind), None)

    def room(self) -> "Pod":
        """This pod as one of which nothing is known but what it takes of its node."""
        spec = self.spec
        taken = PodSpec(
            priority=spec.priority,
            containers=spec.containers,
            init_containers=spec.init_containers,
            overhead=spec.overhead,
            resources=spec.resources,
        )
        return msgspec.structs.replace(self, template=PodTemplate(taken), labels=LabelSet())

    def on(self, node_name: str) -> "Pod":
        """This pod as if it were bound to ``node_name``."""
        return msgspec.structs.replace(self, node_name=node_name)


def make_pod(
    spec: PodSpec | None = None, labels: Mapping[str, str] | None = None, **fields: object
) -> Pod:
    """Builds a pod that shares nothing: for tools and tests; pods from the wire come from ``wire.PodDecoder``."""
    template = PodTemplate(spec or PodSpec())
    return Pod(template=template, labels=LabelSet(labels or {}), **fields)  # type: ignore[arg-type]  # forwarded by name
