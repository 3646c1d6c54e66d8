"""Watches: the changes of selected objects, as a stream of bytes.

A change is encoded once by the store; each watcher only decides whether it sees the change and as what (an object that
starts to match is ADDED for this watcher, one that stops is DELETED) and queues references to the shared bytes. Writing
is left to the connection, which takes everything queued in one piece. A watcher that lets too much pile up is closed;
its client will list and watch again.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from app.sim.errors import ApiError, expired, too_large_resource_version
from app.sim.http.representation import Representation
from app.sim.listing import ListOptions
from app.sim.resources.kinds import Kind
from app.sim.selectors import ListSelector
from app.sim.store import Collection, EventType, ObjectStore, Record, StoreChange

logger = logging.getLogger(__name__)

_OPENING: Final[dict[str, bytes]] = {
    type_: b'{"type":"' + type_.encode() + b'","object":'
    for type_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}
_CLOSING: Final = b"}\n"
_INITIAL_BATCH: Final = 500
"""Objects per write while the initial state is sent."""


class Watcher:
    """One client's view of the changes to a collection."""

    def __init__(
        self,
        collection: Collection,
        representation: Representation,
        *,
        namespace: str | None,
        selector: ListSelector,
        buffer_limit: int,
    ) -> None:
        self._collection = collection
        self._representation = representation
        self._namespace = namespace
        self._selector = selector
        self._buffer_limit = buffer_limit
        self._initial: Iterator[bytes] = iter(())
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._after = 0
        self._closed = False
        self._wake = asyncio.Event()

    def open(self, *, after: int = 0) -> None:
        """Follows changes with a revision above ``after``."""
        self._after = after
        self._collection.listeners[self.offer] = None
        self._collection.closers[self.close] = None

    def send_state(self) -> None:
        """Queues the present state as ADDED events. They are encoded when the client reads them."""
        present = self._collection.ordered(namespace=self._namespace)
        self._initial = self._initial_batches(list(filter(self._selector.selects, present)))

    def _initial_batches(self, records: Sequence[Record]) -> Iterator[bytes]:
        for start in range(0, len(records), _INITIAL_BATCH):
            batch = records[start : start + _INITIAL_BATCH]
            yield b"".join([self._event("ADDED", record) for record in batch])

    def send_history(self, changes: Sequence[StoreChange]) -> None:
        """Queues earlier changes, without a limit. They are encoded when the client reads them."""
        self._initial = self._replayed(changes)

    def _replayed(self, changes: Sequence[StoreChange]) -> Iterator[bytes]:
        for start in range(0, len(changes), _INITIAL_BATCH):
            seen = map(self._seen, changes[start : start + _INITIAL_BATCH])
            events = [self._event(*found) for found in seen if found is not None]
            if events:
                yield b"".join(events)

    def _event(self, type_: EventType, record: Record) -> bytes:
        return b"".join((_OPENING[type_], self._representation.one(record), _CLOSING))

    def offer(self, change: StoreChange) -> None:
        """Queues a change if this watcher sees it. One that cannot be encoded ends the watch; the write succeeds."""
        if change.revision <= self._after:
            return
        try:
            seen = self._seen(change)
            if seen is not None:
                self._queue(seen[0], self._representation.one(seen[1]))
        except Exception:
            logger.exception("Closing a watch that cannot show %s", "/".join(change.key))
            self.close()

    def _seen(self, change: StoreChange) -> tuple[EventType, Record] | None:
        """The event of a change for this watcher, or None. A change can move an object into or out of the selection."""
        if self._namespace is not None and change.key[0] != self._namespace:
            return None
        if not self._selector:
            return change.type, change.record
        selects = self._selector.selects
        now = change.type != "DELETED" and selects(change.record)
        before = change.previous is not None and selects(change.previous)
        if now:
            return ("MODIFIED" if before else "ADDED"), change.record
        return ("DELETED", change.withdrawn_record()) if before else None

    def bookmark(self, revision: int, *, initial_events_end: bool = False) -> None:
        """Queues a bookmark: everything up to ``revision`` has been sent."""
        raw = self._representation.bookmark(revision, initial_events_end=initial_events_end)
        self._queue("BOOKMARK", raw)

    def fail(self, error: ApiError) -> None:
        """Queues an ERROR event and ends the stream after it."""
        self._queue("ERROR", msgspec.json.encode(error.status()))
        self.close()

    def close(self) -> None:
        """Ends the stream after what is queued."""
        self._collection.listeners.pop(self.offer, None)
        self._collection.closers.pop(self.close, None)
        self._closed = True
        self._wake.set()

    async def next_batch(self) -> bytes | None:
        """Waits for events and returns all that are queued as newline-delimited JSON; None at the end."""
        batch = next(self._initial, None)
        if batch is not None:
            return batch
        while not self._pending:
            if self._closed:
                return None
            self._wake.clear()
            await self._wake.wait()
        batch = b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        return batch

    def _queue(self, type_: str, raw: bytes) -> None:
        self._pending += (_OPENING[type_], raw, _CLOSING)
        self._pending_bytes += len(raw)
        if self._pending_bytes > self._buffer_limit:
            self._pending.clear()
            self.close()
        elif not self._wake.is_set():
            self._wake.set()


def open_watch(
    store: ObjectStore,
    kind: Kind,
    namespace: str | None,
    options: ListOptions,
    representation: Representation,
    *,
    buffer_limit: int,
) -> Watcher:
    """Opens a watch as the options ask for: from the present state, from a revision on, or as a streaming list.

    A revision that is compacted yields a watch that ends with a 410 ERROR event. Raises 504 for a streaming list at
    a revision that lies ahead.
    """
    collection = store[kind.storage]
    watcher = Watcher(
        collection,
        representation,
        namespace=namespace,
        selector=options.selector,
        buffer_limit=buffer_limit,
    )
    if _wants_state(options):
        _begin_with_state(store, watcher, options)
    else:
        _resume(collection, watcher, options.resource_version or 0)
    return watcher


def _begin_with_state(store: ObjectStore, watcher: Watcher, options: ListOptions) -> None:
    wanted = options.resource_version or 0
    if wanted > store.revision:
        raise too_large_resource_version(wanted, store.revision)
    watcher.send_state()
    if options.send_initial_events and options.bookmarks:
        watcher.bookmark(store.revision, initial_events_end=True)
    watcher.open()


def _resume(collection: Collection, watcher: Watcher, wanted: int) -> None:
    """Replays what happened after ``wanted`` and goes on from there; 0 goes on from now."""
    if wanted and wanted < collection.compacted:
        why = f"too old resource version: {wanted} ({collection.compacted})"
        watcher.fail(expired(why))
        return
    if wanted:
        watcher.send_history(collection.changes_since(wanted))
    watcher.open(after=wanted)


def _wants_state(options: ListOptions) -> bool:
    """Whether the stream begins with the existing objects: by default if no revision is given."""
    if options.send_initial_events is not None:
        return options.send_initial_events
    return not options.resource_version
