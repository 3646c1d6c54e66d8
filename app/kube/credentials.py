"""Keeps a client's credentials current: request headers and TLS settings of an identity that is renewed."""

import asyncio
import functools
import logging
import ssl
from typing import Final

from multidict import CIMultiDict

from app.http.files import FileWatch
from app.http.request import header_lines
from app.kube.connection import Connection, Identity
from app.kube.errors import ConnectionSettingsError, Unauthorized

logger = logging.getLogger(__name__)

#: Seconds between two forced renewals of the credentials (after a 401), at least.
RENEWAL_PAUSE: Final = 1.0
#: Seconds between two log lines about rejected credentials.
REPEAT_REFUSED: Final = 60.0
#: Seconds until a failed renewal is tried again.
RENEWAL_RETRY: Final = 10.0


class Presented:
    """One identity as request headers; ``number`` grows with each change."""

    def __init__(self, identity: Identity, number: int) -> None:
        self.identity: Final = identity
        self.number: Final = number
        self._lines: Final[dict[tuple[str, str], bytes]] = {}

    def headers(self, content_type: str, accept: str) -> CIMultiDict[str]:
        """The headers for a body of one type (empty: no body) and an answer of another."""
        headers = CIMultiDict({"Accept": accept})
        if content_type:
            headers["Content-Type"] = content_type
        if self.identity.authorization is not None:
            headers["Authorization"] = self.identity.authorization
        return headers

    def lines(self, content_type: str, accept: str) -> bytes:
        """The same as header lines."""
        lines = self._lines.get((content_type, accept))
        if lines is None:
            lines = header_lines(self.headers(content_type, accept).items())
            self._lines[content_type, accept] = lines
        return lines


class CredentialFailures:
    """Counts and logs that credentials are rejected or cannot be renewed."""

    def __init__(self) -> None:
        self.refused = self.not_renewed = 0
        self._said_at = float("-inf")

    def note_not_renewed(self, when: str, err: ConnectionSettingsError) -> None:
        """There are no new credentials; the old ones stay in use."""
        self.not_renewed += 1
        logger.warning("Credentials could not be renewed%s, keeping the old ones: %s", when, err)

    def note_refused(self, server: str, err: Unauthorized) -> None:
        """A request was rejected, also with renewed credentials if there were any. Logged at most once a minute."""
        self.refused += 1
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= REPEAT_REFUSED:
            self._said_at = now
            logger.error(
                "%s does not accept these credentials (%s): no request with them succeeds. Check the user of the "
                "kubeconfig, "
                "or the service account's token",
                server,
                err,
            )


class Credentials:
    """The current identity, renewed when it expires or the server rejects it."""

    def __init__(self, connection: Connection, failures: CredentialFailures | None = None) -> None:
        self._connection: Final = connection
        self._failures: Final = failures or CredentialFailures()
        self._lock: Final = asyncio.Lock()
        files = [] if connection.ca_file is None else [str(connection.ca_file)]
        self._authorities: Final = FileWatch(files)
        self._presented = Presented(Identity(), 0)
        self._due = float("inf")
        self._asked = float("-inf")
        #: See Route; True also means a server without TLS.
        self.tls: ssl.SSLContext | bool = True

    @functools.cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, which is looked up once: that takes a system call."""
        return asyncio.get_running_loop()

    async def load(self) -> None:
        """Loads the credentials for the first time. Raises ConnectionSettingsError."""
        self._adopt(await self._connection.identify())

    async def current(self) -> Presented:
        """The current identity. A failed renewal is logged and tried again later; the old identity stays in use."""
        now = self._loop.time()
        if self._authorities.changed(now):
            self._reload_authorities(now)
        if now >= self._due:
            self._due = now + RENEWAL_RETRY
            try:
                self._adopt(await self._connection.identify())
            except ConnectionSettingsError as err:
                self._failures.note_not_renewed("", err)
        return self._presented

    def _reload_authorities(self, now: float) -> None:
        try:
            certificate = self._presented.identity.certificate
            self.tls = self._connection.tls_context(certificate) or True
            logger.info("The certificate authorities of the API server were read again")
        except ConnectionSettingsError as err:
            self._authorities.failed(err, now)
            logger.warning("Certificate authorities cannot be used, keeping the old ones: %s", err)

    async def renew(self, refused: int) -> bool:
        """After a 401 for the identity ``refused``: whether there is a new one to try."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._presented.number == refused and now - self._asked >= RENEWAL_PAUSE:
                try:
                    self._adopt(await self._connection.identify())
                except ConnectionSettingsError as err:
                    self._failures.note_not_renewed(" after a 401", err)
            return self._presented.number != refused

    def _adopt(self, identity: Identity) -> None:
        now = asyncio.get_running_loop().time()
        self._asked = now
        old = self._presented
        if not old.number or identity.certificate != old.identity.certificate:
            self.tls = self._connection.tls_context(identity.certificate) or True
        self._due = now + identity.valid_for if identity.valid_for is not None else float("inf")
        same = identity.certificate == old.identity.certificate
        if old.number and same and identity.authorization == old.identity.authorization:
            return
        self._presented = Presented(identity, old.number + 1)
