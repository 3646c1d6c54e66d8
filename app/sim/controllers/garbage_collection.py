"""What a cluster removes by itself: deleted namespaces with their objects, old events, devices of nodes that are gone."""

from collections import deque
from typing import Final

from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.nodes import slice_name
from app.sim.objects import is_being_deleted
from app.sim.resources.deletion import DeleteOptions, delete, delete_collection
from app.sim.resources.kinds import EVENTS, KINDS, NAMESPACES, NODES, RESOURCE_SLICES, is_stored
from app.sim.store import Key, StoreChange

_RETRY_SECONDS: Final = 0.1
_EXPIRY_CHECK_SECONDS: Final = 30.0


class NamespaceController(Controller[str]):
    """Deletes the objects in Terminating namespaces, and then the namespaces. Its keys are their names."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, {NAMESPACES: self._on_namespace})

    def _on_namespace(self, change: StoreChange) -> None:
        if change.type != "DELETED" and is_being_deleted(change.record.value):
            self.enqueue(change.key[1])

    def reconcile(self, key: str) -> None:
        if self._api.find(NAMESPACES, "", key) is None:
            return
        if self._delete_contents(key):
            self._api.store.remove(NAMESPACES.storage, ("", key))
        else:
            self.enqueue(key, _RETRY_SECONDS)

    def _delete_contents(self, namespace: str) -> bool:
        """Deletes the objects in a namespace. Returns whether none is left: finalizers can keep some."""
        options = DeleteOptions(grace_period_seconds=0)
        empty = True
        for kind in KINDS:
            if kind.namespaced and is_stored(kind) and not kind.stored_as:
                collection = self._api.store[kind.storage]
                records = list(collection.ordered(namespace=namespace))
                delete_collection(self._api, kind, records, options)
                empty = empty and next(collection.ordered(namespace=namespace), None) is None
        return empty


class EventExpiry(Controller[str]):
    """Removes events that were not written for ``ttl`` seconds."""

    def __init__(self, api: Api, *, ttl: float) -> None:
        super().__init__(api, {EVENTS: self._on_event})
        self._ttl = ttl
        self._written: deque[tuple[float, Key, int]] = deque()
        """(time, key, revision) of each write, oldest first."""

    def start(self) -> None:
        """Starts with the events that exist. Needs a running loop."""
        super().start()
        self.enqueue("expired")

    def _on_event(self, change: StoreChange) -> None:
        if change.type != "DELETED":
            self._written.append((self._api.now(), change.key, change.revision))

    def reconcile(self, key: str) -> None:
        horizon = self._api.now() - self._ttl
        while self._written and self._written[0][0] <= horizon:
            _, event, revision = self._written.popleft()
            record = self._api.find(EVENTS, *event)
            if record is not None and record.revision == revision:
                self._api.store.remove(EVENTS.storage, event)
        self.enqueue(key, _EXPIRY_CHECK_SECONDS)


class SliceGarbageCollector(Controller[str]):
    """Deletes the ResourceSlices of nodes that are deleted."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, {NODES: self._on_node})

    def _on_node(self, change: StoreChange) -> None:
        part = 0
        while change.type == "DELETED" and self._delete(slice_name(change.key[1], part)):
            part += 1

    def _delete(self, name: str) -> bool:
        """Deletes a slice. Returns whether it existed."""
        found = self._api.find(RESOURCE_SLICES, "", name)
        if found is not None:
            delete(self._api, RESOURCE_SLICES, "", name, DeleteOptions())
        return found is not None
