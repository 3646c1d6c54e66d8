"""One HTTP/1.1 connection that carries one exchange at a time. httptools parses the answers."""

import asyncio
import copy
import functools
import math
import select
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

import httptools
from multidict import CIMultiDict, CIMultiDictProxy

from app.http.errors import (
    ConnectionBrokenError,
    ConnectionFailedError,
    HTTPError,
    PayloadError,
    ServerDisconnectedError,
)

#: Limits of an answer's headers, and of its trailer, in bytes and in lines. Proxies and gateways add many.
MAX_HEAD_BYTES: Final = 1024 * 1024
MAX_HEAD_LINES: Final = 4096
#: Bytes of a body that are kept before reading from the connection pauses.
READ_BUFFER: Final = 256 * 1024

_SWITCHING_PROTOCOLS: Final = 101
#: Heads that are remembered, and their bytes, at most.
_MOST_KNOWN: Final = 64
_MAX_KNOWN_BYTES: Final = 4096


class MalformedAnswerError(HTTPError):
    """The answer is not HTTP/1, or its headers or its trailer are too long."""


class Answer:
    """The status and headers of an answer. The headers are decoded when they are read, which few callers do."""

    def __init__(self, status: int, lines: Iterable[tuple[bytes, bytes]]) -> None:
        self.status: Final = status
        self._lines: Final = lines

    @functools.cached_property
    def headers(self) -> Mapping[str, str]:
        """The headers by name in any case."""
        return CIMultiDictProxy(
            CIMultiDict(
                [
                    (name.decode("latin-1"), value.decode("utf-8", "surrogateescape").strip())
                    for name, value in self._lines
                ]
            )
        )

    @functools.cached_property
    def encoding(self) -> str:
        """The Content-Encoding in lower case; empty without one."""
        return self.headers.get("Content-Encoding", "").lower()

    @property
    def declared(self) -> int:
        """The Content-Length; 0 without one."""
        length = self.headers.get("Content-Length", "")
        return int(length) if length.isdecimal() else 0


class KnownHeads:
    """The heads of answers that came in one piece with their body, as bytes.

    Servers send the same head again and again within a second. What the parser makes of an answer follows from its
    bytes: one that begins with a known head, and ends where that head says, need not be parsed.
    """

    def __init__(self) -> None:
        #: By the bytes of a head and its body: the last such head, and its answer.
        self._known: Final[dict[int, tuple[bytes, Answer]]] = {}

    def find(self, data: bytes) -> tuple[Answer, bytes] | None:
        """The answer and its body, if ``data`` is a known head and its whole body."""
        known = self._known.get(len(data))
        if known is None:
            return None
        head, answer = known
        return (answer, data[len(head) :]) if data.startswith(head) else None

    def add(self, head: bytes, answer: Answer, size: int) -> None:
        """Remembers a head, whose body has ``size`` bytes."""
        if len(head) <= _MAX_KNOWN_BYTES:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[len(head) + size] = head, answer


