"""Decodes pods; pods with equal specs share a PodTemplate, pods with equal labels a LabelSet.

The spec of a pod is decoded, parts that differ between replicas are removed (the node name and the scheduling group,
which the Pod has, and volumes that no plugin reads, such as the projected token), and it is encoded again in a
canonical form. These bytes are the key of the PodTemplate. Labels are looked up by their JSON as received, which API
servers write in canonical form. Templates and label sets are weakly referenced: they exist as long as a pod uses them.
"""

import datetime as dt
import functools
import sys
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from app.model import requests
from app.model.limits import (
    MAX_SPEC_BYTES,
    MAX_SPEC_OBJECTS,
    MAX_UNCHECKED_BYTES,
    Many,
    Name,
    TextMap,
)
from app.model.objects import (
    Affinity,
    Container,
    ContainerStatus,
    Int32,
    Int64,
    OwnerReference,
    PodAffinity,
    PodAffinityTerm,
    PodCondition,
    PodResourceClaimStatus,
    PodSpec,
    ResourceRequirements,
    Resources,
    Volume,
)
from app.model.pod import LabelSet, Pod, PodTemplate
from app.model.requests import PodResources, StatusResources
from app.model.selectors import LabelSelector
from app.wire.envelope import BareMeta, Instead, ObjectDecoder
from app.wire.sanitize import decode
from app.wire.size import size_check
from app.wire.strip import strip_for_extender

#: Whether to keep the JSON of a pod with this template and these labels.
KeepRaw = Callable[[PodTemplate, LabelSet], bool]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NO_LABELS: Final = LabelSet()
_NOTHING: Final = msgspec.Raw()
_MAX_OWNERS: Final = 65536
#: Owner references are shared only if name and uid are not longer than this together.
_MAX_OWNER_TEXT: Final = 512


class _Meta(msgspec.Struct, rename="camel", gc=False):
    name: Name = ""
    namespace: Name = ""
    uid: Name = ""
    resource_version: Name = ""
    generation: Int64 = 0
    labels: msgspec.Raw = _NOTHING
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    finalizers: Many[str] | None = None
    owner_references: Many[OwnerReference] | None = None


class _SchedulingGroup(msgspec.Struct, rename="camel", gc=False):
    pod_group_name: Name = ""


class _Spec(PodSpec):
    node_name: Name = ""
    scheduling_group: _SchedulingGroup | None = None


class _Status(msgspec.Struct, rename="camel", gc=False):
    phase: str = ""
    nominated_node_name: Name = ""
    conditions: Many[PodCondition] | None = None
    start_time: dt.datetime | None = None
    container_statuses: Many[ContainerStatus] | None = None
    init_container_statuses: Many[ContainerStatus] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: Resources | None = None
    resource_claim_statuses: Many[PodResourceClaimStatus] | None = None
    extended_resource_claim_status: msgspec.Raw = _NOTHING


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _BoundMeta(BareMeta):
    labels: msgspec.Raw = _NOTHING
    deletion_timestamp: str | None = None


class _BoundSpec(msgspec.Struct, rename="camel"):
    """The part of a spec that determines a pod's resources on its node."""

    node_name: str
    priority: Int32 | None = None
    containers: Many[Container] = ()
    init_containers: Many[Container] | None = None
    overhead: Resources | None = None
    resources: ResourceRequirements | None = None


class _BoundPod(msgspec.Struct):
    metadata: _BoundMeta
    spec: _BoundSpec


class _NodeName(msgspec.Struct, rename="camel"):
    node_name: Name


class _OnNode(msgspec.Struct):
    """The minimum that must be decoded of a bound pod."""

    metadata: BareMeta
    spec: _NodeName


_POD = msgspec.json.Decoder(_Pod)
_BOUND_POD = msgspec.json.Decoder(_BoundPod)
_ON_NODE = msgspec.json.Decoder(_OnNode)
_SPEC = msgspec.json.Decoder(PodSpec)
_LABELS = msgspec.json.Decoder(TextMap | None)
_CANONICAL = msgspec.json.Encoder(order="deterministic")

_EVERY_POD = PodAffinityTerm(
    topology_key="kubernetes.io/hostname",
    label_selector=LabelSelector(),
    namespace_selector=LabelSelector(),
)
#: Takes all of a node, whatever its size: no pod with requests fits beside it, and it keeps away the others. It is
#: never preempted.
_WHOLE_NODE = PodSpec(
    priority=2**31 - 1,
    containers=(
        Container(resources=ResourceRequirements(requests={"cpu": "1P", "memory": "1Ei"})),
    ),
    affinity=Affinity(pod_anti_affinity=PodAffinity(required=(_EVERY_POD,))),
)


