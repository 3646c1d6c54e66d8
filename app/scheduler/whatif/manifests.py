"""Makes pods of the manifests of a question: those that the controllers of workloads would create, as API servers
complete them.

What an admission plugin of the cluster would add is not known: the priorities of PriorityClasses are looked up, and
limits are requests, but a LimitRange or a webhook is not asked.
"""

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from app.model.devices import DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from app.model.objects import Named, Node
from app.model.pod import Pod, PodTemplate
from app.model.pod_groups import LabelledPodGroup
from app.model.selectors import Selector
from app.wire.envelope import DecodeError
from app.wire.kube import ObjectDecoder
from app.wire.whatif_v1 import MAX_PODS, RefusedError, WhatIfQuestion, invalid

Manifest = dict[str, Any]

#: Priorities that every cluster has.
SYSTEM_PRIORITIES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
#: The name under which the priority of pods without a class is kept.
DEFAULT_PRIORITY: Final = ""
_Request = TypeVar("_Request", ExactDeviceRequest, DeviceSubRequest)
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_GRACE: Final = 300
_WORKLOADS: Final = frozenset(
    {"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job", "DaemonSet"}
)
#: Owners that the scheduler reads, for spreading.
_OWNERS: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
_HASH_LABEL: Final = "pod-template-hash"


class Wanted:
    """The pods of one object of a question."""

    def __init__(
        self, title: str, count: int, manifest: Callable[[int], Manifest], decode: "Decode"
    ) -> None:
        """``manifest`` returns that of the pod of a number, from 0 on; ``decode`` makes a pod of it."""
        #: KIND NAMESPACE/NAME.
        self.title: Final = title
        self.count: Final = count
        self._manifest: Final = manifest
        self._decode: Final = decode
        self._alike: Pod | None = None

    def pod(self, number: int) -> Pod:
        """A pod, which no other one equals. Raises RefusedError."""
        manifest = self._manifest(number)
        meta = manifest["metadata"]
        known = self._alike
        if known is not None and manifest.get("-alike-"):
            return msgspec.structs.replace(known, name=meta["name"], uid=self._decode.uid())
        pod = self._decode(manifest)
        if pod.raw is None:
            self._alike = pod
        return pod

    def pods(self) -> Iterator[Pod]:
        """All of them. Raises RefusedError."""
        return map(self.pod, range(self.count))


class Decode:
    """Makes pods of complete manifests."""

    def __init__(self, decoder: ObjectDecoder[Pod]) -> None:
        self.decoder: Final = decoder
        self._made = 0

    def uid(self) -> str:
        """A uid that no pod has had."""
        self._made += 1
        return f"what-if-{self._made}"

    def __call__(self, manifest: Manifest) -> Pod:
        """The pod. Raises RefusedError."""
        meta = {**manifest["metadata"], "uid": self.uid(), "resourceVersion": "0"}
        found = {
            part: manifest[part] for part in manifest if part in {"apiVersion", "kind", "spec"}
        }
        try:
            return self.decoder.decode(msgspec.json.encode({**found, "metadata": meta}))
        except DecodeError as error:
            raise invalid(str(error)) from error


class Reading:
    """The objects of a question."""

    def __init__(self) -> None:
        self.wanted: Final[list[Wanted]] = []
        #: What the pods need besides: their model and the object.
        self.others: Final[list[tuple[type[Named], Named]]] = []
        self.warnings: Final[list[str]] = []


