"""One request to an extender and its answer.

Requests are written here for the same reason as those to the API server (app.kube.client).
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from app.extender.failures import not_leading, too_large
from app.extender.memory import AnswerMemory
from app.http.body import GzipReader, Readable
from app.http.connection import Answer, HTTPConnection
from app.http.errors import HTTPError
from app.http.pool import Pool
from app.http.request import Progress, Route, header_lines
from app.wire.extender_v1 import AnswerReader, Body, ExtenderArgs
from app.wire.go_json_stream import Stream

#: Bytes read of the body of an answer other than 200, at most.
ERROR_BODY_BYTES: Final = 4096
#: Bytes of a request that are written at once; the rest is written in batches.
ONE_WRITE: Final = 256 * 1024
#: Bytes of an answer that is read without a stream, whoever reads it, if it comes in one piece.
AT_ONCE: Final = 256 * 1024
#: Seconds to wait for the end of an answer whose status is known already.
_END_SECONDS: Final = 0.1
#: Longer answers are always read to their end.
_SMALL_ANSWER: Final = 1024 * 1024


class ExtenderResponse(msgspec.Struct, frozen=True):
    """An answer: the whole body of a 200, at most the first ERROR_BODY_BYTES of any other.

    A large answer that was decoded while it was read has no body, but the ``stream`` that decoded it.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    stream: Stream | None = None
    #: Bytes that the stream has read.
    streamed: int = 0
    #: The method and URL after redirects; empty without.
    redirected: str = ""

    @property
    def received(self) -> int:
        """Bytes of the body that were read, unpacked."""
        return self.streamed or len(self.body)


class Large(msgspec.Struct, frozen=True):
    """How large answers to what was ``asked`` are read: those of more than ``reader.one_go`` bytes by a stream, in a
    place of ``memory``."""

    reader: AnswerReader[Any]
    asked: ExtenderArgs | None
    memory: AnswerMemory


class Request(Progress, kw_only=True):
    """What is sent, and how far it got."""

    #: None: a GET.
    body: Body | None
    headers: Mapping[str, str]
    #: When the answer has to be there, in the loop's time.
    deadline: float
    large: Large | None

    def head(self, route: Route) -> bytes:
        """The head. Raises ValueError for headers that no line can hold."""
        if self.body is not None and not self.headers:
            return route.json_head(self.body.size)
        lines = header_lines(self.headers.items()) if self.headers else b""
        if self.body is None:
            return route.head("GET", "", lines, None)
        lines += b"Content-Type: application/json\r\n"
        return route.head("POST", "", lines, self.body.size)


async def exchange(
    pool: Pool,
    route: Route,
    request: Request,
    max_bytes: int,
    may_call: Callable[[], bool],
) -> ExtenderResponse:
    """Sends a request and reads the answer; of one other than 200 the first ERROR_BODY_BYTES.

    ``may_call`` is asked once there is a connection. Raises TimeoutError, ClientError, OSError; ValueError for headers
    that no line can hold; TransportError if it may not call, and for a 200 of more than ``max_bytes``; AnswerError from
    the stream of a large answer.
    """
    head = request.head(route)
    connection = pool.kept(route, request.deadline)
    if connection is None:
        connection = await pool.dialled(route, request.deadline)
    if not may_call():
        pool.drop(connection)
        raise not_leading(request)
    request.sent = True
    request.kept = connection.kept
    body, sending = request.body, None
    try:
        if body is None or body.size <= ONE_WRITE:
            connection.write((b"".join((head, *body.pieces)) if body else head,))
        else:
            sending = asyncio.create_task(_send(connection, head, body), name="extender request")
        answer = await connection.answer()
        request.in_body = True
        response = _read_at_once(connection, answer, max_bytes)
        if response is None:
            response = await _read(connection, answer, request, max_bytes)
    except BaseException:
        pool.drop(connection)
        raise
    finally:
        if sending is not None and not sending.done():
            sending.cancel()
            connection.close()
    pool.give_back(route, connection)
    return response


