"""How the API server is reached, and as whom: addresses, TLS, proxies and credentials that change while we run.

A Connection is fixed; the Identity that goes with it is not: tokens in files rotate, plugins hand out certificates for an
hour. Whoever needs it asks ``identify`` again when ``valid_for`` has passed or the server has answered 401.
"""

import dataclasses
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from app.http.proxy import Proxy
from app.http.tls import ClientCertificate, client_context
from app.kube.errors import ConfigurationError

#: Seconds after which credentials kept in files are read again, as in-cluster tokens must be at least every minute.
FILE_REFRESH: Final = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Who the requests come from, for the next ``valid_for`` seconds (None: for ever)."""

    #: The Authorization header, None to send none. Kept out of ``repr``.
    authorization: str | None = dataclasses.field(default=None, repr=False)
    certificate: ClientCertificate | None = None
    valid_for: float | None = None


#: Gives the identity as it is now. Raises ConfigurationError.
Identify = Callable[[], Awaitable[Identity]]


async def anonymous() -> Identity:
    """Nobody in particular: plain http, or a server that asks for nothing."""
    return Identity()


class Connection(msgspec.Struct, frozen=True):
    """Everything that does not change about reaching one API server."""

    #: Scheme, host, port and, behind some proxies, a path; no slash at the end.
    server: str
    identify: Identify = anonymous
    #: PEM of the authorities to trust; None: those of the system.
    ca: bytes | None = None
    #: Where they are if they may change while we run.
    ca_file: Path | None = None
    verify: bool = True
    #: Whether the server's certificate must be made out to its name; not needed where ``ca`` is this very certificate.
    check_hostname: bool = True
    #: The name to ask for and to check in the server's certificate, None: the one in ``server``.
    tls_server_name: str | None = None
    proxy: Proxy | None = None
    #: Headers of every request (impersonation); several values for one name are allowed.
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def is_tls(self) -> bool:
        """Whether the server speaks TLS."""
        return self.server.startswith("https://")

    def tls_context(self, certificate: ClientCertificate | None) -> ssl.SSLContext | None:
        """The TLS settings for connections made under one identity, with the authorities as they are now.

        Raises ConfigurationError.
        """
        if not self.is_tls:
            return None
        ca = self.ca
        if self.ca_file is not None:
            ca = read_file(self.ca_file, "certificate authority")
        try:
            return client_context(
                ca=ca,
                verify=self.verify,
                check_hostname=self.check_hostname,
                certificate=certificate,
            )
        except ValueError as err:
            raise ConfigurationError(f"TLS settings for {self.server} are unusable: {err}") from err


def normalize_server(address: str) -> str:
    """The server's address with a scheme and without the last slash. Raises ConfigurationError.

    An address with a user or password is refused: addresses are logged, and API servers take no passwords.

    >>> normalize_server("10.0.0.1:8080/")
    'http://10.0.0.1:8080'
    """
    server = address.strip()
    if "://" not in server:
        server = "http://" + server
    parts = urlsplit(server)
    if "@" in parts.netloc:
        raise ConfigurationError("host must not contain credentials; name them in a kubeconfig")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(f"host must be a URL or a host:port pair: {address!r}")
    return server.rstrip("/")


def read_file(path: Path, what: str) -> bytes:
    """The content of a small credential file. Raises ConfigurationError that says what was wanted of it."""
    try:
        content = path.read_bytes()
    except OSError as err:
        raise ConfigurationError(f"unable to read {what} {path}: {err.strerror}") from err
    if not content.strip():
        raise ConfigurationError(f"{what} {path} is empty")
    return content


def token_file_source(
    path: Path, certificate: Callable[[], ClientCertificate | None] = lambda: None
) -> Identify:
    """A bearer token that lives in a file and is read anew every minute, after every 401 as well."""

    async def identify() -> Identity:
        token = _text(read_file(path, "token file"), path)
        return Identity(f"Bearer {token}", certificate(), FILE_REFRESH)

    return identify


def _text(token: bytes, path: Path) -> str:
    """A token as a header can hold it. Raises ConfigurationError."""
    text = token.decode("ascii", errors="replace").strip()
    if not text.isprintable() or not text.isascii():
        raise ConfigurationError(f"token file {path} holds no token")
    return text


def fixed_source(identity: Identity) -> Identify:
    """An identity that never changes."""

    async def identify() -> Identity:
        return identity

    return identify


def certificate_file_source(
    authorization: str | None, certificate: Callable[[], ClientCertificate | None]
) -> Identify:
    """A client certificate in files that somebody may replace while we run."""

    async def identify() -> Identity:
        return Identity(authorization, certificate(), FILE_REFRESH)

    return identify
