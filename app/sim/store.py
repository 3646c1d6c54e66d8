"""What etcd is to a real API server: objects by key, one revision counter, a bounded history of changes.

Objects are plain decoded JSON. They are never changed in place once stored; every write encodes the new object once,
and all readers and watchers share those bytes. Of an object whose last change has left the history only the bytes are
kept: a decoded pod takes five times as much memory.
"""

import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

log = logging.getLogger(__name__)

Object = dict[str, Any]
"""A Kubernetes object as decoded JSON, ``kind`` and ``apiVersion`` first."""
Key = tuple[str, str]
"""(namespace, name); the namespace of cluster-scoped objects is empty."""
EventType = Literal["ADDED", "MODIFIED", "DELETED"]

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class Record:
    """One version of one object. ``views`` caches its encodings in other forms (the other Event version)."""

    __slots__ = ("_value", "raw", "revision", "views")

    def __init__(self, value: Object, revision: int) -> None:
        self._value: Object | None = value
        self.revision = revision
        self.raw: bytes = _encode(value)
        self.views: dict[object, bytes] | None = None

    @property
    def value(self) -> Object:
        """The object. Must not be changed. Decoded by each call if only the bytes are kept."""
        return _decode(self.raw) if self._value is None else self._value

    @property
    def decoded(self) -> bool:
        """Whether the decoded object is kept."""
        return self._value is not None

    def keep_bytes(self) -> None:
        """Keeps the bytes only."""
        self._value = None

    @property
    def namespace(self) -> str:
        return self.value["metadata"].get("namespace", "")  # type: ignore[no-any-return]  # JSON

    @property
    def name(self) -> str:
        return self.value["metadata"]["name"]  # type: ignore[no-any-return]  # JSON


class StoreChange:
    """One write: the object as it is now, and as it was before (None for ADDED).

    For DELETED ``record`` is the last state with the revision of the deletion, as etcd reports it.
    """

    __slots__ = ("key", "previous", "record", "resource", "type", "withdrawn")

    def __init__(
        self, type_: EventType, resource: str, key: Key, record: Record, previous: Record | None
    ) -> None:
        self.type: EventType = type_
        self.resource = resource
        """The collection in which it happened."""
        self.key = key
        self.record = record
        self.previous = previous
        self.withdrawn: Record | None = None

    @property
    def revision(self) -> int:
        return self.record.revision

    def withdrawn_record(self) -> Record:
        """The previous state under this change's revision: what a watcher sees leave its selection."""
        if self.type == "DELETED" or self.previous is None:
            return self.record
        if self.withdrawn is None:
            self.withdrawn = Record(_stamped(self.previous.value, self.revision), self.revision)
        return self.withdrawn


def _behind(key: Key) -> Key:
    """The lowest key that is greater."""
    return key[0], key[1] + "\0"


def _stamped(value: Object, revision: int) -> Object:
    metadata = value["metadata"] | {"resourceVersion": str(revision)}
    return value | {"metadata": metadata}


Listener = Callable[[StoreChange], None]


