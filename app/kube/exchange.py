"""Sends one request to the API server and reads its answer.

What aiohttp's ClientSession adds to each request (cookies, middlewares, a task, a writer, building headers) costs more than the
rest of a small request, and there are a dozen for every preemption. Therefore requests are written here: except for the first
line the headers are always the same.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import aiohttp

from app.http.body import read_beginning, read_whole
from app.http.pool import Pool
from app.http.request import Progress, Route

#: Largest answers in bytes: of errors, to reads (a list may be as large as the cluster), and to writes (objects in etcd have at
#: most 1.5 MB).
MAX_ERROR_BODY: Final = 1024 * 1024
MAX_READ: Final = 1024 * 1024 * 1024
MAX_WRITTEN: Final = 16 * 1024 * 1024

#: Methods that may be repeated on another connection, as in aiohttp's session.
_REPEATABLE: Final = frozenset({"GET", "DELETE"})
_BROKEN: Final = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)


class Answer(NamedTuple):
    """An answer, whatever its status; the body of an error is cut after MAX_ERROR_BODY bytes."""

    status: int
    #: The Retry-After header.
    retry_after: str | None
    body: bytes


class Request(NamedTuple):
    """One request, encoded."""

    method: str
    data: bytes
    #: Called right before the first byte is written to a connection. What it raises ends the exchange.
    before_sending: Callable[[], None]


async def exchange(
    pool: Pool, route: Route, request: Request, deadline: float, progress: Progress
) -> Answer:
    """Sends one request and reads the answer, until ``deadline`` in the loop's time.

    A connection that the server has closed is replaced if the method allows it. Raises TimeoutError,
    ClientError (also for an answer that is too large), OSError.
    """
    if request.method in _REPEATABLE:
        try:
            return await _once(pool, route, request, deadline, progress)
        except aiohttp.ClientConnectorError:
            raise
        except _BROKEN:
            pass
    return await _once(pool, route, request, deadline, progress)


async def _once(
    pool: Pool, route: Route, request: Request, deadline: float, progress: Progress
) -> Answer:
    connection = await pool.take(route, deadline)
    try:
        request.before_sending()
        progress.sent = True
        connection.write((request.data,))
        status, headers = await connection.answer()
        if status >= 300:
            body = await read_beginning(connection, MAX_ERROR_BODY)
        else:
            limit = MAX_READ if request.method == "GET" else MAX_WRITTEN
            body = await read_whole(connection, limit)
    except BaseException:
        pool.drop(connection)
        raise
    pool.give_back(route, connection)
    return Answer(status, headers.get("Retry-After"), body)
