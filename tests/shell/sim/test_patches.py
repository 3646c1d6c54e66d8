"""Patches over HTTP: the four kinds, on objects and on their status."""

import pytest

from tests.shell.sim.client import (
    APPLY,
    CONFIG_MAPS,
    EVENTS_V1,
    JSON_PATCH,
    MERGE,
    NODES,
    PODS,
    STRATEGIC,
    Client,
    config_map,
    node,
    pod,
)


async def test_merge_patch(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a", labels={"k": "v"}))
    patch = {"data": {"a": None, "c": "d"}, "metadata": {"labels": {"l": "w"}}}
    answer = await client.patch(f"{CONFIG_MAPS}/a", patch, MERGE)
    assert answer.body["data"] == {"c": "d"}
    assert answer.body["metadata"]["labels"] == {"k": "v", "l": "w"}


async def test_json_patch(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    patch = [
        {"op": "test", "path": "/data/a", "value": "b"},
        {"op": "add", "path": "/data/x~1y", "value": "z"},
        {"op": "remove", "path": "/data/a"},
    ]
    answer = await client.patch(f"{CONFIG_MAPS}/a", patch, JSON_PATCH)
    assert answer.body["data"] == {"x/y": "z"}


async def test_strategic_merge_patch_of_a_pod_status(client: Client) -> None:
    await client.create(PODS, pod("p"))
    for type_ in ("PodScheduled", "Other"):
        condition = {"type": type_, "status": "False", "reason": "First"}
        await client.patch(f"{PODS}/p/status", {"status": {"conditions": [condition]}}, STRATEGIC)
    patch = {
        "status": {
            "$setElementOrder/conditions": [{"type": "PodScheduled"}],
            "conditions": [{"type": "PodScheduled", "reason": "Second"}],
            "nominatedNodeName": "n",
        }
    }
    answer = await client.patch(f"{PODS}/p/status", patch, STRATEGIC)
    assert answer.body["status"]["conditions"] == [
        {"type": "Other", "status": "False", "reason": "First"},
        {"type": "PodScheduled", "status": "False", "reason": "Second"},
    ]
    assert answer.body["status"]["nominatedNodeName"] == "n"
    assert answer.body["status"]["phase"] == "Pending"


async def test_a_patch_of_the_status_leaves_the_spec_alone(client: Client) -> None:
    await client.create(PODS, pod("p"))
    patch = {"spec": {"nodeName": "n"}, "metadata": {"labels": {"a": "b"}}}
    answer = await client.patch(f"{PODS}/p/status", patch)
    assert "nodeName" not in answer.body["spec"]
    assert answer.body["metadata"]["labels"] == {"a": "b"}


async def test_taints_are_replaced_whole(client: Client) -> None:
    taints = [{"key": "k", "effect": "NoSchedule"}, {"key": "l", "effect": "NoExecute"}]
    await client.create(NODES, node("n", taints=taints))
    patch = {"spec": {"taints": [{"key": "m", "effect": "NoSchedule"}]}}
    answer = await client.patch(f"{NODES}/n", patch, STRATEGIC)
    assert answer.body["spec"]["taints"] == patch["spec"]["taints"]


async def test_server_side_apply_creates_and_merges(client: Client) -> None:
    manifest = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1'}"
    answer = await client.patch(f"{CONFIG_MAPS}/a", manifest, APPLY, fieldManager="me")
    assert answer.status == 201
    answer = await client.patch(
        f"{CONFIG_MAPS}/a", config_map("a") | {"data": {"y": "2"}}, APPLY, fieldManager="me"
    )
    assert (answer.status, answer.body["data"]) == (200, {"x": "1", "y": "2"})
    answer = await client.patch(f"{CONFIG_MAPS}/a", manifest, APPLY)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert "fieldManager: Required value" in answer.message


async def test_events_are_patched_in_the_version_of_the_path(client: Client) -> None:
    event = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "note": "first",
        "reason": "R",
        "action": "A",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c",
        "reportingInstance": "i",
    }
    await client.create(EVENTS_V1, event)
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}}
    answer = await client.patch(f"{EVENTS_V1}/e", series | {"note": "second"}, STRATEGIC)
    assert (answer.body["note"], answer.body["series"]["count"]) == ("second", 2)
    core = await client.get("/api/v1/namespaces/default/events/e")
    assert (core.body["message"], core.body["series"]["count"]) == ("second", 2)


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        pytest.param({}, "application/foo", 415, id="media-type"),
        pytest.param(b"{bad", MERGE, 400, id="malformed"),
        pytest.param([], MERGE, 400, id="merge-list"),
        pytest.param([], STRATEGIC, 400, id="strategic-list"),
        pytest.param({}, JSON_PATCH, 400, id="json-object"),
        pytest.param(["x"], JSON_PATCH, 400, id="json-text"),
        pytest.param(b'{"a":"\xff"}', MERGE, 400, id="no-utf-8"),
        pytest.param(b'{"a":' * 5000, MERGE, 400, id="deep"),
        pytest.param(b"a: " + b"9" * 5000, MERGE, 400, id="digits"),
        pytest.param([{"op": "move"}], JSON_PATCH, 422, id="json-no-path"),
        pytest.param([{"op": "jump", "path": "/x"}], JSON_PATCH, 422, id="json-operation"),
        pytest.param([{"op": "remove", "path": "/data/z"}], JSON_PATCH, 422, id="json-missing"),
        pytest.param([{"op": "test", "path": "/data/a", "value": "z"}], JSON_PATCH, 422, id="json-test"),
        pytest.param({"metadata": {"resourceVersion": "1"}}, MERGE, 409, id="version"),
        pytest.param({"metadata": {"uid": "z"}}, MERGE, 422, id="uid"),
        pytest.param({"metadata": {"name": "z"}}, MERGE, 400, id="name"),
        pytest.param({"metadata": {"namespace": "z"}}, MERGE, 400, id="namespace"),
        pytest.param({"metadata": {"labels": {"&": "z"}}}, MERGE, 422, id="labels"),
        pytest.param({"kind": "Pod"}, MERGE, 400, id="kind"),
        pytest.param({"$patch": "explode"}, STRATEGIC, 400, id="directive"),
    ],
)  # fmt: skip
async def test_patches_that_are_refused(client: Client, body, content_type, status) -> None:
    before = await client.create(CONFIG_MAPS, config_map("a"))
    answer = await client.patch(f"{CONFIG_MAPS}/a", body, content_type)
    assert (answer.status, answer.body["kind"]) == (status, "Status"), answer
    assert (await client.get(f"{CONFIG_MAPS}/a")).body == before


async def test_a_patch_of_nothing_is_404(client: Client) -> None:
    assert (await client.patch(f"{CONFIG_MAPS}/a", {})).status == 404


async def test_a_list_without_its_merge_key_is_refused(client: Client) -> None:
    await client.create(PODS, pod("p"))
    answer = await client.patch(f"{PODS}/p", {"spec": {"containers": [{"image": "x"}]}}, STRATEGIC)
    assert answer.status == 400
    assert "does not contain declared merge key: name" in answer.message


async def test_an_empty_patch_changes_nothing(client: Client) -> None:
    before = await client.create(CONFIG_MAPS, config_map("a"))
    assert (await client.patch(f"{CONFIG_MAPS}/a", {})).body == before
