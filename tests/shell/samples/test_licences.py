"""The sample extender that counts floating licences."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from app.model.objects import Node
from app.sim import ClusterOptions, EmbeddedCluster, NodeOptions
from app.sim.resources.kinds import PODS
from app.wire.kube import PodDecoder, decoder_for
from extenders.licences import RESOURCE, ZONE, ApiServer, Licences, Webhook, make_application

SEATS = {"zone-0": 2, "zone-1": 1}


def manifest(name: str, seats: int = 1, **spec: Any) -> dict[str, Any]:
    amounts = {RESOURCE: str(seats)}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": [container], **spec},
    }


def pod(name: str, seats: int = 1, *, node: str = "", phase: str = "Pending"):
    value = manifest(name, seats, **({"nodeName": node} if node else {}))
    value["status"] = {"phase": phase}
    return PodDecoder().decode(msgspec.json.encode(value))


def node(name: str, zone: str) -> Node:
    value = {"metadata": {"name": name, "labels": {ZONE: zone}}}
    return decoder_for(Node).decode(msgspec.json.encode(value))


@pytest.fixture
def licences() -> Licences:
    books = Licences(SEATS)
    books.set_nodes([node(f"n{number}", f"zone-{number}") for number in range(3)])
    return books


# ---------------------------------------------------------------- the books


def test_nodes_of_a_zone_share_its_seats(licences):
    licences.change_node("ADDED", node("m0", "zone-0"))
    licences.set_pods([pod("a", node="n0"), pod("b", node="m0")])
    for name in ("n0", "m0"):
        assert licences.refusal(name, 1) == "the 2 licences of zone-0 are used up"
    assert licences.refusal("n1", 1) is None
    assert licences.usage() == {"zone-0": "2 of 2", "zone-1": "0 of 1"}


@pytest.mark.parametrize(
    ("name", "wanted", "reason"),
    [
        ("n0", 2, None),
        ("n0", 3, "only 2 of the 2 licences of zone-0 are free"),
        ("n2", 1, "no licence server in zone-2"),
        ("nobody", 1, "no licence server in an unknown zone"),
    ],
)
def test_why_a_node_is_refused(licences, name, wanted, reason):
    assert licences.refusal(name, wanted) == reason


def test_the_score_is_the_free_part(licences):
    licences.set_pods([pod("a", node="n0")])
    assert [licences.score(name) for name in ("n0", "n1", "n2", "nobody")] == [5, 10, 0, 0]


def test_a_promise_holds_until_the_watch_says_so(licences):
    first, second = pod("a"), pod("b")
    assert (licences.note(first), licences.note(second)) == (1, 1)
    assert licences.promise("a", "n1") is None
    assert licences.promise("b", "n1") == "the 1 licences of zone-1 are used up"
    licences.change_pod("MODIFIED", pod("a"))  # still unbound: another change
    assert licences.used("zone-1") == 1
    licences.change_pod("MODIFIED", pod("a", node="n1"))
    assert licences.used("zone-1") == 1
    licences.change_pod("DELETED", pod("a", node="n1"))
    assert licences.promise("b", "n1") is None


def test_a_promise_taken_back(licences):
    licences.note(pod("a"))
    licences.promise("a", "n1")
    licences.take_back("a")
    assert licences.refusal("n1", 1) is None


def test_a_promise_to_a_pod_whose_end_was_missed(licences):
    """The first list may be older than the pod."""
    licences.note(pod("a"))
    licences.promise("a", "n1")
    licences.set_pods([])
    assert licences.used("zone-1") == 1
    licences.set_pods([])
    assert licences.used("zone-1") == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_hold_nothing(licences, phase):
    licences.set_pods([pod("a", node="n1")])
    licences.change_pod("MODIFIED", pod("a", node="n1", phase=phase))
    assert licences.used("zone-1") == 0


def test_a_pod_that_was_never_seen_gets_nothing(licences):
    assert licences.promise("a", "n0") == "the pod was never seen in a filter request"


# ---------------------------------------------------------------- over HTTP


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(ClusterOptions(nodes=NodeOptions(count=3, zones=3))) as running:
        yield running


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[TestClient[Any, Any]]:
    application = await make_application(SEATS, cluster.url)
    async with TestClient(TestServer(application)) as connected:
        yield connected


async def ask(client: TestClient[Any, Any], verb: str, body: Any) -> Any:
    async with client.post(f"/{verb}", json=body) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "application/json"
        return await answer.json()


def filter_body(value: dict[str, Any], nodes: list[str]) -> dict[str, Any]:
    return {"Pod": value, "Nodes": None, "NodeNames": nodes}


def bind_body(value: dict[str, Any], to: str) -> dict[str, Any]:
    metadata = value["metadata"]
    pod = {"PodName": metadata["name"], "PodNamespace": "default", "PodUID": metadata["uid"]}
    return pod | {"Node": to}


async def seats_in_use(client: TestClient[Any, Any], wanted: Callable[[Any], bool]) -> Any:
    """The seats, once they are as wanted: a watch brings them."""
    async with asyncio.timeout(10):
        while True:
            async with client.get("/statistics") as answer:
                seats = (await answer.json())["licences"]
            if wanted(seats):
                return seats
            await asyncio.sleep(0.01)


async def test_filter_prioritize_and_bind(cluster, client):
    made = cluster.apply(PODS, manifest("a")).value
    nodes = ["node-0", "node-1", "node-2"]
    answer = await ask(client, "filter", filter_body(made, nodes))
    assert answer == {
        "NodeNames": ["node-0", "node-1"],
        "FailedNodes": {"node-2": "no licence server in zone-2"},
        "Error": "",
    }
    answer = await ask(client, "prioritize", filter_body(made, nodes[:2]))
    assert answer == [{"Host": "node-0", "Score": 10}, {"Host": "node-1", "Score": 10}]
    assert await ask(client, "bind", bind_body(made, "node-1")) == {"Error": ""}
    found = cluster.api.find(PODS, "default", "a")
    assert found.value["spec"]["nodeName"] == "node-1"
    answer = await ask(client, "filter", filter_body(manifest("b"), nodes))
    assert answer["NodeNames"] == ["node-0"]
    async with client.get("/statistics") as said:
        statistics = await said.json()
    assert statistics["calls"] == {"filter": 2, "prioritize": 1, "bind": 1}
    assert statistics["refusals"]["the 1 licences of zone-1 are used up"] == 1


async def test_a_binding_that_the_server_refuses_costs_no_seat(cluster, client):
    value = manifest("ghost")
    await ask(client, "filter", filter_body(value, ["node-1"]))
    answer = await ask(client, "bind", bind_body(value, "node-1"))
    assert answer["Error"].startswith("404: ")
    assert await seats_in_use(client, lambda seats: seats["zone-1"] == "0 of 1")


@pytest.mark.parametrize(("status", "used"), [(409, 0), (403, 0), (503, 1), (None, 1)])
async def test_a_promise_stays_unless_the_server_says_no(licences, status, used):
    """Where there is no answer, the pod may be bound."""
    asked = []

    async def answer(request):
        asked.append(request.raw_path)
        if status is None:
            request.transport.abort()
        return web.Response(status=status or 200, body=b"\xff")

    application = web.Application()
    application.router.add_post("/{path:.*}", answer)
    async with (
        TestServer(application) as server,
        aiohttp.ClientSession(server.make_url("/"), raise_for_status=True) as session,
        TestClient(TestServer(Webhook(licences, ApiServer(session)).application())) as client,
    ):
        licences.note(pod("a"))
        body = bind_body(manifest("a"), "n1") | {"PodName": "../../../x?y"}
        assert (await ask(client, "bind", body))["Error"]
    assert asked == ["/api/v1/namespaces/default/pods/..%2F..%2F..%2Fx%3Fy/binding"]
    assert licences.used("zone-1") == used


@pytest.mark.looptime
async def test_an_object_that_cannot_be_read_costs_itself_only(licences, caplog):
    """Neither in a list nor in a watch, and a line of any length does not end the following."""
    good, bad = manifest("good", nodeName="n1"), manifest("bad", nodeName="n1")
    bad["spec"]["containers"] = 7
    lists = [{"metadata": {"resourceVersion": "1"}, "items": [bad, good]}] * 9
    lines = [
        b'{"type":"ADDED","object":%b}\n' % msgspec.json.encode(each)
        for each in (bad, manifest("more", nodeName="n0"))
    ]
    watches = [b"".join(lines), b"x" * 2**20 + b"\n", b"{}\n"]
    followed = asyncio.Event()

    async def answer(request):
        if "watch" not in request.query:
            return web.json_response(lists.pop())
        if not watches:
            followed.set()
            await asyncio.Event().wait()
        return web.Response(body=watches.pop(0))

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with (
        TestServer(application) as server,
        aiohttp.ClientSession(
            server.make_url("/"), raise_for_status=True, read_bufsize=2**16
        ) as session,
    ):
        api = ApiServer(session, pause_seconds=0.0)
        listed, seen = asyncio.Event(), []
        change = lambda kind, each: seen.append((kind, each.name))  # noqa: E731
        work = asyncio.create_task(
            api.follow("/pods", PodDecoder(), licences.set_pods, change, listed)
        )
        await followed.wait()
        work.cancel()
        await asyncio.wait([work])
    assert licences.usage()["zone-1"] == "1 of 1"
    assert seen == [("ADDED", "more")]
    assert "ignored: Pod default/bad: " in caplog.text


async def test_the_watch_is_followed_across_broken_connections(cluster):
    async with aiohttp.ClientSession(cluster.url, raise_for_status=True) as session:
        books, listed = Licences(SEATS), asyncio.Event()
        api = ApiServer(session, pause_seconds=0.0)
        books.set_nodes([node("node-0", "zone-0")])
        following = asyncio.create_task(
            api.follow("/api/v1/pods", PodDecoder(), books.set_pods, books.change_pod, listed)
        )
        async with asyncio.timeout(10):
            await listed.wait()
            cluster.apply(PODS, manifest("a", nodeName="node-0"))
            while books.used("zone-0") != 1:
                await asyncio.sleep(0.01)
            cluster.cut_connections()
            cluster.apply(PODS, manifest("b", nodeName="node-0"))
            while books.used("zone-0") != 2:
                await asyncio.sleep(0.01)
        following.cancel()
        await asyncio.wait([following])


@pytest.mark.parametrize("body", ["{", '{"NodeNames": []}', '{"Pod": 1, "NodeNames": []}'])
async def test_requests_that_cannot_be_read(client, body):
    async with client.post("/filter", data=body) as answer:
        assert answer.status == 400
        assert (await answer.text()).startswith("/filter: ")
