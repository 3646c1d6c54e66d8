"""One HTTP/1.1 connection that carries one exchange at a time.

aiohttp makes connections (names, proxies, TLS), and its parser reads what comes back. Its own protocol for clients makes a parser
for every answer and passes it through a queue; the one here, which takes over the transport, keeps its parser and wakes whoever
waits.
"""

import asyncio
import math
import select
from collections.abc import Callable, Sequence
from typing import Final

import aiohttp
from aiohttp.base_protocol import BaseProtocol
from aiohttp.connector import Connection as Made
from aiohttp.http import HttpProcessingError, HttpResponseParser, RawResponseMessage
from aiohttp.streams import StreamReader

#: Makes the parser of a connection's answers.
MakeParser = Callable[[BaseProtocol, asyncio.AbstractEventLoop], HttpResponseParser]

#: An answer's head, and its body as it comes.
Answer = tuple[RawResponseMessage, StreamReader]

_SWITCHING_PROTOCOLS: Final = 101


class Connection(BaseProtocol):
    """Takes over the transport of a connection that aiohttp has made."""

    __slots__ = (
        "_answer",
        "_at_rest",
        "_error",
        "_joins",
        "_made",
        "_maker",
        "_poll",
        "_spent",
        "_waiter",
        "deadline",
        "kept",
    )

    def __init__(self, made: Made, make_parser: MakeParser) -> None:
        """Raises ServerDisconnectedError when it is lost already."""
        maker, transport = made.protocol, made.transport
        if maker is None or transport is None:
            raise aiohttp.ServerDisconnectedError
        loop = asyncio.get_running_loop()
        super().__init__(loop)
        self._parser = make_parser(self, loop)
        self.transport = transport
        self._made: Final = made
        self._maker: Final = maker
        #: Whether pieces are joined before they are written: TLS makes a record of every write.
        self._joins: Final = transport.get_extra_info("ssl_object") is not None
        self._poll: Final = _poll(transport)
        self._answer: Answer | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._error: BaseException | None = None
        self._at_rest = False
        self._spent = False
        #: Whether it has carried an exchange.
        self.kept = False
        #: When the exchange has to be over, in the loop's time.
        self.deadline = math.inf
        transport.set_protocol(self)
        if maker._tail:  # noqa: SLF001 - what the server has said before it was asked
            self.data_received(maker._tail)  # noqa: SLF001

    # ------------------------------------------------------------ exchanges

    def write(self, pieces: Sequence[bytes]) -> None:
        """Hands a part of a request to the kernel, or to the transport's buffer. Raises ServerDisconnectedError."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise aiohttp.ServerDisconnectedError
        if len(pieces) == 1:
            transport.write(pieces[0])
        elif self._joins:
            transport.write(b"".join(pieces))
        else:
            transport.writelines(pieces)

    async def drain(self) -> None:
        """Waits until more may be written. Raises ClientConnectionResetError."""
        await self._drain_helper()

    async def answer(self) -> Answer:
        """The answer as soon as its head is there; interim ones are ignored.

        Raises TimeoutError, ClientError, OSError, HttpProcessingError; so does reading the body.
        """
        if self._answer is not None:
            return self._answer
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def expire(self) -> None:
        """The time for the exchange is over: tells whoever waits."""
        late = TimeoutError()
        if self._answer is not None and not self._answer[1].is_eof():
            self._answer[1].set_exception(late)
        self._fail(late)

    def close(self) -> None:
        """Closes it. Harmless when closed."""
        self._spent = True
        self._made.close()

    # ------------------------------------------------------------ between exchanges

    def rest(self) -> bool:
        """The exchange is over. Whether there may be another one."""
        if self._spent or self._answer is None or not self._answer[1].is_eof():
            return False
        self._answer = None
        self._at_rest = self.kept = True
        return True

    def wake(self) -> bool:
        """Whether a request may be written now: not where anything can be read, as that is the end, or out of turn.

        The socket is asked, whatever the event loop knows of it so far.
        """
        transport = self.transport
        if self._spent or transport is None or transport.is_closing():
            return False
        self._at_rest = False
        return self._poll is None or not self._poll.poll(0)

    # ------------------------------------------------------------ asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. Without data: reading goes on after a pause."""
        if self._at_rest:
            self.close()
            return
        assert self._parser is not None  # noqa: S101 - set once
        try:
            messages, upgraded, _ = self._parser.feed_data(data)
        except HttpProcessingError as err:
            self._fail(err)
            self.close()
            return
        for message, payload in messages:
            if message.code >= 200 or message.code == _SWITCHING_PROTOCOLS:
                self._hear(message, payload)
        if upgraded:
            self._spent = True

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Called at the end of every answer, too."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def connection_lost(self, exc: BaseException | None) -> None:
        """See asyncio.Protocol."""
        assert self._parser is not None  # noqa: S101 - set once
        begun = None
        try:
            begun = self._parser.feed_eof()
        except HttpProcessingError as err:
            if self._answer is not None:
                text = f"Response payload is not completed: {err!r}"
                self._answer[1].set_exception(aiohttp.ClientPayloadError(text), err)
        error: aiohttp.ClientError
        if exc is None:
            error = aiohttp.ServerDisconnectedError(begun)
        elif isinstance(exc, OSError):
            error = aiohttp.ClientOSError(*exc.args)
        else:
            error = aiohttp.ClientConnectionError(str(exc))
        error.__cause__ = exc
        self._fail(error)
        super().connection_lost(error)
        self._maker.connection_lost(exc)
        self._made.close()

    def _hear(self, message: RawResponseMessage, payload: StreamReader) -> None:
        if self._answer is not None:  # nobody has asked for two
            self._spent = True
            return
        if message.should_close:
            self._spent = True
        self._answer = message, payload
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(self._answer)

    def _fail(self, error: BaseException) -> None:
        self._spent = True
        self._error = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


def _poll(transport: asyncio.Transport) -> "select.poll | None":
    """Tells whether a connection can be read from; None for one that has no socket."""
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return None
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN | select.POLLERR | select.POLLHUP)
    return poll