class Collection:
    """All objects of one resource, in key order, with the changes of the recent past."""

    def __init__(self, resource: str, history_limit: int) -> None:
        self.resource = resource
        self.records: dict[Key, Record] = {}
        self.history: deque[StoreChange] = deque()
        self.compacted = 0
        """Changes up to and including this revision are forgotten."""
        self.listeners: dict[Listener, None] = {}
        """Called at every change, in the order they came, before the writer gets its answer.

        What one raises is logged.
        """
        self.closers: dict[Callable[[], None], None] = {}
        """Called when what was served from this collection is served no longer, or in another form: they end watches.
        """
        self._keys: list[Key] = []
        self._history_limit = history_limit

    def ordered(
        self, *, namespace: str | None = None, after: Key | None = None
    ) -> Iterator[Record]:
        """Iterates over the records in key order, of one namespace or all, behind ``after`` if given."""
        for position in self._range(namespace, after):
            yield self.records[self._keys[position]]

    def count(self, *, namespace: str | None = None, after: Key | None = None) -> int:
        """The number of records that ``ordered`` iterates over."""
        return len(self._range(namespace, after))

    def _range(self, namespace: str | None, after: Key | None) -> range:
        """The positions in ``_keys`` of a namespace or of all, behind ``after`` if given."""
        keys = self._keys
        start = 0 if after is None else bisect_left(keys, _behind(after))
        end = len(keys)
        if namespace is not None:
            start = max(start, bisect_left(keys, (namespace, "")))
            end = bisect_left(keys, (namespace + "\0", ""))
        return range(start, end)

    def at(self, revision: int) -> "Collection":
        """Returns the collection as it was at ``revision``, which must not be compacted."""
        if not self.history or self.history[-1].revision <= revision:
            return self
        past = Collection(self.resource, 0)
        past.records = self.records.copy()
        past._keys = self._keys.copy()
        for change in self._newest_since(revision):
            past._undo(change)
        return past

    def _undo(self, change: StoreChange) -> None:
        if change.previous is None:
            self._drop(change.key)
            return
        if change.type == "DELETED":
            insort(self._keys, change.key)
        self.records[change.key] = change.previous

    def _drop(self, key: Key) -> None:
        del self.records[key]
        del self._keys[bisect_left(self._keys, key)]

    def changes_since(self, revision: int) -> list[StoreChange]:
        """Returns the changes after ``revision``, oldest first."""
        return list(self._newest_since(revision))[::-1]

    def compact(self, keep: int, revision: int) -> None:
        """Forgets all but the last ``keep`` changes; with none kept, everything up to ``revision``."""
        while len(self.history) > keep:
            change = self.history.popleft()
            change.record.keep_bytes()
            self.compacted = change.revision
        if keep == 0:
            self.compacted = revision

    def apply(self, change: StoreChange) -> None:
        """Applies a change and calls the listeners."""
        if change.type == "DELETED":
            self._drop(change.key)
        else:
            self.records[change.key] = change.record
            if change.type == "ADDED":
                insort(self._keys, change.key)
        self.history.append(change)
        if len(self.history) > self._history_limit:
            self.compact(self._history_limit, change.revision)
        for listener in tuple(self.listeners):
            try:
                listener(change)
            except Exception:
                log.exception("A listener failed: %s %s", change.type, "/".join(change.key))

    def end_watches(self) -> None:
        """Ends all watches of the collection."""
        for close in tuple(self.closers):
            close()

    def convert(self, change: Callable[[Object], Object]) -> None:
        """Replaces all objects by what ``change`` returns, at their revisions.

        The history is forgotten, and watches end.
        """
        self.end_watches()
        for key, record in self.records.items():
            self.records[key] = Record(change(record.value), record.revision)
        self.compact(0, max((each.revision for each in self.records.values()), default=0))

    def _newest_since(self, revision: int) -> Iterable[StoreChange]:
        for change in reversed(self.history):
            if change.revision <= revision:
                return
            yield change


class ObjectStore:
    """Every collection, and the revision that counts the writes to all of them."""

    def __init__(self, resources: Iterable[str], *, history_limit: int = 10_000) -> None:
        self.revision = 1
        self._history_limit = history_limit
        self._followers: dict[Listener, None] = {}
        self._collections: dict[str, Collection] = {}
        for resource in resources:
            self.add(resource)

    def add(self, resource: str) -> None:
        """Adds an empty collection, unless there is one."""
        if resource not in self._collections:
            collection = Collection(resource, self._history_limit)
            self._collections[resource] = collection
            collection.listeners |= self._followers

    def drop(self, resource: str) -> None:
        """Removes a collection, and ends its watches."""
        collection = self._collections.pop(resource, None)
        if collection is not None:
            collection.end_watches()

    def follow(self, listener: Listener) -> None:
        """Calls a listener at every change in every collection, also in those that are added later."""
        self._followers[listener] = None
        for collection in self._collections.values():
            collection.listeners[listener] = None

    def unfollow(self, listener: Listener) -> None:
        """Reverts ``follow``."""
        self._followers.pop(listener, None)
        for collection in self._collections.values():
            collection.listeners.pop(listener, None)

    def __getitem__(self, resource: str) -> Collection:
        return self._collections[resource]

    def find(self, resource: str, key: Key) -> Record | None:
        """Returns an object; None if there is none, or no such collection."""
        collection = self._collections.get(resource)
        return None if collection is None else collection.records.get(key)

    def items(self) -> Iterable[tuple[str, Collection]]:
        return self._collections.items()

    def put(self, resource: str, key: Key, value: Object) -> Record:
        """Stores ``value``, which with its ``metadata`` now belongs to the store, under the next revision."""
        collection = self._collections[resource]
        previous = collection.records.get(key)
        self.revision += 1
        value["metadata"]["resourceVersion"] = str(self.revision)
        record = Record(value, self.revision)
        type_: EventType = "ADDED" if previous is None else "MODIFIED"
        collection.apply(StoreChange(type_, resource, key, record, previous))
        return record

    def remove(self, resource: str, key: Key) -> Record:
        """Removes an object and returns its last state under the revision of the removal."""
        collection = self._collections[resource]
        previous = collection.records[key]
        self.revision += 1
        record = Record(_stamped(previous.value, self.revision), self.revision)
        collection.apply(StoreChange("DELETED", resource, key, record, previous))
        return record

    def compact(self) -> None:
        """Forgets all history, as etcd's compaction does: older watches and list pages get 410."""
        for collection in self._collections.values():
            collection.compact(0, self.revision)
