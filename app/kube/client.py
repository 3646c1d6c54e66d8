"""Sends requests to the API server and opens streams, fast enough for more than a thousand bindings per second.

Headers, TLS settings, timeouts and the server's part of the URL are computed once. A request passes the rate limit,
waits for one of ``limit`` places and for a connection; then its guard is asked and its first byte is sent. Failures of
connections are translated here (app.kube.errors).
"""

import asyncio
import functools
import math
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, NoReturn, Self
from urllib.parse import urlencode

import msgspec
from multidict import CIMultiDict

from app.http.body import read_beginning, read_whole
from app.http.connection import Answer, HTTPConnection, MalformedAnswerError
from app.http.dial import Address, Dialer
from app.http.errors import (
    ConnectError,
    ConnectionBrokenError,
    HTTPError,
    ProxyError,
    ServerDisconnectedError,
)
from app.http.pool import Pool
from app.http.request import Progress, Route
from app.kube.backoff import TokenBucket
from app.kube.connection import Connection
from app.kube.credentials import CredentialFailures, Credentials
from app.kube.errors import (
    ConnectionFailed,
    KubeApiError,
    NotLeading,
    TooManyRequests,
    Unauthorized,
    error_from_response,
)
from app.kube.transport import JSON, Guard, Response
from app.runtime.shortages import SHORTAGES
from app.runtime.tasks import Slots

#: (method, status or 0 for no answer, seconds): called once per exchange.
Observer = Callable[[str, int, float], None]

#: Default timeout of an exchange in seconds.
DEFAULT_TIMEOUT: Final = 30.0
#: Timeout of connecting in seconds.
CONNECT_SECONDS: Final = 10.0
#: Seconds for which an idle connection is kept: less than the 90 s after which an API server closes it.
KEEPALIVE: Final = 30.0
#: Repetitions after answers 429, and the longest wait for each, in seconds.
MAX_THROTTLED: Final = 10
MAX_RETRY_AFTER: Final = 10.0

#: Largest answers in bytes: of errors, to reads (a list may be as large as the cluster), and to writes (objects in etcd
#: have at most 1.5 MB).
MAX_ERROR_BODY: Final = 1024 * 1024
MAX_READ: Final = 1024 * 1024 * 1024
MAX_WRITTEN: Final = 16 * 1024 * 1024

#: Methods that may be repeated on another connection, as in other clients.
_REPEATABLE: Final = frozenset({"GET", "DELETE"})
_BROKEN: Final = (ServerDisconnectedError, ConnectionBrokenError)
_CLOSED: Final = "KubeClient is used outside of its context"
_SOCKET_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, option, value)
        for option, value in (
            (getattr(socket, "TCP_KEEPIDLE", None), 30),
            (getattr(socket, "TCP_KEEPINTVL", None), 10),
            (getattr(socket, "TCP_KEEPCNT", None), 3),
            (getattr(socket, "TCP_USER_TIMEOUT", None), 60_000),
        )
        if option is not None
    ),
)


class ClientLimits(msgspec.Struct, frozen=True):
    """Limits of one client."""

    #: Requests per second and at once, as in clientConnection; a negative qps means no limit.
    qps: float = -1.0
    burst: int = 0
    #: Concurrent exchanges, not counting streams.
    exchanges: int = 64
    #: Seconds for one exchange.
    timeout: float = DEFAULT_TIMEOUT
    #: Repetitions after answers 429.
    throttled: int = MAX_THROTTLED


_DEFAULT_LIMITS: Final = ClientLimits()


