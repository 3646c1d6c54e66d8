"""What workloads create from their templates: pods, ReplicaSets and claims. ``simulate`` uses these functions too."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from app.sim.objects import owner_reference, spelled
from app.sim.resources.kinds import BY_RESOURCE
from app.sim.resources.workloads import job_marks
from app.sim.store import Object

REPLICA_SETS: Final = BY_RESOURCE["replicasets.apps"]
CLAIMS: Final = BY_RESOURCE["persistentvolumeclaims"]

HASH_LABEL: Final = "pod-template-hash"
REVISION_LABEL: Final = "controller-revision-hash"
INDEX_MARK: Final = "batch.kubernetes.io/job-completion-index"

_HASH_LENGTH: Final = 10


def digest(text: bytes) -> int:
    """A large number that depends on a text."""
    return int.from_bytes(hashlib.sha256(text).digest())


def template_hash(template: Any) -> str:
    """A hash of a pod template for the label pod-template-hash; not the value that Kubernetes computes."""
    return spelled(digest(msgspec.json.encode(template, order="sorted")), _HASH_LENGTH)


def pod_of(
    owner: Object,
    name: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Object | None = None,
) -> Object:
    """A pod from the owner's template. Without a name the API server generates one."""
    template = owner["spec"]["template"]
    given = template.get("metadata") or {}
    naming = {"name": name} if name else {"generateName": f"{owner['metadata']['name']}-"}
    return {
        "metadata": {
            **naming,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**(given.get("labels") or {}), **(labels or {})},
            "annotations": {**(given.get("annotations") or {}), **(annotations or {})},
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": dict(template["spec"] if spec is None else spec),
    }


def replica_set_of(deployment: Object, metadata: Object, digest: str, replicas: int) -> Object:
    """A ReplicaSet of a Deployment with the hash of its template; ``metadata``: its name and annotations."""
    spec, marks = deployment["spec"], {HASH_LABEL: digest}
    template, selector = spec["template"], spec["selector"]
    given = template.get("metadata") or {}
    labels = (given.get("labels") or {}) | marks
    metadata = metadata | {"namespace": deployment["metadata"]["namespace"], "labels": labels}
    kept = {name: spec[name] for name in ("minReadySeconds",) if name in spec}
    return {
        "kind": REPLICA_SETS.kind,
        "apiVersion": REPLICA_SETS.group_version,
        "metadata": metadata | {"ownerReferences": [owner_reference(deployment)]},
        "spec": {
            "replicas": max(0, replicas),
            "selector": selector | {"matchLabels": (selector.get("matchLabels") or {}) | marks},
            "template": template | {"metadata": given | {"labels": labels}},
        }
        | kept,
    }


def stateful_pod(owner: Object, ordinal: int, revision: str) -> Object:
    """The pod of a StatefulSet with an ordinal; its volumes are the claims of that ordinal."""
    spec = owner["spec"]
    set_name = owner["metadata"]["name"]
    name = f"{set_name}-{ordinal}"
    claims = [template["metadata"]["name"] for template in spec.get("volumeClaimTemplates", ())]
    pod_spec = spec["template"]["spec"]
    volumes = [v for v in pod_spec.get("volumes", ()) if v["name"] not in claims]
    volumes += [
        {
            "name": claim,
            "persistentVolumeClaim": {"claimName": f"{claim}-{name}"},
        }
        for claim in claims
    ]
    named = {"hostname": name, "subdomain": spec.get("serviceName", ""), "volumes": volumes}
    labels = {
        "statefulset.kubernetes.io/pod-name": name,
        "apps.kubernetes.io/pod-index": str(ordinal),
        REVISION_LABEL: revision,
    }
    return pod_of(owner, name, labels=labels, spec=pod_spec | named)


def stateful_claims(owner: Object, ordinal: int) -> Iterator[Object]:
    """The claims of the pod of a StatefulSet with an ordinal."""
    metadata = owner["metadata"]
    labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    for template in owner["spec"].get("volumeClaimTemplates", ()):
        name = f"{template['metadata']['name']}-{metadata['name']}-{ordinal}"
        given = {**template["metadata"], "namespace": metadata["namespace"]}
        own = {"name": name, "labels": (given.get("labels") or {}) | labels}
        yield {"metadata": given | own, "spec": template["spec"]}


def indexed_pod(job: Object, index: int, name: str) -> Object:
    """The pod of an indexed Job for an index."""
    mark = {INDEX_MARK: str(index)}
    return pod_of(job, name, labels={**job_marks(job), **mark}, annotations=mark)
