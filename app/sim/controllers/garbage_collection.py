"""What a cluster removes by itself: what deleted objects owned, the contents of deleted namespaces, old events."""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.errors import ApiError
from app.sim.objects import is_being_deleted, without_finalizer
from app.sim.resources.deletion import (
    FOREGROUND,
    ORPHAN,
    DeleteOptions,
    delete,
    delete_collection,
)
from app.sim.resources.event_versions import shown
from app.sim.resources.kinds import EVENTS, NAMESPACES, PODS, Kind
from app.sim.resources.pod_groups import PROTECTION
from app.sim.store import Key, Object, Record, StoreChange

log = logging.getLogger(__name__)

_FAILED_RETRY_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 0.1
_EXPIRY_CHECK_SECONDS: Final = 30.0
_BATCH: Final = 200
"""The most objects that the garbage collector deletes at once; the rest follows."""


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
        for kind in list(self._api.kinds.by_storage.values()):
            if kind.namespaced:
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


_Place = tuple[str, Key]
"""(resource, key) of an object. Its kind can be served in other versions later."""


class GarbageCollector(Controller[str]):
    """Deletes the objects whose owners are deleted, or frees them from their owners. Its keys are the owners' uids.

    It acts when an owner is deleted. Objects that come with the uid of an owner that never existed are left alone, such
    as those of a dump that is loaded without their owners.
    """

    def __init__(self, api: Api) -> None:
        super().__init__(api, {})
        self._dependents: dict[str, dict[_Place, None]] = {}
        """uid of an owner -> the objects that name it as their owner."""
        self._waiting: dict[str, _Place] = {}
        """uid -> object that is deleted when what it owns has been dealt with."""

    def start(self) -> None:
        """Starts with the objects that exist. Needs a running loop."""
        self._api.store.follow(self._on_change)
        for _, collection in list(self._api.store.items()):
            self._replay(collection, self._on_change)

    def stop(self) -> None:
        """Stops, and leaves all objects as they are."""
        self._api.store.unfollow(self._on_change)
        super().stop()

    def _on_change(self, change: StoreChange) -> None:
        place = change.resource, change.key
        metadata = change.record.value["metadata"]
        previous = None if change.previous is None else change.previous.value["metadata"]
        if "ownerReferences" in metadata or (previous and "ownerReferences" in previous):
            before = set() if previous is None else _owners(previous)
            self._index(place, before, set() if change.type == "DELETED" else _owners(metadata))
        uid = metadata["uid"]
        if change.type == "DELETED":
            self._waiting.pop(uid, None)
            if uid in self._dependents:
                self.enqueue(uid)
        elif "deletionTimestamp" in metadata and _finalizer(metadata):
            self._waiting[uid] = place
            self.enqueue(uid)

    def _index(self, place: _Place, before: set[str], owners: set[str]) -> None:
        for uid in before - owners:
            known = self._dependents.get(uid, {})
            known.pop(place, None)
            if not known:
                self._dependents.pop(uid, None)
            if uid in self._waiting:
                self.enqueue(uid)
        for uid in owners:
            self._dependents.setdefault(uid, {})[place] = None

    def reconcile(self, key: str) -> None:
        place = self._waiting.get(key)
        owner = None if place is None else self._api.store.find(*place)
        if place is None or owner is None:
            self._for_dependents(key, partial(self._collect, uid=key, propagation="Background"))
            return
        kind = self._api.kinds.by_storage.get(place[0])
        if _finalizer(owner.value["metadata"]) == ORPHAN:
            self._for_dependents(key, partial(self._free, uid=key))
            left, finalizer = key in self._dependents, ORPHAN
        else:
            self._for_dependents(key, partial(self._collect, uid=key, propagation="Foreground"))
            left, finalizer = self._is_blocked(key), FOREGROUND
        if not left and kind is not None:
            self._attempt(key, partial(self._finish, finalizer=finalizer), kind, owner)

    def _for_dependents(self, uid: str, act: Callable[[Kind, Record], None]) -> None:
        """Calls ``act`` for the next dependents that are not being deleted yet. If there are more, they follow."""
        found = (
            (self._api.kinds.by_storage.get(place[0]), self._api.store.find(*place))
            for place in sorted(self._dependents.get(uid, ()), key=_is_pod)
        )
        todo = (
            (kind, record)
            for kind, record in found
            if kind is not None and record is not None and not is_being_deleted(record.value)
        )
        for number, (kind, record) in enumerate(islice(todo, _BATCH), start=1):
            self._attempt(uid, act, kind, record)
            if number == _BATCH:
                self.enqueue(uid)

    def _attempt(
        self, uid: str, act: Callable[[Kind, Record], None], kind: Kind, record: Record
    ) -> None:
        """Calls ``act``. If it fails, it is tried again later, and other objects are handled meanwhile."""
        try:
            act(kind, record)
        except Exception as error:
            where = "/".join(filter(None, (record.namespace, record.name)))
            unexpected = None if isinstance(error, ApiError) else error
            log.warning("Cannot collect %s %s: %s", kind.kind, where, error, exc_info=unexpected)
            self.enqueue(uid, _FAILED_RETRY_SECONDS)

    def _collect(self, kind: Kind, record: Record, *, uid: str, propagation: str) -> None:
        """Deletes what an owner owned, unless it has another owner."""
        if self._has_other_owner(record.value, uid):
            self._free(kind, record, uid=uid)
            return
        options = DeleteOptions(propagation="Background" if kind is PODS else propagation)
        delete(self._api, kind, record.namespace, record.name, options)

    def _is_blocked(self, uid: str) -> bool:
        """Whether an object is left that blocks the deletion of its owner."""
        for place in self._dependents.get(uid, ()):
            record = self._api.store.find(*place)
            references = record.value["metadata"].get("ownerReferences", ()) if record else ()
            if any(each["uid"] == uid and each.get("blockOwnerDeletion") for each in references):
                return True
        return False

    def _has_other_owner(self, value: Object, uid: str) -> bool:
        """Whether another owner exists, and is not waiting for its dependents to be deleted."""
        namespace = value["metadata"].get("namespace", "")
        for owner in value["metadata"].get("ownerReferences", ()):
            kind = self._api.kinds.by_type.get((owner.get("apiVersion"), owner.get("kind")))
            if owner["uid"] == uid or kind is None or owner["uid"] in self._waiting:
                continue
            found = self._api.find(kind, namespace if kind.namespaced else "", owner["name"])
            if found is not None and _keeps(found.value, owner["uid"]):
                return True
        return False

    def _free(self, kind: Kind, record: Record, *, uid: str) -> None:
        """Removes the reference to an owner."""
        metadata = dict(record.value["metadata"])
        kept = [each for each in metadata.pop("ownerReferences", ()) if each["uid"] != uid]
        if kept:
            metadata["ownerReferences"] = kept
        self._api.write(kind, record.value | {"metadata": metadata})

    def _finish(self, kind: Kind, owner: Record, *, finalizer: str) -> None:
        """Removes the finalizer, and with the last one the object."""
        value = without_finalizer(owner.value, finalizer)
        self._api.update(kind, owner.namespace, owner.name, shown(kind, value))


def _is_pod(place: _Place) -> bool:
    """Pods come last: what else owns them is deleted by then."""
    return place[0] == PODS.storage


def _owners(metadata: Object) -> set[str]:
    return {each["uid"] for each in metadata.get("ownerReferences", ()) if each.get("uid")}


def _keeps(owner: Object, uid: str) -> bool:
    """Whether an object is the owner with a uid, and no PodGroup that only waits for its pods to go."""
    metadata = owner["metadata"]
    waits = is_being_deleted(owner) and PROTECTION in metadata.get("finalizers", ())
    return metadata["uid"] == uid and not waits


def _finalizer(metadata: Object) -> str:
    """The finalizer that the garbage collector removes."""
    known = metadata.get("finalizers", ())
    return next((each for each in (ORPHAN, FOREGROUND) if each in known), "")
