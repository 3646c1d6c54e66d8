"""The connections of callers: so many in total and of one source, and none for longer than it is made use of.

A new connection is taken in before an old one that serves no request: a caller who holds connections open, in the TLS handshake,
in the head of a request or at rest, keeps nobody out, probes least of all. Limits are Kubernetes' own where it has any:
HEAD_SECONDS for a handshake and for the head of the first request, IDLE_SECONDS from an answer to the head of the next request.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from aiohttp import web

from app.observe.metrics.serving import Closed, ServingMetrics
from app.runtime.shortages import FIRST_RETRY, LAST_RETRY, SHORTAGES
from app.serving.options import ConnectionLimits

log = logging.getLogger(__name__)

HEAD_SECONDS: Final = 32.0
IDLE_SECONDS: Final = 90.0


class _Connection(asyncio.Protocol):
    """Passes on what the transport says to the protocol that speaks HTTP, and watches over the time."""

    def __init__(self, held: "Connections", source: str, inner: asyncio.Protocol) -> None:
        self.source: Final = source
        self.inner: Final = inner
        #: Whether a request is being served.
        self.serving = False
        #: Opens the connection: the TLS handshake.
        self.opening: asyncio.Task[None] | None = None
        self._held: Final = held
        self._heads = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def served(self, *, now: bool) -> None:
        """A request begins or ends."""
        self.serving = now
        self._heads += now

    @property
    def opened(self) -> bool:
        """Whether the handshake is over."""
        return self._transport is not None

    def drop(self) -> None:
        """Closes it at once."""
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._look)
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """See asyncio.Protocol."""
        return self.inner.eof_received()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if self._timer is not None:
            self._timer.cancel()
        self._held.forget(self)
        self.inner.connection_lost(exc)

    def _look(self) -> None:
        if not self._heads:
            self._held.close(self, Closed.HEAD)


class Connections:
    """All connections of one server."""

    def __init__(self, limits: ConnectionLimits, metrics: ServingMetrics) -> None:
        self._limits: Final = limits
        self._metrics: Final = metrics
        #: The oldest first, in total and by source; and by the protocol that speaks HTTP.
        self._all: Final[dict[_Connection, None]] = {}
        self._by_source: Final[dict[str, dict[_Connection, None]]] = {}
        self._by_inner: Final[dict[object, _Connection]] = {}

    def __len__(self) -> int:
        return len(self._all)

    async def accept(
        self,
        listening: socket.socket,
        make_inner: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
    ) -> None:
        """Accepts connections until cancelled; ``make_inner`` makes the protocols that speak HTTP."""
        loop = asyncio.get_running_loop()
        retry = FIRST_RETRY
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    accepted, address = await loop.sock_accept(listening)
                except OSError as error:
                    if SHORTAGES.noted(error, "accept connections", loop.time()):
                        self._make_room(self._all)
                    await asyncio.sleep(retry)
                    retry = min(2 * retry, LAST_RETRY)
                    continue
                retry = FIRST_RETRY
                connection = self._admitted(str(address[0]), make_inner)
                if connection is None:
                    accepted.close()
                else:
                    opening = _open(self, connection, accepted, context)
                    connection.opening = group.create_task(opening, name="accept a connection")
                await asyncio.sleep(0)

    @contextlib.contextmanager
    def serving(self, request: web.Request) -> Iterator[None]:
        """The time during which a request is served."""
        connection = self._by_inner.get(request.protocol)
        if connection is None:
            yield
            return
        connection.served(now=True)
        try:
            yield
        finally:
            connection.served(now=False)

    def close(self, connection: _Connection, why: Closed) -> None:
        """Closes a connection and counts that, once."""
        if connection in self._all:
            self._metrics.closed(why)
            self.forget(connection)
            connection.drop()

    def close_all(self) -> None:
        """Closes what is left."""
        for connection in list(self._all):
            self.forget(connection)
            connection.drop()

    def forget(self, connection: _Connection) -> None:
        """A connection is closed, or about to be."""
        if connection not in self._all:
            return
        del self._all[connection]
        del self._by_inner[connection.inner]
        of_source = self._by_source[connection.source]
        del of_source[connection]
        if not of_source:
            del self._by_source[connection.source]
        self._metrics.connections(len(self._all))

    def _admitted(
        self, source: str, make_inner: Callable[[], asyncio.Protocol]
    ) -> _Connection | None:
        """A connection of this source, None if there is no place for it."""
        of_source = self._by_source.get(source, {})
        if (len(of_source) >= self._limits.per_source and not self._make_room(of_source)) or (
            len(self._all) >= self._limits.total and not self._make_room(self._all)
        ):
            self._metrics.closed(Closed.REFUSED)
            return None
        connection = _Connection(self, source, make_inner())
        self._all[connection] = None
        self._by_source.setdefault(source, {})[connection] = None
        self._by_inner[connection.inner] = connection
        self._metrics.connections(len(self._all))
        return connection

    def _make_room(self, held: Iterable[_Connection]) -> bool:
        """Closes the oldest connection that serves no request; False if each does."""
        connection = next((c for c in held if not c.serving), None)
        if connection is None:
            return False
        self.close(connection, Closed.CROWDED)
        return True


async def _open(
    held: Connections,
    connection: _Connection,
    accepted: socket.socket,
    context: ssl.SSLContext | None,
) -> None:
    """Hands a socket to the event loop, and waits for the TLS handshake. Never raises but when cancelled."""
    loop = asyncio.get_running_loop()
    accepted.setblocking(False)
    try:
        await loop.connect_accepted_socket(
            lambda: connection,
            accepted,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HEAD_SECONDS,
        )
    except Exception as error:  # noqa: BLE001 - whatever ends a handshake is one caller's affair
        SHORTAGES.noted(error, "accept connections", loop.time())
        held.close(connection, Closed.HANDSHAKE)
        log.debug("A connection of %s was not opened: %r", connection.source, error)
    finally:
        connection.opening = None
        if not connection.opened:
            held.forget(connection)
            accepted.close()
