"""HTTP exchanges with an extender, with redirects, and errors with kube-scheduler's texts.

A POST that the extender may have received is never repeated, because extenders reserve things. A request uses a second
connection only if the first one, kept from an earlier call, was closed by the server *before a byte of this request was
written*. That is checked on the socket right before the first write: an idle connection with something to read has been
closed (or has unexpected data), even if the event loop does not know it yet. Once a byte was passed to the kernel, a
failure is reported. Idle connections are closed early (ExtenderConfig.keepalive_timeout), so that this is rare.

Redirects are followed as Go's client does: after 301, 302 and 303 with a GET, after 307 and 308 with the same POST, ten
requests in all at most.
"""

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from app.extender.exchange import ERROR_BODY_BYTES, ExtenderResponse, Large, Request, exchange
from app.extender.failures import broken, misled, timed_out
from app.extender.tls import TLSSource
from app.http.connection import KnownHeads
from app.http.dial import Dialer
from app.http.errors import HTTPError
from app.http.pool import Pool
from app.http.proxy import Proxy
from app.http.request import Route

if TYPE_CHECKING:  # loaded for the first call
    from yarl import URL
from app.model.gotext import quote
from app.wire.extender_v1 import Body

__all__ = ["ERROR_BODY_BYTES", "ExtenderResponse", "HTTPTransport"]

# URLs are sent as configured, unless they have characters that a request line cannot have.
_PRINTABLE: Final = re.compile(r"[!#-;=?-\[\]_a-z~]*")
_REDIRECTS_AS_GET: Final = frozenset({301, 302, 303})
_REDIRECTS: Final = _REDIRECTS_AS_GET | {307, 308}
_MAX_REQUESTS: Final = 10
_HEADERS: Final = {"Accept": "*/*", "Accept-Encoding": "gzip", "User-Agent": "aiokube-scheduler"}


class HTTPTransport:
    """Connections to one extender."""

    def __init__(
        self,
        *,
        tls: TLSSource | None = None,
        proxy_for: Callable[[str], Proxy | None] = lambda _url: None,
        keepalive_timeout: float = 1.5,
        max_answer_bytes: int = 256 * 1024 * 1024,
        may_call: Callable[[], bool] = lambda: True,
    ) -> None:
        """``proxy_for`` is asked again for each redirect, and may raise ValueError.

        ``may_call`` is asked right before the first byte is written to a connection. If it returns False nothing is
        sent, and the call has the outcome CANCELLED.
        """
        self._tls: Final = tls
        #: The proxy for a URL, None for none.
        self.proxy_for: Final = proxy_for
        self._keepalive_timeout: Final = keepalive_timeout
        self._max_answer_bytes: Final = max_answer_bytes
        self._may_call: Final = may_call
        self._pool: Pool | None = None
        self._routes: Final[dict[str, Route]] = {}

    async def post(
        self,
        url: str,
        body: Body,
        *,
        headers: Mapping[str, str],
        timeout_seconds: float,
        large: Large | None = None,
    ) -> ExtenderResponse:
        """Sends one POST and reads the answer: all of a 200, ERROR_BODY_BYTES of any other.

        Raises TransportError, and AnswerError from the stream of a large answer.
        """
        pool = self._pool or self._opened()
        request = Request(
            url=url,
            body=body,
            headers=headers,
            deadline=pool.now() + timeout_seconds,
            large=large,
        )
        try:
            route = self._routes.get(url)
            if route is None or route.secure:
                route = self._route(url)
            response = await exchange(pool, route, request, self._max_answer_bytes, self._may_call)
            if response.status in _REDIRECTS:
                response = await self._follow(pool, request, route, response)
        except TimeoutError as err:
            raise timed_out(request) from err
        except (HTTPError, OSError) as err:
            raise broken(err, request) from err
        return response

    async def close(self) -> None:
        """Closes all connections."""
        pool, self._pool = self._pool, None
        self._routes.clear()
        if pool is not None:
            await pool.close()

    # ------------------------------------------------------------ one call

    async def _follow(
        self, pool: Pool, request: Request, route: Route, response: ExtenderResponse
    ) -> ExtenderResponse:
        """Follows the redirects from an answer to ``request``, if it says where to."""
        redirected = ""
        for number in range(_MAX_REQUESTS):
            if number:
                response = await exchange(
                    pool, route, request, self._max_answer_bytes, self._may_call
                )
            location = response.headers.get("Location", "") if response.status in _REDIRECTS else ""
            if not location:
                if redirected:
                    response = msgspec.structs.replace(response, redirected=redirected)
                return response
            request.in_body = False
            asked = _parsed(route.url)
            url = _destination(asked, location)
            if url.origin() != asked.origin():
                request.headers = {k: v for k, v in request.headers.items() if k != "Authorization"}
            if response.status in _REDIRECTS_AS_GET:
                request.body = None
            request.url = str(url)
            redirected = f"{'GET' if request.body is None else 'POST'} {url}"
            route = self._new_route(url)
        request.url = location  # unchanged, as in the error of Go's client
        raise HTTPError(f"stopped after {_MAX_REQUESTS} redirects")

    def _opened(self) -> Pool:
        self._pool = Pool(Dialer(), keepalive=self._keepalive_timeout, heads=KnownHeads())
        return self._pool

    def _route(self, url: str) -> Route:
        """The route of a configured URL, with the current certificates."""
        route = self._routes.get(url)
        if route is None or (route.secure and route.tls is not self._tls_settings()):
            route = self._routes[url] = self._new_route(_parsed(url))
        return route

    def _new_route(self, url: "URL") -> Route:
        try:
            proxy = self.proxy_for(str(url))
        except ValueError as err:
            raise misled(str(url), str(err)) from err
        return Route(
            str(url),
            _HEADERS.items(),
            tls=self._tls_settings(),
            server_hostname=self._tls.server_name if self._tls else None,
            proxy=proxy,
        )

    def _tls_settings(self) -> ssl.SSLContext | bool:
        context = self._tls and self._tls.context(asyncio.get_running_loop().time())
        return context or True


def _parsed(url: str) -> "URL":
    from yarl import URL  # noqa: PLC0415 - see above

    return URL(url, encoded=_PRINTABLE.fullmatch(url) is not None)


def _destination(url: "URL", location: str) -> "URL":
    """The URL of a redirect from ``url`` with this Location. Raises TransportError."""
    from yarl import URL  # noqa: PLC0415 - see above

    try:
        destination = url.join(URL(location))
    except ValueError as err:
        reason = f"failed to parse Location header {quote(location)}"
        raise misled(str(url), reason) from err
    if destination.scheme not in {"http", "https"}:
        raise misled(str(destination), f"unsupported protocol scheme {quote(destination.scheme)}")
    return destination
