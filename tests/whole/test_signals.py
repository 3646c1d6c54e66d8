"""What signals do to a running scheduler, and what it writes to its log."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.whole.harness import (
    WAIT_SECONDS,
    Cluster,
    Process,
    Schedulers,
    hangups_end_processes,
    pod,
    running_cluster,
    wait_for,
)

pytestmark = pytest.mark.whole

ALONE = {"leaderElect": False}
PODS = "/api/v1/namespaces/default/pods"
KLOG = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \w+\.py:\d+\] \S")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path, "--nodes=3", "--no-kubelets") as running:
        yield running


def bindings_under_way(cluster: Cluster, count: int) -> None:
    """Creates pods whose bindings are not answered before the faults are cleared."""
    slow = {"method": "POST", "path": "/binding$", "times": count, "delay": 3600.0}
    cluster.debug("faults", slow)
    cluster.create_pods(count)


def test_a_stop_lets_bindings_finish_and_reports_them(
    cluster: Cluster, schedulers: Schedulers
) -> None:
    scheduler = schedulers.start("-v=3", leaderElection=ALONE)
    wait_for("a start", lambda: "] Scheduling" in scheduler.output())
    bindings_under_way(cluster, 5)
    wait_for("attempts", lambda: scheduler.output().count('"Attempting to schedule pod"') == 5)
    scheduler.send(signal.SIGTERM)
    wait_for("the request", lambda: "Requested to terminate" in scheduler.output())
    assert scheduler.status is None
    cluster.clear_faults()
    wait_for("the end", lambda: scheduler.status is not None)
    assert scheduler.status == 0
    assert cluster.all_bound(5)
    assert len(cluster.events("Scheduled")) == 5


def test_a_second_request_to_stop_is_obeyed_at_once(
    cluster: Cluster, schedulers: Schedulers
) -> None:
    scheduler = schedulers.start("-v=3", leaderElection=ALONE)
    wait_for("a start", lambda: "] Scheduling" in scheduler.output())
    bindings_under_way(cluster, 1)
    wait_for("an attempt", lambda: '"Attempting to schedule pod"' in scheduler.output())
    scheduler.send(signal.SIGTERM)
    wait_for("the first request", lambda: "Requested to terminate" in scheduler.output())
    scheduler.send(signal.SIGINT)
    assert wait_for("the end", lambda: scheduler.status) == 1


def test_a_dump_tells_of_every_node_and_pod_and_goes_on(
    cluster: Cluster, schedulers: Schedulers
) -> None:
    scheduler = schedulers.start(leaderElection=ALONE)
    cluster.create_pods(3)
    cluster.call("POST", PODS, pod("too-big", cpu="1000"))
    wait_for("three bindings and a refusal", lambda: cluster.events("FailedScheduling"))
    wait_for("events", lambda: len(cluster.events("Scheduled")) == 3)
    scheduler.send(signal.SIGUSR2)
    wait_for("a dump", lambda: '"Dump of scheduling queue"' in scheduler.output())
    dump = scheduler.output().partition('"Dump of cached NodeInfo"')[2]
    nodes, _, queue = dump.partition('"Dump of scheduling queue"')
    assert re.findall(r"Node name: (\S+)", nodes) == ["node-0", "node-1", "node-2"]
    assert sorted(re.findall(r"name: (p-\d)", nodes)) == ["p-0", "p-1", "p-2"]
    assert re.findall(r"name: (\S+), namespace: default", queue) == ["too-big"]
    assert "Cache mismatch" not in scheduler.output()
    cluster.create_pods(1, prefix="later")
    wait_for("a pod after it", lambda: cluster.pods()["later-0"]["spec"].get("nodeName"))
    assert scheduler.stop() == 0


def test_other_signals_are_answered_and_change_nothing(
    cluster: Cluster, schedulers: Schedulers
) -> None:
    scheduler = schedulers.start(leaderElection=ALONE)
    wait_for("a start", lambda: "] Scheduling" in scheduler.output())
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH, signal.SIGCONT, signal.SIGPIPE):
        scheduler.send(number)
    for said in ("SIGHUP has no effect", "SIGUSR1 has no effect"):
        wait_for(said, lambda said=said: said in scheduler.output())
    cluster.create_pods(1)
    wait_for("a binding", lambda: cluster.all_bound(1))
    assert scheduler.stop() == 0


def test_where_it_runs_on_a_terminal_its_end_is_a_request_to_stop(cluster: Cluster) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "app", "--leader-elect=false", "--secure-port=0"]
    command += [f"--kubeconfig={cluster.kubeconfig}"]
    with hangups_end_processes():
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    with process:
        os.close(theirs)
        said = b""
        while b"Scheduling" not in said:
            said += os.read(ours, 65536)
        process.send_signal(signal.SIGHUP)
        os.close(ours)
        try:
            assert process.wait(WAIT_SECONDS) == 0
        finally:
            process.kill()


def test_what_was_ignored_from_the_start_stays_ignored(cluster: Cluster, tmp_path: Path) -> None:
    """That is how nohup works, on a terminal too."""
    log = tmp_path / "log"
    flags = f"--leader-elect=false --secure-port=0 --kubeconfig={cluster.kubeconfig}"
    line = f"trap '' HUP; exec {sys.executable} -m app {flags} 2>{log}"
    with subprocess.Popen(["sh", "-c", line]) as process:
        try:
            wait_for("a start", lambda: log.exists() and "] Scheduling" in log.read_text())
            process.send_signal(signal.SIGHUP)
            cluster.create_pods(1)
            wait_for("a binding", lambda: cluster.all_bound(1))
            assert "SIGHUP" not in log.read_text()
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_SECONDS) == 0
        finally:
            process.kill()


# ---------------------------------------------------------------- the log


def a_life(cluster: Cluster, scheduler: Process) -> list[str]:
    """The log's lines after a binding, a refusal, a dump and the end."""
    cluster.create_pods(1)
    cluster.call("POST", PODS, pod("too-big", cpu="1000"))
    wait_for("events", lambda: cluster.events("Scheduled") and cluster.events("FailedScheduling"))
    scheduler.send(signal.SIGUSR2)
    wait_for("a dump", lambda: "Dump of scheduling queue" in scheduler.output())
    assert scheduler.stop() == 0
    return scheduler.output().splitlines()


