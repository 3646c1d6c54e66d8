"""Expands workloads into the pods that their controllers would create.

A workload that the cluster already has is scaled: its pods stay, and the missing ones are created. All pods of a workload are
created at once, also those of a StatefulSet; for a Job, as many as run at the same time. There are no rolling updates.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from app.model.objects import Node
from app.model.pod import Pod
from app.plugins.helpers.node_selector import RequiredNodeAffinity
from app.plugins.helpers.tolerations import find_untolerated
from app.sim import EmbeddedCluster, ManifestError
from app.sim.objects import is_being_deleted
from app.sim.resources.kinds import BY_RESOURCE, NODES, PODS, Kind
from app.sim.selectors import selects_labels
from app.wire.kube import NodeDecoder, PodDecoder

Object = dict[str, Any]

_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_TOLERATED_ON_HOST_NETWORK: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def daemon_spec(spec: Object) -> Object:
    """A DaemonSet's pod spec with the tolerations that all daemons have."""
    keys = list(_TOLERATED)
    if spec.get("hostNetwork"):
        keys.append(_TOLERATED_ON_HOST_NETWORK)
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in keys]
    given = spec.get("tolerations", [])
    return spec | {"tolerations": given + [each for each in added if each not in given]}


def pinned(spec: Object, node: str) -> Object:
    """The spec of the pod for one node: its required node affinity is replaced by that node."""
    affinity = spec.get("affinity", {})
    name = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {_REQUIRED: {"nodeSelectorTerms": [{"matchFields": [name]}]}}
    node_affinity = affinity.get("nodeAffinity", {}) | required
    return spec | {"affinity": affinity | {"nodeAffinity": node_affinity}}


def pinned_to(pod: Object) -> str:
    """The node that a daemon's pod is for, by its affinity."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    for term in affinity.get(_REQUIRED, {}).get("nodeSelectorTerms", ()):
        for field in term.get("matchFields", ()):
            if field["key"] == "metadata.name":
                return str(field["values"][0])
    return ""


def wanted_nodes(spec: Object, nodes: Iterable[Object]) -> Iterator[str]:
    """The nodes that the spec's name, selector, affinity and tolerations allow, whether or not there is room."""
    pod = PodDecoder().decode(msgspec.json.encode({"metadata": {"name": "daemon"}, "spec": spec}))
    affinity = RequiredNodeAffinity.of(pod.spec)
    decoder = NodeDecoder()
    for value in nodes:
        node = decoder.decode(msgspec.json.encode(value))
        if _suits(pod, node) and affinity.matches_node(node):
            yield node.name


def _suits(pod: Pod, node: Node) -> bool:
    return pod.node_name in ("", node.name) and (
        find_untolerated(node.spec.taints or (), pod.spec.tolerations or ()) is None
    )


OwnerKey = tuple[str, str, str]
"""(kind, namespace, name)."""


def key_of(value: Object) -> OwnerKey:
    """The key by which owners are compared; uids are missing in some dumps."""
    metadata = value["metadata"]
    return value["kind"], metadata["namespace"], metadata["name"]


def controller_of(value: Object) -> OwnerKey | None:
    """The key of an object's controller; None without one."""
    metadata = value["metadata"]
    owners: Iterable[Object] = metadata.get("ownerReferences", ())
    for owner in owners:
        if owner.get("controller"):
            return owner["kind"], metadata.get("namespace") or "default", owner["name"]
    return None


def owner_reference(value: Object) -> Object:
    """The owner reference to an object."""
    names = {name: value["metadata"][name] for name in ("name", "uid")}
    types = {name: value[name] for name in ("apiVersion", "kind")}
    return types | names | {"controller": True, "blockOwnerDeletion": True}


_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_HASH_LENGTH: Final = 10
_SUFFIXES: Final = len(_LETTERS) ** _SUFFIX_LENGTH
#: Coprime to the number of suffixes, so that consecutive numbers get different suffixes that look random.
_STRIDE: Final = 6_180_341
_LONGEST_PREFIX: Final = 58


def _spelled(number: int, length: int) -> str:
    letters = []
    for _ in range(length):
        number, index = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[index])
    return "".join(letters)


def _digest(text: bytes) -> int:
    return int.from_bytes(hashlib.sha256(text).digest())


def pod_name(prefix: str, number: int) -> str:
    """The name of an owner's pod: the prefix and five letters, which differ for each number below 14 million.

    >>> pod_name("web-", 0)
    'web-dhvkz'
    """
    first = _digest(prefix.encode())
    return prefix[:_LONGEST_PREFIX] + _spelled(
        (first + number * _STRIDE) % _SUFFIXES, _SUFFIX_LENGTH
    )


def template_hash(template: Any) -> str:
    """A hash of a pod template for the label pod-template-hash; not the value that Kubernetes computes."""
    text = msgspec.json.encode(template, order="sorted")
    return _spelled(_digest(text), _HASH_LENGTH)


