"""Builds requests: their route (address, TLS, proxy) and their headers."""

import base64
import re
import ssl
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from app.http.errors import HTTPError
from app.http.proxy import Proxy
from app.http.tls import system_context

_BREAKS: Final = re.compile(r"[\r\n\0]")


class Endpoint(msgspec.Struct, frozen=True, cache_hash=True):
    """Where a connection leads, and how: the key of the pool."""

    host: str
    port: int
    #: None for plain HTTP.
    tls: ssl.SSLContext | None
    #: The name in the server's certificate.
    name: str
    proxy: Proxy | None
    #: The TLS settings for an https proxy, whose certificate is checked as the server's is.
    proxy_tls: ssl.SSLContext | None


class Route:
    """The route of requests to one URL: address, TLS and proxy, and the headers that follow from it."""

    def __init__(
        self,
        url: str,
        headers: Iterable[tuple[str, str]],
        *,
        tls: ssl.SSLContext | bool,
        server_hostname: str | None,
        proxy: Proxy | None,
    ) -> None:
        """``url``: as it is sent, with its escapes. ``headers``: those of every request. ``tls``: True for the system's
        authorities. ``server_hostname``: the name in the server's certificate, None for the URL's.

        Raises ValueError for headers with line breaks, HTTPError for a URL without a host.
        """
        parts = urlsplit(url)
        secure, to_proxy = parts.scheme == "https", proxy is not None and proxy.secure
        host, usual = parts.hostname, 443 if secure else 80
        if not host:
            raise HTTPError("http: no Host in request URL")
        port = usual if parts.port is None else parts.port
        self.url: Final = url
        #: Whether TLS may be used.
        self.secure: Final = secure or proxy is not None
        self.tls: Final = tls
        context = _context(tls) if secure or to_proxy else None
        self.endpoint: Final = Endpoint(
            host,
            port,
            tls=context if secure else None,
            name=(server_hostname or host).rstrip("."),
            proxy=proxy,
            proxy_tls=context if to_proxy else None,
        )
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        shown = f"[{host}]" if ":" in host else host
        shown += "" if port == usual else f":{port}"
        fixed = [("Host", shown)]
        if parts.username or parts.password:
            pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
            fixed.append(("Authorization", f"Basic {base64.b64encode(pair).decode()}"))
        if proxy is not None and not secure:
            # The proxy reads the request, so it needs the whole URL and its credentials.
            target = f"{parts.scheme}://{shown}{target}"
            fixed += proxy.headers.items()
        self._target: Final = target.encode()
        self._lines: Final = header_lines([*fixed, *headers])
        self._json: Final = b"POST %b HTTP/1.1\r\n%bContent-Type: application/json\r\n" % (
            self._target,
            self._lines,
        )

    def head(self, method: str, path: str, lines: bytes, size: int | None) -> bytes:
        """The request line and headers. ``path`` is appended to the URL; ``size``: the body's bytes, None without
        one."""
        length = b"" if size is None else b"Content-Length: %d\r\n" % size
        return b"%b %b%b HTTP/1.1\r\n%b%b%b\r\n" % (
            method.encode(),
            self._target,
            path.encode(),
            self._lines,
            lines,
            length,
        )

    def json_head(self, size: int) -> bytes:
        """The request line and headers of a POST with a body of JSON."""
        return b"%bContent-Length: %d\r\n\r\n" % (self._json, size)


def _context(tls: ssl.SSLContext | bool) -> ssl.SSLContext:
    return tls if isinstance(tls, ssl.SSLContext) else system_context()


def header_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    """Header lines. Raises ValueError for headers with line breaks."""
    lines = [f"{name}: {value}" for name, value in headers]
    for line in lines:
        if _BREAKS.search(line):
            raise ValueError(f"header {line.partition(':')[0]!r} holds a line break or NUL")
    return "".join([f"{line}\r\n" for line in lines]).encode()


class Progress(msgspec.Struct):
    """The progress of an exchange."""

    #: Where the request goes. Redirects change it.
    url: str
    #: Whether any byte was passed to a connection.
    sent: bool = False
    #: Whether that connection had carried an exchange before.
    kept: bool = False
    #: Whether the headers of an answer have arrived.
    in_body: bool = False