def test_text_is_klog_s(cluster: Cluster, schedulers: Schedulers) -> None:
    lines = a_life(cluster, schedulers.start("-v=4", leaderElection=ALONE))
    text = "\n".join(lines)
    heads = [line for line in lines if KLOG.match(line)]
    # Values of several lines are blocks: indented, and closed by a line of their own.
    assert all(line.startswith(("\t", " >")) for line in set(lines) - set(heads))
    bound = '"Successfully bound pod to node" pod="default/p-0" node="node-'
    assert re.search(rf"^I.*\] {re.escape(bound)}", text, re.MULTILINE)
    assert re.search(r'^I.*\] "Unable to schedule pod; no fit; waiting" pod="default/too-big" err="0/3 nodes', text, re.MULTILINE)  # fmt: skip
    assert "Traceback" not in text


def test_json_is_an_object_a_line(cluster: Cluster, schedulers: Schedulers) -> None:
    scheduler = schedulers.start("-v=4", "--logging-format=json", leaderElection=ALONE)
    entries: list[dict[str, Any]] = [json.loads(line) for line in a_life(cluster, scheduler)]
    assert all({"ts", "caller", "msg"} <= entry.keys() for entry in entries)
    assert all(abs(entry["ts"] / 1000 - time.time()) < 24 * 3600 for entry in entries)
    by_message = {entry["msg"]: entry for entry in entries}
    bound = by_message["Successfully bound pod to node"]
    assert (bound["pod"], bound["v"]) == ("default/p-0", 2)
    assert bound["node"] in {"node-0", "node-1", "node-2"}
    assert "Node name: node-2" in by_message["Dump of cached NodeInfo"]["nodes"]
    assert "err" not in bound