class KubeClient:
    """A Transport to one server. Use as an async context manager."""

    def __init__(
        self,
        connection: Connection,
        *,
        agent: str,
        limits: ClientLimits = _DEFAULT_LIMITS,
        observer: Observer | None = None,
        failures: CredentialFailures | None = None,
    ) -> None:
        self._connection: Final = connection
        self._agent: Final = agent
        self._limits: Final = limits
        self._bucket: Final = (
            TokenBucket(qps=limits.qps, burst=limits.burst) if limits.qps > 0 else None
        )
        self._places: Final = Slots(limits.exchanges)
        self._observer: Final = observer
        self._failures: Final = failures
        self._credentials: Final = Credentials(connection, failures)
        self._pool: Pool | None = None
        self._route: Route | None = None

    async def __aenter__(self) -> Self:
        """Reads the credentials. Raises ConnectionSettingsError."""
        await self._credentials.load()
        dialer = Dialer(_keepalive_socket)
        self._pool = Pool(dialer, keepalive=KEEPALIVE, connect_seconds=CONNECT_SECONDS)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections; may be called again."""
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    @property
    def server(self) -> str:
        """The server's address."""
        return self._connection.server

    def _default_headers(self) -> CIMultiDict[str]:
        headers = CIMultiDict({"Accept-Encoding": "identity", "User-Agent": self._agent})
        headers.extend(self._connection.headers)
        return headers

    # ------------------------------------------------------------ one exchange

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - seconds, of the exchange
    ) -> Response:
        """See Reader.get."""
        return await self.request("GET", path, params=params, timeout=timeout)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,  # noqa: ASYNC109 - seconds, of the exchange
        guard: Guard | None = None,
    ) -> Response:
        """See Transport.request. A 401 is tried once more with renewed credentials; a 429 is waited out."""
        target = f"{path}?{urlencode(params)}" if params else path
        throttled, renewed = 0, False
        while True:
            credentials = await self._credentials.current()
            if self._bucket is not None:
                await self._wait_for_token(self._bucket)
            if not self._places.take():
                await self._places.wait()
            try:
                lines = credentials.lines("" if body is None else content_type, accept)
                status, retry_after, content = await self._exchange(
                    method, target, body, lines, timeout or self._limits.timeout, guard
                )
            finally:
                self._places.give_back()
            if status < 300:
                return Response(status, content)
            error = error_from_response(method, path, status, content, retry_after)
            if isinstance(error, Unauthorized) and not renewed:
                renewed = await self._credentials.renew(credentials.number)
                if renewed:
                    continue
            if isinstance(error, TooManyRequests) and throttled < self._limits.throttled:
                throttled += 1
                wait = 1.0 if error.retry_after is None else error.retry_after
                await asyncio.sleep(min(wait, MAX_RETRY_AFTER))
                continue
            self._note_refusal(error)
            try:
                raise error
            finally:
                del error  # the traceback has this frame: no cycle

    def _note_refusal(self, error: KubeApiError) -> None:
        if isinstance(error, Unauthorized) and self._failures is not None:
            self._failures.note_refused(self.server, error)

    async def _exchange(
        self,
        method: str,
        target: str,
        body: bytes | None,
        lines: bytes,
        seconds: float,
        guard: Guard | None,
    ) -> "_Answer":
        """One exchange. A connection that the server has closed is replaced if the method allows it."""

        def check() -> None:
            if guard is not None and not guard():
                raise NotLeading(method, target.partition("?")[0])

        pool, route = self._opened(), self._current_route()
        head = route.head(method, target[1:], lines, None if body is None else len(body))
        data = head if body is None else head + body
        started, progress = pool.now(), Progress("")
        once = functools.partial(_once, pool, route, method, data, started + seconds, progress)
        try:
            try:
                answer = await once(check)
            except ConnectError:
                raise
            except _BROKEN:
                if method not in _REPEATABLE:
                    raise
                answer = await once(check)
        except (HTTPError, TimeoutError, OSError) as err:
            self._observe(method, 0, pool.now() - started)
            _fail(method, target, err, sent=progress.sent)
        except asyncio.CancelledError:
            self._observe(method, 0, pool.now() - started)
            raise
        self._observe(method, answer[0], pool.now() - started)
        return answer

    def _observe(self, method: str, status: int, seconds: float) -> None:
        if self._observer is not None:
            self._observer(method, status, seconds)

    def _current_route(self) -> Route:
        """The route to the server, with the current identity."""
        route = self._route
        if route is None or route.tls is not self._credentials.tls:
            route = self._route = Route(
                f"{self._connection.server}/",
                self._default_headers().items(),
                tls=self._credentials.tls,
                server_hostname=self._connection.tls_server_name,
                proxy=self._connection.proxy,
            )
        return route

    def _opened(self) -> Pool:
        if self._pool is None:
            raise RuntimeError(_CLOSED)
        return self._pool

    async def _wait_for_token(self, bucket: TokenBucket) -> None:
        delay = bucket.take(self._opened().now())
        if delay <= 0.0:
            return
        try:
            await asyncio.sleep(delay)
        except BaseException:
            bucket.give_back()
            raise

    # ------------------------------------------------------------ streams

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See Transport.stream."""
        target = f"{path}?{urlencode(params)}" if params else path
        stream = await self._open_stream(path, target, read_timeout)
        try:
            yield _Chunks(stream, path)
        finally:
            stream.close()

    async def _open_stream(self, path: str, target: str, read_timeout: float) -> "StreamedResponse":
        renewed = False
        while True:
            credentials = await self._credentials.current()
            if self._bucket is not None:
                await self._wait_for_token(self._bucket)
            try:
                lines = credentials.lines("", JSON)
                async with asyncio.timeout(self._limits.timeout):
                    stream = await self._open(target, lines, read_timeout)
                    if stream.status < 300:
                        return stream
                    try:
                        content = await read_beginning(stream, MAX_ERROR_BODY)
                    finally:
                        stream.close()
            except (HTTPError, TimeoutError, OSError) as err:
                SHORTAGES.noted(err, "connect", asyncio.get_running_loop().time())
                _fail("GET", target, err)
            error = error_from_response("GET", path, stream.status, content, stream.retry_after)
            if isinstance(error, Unauthorized) and not renewed:
                renewed = await self._credentials.renew(credentials.number)
                if renewed:
                    continue
            self._note_refusal(error)
            try:
                raise error
            finally:
                del error  # the traceback has this frame: no cycle

    async def _open(self, target: str, lines: bytes, read_timeout: float) -> "StreamedResponse":
        """The answer to a GET; its body has not been read. Raises TimeoutError, HTTPError, OSError."""
        pool, route = self._opened(), self._current_route()
        head = route.head("GET", target[1:], lines, None)
        while True:
            connection = await pool.take(route, math.inf)
            kept = connection.kept
            try:
                connection.write((head,))
                answer = _final(await connection.answer())
                return StreamedResponse(pool, connection, answer, read_timeout)
            except BaseException as err:
                pool.drop(connection)
                if not (kept and isinstance(err, _BROKEN)):
                    raise


class StreamedResponse:
    """An answer whose body is read as it arrives, for as long as it goes on; ``close`` it."""

    def __init__(
        self, pool: Pool, connection: HTTPConnection, answer: Answer, read_timeout: float
    ) -> None:
        """``read_timeout``: seconds of silence after which reading fails with a TimeoutError."""
        self.status: Final = answer.status
        #: The Retry-After header of an error.
        self.retry_after: Final = answer.headers.get("Retry-After") if self.status >= 300 else None
        self._pool: Final = pool
        self._connection: Final = connection
        self._read_timeout: Final = read_timeout
        self._loop: Final = asyncio.get_running_loop()

    async def readany(self) -> bytes:
        """See HTTPConnection.readany."""
        self._pool.extend(self._connection, self._loop.time() + self._read_timeout)
        return await self._connection.readany()

    def at_eof(self) -> bool:
        """See HTTPConnection.at_eof."""
        return self._connection.at_eof()

    def close(self) -> None:
        """Closes the connection."""
        self._pool.drop(self._connection)


#: An answer, whatever its status: the status, the Retry-After header, and the body; that of an error is cut after
#: MAX_ERROR_BODY bytes.
_Answer = tuple[int, str | None, bytes]


async def _once(
    pool: Pool,
    route: Route,
    method: str,
    data: bytes,
    deadline: float,
    progress: Progress,
    check: Callable[[], None],
) -> _Answer:
    """Sends one request (``data``) and reads the answer, until ``deadline`` in the loop's time.

    ``check`` is called right before the first byte is written to a connection; what it raises ends the exchange.
    Raises TimeoutError, HTTPError (also for an answer that is too large), OSError.
    """
    check()
    connection = pool.kept(route, deadline)
    dialled = connection is None
    if connection is None:
        connection = await pool.dialled(route, deadline)
    try:
        if dialled:
            check()
        progress.sent = True
        connection.write((data,))
        answer = _final(await connection.answer())
        if answer.status >= 300:
            body = await read_beginning(connection, MAX_ERROR_BODY)
            retry_after = answer.headers.get("Retry-After")
        else:
            retry_after = None
            limit = MAX_READ if method == "GET" else MAX_WRITTEN
            whole = connection.take_whole(limit)
            body = await read_whole(connection, limit) if whole is None else whole
    except BaseException:
        pool.drop(connection)
        raise
    pool.give_back(route, connection)
    return answer.status, retry_after, body


def _final(answer: Answer) -> Answer:
    """The answer. Raises MalformedAnswerError for a status that ends no request (101, which nobody asks for, and below
    100)."""
    if answer.status < 200:
        raise MalformedAnswerError(f"status {answer.status} is no answer")
    return answer


class _Chunks:
    """Yields the chunks of a body; a broken connection raises ConnectionFailed."""

    def __init__(self, stream: StreamedResponse, path: str) -> None:
        self._stream: Final = stream
        self._path: Final = path

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await self._stream.readany()
        except (HTTPError, TimeoutError, OSError) as err:
            _fail("GET", self._path, err)
        if not chunk:
            raise StopAsyncIteration
        return chunk


def _fail(method: str, target: str, err: Exception, *, sent: bool = True) -> NoReturn:
    """Raises the ConnectionFailed for the failure of an exchange; ``sent``: whether the request may have been sent."""
    never_sent = not sent or isinstance(err, ConnectError | ProxyError)
    cause = str(err) or type(err).__name__
    if isinstance(err, TimeoutError) and not never_sent:
        cause = "no answer in time"
    path = target.partition("?")[0]
    raise ConnectionFailed(f"{method} {path}: {cause}", sent=not never_sent) from err


def _keepalive_socket(address: Address) -> socket.socket:
    """A socket with TCP keepalive: probes after 30 s of silence, and fails after three probes without an answer."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    for level, option, value in _SOCKET_OPTIONS:
        with suppress(OSError):  # some sandboxes support fewer options
            made.setsockopt(level, option, value)
    return made
