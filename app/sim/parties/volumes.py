"""A small volume controller: binds claims, to volumes that exist or to volumes it makes up, as a storage driver would.

=====================================================  ================================================================
claim                                                  is bound to
=====================================================  ================================================================
a volume's claimRef names it, or it names a volume     that volume
of a class that binds immediately, or of no class      the smallest free volume that will do, or one that is made
of a class that waits for its first consumer           one that is made, once the scheduler has selected a node
=====================================================  ================================================================

Nothing is stored anywhere: volumes are objects only.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from app.model.claims import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
)
from app.model.quantity import parse
from app.sim.api import Api
from app.sim.objects import is_being_deleted
from app.sim.parties.provisioning import made_volume, provisions, reference_to
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import BY_RESOURCE, STORAGE_CLASSES
from app.sim.selectors import selects_labels
from app.sim.store import Change, Key, Object

CLAIMS: Final = BY_RESOURCE["persistentvolumeclaims"]
VOLUMES: Final = BY_RESOURCE["persistentvolumes"]

_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


class VolumeController:
    """Looks at the claims that are not bound whenever claims, volumes or classes have changed."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._open: dict[Key, None] = {}
        """Claims that are not bound, oldest first."""
        self._timer: asyncio.Handle | None = None
        self._listeners = {
            CLAIMS.storage: self._on_claim,
            VOLUMES.storage: self._on_volume,
            STORAGE_CLASSES.storage: self._on_class,
        }

    def start(self) -> None:
        """Begins to look after the claims, those that exist already included. Needs a running loop."""
        for storage, listener in self._listeners.items():
            self._api.store[storage].listeners[listener] = None
        for key, record in self._api.store[CLAIMS.storage].records.items():
            self._note(key, record.value)
        self._look_soon()

    def stop(self) -> None:
        """Leaves the claims as they are."""
        for storage, listener in self._listeners.items():
            self._api.store[storage].listeners.pop(listener, None)
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------ what happens

    def _on_claim(self, change: Change) -> None:
        if change.type == "DELETED":
            self._open.pop(change.key, None)
            self._release(change.record.value)
        else:
            self._note(change.key, change.record.value)

    def _on_volume(self, change: Change) -> None:
        if change.type != "DELETED" and (self._open or _is_new(change.record.value)):
            self._look_soon()

    def _on_class(self, change: Change) -> None:
        if change.type != "DELETED" and self._open:
            self._look_soon()

    def _note(self, key: Key, claim: Object) -> None:
        bound = BIND_COMPLETED in claim["metadata"].get("annotations", {})
        if bound or is_being_deleted(claim):
            self._open.pop(key, None)
        else:
            self._open[key] = None
            self._look_soon()

    def _look_soon(self) -> None:
        """Changes that come together are looked at together."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._look)

    # ------------------------------------------------------------ binding

    def _look(self) -> None:
        self._timer = None
        free = list(self._free_volumes())
        for key in list(self._open):
            claim = self._api.get(CLAIMS, *key).value
            volume = _named(claim, free) or self._found(claim, free)
            if volume is not None:
                free = [each for each in free if each is not volume]
                self._bind(claim, volume)

    def _free_volumes(self) -> Iterator[Object]:
        """The volumes that no claim is bound to, new ones made Available."""
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
        """A volume for a claim that none belongs to yet; None while it has to wait."""
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
        if volume is None and record is not None and provisions(record.value):
            made = made_volume(self._api, claim, record.value)
            return made and self._create(made)
        return volume

    def _create(self, volume: Object) -> Object:
        """Makes a volume that was worked out, or finds it made already."""
        record = self._api.find(VOLUMES, "", volume["metadata"]["name"])
        return (record or self._api.create(VOLUMES, "", volume)).value

    def _bind(self, claim: Object, volume: Object) -> None:
        name, spec = volume["metadata"]["name"], volume["spec"]
        metadata = dict(volume["metadata"])
        if "claimRef" not in spec:
            metadata["annotations"] = metadata.get("annotations", {}) | {BOUND_BY_CONTROLLER: "yes"}
        written = volume | {
            "metadata": metadata,
            "spec": spec | {"claimRef": reference_to(claim)},
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
        """The volume of a claim that has gone: removed, or left to its owner, as it says."""
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
    """Whether a volume's claimRef is this claim; one without a uid stands for any of that name."""
    reference, metadata = volume["spec"].get("claimRef") or {}, claim["metadata"]
    same = all(reference.get(part) == metadata[part] for part in ("namespace", "name"))
    return same and reference.get("uid") in (None, "", metadata["uid"])


def _named(claim: Object, free: Iterable[Object]) -> Object | None:
    """The volume that names the claim or, if it is nobody else's, the one that the claim names."""
    wanted = claim["spec"].get("volumeName")
    for volume in free:
        if wanted and volume["metadata"]["name"] != wanted:
            continue
        if _refers_to(volume, claim) or (wanted and not volume["spec"].get("claimRef")):
            return volume
    return None


def _smallest(claim: Object, free: Iterable[Object]) -> Object | None:
    """The smallest volume that nobody has and that will do for a claim."""
    selector = claim["spec"].get("selector")
    selects = selects_labels(selector) if selector else None
    size = _size(claim["spec"].get("resources", {}).get("requests", {}))
    fitting = [
        volume
        for volume in free
        if not volume["spec"].get("claimRef")
        and _size(volume["spec"].get("capacity", {})) >= size
        and _suits(claim, volume)
        and (selects is None or selects(volume["metadata"].get("labels", {})))
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
