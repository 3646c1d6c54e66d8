"""What the cluster removes by itself, on a virtual clock."""

import asyncio

import pytest

from app.sim import ClusterOptions, EmbeddedCluster
from app.sim.resources.kinds import EVENTS

pytestmark = pytest.mark.looptime

EVENT = {"involvedObject": {"namespace": "default"}}


async def test_events_expire_unless_they_are_touched() -> None:
    loop = asyncio.get_running_loop()
    options = ClusterOptions(event_ttl=100.0)
    async with EmbeddedCluster(options, now=lambda: 1e9 + loop.time()) as cluster:
        for name in ("old", "touched"):
            cluster.api.create(EVENTS, "default", EVENT | {"metadata": {"name": name}})
        await asyncio.sleep(60)
        body = EVENT | {"metadata": {"name": "touched"}, "count": 2}
        cluster.api.update(EVENTS, "default", "touched", body)
        cluster.api.create(EVENTS, "default", EVENT | {"metadata": {"name": "new"}})
        await asyncio.sleep(75)
        names = [record.name for record in cluster.api.store["events"].ordered()]
        assert names == ["new", "touched"]
        await asyncio.sleep(100)
        assert not cluster.api.store["events"].records
