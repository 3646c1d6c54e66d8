"""Tables as kubectl asks for them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sim import EmbeddedCluster
from app.sim.clock import human_duration
from app.sim.http.tables import cells_of, columns_of, pod_status
from app.sim.resources.kinds import KINDS, Kind, is_stored
from app.sim.resources.kinds import PODS as PODS_KIND
from tests.shell.sim.client import CONFIG_MAPS, PODS, TABLE, Client, config_map, pod

NOW = 1_000_000_000.0
NAMES = st.sampled_from(
    [
        *("containers", "containerStatuses", "replicas", "selector", "template", "conditions"),
        *("type", "status", "state", "rules", "hard", "used", "ports", "scaleTargetRef"),
    ]
)
CREATED = "2001-09-09T01:45:40Z"
"""One minute before NOW."""


def cells(resource: str, kind: str = "", **parts: Any) -> list[Any]:
    metadata = {"name": "x", "creationTimestamp": CREATED} | parts.pop("metadata", {})
    return cells_of(resource, {"kind": kind, "metadata": metadata, **parts}, NOW)


async def test_a_list_as_a_table(client: Client) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    answer = await client.get(CONFIG_MAPS, accept=TABLE)
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    names = [(column["name"], column["type"]) for column in answer.body["columnDefinitions"]]
    assert names == [("Name", "string"), ("Data", "integer"), ("Age", "string")]
    (row,) = answer.body["rows"]
    assert row["cells"][:2] == ["a", 1]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "a"
    assert answer.body["metadata"]["resourceVersion"]


@pytest.mark.parametrize(("include", "kind"), [("Object", "ConfigMap"), ("None", None)])
async def test_what_comes_with_a_row(client: Client, include: str, kind: str | None) -> None:
    await client.create(CONFIG_MAPS, config_map("a"))
    answer = await client.get(CONFIG_MAPS, accept=TABLE, includeObject=include)
    (row,) = answer.body["rows"]
    assert (row["object"] or {"kind": None})["kind"] == kind


async def test_a_row_that_cannot_be_shown_hides_no_other(
    client: Client, cluster: EmbeddedCluster
) -> None:
    for name in ("a", "b", "c"):
        await client.create(PODS, pod(name))
    broken = cluster.api.get(PODS_KIND, "default", "b").value
    broken = broken | {"metadata": broken["metadata"] | {"creationTimestamp": "yesterday"}}
    cluster.api.write(PODS_KIND, broken | {"status": {"containerStatuses": [None]}})
    rows = (await client.get(PODS, accept=TABLE)).body["rows"]
    assert [row["cells"][:3] for row in rows] == [
        ["a", "0/1", "Pending"],
        ["b", "<unknown>", "<unknown>"],
        ["c", "0/1", "Pending"],
    ]
    assert rows[1]["cells"][4] == "<unknown>"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x", "2001-09-09"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(data=st.data(), kind=st.sampled_from([kind for kind in KINDS if is_stored(kind)]))
def test_junk_can_be_shown(data: st.DataObject, kind: Kind) -> None:
    parts = data.draw(st.dictionaries(st.sampled_from(["spec", "status", "data"]), JUNK))
    value = {"kind": kind.kind, "metadata": {"name": "x", "labels": data.draw(JUNK)}} | parts
    shown = cells_of(kind.resource, value, NOW)
    assert len(msgspec.json.decode(msgspec.json.encode(shown))) == len(columns_of(kind.resource))


async def test_one_object_as_a_table(client: Client) -> None:
    await client.create(PODS, pod("p"))
    answer = await client.get(f"{PODS}/p", accept=TABLE)
    assert answer.body["rows"][0]["cells"][:3] == ["p", "0/1", "Pending"]


async def test_metadata_only(client: Client) -> None:
    created = await client.create(CONFIG_MAPS, config_map("a"))
    one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    answer = await client.get(f"{CONFIG_MAPS}/a", accept=one)
    assert answer.body["kind"] == "PartialObjectMetadata"
    assert answer.body["metadata"] == created["metadata"]
    assert "data" not in answer.body
    answer = await client.get(CONFIG_MAPS, accept=one.replace("Metadata;", "MetadataList;"))
    assert answer.body["kind"] == "PartialObjectMetadataList"
    assert answer.body["items"][0]["metadata"] == created["metadata"]


async def test_an_older_table_version_falls_back_to_the_next_choice(client: Client) -> None:
    accept = "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    assert (await client.get(CONFIG_MAPS, accept=accept)).body["kind"] == "ConfigMapList"


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if is_stored(kind)], ids=lambda kind: kind.resource
)
def test_every_kind_has_a_cell_for_each_column(kind) -> None:
    bare = {"value": 1, "spec": {}, "status": {}}
    row = cells(kind.resource, kind.kind, **bare)
    assert len(row) == len(columns_of(kind.resource))
    assert "1m" in row or "60s" in row or kind.plural == "events"


def test_nodes() -> None:
    row = cells(
        "nodes",
        metadata={"labels": {"node-role.kubernetes.io/b": "", "node-role.kubernetes.io/a": ""}},
        spec={"unschedulable": True},
        status={
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1"},
        },
    )
    assert row[:6] == ["x", "Ready,SchedulingDisabled", "a,b", "60s", "v1", "10.0.0.1"]
    assert (
        cells("nodes", status={"conditions": [{"type": "Ready", "status": "False"}]})[1]
        == "NotReady"
    )
    assert cells("nodes")[1:3] == ["Unknown", "<none>"]


def test_events() -> None:
    event = {
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
        "source": {"component": "c", "host": "h"},
        "firstTimestamp": CREATED,
        "lastTimestamp": "2001-09-09T01:46:30Z",
        "count": 4,
        "type": "Normal",
        "reason": "R",
        "message": "m\n",
    }
    expected = ["10s", "Normal", "R", "pod/p", "spec", "c, h", "m", "60s", 4, "x"]
    assert cells("events", **event) == expected
    series = {"series": {"count": 9, "lastObservedTime": "2001-09-09T01:46:39Z"}}
    new = {
        "eventTime": CREATED,
        "reportingController": "k",
        "regarding": {"kind": "Node", "name": "n"},
    }
    assert cells("events.events.k8s.io", note="t", **new, **series) == [
        "1s", "", "", "node/n", "", "k", "t", "60s", 9, "x",
    ]  # fmt: skip


def test_claims_and_volumes() -> None:
    claim = cells(
        "persistentvolumeclaims",
        spec={"volumeName": "v", "storageClassName": "s", "volumeMode": "Filesystem"},
        status={"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    )
    assert claim == ["x", "Bound", "v", "1Gi", "RWO", "s", "<unset>", "60s", "Filesystem"]
    volume = cells(
        "persistentvolumes",
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany", "ReadOnlyMany"],
            "claimRef": {"namespace": "ns", "name": "c"},
        },
        status={"phase": "Bound"},
    )
    assert volume[:6] == ["x", "1Gi", "RWX,ROX", "", "Bound", "ns/c"]


def test_workloads() -> None:
    spec = {
        "replicas": 3,
        "selector": {
            "matchLabels": {"a": "b"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["d", "e"]},
                {"key": "f", "operator": "Exists"},
            ],
        },
        "template": {
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"n": "o"}}
        },
    }
    texts = ["c", "i", "a=b,c in (d,e),f"]
    assert cells("deployments.apps", spec=spec)[1:] == ["0/3", 0, 0, "60s", *texts]
    assert cells("replicasets.apps", "ReplicaSet", spec=spec)[1:] == [3, 0, 0, "60s", *texts]
    assert cells("daemonsets.apps", spec=spec)[6:] == ["n=o", "60s", *texts]
    controller = spec | {"selector": {"a": "b"}}
    row = cells("replicationcontrollers", "ReplicationController", spec=controller)
    assert row[-1] == "a=b"


def test_budgets_and_classes_and_claims() -> None:
    assert cells("poddisruptionbudgets.policy", spec={"maxUnavailable": "10%"})[1:4] == [
        "N/A",
        "10%",
        0,
    ]
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    assert cells("storageclasses.storage.k8s.io", metadata={"annotations": default})[0] == (
        "x (default)"
    )
    states = [
        cells("resourceclaims.resource.k8s.io", status=status)[1]
        for status in ({}, {"allocation": {}}, {"allocation": {}, "reservedFor": [1]})
    ]
    assert states == ["pending", "allocated", "allocated,reserved"]


def a_pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    containers = [{"name": "c"}]
    spec = {"containers": containers, "initContainers": containers * 2}
    return {"metadata": metadata, "spec": spec, "status": status}


def container(state: dict[str, Any], *, ready: bool = False) -> dict[str, Any]:
    return {"state": state, "ready": ready}


DONE = container({"terminated": {"exitCode": 0}})


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}, "SchedulingGated"),
        ({"phase": "Running", "containerStatuses": [container({"running": {}}, ready=True)]}, "Running"),
        ({"phase": "Pending", "containerStatuses": [container({"waiting": {"reason": "ErrImagePull"}})]}, "ErrImagePull"),
        ({"phase": "Failed", "containerStatuses": [container({"terminated": {"exitCode": 3}})]}, "ExitCode:3"),
        ({"phase": "Failed", "containerStatuses": [container({"terminated": {"signal": 9}})]}, "Signal:9"),
        ({"phase": "Succeeded", "containerStatuses": [container({"terminated": {"reason": "Completed"}})]}, "Completed"),
        ({"phase": "Pending", "initContainerStatuses": [DONE, container({"running": {}})]}, "Init:1/2"),
        ({"phase": "Pending", "initContainerStatuses": [container({"waiting": {"reason": "CrashLoopBackOff"}})]}, "Init:CrashLoopBackOff"),
        ({"phase": "Pending", "initContainerStatuses": [container({"terminated": {"exitCode": 1, "reason": "Error"}})]}, "Init:Error"),
        ({"phase": "Running", "initContainerStatuses": [DONE, DONE]}, "Running"),
    ],
)  # fmt: skip
def test_the_state_of_a_pod(status, expected) -> None:
    assert pod_status(a_pod(status)) == expected


def test_a_pod_that_is_going() -> None:
    going = {"deletionTimestamp": CREATED}
    assert pod_status(a_pod({"phase": "Running"}, **going)) == "Terminating"
    assert pod_status(a_pod({"phase": "Succeeded"}, **going)) == "Succeeded"


def test_restarts_tell_when() -> None:
    statuses = [
        {
            "restartCount": 2,
            "ready": True,
            "state": {"running": {}},
            "lastState": {"terminated": {"finishedAt": CREATED}},
        }
    ]
    row = cells(
        "pods", spec={"containers": [{"name": "c"}]}, status={"containerStatuses": statuses}
    )
    assert row[1:4] == ["1/1", "", "2 (60s ago)"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119.9, "119s"), (120, "2m"), (150, "2m30s"), (600, "10m"),
        (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"), (9 * 3600, "9h"), (50 * 3600, "2d2h"), (8 * 86400, "8d"),
        (400 * 86400, "400d"), (800 * 86400, "2y70d"), (3650 * 86400, "10y"),
    ],
)  # fmt: skip
def test_ages(seconds, text) -> None:
    assert human_duration(seconds) == text
