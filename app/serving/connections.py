"""Accepts connections to the endpoints and limits their number, in total and by source address, and their time.

At the limit a new connection replaces the oldest one that serves no request. So a client that holds connections open,
in the TLS handshake, in the headers of a request or idle, does not lock out others such as probes. The timeouts are
those of Kubernetes: HEAD_SECONDS for the handshake and for the headers of the first request, IDLE_SECONDS between two
requests.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import Final, cast

from aiohttp import web

from app.observe.metrics.process import Closed, ServingMetrics
from app.runtime.shortages import FIRST_RETRY, LAST_RETRY, SHORTAGES
from app.serving.options import ConnectionLimits

log = logging.getLogger(__name__)

HEAD_SECONDS: Final = 32.0
IDLE_SECONDS: Final = 90.0


class _Connection(asyncio.Protocol):
    """Passes the transport's calls to the HTTP protocol ``inner``, and enforces the timeout of the first request."""

    def __init__(self, connections: "Connections", source: str, inner: asyncio.Protocol) -> None:
        self.source: Final = source
        self.inner: Final = inner
        #: Whether a request is being served.
        self.serving = False
        #: The task that opens the connection (TLS handshake).
        self.opening: asyncio.Task[None] | None = None
        self._connections: Final = connections
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
        self._timer = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._check_first_request)
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
        self._connections.forget(self)
        self.inner.connection_lost(exc)

    def _check_first_request(self) -> None:
        if not self._heads:
            self._connections.close(self, Closed.HEAD)


class Connections:
    """All connections of one server."""

    def __init__(self, limits: ConnectionLimits, metrics: ServingMetrics) -> None:
        self._limits: Final = limits
        self._metrics: Final = metrics
        #: Oldest first, in total and by source address; and by HTTP protocol.
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
        """Accepts connections until cancelled; ``make_inner`` makes the HTTP protocols."""
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
        """Marks the connection as busy for the length of the block."""
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
        """Closes a connection that is still open, and counts it."""
        if connection in self._all:
            self._metrics.closed(why)
            self.forget(connection)
            connection.drop()

    def close_all(self) -> None:
        """Closes all connections."""
        for connection in list(self._all):
            self.forget(connection)
            connection.drop()

    def forget(self, connection: _Connection) -> None:
        """Removes a connection that is closed, or about to be."""
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
        """A new connection of this source, None if the limits do not allow it."""
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

    def _make_room(self, connections: Iterable[_Connection]) -> bool:
        """Closes the oldest connection that serves no request; False if each does."""
        connection = next((c for c in connections if not c.serving), None)
        if connection is None:
            return False
        self.close(connection, Closed.CROWDED)
        return True


async def _open(
    connections: Connections,
    connection: _Connection,
    accepted: socket.socket,
    context: ssl.SSLContext | None,
) -> None:
    """Passes a socket to the event loop and waits for the TLS handshake. Raises only CancelledError."""
    loop = asyncio.get_running_loop()
    accepted.setblocking(False)
    try:
        await loop.connect_accepted_socket(
            lambda: connection,
            accepted,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HEAD_SECONDS,
        )
    except Exception as error:  # noqa: BLE001 - a failed handshake concerns only this client
        SHORTAGES.noted(error, "accept connections", loop.time())
        connections.close(connection, Closed.HANDSHAKE)
        log.debug("A connection of %s was not opened: %r", connection.source, error)
    finally:
        connection.opening = None
        if not connection.opened:
            connections.forget(connection)
            accepted.close()
