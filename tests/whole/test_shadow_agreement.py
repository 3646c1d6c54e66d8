"""A shadow of the same configuration beside a scheduler that decides mixed pods: agrees, is quick, and writes nothing.

With etcd, kube-apiserver and kube-scheduler of $KUBEBUILDER_ASSETS the cluster's scheduler is kube-scheduler.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.whole.real import ASSETS, NEEDS_REAL

pytestmark = pytest.mark.whole


def measured(folder: Path, assets: str, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.shadow", "agreement", f"--keep={folder}/run"]
    command += ["--nodes=60", "--pods=300", "--rate=50", "--lifetime=3", *options]
    environment = {**os.environ, "KUBEBUILDER_ASSETS": assets}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def check(told: dict[str, Any]) -> None:
    explained = sum(told["classes"].get(kind, 0) for kind in ("same", "tie", "sampled", "race"))
    assert told["verdicts"] >= told["bound"] > 200
    assert told["boundWithoutVerdict"] == []
    assert sum(told["classes"].values()) == told["verdicts"]
    # On a machine that has time it is more (docs/shadow.md).
    assert explained >= 0.98 * told["verdicts"], told
    assert told["percent"]["race"] <= 8, told
    assert told["percent"]["unexplained"] <= 1, told


def test_beside_our_scheduler(tmp_path):
    check(measured(tmp_path, ""))


@pytest.mark.parametrize("percentage", [100, 0])
@pytest.mark.real
@NEEDS_REAL[1]
@NEEDS_REAL[2]
@pytest.mark.skipif(
    not Path(ASSETS, "kube-scheduler").is_file(),
    reason="needs kube-scheduler beside kube-apiserver",
)
def test_beside_kube_scheduler(tmp_path, percentage):
    told = measured(tmp_path, ASSETS, f"--percentage={percentage}")
    check(told)
    assert told["server"] == "real"
    assert told["writes"] == 0
    assert told["requests"].keys() <= {"get", "list", "watch"}
