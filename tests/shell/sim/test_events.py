"""Events: one set of objects in two versions."""

import pytest

from tests.shell.sim.client import EVENTS, EVENTS_V1, Client

NEW = {
    "metadata": {"name": "new"},
    "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    "note": "text",
    "reason": "Scheduled",
    "type": "Normal",
    "action": "Binding",
    "eventTime": "2026-01-01T00:00:00.123456Z",
    "reportingController": "default-scheduler",
    "reportingInstance": "host-1",
}
CORE = {
    "metadata": {"name": "core"},
    "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
    "message": "text",
    "reason": "Killing",
    "type": "Warning",
    "source": {"component": "kubelet", "host": "n"},
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:10Z",
    "count": 3,
}


async def test_a_new_event_in_the_old_version(client: Client) -> None:
    created = await client.create(EVENTS_V1, NEW)
    assert created["apiVersion"] == "events.k8s.io/v1"
    assert created["deprecatedFirstTimestamp"] is None
    core = (await client.get(f"{EVENTS}/new")).body
    assert core["apiVersion"] == "v1"
    assert core["involvedObject"] == NEW["regarding"]
    assert (core["message"], core["reportingComponent"]) == ("text", "default-scheduler")
    assert (core["source"], core["firstTimestamp"]) == ({}, None)
    assert core["eventTime"] == NEW["eventTime"]
    assert core["action"] == "Binding"
    assert not {"note", "regarding", "reportingController"} & core.keys()


async def test_an_old_event_in_the_new_version(client: Client) -> None:
    created = await client.create(EVENTS, CORE)
    assert (created["eventTime"], created["reportingComponent"]) == (None, "")
    new = (await client.get(f"{EVENTS_V1}/core")).body
    assert (new["note"], new["regarding"]) == ("text", CORE["involvedObject"])
    assert new["deprecatedSource"] == CORE["source"]
    assert new["deprecatedCount"] == 3
    assert new["deprecatedLastTimestamp"] == CORE["lastTimestamp"]


async def test_lists_in_both_versions(client: Client) -> None:
    await client.create(EVENTS, CORE)
    await client.create(EVENTS_V1, NEW)
    answer = await client.get("/apis/events.k8s.io/v1/events")
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("EventList", "events.k8s.io/v1")
    assert [item["note"] for item in answer.body["items"]] == ["text", "text"]
    assert "kind" not in answer.body["items"][0]
    selector = "involvedObject.name=p,reason=Killing,type=Warning"
    assert await client.names(EVENTS, fieldSelector=selector) == ["core"]
    selector = "regarding.kind=Pod,reportingController=default-scheduler"
    assert await client.names(EVENTS_V1, fieldSelector=selector) == ["new"]


async def test_put_creates_and_delete_removes(client: Client) -> None:
    assert (await client.put(f"{EVENTS_V1}/new", NEW)).status == 201
    changed = NEW | {"series": {"count": 2, "lastObservedTime": NEW["eventTime"]}}
    answer = await client.put(f"{EVENTS_V1}/new", changed)
    assert (answer.status, answer.body["series"]["count"]) == (200, 2)
    answer = await client.delete(f"{EVENTS_V1}/new")
    assert answer.body["details"]["group"] == "events.k8s.io"
    assert await client.names(EVENTS) == []


@pytest.mark.parametrize("field", ["eventTime", "reportingController", "action", "reason"])
async def test_what_a_new_event_must_have(client: Client, field: str) -> None:
    body = {name: value for name, value in NEW.items() if name != field}
    answer = await client.post(EVENTS_V1, body)
    assert answer.status == 422
    assert f"{field}: Required value" in answer.message


async def test_an_event_lives_beside_its_object(client: Client) -> None:
    stray = CORE | {"involvedObject": {"kind": "Pod", "namespace": "other", "name": "p"}}
    answer = await client.post(EVENTS, stray)
    assert answer.status == 422
    assert 'involvedObject.namespace: Invalid value: "other"' in answer.message
    of_a_node = CORE | {"involvedObject": {"kind": "Node", "name": "n"}}
    assert (await client.post(EVENTS, of_a_node)).status == 201
