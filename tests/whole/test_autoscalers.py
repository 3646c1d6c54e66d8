"""What autoscalers make of our pods, against a record of kube-scheduler's; Kueue's gates; a descheduler's rounds."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parity.autoscalers import playing
from tests.parity.autoscalers.playing import (
    Fate,
    Play,
    Record,
    Step,
    conclusions,
    extender,
    kind_of,
    read,
    turns,
)
from tests.whole.harness import ApiServer, Schedulers, pod, wait_for

pytestmark = pytest.mark.whole

ALONE = {"leaderElection": {"leaderElect": False}}
FAST = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
MERGE = "application/merge-patch+json"


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[ApiServer]:
    yield server
    server.wipe()


class Played:
    """What was found on the way."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.record = read()
        started = Schedulers(server, folder)
        play = Play(server)
        with extender() as extenders:
            try:
                play.begin()
                started.start(**ALONE, **FAST, **extenders)
                self.steps = list(play.steps(self._agrees))
                self.versions = play.versions()
            finally:
                started.end()
                play.end()

    def _agrees(self, number: int, step: Step) -> bool:
        return step.fates == self.record.steps[number]


@pytest.fixture(scope="module")
def played(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Played:
    try:
        found = Played(server, tmp_path_factory.mktemp("autoscalers"))
    finally:
        server.wipe()  # at once: other tests of this module use the server before the last test of this fixture
    return found


def different(found: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    names = found.keys() | recorded.keys()
    return {
        name: (found.get(name), recorded.get(name))
        for name in sorted(names)
        if found.get(name) != recorded.get(name)
    }


def test_statuses_and_events_are_those_of_kube_scheduler(played: Played) -> None:
    for step, recorded in zip(played.steps, played.record.steps, strict=True):
        assert different(dict(step.fates), recorded) == {}


def test_autoscalers_conclude_the_same_about_every_pod(played: Played) -> None:
    compared, found = 0, Counter[Any]()
    assert len(played.record.steps[0]) >= 500
    for step, recorded in zip(played.steps, played.record.steps, strict=True):
        for name, fate in recorded.items():
            theirs = as_there(step.pods[name], fate)
            assert conclusions(step.pods[name]) == conclusions(theirs), name
            found[conclusions(theirs)] += 1
            compared += 1
    assert compared >= 1000
    assert found.keys() == {
        (False, "placed", "placed"),
        (False, "nothing", "nothing"),
        (False, "nothing", "scale up"),  # no scheduler has looked at it
        (True, "scale up", "scale up"),
        (True, "nothing", "nothing"),  # expendable, or being deleted
    }


def as_there(ours: dict[str, Any], fate: Fate) -> dict[str, Any]:
    """A pod with what kube-scheduler wrote, and nothing of what we did."""
    meta = {key: value for key, value in ours["metadata"].items() if key != "deletionTimestamp"}
    meta |= {"deletionTimestamp": "then"} if fate.ending else {}
    spec = {**ours["spec"], "nodeName": fate.node}
    said = {"type": "PodScheduled", "status": fate.status, "reason": fate.reason}
    conditions = [said] if fate.status else []
    status = {"conditions": conditions, "nominatedNodeName": fate.nominated}
    return {"metadata": meta, "spec": spec, "status": status}


def test_no_version_of_a_pod_asks_for_a_node_that_is_not_needed(played: Played) -> None:
    found = {name: turns(versions) for name, versions in played.versions.items()}
    assert different(found, played.record.ever) == {}
    for kind in ("gated", "gatedbig", "freed", "kueue", "preempts", "succeeds", "broken"):
        assert all(found[name] == [False] for name in found if kind_of(name) == kind)


def test_a_gated_pod_is_never_seen_as_unschedulable(played: Played) -> None:
    gated = [
        version
        for versions in played.versions.values()
        for version in versions
        if version["spec"].get("schedulingGates")
    ]
    assert len(gated) >= 100
    assert {conclusions(each) for each in gated} == {(False, "nothing", "nothing")}


def test_a_pod_goes_where_another_component_has_nominated_it(played: Played) -> None:
    fates = played.steps[-1].fates
    assert {fate.node for name, fate in fates.items() if kind_of(name) == "named"} == {"named"}


def test_the_record_has_pods_of_each_kind() -> None:
    recorded: Record = read()
    for step in recorded.steps:
        assert {kind_of(name) for name in step} >= playing.KINDS.keys() - {"fill-yield"}


# ---------------------------------------------------------------- Kueue and the descheduler

RACK = "cloud.provider.com/topology-rack"
HOST = "kubernetes.io/hostname"
GATE = "kueue.x-k8s.io/topology"
QUEUE = {"kueue.x-k8s.io/queue-name": "user-queue"}
PACKING = "packing"


@pytest.fixture
def scheduled(cluster: ApiServer, schedulers: Schedulers) -> ApiServer:
    """A cluster with a scheduler of two profiles: one spreads pods, the other one fills nodes."""
    fullest = {"scoringStrategy": {"type": "MostAllocated"}}
    packing = {"name": "NodeResourcesFit", "args": fullest}
    profiles = [
        {"schedulerName": "default-scheduler"},
        {"schedulerName": PACKING, "pluginConfig": [packing]},
    ]
    schedulers.start(**ALONE, **FAST, profiles=profiles)
    return cluster


def make_node(server: ApiServer, name: str, **labels: str) -> None:
    amounts = {"cpu": "10", "memory": "64Gi", "pods": "110"}
    metadata = {"name": name, "labels": {HOST: name, **labels}}
    status = {"capacity": amounts, "allocatable": amounts}
    server.call("POST", "/api/v1/nodes", {"metadata": metadata, "status": status})


def test_kueue_admits_ungates_evicts_and_admits_again(scheduled: ApiServer) -> None:
    """As Kueue does with a Job and topology-aware scheduling: it unsuspends, and its ungater names the node of each
    pod.
    """
    for number in range(4):
        make_node(scheduled, f"k-{number}", **{RACK: f"rack-{number // 2}"})
    scheduled.call("POST", PODS, pod("occupant", cpu="9", nodeName="k-0"))
    kueue = Kueue(scheduled)
    kueue.admit("first")
    assert {reason(each) for each in kueue.pods().values()} == {"SchedulingGated"}
    kueue.ungate({"first-0": "k-0", "first-1": "k-1"})  # one node is no longer free
    wait_for("an answer", lambda: reason(kueue.pods()["first-0"]) == "Unschedulable")
    wait_for("a pod", lambda: kueue.pods()["first-1"]["spec"].get("nodeName") == "k-1")
    kueue.evict("first")
    kueue.admit("second")
    kueue.ungate({"second-0": "k-2", "second-1": "k-3"})
    wait_for("bound pods", lambda: all(p["spec"].get("nodeName") for p in kueue.pods().values()))
    found = {name: each["spec"]["nodeName"] for name, each in kueue.pods().items()}
    assert found == {"second-0": "k-2", "second-1": "k-3"}

    def failed() -> set[str]:
        names = {each["regarding"]["name"] for each in scheduled.events("FailedScheduling")}
        return {name for name in names if name.startswith(("first", "second"))}

    wait_for("an event", lambda: "first-0" in failed())
    assert failed() == {"first-0"}


class Kueue:
    """The pods of a Job as its controller and Kueue make them."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def pods(self) -> dict[str, dict[str, Any]]:
        found = self._server.pods().items()
        return {name: each for name, each in found if GATE in each["metadata"].get("labels", {})}

    def admit(self, name: str) -> None:
        for number in range(2):
            body = pod(f"{name}-{number}", cpu="4", schedulingGates=[{"name": GATE}])
            body["metadata"]["labels"] = {**QUEUE, GATE: "", "kueue.x-k8s.io/podset": "main"}
            body["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": RACK}
            self._server.call("POST", PODS, body)

    def ungate(self, nodes: dict[str, str]) -> None:
        for name, node in nodes.items():
            spec = {"schedulingGates": None, "nodeSelector": {HOST: node}}
            self._server.call("PATCH", f"{PODS}/{name}", {"spec": spec}, MERGE)

    def evict(self, name: str) -> None:
        for number in range(2):
            self._server.call("DELETE", f"{PODS}/{name}-{number}", {"gracePeriodSeconds": 0})


def reason(seen: dict[str, Any]) -> str:
    """Of the condition PodScheduled."""
    conditions = seen["status"].get("conditions") or ()
    return next((c.get("reason", "") for c in conditions if c["type"] == "PodScheduled"), "")


def low_node_utilization(pods: dict[str, dict[str, Any]], nodes: list[str]) -> list[str]:
    """Whom the descheduler's plugin of this name evicts: thresholds 20 % and 50 % of 10 CPUs, pods of 1 CPU."""
    on = {node: [n for n, p in pods.items() if p["spec"].get("nodeName") == node] for node in nodes}
    low = [node for node in nodes if len(on[node]) < 2]
    room = sum(5 - len(on[node]) for node in low)
    victims: list[str] = []
    for node in nodes:
        over = max(0, len(on[node]) - 5)
        victims += on[node][: min(over, room - len(victims))]
    return victims


def evictions(server: ApiServer, profile: str, rounds: int) -> list[int]:
    """How many pods are evicted in each round; a controller makes others for them. At first three of six nodes are
    full.
    """
    nodes = [f"d-{number}" for number in range(6)]
    for node in nodes:
        make_node(server, node)
    made = {"schedulerName": profile, "terminationGracePeriodSeconds": 0}
    for number in range(24):
        at_first = {"nodeName": nodes[number % 3]}
        server.call("POST", PODS, pod(f"w-{number}", cpu="1", **made, **at_first))
    found = []
    for turn in range(rounds):
        victims = low_node_utilization(server.pods(), nodes)
        for victim in victims:
            body = {"metadata": {"name": victim, "namespace": "default"}}
            server.call("POST", f"{PODS}/{victim}/eviction", body)
            server.call("POST", PODS, pod(f"r{turn}-{victim}", cpu="1", **made))
        wait_for("bound pods", lambda: server.all_bound(24))
        found.append(len(victims))
    return found


def test_a_descheduler_that_spreads_comes_to_rest(scheduled: ApiServer) -> None:
    assert evictions(scheduled, "default-scheduler", 3) == [9, 0, 0]


def test_a_descheduler_that_spreads_works_against_a_profile_that_packs(
    scheduled: ApiServer,
) -> None:
    """Not the scheduler's to solve: it evicts what is then packed again (docs/autoscalers.md)."""
    assert evictions(scheduled, PACKING, 3) == [9, 9, 9]
