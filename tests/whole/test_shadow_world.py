"""A shadow with ``--world mine``: with the configuration of the cluster it uses as much, with another one it packs."""

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.tools.shadow.comparison import Comparison
from app.tools.shadow.journal import read
from tests.whole.harness import ApiServer, Process, Schedulers, pod, running_cluster, wait_for
from tests.whole.real import NEEDS_REAL, RealApiServer

pytestmark = pytest.mark.whole

#: Longer than backoffs, after which pods are tried again.
_QUIET_SECONDS = 2.5
PODS = "/api/v1/namespaces/default/pods"
HEAD = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}
PACKING = {
    "name": "NodeResourcesFit",
    "args": {
        "scoringStrategy": {
            "type": "MostAllocated",
            "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
        }
    },
}


class Churn:
    """Pods of several sizes and priorities come and go, and so do nodes. Lost pods are replaced, as controllers do."""

    def __init__(self, cluster: ApiServer, seed: int = 5) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._number = 0
        self._owner: dict[str, Any] = {}
        #: The specs of the pods that are wanted, by name.
        self._wanted: dict[str, dict[str, Any]] = {}

    def start(self, nodes: int) -> None:
        for name, value in (("low", -10), ("high", 1000)):
            self._cluster.call(
                "POST",
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                {"metadata": {"name": name}, "value": value},
            )
        self._cluster.create_nodes(nodes, cpu="8")
        made = self._cluster.call(
            "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "owner"}}
        )
        self._owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }

    def come(self, count: int, cpus: tuple[str, ...], **spec: Any) -> None:
        for _ in range(count):
            self._create({"cpu": self._random.choice(cpus), **spec})

    def _create(self, spec: dict[str, Any]) -> None:
        self._number += 1
        made = pod(f"p{self._number}", **spec)
        made["metadata"]["ownerReferences"] = [self._owner]
        self._cluster.call("POST", PODS, made)
        self._wanted[made["metadata"]["name"]] = spec

    def _delete(self, name: str) -> None:
        self._cluster.call("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def go(self, share: float) -> None:
        for name in list(self._wanted):
            if self._random.random() < share:
                self._delete(name)
                del self._wanted[name]

    def lose(self, node: str) -> None:
        """The node goes with its pods."""
        self._cluster.call("DELETE", f"/api/v1/nodes/{node}")
        for name, found in self._cluster.pods().items():
            if found["spec"].get("nodeName") == node:
                self._delete(name)

    def settle(self) -> int:
        """Waits until no pod gets or loses a node for some seconds; returns how many have one."""
        began, known = time.monotonic(), {""}
        while time.monotonic() < began + _QUIET_SECONDS:
            wait_for("decisions", self._is_settled, 60)
            pods = self._cluster.pods().values()
            bound = {each["metadata"]["name"] for each in pods if "nodeName" in each["spec"]}
            if bound != known:
                began, known = time.monotonic(), bound
        return len(bound)

    def _is_settled(self) -> bool:
        pods, settled = self._cluster.pods(), True
        for name in list(self._wanted):
            if name not in pods:
                self._create(self._wanted.pop(name))
                settled = False
        for name, found in pods.items():
            if "deletionTimestamp" in found["metadata"]:  # a victim, where there is no kubelet
                self._delete(name)
                settled = False
            status = found["status"]
            refused = any(c["type"] == "PodScheduled" for c in status.get("conditions", ()))
            settled &= "nodeName" in found["spec"] or (
                refused and "nominatedNodeName" not in status
            )
        return settled


@contextlib.contextmanager
def shadow(cluster: ApiServer, directory: Path, *plugin_config: Any) -> Iterator[Process]:
    config = directory / "shadow.yaml"
    config.write_text(yaml.safe_dump({**HEAD, "profiles": [{"pluginConfig": list(plugin_config)}]}))
    arguments = ["app", "shadow", "--world=mine", f"--kubeconfig={cluster.kubeconfig}"]
    arguments += [f"--journal={directory / 'journal'}", f"--config={config}", "--secure-port=0"]
    process = Process([*arguments, "--summary-interval=0.2"], directory / "shadow.log")
    try:
        wait_for("the shadow is ready", lambda: "nothing is written" in process.output())
        yield process
    finally:
        process.kill()


def comparisons(directory: Path) -> list[Comparison]:
    return [line for line in read(directory / "journal") if isinstance(line, Comparison)]


def reported(directory: Path) -> dict[str, Any]:
    arguments = ["-m", "app", "shadow", "report", f"--journal={directory / 'journal'}"]
    said = subprocess.run(
        [sys.executable, *arguments, "--output=json"], capture_output=True, check=True, timeout=60
    )
    told: dict[str, Any] = json.loads(said.stdout)
    return told


def play(churn: Churn) -> Iterator[int]:
    """Yields the number of pods that are bound, whenever the cluster has settled."""
    churn.start(20)
    churn.come(150, ("100m", "250m", "500m", "1"), priorityClassName="low")
    yield churn.settle()
    churn.go(0.3)
    churn.come(60, ("250m", "1"))
    yield churn.settle()
    churn.lose("node-3")
    churn.come(11, ("5",), priorityClassName="high")
    churn.come(2, ("64",))
    yield churn.settle()
    churn.go(0.3)
    churn.come(60, ("100m", "500m"))
    yield churn.settle()


def alike(directory: Path, bound: int) -> bool:
    """Whether both clusters use as much, within 1 %, once the shadow has seen all that is bound."""
    last = comparisons(directory)[-1]
    theirs, mine = last.theirs.utilization, last.mine.utilization
    return last.theirs.pods == bound and all(
        abs(mine[resource] - theirs[resource]) < 0.01 for resource in ("cpu", "pods")
    )


def assert_alike(cluster: ApiServer, directory: Path) -> None:
    for bound in play(Churn(cluster)):
        wait_for("the same utilisation", lambda bound=bound: alike(directory, bound))
    told = reported(directory)["worlds"]
    assert max(each.theirs.utilization.get("cpu", 0.0) for each in comparisons(directory)) > 0.9
    assert told["theirs"]["preempted"] > 5
    assert told["mine"]["preempted"] > 5
    assert told["theirs"]["bound"] > 250
    assert told["mine"]["bound"] > 250


def test_the_same_configuration_uses_as_much(tmp_path):
    with running_cluster(tmp_path) as cluster, shadow(cluster, tmp_path):
        schedulers = Schedulers(cluster, tmp_path)
        try:
            schedulers.start(leaderElection={"leaderElect": False})
            assert_alike(cluster, tmp_path)
        finally:
            schedulers.end()


@pytest.mark.real
@NEEDS_REAL[-1]
@pytest.mark.timeout(300)
def test_the_same_configuration_uses_as_much_as_kube_scheduler(tmp_path):
    with RealApiServer(tmp_path).running() as cluster, shadow(cluster, tmp_path):
        with cluster.kube_scheduler():
            assert_alike(cluster, tmp_path)
        writes = [each["verb"] for each in cluster.audited("admin")]
        assert writes


def test_packing_leaves_nodes_idle(tmp_path):
    with running_cluster(tmp_path) as cluster, shadow(cluster, tmp_path, PACKING) as process:
        schedulers = Schedulers(cluster, tmp_path)
        try:
            schedulers.start(leaderElection={"leaderElect": False})
            churn = Churn(cluster)
            churn.start(6)
            churn.come(24, ("500m",))
            bound = churn.settle()
            wait_for("all changes", lambda: comparisons(tmp_path)[-1].theirs.pods == bound)
            assert process.stop() == 0
        finally:
            schedulers.end()
        assert "With its own placements" in process.output()
    last, told = comparisons(tmp_path)[-1], reported(tmp_path)
    assert (last.theirs.idle_nodes, last.mine.idle_nodes) == (0, 4)
    assert last.theirs.utilization == last.mine.utilization
    assert told["worlds"]["mine"]["idleNodes"] > told["worlds"]["theirs"]["idleNodes"]
    assert told["pods"] == 24
