"""Kubelets that pretend, on a virtual clock."""

import asyncio
from typing import Any

import pytest

from app.sim import RUN_FOR, ClusterOptions, EmbeddedCluster, KubeletOptions, NodeOptions
from app.sim.controllers.kubelet import parse_duration
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import NODES, PODS
from app.sim.resources.pod_subresources import bind
from tests.shell.sim.client import binding, node, pod

EPOCH = 1_700_000_000.0
pytestmark = pytest.mark.looptime


@pytest.fixture
async def running():
    options = ClusterOptions(
        nodes=NodeOptions(count=2), kubelets=KubeletOptions(start_delay=2.0, grace_factor=0.1)
    )
    now = asyncio.get_running_loop().time
    async with EmbeddedCluster(options, now=lambda: EPOCH + now()) as cluster:
        yield cluster


def make(
    cluster: EmbeddedCluster, name: str = "p", node: str = "node-0", **annotations: str
) -> None:
    value = pod(name)
    value["metadata"]["annotations"] = {
        key.replace("_", "-"): text for key, text in annotations.items()
    }
    cluster.api.create(PODS, "default", value)
    if node:
        bind(cluster.api, "default", name, binding(name, node))


def status(cluster: EmbeddedCluster, name: str = "p") -> dict[str, Any]:
    return cluster.api.get(PODS, "default", name).value["status"]


def conditions(value: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in value["conditions"]}


async def test_a_bound_pod_runs_after_the_delay(running: EmbeddedCluster) -> None:
    make(running)
    await asyncio.sleep(1.9)
    assert status(running)["phase"] == "Pending"
    await asyncio.sleep(0.2)
    now = status(running)
    assert now["phase"] == "Running"
    assert now["startTime"] == "2023-11-14T22:13:22Z"
    assert (now["podIP"], now["hostIP"]) == ("10.128.0.1", "10.1.0.1")
    assert set(conditions(now).values()) == {"True"}
    assert {"Ready", "ContainersReady", "PodScheduled"} <= conditions(now).keys()
    (container,) = now["containerStatuses"]
    assert container["ready"]
    assert container["state"] == {"running": {"startedAt": "2023-11-14T22:13:22Z"}}


async def test_a_pod_created_with_its_node_runs_too(running: EmbeddedCluster) -> None:
    running.api.create(PODS, "default", pod("p", nodeName="node-1"))
    await asyncio.sleep(3)
    assert conditions(status(running))["PodScheduled"] == "True"


async def test_an_unbound_pod_waits(running: EmbeddedCluster) -> None:
    make(running, node="")
    await asyncio.sleep(100)
    assert status(running) == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_pod_on_a_missing_node_waits_for_it(running: EmbeddedCluster) -> None:
    make(running, node="late")
    await asyncio.sleep(100)
    assert status(running)["phase"] == "Pending"
    running.api.create(NODES, "", node("late"))
    await asyncio.sleep(3)
    assert status(running)["phase"] == "Running"
    assert "hostIP" not in status(running)


async def test_addresses_differ(running: EmbeddedCluster) -> None:
    for name in "abc":
        make(running, name)
    await asyncio.sleep(3)
    assert len({status(running, name)["podIP"] for name in "abc"}) == 3


