"""``run --record`` and ``replay`` as users run them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from app.scheduler.trace import read_records
from app.testing import StartExtender, recorded_differences, recorded_extender
from app.tools.replay.story import read_story
from app.tools.subprocesses import reserved_port
from tests.shell.tools.recordings import Script, configuration, node
from tests.whole.harness import Cluster, Process, Schedulers, running_cluster, wait_for

__all__ = ["recorded_extender"]

pytestmark = pytest.mark.whole


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path, "--nodes=4", "--node-cpu=2", "--zones=2") as running:
        yield running


def test_a_recorded_run_replays_as_recorded(
    cluster: Cluster, schedulers: Schedulers, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    scheduler = schedulers.start(f"--record={trace}", leaderElection={"leaderElect": False})
    cluster.create_pods(30, prefix="small")
    cluster.create_pods(3, prefix="large", cpu="8")
    wait_for(
        "pods on nodes", lambda: sum("nodeName" in p["spec"] for p in cluster.pods().values()) == 30
    )
    wait_for("events", lambda: len(cluster.events("FailedScheduling")) >= 3)
    assert scheduler.stop() == 0, scheduler.output()
    arguments = [sys.executable, "-m", "app", "replay", str(trace), "--output=json"]
    outs = [
        subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    found = json.loads(outs[0])
    assert outs[0] == outs[1]
    assert (found["differences"], found["incomplete"], found["gaps"]) == ([], "", 0)
    assert found["decisions"] >= 33
    events = sum(found["records"].values())
    assert sum(file.stat().st_size for file in trace.iterdir()) < 300 * events


def test_the_last_minutes_are_taken_from_a_scheduler_that_runs(
    cluster: Cluster, schedulers: Schedulers, tmp_path: Path
) -> None:
    taken = tmp_path / "taken.aktrace"
    with reserved_port() as port:
        always = "--authorization-always-allow-paths=/recording,/readyz"
        flags = (f"--record={tmp_path / 'trace'}", "--redact", f"--secure-port={port}", always)
        scheduler = schedulers.start(*flags, leaderElection={"leaderElect": False})
        cluster.create_pods(20, prefix="small")
        wait_for(
            "pods on nodes",
            lambda: sum("nodeName" in p["spec"] for p in cluster.pods().values()) == 20,
        )
        words = ["record", "--last", "1m", "-o", str(taken), "--kubeconfig=", "--server"]
        command = [sys.executable, "-m", "app", *words, f"https://127.0.0.1:{port}"]
        command += ["--insecure-skip-tls-verify"]
        said = []

        def done() -> bool:
            found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            said.append(found.stdout + found.stderr)
            return found.returncode == 0

        wait_for("the recording", done, seconds=60)
        assert f"Wrote {taken.stat().st_size} bytes" in said[-1]
        assert scheduler.stop() == 0
    arguments = [sys.executable, "-m", "app", "replay", str(taken), "--output=json"]
    out = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    found = json.loads(out)
    assert (found["differences"], found["incomplete"], found["gaps"]) == ([], "", 0)
    assert found["decisions"] == 20
    assert b"small-" not in b"".join(
        msgspec.msgpack.encode(record) for record in list(read_records(taken))[1:]
    )


PLUGIN = """
from aiokube_scheduler.framework.api import NodeFilter, unresolvable


class OnlyLast(NodeFilter):
    NAME = "OnlyLast"

    def __init__(self, args, handle):
        pass

    def filter_node(self, state, pod, info):
        return None if info.name == "n1" else unresolvable("this is not the last node")
"""


def test_plugins_of_a_folder_live_through_a_recording(tmp_path: Path) -> None:
    script = Script(tmp_path / "trace", configuration(), node("n0"), node("n1"))
    for number in range(3):
        script.pod(1.0 + number, f"p{number}")
        script.bound(1.2 + number, f"p{number}", "n0", tried=1.0 + number)
    trace = script.ends(10.0)
    folder = tmp_path / "site"
    info = folder / "only_last-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "only_last.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: only-last\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[aiokube_scheduler.plugins]\nOnlyLast = only_last:OnlyLast\n"
    )
    enabled = {"multiPoint": {"enabled": [{"name": "OnlyLast"}]}}
    profile = {"schedulerName": "default-scheduler", "plugins": enabled}
    config = tmp_path / "other.yaml"
    config.write_text(configuration(profiles=[profile]))
    arguments = [sys.executable, "-m", "app", "replay", str(trace), f"--config={config}"]
    arguments += ["--output=json"]
    without = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (without.returncode, "OnlyLast" in without.stderr) == (2, True)
    arguments.append(f"--plugins={folder}")
    found = json.loads(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout)
    assert [course["bound"] for course in found["courses"]] == [3, 3]
    [difference] = found["differences"]
    assert {move["after"] for move in difference["moves"]} == {"n1"}
    assert found["courses"][1]["nodesInUse"][-1] == 1


def test_a_shadow_records_what_another_scheduler_decides(
    cluster: Cluster, schedulers: Schedulers, tmp_path: Path
) -> None:
    trace = tmp_path / "shadow"
    arguments = ["app", "shadow", f"--kubeconfig={cluster.kubeconfig}", f"--record={trace}"]
    arguments += ["--secure-port=0", "--summary-interval=0.2"]
    shadow = Process(arguments, tmp_path / "shadow.log")
    try:
        wait_for("the shadow", lambda: "nothing is written" in shadow.output())
        scheduler = schedulers.start(leaderElection={"leaderElect": False})
        cluster.create_pods(12)
        wait_for("verdicts", lambda: "Of 12 decisions" in shadow.output())
        assert shadow.stop() == 0
        assert scheduler.stop() == 0
    finally:
        shadow.kill()
    story = read_story(trace)
    assert (story.header.observed, story.incomplete) == (True, "")
    taken = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in cluster.pods().values()}
    assert {uid: pod.node for uid, pod in story.pods.items() if pod.ours} == taken
    command = [sys.executable, "-m", "app", "replay", str(trace), "--extenders=none"]
    command += ["--output=json"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = json.loads(out)
    assert [course["bound"] for course in (found["recorded"], *found["courses"])] == [12] * 3


def test_a_recorded_extender_is_served_and_checked(
    tmp_path: Path, recorded_extender: StartExtender
) -> None:
    script = Script(tmp_path / "trace", configuration(), node("n0"), node("n1"))
    script.pod(1.0, "p")
    script.call(1.5, "filter", "p", ["n0", "n1"], {"NodeNames": ["n1"]}, seconds=0.5)
    trace = script.ends(2.0)
    flags = ("--filter-verb=filter", "--node-cache-capable")
    assert recorded_differences(trace, recorded_extender(trace), *flags) == {}
    other = Script(tmp_path / "other", configuration(), node("n0"), node("n1"))
    other.pod(1.0, "p")
    other.call(1.5, "filter", "p", ["n0", "n1"], {"NodeNames": ["n0", "n1"]}, seconds=0.5)
    url = recorded_extender(other.ends(2.0))
    assert recorded_differences(trace, url, *flags) == {"accepts": 1}
