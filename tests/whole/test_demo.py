"""``demo`` as users see it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.markdown import ROOT, blocks
from tests.whole.harness import WAIT_SECONDS, Process, wait_for

pytestmark = pytest.mark.whole

SMALL = ("--nodes=12", "--pods=60")


@pytest.fixture(scope="module")
def shown() -> str:
    """What the demo prints."""
    done = subprocess.run(
        [sys.executable, "-m", "app", "demo"],
        capture_output=True,
        text=True,
        timeout=250,
        env=os.environ | {"COLUMNS": "200"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout


@pytest.fixture
def row(shown: str) -> Callable[[str], list[str]]:
    """The numbers in the row of a workload: pods, the three zones, pending."""

    def numbers(workload: str) -> list[int]:
        found = re.search(rf"^{workload}((?: +(?:\d+|-)){{5}})", shown, re.MULTILINE)
        assert found, shown
        return [0 if cell == "-" else int(cell) for cell in found[1].split()]

    return numbers


def test_every_pod_is_accounted_for(row) -> None:
    for workload in ("ingest", "web", "api", "cache", "batch", "training", "solver", "huge", "all"):
        pods, *zones, pending = row(workload)
        assert pods == sum(zones) + pending, workload
    assert row("all")[0] == 300
    assert row("all")[-1] == 2 + 2 + 6  # huge, training, solver


def test_pods_go_where_they_should(row) -> None:
    assert row("web")[1:4] == [30, 30, 30]
    assert row("solver") == [20, 8, 6, 0, 6]
    assert row("training")[-1] == 2  # of the four that waited, two found a place on the late node
    assert row("huge")[-1] == 2


@pytest.mark.parametrize(
    ("count", "workload", "reason"),
    [
        (2, "huge", "48 Insufficient cpu"),
        (2, "training", "Insufficient example.com/gpu"),
        (6, "solver", "16 the 8 licences of zone-0 are used up"),
    ],
)
def test_pending_pods_come_with_the_reason(
    shown: str, count: int, workload: str, reason: str
) -> None:
    line = re.compile(
        rf"^ +{count} +{workload} +0/6\d nodes are available: .*{reason}", re.MULTILINE
    )
    assert line.search(shown), shown


def test_what_the_extender_refused_and_the_figures(shown: str) -> None:
    refused = shown.partition("What the extender rejected")[2]
    assert re.search(r"^ +\d+ +no licence server in zone-2", refused, re.MULTILINE)
    assert re.search(r"^ +\d+ +the 6 licences of zone-1 are used up", refused, re.MULTILINE)
    assert "licences in use: 8 of 8 in zone-0, 6 of 6 in zone-1" in refused
    assert re.search(r"^274 pods bound in \d+\.\d\d s, \d+ pods/s", refused, re.MULTILINE)
    assert re.search(
        r"^14 pods that the extender allows and binds, within \d", refused, re.MULTILINE
    )
    assert "2 pods that had waited for it were bound within" in refused


def test_the_readme_shows_the_tables_as_they_are(shown: str) -> None:
    consoles = [block.text for block in blocks(ROOT / "README.md") if block.language == "console"]
    (sample,) = [text for text in consoles if text.startswith("$ make demo\n")]
    printed = [" ".join(line.split()) for line in shown.splitlines()]
    lines = [" ".join(line.split()) for line in sample.splitlines()]
    headers = ["workload pods zone-0 zone-1 zone-2 pending", "pods workload FailedScheduling"]
    expected = ["Where the pods went", "Pending, and why", *headers]
    expected += [line for line in lines if line.startswith(("web ", "solver "))]
    assert len(expected) == 6
    for line in expected:
        assert line in lines
        assert line in printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    log = tmp_path / "demo.log"
    with log.open("wb") as out:
        demo = subprocess.Popen(
            [sys.executable, "-m", "app", "demo", "--keep"],
            stdout=out,
            stderr=out,
            env=environment,
        )
    try:
        me = psutil.Process(demo.pid)
        wait_for("the scheduler", lambda: list(tmp_path.glob("*/scheduler.log")))
        family = wait_for("both children", lambda: len(c := me.children(recursive=True)) == 2 and c)
        demo.send_signal(number)
        shown = 0 if "All in all" in log.read_text() else 1
        assert demo.wait(WAIT_SECONDS) == shown, log.read_text()
        assert not [child for child in family if child.is_running()]
        assert list(tmp_path.iterdir()) == [log]
        assert "Traceback" not in log.read_text()
    finally:
        demo.kill()
        demo.wait()


def test_it_stays_up_for_kubectl(tmp_path: Path) -> None:
    demo = Process(["app", "demo", *SMALL, "--keep"], tmp_path / "demo.log")
    try:
        line = wait_for(
            "the line for kubectl",
            lambda: re.search(r"export KUBECONFIG=(\S+)\n", demo.output()),
        )
        kubeconfig = Path(line[1])
        server = re.search(r"http://127\.0\.0\.1:\d+", kubeconfig.read_text())
        assert server
        assert server[0] in demo.output()
        demo.send(signal.SIGINT)
        assert demo.wait() == 0, demo.output()
        assert not kubeconfig.exists()
        assert "Traceback" not in demo.output()
    finally:
        demo.kill()