class PodDecoder(ObjectDecoder[Pod]):
    """Decodes pods into app.model.pod.Pod.

    ``keep_raw`` says whether to keep the JSON of a pod with this template and these labels that has no node yet (for
    extenders), ``keep_bound_raw`` keeps that of the others (for the victims of a preemption that an extender wants to
    see whole); both as strip_for_extender leaves it. ``sums_of_resize``: the rule of Kubernetes 1.37 for a resize;
    ``otherwise``: pods also have what they take without this rule, or with it.
    """

    def __init__(
        self,
        *,
        keep_raw: KeepRaw | bool = False,
        keep_bound_raw: bool = False,
        sums_of_resize: bool = False,
        otherwise: bool = False,
    ) -> None:
        super().__init__("Pod", self._pod, size_check(_Pod), self._on_node)
        self._keep_raw: Final = (
            keep_raw if callable(keep_raw) else lambda _template, _labels: keep_raw
        )
        self._keep_bound_raw: Final = keep_bound_raw
        self._sums_of_resize: Final = sums_of_resize
        self._otherwise: Final = otherwise
        self._templates: WeakValueDictionary[bytes, PodTemplate] = WeakValueDictionary()
        self._labels: WeakValueDictionary[bytes, LabelSet] = WeakValueDictionary()

    @property
    def templates(self) -> int:
        """The number of templates in use."""
        return len(self._templates)

    @property
    def label_sets(self) -> int:
        """The number of label sets in use."""
        return len(self._labels)

    def template(self, spec: PodSpec) -> PodTemplate:
        """The template shared by all pods with this spec.

        Raises QuantityError for invalid requests, ValueError if the spec exceeds a limit.
        """
        key = _CANONICAL.encode(spec)
        template = self._templates.get(key)
        if template is None:
            _check_size(key, spec)
            template = PodTemplate(_SPEC.decode(key), key)
            _ = template.resources
            self._templates[key] = template
        return template

    def labels(self, text: msgspec.Raw) -> LabelSet:
        """The set shared by all pods with the labels in this JSON, which may be null or empty."""
        key = bytes(text)
        if not key:
            return _NO_LABELS
        return self._labels.get(key) or self._labels_rewritten(key)

    def _labels_rewritten(self, text: bytes) -> LabelSet:
        labels = _LABELS.decode(text)
        if not labels:
            return _NO_LABELS
        key = _CANONICAL.encode(labels)
        shared = self._labels.get(key)
        if shared is None:
            shared = self._labels[key] = LabelSet(sorted(labels.items()))
        return shared

    def _pod(self, raw: msgspec.Raw) -> Pod:
        wire = _POD.decode(raw)
        meta, spec, status = wire.metadata, wire.spec, wire.status
        node_name, group = sys.intern(spec.node_name), spec.scheduling_group
        template = self.template(_shared_part(spec))
        labels = self.labels(meta.labels)
        keep = self._keep_bound_raw if node_name else self._keep_raw(template, labels)
        resized = _resized(template, status, sums=self._sums_of_resize)
        otherwise = None
        if self._otherwise:
            other = _resized(template, status, sums=not self._sums_of_resize)
            otherwise = None if other == resized else other or template.resources
        return Pod(
            namespace=sys.intern(meta.namespace),
            name=meta.name,
            uid=meta.uid,
            template=template,
            labels=labels,
            resource_version=meta.resource_version,
            generation=meta.generation,
            deletion_timestamp=meta.deletion_timestamp,
            leaves_at_once=meta.deletion_grace_period_seconds == 0 and not meta.finalizers,
            owner=_controller(meta.owner_references),
            node_name=node_name,
            pod_group_name="" if group is None else group.pod_group_name,
            nominated_node_name=sys.intern(status.nominated_node_name),
            phase=sys.intern(status.phase),
            conditions=tuple(c for c in status.conditions if _read(c)) if status.conditions else (),
            start_time=_seconds(status.start_time),
            resized=resized,
            otherwise=otherwise,
            claim_statuses=status.resource_claim_statuses or (),
            extended_claim_status=bytes(status.extended_resource_claim_status),
            raw=strip_for_extender(raw) if keep else None,
        )

    def _on_node(self, raw: msgspec.Raw) -> Instead[Pod] | None:
        """A bound pod with only its resources on the node, or with all of the node if these are invalid as well.

        Raises msgspec.DecodeError.
        """
        bound = decode(_ON_NODE, raw)
        node_name = sys.intern(bound.spec.node_name)
        if not node_name:
            return None
        labels, deletion_timestamp = _NO_LABELS, None
        try:
            readable = _bound_pod(raw)
            template = self.template(_taken_by(readable.spec))
            labels = self._labels_if_readable(readable.metadata.labels)
            deletion_timestamp = readable.metadata.deletion_timestamp
            outcome = f"counts on node {node_name} with its requests, ports and labels"
        except (msgspec.DecodeError, ValueError):
            template = self.template(_WHOLE_NODE)
            outcome = f"counts as all of node {node_name}, which takes no other pods"
        pod = Pod(
            namespace=sys.intern(bound.metadata.namespace or ""),
            name=bound.metadata.name,
            uid=bound.metadata.uid or "",
            template=template,
            labels=labels,
            resource_version=bound.metadata.resource_version or "",
            deletion_timestamp=deletion_timestamp,
            node_name=node_name,
        )
        return pod, outcome

    def _labels_if_readable(self, text: msgspec.Raw) -> LabelSet:
        try:
            return self.labels(text)
        except msgspec.DecodeError:
            return _NO_LABELS


