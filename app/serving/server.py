"""The listener: TLS, then who asks, then whether they may, then the page (docs/spec/endpoints.md#server)."""

import errno
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from app.serving.access import Authenticator, Authorizer, Refused, status_response
from app.serving.options import ServingError, ServingOptions
from app.serving.tls import ServerTLS

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Nobody sends us anything large.
_MAX_BODY: Final = 64 * 1024
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
_BACKLOG: Final = 128


class Listening:
    """A server that accepts requests."""

    def __init__(self, runner: web.AppRunner, scheme: str) -> None:
        host, port = runner.addresses[0][:2]
        #: The port it listens on, also where any free one was asked for.
        self.port: Final = int(port)
        self.address: Final = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


@asynccontextmanager
async def serving(
    routes: Iterable[web.RouteDef],
    options: ServingOptions,
    *,
    authenticator: Authenticator,
    authorizer: Authorizer,
    wall: Callable[[], float],
) -> AsyncIterator[Listening]:
    """Serves the routes for the length of the block, then lets answers under way finish. Raises ServingError.

    Here port 0 stands for any free one.
    """
    tls = None if options.insecure_http else ServerTLS(options, wall)
    app = web.Application(
        middlewares=[_recover, _access(authenticator, authorizer)], client_max_size=_MAX_BODY
    )
    app.add_routes(routes)
    runner = web.AppRunner(
        app, access_log=None, handle_signals=False, shutdown_timeout=options.grace
    )
    await runner.setup()
    try:
        try:
            await _site(runner, options, tls).start()
        except OSError as err:
            where = f"{options.bind_address}:{options.secure_port}"
            why = err.strerror or err
            raise ServingError(
                f"failed to listen on {where}: {why}; choose another --bind-address or --secure-port, or "
                "--secure-port=0 for no endpoints"
            ) from err
        listening = Listening(runner, "http" if tls is None else "https")
        _announce(listening, options)
        yield listening
    finally:
        await runner.cleanup()


def _site(runner: web.AppRunner, options: ServingOptions, tls: ServerTLS | None) -> web.BaseSite:
    """Where to listen. A wildcard of either family stands for all addresses of both, as it does in Go. Raises OSError."""
    context = None if tls is None else tls.context
    if options.bind_address in _WILDCARDS and (both := _all_addresses(options.secure_port)):
        return web.SockSite(runner, both, ssl_context=context)
    return web.TCPSite(runner, options.bind_address, options.secure_port, ssl_context=context)


def _all_addresses(port: int) -> socket.socket | None:
    """Both families in one socket; None where there is no IPv6. Raises OSError."""
    if not socket.has_dualstack_ipv6():
        return None
    try:
        return socket.create_server(
            ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG
        )
    except OSError as err:
        if err.errno == errno.EADDRNOTAVAIL:
            return None
        raise


def _announce(listening: Listening, options: ServingOptions) -> None:
    if options.insecure_http:
        log.warning(
            "INSECURE: endpoints are served without TLS at %s: whoever can see the traffic can read tokens and answers. "
            "Use this on a machine of your own only.",
            listening.address,
        )
    else:
        log.info("Serving securely at %s", listening.address)


@web.middleware
async def _recover(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers for those who cannot, and sets the headers that all answers have."""
    try:
        response = await handler(request)
    except web.HTTPException as error:
        response = _http_error(error)
    except Exception:
        log.exception("Error serving %s %s", request.method, request.path)
        text = "This request caused the scheduler to fail; see its log.\n"
        response = web.Response(status=500, text=text)
    if not response.prepared:
        response.headers["Cache-Control"] = "no-cache, private"
    return response


def _http_error(error: web.HTTPException) -> web.StreamResponse:
    if error.status == 404:
        return web.Response(status=404, text="404 page not found\n")
    if error.status == 405:
        message = "the server does not allow this method on the requested resource"
        return status_response(405, "MethodNotAllowed", message)
    return web.Response(status=error.status, text=f"{error.reason}\n")


def _access(
    authenticator: Authenticator, authorizer: Authorizer
) -> Callable[..., Awaitable[web.StreamResponse]]:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            user = await authenticator.user(request)
            if not authorizer.is_open(request.path):
                await authorizer.check(user, request)
        except Refused as refused:
            return refused.response
        return await handler(request)

    return check
