"""Answers requests; each passes TLS, authentication and authorization (docs/spec/endpoints.md#server)."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from app.observe.metrics.process import Closed, ServingMetrics
from app.serving.access import Authenticator, Authorizer, RequestRejected, status_response
from app.serving.connections import IDLE_SECONDS, Connections
from app.serving.listening import Listening, listening
from app.serving.options import ServingOptions
from app.serving.pages import UnfinishedError

log = logging.getLogger(__name__)

#: Seconds from the headers of a request to the end of its answer.
REQUEST_SECONDS: Final = 60.0
#: Bytes of a request's body at most; larger ones are answered with 413.
_MAX_BODY: Final = 64 * 1024


class _RequestLog(logging.LoggerAdapter[logging.Logger]):
    """aiohttp's log, without tracebacks for malformed requests and lost connections."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **kwargs: Any) -> None:
        """See Logger.exception."""
        if isinstance(exc_info, HttpProcessingError | web.RequestPayloadError | ConnectionError):
            self.debug("Request not served: %r", str(exc_info))
        else:
            self.error(msg, *args, exc_info=exc_info, **kwargs)


@asynccontextmanager
async def serving(
    routes: Iterable[web.RouteDef],
    options: ServingOptions,
    *,
    authenticator: Authenticator,
    authorizer: Authorizer,
    metrics: ServingMetrics,
    wall: Callable[[], float],
) -> AsyncIterator[Listening]:
    """Listens and answers for the length of the block. Raises ServingError."""
    with listening(options, wall) as found:
        async with answering(
            found,
            routes,
            options,
            authenticator=authenticator,
            authorizer=authorizer,
            metrics=metrics,
        ):
            yield found


@asynccontextmanager
async def answering(
    listening: Listening,
    routes: Iterable[web.RouteDef],
    options: ServingOptions,
    *,
    authenticator: Authenticator,
    authorizer: Authorizer,
    metrics: ServingMetrics,
) -> AsyncIterator[None]:
    """Serves the routes for the length of the block, then lets answers in progress finish. Raises ServingError."""
    context = listening.context
    connections = Connections(options.connections, metrics)
    app = web.Application(
        middlewares=[guarded(connections, metrics), _access(authenticator, authorizer)],
        client_max_size=_MAX_BODY,
    )
    app.add_routes(routes)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_RequestLog(log),
        auto_decompress=False,
        handle_signals=False,
        keepalive_timeout=IDLE_SECONDS,
        shutdown_timeout=options.grace,
    )
    await runner.setup()
    try:
        async with _accepting(listening.sockets, connections, runner, context):
            yield
    finally:
        await runner.cleanup()
        connections.close_all()


@asynccontextmanager
async def _accepting(
    sockets: Sequence[socket.socket],
    connections: Connections,
    runner: web.AppRunner,
    context: ssl.SSLContext | None,
) -> AsyncIterator[None]:
    assert runner.server is not None  # noqa: S101 - it is set up
    tasks = [
        asyncio.create_task(connections.accept(each, runner.server, context), name="endpoints")
        for each in sockets
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def guarded(connections: Connections, metrics: ServingMetrics) -> Middleware:
    """The outer middleware: turns exceptions into answers, and limits the time.

    An unexpected exception is logged, counted and answered with 500. If the answer cannot be sent within
    REQUEST_SECONDS after the request's headers, the connection is closed.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            with connections.serving(request):
                async with asyncio.timeout(REQUEST_SECONDS):
                    response = await _answered(request, handler, metrics)
                    if not response.prepared:
                        response.headers["Cache-Control"] = "no-cache, private"
                    await response.prepare(request)
                    await response.write_eof()
        except TimeoutError as error:
            metrics.closed(Closed.REQUEST)
            _abort(request)
            raise ConnectionAbortedError("the answer was not sent in time") from error
        return response

    return guard


async def _answered(
    request: web.Request, handler: Handler, metrics: ServingMetrics
) -> web.StreamResponse:
    try:
        return await handler(request)
    except RequestRejected as refused:
        return refused.response
    except web.HTTPException as error:
        return _http_error(error)
    except ConnectionError:
        raise
    except Exception as error:
        resource = request.match_info.route.resource
        metrics.failed("" if resource is None else resource.canonical)
        log.exception("Error serving %s %r", request.method, request.path)
        if isinstance(error, UnfinishedError):
            _abort(request)
            raise ConnectionAbortedError("the answer could not be finished") from error
        text = "This request caused the scheduler to fail; see its log.\n"
        return web.Response(status=500, text=text)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _http_error(error: web.HTTPException) -> web.StreamResponse:
    if error.status == 404:
        return web.Response(status=404, text="404 page not found\n")
    if error.status == 405:
        message = "the server does not allow this method on the requested resource"
        return status_response(405, "MethodNotAllowed", message)
    return web.Response(status=error.status, text=f"{error.reason}\n")


def _access(authenticator: Authenticator, authorizer: Authorizer) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        user = await authenticator.user(request)
        if not authorizer.is_open(request.path):
            await authorizer.check(user, request)
        return await handler(request)

    return check
