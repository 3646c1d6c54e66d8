"""Watches: what they show, how they begin and how they end."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from app.sim import ClusterOptions, EmbeddedCluster, WatchLimits
from app.sim.http.representation import Whole
from app.sim.http.watch import open_watch
from app.sim.listing import ListOptions
from app.sim.resources.kinds import BY_RESOURCE
from app.sim.selectors import ListSelector
from app.sim.store import Record
from tests.shell.sim.client import (
    CONFIG_MAPS,
    EVENTS,
    EVENTS_V1,
    PODS,
    TABLE,
    Client,
    binding,
    config_map,
    pod,
)

STREAMING = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


async def revision(client: Client) -> str:
    return (await client.get(CONFIG_MAPS)).body["metadata"]["resourceVersion"]


async def until(condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def test_changes_from_a_revision_on(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("old"))
    start = await revision(client)
    await client.create(CONFIG_MAPS, config_map("a"))
    async with client.watch(CONFIG_MAPS, resourceVersion=start) as watch:
        assert await watch.seen() == ("ADDED", "a")
        await client.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}})
        event = await watch.next()
        assert (event["type"], event["object"]["data"]) == ("MODIFIED", {"a": "b", "x": "y"})
        assert event["object"]["kind"] == "ConfigMap"
        modified = int(event["object"]["metadata"]["resourceVersion"])
        await client.delete(f"{CONFIG_MAPS}/a")
        event = await watch.next()
        assert event["type"] == "DELETED"
        assert int(event["object"]["metadata"]["resourceVersion"]) == modified + 1


@pytest.mark.parametrize("version", ["", "0"])
async def test_without_a_revision_the_present_comes_first(client: Client, version: str) -> None:
    for name in "ba":
        await client.create(CONFIG_MAPS, config_map(name))
    async with client.watch(CONFIG_MAPS, resourceVersion=version) as watch:
        assert [await watch.seen(), await watch.seen()] == [("ADDED", "a"), ("ADDED", "b")]
        await client.create(CONFIG_MAPS, config_map("c"))
        assert await watch.seen() == ("ADDED", "c")


async def test_a_streaming_list_ends_its_beginning_with_a_bookmark(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    now = await revision(client)
    async with client.watch(CONFIG_MAPS, allowWatchBookmarks="true", **STREAMING) as watch:
        assert await watch.seen() == ("ADDED", "a")
        event = await watch.next()
        assert event == {
            "type": "BOOKMARK",
            "object": {
                "kind": "ConfigMap",
                "apiVersion": "v1",
                "metadata": {
                    "resourceVersion": now,
                    "annotations": {"k8s.io/initial-events-end": "true"},
                },
            },
        }
        await client.create(CONFIG_MAPS, config_map("b"))
        assert await watch.seen() == ("ADDED", "b")


async def test_a_streaming_list_of_nothing_but_news(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    params = STREAMING | {"sendInitialEvents": "false"}
    async with client.watch(CONFIG_MAPS, **params) as watch:
        await client.create(CONFIG_MAPS, config_map("b"))
        assert await watch.seen() == ("ADDED", "b")


async def test_a_streaming_list_at_a_revision_ahead_is_504(client: Client) -> None:
    params = STREAMING | {"watch": "1", "resourceVersion": "99999"}
    assert (await client.get(CONFIG_MAPS, **params)).status == 504


async def test_a_large_beginning_comes_in_order(client: Client, cluster: EmbeddedCluster) -> None:
    kind = BY_RESOURCE["configmaps"]
    for number in range(1200):
        cluster.api.create(kind, "default", config_map(f"n-{number:04}"))
    async with client.watch(CONFIG_MAPS, allowWatchBookmarks="true", **STREAMING) as watch:
        names = [(await watch.seen())[1] for _ in range(1201)]
    assert names == [f"n-{number:04}" for number in range(1200)] + [""]


async def test_selected_objects_come_and_go(client: Client) -> None:
    start = await revision(client)
    await client.create(CONFIG_MAPS, config_map("a"))
    async with client.watch(CONFIG_MAPS, resourceVersion=start, labelSelector="in=yes") as watch:
        await client.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"in": "yes"}}})
        assert await watch.seen() == ("ADDED", "a")
        await client.patch(f"{CONFIG_MAPS}/a", {"data": {"x": "y"}})
        assert await watch.seen() == ("MODIFIED", "a")
        answer = await client.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"in": "no"}}})
        event = await watch.next()
        assert event["type"] == "DELETED"
        assert event["object"]["metadata"]["labels"] == {"in": "yes"}
        left = answer.body["metadata"]["resourceVersion"]
        assert event["object"]["metadata"]["resourceVersion"] == left
        await client.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"in": "yes"}}})
        assert await watch.seen() == ("ADDED", "a")
        await client.delete(f"{CONFIG_MAPS}/a")
        assert await watch.seen() == ("DELETED", "a")


async def test_selected_by_field(client: Client) -> None:
    await client.create(PODS, pod("a"))
    async with client.watch("/api/v1/pods", fieldSelector="spec.nodeName=n") as watch:
        await client.create(f"{PODS}/a/binding", binding("a", "n"))
        assert await watch.seen() == ("ADDED", "a")


async def test_other_namespaces_are_not_seen(client: Client) -> None:
    await client.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    async with (
        client.watch(CONFIG_MAPS) as here,
        client.watch("/api/v1/configmaps") as everywhere,
    ):
        await client.create(CONFIG_MAPS.replace("default", "other"), config_map("a"))
        await client.create(CONFIG_MAPS, config_map("b"))
        assert await here.seen() == ("ADDED", "b")
        assert [await everywhere.seen(), await everywhere.seen()] == [
            ("ADDED", "a"),
            ("ADDED", "b"),
        ]


async def test_a_compacted_revision_ends_with_an_error_event(
    client: Client, cluster: EmbeddedCluster
) -> None:
    start = await revision(client)
    await client.create(CONFIG_MAPS, config_map("a"))
    cluster.compact()
    async with client.watch(CONFIG_MAPS, resourceVersion=start) as watch:
        (event,) = await watch.rest()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith(f"too old resource version: {start} (")
    async with client.watch(CONFIG_MAPS, resourceVersion=await revision(client)) as watch:
        await client.create(CONFIG_MAPS, config_map("b"))
        assert await watch.seen() == ("ADDED", "b")


async def test_a_revision_ahead_waits_for_it(client: Client) -> None:
    ahead = str(int(await revision(client)) + 1)
    async with client.watch(CONFIG_MAPS, resourceVersion=ahead) as watch:
        await client.create(CONFIG_MAPS, config_map("a"))
        await client.create(CONFIG_MAPS, config_map("b"))
        assert await watch.seen() == ("ADDED", "b")


async def test_both_versions_of_events_are_watched(client: Client) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "message": "m"}
    async with client.watch(EVENTS) as core, client.watch(EVENTS_V1) as new:
        await client.create(EVENTS, event)
        assert (await core.next())["object"]["message"] == "m"
        assert (await new.next())["object"]["note"] == "m"


async def test_as_a_table_columns_come_once(client: Client) -> None:
    for name in "ab":
        await client.create(CONFIG_MAPS, config_map(name))
    async with client.watch(CONFIG_MAPS, accept=TABLE) as watch:
        first, second = await watch.next(), await watch.next()
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == [
        "Name",
        "Data",
        "Age",
    ]
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][:2] == ["b", 1]


@pytest.mark.looptime
async def test_the_end_of_time_comes_with_a_last_bookmark(client: Client) -> None:
    params = {"timeoutSeconds": "1", "allowWatchBookmarks": "true"}
    now = await revision(client)
    async with client.watch(CONFIG_MAPS, **params) as watch:
        (event,) = await watch.rest()
    assert (event["type"], event["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", now)


class TestBookmarks:
    @pytest.fixture
    def options(self) -> ClusterOptions:
        return ClusterOptions(watch=WatchLimits(bookmark_seconds=0.02))

    @pytest.mark.looptime
    async def test_come_again_and_again(self, client: Client) -> None:
        async with client.watch(CONFIG_MAPS, allowWatchBookmarks="true") as watch:
            first = await watch.next()
            await client.create(PODS, pod("p"))
            later = await watch.next()
            while later == first:
                later = await watch.next()
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in (first, later)]
        assert versions[1] > versions[0]
        assert later["type"] == "BOOKMARK"

    @pytest.mark.looptime
    async def test_only_for_those_who_allow_them(self, client: Client) -> None:
        async with client.watch(CONFIG_MAPS, timeoutSeconds="1") as watch:
            assert await watch.rest() == []


async def test_a_client_that_leaves_is_forgotten(client: Client, cluster: EmbeddedCluster) -> None:
    listeners = cluster.api.store["configmaps"].listeners
    before = dict(listeners)
    async with client.watch(CONFIG_MAPS) as watch:
        await until(lambda: cluster.watcher_count == 1)
        watch.response.close()
    await until(lambda: cluster.watcher_count == 0)
    assert listeners == before


async def test_stopping_the_server_ends_the_stream(client: Client) -> None:
    async with EmbeddedCluster() as other, aiohttp.ClientSession() as session:
        watching = Client(session, other.url).watch(CONFIG_MAPS)
        async with watching as watch:
            await until(lambda: other.watcher_count == 1)
            await other.stop()
            assert await watch.rest() == []


async def test_a_watcher_too_far_behind_is_closed(cluster: EmbeddedCluster) -> None:
    kind = BY_RESOURCE["configmaps"]
    options = ListOptions(selector=ListSelector([]), watch=True)
    store = cluster.api.store
    before = dict(store["configmaps"].listeners)
    watcher = open_watch(store, kind, None, options, Whole(kind), buffer_limit=1000)
    for number in range(10):
        cluster.api.create(kind, "default", config_map(f"n{number}"))
    assert await watcher.next_batch() is None
    assert store["configmaps"].listeners == before


async def test_a_long_absence_is_made_up_for_whatever_its_size(cluster: EmbeddedCluster) -> None:
    kind = BY_RESOURCE["configmaps"]
    store = cluster.api.store
    options = ListOptions(selector=ListSelector([]), watch=True, resource_version=store.revision)
    for number in range(1001):
        cluster.api.create(kind, "default", config_map(f"n{number}"))
    watcher = open_watch(store, kind, None, options, Whole(kind), buffer_limit=1000)
    cluster.api.create(kind, "default", config_map("last"))
    batches = [await watcher.next_batch() for _ in range(4)]
    assert [(batch or b"").count(b"\n") for batch in batches] == [500, 500, 1, 1]
    watcher.close()


async def test_an_object_that_cannot_be_shown_ends_the_watch_not_the_write(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Whole):
        def one(self, record: Record) -> bytes:
            raise ValueError(record.name)

    store, kind = cluster.api.store, BY_RESOURCE["configmaps"]
    options = ListOptions(selector=ListSelector([]), watch=True, resource_version=store.revision)
    watcher = open_watch(store, kind, None, options, Failing(kind), buffer_limit=1000)
    cluster.api.create(kind, "default", config_map("a"))
    assert await watcher.next_batch() is None
    assert "Closing a watch that cannot show default/a" in caplog.text
