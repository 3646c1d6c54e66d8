"""A connection to an API server that can only read: nothing here takes a method or a body."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app.kube.client import KubeClient, Observer
from app.kube.connection import Connection
from app.kube.credentials import CredentialFailures
from app.kube.transport import Reader


class ReadOnlyClient:
    """A Reader: what it has for other code is two functions that read."""

    def __init__(self, client: KubeClient) -> None:
        self.get: Final = client.get
        self.stream: Final = client.stream


@asynccontextmanager
async def read_only(
    connection: Connection, *, agent: str, observer: Observer, failures: CredentialFailures
) -> AsyncIterator[Reader]:
    """Opens a connection for reading. Raises ConnectionSettingsError."""
    async with KubeClient(connection, agent=agent, observer=observer, failures=failures) as client:
        yield ReadOnlyClient(client)