class ManifestReader:
    """Reads manifests."""

    def __init__(
        self,
        decoders: Mapping[str, tuple[type[Named], ObjectDecoder[Any]]],
        pods: ObjectDecoder[Pod],
        nodes: ObjectDecoder[Node],
        schedulers: Sequence[str],
    ) -> None:
        """``decoders``: of the kinds that the scheduler reads, by name. ``schedulers``: the names of the profiles."""
        self._decoders: Final = decoders
        self._decode: Final = Decode(pods)
        self._nodes: Final = nodes
        self._schedulers: Final = schedulers

    def read(
        self,
        question: WhatIfQuestion,
        priorities: Mapping[str, int],
        nodes: Sequence[Node | None],
    ) -> Reading:
        """The pods that are meant, and the other objects. ``nodes``: those of the cluster, for DaemonSets. Raises
        RefusedError."""
        reading = Reading()
        one = _OneQuestion(self, question, priorities, nodes, reading)
        for number, value in enumerate(question.objects):
            one.add(value, f"objects[{number}]")
        if not reading.wanted and not question.pods:
            raise invalid("the question has no pod and no workload: give at least one in 'objects'")
        return reading

    def node(self, value: Manifest) -> Node:
        """A node of a manifest. Raises RefusedError."""
        meta = value.get("metadata")
        name = meta.get("name") if isinstance(meta, dict) else None
        meta = {**(meta if isinstance(meta, dict) else {}), "name": name or "shape"}
        try:
            node = self._nodes.decode(msgspec.json.encode({**value, "metadata": meta}))
        except DecodeError as error:
            raise invalid(f"node: {error}") from error
        allocatable = node.status.allocatable or {}
        if not {"cpu", "memory", "pods"} <= allocatable.keys():
            raise invalid("node: status.allocatable must have cpu, memory and pods")
        return node

    def sent_node(self, body: bytes, place: str) -> Node:
        """A node as an API server has it. Raises RefusedError."""
        try:
            node = self._nodes.decode(body)
        except DecodeError as error:
            raise invalid(f"{place}: {error}") from error
        if not node.name:
            raise invalid(f"{place}: the node has no name")
        return node

    def sent_pod(self, body: bytes) -> Pod:
        """A pod as an API server has it, for one of the profiles, without its node. Raises RefusedError."""
        try:
            pod = self._decode.decoder.decode(body)
        except DecodeError as error:
            raise invalid(f"Pod: {error}") from error
        spec = pod.spec
        if spec.scheduler_name not in self._schedulers:
            spec = msgspec.structs.replace(spec, scheduler_name=self.scheduler(""))
            pod = msgspec.structs.replace(pod, template=PodTemplate(spec))
        return msgspec.structs.replace(pod, node_name="", raw=body)

    def uid(self) -> str:
        """See Decode."""
        return self._decode.uid()

    def decoder_of(self, kind: str, version: str) -> tuple[type[Named], ObjectDecoder[Any]] | None:
        """The model and the decoder of a kind; None if the scheduler does not read it."""
        if kind == "PodGroup" and version.startswith(f"{LabelledPodGroup.GROUP}/"):
            kind = LabelledPodGroup.__name__
        return self._decoders.get(kind)

    @property
    def decode(self) -> Decode:
        """Makes pods."""
        return self._decode

    def scheduler(self, given: object) -> str:
        """The profile that is meant: without a name the default one, or the only one. Raises RefusedError."""
        if not given:
            known = self._schedulers
            return _DEFAULT_SCHEDULER if _DEFAULT_SCHEDULER in known else known[0]
        if given not in self._schedulers:
            raise invalid(
                f"schedulerName {str(given)[:64]!r}: this scheduler has the profiles {', '.join(self._schedulers)}"
            )
        return str(given)


