"""One HTTP exchange with an extender: bytes out, bytes in, and errors in kube-scheduler's words.

A POST that the extender may have seen is never sent again: extenders reserve things when they are asked. The one
case in which a request goes out on a second connection is when the first, kept from an earlier call, turns out to have
been closed by the server *before a byte of this request was written*. That is looked up on the socket right before
the first write, with nothing in between: a connection at rest on which something can be read has been closed (or spoken
on out of turn), whatever the event loop knows of it so far. Once a byte has been handed to the kernel, a failure is
a failure. Idle connections are also dropped early (ExtenderConfig.keepalive_timeout), so that this is rare.

Redirects are followed as Go's client does: after 301, 302 and 303 with a GET, after 307 and 308 with the same POST, ten
at most.
"""

import asyncio
import dataclasses
import re
import select
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, cast
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_writer import StreamWriter
from yarl import URL

from app.extender.failures import broken, timed_out, too_large
from app.extender.tls import TLSSource
from app.wire.extender_v1 import Body

#: Bytes read of the body of an answer other than 200.
ERROR_BODY_BYTES: Final = 4096

# URLs go out as they are configured, unless there is something in them that no request line can hold.
_PRINTABLE: Final = re.compile(r"[!#-;=?-\[\]_a-z~]*")
_MAX_REDIRECTS: Final = 10
_READ_BUFFER: Final = 1024 * 1024
_DNS_CACHE_SECONDS: Final = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """An answer: the whole body of a 200, the first ERROR_BODY_BYTES of any other."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """What carries requests."""

    async def post(
        self, url: str, body: Body, *, headers: Mapping[str, str], timeout_seconds: float
    ) -> Response:
        """Sends one POST and reads the answer. Raises TransportError."""

    async def close(self) -> None:
        """Closes all connections."""


class _Stale(Exception):  # noqa: N818 - never leaves this module
    """The server has closed a kept connection; nothing was written."""


class _Upload(aiohttp.payload.Payload):
    """A Body on its way out, chunk by chunk; can be written again after a redirect."""

    _autoclose = True

    def __init__(self, body: Body, used: "WeakSet[BaseProtocol]") -> None:
        super().__init__(body, content_type="application/json")
        self._size = body.size
        self._body: Final = body
        self._used: Final = used
        #: Whether the server had closed the connection before anything was written.
        self.stale = False
        #: Whether anything was handed to a connection.
        self.started = False

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The whole body as text."""
        return bytes(self._body).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Writes the body. Raises _Stale when the connection is one that the server has closed."""
        protocol = cast("StreamWriter", writer).protocol
        self.stale = protocol in self._used and _closed_by_server(protocol.transport)
        if self.stale:
            raise _Stale
        self._used.add(protocol)
        self.started = True
        for chunk in self._body.chunks():
            await writer.write(chunk)


def _closed_by_server(transport: asyncio.Transport | None) -> bool:
    """Whether a connection at rest is closed, is closing, or has bytes waiting that nobody asked for."""
    if transport is None or transport.is_closing():
        return True
    socket = transport.get_extra_info("socket")
    if socket is None or socket.fileno() < 0:
        return socket is not None
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN | select.POLLERR | select.POLLHUP)
    return bool(poll.poll(0))


class HTTPTransport:
    """Connections to one extender."""

    def __init__(
        self,
        *,
        tls: TLSSource | None = None,
        proxy: str | None = None,
        keepalive_timeout: float = 1.5,
        max_answer_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self._tls: Final = tls
        self._proxy: Final = proxy
        self._keepalive_timeout: Final = keepalive_timeout
        self._max_answer_bytes: Final = max_answer_bytes
        self._used: Final[WeakSet[BaseProtocol]] = WeakSet()
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self, url: str, body: Body, *, headers: Mapping[str, str], timeout_seconds: float
    ) -> Response:
        """Sends one POST and reads the answer. Raises TransportError."""
        progress = _Progress()
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._on_a_live_connection(url, body, headers, progress)
        except TimeoutError as err:
            raise timed_out(url, in_body=progress.in_body, sent=progress.sent) from err
        except (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError) as err:
            raise broken(err, url, in_body=progress.in_body, sent=progress.sent) from err

    async def close(self) -> None:
        """Closes all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _on_a_live_connection(
        self, url: str, body: Body, headers: Mapping[str, str], progress: "_Progress"
    ) -> Response:
        """Takes connections until one is not stale. Ends: each stale one is closed, and a new one never is stale."""
        while True:
            upload = progress.upload = _Upload(body, self._used)
            try:
                async with self._request(url, upload, headers) as response:
                    progress.in_body = True
                    return Response(response.status, response.headers, await self._read(response))
            except (aiohttp.ClientError, OSError):
                if not upload.stale or upload.started:
                    raise

    def _request(
        self, url: str, upload: _Upload, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Prepares the request; entering it sends it."""
        now = asyncio.get_running_loop().time()
        if self._session is None:
            self._session = self._open()
        return self._session.post(
            URL(url, encoded=_PRINTABLE.fullmatch(url) is not None),
            data=upload,
            headers={**headers, "Content-Type": "application/json"},
            max_redirects=_MAX_REDIRECTS + 1,
            proxy=self._proxy,
            ssl=(self._tls and self._tls.context(now)) or True,
            server_hostname=self._tls.server_name if self._tls else None,
        )

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """Reads the body, within bounds."""
        if response.status != 200:
            return await _read_some(response, ERROR_BODY_BYTES)
        if (response.content_length or 0) > self._max_answer_bytes:
            raise too_large(self._max_answer_bytes)
        body = await _read_some(response, self._max_answer_bytes + 1)
        if len(body) > self._max_answer_bytes:
            raise too_large(self._max_answer_bytes)
        return body

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=self._keepalive_timeout,
            ttl_dns_cache=_DNS_CACHE_SECONDS,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers={"User-Agent": "aiokube-scheduler", "Accept-Encoding": "gzip"},
            requote_redirect_url=False,
            read_bufsize=_READ_BUFFER,
        )


class _Progress:
    """How far an exchange got."""

    def __init__(self) -> None:
        #: Whether the answer's headers are in.
        self.in_body = False
        self.upload: _Upload | None = None

    @property
    def sent(self) -> bool:
        """Whether the extender may have seen some of the request."""
        return self.upload is not None and self.upload.started


async def _read_some(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Reads up to ``limit`` bytes; the connection is given up if there are more."""
    chunks: list[bytes] = []
    missing = limit
    async for chunk in response.content.iter_any():
        chunks.append(chunk[:missing])
        missing -= len(chunks[-1])
        if not missing:
            response.close()
            break
    return b"".join(chunks)
