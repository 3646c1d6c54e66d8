"""Watches one kind, in three functions that build on each other.

* ``watch_once``: one connection, as bytes lines, until the server ends it or it breaks;
* ``watch_resuming``: connection after connection, from the last known resourceVersion;
* ``watch_forever``: lists first, and again when the server no longer has the history (410). Never ends.

Dead connections are detected: the server is asked to end each connection after one to two minutes (jittered, so that
not all watches reconnect at once), and the client closes it shortly after that time. The time must be short, because no
changes arrive meanwhile; a proxy that has lost its server may keep our side of a connection open.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Final, TypeVar

import numpy as np

from app.kube.backoff import Backoff
from app.kube.discovery import is_absent
from app.kube.errors import (
    ConnectionFailed,
    Expired,
    Forbidden,
    KubeApiError,
    NotFound,
    ServerUnavailable,
    TooManyRequests,
    Unauthorized,
)
from app.kube.listing import list_pages
from app.kube.transport import Reader
from app.kube.watch_decoder import KindFeed, KubeObject, LineSplitter, ListPart, WatchEvent

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=KubeObject)

#: What a watch brings: part of a list, or a batch of changes.
WatchUpdate = ListPart[T] | list[WatchEvent[T]]

#: Seconds after which the server is asked to end a watch, from and to.
CONNECTION_LIFE: Final = (60.0, 120.0)
#: Seconds without data that are allowed after that.
SLACK: Final = 10.0
#: Seconds: after a shorter connection the next one is delayed.
TOO_SHORT: Final = 1.0
#: First and longest wait between attempts in seconds; jitter at most doubles them.
RETRY_FIRST: Final = 0.1
RETRY_LONGEST: Final = 5.0
#: Seconds between checks for a kind that the server does not have (up to double).
ABSENT_RETRY: Final = 300.0
#: Seconds for which an optional kind is refused before it counts as absent (an API server that starts also refuses what
#: it allows later), and seconds between attempts after that (up to double).
FORBIDDEN_SECONDS: Final = 3.0
FORBIDDEN_RETRY: Final = 30.0
#: Seconds after which the same error is logged again.
REPEAT_LOG: Final = 60.0

_RESUMABLE: Final = (ConnectionFailed, ServerUnavailable, TooManyRequests)


async def watch_once(
    reader: Reader, path: str, params: Mapping[str, str], rng: np.random.Generator
) -> AsyncGenerator[list[bytes], None]:
    """The complete lines of each chunk (none if it completes none). An incomplete last line is dropped."""
    life = int(rng.uniform(*CONNECTION_LIFE))
    asked = {
        **params,
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(life),
    }
    splitter = LineSplitter()
    async with reader.stream(path, params=asked, read_timeout=life + SLACK) as chunks:
        async for chunk in chunks:
            yield splitter.feed(chunk)


async def watch_resuming(
    reader: Reader, feed: KindFeed[T], rng: np.random.Generator
) -> AsyncGenerator[list[WatchEvent[T]], None]:
    """The changes since ``feed.resource_version``, a batch per chunk, over any number of connections.

    Raises Gone if the server no longer has that version, and errors that do not pass.
    """
    loop = asyncio.get_running_loop()
    backoff = _retries(rng)
    while True:
        heard, started = False, loop.time()
        try:
            async with aclosing(_follow(reader, feed, rng)) as batches:
                async for events in batches:
                    heard = True
                    yield events
            ended_well = loop.time() - started >= TOO_SHORT
        except _RESUMABLE as err:
            logger.debug("Watch of %s broke off: %s", feed.kind.name, err)
            ended_well = False
        if heard:
            backoff.reset()
        feed.reconnects += 1
        if not ended_well:
            await asyncio.sleep(backoff.next())


async def watch_forever(
    reader: Reader,
    feed: KindFeed[T],
    rng: np.random.Generator,
    others_read: Callable[[], bool] = lambda: True,
) -> AsyncGenerator[WatchUpdate[T], None]:
    """A list in parts, then batches of changes; another list whenever the history is lost. Never raises.

    An optional kind that may not be read counts as absent only if ``others_read``: an API server that starts may refuse
    everything.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    backoff = _retries(rng)
    complaints = _Complaints(feed.kind.name)
    while True:
        try:
            async with aclosing(_list_and_follow(reader, feed, rng)) as updates:
                async for update in updates:
                    feed.served = feed.known = True
                    if update and not isinstance(update, ListPart):
                        backoff.reset()
                    yield update
        except Expired as err:
            logger.info("%s: the server's history is gone, listing again: %s", feed.kind.name, err)
        except NotFound as err:
            asks = not feed.known or bool(feed.kind.older)
            absent = asks and await is_absent(reader, feed.kind.path)
            if absent and feed.try_older():
                continue
            if absent and not feed.known:
                feed.served = False
                if not feed.kind.optional:
                    complaints.note(err, "The server does not have %s, taken for empty: %s")
                yield ListPart({}, frozenset())
                await asyncio.sleep(ABSENT_RETRY * (1.0 + rng.random()))
                continue
            complaints.note(err, "Cannot list and watch %s: %s")
        except Forbidden as err:
            complaints.note(err, "Cannot list and watch %s: %s")
            began = began if others_read() else loop.time()
            if _counts_as_absent(feed, loop.time() - began):
                feed.served = False
                yield ListPart({}, frozenset())
                await asyncio.sleep(FORBIDDEN_RETRY * (1.0 + rng.random()))
                continue
        except KubeApiError as err:
            complaints.note(err, "Cannot list and watch %s: %s")
        await asyncio.sleep(backoff.next())