Made = Iterator[tuple[Kind, Object]]

EXPANDED: Final = frozenset(
    {"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"}
)
"""The kinds that consist of pods."""

REPLICA_SETS: Final = BY_RESOURCE["replicasets.apps"]
CLAIMS: Final = BY_RESOURCE["persistentvolumeclaims"]

_SELECTING: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"})
"""Kinds whose selector is required."""
_REVISION: Final = "deployment.kubernetes.io/revision"
_HASH: Final = "pod-template-hash"
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class WorkloadExpander:
    """Yields the parts of a workload that the cluster does not have.

    It reads the pods of the cluster when it is created. The workload itself must be stored, because its uid is needed.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster: Final = cluster
        self._ways: Final[Mapping[str, Callable[[Object], Made]]] = {
            "Deployment": self._deployment,
            "ReplicaSet": self._replicated,
            "ReplicationController": self._replicated,
            "StatefulSet": self._stateful_set,
            "DaemonSet": self._daemon_set,
            "Job": self._job,
        }
        self._owned: Final[dict[OwnerKey, list[Object]]] = defaultdict(list)
        for record in cluster.api.store[PODS.storage].ordered():
            pod = record.value
            owner = controller_of(pod)
            alive = not is_being_deleted(pod) and pod["status"].get("phase") not in _ENDED
            if owner is not None and alive:
                self._owned[owner].append(pod)

    def parts(self, workload: Object) -> Made:
        """What its controller would create: pods, claims, or ReplicaSets, which have parts of their own.

        Raises ManifestError if that cannot be determined.
        """
        template = workload["spec"].get("template", {})
        if not template.get("spec", {}).get("containers"):
            raise ManifestError("spec.template has no containers")
        selector = workload["spec"].get("selector")
        selects = selects_labels(selector) if workload["kind"] in _SELECTING else None
        if selects is not None and not selects(template.get("metadata", {}).get("labels", {})):
            raise ManifestError("spec.selector does not match the labels of spec.template")
        return self._ways[workload["kind"]](workload)

    def existing(self, workload: Object) -> list[Object]:
        """Its pods that the cluster has."""
        if workload["kind"] != "Deployment":
            return self._owned[key_of(workload)]
        sets = self._replica_sets(workload)
        return [pod for each in sets for pod in self._owned[key_of(each)]]

    # ------------------------------------------------------------ kinds

    def _deployment(self, deployment: Object) -> Made:
        """The newest ReplicaSet with the replicas that the others leave to it, or a new one."""
        spec, sets = deployment["spec"], sorted(self._replica_sets(deployment), key=_revision)
        digest = template_hash(spec["template"])
        metadata: Object = {
            "name": f"{deployment['metadata']['name']}-{digest}",
            "annotations": {_REVISION: "1"},
        }
        if sets:
            known = sets[-1]["metadata"]
            digest = known.get("labels", {}).get(_HASH, digest)
            metadata = {part: known[part] for part in ("name", "annotations") if part in known}
        elsewhere = sum(len(self._owned[key_of(each)]) for each in sets[:-1])
        yield REPLICA_SETS, _replica_set(deployment, metadata, digest, spec["replicas"] - elsewhere)

    def _replicated(self, owner: Object) -> Made:
        missing = owner["spec"]["replicas"] - len(self.existing(owner))
        return self._alike(owner, missing, {})

    def _job(self, job: Object) -> Made:
        spec, name = job["spec"], job["metadata"]["name"]
        marks = {"batch.kubernetes.io/job-name": name, "job-name": name}
        uid = job["metadata"]["uid"]
        marks |= {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
        wanted = 0 if spec.get("suspend") else spec.get("parallelism", 1)
        if spec.get("completions") is not None:
            wanted = min(wanted, spec["completions"] - job.get("status", {}).get("succeeded", 0))
        missing = wanted - len(self.existing(job))
        if spec.get("completionMode") == "Indexed":
            return self._indexed(job, missing, marks)
        return self._alike(job, missing, marks)

    def _indexed(self, job: Object, missing: int, marks: Mapping[str, str]) -> Made:
        mark = "batch.kubernetes.io/job-completion-index"
        existing = self.existing(job)
        taken = {pod["metadata"].get("annotations", {}).get(mark) for pod in existing}
        free = [str(i) for i in range(missing + len(taken)) if str(i) not in taken]
        for index in free[: max(0, missing)]:
            name = pod_name(f"{job['metadata']['name']}-{index}-", 0)
            index_mark = {mark: index}
            yield PODS, _pod(job, name, labels={**marks, **index_mark}, annotations=index_mark)

    def _stateful_set(self, owner: Object) -> Made:
        spec, name = owner["spec"], owner["metadata"]["name"]
        first = spec.get("ordinals", {}).get("start", 0)
        existing = {pod["metadata"]["name"] for pod in self.existing(owner)}
        for ordinal in range(first, first + spec["replicas"]):
            pod = f"{name}-{ordinal}"
            if pod not in existing:
                yield from self._claims(owner, ordinal)
                yield PODS, _stateful_pod(owner, pod, ordinal)

    def _claims(self, owner: Object, ordinal: int) -> Made:
        """The claims of one pod that do not exist yet."""
        metadata = owner["metadata"]
        for template in owner["spec"].get("volumeClaimTemplates", ()):
            name = f"{template['metadata']['name']}-{metadata['name']}-{ordinal}"
            if self._cluster.api.find(CLAIMS, metadata["namespace"], name) is None:
                labels = owner["spec"].get("selector", {}).get("matchLabels", {})
                given = {**template["metadata"], "namespace": metadata["namespace"]}
                labels = given.get("labels", {}) | labels
                yield (
                    CLAIMS,
                    {
                        "metadata": given | {"name": name, "labels": labels},
                        "spec": template["spec"],
                    },
                )

    def _daemon_set(self, owner: Object) -> Made:
        spec = daemon_spec(owner["spec"]["template"]["spec"])
        nodes = [record.value for record in self._cluster.api.store[NODES.storage].ordered()]
        taken = {pod["spec"].get("nodeName") or pinned_to(pod) for pod in self.existing(owner)}
        wanted = [node for node in wanted_nodes(spec, nodes) if node not in taken]
        marks = {"controller-revision-hash": template_hash(owner["spec"]["template"])}
        names = self._free_names(owner)
        for node in wanted:
            yield PODS, _pod(owner, next(names), labels=marks, spec=pinned(spec, node))

    # ------------------------------------------------------------ parts

    def _alike(self, owner: Object, count: int, labels: Mapping[str, str]) -> Made:
        names = self._free_names(owner)
        for _ in range(count):
            yield PODS, _pod(owner, next(names), labels=labels)

    def _free_names(self, owner: Object) -> Iterator[str]:
        prefix, number = f"{owner['metadata']['name']}-", 0
        taken = {pod["metadata"]["name"] for pod in self.existing(owner)}
        while True:
            name = pod_name(prefix, number)
            number += 1
            if name not in taken:
                yield name

    def _replica_sets(self, deployment: Object) -> list[Object]:
        namespace = deployment["metadata"]["namespace"]
        records = self._cluster.api.store[REPLICA_SETS.storage].ordered(namespace=namespace)
        key = key_of(deployment)
        return [record.value for record in records if controller_of(record.value) == key]


def _revision(replica_set: Object) -> tuple[int, str]:
    text = replica_set["metadata"].get("annotations", {}).get(_REVISION, "")
    return int(text) if text.isdecimal() else 0, replica_set["metadata"]["name"]


def _replica_set(deployment: Object, metadata: Object, digest: str, replicas: int) -> Object:
    """A ReplicaSet of a Deployment with the hash of its template; ``metadata``: its name and annotations."""
    spec, marks = deployment["spec"], {_HASH: digest}
    template, selector = spec["template"], spec["selector"]
    given = template.get("metadata", {})
    labels = given.get("labels", {}) | marks
    metadata = metadata | {"namespace": deployment["metadata"]["namespace"], "labels": labels}
    return {
        "kind": REPLICA_SETS.kind,
        "apiVersion": REPLICA_SETS.group_version,
        "metadata": metadata | {"ownerReferences": [owner_reference(deployment)]},
        "spec": {
            "replicas": max(0, replicas),
            "selector": selector | {"matchLabels": selector.get("matchLabels", {}) | marks},
            "template": template | {"metadata": given | {"labels": labels}},
        },
    }


def _pod(
    owner: Object,
    name: str,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    spec: Object | None = None,
) -> Object:
    """A pod from the owner's template."""
    template = owner["spec"]["template"]
    given = template.get("metadata", {})
    return {
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**given.get("labels", {}), **labels},
            "annotations": {**given.get("annotations", {}), **(annotations or {})},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": dict(template["spec"] if spec is None else spec),
    }


def _stateful_pod(owner: Object, name: str, ordinal: int) -> Object:
    spec = owner["spec"]
    claims = [template["metadata"]["name"] for template in spec.get("volumeClaimTemplates", ())]
    pod_spec = spec["template"]["spec"]
    volumes = [v for v in pod_spec.get("volumes", ()) if v["name"] not in claims]
    volumes += [
        {
            "name": claim,
            "persistentVolumeClaim": {
                "claimName": f"{claim}-{owner['metadata']['name']}-{ordinal}"
            },
        }
        for claim in claims
    ]
    named = {"hostname": name, "subdomain": spec.get("serviceName", ""), "volumes": volumes}
    labels = {
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        "controller-revision-hash": f"{owner['metadata']['name']}-{template_hash(spec['template'])}",
    }
    return _pod(owner, name, labels=labels, spec=pod_spec | named)
