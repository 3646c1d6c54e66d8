"""The resource claim controller, as far as a scheduler needs it (KEP-4381).

============================================  =========================================================================
event                                         reaction
============================================  =========================================================================
a pod names a template                        a claim is created for the pod, and written to the pod's status
a PodGroup names a template                   a claim is created for the group, and written to its status and to those
                                              of its pods with the same entry
a pod was bound without a scheduler           its allocated claims are reserved for it
a pod ends or is deleted                      its reservations are removed; with the last one allocation and finalizer
the pod ends for which a claim was created    the claim is deleted
a PodGroup is deleted                         its reservations are removed
============================================  =========================================================================

PodGroups have claims with the gate DRAWorkloadResourceClaims. Devices are objects only: no driver prepares or releases
them.
"""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from app.model.devices import FINALIZER, POD_CLAIM_NAME
from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.errors import ApiError
from app.sim.objects import (
    controller_reference,
    group_name,
    is_being_deleted,
    key_of,
    without_finalizer,
)
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import (
    EVENTS,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    Kind,
)
from app.sim.resources.pod_claims import (
    claim_name,
    claim_names,
    has_claims,
    is_done,
    is_reserved,
    made_name,
    owning_pod,
)
from app.sim.store import Key, Object, StoreChange

Purpose = tuple[str, str]
"""(uid of a pod or a group, its entry) for which a claim is created."""
Item = tuple[Kind, Key]
"""A pod, a group or a claim."""

_GATE: Final = "DRAWorkloadResourceClaims"
_PODGROUPS: Final[Object] = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
_LONGEST_BASE: Final = 57
"""Of a generated name, without the hyphen and the five characters at its end."""