class HTTPConnection(asyncio.Protocol):
    """One connection, made by app.http.dial.

    An exchange is: ``write`` and ``drain``, ``answer``, ``readany`` until ``at_eof``, ``release``. One task at a time
    waits for the answer and its body, another one may write.
    """

    _transport: asyncio.Transport

    def __init__(self) -> None:
        #: Whether pieces are joined before they are written, because TLS makes a record of every write.
        self._joins = False
        self._poll: select.poll | None = None
        self._parser = httptools.HttpResponseParser(self)
        # As lenient as Go's client: bare line feeds, spaces after a chunk's size, a length that the chunks override.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
            lenient_chunked_length=True,
        )
        #: Whether anything has arrived since the last exchange.
        self._begun = False
        #: The lines of the headers or the trailer so far.
        self._head: list[tuple[bytes, bytes]] = []
        #: Bytes since the last part of the body.
        self._undelivered = 0
        self._answer: Answer | None = None
        #: Parts of the body that were not read yet, and their bytes.
        self._chunks: list[bytes] = []
        self._kept_bytes = 0
        #: Whether the answer is complete. Nothing may follow until the next request.
        self._complete = False
        self._waiter: asyncio.Future[None] | None = None
        self._may_write: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        #: Whether this exchange is its last one.
        self._spent = False
        #: Whether it has carried an exchange.
        self.kept = False
        #: The deadline of the exchange, in the loop's time.
        self.deadline = math.inf
        #: Heads of answers from this server; None: all are parsed.
        self.heads: KnownHeads | None = None

    # ------------------------------------------------------------ exchanges

    def write(self, pieces: Sequence[bytes]) -> None:
        """Passes a part of a request to the kernel, or to the transport's buffer. Raises HTTPError, TimeoutError."""
        transport = self._transport
        if self._error is not None or transport.is_closing():
            raise self._failure() if self._error else ServerDisconnectedError()
        if len(pieces) == 1:
            transport.write(pieces[0])
        elif self._joins:
            transport.write(b"".join(pieces))
        else:
            transport.writelines(pieces)

    async def drain(self) -> None:
        """Waits until more may be written, or the exchange has failed."""
        if self._may_write is not None:
            await self._may_write

    async def answer(self) -> Answer:
        """The answer as soon as its headers are complete. Interim answers (1xx) are skipped.

        Raises TimeoutError, ServerDisconnectedError, ConnectionBrokenError, MalformedAnswerError.
        """
        while self._answer is None:
            if self._error is not None:
                raise self._failure()
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._answer

    def take_whole(self, limit: int) -> bytes | None:
        """Reads the body, if all of it is there in one piece of at most ``limit`` bytes; else None."""
        chunks = self._chunks
        if not self._complete or len(chunks) != 1 or len(chunks[0]) > limit:
            return None
        if self._kept_bytes:
            self._resume()
        return chunks.pop()

    async def readany(self) -> bytes:
        """The bytes of the body since the last call, waiting for some; empty at the end.

        Bytes that arrived before a failure can still be read. Raises TimeoutError, PayloadError, MalformedAnswerError.
        """
        while not self._chunks:
            if self._complete:
                return b""
            if isinstance(self._error, ConnectionFailedError):
                raise PayloadError("the body is not complete") from self._error
            if self._error is not None:
                raise self._failure()
            await self._wait()
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._resume()
        return data

    def _resume(self) -> None:
        if self._kept_bytes >= READ_BUFFER and not self._transport.is_closing():
            self._transport.resume_reading()
        self._kept_bytes = 0

    def at_eof(self) -> bool:
        """Whether the whole body was read."""
        return self._complete and not self._chunks

    @functools.cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, which is looked up once: that takes a system call."""
        return asyncio.get_running_loop()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def expire(self) -> None:
        """Fails the exchange with a TimeoutError, because its deadline has passed."""
        self._fail(TimeoutError())

    def close(self) -> None:
        """Closes the connection at once, without what it has not sent yet; may be called again.

        ``transport.close`` would wait until the server has read the rest: without a limit, with TLS 30 s.
        """
        self._spent = True
        self._transport.abort()

    # ------------------------------------------------------------ between exchanges

    def release(self) -> bool:
        """Ends the exchange. Returns whether the connection can be used again."""
        if self._spent or not self._complete or self._chunks:
            return False
        self._answer = None
        self._begun = False
        self.kept = True
        return True

    def acquire(self) -> bool:
        """Whether a request may be written: not if anything can be read, which is the end or unexpected data.

        It checks the socket, because the event loop may not know yet.
        """
        if self._spent or self._transport.is_closing():
            return False
        self._complete = False
        return self._poll is None or not self._poll.poll(0)

    @property
    def untouched(self) -> bool:
        """Whether the server has sent nothing yet, and the connection is open."""
        return not (self._begun or self._spent)

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._joins = transport.get_extra_info("ssl_object") is not None
        self._poll = _poll(transport)

    def data_received(self, data: bytes) -> None:
        if self._complete or self._error is not None:
            self.close()
            return
        heads = None if self._begun else self.heads
        self._begun = True
        known = None if heads is None else heads.find(data)
        if known is not None:
            self._answer, body = known
            self._chunks.append(body)
            self._complete = True
            self._wake()
            return
        self._undelivered += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._spent = True
        except httptools.HttpParserError as err:
            if not self._complete:  # else the error is in what follows the answer
                self._fail(self._malformed(err, data))
            self.close()
        else:
            if self._undelivered > MAX_HEAD_BYTES and not self._complete:
                self._fail(MalformedAnswerError(f"head of more than {MAX_HEAD_BYTES} bytes"))
                self.close()
            elif heads is not None:
                self._learn(heads, data)
        self._wake()

    def _learn(self, heads: KnownHeads, data: bytes) -> None:
        """Remembers the head of the answer that ``data`` is, if it is complete and its body as long as the head
        says."""
        answer = self._answer
        if answer is None or not self._complete or len(self._chunks) != 1 or self._spent:
            return
        body = self._chunks[0]
        size = len(body)
        if answer.declared == size and data.endswith(body):
            heads.add(data[: len(data) - size], answer, size)

    def pause_writing(self) -> None:
        if self._may_write is None and self._error is None:
            self._may_write = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        may_write, self._may_write = self._may_write, None
        if may_write is not None and not may_write.done():
            may_write.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and self._answer is not None and _ends_with_connection(self._answer.headers):
            self._complete = True
        error = (
            ConnectionBrokenError(*exc.args)
            if isinstance(exc, OSError)
            else ServerDisconnectedError()
        )
        error.__cause__ = exc
        self._fail(error)
        # Its callbacks lead back here. In the cycle, the buffers of TLS would stay until a collection of old objects,
        # for hours.
        del self._parser

    def _fail(self, error: Exception) -> None:
        self._spent = True
        if self._error is None:
            self._error = error.with_traceback(None)
        self._wake()
        self.resume_writing()

    def _failure(self) -> Exception:
        """A copy of the error, to be raised. The traceback of the one that is kept would lead back here: in the cycle,
        what the exchange has held would stay until a collection of old objects, for minutes."""
        assert self._error is not None  # noqa: S101 - the caller has looked
        failure = copy.copy(self._error)
        failure.__cause__ = self._error.__cause__
        return failure

    def _malformed(self, err: httptools.HttpParserError, data: bytes) -> MalformedAnswerError:
        if isinstance(err.__context__, MalformedAnswerError):  # what a callback raised
            return err.__context__
        text = str(err)
        if not self._head and self._answer is None:
            line = data.lstrip().partition(b"\n")[0].rstrip()
            text += f": {line[:100]!r}"
        return MalformedAnswerError(text)

    # ------------------------------------------------------------ the parser's callbacks

    def on_message_begin(self) -> None:
        """Called with the first byte of an answer. Raises MalformedAnswerError for a second one."""
        if self._complete:
            raise MalformedAnswerError("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called for each line of the headers or the trailer. Raises MalformedAnswerError."""
        self._head.append((name, value))
        if len(self._head) > MAX_HEAD_LINES:
            raise MalformedAnswerError(f"head of more than {MAX_HEAD_LINES} lines")

    def on_headers_complete(self) -> None:
        """Called at the end of the headers. Raises MalformedAnswerError."""
        status = self._parser.get_status_code()
        if status == _SWITCHING_PROTOCOLS or not 100 <= status < 200:
            lines = self._head
            codings = _values(lines, b"transfer-encoding")
            if codings:
                if [coding.lower() for coding in codings] != ["chunked"]:
                    raise MalformedAnswerError(f"unsupported Transfer-Encoding {codings!a:.100}")
                lines = [line for line in lines if line[0].lower() != b"content-length"]
            self._answer = Answer(status, lines)
        self._head = []

    def on_body(self, data: bytes) -> None:
        """Called for each piece of a body."""
        if self._answer is not None:
            self._undelivered = 0
            self._chunks.append(data)
            pauses = self._kept_bytes < READ_BUFFER
            self._kept_bytes += len(data)
            if pauses and self._kept_bytes >= READ_BUFFER:
                self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """Called at the end of an answer whose length is known from its headers or chunks."""
        if self._answer is None:  # an interim one
            return
        self._head = []
        self._undelivered = 0
        self._complete = True
        if not self._parser.should_keep_alive():
            self._spent = True


def _values(lines: Iterable[tuple[bytes, bytes]], name: bytes) -> list[str]:
    """The values of a header; ``name`` in lower case."""
    length = len(name)
    return [
        value.decode("latin-1").strip()
        for each, value in lines
        if len(each) == length and each.lower() == name
    ]


def _ends_with_connection(headers: Mapping[str, str]) -> bool:
    """Whether the body ends with the connection."""
    return "Transfer-Encoding" not in headers and "Content-Length" not in headers


def _poll(transport: asyncio.BaseTransport) -> "select.poll | None":
    """A poll object for reading from the connection's socket; None without a socket."""
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return None
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN | select.POLLERR | select.POLLHUP)
    return poll
