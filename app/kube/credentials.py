"""Who the client is to the server: request headers and TLS settings of an identity, renewed while the client runs."""

import asyncio
import logging
import ssl
from typing import Final

from multidict import CIMultiDict

from app.http.files import FileWatch
from app.http.request import header_lines
from app.kube.connection import Connection, Identity
from app.kube.errors import ConfigurationError, Unauthorized

logger = logging.getLogger(__name__)

#: Forced renewals of the credentials (after a 401) are at least this far apart, seconds.
RENEWAL_PAUSE: Final = 1.0
#: Seconds between two complaints that credentials are refused.
REPEAT_REFUSED: Final = 60.0
#: Seconds until credentials are asked for again when that failed.
RENEWAL_RETRY: Final = 10.0


class Presented:
    """One identity as request headers; ``number`` grows with each change."""

    def __init__(self, identity: Identity, number: int) -> None:
        self.identity: Final = identity
        self.number: Final = number
        self._lines: Final[dict[tuple[str, str], bytes]] = {}

    def headers(self, content_type: str, accept: str) -> CIMultiDict[str]:
        """The headers for a body of this type (empty: no body) and an answer of that."""
        headers = CIMultiDict({"Accept": accept})
        if content_type:
            headers["Content-Type"] = content_type
        if self.identity.authorization is not None:
            headers["Authorization"] = self.identity.authorization
        return headers

    def lines(self, content_type: str, accept: str) -> bytes:
        """The same as they go into the head of a request. Raises ValueError for an authorization that no line can hold."""
        lines = self._lines.get((content_type, accept))
        if lines is None:
            lines = header_lines(self.headers(content_type, accept).items())
            self._lines[content_type, accept] = lines
        return lines


class RefusedCredentials:
    """Says in one line, once a minute at most, that the server does not accept the credentials of its clients."""

    def __init__(self) -> None:
        self._said_at = float("-inf")

    def note(self, server: str, err: Unauthorized) -> None:
        """A request was refused, also with renewed credentials if there were any."""
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= REPEAT_REFUSED:
            self._said_at = now
            logger.error(
                "%s does not accept these credentials (%s): nothing is read or scheduled. Check the user of the kubeconfig, "
                "or the service account's token",
                server,
                err,
            )


class Credentials:
    """The identity in use, renewed when its time has passed or the server does not accept it."""

    def __init__(self, connection: Connection) -> None:
        self._connection: Final = connection
        self._lock: Final = asyncio.Lock()
        files = [] if connection.ca_file is None else [str(connection.ca_file)]
        self._authorities: Final = FileWatch(files)
        self._presented = Presented(Identity(), 0)
        self._due = float("inf")
        self._asked = float("-inf")
        #: What aiohttp takes for ``ssl``: True stands for a server without TLS as well.
        self.tls: ssl.SSLContext | bool = True

    async def load(self) -> None:
        """The first reading. Raises ConfigurationError."""
        self._adopt(await self._connection.identify())

    async def current(self) -> Presented:
        """What to present now. A renewal that fails is logged and tried again later; the old identity stays."""
        now = asyncio.get_running_loop().time()
        if self._authorities.changed(now):
            self._reload_authorities(now)
        if now >= self._due:
            self._due = now + RENEWAL_RETRY
            try:
                self._adopt(await self._connection.identify())
            except ConfigurationError as err:
                logger.warning("Credentials could not be renewed, keeping the old ones: %s", err)
        return self._presented

    def _reload_authorities(self, now: float) -> None:
        try:
            certificate = self._presented.identity.certificate
            self.tls = self._connection.tls_context(certificate) or True
            logger.info("The certificate authorities of the API server were read again")
        except ConfigurationError as err:
            self._authorities.failed(err, now)
            logger.warning("Certificate authorities cannot be used, keeping the old ones: %s", err)

    async def renew(self, refused: int) -> bool:
        """After a 401 for identity ``refused``: whether there is another one to try."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._presented.number == refused and now - self._asked >= RENEWAL_PAUSE:
                try:
                    self._adopt(await self._connection.identify())
                except ConfigurationError as err:
                    logger.warning("Credentials could not be renewed after a 401: %s", err)
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