class _OneQuestion:
    """Reads the objects of one question."""

    def __init__(
        self,
        reader: ManifestReader,
        question: WhatIfQuestion,
        priorities: Mapping[str, int],
        nodes: Sequence[Node | None],
        reading: Reading,
    ) -> None:
        self._reader: Final = reader
        self._question: Final = question
        self._priorities: Final = priorities
        self._nodes: Final = nodes
        self._reading: Final = reading
        self._total = 0

    def add(self, value: Manifest, place: str) -> None:
        """Adds an object. Raises RefusedError."""
        try:
            self._add(value, place)
        except RefusedError as refused:
            raise RefusedError(refused.status, refused.reason, f"{place}: {refused}") from refused
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            text = f"{place}: a field is missing or has an unexpected form ({type(error).__name__}: {error})"
            raise invalid(text[:500]) from error

    def _add(self, value: Manifest, place: str) -> None:
        kind, version = value.get("kind"), value.get("apiVersion")
        if not isinstance(kind, str) or not isinstance(version, str):
            raise invalid("kind or apiVersion is missing: it is no object of Kubernetes")
        if kind == "List":
            for number, item in enumerate(value["items"]):
                self._add(item, f"{place}.items[{number}]")
            return
        meta = value.setdefault("metadata", {})
        meta["namespace"] = meta.get("namespace") or self._question.namespace
        name = meta.get("name") or str(meta.get("generateName") or kind.lower()).rstrip("-.")
        if not isinstance(name, str) or not isinstance(meta["namespace"], str):
            raise invalid("metadata.name and metadata.namespace must be texts")
        meta["name"] = name
        if kind == "Pod":
            self._want(value, name, self._count(1), self._alone(value, name))
        elif kind in _WORKLOADS:
            self._workload(kind, value, name)
        else:
            self._other(kind, version, value)

    def _other(self, kind: str, version: str, value: Manifest) -> None:
        found = self._reader.decoder_of(kind, version)
        if found is None:
            raise invalid(
                f"{kind} ({version}): this scheduler schedules no such objects, and does not read them"
            )
        if len(self._reading.others) >= MAX_PODS:
            raise invalid(f"more than {MAX_PODS} objects besides pods are given, claims included")
        model, decoder = found
        value["metadata"].setdefault("uid", self._reader.uid())
        if decoder_is_cluster_scoped(model):
            value["metadata"].pop("namespace", None)
        try:
            made = decoder.decode(msgspec.json.encode(value))
        except DecodeError as error:
            raise invalid(str(error)) from error
        if isinstance(made, ResourceClaim):
            made = _with_counts(made)
        self._reading.others.append((model, made))

    def _count(self, given: object) -> int:
        if self._question.question == "how-many":
            return 1
        count = self._question.copies if self._question.copies is not None else given
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise invalid("the number of replicas must be a whole number of at least 0")
        self._total += count
        if self._total > MAX_PODS:
            raise invalid(
                f"more than {MAX_PODS} pods are asked about at once; ask how-many, or about fewer"
            )
        return count

    def _want(
        self, value: Manifest, name: str, count: int, manifest: Callable[[int], Manifest]
    ) -> None:
        if len(self._reading.wanted) >= MAX_PODS:
            raise invalid(f"more than {MAX_PODS} pods and workloads are given")
        title = f"{value['kind']} {value['metadata']['namespace']}/{name}"
        self._reading.wanted.append(Wanted(title, count, manifest, self._reader.decode))

    # ------------------------------------------------------------ kinds

    def _alone(self, value: Manifest, name: str) -> Callable[[int], Manifest]:
        """A pod, or several like it."""
        meta = {part: v for part, v in value["metadata"].items() if part in _POD_META}
        pod = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": meta,
            "spec": self._completed(value["spec"]),
        }

        def manifest(number: int) -> Manifest:
            own = name if number == 0 else f"{name}-{number}"
            return {**pod, "metadata": {**meta, "name": own}, "-alike-": True}

        return manifest

    def _workload(self, kind: str, value: Manifest, name: str) -> None:
        spec = value["spec"]
        template, prefix, owner = spec["template"], name, value
        if kind == "DaemonSet":
            self._daemon_set(value, name)
            return
        count = self._count(_parallel(spec) if kind == "Job" else spec.get("replicas", 1))
        labels: dict[str, str] = {}
        if kind == "Deployment":
            digest = _digest(template)
            prefix, labels = f"{name}-{digest}", {_HASH_LABEL: digest}
            owner = _replica_set(value, prefix, labels)
        owner["metadata"].setdefault("uid", self._reader.uid())
        if owner["kind"] in _OWNERS and self._reader.decoder_of(owner["kind"], "") is not None:
            self._other(owner["kind"], str(owner["apiVersion"]), copy.deepcopy(owner))
        meta = self._pod_meta(value, template, owner, labels)
        completed = self._completed(template["spec"])
        ordinal = kind == "StatefulSet"
        claims = spec.get("volumeClaimTemplates") or () if ordinal else ()
        for number in range(count):
            for claim in claims:
                self._claim(claim, f"{name}-{number}", meta["namespace"])

        def manifest(number: int) -> Manifest:
            own = f"{prefix}-{number}" if ordinal else f"{prefix}-{_suffix(prefix, number)}"
            pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {**meta, "name": own}}
            if claims:
                return {**pod, "spec": _with_claims(completed, claims, own)}
            return {**pod, "spec": completed, "-alike-": True}

        self._want(value, name, count, manifest)

    def _daemon_set(self, value: Manifest, name: str) -> None:
        """One pod for each node that its node selector takes."""
        template = value["spec"]["template"]
        selector = Selector(
            tuple((k, "In", (v,)) for k, v in (template["spec"].get("nodeSelector") or {}).items())
        )
        nodes = [node.name for node in self._nodes if node and selector.matches(node.labels)]
        if self._question.question == "how-many":
            raise invalid("a DaemonSet has one pod on each node")
        self._total += len(nodes)
        if self._total > MAX_PODS:
            raise invalid(f"more than {MAX_PODS} pods are asked about at once")
        value["metadata"].setdefault("uid", self._reader.uid())
        meta = self._pod_meta(value, template, value, {})
        completed = self._completed(template["spec"], daemon=True)

        def manifest(number: int) -> Manifest:
            own = f"{name}-{_suffix(name, number)}"
            spec = {**completed, "affinity": _pinned(completed.get("affinity"), nodes[number])}
            return {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {**meta, "name": own},
                "spec": spec,
            }

        self._want(value, name, len(nodes), manifest)

    def _pod_meta(
        self, value: Manifest, template: Manifest, owner: Manifest, labels: Mapping[str, str]
    ) -> Manifest:
        found = template.get("metadata") or {}
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        return {
            "namespace": value["metadata"]["namespace"],
            "labels": {**(found.get("labels") or {}), **labels},
            "annotations": found.get("annotations") or {},
            "ownerReferences": [reference],
        }

    def _claim(self, claim: Manifest, pod: str, namespace: str) -> None:
        meta = claim["metadata"]
        value = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "metadata": {**meta, "name": f"{meta['name']}-{pod}", "namespace": namespace},
            "spec": claim.get("spec") or {},
            "status": {"phase": "Pending"},
        }
        if self._reader.decoder_of("PersistentVolumeClaim", "v1") is not None:
            self._other("PersistentVolumeClaim", "v1", value)

    # ------------------------------------------------------------ what an API server adds

    def _completed(self, given: Manifest, *, daemon: bool = False) -> Manifest:
        """A pod's spec with the defaults that decide where it goes. Raises RefusedError."""
        if not isinstance(given, dict):
            raise invalid("the spec of the pod is missing")
        spec = {part: value for part, value in given.items() if part != "nodeName"}
        containers = spec.get("containers")
        if not isinstance(containers, list) or not containers:
            raise invalid("the pod has no containers")
        spec["schedulerName"] = self._reader.scheduler(spec.get("schedulerName"))
        self._prioritize(spec)
        if self._question.question in {"how-many", "needs"}:
            spec["preemptionPolicy"] = "Never"
        host = bool(spec.get("hostNetwork"))
        for part in ("containers", "initContainers"):
            if spec.get(part):
                spec[part] = [_container(each, host_network=host) for each in spec[part]]
        tolerations = list(spec.get("tolerations") or ())
        spec["tolerations"] = tolerations + [
            each
            for each in (_daemon_tolerations(host) if daemon else _default_tolerations())
            if not any(_tolerates(known, each["key"], each.get("effect")) for known in tolerations)
        ]
        return spec

    def _prioritize(self, spec: Manifest) -> None:
        """Sets the priority of the class that the pod names, or of the default class."""
        name = spec.get("priorityClassName") or DEFAULT_PRIORITY
        if spec.get("priority") is not None and name not in self._priorities:
            return
        known = self._priorities.get(name)
        if known is None:
            if name == DEFAULT_PRIORITY:
                return
            raise invalid(
                f"PriorityClass {str(name)[:64]!r} is not known: create it, or give the number as spec.priority"
            )
        spec["priority"] = known


