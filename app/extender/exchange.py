"""One request and its answer on one connection of aiohttp's pool.

aiohttp makes, pools and secures the connections and parses what comes back. What its ClientSession adds for everybody
(cookies, middlewares, a task and a writer per request, headers put together anew) costs more than all the rest of a
small call, so requests are written here: the head of a request to a given URL is the same every time.
"""

import asyncio
import contextlib
import select
from collections.abc import Mapping, Sequence
from ssl import SSLContext
from typing import Final
from weakref import WeakKeyDictionary

import aiohttp
import msgspec
from aiohttp.base_protocol import BaseProtocol
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import StreamWriter
from aiohttp.streams import StreamReader
from yarl import URL

from app.extender.failures import too_large
from app.wire.extender_v1 import Body

#: Bytes read of the body of an answer other than 200.
ERROR_BODY_BYTES: Final = 4096
#: Bytes of a request that are handed to the connection in one go; more go out in batches, as fast as they are taken.
ONE_WRITE: Final = 256 * 1024
_READ_BUFFER: Final = 1024 * 1024
#: What headers of answers may come to; proxies and gateways add more to them than one would think.
_MAX_HEADER_BYTES: Final = 1024 * 1024
_MAX_HEADERS: Final = 4096
#: Seconds to wait for the end of an answer from which everything is known already.
_END_SECONDS: Final = 0.1
#: Answers that are longer are read to their end, whatever is in them.
_SMALL_ANSWER: Final = 1024 * 1024
_SWITCHING_PROTOCOLS: Final = 101
_HEADERS: Final = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip",
    "User-Agent": "aiokube-scheduler",
}
_NO_LIMITS: Final = aiohttp.ClientTimeout(total=None, sock_connect=None)


class Stale(Exception):  # noqa: N818 - a signal to take another connection
    """The server has closed a kept connection; nothing was written."""


class Response(msgspec.Struct, frozen=True):
    """An answer: the whole body of a 200, at most the first ERROR_BODY_BYTES of any other."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Progress:
    """How far a call got."""

    def __init__(self, url: str) -> None:
        #: Where it is now: redirects lead elsewhere.
        self.url = url
        #: Whether any byte was handed to a connection.
        self.sent = False
        #: Whether the headers of an answer are in.
        self.in_body = False


class Target:
    """A method and a URL, with everything about a request that does not change from call to call."""

    def __init__(
        self,
        method: str,
        url: URL,
        *,
        ssl: SSLContext | bool,
        server_hostname: str | None,
        proxy: URL | None,
    ) -> None:
        self.ssl: Final = ssl
        self.url: Final = url
        #: What aiohttp connects by; it also puts the headers together.
        self.request: Final = aiohttp.ClientRequest(
            method,
            url,
            headers=_HEADERS,
            loop=asyncio.get_running_loop(),
            proxy=proxy,
            ssl=ssl,
            server_hostname=server_hostname,
        )
        self._head = b""

    def head(self, body: Body | None, extra: Mapping[str, str]) -> bytes:
        """The head of a request. Call it when connected: that is when a proxy's credentials are among the headers."""
        if not self._head:
            self._head = self._first_lines()
        lines = [f"{name}: {value}\r\n" for name, value in extra.items()]
        if body is not None:
            lines.append(f"Content-Type: application/json\r\nContent-Length: {body.size}\r\n")
        return b"%b%b\r\n" % (self._head, "".join(lines).encode())

    def _first_lines(self) -> bytes:
        request = self.request
        plain_proxy = request.proxy is not None and not request.is_ssl()
        path = str(request.url) if plain_proxy else request.url.raw_path_qs
        lines = [f"{request.method} {path} HTTP/1.1"]
        fixed = {k: v for k, v in request.headers.items() if k != "Content-Length"}
        lines += [f"{name}: {value}" for name, value in fixed.items()]
        return "".join(f"{line}\r\n" for line in lines).encode()


class Pool:
    """Connections to one extender, and how to use them."""

    def __init__(self, *, keepalive_timeout: float, dns_cache_seconds: int) -> None:
        self._connector: Final = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=keepalive_timeout, ttl_dns_cache=dns_cache_seconds
        )
        #: The connections that have carried a request.
        self._polls: Final[WeakKeyDictionary[BaseProtocol, select.poll | None]] = (
            WeakKeyDictionary()
        )

    async def close(self) -> None:
        """Closes all connections."""
        await self._connector.close()

    async def exchange(
        self,
        target: Target,
        body: Body | None,
        extra: Mapping[str, str],
        progress: Progress,
        *,
        max_bytes: int,
    ) -> Response:
        """Sends one request and reads the answer; of one other than 200 the first ERROR_BODY_BYTES.

        Raises Stale, ClientError, OSError, HttpProcessingError; TransportError for a 200 of more than ``max_bytes``.
        """
        connection = await self._connector.connect(target.request, [], _NO_LIMITS)
        try:
            protocol = self._take(connection)
            protocol.set_response_params(
                read_until_eof=True,
                read_bufsize=_READ_BUFFER,
                max_line_size=_MAX_HEADER_BYTES,
                max_field_size=_MAX_HEADER_BYTES,
                max_headers=_MAX_HEADERS,
            )
            progress.sent = True
            sending = _send(protocol, target.head(body, extra), body)
            try:
                response, whole = await _answer(protocol, progress, max_bytes)
                whole = whole and (sending is None or sending.done())
            finally:
                if sending is not None:
                    sending.cancel()
        except BaseException:
            connection.close()
            raise
        if whole:
            connection.release()
        else:
            connection.close()
        return response

    def _take(self, connection: Connection) -> ResponseHandler:
        """The connection's protocol, if a request may be written to it. Raises Stale.

        A connection at rest on which something can be read has been closed (or spoken on out of turn), whatever the
        event loop knows of it so far.
        """
        protocol = connection.protocol
        if protocol is None or protocol.transport is None:
            raise aiohttp.ServerDisconnectedError
        if protocol not in self._polls:
            self._polls[protocol] = _poll(protocol.transport)
            return protocol
        poll = self._polls[protocol]
        if protocol.transport.is_closing() or (poll is not None and poll.poll(0)):
            raise Stale
        return protocol