class ResourceClaimController(Controller[Item]):
    """Its keys are pods, groups and claims, each with its kind."""

    def __init__(self, api: Api) -> None:
        """Groups have claims if the cluster has groups, and the gate."""
        groups = api.kinds.by_storage.get(POD_GROUPS) if _GATE in api.features else None
        super().__init__(
            api,
            {
                PODS: self._on_pod,
                RESOURCE_CLAIMS: self._on_claim,
                RESOURCE_CLAIM_TEMPLATES: self._on_template,
                **({groups: self._on_group} if groups is not None else {}),
            },
        )
        self._groups = groups
        self._members: dict[Key, dict[Key, None]] = {}
        """group -> its pods with claims."""
        self._users: dict[Key, dict[Key, None]] = {}
        """claim -> the pods that name it."""
        self._created: dict[Purpose, Key] = {}
        """The claims that were created from templates."""
        self._waiting: dict[Key, dict[Item, None]] = {}
        """template that does not exist -> the pods and groups that wait for it."""

    # ------------------------------------------------------------ changes

    def _on_pod(self, change: StoreChange) -> None:
        pod = change.record.value
        if not has_claims(pod):
            return
        is_gone = change.type == "DELETED"
        if self._groups is not None and (group := group_name(pod)):
            members = self._members.setdefault((change.key[0], group), {})
            if is_gone:
                members.pop(change.key, None)
            else:
                members[change.key] = None
            if not members:
                del self._members[change.key[0], group]
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
        owner = _maker(change.record.value)
        if owner is not None:
            self._enqueue_owner(owner["kind"], (change.key[0], owner["name"]))
        for pod in self._users.get(change.key, ()):
            self._enqueue_pod(pod)

    def _on_template(self, change: StoreChange) -> None:
        if change.type != "DELETED" and change.key in self._waiting:
            for work in self._waiting.pop(change.key):
                self.enqueue(work)

    def _on_group(self, change: StoreChange) -> None:
        group = change.record.value
        if change.type == "DELETED":
            for name in claim_names(group):
                self._enqueue_claim((change.key[0], name))
        elif group["spec"].get("resourceClaims"):
            self._enqueue_owner("PodGroup", change.key)
        for pod in self._members.get(change.key, ()):
            self._enqueue_pod(pod)

    def _enqueue_claim(self, key: Key) -> None:
        self.enqueue((RESOURCE_CLAIMS, key))

    def _enqueue_pod(self, key: Key) -> None:
        self.enqueue((PODS, key))

    def _enqueue_owner(self, kind: str, key: Key) -> None:
        if kind == "Pod":
            self._enqueue_pod(key)
        elif self._groups is not None:
            self.enqueue((self._groups, key))

    def reconcile(self, key: Item) -> None:
        kind, name = key
        record = self._api.find(kind, *name)
        if record is None:
            return
        if kind is PODS:
            self._reconcile_pod(name, record.value)
        elif kind is RESOURCE_CLAIMS:
            self._reconcile_claim(name, record.value)
        elif not is_being_deleted(record.value):
            self._make_claims(kind, name, record.value, ())

    # ------------------------------------------------------------ pods

    def _reconcile_pod(self, key: Key, pod: Object) -> None:
        """Creates the claims that the pod lacks, and writes their names to its status when it has all of them."""
        if is_being_deleted(pod) or is_done(pod):
            return
        group, name = None, group_name(pod)
        if self._groups is not None and name:
            found = self._api.find(self._groups, key[0], name)
            if found is None:
                return
            group = found.value
        changed = self._make_claims(PODS, key, pod, _entries(group), group)
        if changed is not None and changed["spec"].get("nodeName"):
            self._reserve_all(changed, group)

    def _make_claims(
        self,
        kind: Kind,
        key: Key,
        owner: Object,
        shared: Sequence[Object],
        group: Object | None = None,
    ) -> Object | None:
        """Creates the claims that a pod or a group lacks, and writes their names to its status; returns it.

        The entries of a pod that are ``shared`` get the claims of its ``group`` once these exist. None if a claim
        cannot be created.
        """
        made: dict[str, str] = {}
        for entry in _entries(owner):
            if not self._is_missing(owner, entry, group):
                continue
            if group is not None and entry in shared:
                known = self._created.get((group["metadata"]["uid"], entry["name"]))
                if known is not None:
                    made[entry["name"]] = known[1]
                continue
            try:
                made[entry["name"]] = self._create_claim(kind, key, owner, entry)
            except ApiError as error:
                what = "PodResourceClaim" if kind is PODS else "PodGroupResourceClaim"
                self._report(owner, f"{what} {entry['name']}: {error.message}")
                return None
        return self._write_names(kind, owner, made) if made else owner

    def _report(self, owner: Object, message: str) -> None:
        """Writes an event that says why there is no claim. If there is one already, its count is increased."""
        metadata = owner["metadata"]
        mark = crc32(f"{metadata['uid']} {message}".encode())
        name = f"{metadata['name']}.{mark:08x}"
        known = self._api.find(EVENTS, metadata["namespace"], name)
        if known is None:
            self.warn(owner, name, "FailedResourceClaimCreation", message, "resource_claim")
            return
        seen = {"count": known.value["count"] + 1, "lastTimestamp": self._api.timestamp()}
        again = {"metadata": dict(known.value["metadata"])} | seen
        self._api.write(EVENTS, known.value | again)

    def _is_missing(self, owner: Object, entry: Object, group: Object | None) -> bool:
        """Whether the claim of an entry has to be created: there is none, or it belongs to somebody else."""
        name = made_name(owner, entry)
        if "resourceClaimTemplateName" not in entry or name == "":
            return False
        record = self._api.find(RESOURCE_CLAIMS, owner["metadata"]["namespace"], name or "")
        maker = None if record is None else _maker(record.value)
        users = [owner] if group is None else [owner, group]
        return maker is None or all(maker["uid"] != each["metadata"]["uid"] for each in users)

    def _create_claim(self, kind: Kind, key: Key, owner: Object, entry: Object) -> str:
        """The name of the claim of an entry, which is created if it does not exist. Raises ApiError."""
        known = self._created.get((owner["metadata"]["uid"], entry["name"]))
        if known is not None:
            return known[1]
        name = entry["resourceClaimTemplateName"]
        record = self._api.find(RESOURCE_CLAIM_TEMPLATES, key[0], name)
        if record is None:
            self._waiting.setdefault((key[0], name), {})[kind, key] = None
            why = f'resourceclaimtemplate.resource.k8s.io "{name}" not found'
            raise ApiError(404, "NotFound", f'resource claim template "{name}": {why}')
        claim = _claim_from(record.value, owner, entry["name"])
        return self._api.create(RESOURCE_CLAIMS, key[0], claim).name

    def _write_names(self, kind: Kind, owner: Object, made: dict[str, str]) -> Object:
        statuses = [
            status
            for status in owner["status"].get("resourceClaimStatuses", ())
            if status["name"] not in made
        ]
        statuses += [{"name": entry, "resourceClaimName": name} for entry, name in made.items()]
        status = owner["status"] | {"resourceClaimStatuses": statuses}
        return self._api.write_status(kind, owner, status).value

    def _reserve_all(self, pod: Object, group: Object | None) -> None:
        """Reserves the claims of a bound pod, the shared ones for its group. A scheduler does that itself; pods can
        also be bound without one."""
        namespace = pod["metadata"]["namespace"]
        shared = _entries(group)
        of_group = {claim_name(pod, each) for each in _entries(pod) if each in shared}
        for name in claim_names(pod):
            record = self._api.find(RESOURCE_CLAIMS, namespace, name)
            if record is None:
                return
            status = record.value.get("status", {})
            if "allocation" in status and not is_reserved(record.value, pod):
                user = group if group is not None and name in of_group else pod
                what = {"resource": "pods"} if user is pod else _PODGROUPS
                reference = {part: user["metadata"][part] for part in ("name", "uid")}
                consumers = [*status.get("reservedFor", ()), what | reference]
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
        """Whether a claim stays reserved for a consumer: for a pod until it ends, for a group until it is gone, for
        other kinds of consumers always.
        """
        kind = (consumer.get("apiGroup", ""), consumer["resource"])
        if kind == ("", "pods"):
            return self._may_run(claim, consumer)
        if self._groups is None or kind != tuple(_PODGROUPS.values()):
            return True
        group = self._api.find(self._groups, claim["metadata"]["namespace"], consumer["name"])
        return group is not None and bool(group.value["metadata"]["uid"] == consumer["uid"])

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


