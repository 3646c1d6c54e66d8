"""Lists: pages, revisions, selectors."""

import base64
import json

import pytest

from app.sim import EmbeddedCluster
from tests.shell.sim.client import CONFIG_MAPS, PODS, Answer, Client, config_map, pod


@pytest.fixture
async def five(client: Client) -> Client:
    for name in "abcde":
        await client.create(CONFIG_MAPS, config_map(name, labels={"odd": str(name in "ace")}))
    return client


async def pages(client: Client, **params: str) -> list[list[str]]:
    found, token = [], ""
    while True:
        more = {"continue": token} if token else {}
        answer = await client.get(CONFIG_MAPS, **params, **more)
        found.append([item["metadata"]["name"] for item in answer.body["items"]])
        token = answer.body["metadata"].get("continue", "")
        if not token:
            return found


def version(answer: Answer) -> str:
    return answer.body["metadata"]["resourceVersion"]


async def test_a_list_has_its_kind_and_items_without_theirs(five: Client) -> None:
    answer = await five.get(CONFIG_MAPS)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert list(answer.body["items"][0]) == ["metadata", "data"]


async def test_pages(five: Client) -> None:
    assert await pages(five, limit="2") == [["a", "b"], ["c", "d"], ["e"]]
    assert await pages(five, limit="5") == [["a", "b", "c", "d", "e"]]
    assert await pages(five, limit="2", labelSelector="odd=True") == [["a", "c"], ["e"]]
    first = (await five.get(CONFIG_MAPS, limit="2")).body["metadata"]
    assert first["remainingItemCount"] == 3
    selected = (await five.get(CONFIG_MAPS, limit="2", labelSelector="odd=True")).body["metadata"]
    assert "remainingItemCount" not in selected


async def test_pages_show_one_moment(five: Client) -> None:
    first = await five.get(CONFIG_MAPS, limit="2")
    await five.delete(f"{CONFIG_MAPS}/c")
    await five.create(CONFIG_MAPS, config_map("bb"))
    await five.patch(f"{CONFIG_MAPS}/d", {"data": {"a": "new"}})
    token = first.body["metadata"]["continue"]
    second = await five.get(CONFIG_MAPS, **{"continue": token})
    assert [item["metadata"]["name"] for item in second.body["items"]] == ["c", "d", "e"]
    assert second.body["items"][1]["data"] == {"a": "b"}
    assert version(second) == version(first)


async def test_a_token_older_than_the_history_is_410_with_a_way_on(
    five: Client, cluster: EmbeddedCluster
) -> None:
    first = await five.get(CONFIG_MAPS, limit="2")
    cluster.compact()
    await five.delete(f"{CONFIG_MAPS}/c")
    cluster.compact()
    token = first.body["metadata"]["continue"]
    answer = await five.get(CONFIG_MAPS, **{"continue": token})
    assert (answer.status, answer.body["reason"]) == (410, "Expired")
    again = await five.get(CONFIG_MAPS, **{"continue": answer.body["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in again.body["items"]] == ["d", "e"]


async def test_an_exact_revision(five: Client, cluster: EmbeddedCluster) -> None:
    past = version(await five.get(CONFIG_MAPS))
    await five.delete(f"{CONFIG_MAPS}/a")
    exact = {"resourceVersion": past, "resourceVersionMatch": "Exact"}
    assert await five.names(CONFIG_MAPS, **exact) == list("abcde")
    assert await five.names(CONFIG_MAPS, resourceVersion=past) == list("bcde")
    assert await five.names(CONFIG_MAPS, resourceVersion=past, limit="1") == ["a"]
    cluster.compact()
    answer = await five.get(CONFIG_MAPS, **exact)
    assert (answer.status, answer.message) == (
        410,
        "The resourceVersion for the provided list is too old.",
    )


async def test_any_revision_ignores_the_limit(five: Client) -> None:
    assert await five.names(CONFIG_MAPS, resourceVersion="0", limit="1") == list("abcde")


async def test_a_revision_that_lies_ahead(five: Client) -> None:
    answer = await five.get(CONFIG_MAPS, resourceVersion="999999")
    assert (answer.status, answer.body["reason"]) == (504, "Timeout")
    assert answer.body["details"]["retryAfterSeconds"] == 1
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    ("params", "status", "text"),
    [
        ({"limit": "x"}, 400, 'parsing "x"'),
        ({"limit": "9" * 30}, 400, "value out of range"),
        ({"resourceVersion": "9" * 5000}, 400, "invalid resource version"),
        ({"resourceVersion": "\u00b2"}, 400, "invalid resource version"),
        ({"resourceVersion": "x"}, 400, "invalid resource version"),
        ({"continue": "x"}, 400, "continue key is not valid"),
        ({"continue": base64.b64encode(b"[1]").decode()}, 400, "continue key is not valid"),
        ({"labelSelector": "a in ("}, 400, "unable to parse requirement"),
        ({"fieldSelector": "x=y"}, 400, "field label not supported: x"),
        ({"resourceVersionMatch": "Exact"}, 422, "forbidden unless resourceVersion is provided"),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422, 'forbidden for resourceVersion "0"'),
        ({"resourceVersionMatch": "Foo", "resourceVersion": "1"}, 422, "supported values"),
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents is forbidden for list"),
        ({"watch": "1", "sendInitialEvents": "true"}, 422, "requires setting resourceVersionMatch to NotOlderThan"),
        ({"watch": "1", "resourceVersionMatch": "NotOlderThan"}, 422, "forbidden for watch unless"),
        ({"watch": "1", "timeoutSeconds": "x"}, 400, 'parsing "x"'),
    ],
)  # fmt: skip
async def test_options_that_are_refused(client: Client, params, status, text) -> None:
    answer = await client.get(CONFIG_MAPS, **params)
    assert answer.status == status
    assert text in answer.message


async def test_a_token_and_a_revision_exclude_each_other(five: Client) -> None:
    token = (await five.get(CONFIG_MAPS, limit="1")).body["metadata"]["continue"]
    assert json.loads(base64.urlsafe_b64decode(token + "=="))["start"] == "default/a\0"
    answer = await five.get(CONFIG_MAPS, resourceVersion="5", **{"continue": token})
    assert answer.status == 400


async def test_one_object_by_name(five: Client) -> None:
    assert await five.names(CONFIG_MAPS, fieldSelector="metadata.name=c") == ["c"]
    assert await five.names(CONFIG_MAPS, fieldSelector="metadata.name=z") == []
    both = {"fieldSelector": "metadata.name=c", "labelSelector": "odd=False"}
    assert await five.names(CONFIG_MAPS, **both) == []
    everywhere = "/api/v1/configmaps"
    assert await five.names(everywhere, fieldSelector="metadata.name=c") == ["c"]


async def test_pods_by_node_and_phase(client: Client) -> None:
    await client.create(PODS, pod("a", nodeName="n"))
    await client.create(PODS, pod("b"))
    await client.patch(f"{PODS}/b/status", {"status": {"phase": "Failed"}})
    assert await client.names("/api/v1/pods", fieldSelector="spec.nodeName=n") == ["a"]
    assert await client.names(PODS, fieldSelector="status.phase!=Failed") == ["a"]
    assert await client.names(PODS, fieldSelector="spec.nodeName=,status.phase=Failed") == ["b"]
