"""The controllers of volumes: bind claims to existing or provisioned volumes, and create claims of ephemeral volumes.

=====================================================  ================================================================
claim                                                  is bound to
=====================================================  ================================================================
a volume's claimRef names it, or it names a volume     that volume
of a class that binds immediately, or of no class      the smallest free volume that fits, or a provisioned one
of a class that waits for its first consumer           a provisioned volume, when the scheduler has selected a node
=====================================================  ================================================================

A provisioned volume can be reached from the nodes of the storage class's allowedTopologies, or otherwise from those
with the topology keys that the driver's CSINode objects name; if it names none, from all nodes. Volumes are objects
only: no data is stored.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from zlib import crc32

from app.model.claims import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
)
from app.model.csi_migration import driver_of_provisioner
from app.model.quantity import parse
from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.errors import ApiError
from app.sim.objects import is_being_deleted, labels_of, owner_reference
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import BY_RESOURCE, NODES, PODS, STORAGE_CLASSES
from app.sim.selectors import selects_labels
from app.sim.store import Key, Object, Record, StoreChange

CLAIMS: Final = BY_RESOURCE["persistentvolumeclaims"]
VOLUMES: Final = BY_RESOURCE["persistentvolumes"]
CSI_NODES: Final = BY_RESOURCE["csinodes.storage.k8s.io"]

_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"

_ALL: Final = "all unbound claims"
"""The controller's only key."""


def default_storage_class() -> Object:
    """The class of claims that name none, as clusters on a laptop have it."""
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    return {
        "metadata": {"name": "standard", "annotations": mark},
        "provisioner": "volumes.sim.aiokube-scheduler.io",
        "volumeBindingMode": WAIT_FOR_FIRST_CONSUMER,
    }


Segment = Mapping[str, str]
"""Labels that a node must have to reach a volume (CSI: a topology segment)."""