def _claim_from(template: Object, owner: Object, entry: str) -> Object:
    """The claim for an entry of a pod or a group by a template. Its name has those of the owner and the entry."""
    spec, metadata = template["spec"], owner["metadata"]
    given = spec.get("metadata", {})
    made: Object = {
        "generateName": _base_name(metadata["name"], entry),
        "annotations": given.get("annotations", {}) | {POD_CLAIM_NAME: entry},
        "ownerReferences": [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "controller": True,
                **{part: metadata[part] for part in ("name", "uid")},
            }
        ],
    }
    if given.get("labels"):
        made["labels"] = given["labels"]
    return {"metadata": made, "spec": spec["spec"]}


def _base_name(pod: str, entry: str) -> str:
    """``OWNER-ENTRY-``, with both names shortened in proportion if it is too long."""
    base = f"{pod}-{entry}-"
    if len(base) <= _LONGEST_BASE:
        return base
    pod_part, entry_part = (name[: len(name) * _LONGEST_BASE // len(base)] for name in (pod, entry))
    return f"{pod_part}-{entry_part}"


def _entries(owner: Object | None) -> Sequence[Object]:
    """The claims that a pod or a group names."""
    return () if owner is None else owner["spec"].get("resourceClaims", ())


def _maker(claim: Object) -> Object | None:
    """The reference to the pod or group for which a claim was created."""
    owner = controller_reference(claim)
    if owner is not None and owner["kind"] == "PodGroup":
        return owner if owner["apiVersion"].startswith(f"{_PODGROUPS['apiGroup']}/") else None
    return owning_pod(claim)


def _purpose_of(claim: Object) -> Purpose | None:
    """The owner and entry for which a claim was created; None for claims that are not from a template."""
    owner = _maker(claim)
    entry = claim["metadata"].get("annotations", {}).get(POD_CLAIM_NAME)
    return None if owner is None or entry is None else (owner["uid"], entry)
