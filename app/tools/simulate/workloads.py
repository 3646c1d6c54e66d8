"""Expands workloads into the pods that their controllers would create.

A workload that the cluster already has is scaled: its pods stay, and the missing ones are created. All pods of a
workload are created at once, also those of a StatefulSet; for a Job, as many as run at the same time. There are no
rolling updates.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from app.sim import EmbeddedCluster
from app.sim.controllers.workloads.daemon_sets import (
    daemon_spec,
    pinned,
    pinned_to,
    wanted_nodes,
)
from app.sim.controllers.workloads.deployments import REVISION, revision_of
from app.sim.controllers.workloads.plan import is_active
from app.sim.controllers.workloads.templates import (
    CLAIMS,
    HASH_LABEL,
    INDEX_MARK,
    REPLICA_SETS,
    REVISION_LABEL,
    digest,
    indexed_pod,
    pod_of,
    replica_set_of,
    stateful_claims,
    stateful_pod,
    template_hash,
)
from app.sim.objects import controller_reference, spelled
from app.sim.resources.kinds import NODES, PODS, Kind
from app.sim.resources.workloads import job_marks
from app.sim.store import Object
from app.wire.kube import NodeDecoder

OwnerKey = tuple[str, str, str]
"""(kind, namespace, name)."""


def key_of(value: Object) -> OwnerKey:
    """The key by which owners are compared; uids are missing in some dumps."""
    metadata = value["metadata"]
    return value["kind"], metadata["namespace"], metadata["name"]


def controller_of(value: Object) -> OwnerKey | None:
    """The key of an object's controller; None without one."""
    owner = controller_reference(value)
    if owner is None:
        return None
    return owner["kind"], value["metadata"].get("namespace") or "default", owner["name"]


_SUFFIX_LENGTH: Final = 5
_SUFFIXES: Final = 27**_SUFFIX_LENGTH
#: Coprime to the number of suffixes, so that consecutive numbers get different suffixes that look random.
_STRIDE: Final = 6_180_341
_LONGEST_PREFIX: Final = 58


def pod_name(prefix: str, number: int) -> str:
    """The name of an owner's pod: the prefix and five letters, which differ for each number below 14 million.

    >>> pod_name("web-", 0)
    'web-dhvkz'
    """
    first = digest(prefix.encode())
    return prefix[:_LONGEST_PREFIX] + spelled(
        (first + number * _STRIDE) % _SUFFIXES, _SUFFIX_LENGTH
    )


Made = Iterator[tuple[Kind, Object]]

EXPANDED: Final = frozenset(
    {"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"}
)
"""The kinds that consist of pods."""


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
            if owner is not None and is_active(pod):
                self._owned[owner].append(pod)

    def parts(self, workload: Object) -> Made:
        """What its controller would create: pods, claims, or ReplicaSets, which have parts of their own."""
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
        spec, sets = deployment["spec"], sorted(self._replica_sets(deployment), key=_order)
        digest = template_hash(spec["template"])
        metadata: Object = {
            "name": f"{deployment['metadata']['name']}-{digest}",
            "annotations": {REVISION: "1"},
        }
        if sets:
            known = sets[-1]["metadata"]
            digest = known.get("labels", {}).get(HASH_LABEL, digest)
            metadata = {part: known[part] for part in ("name", "annotations") if part in known}
        elsewhere = sum(len(self._owned[key_of(each)]) for each in sets[:-1])
        value = replica_set_of(deployment, metadata, digest, spec["replicas"] - elsewhere)
        if sets:
            value["spec"]["selector"] = sets[-1]["spec"]["selector"]
        yield REPLICA_SETS, value

    def _replicated(self, owner: Object) -> Made:
        missing = owner["spec"]["replicas"] - len(self.existing(owner))
        return self._alike(owner, missing, {})

    def _job(self, job: Object) -> Made:
        spec = job["spec"]
        wanted = 0 if spec.get("suspend") else spec.get("parallelism", 1)
        if spec.get("completions") is not None:
            wanted = min(wanted, spec["completions"] - job.get("status", {}).get("succeeded", 0))
        missing = wanted - len(self.existing(job))
        if spec.get("completionMode") == "Indexed":
            return self._indexed(job, missing)
        return self._alike(job, missing, job_marks(job))

    def _indexed(self, job: Object, missing: int) -> Made:
        existing = self.existing(job)
        taken = {pod["metadata"].get("annotations", {}).get(INDEX_MARK) for pod in existing}
        free = [str(i) for i in range(missing + len(taken)) if str(i) not in taken]
        for index in free[: max(0, missing)]:
            name = pod_name(f"{job['metadata']['name']}-{index}-", 0)
            yield PODS, indexed_pod(job, int(index), name)

    def _stateful_set(self, owner: Object) -> Made:
        spec, name = owner["spec"], owner["metadata"]["name"]
        first = spec.get("ordinals", {}).get("start", 0)
        existing = {pod["metadata"]["name"] for pod in self.existing(owner)}
        for ordinal in range(first, first + spec["replicas"]):
            pod = f"{name}-{ordinal}"
            if pod not in existing:
                yield from self._claims(owner, ordinal)
                revision = f"{name}-{template_hash(spec['template'])}"
                yield PODS, stateful_pod(owner, ordinal, revision)

    def _claims(self, owner: Object, ordinal: int) -> Made:
        """The claims of one pod that do not exist yet."""
        for claim in stateful_claims(owner, ordinal):
            metadata = claim["metadata"]
            if self._cluster.api.find(CLAIMS, metadata["namespace"], metadata["name"]) is None:
                yield CLAIMS, claim

    def _daemon_set(self, owner: Object) -> Made:
        spec = daemon_spec(owner["spec"]["template"]["spec"])
        records = self._cluster.api.store[NODES.storage].ordered()
        nodes = [NodeDecoder().decode(record.raw) for record in records]
        taken = {pod["spec"].get("nodeName") or pinned_to(pod) for pod in self.existing(owner)}
        wanted = [node for node in wanted_nodes(spec, nodes) if node not in taken]
        marks = {REVISION_LABEL: template_hash(owner["spec"]["template"])}
        names = self._free_names(owner)
        for node in wanted:
            yield PODS, pod_of(owner, next(names), labels=marks, spec=pinned(spec, node))

    # ------------------------------------------------------------ parts

    def _alike(self, owner: Object, count: int, labels: Mapping[str, str]) -> Made:
        names = self._free_names(owner)
        for _ in range(count):
            yield PODS, pod_of(owner, next(names), labels=labels)

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


def _order(replica_set: Object) -> tuple[int, str]:
    return revision_of(replica_set), replica_set["metadata"]["name"]
