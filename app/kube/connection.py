"""Describes how to connect to the API server: address, TLS, and credentials that change at run time.

A Connection is fixed, but its Identity is not: tokens in files rotate, plugins issue certificates for an hour. Clients
call ``identify`` again when ``valid_for`` has passed or the server has answered 401.
"""

import platform
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from app.http.proxy import Proxy
from app.http.tls import ClientCertificate, client_context
from app.kube.errors import ConnectionSettingsError
from app.model.discreet import Discreet

#: Seconds after which credential files are reloaded; in-cluster tokens must be at least every minute.
FILE_REFRESH: Final = 60.0


class Identity(Discreet, frozen=True):
    """Credentials for the next ``valid_for`` seconds (None: without limit).

    Raises ConnectionSettingsError for an authorization that no header can hold.
    """

    SECRETS: ClassVar = frozenset({"authorization"})

    #: The Authorization header, None to send none.
    authorization: str | None = None
    certificate: ClientCertificate | None = None
    valid_for: float | None = None

    def __post_init__(self) -> None:
        if self.authorization is not None and not self.authorization.isprintable():
            raise ConnectionSettingsError(
                "the token or user has characters that no header can hold"
            )


#: Returns the current identity. Raises ConnectionSettingsError.
Identify = Callable[[], Awaitable[Identity]]


async def anonymous() -> Identity:
    """No credentials: for plain http, or a server that needs none."""
    return Identity()


class Connection(msgspec.Struct, frozen=True):
    """The fixed settings of a connection to an API server."""

    #: Scheme, host, port and, behind some proxies, a path; no slash at the end.
    server: str
    identify: Identify = anonymous
    #: PEM of the authorities to trust; None: those of the system.
    ca: bytes | None = None
    #: The file with them, if they may change at run time.
    ca_file: Path | None = None
    verify: bool = True
    #: Whether the server's certificate must have its name; not needed if ``ca`` is this certificate.
    check_hostname: bool = True
    #: The server name to request and to verify; None: the one in ``server``.
    tls_server_name: str | None = None
    proxy: Proxy | None = None
    #: Headers of every request (impersonation); several values for one name are allowed.
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.headers:
            if not value.isprintable():
                raise ConnectionSettingsError(f"the header {name} cannot hold {value[:100]!a}")

    @property
    def is_tls(self) -> bool:
        """Whether the server uses TLS."""
        return self.server.startswith("https://")

    def tls_context(self, certificate: ClientCertificate | None) -> ssl.SSLContext | None:
        """The TLS context for connections with this identity, with the current authorities.

        Raises ConnectionSettingsError.
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
        except (ValueError, OSError) as err:
            raise ConnectionSettingsError(
                f"TLS settings for {self.server} are unusable: {err}"
            ) from err


def user_agent(version: str, purpose: str) -> str:
    """The User-Agent of one purpose (``scheduler``, ``leader-election``), in the form of Kubernetes' own clients."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    system = platform.system().lower()
    return f"aiokube-scheduler/{version} ({system}/{machine}) {purpose}"


def normalize_server(address: str) -> str:
    """The server's address with a scheme and without the last slash. Raises ConnectionSettingsError.

    An address with a user or password is rejected, because addresses are logged and API servers accept no passwords. No
    error repeats one, so they are looked for before the address is parsed: no other part of an address has an ``@``.

    >>> normalize_server("10.0.0.1:8080/")
    'http://10.0.0.1:8080'
    """
    if "@" in address:
        raise ConnectionSettingsError(
            "host must not contain credentials; name them in a kubeconfig"
        )
    server = address.strip()
    if "://" not in server:
        server = "http://" + server
    try:
        parts = urlsplit(server)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not server.isprintable() or " " in server:
        raise ConnectionSettingsError(f"host must be a URL or a host:port pair: {address!a}")
    return server.rstrip("/")


def read_file(path: Path, what: str) -> bytes:
    """The content of a small credential file. Raises ConnectionSettingsError, which says what the file is for."""
    try:
        content = path.read_bytes()
    except OSError as err:
        raise ConnectionSettingsError(f"unable to read {what} {path}: {err.strerror}") from err
    except ValueError as err:  # a path that no file can have
        raise ConnectionSettingsError(f"unable to read {what} {str(path)!a}: {err}") from err
    if not content.strip():
        raise ConnectionSettingsError(f"{what} {path} is empty")
    return content


def token_file_source(
    path: Path, certificate: Callable[[], ClientCertificate | None] = lambda: None
) -> Identify:
    """A bearer token in a file that is reloaded every minute and after each 401."""

    async def identify() -> Identity:
        token = read_file(path, "token file").decode("ascii", errors="surrogateescape").strip()
        pair = certificate()
        try:
            return Identity(f"Bearer {token}", pair, FILE_REFRESH)
        except ConnectionSettingsError as err:
            raise ConnectionSettingsError(f"token file {path}: {err}") from err

    return identify


def fixed_source(identity: Identity) -> Identify:
    """An identity that never changes."""

    async def identify() -> Identity:
        return identity

    return identify


def certificate_file_source(
    authorization: str | None, certificate: Callable[[], ClientCertificate | None]
) -> Identify:
    """A client certificate in files that may be replaced at run time."""

    async def identify() -> Identity:
        return Identity(authorization, certificate(), FILE_REFRESH)

    return identify
