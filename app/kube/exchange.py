"""One request to the API server and its answer.

What aiohttp's ClientSession adds for everybody (cookies, middlewares, a task and a writer per request, headers put together
anew) costs more than all the rest of a small request, and there are a dozen for every preemption. So requests are written
here: all of a head but its first line is the same every time.
"""

import asyncio
import math
import ssl
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

import aiohttp
from aiohttp.http import HttpResponseParser
from aiohttp.streams import StreamReader
from yarl import URL

from app.http.pool import Pool
from app.http.proxy import Proxy
from app.kube.transport import Guard

#: Bytes that are read of an answer: of an error, to a read (a list may be as large as the cluster), and to a write (etcd takes
#: objects of 1.5 MB).
MAX_ERROR_BODY: Final = 1024 * 1024
MAX_READ: Final = 1024 * 1024 * 1024
MAX_WRITTEN: Final = 16 * 1024 * 1024

_READ_BUFFER: Final = 1024 * 1024
#: Heads that are kept ready: few are needed until the credentials change.
_MAX_HEADERS: Final = 16
#: Methods that may be sent once more on another connection, as aiohttp's session does.
_REPEATABLE: Final = frozenset({"GET", "DELETE"})
_BROKEN: Final = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)
_PARSER: Final = partial(
    HttpResponseParser,
    limit=_READ_BUFFER,
    payload_exception=aiohttp.ClientPayloadError,
    read_until_eof=True,
    auto_decompress=False,
)


class Answer(NamedTuple):
    """An answer, whatever its status; the body of an error is cut after MAX_ERROR_BODY bytes."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Progress:
    """How far an exchange got."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        #: Whether any byte was handed to a connection.
        self.sent = False


class Peer:
    """A server, as whom to speak to it over which TLS, and what that makes of heads."""

    def __init__(
        self,
        server: str,
        fixed: Iterable[tuple[str, str]],
        *,
        tls: ssl.SSLContext | bool,
        server_hostname: str | None,
        proxy: Proxy | None,
    ) -> None:
        """``server``: URL without a slash at its end; ``fixed``: headers of every request, names perhaps repeated, those for
        a proxy that forwards requests among them.
        """
        url = URL(f"{server}/", encoded=True)
        self.tls: Final = tls
        #: What aiohttp connects by.
        self.request: Final = aiohttp.ClientRequest(
            "GET",
            url,
            loop=asyncio.get_running_loop(),
            ssl=tls,
            server_hostname=server_hostname,
            proxy=URL(proxy.url) if proxy else None,
            proxy_headers=proxy.headers if proxy else None,
        )
        #: What connections to it are kept under.
        self.key: Final = self.request.connection_key
        #: A proxy that is not tunnelled through is told the whole URL.
        forwarded = proxy is not None and url.scheme == "http"
        self._prefix: Final = server if forwarded else url.raw_path.removesuffix("/")
        self._fixed: Final = (("Host", self.request.headers["Host"]), *fixed)
        #: By the identity of the headers, which are kept so that it stays theirs.
        self._rest: Final[dict[int, tuple[Mapping[str, str], bytes]]] = {}

    def head(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        """The head of a request. ``headers`` are remembered by their identity: an object must not change.

        Raises ValueError for headers that would break out of their lines.
        """
        known = self._rest.get(id(headers))
        if known is None:
            if len(self._rest) >= _MAX_HEADERS:
                self._rest.clear()
            known = self._rest[id(headers)] = (headers, _lines((*self._fixed, *headers.items())))
        length = b"" if body is None else b"Content-Length: %d\r\n" % len(body)
        return b"%b %b%b HTTP/1.1\r\n%b%b\r\n" % (
            method.encode(),
            self._prefix.encode(),
            target.encode(),
            known[1],
            length,
        )


def _lines(headers: Iterable[tuple[str, str]]) -> bytes:
    lines = [f"{name}: {value}" for name, value in headers]
    for line in lines:
        if any(char in "\r\n\0" for char in line):
            raise ValueError(f"header {line.partition(':')[0]!r} holds a line break or NUL")
    return "".join(f"{line}\r\n" for line in lines).encode()


def open_pool(connector: aiohttp.BaseConnector, *, keepalive: float) -> Pool:
    """Where connections are kept, for ``keepalive`` seconds at rest."""
    return Pool(connector, keepalive=keepalive, make_parser=_PARSER)


class Request(NamedTuple):
    """One request, encoded."""

    method: str
    data: bytes
    #: Asked when the connection is there, right before the first byte is written.
    guard: Guard | None


class GuardRefused(Exception):  # noqa: N818 - an answer, not a fault
    """The guard said no: nothing was sent."""


async def exchange(
    pool: Pool, peer: Peer, request: Request, limits: aiohttp.ClientTimeout, progress: Progress
) -> Answer:
    """Sends one request and reads the answer, within ``limits``.

    A connection that the server has closed meanwhile is replaced, where the method allows it. Raises GuardRefused,
    TimeoutError, ClientError (also for an answer that is too large), OSError, HttpProcessingError.
    """
    deadline = asyncio.get_running_loop().time() + (limits.total or math.inf)
    if request.method in _REPEATABLE:
        try:
            return await _once(pool, peer, request, limits, deadline, progress)
        except aiohttp.ClientConnectorError:
            raise
        except _BROKEN:
            pass
    return await _once(pool, peer, request, limits, deadline, progress)


async def _once(
    pool: Pool,
    peer: Peer,
    request: Request,
    limits: aiohttp.ClientTimeout,
    deadline: float,
    progress: Progress,
) -> Answer:
    connection = await pool.take(peer.key, peer.request, limits, deadline)
    if request.guard is not None and not request.guard():
        pool.drop(connection)
        raise GuardRefused
    try:
        progress.sent = True
        connection.write((request.data,))
        message, payload = await connection.answer()
        if message.code >= 300:
            body = await beginning(payload, MAX_ERROR_BODY)
        else:
            limit = MAX_READ if request.method == "GET" else MAX_WRITTEN
            # Most answers are there as a whole, with their head.
            body = (
                payload.read_nowait() if payload.is_eof() else await beginning(payload, limit + 1)
            )
            _check_length(body, limit)
    except BaseException:
        pool.drop(connection)
        raise
    pool.give_back(peer.key, connection)
    return Answer(message.code, message.headers, body)


def _check_length(body: bytes, limit: int) -> None:
    if len(body) > limit:
        raise aiohttp.ClientPayloadError(f"the answer has more than {limit} bytes")


async def beginning(payload: StreamReader, limit: int) -> bytes:
    """The first ``limit`` bytes of a body, or all of it."""
    if payload.is_eof():
        return payload.read_nowait(limit)
    chunks: list[bytes] = []
    while limit > 0 and not payload.at_eof():
        chunks.append((await payload.readany())[:limit])
        limit -= len(chunks[-1])
    return b"".join(chunks)
