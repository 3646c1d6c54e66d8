"""``run --record`` and ``replay`` as users run them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.whole.harness import Cluster, Schedulers, running_cluster, wait_for

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