def _bound_pod(raw: msgspec.Raw) -> _BoundPod:
    """What a pod takes on its node. Raises msgspec.DecodeError, and ValueError for one that is too large to be read
    twice."""
    if len(raw) > MAX_UNCHECKED_BYTES:
        raise ValueError("too large")
    return decode(_BOUND_POD, raw)


def _taken_by(spec: _BoundSpec) -> PodSpec:
    return PodSpec(
        priority=spec.priority,
        containers=spec.containers,
        init_containers=spec.init_containers,
        overhead=spec.overhead,
        resources=spec.resources,
    )


def _check_size(text: bytes, spec: PodSpec) -> None:
    """Raises ValueError. ``text``: the spec as JSON. A brace in a text counts as an object; texts that are read have
    none."""
    if len(text) > MAX_SPEC_BYTES:
        raise ValueError(
            f"{len(text)} bytes of the spec are read, and the limit is {MAX_SPEC_BYTES}"
        )
    objects = text.count(b"{") - 1
    if objects > MAX_SPEC_OBJECTS:
        containers = (*spec.containers, *(spec.init_containers or ()))
        objects -= sum(not port.host_port for one in containers for port in one.ports or ())
    if objects > MAX_SPEC_OBJECTS:
        raise ValueError(
            f"{objects} objects of the spec are read, and the limit is {MAX_SPEC_OBJECTS}"
        )


def _shared_part(spec: _Spec) -> _Spec:
    """The spec without the parts of this pod alone; changes it in place."""
    spec.node_name, spec.scheduling_group = "", None
    if spec.volumes is not None:
        spec.volumes = tuple(v for v in spec.volumes if v != Volume(v.name)) or None
    return spec


@functools.lru_cache(maxsize=_MAX_OWNERS)
def _shared_owner(owner: OwnerReference) -> OwnerReference:
    return owner


def _controller(owners: tuple[OwnerReference, ...] | None) -> OwnerReference | None:
    for owner in owners or ():
        if owner.controller:
            short = len(owner.name) + len(owner.uid) <= _MAX_OWNER_TEXT
            return _shared_owner(owner) if short else owner
    return None


def _read(condition: PodCondition) -> bool:
    """Whether the scheduler uses this condition."""
    if condition.type == "PodScheduled":
        return condition.status == "False"
    return condition.type in {"DisruptionTarget", "PodResizePending"}


def _seconds(moment: dt.datetime | None) -> float | None:
    """Seconds since the epoch; a time without a zone is in UTC."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - _EPOCH).total_seconds()


def _resized(template: PodTemplate, status: _Status, *, sums: bool) -> PodResources | None:
    """The pod's resources while its status and its spec differ
    (docs/spec/resources.md#pod-requests); None if they are equal."""
    containers = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    spec = template.spec
    if not (sums and _infeasible(status.conditions or ())):
        if not containers and status.resources is None:
            return None
        if _agrees(spec, containers, status, sums=sums):
            return None
    occupied = requests.pod_resources(
        spec,
        StatusResources(
            containers={c.name: c for c in containers},
            pod=status.resources,
            allocated=status.allocated_resources,
            infeasible=_infeasible(status.conditions or ()),
            sums=sums,
        ),
    )
    return None if occupied == template.resources else occupied


def _agrees(
    spec: PodSpec, containers: tuple[ContainerStatus, ...], status: _Status, *, sums: bool
) -> bool:
    """Whether every amount in the status has the same text as in the spec."""
    asked = {
        c.name: _requests(c.resources) for c in (*spec.containers, *(spec.init_containers or ()))
    }
    return (
        status.resources is None
        or _same(_requests(spec.resources), status.resources, status.allocated_resources)
    ) and all(
        (c.resources is None and not (sums and c.allocated_resources))
        or _same(asked.get(c.name, {}), c.resources, c.allocated_resources)
        for c in containers
    )


def _same(
    asked: Resources, running: ResourceRequirements | None, allocated: Resources | None
) -> bool:
    return _requests(running) == asked and (allocated or {}) == asked


def _requests(resources: ResourceRequirements | None) -> Resources:
    return (resources.requests if resources is not None else None) or {}


def _infeasible(conditions: tuple[PodCondition, ...]) -> bool:
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in conditions)
