"""A small controller of device claims (KEP-4381), like kube-controller-manager's.

===========================================  ==========================================================================
what                                         is done
===========================================  ==========================================================================
a pod names a template                       a claim is made for the pod, and noted in the pod's status
a pod was bound without a scheduler          its allocated claims are reserved for it
a pod has ended or is gone                   its reservations go; with the last one the allocation and the finalizer
the pod that a claim was made for ends       the claim goes, too
===========================================  ==========================================================================

Devices are objects only: nothing is prepared, nothing is freed.
"""

import asyncio
import logging

from app.model.devices import FINALIZER
from app.sim.api import Api
from app.sim.errors import ApiError
from app.sim.objects import is_being_deleted
from app.sim.parties.claim_templates import Purpose, claim_from, complain, purpose_of
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from app.sim.resources.pod_claims import (
    claim_names,
    has_claims,
    is_done,
    is_reserved,
    made_name,
    owning_pod,
)
from app.sim.store import Change, Key, Object

log = logging.getLogger(__name__)


class ClaimController:
    """Looks at the pods and claims that have changed, those that change together at once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods: dict[Key, None] = {}
        """Pods to look at, in the order in which they changed."""
        self._claims: dict[Key, None] = {}
        """Claims to look at."""
        self._users: dict[Key, dict[Key, None]] = {}
        """claim -> the pods that name it."""
        self._made: dict[Purpose, Key] = {}
        """The claims that were made from templates."""
        self._waiting: dict[Key, dict[Key, None]] = {}
        """template that does not exist -> the pods that wait for it."""
        self._timer: asyncio.Handle | None = None
        self._listeners = {
            PODS.storage: self._on_pod,
            RESOURCE_CLAIMS.storage: self._on_claim,
            RESOURCE_CLAIM_TEMPLATES.storage: self._on_template,
        }

    def start(self) -> None:
        """Begins to look after pods and claims, those that exist already included. Needs a running loop."""
        for storage, listener in self._listeners.items():
            collection = self._api.store[storage]
            collection.listeners[listener] = None
            for key, record in collection.records.items():
                listener(Change("ADDED", key, record, None))

    def stop(self) -> None:
        """Leaves the claims as they are."""
        for storage, listener in self._listeners.items():
            self._api.store[storage].listeners.pop(listener, None)
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------ what happens

    def _on_pod(self, change: Change) -> None:
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
                self._claims[claim] = None
        self._pods[change.key] = None
        self._look_soon()

    def _on_claim(self, change: Change) -> None:
        before = None if change.previous is None else purpose_of(change.previous.value)
        after = None if change.type == "DELETED" else purpose_of(change.record.value)
        if before is not None and before != after:
            self._made.pop(before, None)
        if after is not None:
            self._made.setdefault(after, change.key)
        owner = owning_pod(change.record.value)
        if owner is not None:
            self._pods[change.key[0], owner["name"]] = None
        self._claims[change.key] = None
        self._pods |= self._users.get(change.key, {})
        self._look_soon()

    def _on_template(self, change: Change) -> None:
        if change.type != "DELETED" and change.key in self._waiting:
            self._pods |= self._waiting.pop(change.key)
            self._look_soon()

    def _look_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._timer = None
        pods, self._pods = self._pods, {}
        claims, self._claims = self._claims, {}
        for kind, keys, look in (
            (RESOURCE_CLAIMS, claims, self._look_at_claim),
            (PODS, pods, self._look_at_pod),
        ):
            for key in keys:
                record = self._api.find(kind, *key)
                try:
                    if record is not None:
                        look(key, record.value)
                except ApiError as error:
                    log.warning("%s %s/%s: %s", kind.kind, *key, error.message)

    # ------------------------------------------------------------ pods

    def _look_at_pod(self, key: Key, pod: Object) -> None:
        """Makes the claims that the pod misses, and notes them once it has all of them."""
        if is_being_deleted(pod) or is_done(pod):
            return
        made: dict[str, str] = {}
        for entry in pod["spec"].get("resourceClaims", ()):
            if not self._is_missing(pod, entry):
                continue
            try:
                made[entry["name"]] = self._made_claim(key, pod, entry)
            except ApiError as error:
                complain(self._api, pod, f"PodResourceClaim {entry['name']}: {error.message}")
                return
        if made:
            pod = self._note(pod, made)
        if pod["spec"].get("nodeName"):
            self._reserve_all(pod)

    def _is_missing(self, pod: Object, entry: Object) -> bool:
        """Whether the claim of an entry has to be made: there is none, or it is not the pod's (any more)."""
        name = made_name(pod, entry)
        if "resourceClaimTemplateName" not in entry or name == "":
            return False
        record = self._api.find(RESOURCE_CLAIMS, pod["metadata"]["namespace"], name or "")
        owner = None if record is None else owning_pod(record.value)
        return owner is None or bool(owner["uid"] != pod["metadata"]["uid"])

    def _made_claim(self, key: Key, pod: Object, entry: Object) -> str:
        """The claim of a pod's entry, made unless that has been done before. Raises ApiError."""
        known = self._made.get((pod["metadata"]["uid"], entry["name"]))
        if known is not None:
            return known[1]
        name = entry["resourceClaimTemplateName"]
        record = self._api.find(RESOURCE_CLAIM_TEMPLATES, key[0], name)
        if record is None:
            self._waiting.setdefault((key[0], name), {})[key] = None
            why = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
            raise ApiError(404, "NotFound", f'resource claim template "{name}": {why}')
        claim = claim_from(record.value, pod, entry["name"])
        return self._api.create(RESOURCE_CLAIMS, key[0], claim).name

    def _note(self, pod: Object, made: dict[str, str]) -> Object:
        statuses = [
            status
            for status in pod["status"].get("resourceClaimStatuses", ())
            if status["name"] not in made
        ]
        statuses += [{"name": entry, "resourceClaimName": name} for entry, name in made.items()]
        status = pod["status"] | {"resourceClaimStatuses": statuses}
        noted = pod | {"metadata": dict(pod["metadata"]), "status": status}
        return self._api.write(PODS, noted).value

    def _reserve_all(self, pod: Object) -> None:
        """Of a pod that is bound. The scheduler reserves by itself; somebody else may not have."""
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

    def _look_at_claim(self, _key: Key, claim: Object) -> None:
        status = claim.get("status", {})
        consumers = status.get("reservedFor", [])
        kept = [each for each in consumers if self._needs(each, claim)]
        if len(kept) < len(consumers) or (not kept and is_being_deleted(claim)):
            freed: Object = {"reservedFor": kept or None}
            if not kept and _is_held(claim):
                freed["allocation"] = None
            claim = self._write_status(claim, status | freed)
            if _is_held(claim) and "allocation" not in claim["status"]:
                self._let_go(claim)
        owner = owning_pod(claim)
        if not kept and owner is not None and not self._may_run(claim, owner):
            self._delete(claim)

    def _needs(self, consumer: Object, claim: Object) -> bool:
        """Whether a claim stays reserved: pods until they have ended; whatever else may use claims is not known here."""
        is_pod = (consumer.get("apiGroup", ""), consumer["resource"]) == ("", "pods")
        return not is_pod or self._may_run(claim, consumer)

    def _may_run(self, claim: Object, reference: Object) -> bool:
        """Whether the pod that a reference of a claim means is still there, and has not ended."""
        record = self._api.find(PODS, claim["metadata"]["namespace"], reference["name"])
        if record is None or record.value["metadata"]["uid"] != reference["uid"]:
            return False
        return not is_done(record.value)

    def _write_status(self, claim: Object, status: Object) -> Object:
        metadata = claim["metadata"]
        return self._api.update(
            RESOURCE_CLAIMS,
            metadata["namespace"],
            metadata["name"],
            claim | {"status": status},
            subresource="status",
        )[0].value

    def _let_go(self, claim: Object) -> None:
        """Takes the finalizer away; a claim that is being deleted vanishes with it."""
        metadata = claim["metadata"]
        kept = [each for each in metadata["finalizers"] if each != FINALIZER]
        freed = claim | {"metadata": metadata | {"finalizers": kept}}
        self._api.update(RESOURCE_CLAIMS, metadata["namespace"], metadata["name"], freed)

    def _delete(self, claim: Object) -> None:
        namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
        if self._api.find(RESOURCE_CLAIMS, namespace, name) is not None:
            delete(self._api, RESOURCE_CLAIMS, namespace, name, DeleteOptions())


def _is_held(claim: Object) -> bool:
    return FINALIZER in claim["metadata"].get("finalizers", ())
