"""Opens connections: names, addresses of both IP families, TLS, tunnels through proxies.

The addresses of a name are tried as RFC 8305 says (aiohappyeyeballs). As in Go's client, only connecting moves on to
the next address, a TLS handshake that fails does not.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

from app.http.connection import HTTPConnection
from app.http.errors import (
    ConnectError,
    HTTPError,
    ProxyError,
    ServerDisconnectedError,
    TLSError,
    UnknownHostError,
)
from app.http.proxy import Proxy
from app.http.request import Endpoint

#: As getaddrinfo returns it.
Address = tuple[Any, ...]
SocketFactory = Callable[[Address], socket.socket]

#: Seconds for which the addresses of a name are kept.
_NAMES_KEPT: Final = 10.0
#: Seconds after which the next address is tried too, while the first one does not answer.
_NEXT_ADDRESS: Final = 0.25
#: Bytes of a proxy's answer to CONNECT at most.
_MAX_ANSWER: Final = 64 * 1024


class Dialer:
    """Opens connections; remembers the addresses of names for some seconds."""

    def __init__(self, socket_factory: SocketFactory | None = None) -> None:
        self._make_socket: Final = socket_factory
        self._names: dict[tuple[str, int], tuple[float, asyncio.Task[list[Address]]]] = {}

    async def dial(self, endpoint: Endpoint) -> HTTPConnection:
        """A connection to an endpoint. Raises ConnectError, ProxyError, ServerDisconnectedError."""
        if endpoint.proxy is None:
            return await self._direct(endpoint.host, endpoint.port, endpoint.tls, endpoint.name)
        return await self._proxied(endpoint, endpoint.proxy)

    def close(self) -> None:
        """Ends lookups that are under way."""
        for _, lookup in self._names.values():
            lookup.cancel()
        self._names.clear()

    async def _direct(
        self, host: str, port: int, tls: ssl.SSLContext | None, name: str
    ) -> HTTPConnection:
        connected = await self._connected(host, port)
        with _explained(host, port):
            _, connection = await asyncio.get_running_loop().create_connection(
                HTTPConnection, sock=connected, ssl=tls, server_hostname=name if tls else None
            )
        return connection

    async def _proxied(self, endpoint: Endpoint, proxy: Proxy) -> HTTPConnection:
        parts = urlsplit(proxy.url)
        host, port = parts.hostname or "", parts.port or (443 if proxy.secure else 80)
        context = endpoint.proxy_tls
        if endpoint.tls is None:
            return await self._direct(host, port, context, host)
        connected = await self._connected(host, port)
        loop = asyncio.get_running_loop()
        with _explained(host, port):
            transport, tunnel = await loop.create_connection(
                _Tunnel, sock=connected, ssl=context, server_hostname=host if context else None
            )
        connection = HTTPConnection()
        try:
            await tunnel.open(endpoint, proxy)
            with _explained(endpoint.host, endpoint.port):
                secured = await loop.start_tls(
                    transport, connection, endpoint.tls, server_hostname=endpoint.name
                )
        except BaseException:
            transport.abort()
            raise
        if secured is None:  # it was closed meanwhile
            raise ServerDisconnectedError
        connection.connection_made(secured)
        return connection

    async def _connected(self, host: str, port: int) -> socket.socket:
        try:
            addresses = await self._addresses(host, port)
        except OSError as err:
            raise UnknownHostError(host, port, err) from err
        except UnicodeError as err:  # a name that cannot be asked for
            raise UnknownHostError(host, port, OSError(str(err))) from err
        with _explained(host, port):
            return await start_connection(
                addresses,
                happy_eyeballs_delay=_NEXT_ADDRESS,
                socket_factory=self._make_socket,
            )

    async def _addresses(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of a host. Those who ask at the same time share one lookup."""
        with contextlib.suppress(ValueError):
            version = ipaddress.ip_address(host).version
            family = socket.AF_INET if version == 4 else socket.AF_INET6
            where = (host, port) if version == 4 else (host, port, 0, 0)
            return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", where)]
        now = asyncio.get_running_loop().time()
        since, lookup = self._names.get((host, port), (0.0, None))
        if lookup is None or now - since > _NAMES_KEPT or _has_failed(lookup):
            lookup = asyncio.create_task(_looked_up(host, port), name="look up a name")
            lookup.add_done_callback(_has_failed)  # perhaps nobody waits for it any more
            self._names = {
                key: (at, kept)
                for key, (at, kept) in self._names.items()
                if now - at <= _NAMES_KEPT
            }
            self._names[host, port] = (now, lookup)
        return await asyncio.shield(lookup)


def _has_failed(lookup: asyncio.Task[list[Address]]) -> bool:
    return lookup.done() and (lookup.cancelled() or lookup.exception() is not None)


async def _looked_up(host: str, port: int) -> list[Address]:
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return list(found)


@contextlib.contextmanager
def _explained(host: str, port: int) -> Iterator[None]:
    """Turns errors of the system and of TLS into those of this package."""
    try:
        yield
    except ssl.SSLError as err:
        raise TLSError(host, port, err) from err
    except TimeoutError as err:
        if err.errno is None:  # the caller's time is up
            raise
        raise ConnectError(host, port, err) from err
    except OSError as err:
        raise ConnectError(host, port, err) from err


class _Tunnel(asyncio.Protocol):
    """Asks a proxy for a tunnel, before the protocol of the server takes over."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._said = b""
        self._answer: Final = asyncio.get_running_loop().create_future()

    async def open(self, endpoint: Endpoint, proxy: Proxy) -> None:
        """Returns when bytes go to the server. Raises ProxyError, ServerDisconnectedError."""
        assert self._transport is not None  # noqa: S101 - it is connected
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        where = f"{host}:{endpoint.port}"
        lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
        lines += [f"{name}: {value}" for name, value in proxy.headers.items()]
        self._transport.write("\r\n".join([*lines, "", ""]).encode())
        head: bytes = await self._answer
        version, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        status, _, message = rest.strip().partition(" ")
        if not version.startswith("HTTP/1.") or not status.isdecimal():
            raise HTTPError("the answer of the proxy is not HTTP/1")
        if status != "200":
            raise ProxyError(int(status), message)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol. Servers wait for the client's TLS, so nothing follows the head."""
        self._said += data
        if self._answer.done():
            return
        if b"\r\n\r\n" in self._said:
            self._answer.set_result(self._said)
        elif len(self._said) > _MAX_ANSWER:
            self._answer.set_exception(HTTPError("the answer of the proxy is too long"))

    def connection_lost(self, _exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        if not self._answer.done():
            self._answer.set_exception(ServerDisconnectedError())
