"""``run`` as users run it: a process with a configuration file against an API server in another process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.whole.harness import Cluster, Process, Schedulers, pod, running_cluster, wait_for

pytestmark = pytest.mark.whole

PODS = "/api/v1/namespaces/default/pods"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
#: Renewed often, and not lost by a machine that is slow.
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "30s",
    "renewDeadline": "20s",
    "retryPeriod": "300ms",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a scheduler, shared by the tests that only add pods."""
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, "--nodes=6", "--node-cpu=8", "--zones=3") as running:
        schedulers = Schedulers(running, folder)
        schedulers.start(leaderElection={"leaderElect": False})
        yield running
        schedulers.end()


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[tuple[Cluster, Schedulers]]:
    """A cluster of a test's own, without a scheduler."""
    with running_cluster(tmp_path, "--nodes=2") as running:
        schedulers = Schedulers(running, tmp_path)
        yield running, schedulers
        schedulers.end()


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = found["status"].get("conditions", ())
    return next((c for c in conditions if c["type"] == kind), {})


def is_running(cluster: Cluster, name: str) -> bool:
    return cluster.pods()[name]["status"]["phase"] == "Running"


# ---------------------------------------------------------------- what it does to pods


def test_pods_are_bound_with_event_and_condition(cluster: Cluster) -> None:
    names = [f"plain-{number}" for number in range(20)]
    cluster.create_pods(20, prefix="plain")
    wait_for("20 running pods", lambda: all(is_running(cluster, name) for name in names))
    pods = {name: cluster.pods()[name] for name in names}
    assert all(condition(found, "PodScheduled")["status"] == "True" for found in pods.values())
    notes = {
        f"Successfully assigned default/{name} to {found['spec']['nodeName']}"
        for name, found in pods.items()
    }
    events = wait_for(
        "an event for each pod",
        lambda: (
            (e := [x for x in cluster.events("Scheduled") if x["note"] in notes])
            and len(e) == 20
            and e
        ),
    )
    for event in events:
        assert (event["type"], event["action"]) == ("Normal", "Binding")
        assert event["reportingController"] == "default-scheduler"
        assert event["regarding"]["uid"] == pods[event["regarding"]["name"]]["metadata"]["uid"]


def test_a_pod_that_fits_nowhere_is_told_why_and_bound_when_a_node_comes(cluster: Cluster) -> None:
    cluster.call("POST", PODS, pod("too-big", cpu="16"))
    refusal = wait_for(
        "a refusal",
        lambda: (c := condition(cluster.pods()["too-big"], "PodScheduled")).get("reason") and c,
    )
    assert (refusal["status"], refusal["reason"]) == ("False", "Unschedulable")
    assert refusal["message"] == (
        "0/6 nodes are available: 6 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/6 nodes are available: 6 Preemption is not helpful for scheduling."
    )
    (event,) = wait_for("an event", lambda: cluster.events("FailedScheduling"))
    assert (event["type"], event["action"]) == ("Warning", "Scheduling")
    assert event["note"] == refusal["message"]

    node = cluster.call("GET", "/api/v1/nodes/node-0")
    node["metadata"] = {"name": "large", "labels": {"kubernetes.io/hostname": "large"}}
    for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
        amounts["cpu"] = "32"
    cluster.call("POST", "/api/v1/nodes", node)
    wait_for("the pod on the new node", lambda: is_running(cluster, "too-big"))
    assert cluster.pods()["too-big"]["spec"]["nodeName"] == "large"
    cluster.call("DELETE", "/api/v1/nodes/large")


def test_a_gated_pod_waits_for_its_gate(cluster: Cluster) -> None:
    cluster.call("POST", PODS, pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
    cluster.call("POST", PODS, pod("after-gated"))
    wait_for("the pod behind it", lambda: is_running(cluster, "after-gated"))
    found = cluster.pods()["gated"]
    assert "nodeName" not in found["spec"]
    found["spec"]["schedulingGates"] = []
    cluster.call("PUT", f"{PODS}/gated", found)
    wait_for("the pod without its gate", lambda: is_running(cluster, "gated"))


def test_pods_of_other_schedulers_are_left_alone(cluster: Cluster) -> None:
    cluster.call("POST", PODS, pod("foreign", schedulerName="somebody-else"))
    cluster.call("POST", PODS, pod("after-foreign"))
    wait_for("the pod behind it", lambda: is_running(cluster, "after-foreign"))
    assert "nodeName" not in cluster.pods()["foreign"]


# ---------------------------------------------------------------- flags


def test_flags_alone_are_enough(empty: tuple[Cluster, Schedulers], tmp_path: Path) -> None:
    cluster, _ = empty
    arguments = ["app", f"--kubeconfig={cluster.kubeconfig}", "--leader-elect=false"]
    scheduler = Process([*arguments, "--secure_port=0", "-v=4"], tmp_path / "flags.log")
    try:
        cluster.create_pods(1)
        wait_for("a bound pod", lambda: cluster.all_bound(1))
        assert cluster.lease() is None
        assert scheduler.stop() == 0, scheduler.output()
    finally:
        scheduler.kill()


# ---------------------------------------------------------------- the lease


def test_a_leader_that_loses_the_lease_ends_with_1_and_a_standby_with_0(
    empty: tuple[Cluster, Schedulers],
) -> None:
    cluster, schedulers = empty
    scheduler = schedulers.start(leaderElection=ELECTION)
    wait_for("a leader", cluster.holder)

    def taken() -> bool:
        lease = cluster.lease()
        assert lease is not None
        lease["spec"] |= {"holderIdentity": "usurper", "leaseDurationSeconds": 3600}
        lease["metadata"].pop("resourceVersion")
        cluster.call("PUT", LEASE, lease)
        return cluster.holder() == "usurper"

    wait_for("somebody else with the lease", taken)
    standby = schedulers.start(leaderElection=ELECTION)
    wait_for("the end of the leader", lambda: scheduler.status is not None)
    assert scheduler.status == 1
    assert "Leaderelection lost" in scheduler.output()

    wait_for("a standby", lambda: "New leader elected: usurper" in standby.output())
    assert standby.stop() == 0, standby.output()
    assert cluster.holder() == "usurper"