class PersistentVolumeController(Controller[str]):
    """Binds all claims that are not bound in one reconciliation, because they compete for the same volumes."""

    def __init__(self, api: Api) -> None:
        super().__init__(
            api,
            {CLAIMS: self._on_claim, VOLUMES: self._on_volume, STORAGE_CLASSES: self._on_class},
        )
        self._unbound: dict[Key, None] = {}
        """Claims that are not bound, oldest first."""

    # ------------------------------------------------------------ changes

    def _on_claim(self, change: StoreChange) -> None:
        claim = change.record.value
        if change.type == "DELETED":
            self._unbound.pop(change.key, None)
            self._release(claim)
        elif BIND_COMPLETED in claim["metadata"].get("annotations", {}) or is_being_deleted(claim):
            self._unbound.pop(change.key, None)
        else:
            self._unbound[change.key] = None
            self.enqueue(_ALL)

    def _on_volume(self, change: StoreChange) -> None:
        if change.type != "DELETED" and (self._unbound or _is_new(change.record.value)):
            self.enqueue(_ALL)

    def _on_class(self, change: StoreChange) -> None:
        if change.type != "DELETED" and self._unbound:
            self.enqueue(_ALL)

    # ------------------------------------------------------------ binding

    def reconcile(self, key: str) -> None:  # noqa: ARG002 - there is only one
        free = list(self._free_volumes())
        for name in list(self._unbound):
            claim = self._api.get(CLAIMS, *name).value
            volume = _named(claim, free) or self._found(claim, free)
            if volume is not None:
                free = [each for each in free if each is not volume]
                self._bind(claim, volume)

    def _free_volumes(self) -> Iterator[Object]:
        """The volumes that are not bound. New ones become Available."""
        for record in list(self._api.store[VOLUMES.storage].records.values()):
            volume = record.value
            if is_being_deleted(volume) or _phase(volume) in ("Bound", "Released", "Failed"):
                continue
            if _is_new(volume):
                metadata, status = dict(volume["metadata"]), {"phase": "Available"}
                volume = volume | {"metadata": metadata, "status": status}
                self._api.write(VOLUMES, volume)
            yield volume

    def _found(self, claim: Object, free: Iterable[Object]) -> Object | None:
        """A volume for a claim that no volume refers to; None as long as the claim has to wait."""
        class_name = _class_of(claim)
        record = self._api.find(STORAGE_CLASSES, "", class_name) if class_name else None
        waits = record is not None and (
            record.value.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER
        )
        if claim["spec"].get("volumeName"):
            return None
        if waits and SELECTED_NODE not in claim["metadata"].get("annotations", {}):
            return None
        volume = None if waits else _smallest(claim, free)
        if volume is None and record is not None and _provisions(record.value):
            made = _made_volume(self._api, claim, record.value)
            return made and self._create(made)
        return volume

    def _create(self, volume: Object) -> Object:
        """Creates a provisioned volume, unless it exists."""
        record = self._api.find(VOLUMES, "", volume["metadata"]["name"])
        return (record or self._api.create(VOLUMES, "", volume)).value

    def _bind(self, claim: Object, volume: Object) -> None:
        name, spec = volume["metadata"]["name"], volume["spec"]
        metadata = dict(volume["metadata"])
        if "claimRef" not in spec:
            metadata["annotations"] = metadata.get("annotations", {}) | {BOUND_BY_CONTROLLER: "yes"}
        written = volume | {
            "metadata": metadata,
            "spec": spec | {"claimRef": _reference_to(claim)},
            "status": {"phase": "Bound"},
        }
        self._api.write(VOLUMES, written)
        marks = {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"}
        notes = claim["metadata"].get("annotations", {}) | marks
        bound = claim | {
            "metadata": claim["metadata"] | {"annotations": notes},
            "spec": claim["spec"] | {"volumeName": name},
            "status": {
                "phase": "Bound",
                "accessModes": spec.get("accessModes", []),
                "capacity": spec.get("capacity", {}),
            },
        }
        self._api.write(CLAIMS, bound)

    def _release(self, claim: Object) -> None:
        """Deletes the volume of a deleted claim, or marks it Released, by its reclaim policy."""
        record = self._api.find(VOLUMES, "", claim["spec"].get("volumeName", ""))
        if record is None or not _refers_to(record.value, claim):
            return
        if record.value["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            delete(self._api, VOLUMES, "", record.name, DeleteOptions())
            return
        metadata = dict(record.value["metadata"])
        released = record.value | {"metadata": metadata, "status": {"phase": "Released"}}
        self._api.write(VOLUMES, released)


def _class_of(claim: Object) -> str:
    annotations = claim["metadata"].get("annotations", {})
    return str(annotations.get(_BETA_CLASS) or claim["spec"].get("storageClassName", ""))


def _phase(volume: Object) -> str:
    return str(volume.get("status", {}).get("phase", "Pending"))


def _is_new(volume: Object) -> bool:
    return _phase(volume) == "Pending" and not volume["spec"].get("claimRef")


def _refers_to(volume: Object, claim: Object) -> bool:
    """Whether a volume's claimRef is this claim. A claimRef without a uid is any claim of that name."""
    reference, metadata = volume["spec"].get("claimRef") or {}, claim["metadata"]
    same = all(reference.get(part) == metadata[part] for part in ("namespace", "name"))
    return same and reference.get("uid") in (None, "", metadata["uid"])


def _named(claim: Object, free: Iterable[Object]) -> Object | None:
    """The volume that refers to the claim, or the one that the claim names, if it refers to no claim."""
    wanted = claim["spec"].get("volumeName")
    for volume in free:
        if wanted and volume["metadata"]["name"] != wanted:
            continue
        if _refers_to(volume, claim) or (wanted and not volume["spec"].get("claimRef")):
            return volume
    return None


def _smallest(claim: Object, free: Iterable[Object]) -> Object | None:
    """The smallest volume that is not reserved and that fits a claim."""
    selector = claim["spec"].get("selector")
    selects = selects_labels(selector) if selector else None
    size = _size(claim["spec"].get("resources", {}).get("requests", {}))
    fitting = [
        volume
        for volume in free
        if not volume["spec"].get("claimRef")
        and _size(volume["spec"].get("capacity", {})) >= size
        and _suits(claim, volume)
        and (selects is None or selects(labels_of(volume)))
    ]
    return min(fitting, key=lambda volume: _size(volume["spec"].get("capacity", {})), default=None)


def _suits(claim: Object, volume: Object) -> bool:
    wanted, spec = claim["spec"], volume["spec"]
    return (
        _class_of(claim) == spec.get("storageClassName", "")
        and wanted.get("volumeMode", "Filesystem") == spec.get("volumeMode", "Filesystem")
        and set(wanted.get("accessModes", ())) <= set(spec.get("accessModes", ()))
    )


def _size(amounts: Object) -> int:
    return parse(amounts.get("storage", "0"))


# ---------------------------------------------------------------- provisioning


def _provisions(storage_class: Object) -> bool:
    """Whether volumes are provisioned for claims of this class."""
    return storage_class.get("provisioner", "") not in ("", _NO_PROVISIONER)


def _made_volume(api: Api, claim: Object, storage_class: Object) -> Object | None:
    """A volume for a claim, with the claim as claimRef; None if the driver cannot provision it for the
    selected node.
    """
    segment = _segment(api, claim, storage_class)
    if segment is None:
        return None
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{metadata['uid']}"
    provisioner = storage_class["provisioner"]
    volume: Object = {
        "metadata": {
            "name": name,
            "annotations": {_PROVISIONED_BY: provisioner, BOUND_BY_CONTROLLER: "yes"},
        },
        "spec": {
            "capacity": {"storage": _requested(spec)},
            "accessModes": spec.get("accessModes", []),
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "storageClassName": storage_class["metadata"]["name"],
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "csi": {"driver": driver_of_provisioner(provisioner), "volumeHandle": name},
            "claimRef": _reference_to(claim),
        },
    }
    if segment:
        volume["spec"]["nodeAffinity"] = {"required": _within(segment)}
    return volume


def _reference_to(claim: Object) -> Object:
    """The claimRef for a claim."""
    metadata = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        **{name: metadata[name] for name in ("namespace", "name", "uid", "resourceVersion")},
    }


def _requested(spec: Object) -> Any:
    return spec.get("resources", {}).get("requests", {}).get("storage", "0")


def _within(segment: Segment) -> Object:
    terms = [
        {"key": key, "operator": "In", "values": [value]} for key, value in sorted(segment.items())
    ]
    return {"nodeSelectorTerms": [{"matchExpressions": terms}]}


def _segment(api: Api, claim: Object, storage_class: Object) -> Segment | None:
    """The labels of nodes that reach the volume; empty for all nodes. None if the selected node cannot reach one."""
    selected = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
    allowed = [
        term.get("matchLabelExpressions", ())
        for term in storage_class.get("allowedTopologies") or ()
    ]
    if selected is None:
        return _chosen(claim, list(_possible(api, storage_class, allowed)))
    record = api.find(NODES, "", selected)
    if record is None:
        return None
    labels = labels_of(record.value)
    if not allowed:
        keys = _driver_keys(api, selected, storage_class)
        return {key: labels[key] for key in keys if key in labels}
    for term in allowed:
        if all(labels.get(each["key"]) in each["values"] for each in term):
            return {each["key"]: labels[each["key"]] for each in term}
    return None


def _possible(api: Api, storage_class: Object, allowed: list[Any]) -> Iterator[Segment]:
    """The segments that volumes of a class can have, with repetitions."""
    if allowed:
        for term in allowed:
            for first in term[0]["values"] if term else ():
                rest = {each["key"]: each["values"][0] for each in term[1:]}
                yield {term[0]["key"]: first, **rest}
        return
    for record in api.store[NODES.storage].records.values():
        keys = _driver_keys(api, record.name, storage_class)
        labels = labels_of(record.value)
        if keys and all(key in labels for key in keys):
            yield {key: labels[key] for key in keys}


def _chosen(claim: Object, segments: list[Segment]) -> Segment:
    """One of the segments, chosen by a hash of the claim's name: claims are spread, and each run has the
    same result.
    """
    distinct = sorted({tuple(sorted(segment.items())) for segment in segments})
    if not distinct:
        return {}
    key = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
    return dict(distinct[crc32(key.encode()) % len(distinct)])


def _driver_keys(api: Api, node: str, storage_class: Object) -> list[str]:
    """The topology keys that the class's driver reports for a node."""
    record = api.find(CSI_NODES, "", node)
    drivers = record.value.get("spec", {}).get("drivers") or () if record is not None else ()
    name = driver_of_provisioner(storage_class["provisioner"])
    return [
        key
        for driver in drivers
        if driver["name"] == name
        for key in driver.get("topologyKeys") or ()
    ]


log = logging.getLogger(__name__)


class EphemeralVolumeController(Controller[Key]):
    """Acts in the handler, so that a pod's claims exist when the pod does."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, {PODS: self._on_pod})

    def _on_pod(self, change: StoreChange) -> None:
        if change.type == "ADDED":
            self._create_claims(change.record.value)
        elif change.type == "DELETED":
            self._delete_claims(change.record.value)

    def _create_claims(self, pod: Object) -> None:
        if is_being_deleted(pod):
            return
        for volume in pod["spec"].get("volumes", ()):
            template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
            if template and self._api.find(CLAIMS, *_ephemeral_key(pod, volume)) is None:
                self._create_claim(pod, volume, template)

    def _create_claim(self, pod: Object, volume: Object, template: Object) -> None:
        namespace, name = _ephemeral_key(pod, volume)
        given = template.get("metadata", {})
        metadata = {part: given[part] for part in ("labels", "annotations") if part in given}
        metadata |= {"name": name, "ownerReferences": [owner_reference(pod)]}
        try:
            self._api.create(
                CLAIMS, namespace, {"metadata": metadata, "spec": dict(template.get("spec", {}))}
            )
        except ApiError as error:
            log.warning(
                "No claim for the ephemeral volume %s of %s/%s: %s",
                name,
                namespace,
                pod["metadata"]["name"],
                error,
            )

    def _delete_claims(self, pod: Object) -> None:
        for volume in pod["spec"].get("volumes", ()):
            if "ephemeral" not in volume:
                continue
            record = self._api.find(CLAIMS, *_ephemeral_key(pod, volume))
            if record is not None and _is_owned(record, pod):
                delete(self._api, CLAIMS, record.namespace, record.name, DeleteOptions())


def _ephemeral_key(pod: Object, volume: Object) -> Key:
    return pod["metadata"]["namespace"], f"{pod['metadata']['name']}-{volume['name']}"


def _is_owned(record: Record, pod: Object) -> bool:
    owners = record.value["metadata"].get("ownerReferences", ())
    return any(owner["uid"] == pod["metadata"]["uid"] for owner in owners)
