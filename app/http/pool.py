"""Connections that are kept between exchanges."""

import asyncio
from collections import defaultdict, deque
from typing import Final

import aiohttp
from aiohttp.client_reqrep import ConnectionKey

from app.http.connection import Connection, MakeParser


class Pool:
    """Makes connections with one of aiohttp's connectors and keeps them for a while."""

    def __init__(
        self, connector: aiohttp.BaseConnector, *, keepalive: float, make_parser: MakeParser
    ) -> None:
        """``keepalive``: seconds that a connection is kept at rest."""
        self._connector: Final = connector
        self._keepalive: Final = keepalive
        self._make_parser: Final = make_parser
        self._loop: Final = asyncio.get_running_loop()
        #: Those at rest with the moment they came to it, the last one used at the end.
        self._idle: Final[defaultdict[ConnectionKey, deque[tuple[float, Connection]]]] = (
            defaultdict(deque)
        )
        self._sweep_handle: asyncio.TimerHandle | None = None

    async def take(
        self, key: ConnectionKey, request: aiohttp.ClientRequest, limits: aiohttp.ClientTimeout
    ) -> Connection:
        """A connection for a request of this key; nothing was awaited since it was found fit.

        Raises TimeoutError, ClientError, OSError.
        """
        idle = self._idle[key]
        while idle:
            since, connection = idle.pop()
            if self._loop.time() - since <= self._keepalive and connection.wake():
                return connection
            connection.close()
        made = await self._connector.connect(request, [], limits)
        try:
            return Connection(made, self._make_parser)
        except BaseException:
            made.close()
            raise

    def give_back(self, key: ConnectionKey, connection: Connection) -> None:
        """Keeps a connection after an exchange, or closes it."""
        if self._connector.closed or not connection.rest():
            connection.close()
            return
        self._idle[key].append((self._loop.time(), connection))
        if self._sweep_handle is None:
            self._sweep_later()

    async def close(self) -> None:
        """Closes the connector and all connections."""
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
            self._sweep_handle = None
        self._idle.clear()
        await self._connector.close()

    def _sweep_later(self) -> None:
        self._sweep_handle = self._loop.call_later(self._keepalive, self._sweep)

    def _sweep(self) -> None:
        """Closes what has been at rest for too long."""
        oldest = self._loop.time() - self._keepalive
        for key, idle in list(self._idle.items()):
            while idle and idle[0][0] <= oldest:
                idle.popleft()[1].close()
            if not idle:
                del self._idle[key]
        self._sweep_handle = None
        if self._idle:
            self._sweep_later()
