"""Keeps PodGroups that are deleted until their last pod has ended."""

from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.objects import group_name, has_ended, is_being_deleted, without_finalizer
from app.sim.resources.kinds import PODS, Kind
from app.sim.resources.pod_groups import PROTECTION
from app.sim.store import Key, StoreChange


class PodGroupProtectionController(Controller[Key]):
    """Removes the finalizer of a group without active pods. Its keys are those of groups."""

    def __init__(self, api: Api, groups: Kind) -> None:
        super().__init__(api, {PODS: self._on_pod, groups: self._on_group})
        self._groups = groups
        self._active: dict[Key, dict[str, None]] = {}
        """group -> names of its pods that have not ended."""

    def _on_group(self, change: StoreChange) -> None:
        if change.type != "DELETED" and is_being_deleted(change.record.value):
            self.enqueue(change.key)

    def _on_pod(self, change: StoreChange) -> None:
        name = group_name(change.record.value)
        if not name:
            return
        group, pod = (change.key[0], name), change.key[1]
        if change.type != "DELETED" and not has_ended(change.record.value):
            self._active.setdefault(group, {})[pod] = None
            return
        active = self._active.get(group, {})
        active.pop(pod, None)
        if not active:
            self._active.pop(group, None)
            self.enqueue(group)

    def reconcile(self, key: Key) -> None:
        record = self._api.find(self._groups, *key)
        if record is None or not is_being_deleted(record.value) or key in self._active:
            return
        if PROTECTION in record.value["metadata"].get("finalizers", ()):
            self._api.update(self._groups, *key, without_finalizer(record.value, PROTECTION))
