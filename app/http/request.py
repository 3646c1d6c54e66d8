"""Builds requests: their route (address, TLS, proxy) and their headers."""

import asyncio
import dataclasses
import re
import ssl
from collections.abc import Iterable
from typing import Final

import aiohttp
from yarl import URL

from app.http.proxy import Proxy

_BREAKS: Final = re.compile(r"[\r\n\0]")


class Route:
    """The route of requests to one URL: address, TLS and proxy, and the headers that follow from it."""

    def __init__(
        self,
        url: URL,
        headers: Iterable[tuple[str, str]],
        *,
        tls: ssl.SSLContext | bool,
        server_hostname: str | None,
        proxy: Proxy | None,
    ) -> None:
        """``headers``: those of every request. ``tls``: as for aiohttp. ``server_hostname``: the name in the server's
        certificate, None for the URL's.

        Raises ValueError for headers with line breaks.
        """
        self.url: Final = url
        #: Whether TLS may be used.
        self.secure: Final = url.scheme == "https" or proxy is not None
        self.tls: Final = tls
        #: aiohttp's key for the connection.
        self.request: Final = aiohttp.ClientRequest(
            "GET",
            url,
            loop=asyncio.get_running_loop(),
            ssl=tls,
            server_hostname=server_hostname,
            proxy=URL(proxy.url) if proxy else None,
            proxy_headers=proxy.headers if proxy else None,
        )
        #: The key of the pool.
        self.key: Final = self.request.connection_key
        target, own = self.request.url.raw_path_qs, self.request.headers
        fixed = [(name, own[name]) for name in ("Host", "Authorization") if name in own]
        if proxy is not None and not self.request.is_ssl():
            # The proxy reads the request, so it needs the whole URL and its credentials.
            target = str(self.request.url.with_user(None))
            fixed += proxy.headers.items()
        self._target: Final = target.encode()
        self._lines: Final = header_lines([*fixed, *headers])

    def head(self, method: str, path: str, lines: bytes, size: int | None) -> bytes:
        """The request line and headers. ``path`` is appended to the URL; ``size``: the body's bytes, None without one."""
        length = b"" if size is None else b"Content-Length: %d\r\n" % size
        return b"%b %b%b HTTP/1.1\r\n%b%b%b\r\n" % (
            method.encode(),
            self._target,
            path.encode(),
            self._lines,
            lines,
            length,
        )


def header_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    """Header lines. Raises ValueError for headers with line breaks."""
    lines = [f"{name}: {value}" for name, value in headers]
    for line in lines:
        if _BREAKS.search(line):
            raise ValueError(f"header {line.partition(':')[0]!r} holds a line break or NUL")
    return "".join([f"{line}\r\n" for line in lines]).encode()


@dataclasses.dataclass(slots=True)
class Progress:
    """The progress of an exchange."""

    #: Where the request goes. Redirects change it.
    url: str
    #: Whether any byte was passed to a connection.
    sent: bool = False
    #: Whether that connection had carried an exchange before.
    kept: bool = False
    #: Whether the headers of an answer have arrived.
    in_body: bool = False
