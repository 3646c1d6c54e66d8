"""Informers keep the objects of one kind in memory and pass every change to a handler.

One task per kind. The handler sees each change after the store has it. Other tasks run at least every TURN seconds,
and one change is handled without awaiting. No pod should be scheduled before ``wait_synced`` has returned for all
kinds.
"""

import asyncio
import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np

from app.kube.listing import SLICE
from app.kube.transport import Reader
from app.kube.watch import watch_forever
from app.kube.watch_decoder import (
    BOOKMARK,
    DELETED,
    TURN,
    KindFeed,
    KubeObject,
    ListPart,
    ResourceKind,
    WatchEvent,
)

T = TypeVar("T", bound=KubeObject)

#: Keys of unusable objects that are shown.
MAX_SHOWN: Final = 100

#: (old, new): ``old`` is None for a new object, ``new`` for one that has gone.
OldNew = tuple[T | None, T | None]
#: Gets (old, new) of a change. Raises to reject the object.
Handler = Callable[[T | None, T | None], None]
#: New objects of a list, by key. Returns the keys of the objects that it rejects, with the errors.
ListHandler = Callable[[Mapping[str, T]], Mapping[str, Exception]]


class Store(Generic[T]):
    """``key -> object``; computes the changes by events and lists."""

    def __init__(self) -> None:
        self._objects: Final[dict[str, T]] = {}
        #: A read-only view.
        self.objects: Final[Mapping[str, T]] = MappingProxyType(self._objects)

    def apply(self, event: WatchEvent[T]) -> Iterator[OldNew[T]]:
        """The changes by one watch event: none if nothing is new, two if the object was replaced."""
        kind, item = event
        if kind == DELETED:
            yield from self._remove(item.key, item.uid)
        elif kind != BOOKMARK:
            yield from self._put(item)  # type: ignore[arg-type]  # only a BOOKMARK comes with a Bookmark

    def compare(self, items: Mapping[str, T]) -> Iterator[OldNew[T]]:
        """The changes by a list to known objects; each is applied when it is yielded."""
        for key in items:
            if key in self._objects:
                yield from self._put(items[key])

    def add(self, items: Mapping[str, T]) -> Mapping[str, T]:
        """Adds the new objects of a list, and returns them."""
        objects = self._objects
        if objects.keys().isdisjoint(items):
            new = items
        else:
            new = {key: item for key, item in items.items() if key not in objects}
        objects.update(new)
        return new

    def retain(self, keys: Container[str]) -> Iterator[OldNew[T]]:
        """Removes all objects except these keys of a complete list; yields the changes."""
        for key in [key for key in self._objects if key not in keys]:
            yield self._objects.pop(key), None

    def _put(self, item: T) -> Iterator[OldNew[T]]:
        key = item.key
        old = self._objects.get(key)
        if old is not None and old.uid != item.uid:
            yield from self._remove(key, old.uid)
            old = None
        if old is None:
            self._objects[key] = item
            yield None, item
        elif old.resource_version != item.resource_version:
            self._objects[key] = item
            yield old, item

    def _remove(self, key: str, uid: str) -> Iterator[OldNew[T]]:
        old = self._objects.get(key)
        if old is not None and old.uid == uid:
            del self._objects[key]
            yield old, None


class InformerStatistics(msgspec.Struct, frozen=True):
    """Figures of an informer. Times are the event loop's, in seconds."""

    kind: str
    synced: bool
    #: Whether the server has this kind.
    served: bool
    objects: int
    #: When data last arrived from the server, None if never, and how long ago that was.
    heard_at: float | None
    age: float | None
    lists: int
    reconnects: int
    decode_errors: int
    #: Objects that exist and cannot be decoded.
    unreadable: int
    handler_errors: int
    #: Objects that exist, can be decoded, and were rejected by the handler.
    refused: int


