"""PersistentVolumeClaims of generic ephemeral volumes: created and deleted with their pods."""

import logging
from typing import Final

from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.errors import ApiError
from app.sim.objects import is_being_deleted
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import BY_RESOURCE, PODS
from app.sim.store import Key, Object, Record, StoreChange

log = logging.getLogger(__name__)

CLAIMS: Final = BY_RESOURCE["persistentvolumeclaims"]


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
        owner = {"apiVersion": "v1", "kind": "Pod", "controller": True, "blockOwnerDeletion": True}
        owner |= {part: pod["metadata"][part] for part in ("name", "uid")}
        metadata |= {"name": name, "ownerReferences": [owner]}
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
