"""One request to an extender and its answer.

What aiohttp's ClientSession adds for everybody (cookies, middlewares, a task and a writer per request, headers put together
anew) costs more than all the rest of a small call, so requests are written here: the head of a request to a given URL is
the same every time.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ssl import SSLContext
from typing import Final, NamedTuple

import aiohttp
import msgspec
from aiohttp.http import HttpResponseParser, RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from app.extender.failures import too_large
from app.extender.memory import AnswerMemory
from app.http.connection import Connection
from app.http.pool import Pool
from app.http.proxy import Proxy
from app.wire.extender_v1 import Body
from app.wire.go_json_stream import Stream

#: Bytes read of the body of an answer other than 200.
ERROR_BODY_BYTES: Final = 4096
#: Bytes of a request that are handed to the connection in one go; more go out in batches, as fast as they are taken.
ONE_WRITE: Final = 256 * 1024
_READ_BUFFER: Final = 256 * 1024
#: What headers of answers may come to; proxies and gateways add more to them than one would think.
_MAX_HEADER_BYTES: Final = 1024 * 1024
_MAX_HEADERS: Final = 4096
#: Seconds to wait for the end of an answer from which everything is known already.
_END_SECONDS: Final = 0.1
#: Answers that are longer are read to their end, whatever is in them.
_SMALL_ANSWER: Final = 1024 * 1024
_HEADERS: Final = {
    "Accept": "*/*",
    "Accept-Encoding": "gzip",
    "User-Agent": "aiokube-scheduler",
}
_NO_LIMITS: Final = aiohttp.ClientTimeout(total=None, sock_connect=None)
_PARSER: Final = partial(
    HttpResponseParser,
    limit=_READ_BUFFER,
    payload_exception=aiohttp.ClientPayloadError,
    read_until_eof=True,
    max_line_size=_MAX_HEADER_BYTES,
    max_field_size=_MAX_HEADER_BYTES,
    max_headers=_MAX_HEADERS,
)


class Response(msgspec.Struct, frozen=True):
    """An answer: the whole body of a 200, at most the first ERROR_BODY_BYTES of any other.

    Of a large answer that was read as it came there is no body but the ``stream`` that took it in.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    stream: Stream | None = None
    #: Bytes that the stream has taken in.
    streamed: int = 0
    #: The method and the URL that redirects have led to; empty without.
    redirected: str = ""

    @property
    def received(self) -> int:
        """Bytes of the body that were read, unpacked."""
        return self.streamed or len(self.body)


class Large(NamedTuple):
    """How large answers are read: those of more than ``one_go`` bytes go into a ``stream``, in a place of ``memory``."""

    one_go: int
    stream: Callable[[], Stream]
    memory: AnswerMemory


class Progress:
    """How far a call got."""

    def __init__(self, url: str) -> None:
        #: Where it is now: redirects lead elsewhere.
        self.url = url
        #: Whether any byte was handed to a connection.
        self.sent = False
        #: Whether that connection had carried an exchange before.
        self.kept = False
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
        proxy: Proxy | None,
    ) -> None:
        self.ssl: Final = ssl
        self.url: Final = url
        #: What aiohttp connects by; it also puts the headers together.
        self.request: Final = aiohttp.ClientRequest(
            method,
            url,
            headers=_HEADERS,
            loop=asyncio.get_running_loop(),
            proxy=URL(proxy.url) if proxy else None,
            proxy_headers=proxy.headers if proxy else None,
            ssl=ssl,
            server_hostname=server_hostname,
        )
        #: What connections to it are kept under.
        self.key: Final = self.request.connection_key
        self._proxy: Final = proxy
        self._head = b""

    def head(self, body: Body | None, extra: Mapping[str, str]) -> bytes:
        """The head of a request."""
        if not self._head:
            self._head = self._first_lines()
        lines = b"".join([f"{name}: {value}\r\n".encode() for name, value in extra.items()])
        if body is None:
            return b"%b%b\r\n" % (self._head, lines)
        content = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % body.size
        return b"%b%b%b\r\n" % (self._head, lines, content)

    def _first_lines(self) -> bytes:
        request = self.request
        path = request.url.raw_path_qs
        fixed = {k: v for k, v in request.headers.items() if k != "Content-Length"}
        if self._proxy is not None and not request.is_ssl():
            path = str(request.url.with_user(None))
            fixed |= self._proxy.headers
        lines = [f"{request.method} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fixed.items()]
        return "".join(f"{line}\r\n" for line in lines).encode()


def open_pool(*, keepalive_timeout: float, dns_cache_seconds: int) -> Pool:
    """Where connections to one extender are kept, for ``keepalive_timeout`` seconds at rest."""
    connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=dns_cache_seconds)
    return Pool(connector, keepalive=keepalive_timeout, make_parser=_PARSER)


