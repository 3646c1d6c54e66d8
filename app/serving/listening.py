"""Opens the port of the endpoints. What answers is slow to import; until it is there, connections wait."""

import errno
import functools
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from app.serving.options import ServingError, ServingOptions
from app.serving.tls import ServerTLS

log = logging.getLogger(__name__)

_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
_BACKLOG: Final = 128


class Listening:
    """Sockets to which clients can connect."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        options: ServingOptions,
        wall: Callable[[], float],
    ) -> None:
        """``wall`` returns the time in seconds since the epoch."""
        host, port = sockets[0].getsockname()[:2]
        self.sockets: Final = sockets
        self._options: Final = options
        self._wall: Final = wall
        #: The port, also if the option was 0.
        self.port: Final = int(port)
        self.address: Final = self.at(host)

    def at(self, host: str) -> str:
        """The URL with this host name or address."""
        scheme = "http" if self._options.insecure_http else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @functools.cached_property
    def tls(self) -> ServerTLS | None:
        """None for plain HTTP. A self-signed certificate is made when this is first asked for. Raises ServingError."""
        return None if self._options.insecure_http else ServerTLS(self._options, self._wall)

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS settings of new connections."""
        return None if self.tls is None else self.tls.context

    @property
    def certificate(self) -> str:
        """The current server certificate, PEM; empty without TLS."""
        return "" if self.tls is None else self.tls.certificate


@contextmanager
def listening(options: ServingOptions, wall: Callable[[], float]) -> Iterator[Listening]:
    """Listens for the length of the block. Raises ServingError, also for files that cannot be used.

    Port 0 here means any free port.
    """
    with ExitStack() as opened:
        try:
            sockets = [opened.enter_context(each) for each in _sockets(options)]
        except OSError as err:
            where = f"{options.bind_address}:{options.secure_port}"
            why = err.strerror or err
            raise ServingError(
                f"failed to listen on {where}: {why}; choose another --bind-address or --secure-port, or "
                "--secure-port=0 for no endpoints"
            ) from err
        for each in sockets:
            each.setblocking(False)
        found = Listening(sockets, options, wall)
        if options.tls_cert_file or options.client_ca_file:
            _ = found.tls
        _announce(found, options)
        yield found


def _sockets(options: ServingOptions) -> Iterator[socket.socket]:
    """Listening sockets. A wildcard of one IP family listens on both, as in Go. Raises OSError."""
    host, port, shared = options.bind_address, options.secure_port, options.permit_port_sharing
    if host in _WILDCARDS and (both := _all_addresses(port, shared=shared)):
        yield both
        return
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, _, _, _, address in dict.fromkeys(found):
        yield socket.create_server(address[:2], family=family, backlog=_BACKLOG, reuse_port=shared)


def _all_addresses(port: int, *, shared: bool) -> socket.socket | None:
    """A socket for both IP families; None without IPv6. Raises OSError."""
    if not socket.has_dualstack_ipv6():
        return None
    try:
        return socket.create_server(
            ("::", port),
            family=socket.AF_INET6,
            dualstack_ipv6=True,
            backlog=_BACKLOG,
            reuse_port=shared,
        )
    except OSError as err:
        if err.errno == errno.EADDRNOTAVAIL:
            return None
        raise


def _announce(listening: Listening, options: ServingOptions) -> None:
    if options.insecure_http:
        log.warning(
            "INSECURE: endpoints are served without TLS at %s: anyone who can see the traffic can read tokens and "
            "answers. "
            "Use this only on a private machine.",
            listening.address,
        )
    else:
        log.info("Serving securely at %s", listening.address)
