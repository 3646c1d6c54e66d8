"""Preemption from end to end: victims marked and deleted, the preemptor bound where they were."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.whole.harness import Cluster, Schedulers, pod, running_cluster, wait_for

pytestmark = pytest.mark.whole

NODES = 4
NO_ELECTION = {"leaderElect": False}
PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    flags = (f"--nodes={NODES}", "--node-cpu=4", "--grace-factor=0.02")
    with running_cluster(tmp_path, *flags) as running:
        for name, value in (("high", 1000), ("low", 1)):
            body = {"metadata": {"name": name}, "value": value}
            running.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        yield running


def fill(cluster: Cluster, *, cheap: str = "") -> None:
    """Four pods of low priority on every node; precious ones but on the ``cheap`` node."""
    for number in range(4 * NODES):
        node = f"node-{number % NODES}"
        low = pod(f"low-{number}", cpu="900m", priorityClassName="low", nodeName=node)
        low["metadata"]["labels"] = {"app": "cheap" if node == cheap else "precious"}
        cluster.call("POST", PODS, low)


def node_names(cluster: Cluster) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.call("GET", "/api/v1/nodes")["items"]}


def last_conditions(cluster: Cluster, since: str, count: int) -> list[dict[str, Any]]:
    """The DisruptionTarget conditions with which so many pods have gone."""
    gone = (each for each in cluster.changes(PODS, since) if each["type"] == "DELETED")
    return [
        condition
        for event in itertools.islice(gone, count)
        for condition in event["object"]["status"].get("conditions", ())
        if condition["type"] == "DisruptionTarget"
    ]


def bound(cluster: Cluster, prefix: str) -> dict[str, str]:
    """The nodes of the pods that are bound, by pod."""
    return {
        name: each["spec"]["nodeName"]
        for name, each in cluster.pods().items()
        if name.startswith(prefix) and each["spec"].get("nodeName")
    }


def test_makes_room_on_every_node(cluster: Cluster, schedulers: Schedulers) -> None:
    fill(cluster)
    since = cluster.call("GET", PODS)["metadata"]["resourceVersion"]
    scheduler = schedulers.start(leaderElection=NO_ELECTION)
    cluster.create_pods(NODES, prefix="high", cpu="3", priorityClassName="high")
    wait_for("all high pods bound", lambda: len(bound(cluster, "high")) == NODES)
    assert set(bound(cluster, "high").values()) == node_names(cluster)
    wait_for("the victims gone", lambda: len(bound(cluster, "low")) == NODES)
    wait_for("events", lambda: len(cluster.events("Preempted")) == 3 * NODES)
    notes = Counter(event["note"] for event in cluster.events("Preempted"))
    uids = {name: each["metadata"]["uid"] for name, each in cluster.pods().items()}
    assert notes == {
        f"Preempted by pod {uids[name]} on node {node}": 3
        for name, node in bound(cluster, "high").items()
    }
    conditions = last_conditions(cluster, since, 3 * NODES)
    assert len(conditions) == 3 * NODES
    for condition in conditions:
        assert condition["status"] == "True"
        assert condition["reason"] == "PreemptionByScheduler"
        message = "default-scheduler: preempting to accommodate a higher priority pod"
        assert condition["message"] == message
    assert scheduler.stop() == 0


def test_prefers_nodes_without_budgets_to_break(cluster: Cluster, schedulers: Schedulers) -> None:
    fill(cluster, cheap="node-2")
    cluster.call(
        "POST",
        BUDGETS,
        {
            "metadata": {"name": "precious", "namespace": "default"},
            "spec": {"minAvailable": "100%", "selector": {"matchLabels": {"app": "precious"}}},
        },
    )
    schedulers.start(leaderElection=NO_ELECTION)
    cluster.create_pods(1, prefix="high", cpu="3", priorityClassName="high")
    wait_for("the high pod bound", lambda: bound(cluster, "high"))
    assert set(bound(cluster, "high").values()) == {"node-2"}