async def exchange(
    pool: Pool,
    target: Target,
    body: Body | None,
    extra: Mapping[str, str],
    progress: Progress,
    *,
    deadline: float,
    max_bytes: int,
    before_sending: Callable[[Progress], None],
    large: Large | None = None,
) -> Response:
    """Sends one request and reads the answer; of one other than 200 the first ERROR_BODY_BYTES.

    ``before_sending`` is called when the connection is there; what it raises ends the exchange. Raises TimeoutError at
    ``deadline``, in the loop's time; ClientError, OSError, HttpProcessingError; TransportError for a 200 of more than
    ``max_bytes``; AnswerError from the stream of a large answer.
    """
    connection = await pool.take(target.key, target.request, _NO_LIMITS, deadline)
    try:
        before_sending(progress)
        progress.sent = True
        progress.kept = connection.kept
        sending = _send(connection, target.head(body, extra), body)
        try:
            message, payload = await connection.answer()
            progress.in_body = True
            if message.code != 200:
                response = Response(message.code, message.headers, await _beginning(payload))
            elif _declared(message.headers) > max_bytes:
                raise too_large(max_bytes)
            else:
                response = await _read(message, payload, max_bytes, large, deadline)
            whole = payload.at_eof() and (sending is None or sending.done())
        finally:
            if sending is not None:
                sending.cancel()
    except BaseException:
        pool.drop(connection)
        raise
    if whole:
        pool.give_back(target.key, connection)
    else:
        pool.drop(connection)
    return response


def _send(connection: Connection, head: bytes, body: Body | None) -> asyncio.Task[None] | None:
    """Sends a request; a large one is sent by the task, which is to be cancelled when the answer is in."""
    if body is None or body.size <= ONE_WRITE:
        connection.write((b"".join((head, *body.pieces)) if body else head,))
        return None
    return asyncio.create_task(_send_batches(connection, head, body), name="extender request")


async def _send_batches(connection: Connection, head: bytes, body: Body) -> None:
    """Writes as fast as the server takes it. That a connection broke is told to whoever waits for the answer."""
    with contextlib.suppress(aiohttp.ClientError, OSError):
        connection.write((head,))
        for batch in body.batches(ONE_WRITE):
            connection.write(batch)
            await connection.drain()


async def _read(
    message: RawResponseMessage,
    payload: StreamReader,
    max_bytes: int,
    large: Large | None,
    deadline: float,
) -> Response:
    """A 200 with its body. Raises TransportError for one of more than ``max_bytes``, AnswerError from a stream."""
    one_go = max_bytes if large is None else min(large.one_go, max_bytes)
    chunks = await _value(payload, one_go + 1)
    received = sum(map(len, chunks))
    if received <= one_go:
        return Response(message.code, message.headers, b"".join(chunks))
    if large is None or received > max_bytes:
        raise too_large(max_bytes)
    async with large.memory.place(deadline), asyncio.timeout_at(deadline):
        stream = large.stream()
        chunks.reverse()
        while chunks:
            await _feed(stream, chunks.pop())
        while not (stream.done or payload.at_eof()):
            chunk = await payload.readany()
            received += len(chunk)
            if received > max_bytes:
                raise too_large(max_bytes)
            await _feed(stream, chunk)
    return Response(message.code, message.headers, b"", stream, received)


async def _feed(stream: Stream, chunk: bytes) -> None:
    """Takes in a chunk; other tasks have their turn after each step."""
    for _ in stream.feed(chunk):
        await asyncio.sleep(0)


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


async def _value(payload: StreamReader, limit: int) -> list[bytes]:
    """A body, or the beginning of one of ``limit`` bytes or more. Like kube-scheduler it needs no more than a whole JSON value.

    Raises ClientError or OSError when the connection ends before that.
    """
    if payload.is_eof():
        return [payload.read_nowait()]
    chunks: list[bytes] = []
    missing = limit
    while missing > 0 and not payload.at_eof():
        try:
            chunk = await _more(payload, chunks)
        except (TimeoutError, aiohttp.ClientError, OSError):
            # What came in together with the end of the connection is there, but readany does not give it.
            left = payload._read_nowait(-1)  # noqa: SLF001
            if left:
                chunks.append(left)
            if not _is_whole(chunks):
                raise
            break
        chunks.append(chunk)
        missing -= len(chunk)
    return chunks


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
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _declared(headers: Mapping[str, str]) -> int:
    """The length that an answer claims to have, as it is on the wire; 0 if it does not say."""
    length = headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else 0