def _read_at_once(
    connection: HTTPConnection, answer: Answer, max_bytes: int
) -> ExtenderResponse | None:
    """As ``_read``, if the whole body of a 200 is there in one piece that is neither packed nor long; else None."""
    if answer.status != 200 or answer.encoding:
        return None
    body = connection.take_whole(min(AT_ONCE, max_bytes))
    return None if body is None else ExtenderResponse(200, answer.headers, body)


async def _send(connection: HTTPConnection, head: bytes, body: Body) -> None:
    """Writes as fast as the server reads. A broken connection is reported to the reader of the answer."""
    with contextlib.suppress(HTTPError, TimeoutError):
        connection.write((head,))
        for batch in body.batches(ONE_WRITE):
            connection.write(batch)
            await connection.drain()


async def _read(
    connection: HTTPConnection, answer: Answer, request: Request, max_bytes: int
) -> ExtenderResponse:
    """The rest of an answer. Raises what ``exchange`` does."""
    status, headers = answer.status, answer.headers
    payload = GzipReader(connection) if answer.encoding == "gzip" else connection
    if status != 200:
        return ExtenderResponse(status, headers, await _beginning(payload))
    if answer.declared > max_bytes:
        raise too_large(max_bytes)
    large = request.large
    one_go = max_bytes if large is None else min(large.reader.one_go, max_bytes)
    chunks = await _value(payload, one_go + 1)
    received = sum(map(len, chunks))
    if received <= one_go:
        return ExtenderResponse(status, headers, b"".join(chunks))
    if large is None or received > max_bytes:
        raise too_large(max_bytes)
    async with large.memory.place(request.deadline), asyncio.timeout_at(request.deadline):
        stream = large.reader.stream(large.asked)
        chunks.reverse()
        while chunks:
            await _feed(stream, chunks.pop())
        while not (stream.done or payload.at_eof()):
            chunk = await payload.readany()
            received += len(chunk)
            if received > max_bytes:
                raise too_large(max_bytes)
            await _feed(stream, chunk)
    return ExtenderResponse(status, headers, b"", stream, received)


async def _feed(stream: Stream, chunk: bytes) -> None:
    """Decodes a chunk in steps between which other tasks run."""
    for _ in stream.feed(chunk):
        await asyncio.sleep(0)


async def _beginning(payload: Readable) -> bytes:
    """The first ERROR_BODY_BYTES of a body, or what arrives of them in a short time."""
    chunks: list[bytes] = []
    missing = ERROR_BODY_BYTES
    with contextlib.suppress(TimeoutError, HTTPError):
        async with asyncio.timeout(_END_SECONDS):
            while missing and not payload.at_eof():
                chunks.append((await payload.readany())[:missing])
                missing -= len(chunks[-1])
    return b"".join(chunks)


async def _value(payload: Readable, limit: int) -> list[bytes]:
    """A body, or the beginning of one of ``limit`` bytes or more. Like in kube-scheduler a complete JSON value is
    sufficient.

    Raises TimeoutError or HTTPError if the connection ends before that.
    """
    chunks: list[bytes] = []
    missing = limit
    while missing > 0 and not payload.at_eof():
        try:
            chunk = await (_more(payload, chunks) if chunks else payload.readany())
        except (TimeoutError, HTTPError):
            if not _is_whole(chunks):
                raise
            break
        chunks.append(chunk)
        missing -= len(chunk)
    return chunks


async def _more(payload: Readable, chunks: Sequence[bytes]) -> bytes:
    """Further bytes. Raises TimeoutError after a short time without any if the value is already complete."""
    if not _may_be_whole(chunks):
        return await payload.readany()
    try:
        async with asyncio.timeout(_END_SECONDS):
            return await payload.readany()
    except TimeoutError:
        if _is_whole(chunks):
            raise
    return await payload.readany()


def _may_be_whole(chunks: Sequence[bytes]) -> bool:
    """Whether the last character ends a JSON object or array."""
    last = b"".join([chunk[-8:] for chunk in chunks[-2:]])
    return last.rstrip().endswith((b"}", b"]"))


def _is_whole(chunks: Sequence[bytes]) -> bool:
    """Whether this is a complete, short JSON object or array."""
    if not _may_be_whole(chunks) or sum(map(len, chunks)) > _SMALL_ANSWER:
        return False
    try:
        msgspec.json.decode(b"".join(chunks), type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True