def _counts_as_absent(feed: KindFeed[T], seconds: float) -> bool:
    """Whether a kind counts as absent that could not be read for so many seconds; logs it the first time."""
    absent = feed.kind.optional and not feed.known and seconds >= FORBIDDEN_SECONDS
    if absent and feed.served:
        logger.warning("%s counts as absent: it may not be read", feed.kind.name)
    return absent


async def _list_and_follow(
    reader: Reader, feed: KindFeed[T], rng: np.random.Generator
) -> AsyncGenerator[WatchUpdate[T], None]:
    """Raises NotFound for an optional kind that may not be listed and that the server does not have.

    kube-scheduler's role does not cover these kinds, and the API server checks rights first.
    """
    try:
        async with aclosing(list_pages(reader, feed)) as parts:
            async for part in parts:
                yield part
    except Forbidden as err:
        asks = feed.kind.optional and not feed.known
        if asks and await is_absent(reader, feed.kind.path):
            raise NotFound(err.message, status=404) from err
        raise
    async with aclosing(watch_resuming(reader, feed, rng)) as changes:
        async for events in changes:
            yield events


async def _follow(
    reader: Reader, feed: KindFeed[T], rng: np.random.Generator
) -> AsyncGenerator[list[WatchEvent[T]], None]:
    """The events of one connection in batches. Raises KubeApiError as ``KindFeed.read`` does."""
    loop = asyncio.get_running_loop()
    params = {**feed.kind.params, "resourceVersion": feed.resource_version}
    async with aclosing(watch_once(reader, feed.kind.path, params, rng)) as lines:
        async for batch in lines:
            feed.heard_at = loop.time()
            for events in feed.batches(batch, loop.time):
                yield events


def _retries(rng: np.random.Generator) -> Backoff:
    return Backoff(rng, initial=RETRY_FIRST, cap=RETRY_LONGEST)


class _Complaints:
    """Logs an error, at most once a minute while it stays the same."""

    def __init__(self, kind: str) -> None:
        self._kind: Final = kind
        self._last = ""
        self._at = 0.0

    def note(self, err: KubeApiError, text: str) -> None:
        """Logs ``text``, which has placeholders for the kind and the error."""
        if isinstance(err, Unauthorized):  # the client logs that once for all kinds
            logger.debug(text, self._kind, err)
            return
        now = asyncio.get_running_loop().time()
        if str(err) != self._last or now - self._at >= REPEAT_LOG:
            self._last, self._at = str(err), now
            logger.warning(text, self._kind, err)