async def test_a_pod_that_finishes(running: EmbeddedCluster) -> None:
    make(running, **{RUN_FOR: "1m30s"})
    await asyncio.sleep(2 + 89)
    assert status(running)["phase"] == "Running"
    await asyncio.sleep(2)
    now = status(running)
    assert now["phase"] == "Succeeded"
    assert conditions(now) == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "False",
        "Initialized": "True",
        "Ready": "False",
        "ContainersReady": "False",
    }
    ended = now["containerStatuses"][0]["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("Completed", 0)
    assert (ended["startedAt"], ended["finishedAt"]) == (
        "2023-11-14T22:13:22Z",
        "2023-11-14T22:14:52Z",
    )


async def test_a_run_time_that_cannot_be_read_is_for_ever(running: EmbeddedCluster) -> None:
    make(running, **{RUN_FOR: "soon"})
    await asyncio.sleep(10_000)
    assert status(running)["phase"] == "Running"


async def test_a_deleted_pod_goes_after_its_shortened_grace(running: EmbeddedCluster) -> None:
    make(running)
    delete(running.api, PODS, "default", "p", DeleteOptions(grace_period_seconds=60))
    await asyncio.sleep(5.9)
    assert running.api.find(PODS, "default", "p") is not None
    await asyncio.sleep(0.2)
    assert running.api.find(PODS, "default", "p") is None


async def test_a_shorter_grace_counts_at_once(running: EmbeddedCluster) -> None:
    make(running)
    delete(running.api, PODS, "default", "p", DeleteOptions(grace_period_seconds=600))
    await asyncio.sleep(1)
    delete(running.api, PODS, "default", "p", DeleteOptions(grace_period_seconds=10))
    await asyncio.sleep(1.1)
    assert running.api.find(PODS, "default", "p") is None


async def test_a_held_pod_stays_until_it_is_let_go(running: EmbeddedCluster) -> None:
    value = pod("p", nodeName="node-0")
    value["metadata"]["finalizers"] = ["x.io/y"]
    running.api.create(PODS, "default", value)
    delete(running.api, PODS, "default", "p", DeleteOptions())
    await asyncio.sleep(100)
    held = running.api.get(PODS, "default", "p")
    assert held.value["metadata"]["deletionGracePeriodSeconds"] == 0
    body = value | {"metadata": {"name": "p"}}
    running.api.update(PODS, "default", "p", body | {"spec": held.value["spec"]})
    assert running.api.find(PODS, "default", "p") is None


async def test_a_new_pod_of_an_old_name_starts_afresh(running: EmbeddedCluster) -> None:
    make(running)
    await asyncio.sleep(1.5)
    delete(running.api, PODS, "default", "p", DeleteOptions(grace_period_seconds=0))
    make(running)
    await asyncio.sleep(1.5)
    assert status(running)["phase"] == "Pending"
    await asyncio.sleep(1)
    assert status(running)["phase"] == "Running"


async def test_init_containers_have_completed(running: EmbeddedCluster) -> None:
    inits = [{"name": "i", "image": "x"}]
    running.api.create(PODS, "default", pod("p", nodeName="node-0", initContainers=inits))
    await asyncio.sleep(3)
    (state,) = status(running)["initContainerStatuses"]
    assert state["state"]["terminated"]["exitCode"] == 0


async def test_pods_that_were_there_before_are_looked_after(tmp_path) -> None:
    manifest = tmp_path / "pods.yaml"
    manifest.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: p},"
        " spec: {nodeName: node-0, containers: [{name: c, image: i}]}}"
    )
    options = ClusterOptions(
        nodes=NodeOptions(count=1), kubelets=KubeletOptions(), load=(manifest,)
    )
    async with EmbeddedCluster(options) as cluster:
        await asyncio.sleep(1)
        assert status(cluster)["phase"] == "Running"


@pytest.mark.parametrize(
    ("text", "seconds"), [("5s", 5), ("1m30s", 90), ("250ms", 0.25), ("1.5h", 5400)]
)
def test_durations(text, seconds) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "5s ", "-5s", "5x"])
def test_what_is_no_duration(text) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


async def test_no_pod_takes_longer_than_the_longest_grace() -> None:
    kubelets = KubeletOptions(start_delay=0.0, grace_factor=1.0, longest_grace=2.0)
    options = ClusterOptions(nodes=NodeOptions(count=1), kubelets=kubelets)
    async with EmbeddedCluster(options) as cluster:
        for name, grace in {"slow": 600, "quick": 1}.items():
            make(cluster, name)
            delete(cluster.api, PODS, "default", name, DeleteOptions(grace_period_seconds=grace))
        await asyncio.sleep(1.5)
        assert cluster.api.find(PODS, "default", "quick") is None
        assert cluster.api.find(PODS, "default", "slow") is not None
        await asyncio.sleep(1.0)
        assert cluster.api.find(PODS, "default", "slow") is None