_POD_META: Final = frozenset({"name", "namespace", "labels", "annotations", "ownerReferences"})


def decoder_is_cluster_scoped(model: type[Named]) -> bool:
    """Whether objects of a kind have no namespace."""
    return model.__name__ in _CLUSTER_SCOPED


_CLUSTER_SCOPED: Final = frozenset(
    {
        "Namespace",
        "PersistentVolume",
        "StorageClass",
        "CSINode",
        "CSIDriver",
        "VolumeAttachment",
        "DeviceClass",
        "ResourceSlice",
        "DeviceTaintRule",
    }
)


def _with_counts(claim: ResourceClaim) -> ResourceClaim:
    """The claim with the defaults of its requests."""
    devices = claim.spec.devices
    requests = tuple(
        msgspec.structs.replace(
            request,
            exactly=None if request.exactly is None else _counted(request.exactly),
            first_available=tuple(map(_counted, request.first_available or ())) or None,
        )
        for request in devices.requests or ()
    )
    return msgspec.structs.replace(
        claim,
        spec=msgspec.structs.replace(
            claim.spec, devices=msgspec.structs.replace(devices, requests=requests)
        ),
    )


def _counted(request: _Request) -> _Request:
    mode = request.allocation_mode or "ExactCount"
    count = request.count or 1 if mode == "ExactCount" else request.count
    tolerations = tuple(
        each if each.operator else msgspec.structs.replace(each, operator="Equal")
        for each in request.tolerations or ()
    )
    return msgspec.structs.replace(
        request, allocation_mode=mode, count=count, tolerations=tolerations or None
    )


