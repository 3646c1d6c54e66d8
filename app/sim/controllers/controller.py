"""The base of all controllers: it follows kinds of objects, and reconciles the keys that are concerned by a change."""

import asyncio
import logging
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from app.sim.api import Api
from app.sim.errors import ApiError
from app.sim.resources.kinds import EVENTS, Kind
from app.sim.store import Collection, Listener, Object, StoreChange

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


class Controller(Generic[K]):
    """Brings a part of the cluster into the state that its objects ask for.

    ``handlers`` are called for each change of an object of their kind, before the writer gets its answer, and once for
    each object that exists at the start. A handler acts at once, or it calls ``enqueue`` with a key, for which
    ``reconcile`` is called later: once for all changes until then.
    """

    def __init__(self, api: Api, handlers: Mapping[Kind, Listener]) -> None:
        self._api = api
        self._handlers = handlers
        self._queue: dict[K, tuple[float, asyncio.Handle]] = {}
        """key -> (the loop's time at which it is due, its timer)."""

    def start(self) -> None:
        """Starts with the objects that exist. Needs a running loop."""
        for kind, handler in self._handlers.items():
            collection = self._api.store[kind.storage]
            collection.listeners[handler] = None
            self._replay(collection, handler)

    def _replay(self, collection: Collection, handler: Listener) -> None:
        """Calls a handler for each object that exists. What one raises is logged."""
        for key, record in list(collection.records.items()):
            try:
                handler(StoreChange("ADDED", collection.resource, key, record, None))
            except Exception:
                log.exception("%s cannot handle %s", type(self).__name__, "/".join(key))

    def stop(self) -> None:
        """Stops, and leaves all objects as they are."""
        for kind, handler in self._handlers.items():
            self._api.store[kind.storage].listeners.pop(handler, None)
        for key in list(self._queue):
            self.cancel(key)

    def enqueue(self, key: K, delay: float = 0.0) -> None:
        """Calls ``reconcile`` for a key in ``delay`` seconds, unless it is due earlier already."""
        loop = asyncio.get_running_loop()
        due = loop.time() + delay
        known = self._queue.get(key)
        if known is not None:
            if known[0] <= due:
                return
            known[1].cancel()
        handle = loop.call_later(delay, self._run, key) if delay else loop.call_soon(self._run, key)
        self._queue[key] = due, handle

    def cancel(self, key: K) -> None:
        """Removes a key from the queue, if it is there."""
        known = self._queue.pop(key, None)
        if known is not None:
            known[1].cancel()

    def reconcile(self, key: K) -> None:
        """Compares the state that a key stands for with the state that it should have, and changes it.

        May raise ApiError.
        """
        raise NotImplementedError

    def warn(
        self, about: Object, event_name: str, reason: str, message: str, component: str
    ) -> None:
        """Creates an event about an object. Raises ApiError."""
        metadata, now = about["metadata"], self._api.timestamp()
        names = {part: metadata[part] for part in ("namespace", "name", "uid", "resourceVersion")}
        event = {
            "metadata": {"name": event_name},
            "involvedObject": {"kind": about["kind"], "apiVersion": about["apiVersion"], **names},
            "reason": reason,
            "message": message,
            "type": "Warning",
            "source": {"component": component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._api.create(EVENTS, metadata["namespace"], event)

    def _run(self, key: K) -> None:
        del self._queue[key]
        try:
            self.reconcile(key)
        except ApiError as error:
            log.warning("%s cannot reconcile %s: %s", type(self).__name__, key, error.message)
        except Exception:
            log.exception("%s cannot reconcile %s", type(self).__name__, key)
