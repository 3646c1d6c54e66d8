"""Claims as kube-controller-manager makes them from templates, and what it says when it cannot."""

from typing import Final
from zlib import crc32

from app.model.devices import POD_CLAIM_NAME
from app.sim.api import Api
from app.sim.resources.kinds import EVENTS
from app.sim.resources.pod_claims import owning_pod
from app.sim.store import Object

Purpose = tuple[str, str]
"""(uid of a pod, entry in the pod) that a claim is made for."""

_LONGEST_BASE: Final = 57
"""Of a generated name, before the hyphen and the five letters."""


def claim_from(template: Object, pod: Object, entry: str) -> Object:
    """The claim that a template makes for an entry of a pod: owned by the pod, named after both."""
    spec, metadata = template["spec"], pod["metadata"]
    given = spec.get("metadata", {})
    owner = {"apiVersion": "v1", "kind": "Pod", "controller": True}
    made: Object = {
        "generateName": _base_name(metadata["name"], entry),
        "annotations": given.get("annotations", {}) | {POD_CLAIM_NAME: entry},
        "ownerReferences": [owner | {part: metadata[part] for part in ("name", "uid")}],
    }
    if given.get("labels"):
        made["labels"] = given["labels"]
    return {"metadata": made, "spec": spec["spec"]}


def _base_name(pod: str, entry: str) -> str:
    """``POD-ENTRY-``, both shortened in proportion where that is too long."""
    base = f"{pod}-{entry}-"
    if len(base) <= _LONGEST_BASE:
        return base
    pod_part, entry_part = (name[: len(name) * _LONGEST_BASE // len(base)] for name in (pod, entry))
    return f"{pod_part}-{entry_part}"


def purpose_of(claim: Object) -> Purpose | None:
    """What a claim was made for; None for claims that nobody made from a template."""
    owner = owning_pod(claim)
    entry = claim["metadata"].get("annotations", {}).get(POD_CLAIM_NAME)
    return None if owner is None or entry is None else (owner["uid"], entry)


def complain(api: Api, pod: Object, message: str) -> None:
    """Says in an event, where kubectl describe shows it, why there is no claim; one that is there already is counted on."""
    now, metadata = api.timestamp(), pod["metadata"]
    namespace = metadata["namespace"]
    mark = crc32(f"{metadata['uid']} {message}".encode())
    name = f"{metadata['name']}.{mark:08x}"
    known = api.find(EVENTS, namespace, name)
    if known is not None:
        seen = {"count": known.value["count"] + 1, "lastTimestamp": now}
        api.write(EVENTS, known.value | {"metadata": dict(known.value["metadata"])} | seen)
        return
    names = {part: metadata[part] for part in ("namespace", "name", "uid", "resourceVersion")}
    event = {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", **names},
        "reason": "FailedResourceClaimCreation",
        "message": message,
        "source": {"component": "resource_claim"},
        "type": "Warning",
        "count": 1,
    }
    times = dict.fromkeys(("firstTimestamp", "lastTimestamp"), now)
    api.create(EVENTS, namespace, event | times)
