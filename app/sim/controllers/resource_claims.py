"""The resource claim controller, as far as a scheduler needs it (KEP-4381).

============================================  =========================================================================
event                                         reaction
============================================  =========================================================================
a pod names a template                        a claim is created for the pod, and written to the pod's status
a pod was bound without a scheduler           its allocated claims are reserved for it
a pod ends or is deleted                      its reservations are removed; with the last one allocation and finalizer
the pod ends for which a claim was created    the claim is deleted
============================================  =========================================================================

Devices are objects only: no driver prepares or releases them.
"""

from typing import Final
from zlib import crc32

from app.model.devices import FINALIZER, POD_CLAIM_NAME
from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.errors import ApiError
from app.sim.objects import is_being_deleted, key_of, without_finalizer
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, Kind
from app.sim.resources.pod_claims import (
    claim_names,
    has_claims,
    is_done,
    is_reserved,
    made_name,
    owning_pod,
)
from app.sim.store import Key, Object, StoreChange

Purpose = tuple[str, str]
"""(uid of a pod, entry in the pod) for which a claim is created."""

_LONGEST_BASE: Final = 57
"""Of a generated name, without the hyphen and the five characters at its end."""


class ResourceClaimController(Controller[tuple[Kind, Key]]):
    """Its keys are pods and claims, each with its kind."""

    def __init__(self, api: Api) -> None:
        super().__init__(
            api,
            {
                PODS: self._on_pod,
                RESOURCE_CLAIMS: self._on_claim,
                RESOURCE_CLAIM_TEMPLATES: self._on_template,
            },
        )
        self._users: dict[Key, dict[Key, None]] = {}
        """claim -> the pods that name it."""
        self._created: dict[Purpose, Key] = {}
        """The claims that were created from templates."""
        self._waiting: dict[Key, dict[Key, None]] = {}
        """template that does not exist -> the pods that wait for it."""

    # ------------------------------------------------------------ changes

    def _on_pod(self, change: StoreChange) -> None:
        pod = change.record.value
        if not has_claims(pod):
            return
        is_gone = change.type == "DELETED"
        for name in claim_names(pod):
            claim = (change.key[0], name)
            users = self._users.setdefault(claim, {})
            if is_gone:
                users.pop(change.key, None)
            else:
                users[change.key] = None
            if not users:
                del self._users[claim]
            if is_gone or is_done(pod):
                self._enqueue_claim(claim)
        self._enqueue_pod(change.key)

    def _on_claim(self, change: StoreChange) -> None:
        before = None if change.previous is None else _purpose_of(change.previous.value)
        after = None if change.type == "DELETED" else _purpose_of(change.record.value)
        if before is not None and before != after:
            self._created.pop(before, None)
        if after is not None:
            self._created.setdefault(after, change.key)
        self._enqueue_claim(change.key)
        owner = owning_pod(change.record.value)
        if owner is not None:
            self._enqueue_pod((change.key[0], owner["name"]))
        for pod in self._users.get(change.key, ()):
            self._enqueue_pod(pod)

    def _on_template(self, change: StoreChange) -> None:
        if change.type != "DELETED" and change.key in self._waiting:
            for pod in self._waiting.pop(change.key):
                self._enqueue_pod(pod)

    def _enqueue_claim(self, key: Key) -> None:
        self.enqueue((RESOURCE_CLAIMS, key))

    def _enqueue_pod(self, key: Key) -> None:
        self.enqueue((PODS, key))

    def reconcile(self, key: tuple[Kind, Key]) -> None:
        kind, name = key
        record = self._api.find(kind, *name)
        if record is not None:
            reconcile = self._reconcile_pod if kind is PODS else self._reconcile_claim
            reconcile(name, record.value)

    # ------------------------------------------------------------ pods

    def _reconcile_pod(self, key: Key, pod: Object) -> None:
        """Creates the claims that the pod lacks, and writes their names to its status when it has all of them."""
        if is_being_deleted(pod) or is_done(pod):
            return
        made: dict[str, str] = {}
        for entry in pod["spec"].get("resourceClaims", ()):
            if not self._is_missing(pod, entry):
                continue
            try:
                made[entry["name"]] = self._create_claim(key, pod, entry)
            except ApiError as error:
                self._report(pod, f"PodResourceClaim {entry['name']}: {error.message}")
                return
        if made:
            pod = self._write_names(pod, made)
        if pod["spec"].get("nodeName"):
            self._reserve_all(pod)

    def _report(self, pod: Object, message: str) -> None:
        """Writes an event that says why there is no claim. If there is one already, its count is increased."""
        metadata = pod["metadata"]
        mark = crc32(f"{metadata['uid']} {message}".encode())
        name = f"{metadata['name']}.{mark:08x}"
        known = self._api.find(EVENTS, metadata["namespace"], name)
        if known is None:
            self.warn(pod, name, "FailedResourceClaimCreation", message, "resource_claim")
            return
        seen = {"count": known.value["count"] + 1, "lastTimestamp": self._api.timestamp()}
        again = {"metadata": dict(known.value["metadata"])} | seen
        self._api.write(EVENTS, known.value | again)

    def _is_missing(self, pod: Object, entry: Object) -> bool:
        """Whether the claim of an entry has to be created: there is none, or it belongs to another pod."""
        name = made_name(pod, entry)
        if "resourceClaimTemplateName" not in entry or name == "":
            return False
        record = self._api.find(RESOURCE_CLAIMS, pod["metadata"]["namespace"], name or "")
        owner = None if record is None else owning_pod(record.value)
        return owner is None or bool(owner["uid"] != pod["metadata"]["uid"])

    def _create_claim(self, key: Key, pod: Object, entry: Object) -> str:
        """The name of the claim of a pod's entry, which is created if it does not exist. Raises ApiError."""
        known = self._created.get((pod["metadata"]["uid"], entry["name"]))
        if known is not None:
            return known[1]
        name = entry["resourceClaimTemplateName"]
        record = self._api.find(RESOURCE_CLAIM_TEMPLATES, key[0], name)
        if record is None:
            self._waiting.setdefault((key[0], name), {})[key] = None
            why = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
            raise ApiError(404, "NotFound", f'resource claim template "{name}": {why}')
        claim = _claim_from(record.value, pod, entry["name"])
        return self._api.create(RESOURCE_CLAIMS, key[0], claim).name

    def _write_names(self, pod: Object, made: dict[str, str]) -> Object:
        statuses = [
            status
            for status in pod["status"].get("resourceClaimStatuses", ())
            if status["name"] not in made
        ]
        statuses += [{"name": entry, "resourceClaimName": name} for entry, name in made.items()]
        status = pod["status"] | {"resourceClaimStatuses": statuses}
        return self._api.write_status(PODS, pod, status).value

    def _reserve_all(self, pod: Object) -> None:
        """Reserves the claims of a bound pod. A scheduler does that itself; pods can also be bound without one."""
        namespace = pod["metadata"]["namespace"]
        for name in claim_names(pod):
            record = self._api.find(RESOURCE_CLAIMS, namespace, name)
            if record is None:
                return
            status = record.value.get("status", {})
            if "allocation" in status and not is_reserved(record.value, pod):
                reference = {part: pod["metadata"][part] for part in ("name", "uid")}
                consumers = [
                    *status.get("reservedFor", ()),
                    {"resource": "pods", **reference},
                ]
                self._write_status(record.value, status | {"reservedFor": consumers})

    # ------------------------------------------------------------ claims

    def _reconcile_claim(self, _key: Key, claim: Object) -> None:
        status = claim.get("status", {})
        consumers = status.get("reservedFor", [])
        kept = [each for each in consumers if self._needs(each, claim)]
        if len(kept) < len(consumers) or (not kept and is_being_deleted(claim)):
            freed: Object = {"reservedFor": kept or None}
            if not kept and _is_held(claim):
                freed["allocation"] = None
            claim = self._write_status(claim, status | freed)
            if _is_held(claim) and "allocation" not in claim["status"]:
                self._remove_finalizer(claim)
        owner = owning_pod(claim)
        if not kept and owner is not None and not self._may_run(claim, owner):
            self._delete(claim)

    def _needs(self, consumer: Object, claim: Object) -> bool:
        """Whether a claim stays reserved for a consumer: for a pod until it ends, for other kinds of
        consumers always.
        """
        is_pod = (consumer.get("apiGroup", ""), consumer["resource"]) == ("", "pods")
        return not is_pod or self._may_run(claim, consumer)

    def _may_run(self, claim: Object, reference: Object) -> bool:
        """Whether the pod that a claim refers to exists and has not ended."""
        record = self._api.find(PODS, claim["metadata"]["namespace"], reference["name"])
        if record is None or record.value["metadata"]["uid"] != reference["uid"]:
            return False
        return not is_done(record.value)

    def _write_status(self, claim: Object, status: Object) -> Object:
        changed = claim | {"status": status}
        record, _ = self._api.update(RESOURCE_CLAIMS, *key_of(claim), changed, subresource="status")
        return record.value

    def _remove_finalizer(self, claim: Object) -> None:
        """Removes the finalizer, and with it a claim that is being deleted."""
        freed = without_finalizer(claim, FINALIZER)
        self._api.update(RESOURCE_CLAIMS, *key_of(claim), freed)

    def _delete(self, claim: Object) -> None:
        if self._api.find(RESOURCE_CLAIMS, *key_of(claim)) is not None:
            delete(self._api, RESOURCE_CLAIMS, *key_of(claim), DeleteOptions())


def _is_held(claim: Object) -> bool:
    return FINALIZER in claim["metadata"].get("finalizers", ())


# ---------------------------------------------------------------- claims from templates


def _claim_from(template: Object, pod: Object, entry: str) -> Object:
    """The claim for an entry of a pod by a template. The pod owns it, and its name has both names."""
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
    """``POD-ENTRY-``, with both names shortened in proportion if it is too long."""
    base = f"{pod}-{entry}-"
    if len(base) <= _LONGEST_BASE:
        return base
    pod_part, entry_part = (name[: len(name) * _LONGEST_BASE // len(base)] for name in (pod, entry))
    return f"{pod_part}-{entry_part}"


def _purpose_of(claim: Object) -> Purpose | None:
    """The pod and entry for which a claim was created; None for claims that are not from a template."""
    owner = owning_pod(claim)
    entry = claim["metadata"].get("annotations", {}).get(POD_CLAIM_NAME)
    return None if owner is None or entry is None else (owner["uid"], entry)
