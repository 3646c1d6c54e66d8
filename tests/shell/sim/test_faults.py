"""Faults on demand: answers that fail, wait, get lost; connections that are cut or refused."""

import asyncio

import aiohttp
import pytest

from app.sim import EmbeddedCluster, Fault
from tests.shell.sim.client import CONFIG_MAPS, PODS, Client, binding, config_map, pod


async def test_the_next_requests_fail(client: Client, cluster: EmbeddedCluster) -> None:
    fault = Fault(
        method="POST",
        path="/configmaps$",
        times=2,
        status=503,
        reason="ServiceUnavailable",
        retry_after=7,
    )
    cluster.faults.add(fault)
    assert (await client.get(CONFIG_MAPS)).status == 200
    for _ in range(2):
        answer = await client.post(CONFIG_MAPS, config_map("a"))
        assert (answer.status, answer.body["reason"]) == (503, "ServiceUnavailable")
        assert answer.body["details"]["retryAfterSeconds"] == 7
    assert (await client.post(CONFIG_MAPS, config_map("a"))).status == 201
    assert (fault.hits, bool(cluster.faults)) == (2, False)


async def test_retry_after_is_a_header_too(client: Client, cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Fault(status=429, retry_after=3))
    async with client.session.get(client.url + CONFIG_MAPS) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "3")


@pytest.mark.looptime
async def test_an_answer_comes_late(client: Client, cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Fault(delay=5.0))
    before = asyncio.get_running_loop().time()
    assert (await client.get(CONFIG_MAPS)).status == 200
    assert asyncio.get_running_loop().time() - before == pytest.approx(5.0, abs=0.5)


@pytest.mark.looptime
async def test_an_answer_that_waits_comes_when_the_faults_are_cleared(
    client: Client, cluster: EmbeddedCluster
) -> None:
    for _ in range(2):
        cluster.faults.add(Fault(method="GET", delay=3600.0))
        asking = asyncio.ensure_future(client.get(CONFIG_MAPS))
        while cluster.faults:
            await asyncio.sleep(0)
        assert (await client.delete("/debug/cluster/faults")).status == 200
        assert (await asking).status == 200
    assert asyncio.get_running_loop().time() < 3600


async def test_a_lost_answer_to_a_bind_that_happened(
    client: Client, cluster: EmbeddedCluster
) -> None:
    await client.create(PODS, pod("p"))
    cluster.faults.add(Fault(path="/binding$", drop_answer=True))
    with pytest.raises(aiohttp.ClientError):
        await client.post(f"{PODS}/p/binding", binding("p", "n"))
    assert (await client.get(f"{PODS}/p")).body["spec"]["nodeName"] == "n"


async def test_cut_connections(client: Client, cluster: EmbeddedCluster) -> None:
    async with client.watch(CONFIG_MAPS) as watch:
        assert cluster.cut_connections() == 1
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await watch.next()
    assert (await client.get(CONFIG_MAPS)).status == 200


@pytest.mark.looptime
async def test_refused_connections(client: Client, cluster: EmbeddedCluster) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    cluster.refuse_connections(10.0)
    for _ in range(2):
        with pytest.raises(aiohttp.ClientError):
            await client.get(CONFIG_MAPS)
        await asyncio.sleep(4)
    await asyncio.sleep(3)
    assert await client.names(CONFIG_MAPS) == ["a"]


class TestOverHttp:
    async def test_a_fault_and_its_removal(self, client: Client) -> None:
        body = {"method": "GET", "path": "configmaps", "status": 500, "times": 5}
        assert (await client.post("/debug/cluster/faults", body)).body == {"faults": 1}
        assert (await client.get(CONFIG_MAPS)).status == 500
        assert (await client.delete("/debug/cluster/faults")).status == 200
        assert (await client.get(CONFIG_MAPS)).status == 200

    @pytest.mark.parametrize("body", [{"foo": 1}, [], b"{bad", {"times": "many"}, {"path": "("}])
    async def test_a_fault_that_cannot_be(self, client: Client, body) -> None:
        assert (await client.post("/debug/cluster/faults", body)).status == 400

    async def test_compaction(self, client: Client) -> None:
        await client.create(CONFIG_MAPS, config_map("a"))
        assert (await client.post("/debug/cluster/compact", {})).status == 200
        async with client.watch(CONFIG_MAPS, resourceVersion="1") as watch:
            assert (await watch.next())["type"] == "ERROR"

    async def test_cut_cuts_this_one_too(self, client: Client) -> None:
        with pytest.raises(aiohttp.ClientError):
            await client.post("/debug/cluster/cut", {})
        with pytest.raises(aiohttp.ClientError):
            await client.post("/debug/cluster/refuse", {"seconds": 0.01})

    async def test_statistics(self, client: Client) -> None:
        await client.create(CONFIG_MAPS, config_map("a"))
        body = (await client.get("/debug/cluster")).body
        assert body["objects"]["configmaps"] == 1
        assert body["objects"]["namespaces"] == 4
        assert body["watchers"] == 0
        assert body["revision"] > 1