class Informer(Generic[T]):
    """Keeps the objects of one kind up to date while ``run`` runs."""

    def __init__(
        self,
        kind: ResourceKind[T],
        reader: Reader,
        handler: Handler[T],
        *,
        rng: np.random.Generator,
        on_list: ListHandler[T] | None = None,
        after: Iterable["Informer[Any]"] = (),
        beside: "Informer[Any] | None" = None,
    ) -> None:
        """``on_list`` gets the new objects of a list together; without it ``handler`` gets them one by one.

        An exception of these concerns only its object: it is logged and counted, and the next object is handled.

        ``after``: informers whose first lists are handled before that of this one. An optional kind
        that may not be read does not count as absent before the kind of ``beside`` was read.
        """
        #: Set once the first list has been handled.
        self.synced: Final = asyncio.Event()
        self._reader: Final = reader
        self._handler: Final = handler
        self._on_list: Final = on_list
        self._rng: Final = rng
        self._after: Final = tuple(after)
        self._feed: Final = KindFeed(kind)
        self._others_read: Final = (lambda: True) if beside is None else beside.was_read
        self._store: Final = Store[T]()
        #: New objects of a list whose end has not come.
        self._new: Final[dict[str, T]] = {}

    @property
    def objects(self) -> Mapping[str, T]:
        """The objects by key, read-only."""
        return self._store.objects

    @property
    def kind(self) -> ResourceKind[T]:
        """The kind in the version that is watched."""
        return self._feed.kind

    def served(self) -> str:
        """The path of the kind if the server had it when it was last asked, or was not asked yet; else empty."""
        return self._feed.kind.path if self._feed.served else ""

    def was_read(self) -> bool:
        """Whether the server has ever sent a list of the kind."""
        return self._feed.known

    async def run(self) -> None:
        """Lists, watches and calls the handlers until cancelled."""
        watched = watch_forever(self._reader, self._feed, self._rng, self._others_read)
        async with aclosing(watched) as updates:
            async for update in updates:
                if isinstance(update, ListPart):
                    await wait_synced(self._after)
                    await self._take(update)
                else:
                    await self._handle_all(
                        change for event in update for change in self._store.apply(event)
                    )
                await asyncio.sleep(0)

    async def _take(self, part: ListPart[T]) -> None:
        """Handles changes and deletions before new objects: no new pod is tried beside pods that have gone.

        What has gone is known with the last part. In the first list nothing has.
        """
        store = self._store
        await self._handle_all(store.compare(part.items))
        if self.synced.is_set():
            known = store.objects
            self._new.update((key, item) for key, item in part.items.items() if key not in known)
        else:
            self._add(part.items)
        if part.keys is None:
            return
        await self._handle_all(store.retain(part.keys))
        # Parts of a list that failed may be among them.
        new = iter([(key, item) for key, item in self._new.items() if key in part.keys])
        self._new.clear()
        while some := dict(itertools.islice(new, SLICE)):
            self._add(some)
            await asyncio.sleep(0)
        self.synced.set()

    def _add(self, items: Mapping[str, T]) -> None:
        new = self._store.add(items)
        if new:
            self._handle_new(new)

    def _handle_new(self, objects: Mapping[str, T]) -> None:
        if self._on_list is None:
            for item in objects.values():
                self._handle(None, item)
            return
        try:
            refused = self._on_list(objects)
        except Exception as err:  # noqa: BLE001 - see __init__
            refused = dict.fromkeys(objects, err)
        for key, reason in refused.items():
            self._feed.refuse(key, reason)

    async def _handle_all(self, changes: Iterable[OldNew[T]]) -> None:
        """Handles changes one after another; other tasks run in between."""
        now = asyncio.get_running_loop().time
        until = now() + TURN
        for change in changes:
            self._handle(*change)
            if now() >= until:
                await asyncio.sleep(0)
                until = now() + TURN

    def _handle(self, old: T | None, new: T | None) -> None:
        """Calls the handler for a change."""
        if self._feed.refused:
            self._feed.refused.discard(_key(old, new))
        try:
            self._handler(old, new)
        except Exception as err:  # noqa: BLE001 - see __init__
            self._feed.refuse(_key(old, new), err, exists=new is not None)

    def statistics(self) -> InformerStatistics:
        """Figures for metrics and for people."""
        feed = self._feed
        now = asyncio.get_running_loop().time()
        return InformerStatistics(
            kind=self.kind.name,
            synced=self.synced.is_set(),
            served=feed.served,
            objects=len(self.objects),
            heard_at=feed.heard_at,
            age=None if feed.heard_at is None else now - feed.heard_at,
            lists=feed.lists,
            reconnects=feed.reconnects,
            decode_errors=feed.decode_errors,
            unreadable=len(feed.unreadable),
            handler_errors=feed.handler_errors,
            refused=len(feed.refused),
        )

    def describe(self) -> Mapping[str, Any]:
        """The figures as JSON values, with the keys of up to MAX_SHOWN unreadable and rejected objects each."""
        return msgspec.structs.asdict(self.statistics()) | {
            "unreadable_objects": _some(self._feed.unreadable),
            "refused_objects": _some(self._feed.refused),
        }


def _key(old: T | None, new: T | None) -> str:
    item = new if old is None else old
    return "" if item is None else item.key


def _some(keys: Iterable[str]) -> list[str]:
    return sorted(itertools.islice(keys, MAX_SHOWN))


async def wait_synced(informers: Iterable[Informer[T]]) -> None:
    """Returns when every informer has handled its first list."""
    for informer in informers:
        await informer.synced.wait()
