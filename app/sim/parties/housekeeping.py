"""What a cluster clears away by itself: the contents of deleted namespaces, and old events."""

import asyncio
from collections import deque
from typing import Final

from app.sim.api import Api
from app.sim.objects import is_being_deleted
from app.sim.resources.deletion import DeleteOptions, delete_collection
from app.sim.resources.kinds import EVENTS, KINDS, NAMESPACES, is_stored
from app.sim.store import Change, Key

_RETRY_SECONDS: Final = 0.1
_EXPIRY_CHECK_SECONDS: Final = 30.0


class NamespaceSweeper:
    """Empties namespaces that are Terminating and then removes them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._namespaces = api.store[NAMESPACES.storage]
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Begins to follow the namespaces. Needs a running loop."""
        self._namespaces.listeners[self._on_namespace] = None

    def stop(self) -> None:
        self._namespaces.listeners.pop(self._on_namespace, None)
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _on_namespace(self, change: Change) -> None:
        name = change.key[1]
        terminating = change.type != "DELETED" and is_being_deleted(change.record.value)
        if terminating and name not in self._timers:
            self._sweep_after(name, 0)

    def _sweep_after(self, name: str, delay: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(delay, self._sweep, name)

    def _sweep(self, name: str) -> None:
        del self._timers[name]
        if ("", name) not in self._namespaces.records:
            return
        if self._empty(name):
            self._api.store.remove(NAMESPACES.storage, ("", name))
        else:
            self._sweep_after(name, _RETRY_SECONDS)

    def _empty(self, namespace: str) -> bool:
        """Deletes what is in a namespace; whether nothing is left (finalizers may hold objects)."""
        options = DeleteOptions(grace_period_seconds=0)
        empty = True
        for kind in KINDS:
            if kind.namespaced and is_stored(kind) and not kind.stored_as:
                collection = self._api.store[kind.storage]
                records = list(collection.ordered(namespace=namespace))
                delete_collection(self._api, kind, records, options)
                empty = empty and next(collection.ordered(namespace=namespace), None) is None
        return empty


class EventExpiry:
    """Forgets events that nobody has touched for their time to live."""

    def __init__(self, api: Api, *, ttl: float) -> None:
        self._api = api
        self._ttl = ttl
        self._events = api.store[EVENTS.storage]
        self._written: deque[tuple[float, Key, int]] = deque()
        """(time, key, revision) of each write, oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to note events. Needs a running loop."""
        self._events.listeners[self._on_event] = None
        self._check()

    def stop(self) -> None:
        self._events.listeners.pop(self._on_event, None)
        if self._timer is not None:
            self._timer.cancel()

    def _on_event(self, change: Change) -> None:
        if change.type != "DELETED":
            self._written.append((self._api.now(), change.key, change.revision))

    def _check(self) -> None:
        horizon = self._api.now() - self._ttl
        while self._written and self._written[0][0] <= horizon:
            _, key, revision = self._written.popleft()
            record = self._events.records.get(key)
            if record is not None and record.revision == revision:
                self._api.store.remove(EVENTS.storage, key)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_EXPIRY_CHECK_SECONDS, self._check)
