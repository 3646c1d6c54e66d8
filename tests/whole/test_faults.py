"""The scheduler while the API server misbehaves: no pod is lost, none is bound twice."""

import http.client
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole.harness import Cluster, Schedulers, running_cluster, wait_for

pytestmark = pytest.mark.whole

NO_ELECTION = {"leaderElect": False}
PODS = 120


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path, "--nodes", "20", "--no-kubelets") as running:
        yield running


def bound_once(cluster: Cluster, count: int) -> bool:
    """Whether each pod has exactly one Scheduled event, for the node that it is on."""
    notes = Counter(event["note"] for event in cluster.events("Scheduled"))
    wanted = Counter(
        f"Successfully assigned default/{name} to {pod['spec'].get('nodeName')}"
        for name, pod in cluster.pods().items()
    )
    return len(notes) == count and notes == wanted


def test_connections_cut_again_and_again(cluster: Cluster, schedulers: Schedulers) -> None:
    scheduler = schedulers.start(leaderElection=NO_ELECTION)
    for part in range(6):
        cluster.create_pods(PODS // 6, prefix=f"part-{part}")
        cluster.debug("cut")
    wait_for("all pods bound", lambda: cluster.all_bound(PODS))
    wait_for("one event a pod", lambda: bound_once(cluster, PODS))
    assert scheduler.stop() == 0


def test_the_server_is_away_for_a_while(cluster: Cluster, schedulers: Schedulers) -> None:
    scheduler = schedulers.start(leaderElection=NO_ELECTION)
    cluster.create_pods(PODS)
    cluster.debug("refuse", {"seconds": 3.0})
    wait_for("all pods bound", lambda: _all_bound(cluster, PODS))
    assert scheduler.status is None, scheduler.output()
    assert scheduler.stop() == 0


def _all_bound(cluster: Cluster, count: int) -> bool:
    """Whether all are bound, as far as the server can be reached."""
    try:
        return cluster.all_bound(count)
    except (OSError, http.client.HTTPException):
        return False


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"drop_answer": True}, id="the answer is lost after the binding was made"),
        pytest.param({"status": 500}, id="the binding is refused by a fault of the server"),
        pytest.param({"status": 429, "retry_after": 1}, id="the server asks for patience"),
    ],
)
def test_bindings_that_go_wrong(
    cluster: Cluster, schedulers: Schedulers, fault: dict[str, object]
) -> None:
    cluster.call(
        "POST",
        "/debug/cluster/faults",
        {"method": "POST", "path": "/binding$", "times": 5, **fault},
    )
    scheduler = schedulers.start(leaderElection=NO_ELECTION)
    cluster.create_pods(20)
    wait_for("all pods bound", lambda: cluster.all_bound(20))
    wait_for("one event a pod", lambda: bound_once(cluster, 20))
    assert cluster.events("FailedScheduling") == []
    assert scheduler.stop() == 0


def test_history_is_compacted_while_the_scheduler_is_cut_off(
    cluster: Cluster, schedulers: Schedulers
) -> None:
    scheduler = schedulers.start(leaderElection=NO_ELECTION)
    cluster.create_pods(5)
    wait_for("the first pods bound", lambda: cluster.all_bound(5))
    scheduler.send(signal.SIGSTOP)
    cluster.create_pods(5, prefix="later")
    cluster.call("DELETE", "/api/v1/namespaces/default/pods/p-0", {"gracePeriodSeconds": 0})
    cluster.debug("compact")
    cluster.debug("cut")
    scheduler.send(signal.SIGCONT)
    wait_for("the later pods bound", lambda: cluster.all_bound(9))
    assert scheduler.stop() == 0
