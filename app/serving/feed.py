"""Serves ``/debug/feed``: the feed of the running scheduler, as server-sent events (docs/dashboard.md).

The feed is computed at most once per INTERVAL, by the listener that asks first, and sent to all. A listener has no
buffer of its own but a position in the changes that the feed keeps: one that is too slow for them gets a snapshot. An
answer ends after FEED_SECONDS, so that the limits of time and the checks of access hold as for any request; clients
continue with Last-Event-ID.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Final

from aiohttp import web
from aiohttp.hdrs import METH_HEAD

from app.observe.feed import Feed
from app.observe.metrics.process import ServingMetrics
from app.runtime.tasks import in_steps
from app.serving.access import RequestRejected, status_response
from app.serving.pages import UnfinishedError

#: Seconds between two changes.
INTERVAL: Final = 0.5
#: Seconds after which an answer ends; less than server.REQUEST_SECONDS, to which a slow client may add.
FEED_SECONDS: Final = 45.0
#: Seconds for which the feed goes on without listeners, so that they can continue.
LINGER_SECONDS: Final = 5.0
MAX_LISTENERS: Final = 32
_EVENT_ID: Final = re.compile(r"(\d{1,18})-(\d{1,18})")
#: Milliseconds after which a browser asks again.
_RETRY: Final = 200


class FeedPages:
    """The endpoint."""

    def __init__(
        self,
        feed: Feed,
        *,
        stopping: Callable[[], bool],
        metrics: ServingMetrics,
    ) -> None:
        self._feed: Final = feed
        self._stopping: Final = stopping
        self._metrics: Final = metrics
        self._turn: Final = asyncio.Lock()
        self._ended = False
        self._listeners = 0
        self._due: float | None = None
        self._release: asyncio.TimerHandle | None = None

    def routes(self) -> list[web.RouteDef]:
        """The endpoint."""
        return [web.get("/debug/feed", self._listen)]

    def end(self) -> None:
        """Ends all answers, within INTERVAL."""
        self._ended = True

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        if self._listeners >= MAX_LISTENERS:
            text = f"{MAX_LISTENERS} listeners are served already"
            raise RequestRejected(status_response(429, "TooManyRequests", text))
        with self._listening():
            response = web.StreamResponse(
                headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache, private"}
            )
            if request.method == METH_HEAD:
                return response
            await response.prepare(request)
            await response.write(b"retry: %d\n\n" % _RETRY)
            await self._send(response, self._position(request))
            await response.write_eof()
        return response

    async def _send(self, response: web.StreamResponse, seen: int | None) -> None:
        now = asyncio.get_running_loop().time
        end = now() + FEED_SECONDS
        while now() < end and not self._ended and not self._stopping():
            try:
                changes = await self._changes(seen)
                if changes is None:
                    if seen is not None:
                        self._metrics.skipped()
                    seen, events = await self._snapshot()
                elif changes:
                    seen = changes[-1][0]
                    events = b"".join(event for _, event in changes)
                else:
                    continue
            except Exception as error:
                raise UnfinishedError from error
            await response.write(events)

    async def _changes(self, seen: int | None) -> list[tuple[int, bytes]] | None:
        """The changes after a version, at least one; waits for it. None if a snapshot is needed."""
        now = asyncio.get_running_loop().time
        if self._due is not None and seen == self._feed.version:
            await asyncio.sleep(self._due - now())
        async with self._turn:
            if self._due is None:
                self._feed.open()
                self._due = now()
            if now() >= self._due:
                await in_steps(self._feed.advance())
                self._due = now() + INTERVAL
            return None if seen is None else self._feed.since(seen)

    async def _snapshot(self) -> tuple[int, bytes]:
        """The present version, and its snapshot."""
        async with self._turn:
            return self._feed.version, await in_steps(self._feed.snapshot())

    def _position(self, request: web.Request) -> int | None:
        """The version that a client has seen."""
        said = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        found = _EVENT_ID.fullmatch(said)
        if found is None or int(found[1]) != self._feed.instance or self._due is None:
            return None
        return int(found[2])

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        if self._release is not None:
            self._release.cancel()
            self._release = None
        self._listeners += 1
        self._metrics.listeners(self._listeners)
        try:
            yield
        finally:
            self._listeners -= 1
            self._metrics.listeners(self._listeners)
            if not self._listeners:
                loop = asyncio.get_running_loop()
                self._release = loop.call_later(LINGER_SECONDS, self._close)

    def _close(self) -> None:
        self._release = None
        self._due = None
        self._feed.close()
