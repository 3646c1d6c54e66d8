"""Keeps HTTP connections between exchanges."""

import asyncio
import math
from collections import defaultdict, deque
from typing import Final

from app.http.connection import HTTPConnection, KnownHeads
from app.http.dial import Dialer
from app.http.errors import ServerDisconnectedError
from app.http.request import Endpoint, Route
from app.runtime.shortages import FIRST_RETRY, LAST_RETRY, SHORTAGES


class Pool:
    """Opens connections and keeps them for some time."""

    def __init__(
        self,
        dialer: Dialer,
        *,
        keepalive: float,
        connect_seconds: float | None = None,
        heads: KnownHeads | None = None,
    ) -> None:
        """``keepalive``: seconds that an idle connection is kept. ``connect_seconds``: the timeout of connecting; None
        for the exchange's deadline. ``heads``: of answers that need not be parsed again, if servers repeat them.
        """
        self._dialer: Final = dialer
        self._closed = False
        self._keepalive: Final = keepalive
        self._connect_seconds: Final = connect_seconds
        self._heads: Final = heads
        self._loop: Final = asyncio.get_running_loop()
        #: The time of deadlines.
        self.now: Final = self._loop.time
        #: Idle connections with the time since when they are idle; the last used at the end.
        self._idle: Final[defaultdict[Endpoint, deque[tuple[float, HTTPConnection]]]] = defaultdict(
            deque
        )
        self._sweep_handle: asyncio.TimerHandle | None = None
        #: Connections in use. One timer ends all that take too long; a timer for each exchange would cost more than its
        #: parsing.
        self._busy: Final[set[HTTPConnection]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf

    async def take(self, route: Route, deadline: float) -> HTTPConnection:
        """A connection for a request on this route, checked without an await since.

        At ``deadline``, in the loop's time, the exchange fails with a TimeoutError. ``give_back`` or ``drop``
        it. Raises TimeoutError, HTTPError, OSError.
        """
        return self.kept(route, deadline) or await self.dialled(route, deadline)

    def kept(self, route: Route, deadline: float) -> HTTPConnection | None:
        """As ``take``, if there is an idle connection; else None."""
        idle = self._idle.get(route.endpoint)
        if not idle:
            return None
        oldest = self.now() - self._keepalive
        while idle:
            since, connection = idle.pop()
            if since >= oldest and connection.acquire():
                self._busy.add(connection)
                self.extend(connection, deadline)
                return connection
            connection.close()
        return None

    async def dialled(self, route: Route, deadline: float) -> HTTPConnection:
        """As ``take``, with a new connection."""
        async with asyncio.timeout_at(deadline):
            connection = await self._dial(route, deadline)
        self._busy.add(connection)
        self.extend(connection, deadline)
        return connection

    def extend(self, connection: HTTPConnection, deadline: float) -> None:
        """Gives a connection in use another deadline."""
        connection.deadline = deadline
        if deadline < self._alarm_at:
            self._set_alarm(deadline)

    async def _dial(self, route: Route, deadline: float) -> HTTPConnection:
        """A new connection; retries until the deadline while file descriptors or memory are short."""
        retry = FIRST_RETRY
        while True:
            try:
                async with asyncio.timeout(self._connect_seconds):
                    connection = await self._dialer.dial(route.endpoint)
                break
            except OSError as err:
                now = self._loop.time()
                if not SHORTAGES.noted(err, "connect", now) or now + retry >= deadline:
                    raise
            self._close_idle()
            await asyncio.sleep(retry)
            retry = min(2 * retry, LAST_RETRY)
        # What a server sends before the request is no answer to it.
        if self._closed or not connection.untouched:
            connection.close()
            raise ServerDisconnectedError
        connection.heads = self._heads
        return connection

    def _close_idle(self) -> None:
        for idle in self._idle.values():
            for _, connection in idle:
                connection.close()
        self._idle.clear()

    def drop(self, connection: HTTPConnection) -> None:
        """Closes a connection that was taken."""
        self._busy.discard(connection)
        connection.close()

    def give_back(self, route: Route, connection: HTTPConnection) -> None:
        """Keeps a connection after an exchange, or closes it."""
        self._busy.discard(connection)
        if self._closed or not connection.release():
            connection.close()
            return
        self._idle[route.endpoint].append((self.now(), connection))
        if self._sweep_handle is None:
            self._sweep_later()

    async def close(self) -> None:
        """Closes all connections."""
        self._closed = True
        self._dialer.close()
        for timer in (self._sweep_handle, self._alarm):
            if timer is not None:
                timer.cancel()
        self._close_idle()
        for connection in self._busy:
            connection.close()
        self._busy.clear()
        await asyncio.sleep(0)  # for the transports to close

    def _sweep_later(self) -> None:
        self._sweep_handle = self._loop.call_later(self._keepalive, self._sweep)

    def _sweep(self) -> None:
        """Closes connections that were idle for too long."""
        oldest = self._loop.time() - self._keepalive
        for key, idle in list(self._idle.items()):
            while idle and idle[0][0] <= oldest:
                idle.popleft()[1].close()
            if not idle:
                del self._idle[key]
        self._sweep_handle = None
        if self._idle:
            self._sweep_later()

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_at(at, self._end_late) if at < math.inf else None

    def _end_late(self) -> None:
        now = self._loop.time()
        late = [connection for connection in self._busy if connection.deadline <= now]
        self._busy.difference_update(late)
        for connection in late:
            connection.expire()
        self._set_alarm(min((c.deadline for c in self._busy), default=math.inf))
