"""The plugins of docs/examples/gpu in the real command: pods are told their GPUs, which a restarted scheduler knows."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.markdown import ROOT
from tests.whole.harness import Cluster, Schedulers, pod, running_cluster, wait_for

pytestmark = pytest.mark.whole

PACKAGE = ROOT / "docs" / "examples" / "gpu"
VALUES = ROOT / "helm" / "aiokube-scheduler" / "examples" / "shared-gpus.yaml"
LABEL = "example.com/gpu-index"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Two nodes with two GPUs each; schedulers find the package as if it were installed."""
    info = tmp_path / "site" / "gpu_sharing-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpu-sharing\nVersion: 0.1.0\n")
    text = (PACKAGE / "pyproject.toml").read_text()
    entries = text.split('[project.entry-points."aiokube_scheduler.plugins"]')[1].split("[tool")[0]
    (info / "entry_points.txt").write_text(
        f"[aiokube_scheduler.plugins]{entries.replace(chr(34), '')}"
    )
    monkeypatch.setenv("PYTHONPATH", f"{info.parent}:{PACKAGE}")
    with running_cluster(tmp_path, "--nodes=0") as running:
        for name in ("a", "b"):
            amounts = {
                "cpu": "32",
                "memory": "64Gi",
                "pods": "110",
                "example.com/gpu-milli": "2000",
            }
            node = {
                "metadata": {"name": name},
                "status": {"capacity": amounts, "allocatable": amounts},
            }
            running.call("POST", "/api/v1/nodes", node)
        yield running


def create(cluster: Cluster, name: str, milli: int, **spec: str) -> None:
    made = pod(name, **spec)
    made["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1", "example.com/gpu-milli": str(milli)},
        "limits": {"example.com/gpu-milli": str(milli)},
    }
    cluster.call("POST", "/api/v1/namespaces/default/pods", made)


def test_pods_share_gpus_and_a_restarted_scheduler_knows_which(
    cluster: Cluster, schedulers: Schedulers
) -> None:
    document = yaml.safe_load((PACKAGE / "scheduler.yaml").read_text())
    profiles = {"profiles": document["profiles"], "leaderElection": {"leaderElect": False}}
    first = schedulers.start(**profiles)
    for number in range(3):
        create(cluster, f"part-{number}", 600)
    wait_for("three pods on nodes", lambda: cluster.all_bound(3))
    assert first.stop() == 0, first.output()
    schedulers.start(**profiles)
    create(cluster, "whole", 1000)
    create(cluster, "small", 400)
    wait_for(
        "both on nodes",
        lambda: all("nodeName" in cluster.pods()[n]["spec"] for n in ("whole", "small")),
    )
    create(cluster, "too-much", 700)
    wait_for("an event", lambda: cluster.events("FailedScheduling"))
    used: Counter[tuple[str, str]] = Counter()
    pods = cluster.pods()
    for found in pods.values():
        if node := found["spec"].get("nodeName"):
            milli = int(
                found["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu-milli"]
            )
            assert found["metadata"]["annotations"][LABEL] == found["metadata"]["labels"][LABEL]
            for gpu in found["metadata"]["labels"][LABEL].split("-"):
                used[node, gpu] += milli
    assert sum(used.values()) == 3200
    assert max(used.values()) <= 1000
    assert "nodeName" not in pods["too-much"]["spec"]


def test_with_the_values_of_the_chart_small_pods_share_one_gpu(
    cluster: Cluster, schedulers: Schedulers
) -> None:
    """The second key decides: to GpuFragmentation alone several places are equal. Nobody has said which pods are
    typical."""
    schedulers.start(**yaml.safe_load(VALUES.read_text())["config"])
    for number in range(8):
        create(cluster, f"quarter-{number}", 250, schedulerName="aiokube-scheduler")
    wait_for("eight pods on nodes", lambda: cluster.all_bound(8))
    places = Counter(
        (found["spec"]["nodeName"], found["metadata"]["labels"][LABEL])
        for found in cluster.pods().values()
    )
    assert sorted(places.values()) == [4, 4]
    assert len({node for node, _ in places}) == 1
