"""A connection to an API server that can only read: nothing here takes a method or a body."""

import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from app.kube.client import KubeClient, Observer
from app.kube.connection import Connection
from app.kube.credentials import CredentialFailures
from app.kube.transport import Reader, Response


class ReadOnlyClient:
    """A Reader. It keeps the two reading functions of a client, not the client."""

    def __init__(self, client: KubeClient) -> None:
        self._get: Final = functools.partial(client.get)
        self._stream: Final = functools.partial(client.stream)

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - seconds, given to the client
    ) -> Response:
        """See Reader.get."""
        return await self._get(path, params=params, timeout=timeout)

    def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See Reader.stream."""
        return self._stream(path, params=params, read_timeout=read_timeout)


@asynccontextmanager
async def read_only(
    connection: Connection, *, agent: str, observer: Observer, failures: CredentialFailures
) -> AsyncIterator[Reader]:
    """Opens a connection for reading. Raises ConfigurationError."""
    async with KubeClient(connection, agent=agent, observer=observer, failures=failures) as client:
        yield ReadOnlyClient(client)