def _poll(transport: asyncio.Transport) -> "select.poll | None":
    """Tells whether a connection can be read from; None for one that has no socket."""
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return None
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN | select.POLLERR | select.POLLHUP)
    return poll


def _send(protocol: ResponseHandler, head: bytes, body: Body | None) -> asyncio.Task[None] | None:
    """Sends a request; a large one is sent by the task, which is to be cancelled when the answer is in."""
    if body is None or body.size <= ONE_WRITE:
        _write(protocol, (b"".join((head, *body.pieces)) if body else head,))
        return None
    return asyncio.create_task(_send_batches(protocol, head, body), name="extender request")


async def _send_batches(protocol: ResponseHandler, head: bytes, body: Body) -> None:
    """Writes as fast as the server takes it. That a connection broke is told to whoever waits for the answer.

    The pieces go to the kernel as they are; only TLS, which makes a record of every write, gets them joined.
    """
    writer = StreamWriter(protocol, asyncio.get_running_loop())
    with contextlib.suppress(aiohttp.ClientError, OSError):
        _write(protocol, (head,))
        for batch in body.batches(ONE_WRITE):
            _write(protocol, batch)
            await writer.drain()


def _write(protocol: ResponseHandler, pieces: Sequence[bytes]) -> None:
    transport = protocol.transport
    if transport is None or transport.is_closing():
        raise aiohttp.ServerDisconnectedError
    if len(pieces) == 1 or transport.get_extra_info("ssl_object") is not None:
        transport.write(b"".join(pieces))
    else:
        transport.writelines(pieces)


async def _answer(
    protocol: ResponseHandler, progress: Progress, max_bytes: int
) -> tuple[Response, bool]:
    """The answer, and whether that is all of it. Raises TransportError for a 200 of more than ``max_bytes``."""
    message, payload = await protocol.read()
    while message.code < 200 and message.code != _SWITCHING_PROTOCOLS:
        message, payload = await protocol.read()
    progress.in_body = True
    if message.code != 200:
        body = await _beginning(payload)
    elif _declared(message.headers) > max_bytes:
        raise too_large(max_bytes)
    else:
        body = await _value(payload, max_bytes + 1)
        if len(body) > max_bytes:
            raise too_large(max_bytes)
    return Response(message.code, message.headers, body), payload.at_eof()


async def _beginning(payload: StreamReader) -> bytes:
    """The first ERROR_BODY_BYTES of a body, or what comes of them before long: the status says enough."""
    chunks: list[bytes] = []
    missing = ERROR_BODY_BYTES
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_END_SECONDS):
            while missing and not payload.at_eof():
                chunks.append((await payload.readany())[:missing])
                missing -= len(chunks[-1])
    return b"".join(chunks)


async def _value(payload: StreamReader, limit: int) -> bytes:
    """A body, at most ``limit`` bytes. Like kube-scheduler it needs no more than a whole JSON object or array.

    Raises ClientError or OSError when the connection ends before that.
    """
    chunks: list[bytes] = []
    missing = limit
    while missing and not payload.at_eof():
        try:
            chunk = await _more(payload, chunks)
        except (TimeoutError, aiohttp.ClientError, OSError):
            # What came in together with the end of the connection is there, but readany does not give it.
            left = payload._read_nowait(-1)[:missing]  # noqa: SLF001
            if left:
                chunks.append(left)
            if not _is_whole(chunks):
                raise
            break
        chunks.append(chunk[:missing])
        missing -= len(chunks[-1])
    return b"".join(chunks)


async def _more(payload: StreamReader, chunks: Sequence[bytes]) -> bytes:
    """What comes next. Raises TimeoutError soon if nothing comes and nothing is missing."""
    if not chunks or not _is_whole(chunks):
        return await payload.readany()
    async with asyncio.timeout(_END_SECONDS):
        return await payload.readany()


def _is_whole(chunks: Sequence[bytes]) -> bool:
    """Whether this is a JSON object or array, and not a long one."""
    if not b"".join(chunk[-8:] for chunk in chunks[-2:]).rstrip().endswith((b"}", b"]")):
        return False
    if sum(map(len, chunks)) > _SMALL_ANSWER:
        return False
    try:
        msgspec.json.decode(b"".join(chunks), type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def _declared(headers: Mapping[str, str]) -> int:
    """The length that an answer claims to have, as it is on the wire; 0 if it does not say."""
    length = headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else 0
