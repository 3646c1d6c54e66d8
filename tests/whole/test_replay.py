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
from app.tools.subprocesses import reserved_port
from tests.shell.tools.recordings import Script, configuration, node
from tests.whole.harness import Cluster, Schedulers, running_cluster, wait_for

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
