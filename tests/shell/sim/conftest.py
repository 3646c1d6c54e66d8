"""A cluster per test, on a port of its own."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from app.sim import ClusterOptions, EmbeddedCluster
from tests.shell.sim.client import Client


@pytest.fixture
def options() -> ClusterOptions:
    """Overridden by tests that want another cluster."""
    return ClusterOptions(debug=True)


@pytest.fixture
async def cluster(options: ClusterOptions) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(options) as running:
        yield running


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session, cluster.url)
