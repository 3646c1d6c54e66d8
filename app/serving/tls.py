"""TLS of the server: a certificate from files, which may change at run time, or a self-signed one made in memory.

The files are checked when a connection is made, at most every few seconds. If changed files cannot be used, the
previous certificate stays in use and the error is logged once.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from app.http.files import FileWatch
from app.http.tls import as_file, no_password
from app.serving.options import ServingError, ServingOptions

log = logging.getLogger(__name__)

#: Seconds after which a self-signed certificate is replaced.
_SELF_SIGNED_LIFE: Final = 330 * 86400.0


class ServerTLS:
    """Chooses the SSL context of each connection."""

    def __init__(self, options: ServingOptions, wall: Callable[[], float]) -> None:
        """``wall`` returns the time in seconds since the epoch. Raises ServingError for files that cannot be used."""
        self._options: Final = options
        self._wall: Final = wall
        files = (options.tls_cert_file, options.tls_private_key_file, options.client_ca_file)
        self._watch: Final = FileWatch([file for file in files if file])
        self._problem = ""
        self._made_at = 0.0
        #: The certificate in use, PEM.
        self.certificate = ""
        try:
            self._current = self._load()
        except ValueError as err:
            raise ServingError(str(err)) from err
        #: The context for the listener.
        self.context: Final = self._current
        self.context.sni_callback = self._choose

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _first: ssl.SSLContext
    ) -> None:
        """Called for each connection, whether the client names a server or not."""
        self._refresh()
        connection.context = self._current

    def _refresh(self) -> None:
        now = asyncio.get_running_loop().time()
        outlived = not self._options.tls_cert_file and now - self._made_at > _SELF_SIGNED_LIFE
        if not outlived and not self._watch.changed(now):
            return
        try:
            self._current = self._load()
        except ValueError as err:
            self._watch.failed(err, now)
            if str(err) != self._problem:
                log.error("%s; the previous certificate stays in use", err)
            self._problem = str(err)
        else:
            self._problem = ""
            log.info("Reloaded the certificate of the endpoints")

    def _load(self) -> ssl.SSLContext:
        """Raises ValueError."""
        from app.serving.certificates import first_of, self_signed  # noqa: PLC0415 - slow to import

        options = self._options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = (
            ssl.TLSVersion.TLSv1_3
            if options.tls_min_version == "VersionTLS13"
            else ssl.TLSVersion.TLSv1_2
        )
        context.set_alpn_protocols(["http/1.1"])
        if options.tls_cert_file:
            pem = _load_files(context, options.tls_cert_file, options.tls_private_key_file)
        else:
            self._made_at = asyncio.get_running_loop().time()
            pem = self_signed(_names(options.bind_address), self._wall())
            with as_file(pem) as path:
                context.load_cert_chain(path)
        if options.client_ca_file:
            _load_authorities(context, options.client_ca_file)
        self.certificate = first_of(pem)
        return context


def _load_files(context: ssl.SSLContext, cert_file: str, key_file: str) -> bytes:
    """The certificate chain that was loaded, PEM. Raises ValueError."""
    try:
        context.load_cert_chain(cert_file, key_file, password=no_password)
        return Path(cert_file).read_bytes()
    except (OSError, ValueError) as err:
        what = err.reason if isinstance(err, ssl.SSLError) else err
        raise ValueError(
            f"unable to load server certificate {cert_file} with key {key_file}: {what}"
        ) from err


def _load_authorities(context: ssl.SSLContext, file: str) -> None:
    context.verify_mode = ssl.CERT_OPTIONAL
    try:
        context.load_verify_locations(file)
    except OSError as err:
        what = err.reason if isinstance(err, ssl.SSLError) else err
        raise ValueError(f"unable to load client CA file {file}: {what}") from err


def _names(bind_address: str) -> list[str]:
    """The names and addresses of the self-signed certificate."""
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname()]
    if bind_address not in {"", "0.0.0.0", "::"}:  # noqa: S104 - nothing is bound here
        names.append(bind_address)
    return list(dict.fromkeys(names))
