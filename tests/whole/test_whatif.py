"""A scheduler that runs is asked what would happen, by the command and over its secure port; then it happens."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from app.tools.subprocesses import reserved_port
from tests.whole.harness import Cluster, Schedulers, pod, running_cluster, wait_for

pytestmark = pytest.mark.whole


def asked(server: str, *words: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "app", *words, "--server", server, "--kubeconfig="]
    command += ["--insecure-skip-tls-verify"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Without nodes and kubelets."""
    with running_cluster(tmp_path, "--nodes=0", "--no-kubelets") as embedded:
        yield embedded


def test_what_was_said_happens(cluster: Cluster, schedulers: Schedulers, tmp_path: Path) -> None:
    cluster.create_nodes(3, cpu="4")
    manifest = tmp_path / "pods.yaml"
    pods = [pod(f"new-{number}", cpu="2500m") for number in range(4)]
    manifest.write_text(yaml.safe_dump_all(pods))
    with reserved_port() as port:
        server = f"https://127.0.0.1:{port}"
        schedulers.start(
            f"--secure-port={port}",
            "--authorization-always-allow-paths=/whatif,/readyz",
            leaderElection={"leaderElect": False},
        )
        wait_for(
            "an answer", lambda: asked(server, "how-many", "-f", str(manifest))[0] == 0, seconds=60
        )
        status, text, _ = asked(server, "fits", "-f", str(manifest), "-o", "json")
        answer = json.loads(text)
        assert (status, answer["placed"], answer["pending"]) == (1, 3, 1)
        told = sorted(row["node"] for row in answer["pods"] if "node" in row)
        assert cluster.pods() == {}
        for each in pods:
            cluster.call("POST", "/api/v1/namespaces/default/pods", each)

        def bound() -> list[str]:
            found = (each["spec"].get("nodeName") for each in cluster.pods().values())
            return sorted(filter(None, found))

        wait_for("the pods", lambda: len(bound()) == 3)
        assert bound() == told
        status, text, _ = asked(server, "drain", told[0])
        assert (status, "Unmanaged" in text) == (1, True)