def _parallel(spec: Manifest) -> object:
    """How many pods of a Job run at the same time."""
    wanted, completions = spec.get("parallelism", 1), spec.get("completions")
    return 0 if spec.get("suspend") else wanted if completions is None else min(wanted, completions)


def _replica_set(deployment: Manifest, name: str, labels: Mapping[str, str]) -> Manifest:
    selector = deployment["spec"].get("selector") or {}
    matching = {**(selector.get("matchLabels") or {}), **labels}
    return {
        "kind": "ReplicaSet",
        "apiVersion": "apps/v1",
        "metadata": {"name": name, "namespace": deployment["metadata"]["namespace"]},
        "spec": {"selector": {**selector, "matchLabels": matching}},
    }


def _with_claims(spec: Manifest, claims: Sequence[Manifest], pod: str) -> Manifest:
    names = [claim["metadata"]["name"] for claim in claims]
    own = [
        {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod}"}} for name in names
    ]
    others = [each for each in spec.get("volumes") or () if each.get("name") not in names]
    return {**spec, "volumes": [*others, *own]}


def _container(given: Manifest, *, host_network: bool) -> Manifest:
    container = dict(given)
    resources = container.get("resources") or {}
    limits = resources.get("limits")
    if limits:
        requests = {**limits, **(resources.get("requests") or {})}
        container["resources"] = {**resources, "requests": requests}
    if host_network and container.get("ports"):
        container["ports"] = [
            {**port, "hostPort": port.get("hostPort") or port["containerPort"]}
            for port in container["ports"]
        ]
    return container


def _default_tolerations() -> list[Manifest]:
    return [
        {
            "key": f"node.kubernetes.io/{what}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _GRACE,
        }
        for what in ("not-ready", "unreachable")
    ]


def _daemon_tolerations(host_network: bool) -> list[Manifest]:
    everywhere = {"not-ready": "NoExecute", "unreachable": "NoExecute"} | dict.fromkeys(
        ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"), "NoSchedule"
    )
    if host_network:
        everywhere["network-unavailable"] = "NoSchedule"
    return [
        {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": effect}
        for what, effect in everywhere.items()
    ]


def _tolerates(toleration: Manifest, key: str, effect: str | None) -> bool:
    return toleration.get("key") in {None, "", key} and toleration.get("effect") in {
        None,
        "",
        effect,
    }


def _pinned(affinity: Manifest | None, node: str) -> Manifest:
    """The affinity of a pod of a DaemonSet: to one node by its name."""
    affinity = copy.deepcopy(affinity or {})
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = affinity.setdefault("nodeAffinity", {}).setdefault(
        "requiredDuringSchedulingIgnoredDuringExecution", {}
    )
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [{**term, "matchFields": [field]} for term in terms]
    return affinity


def _digest(value: object) -> str:
    text = msgspec.json.encode(value, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:10]


def _suffix(prefix: str, number: int) -> str:
    """Five characters, another five for each number below a million."""
    start = int(hashlib.sha256(prefix.encode()).hexdigest()[:8], 16)
    return f"{(start + number * 599_999) % 0x100000:05x}"
