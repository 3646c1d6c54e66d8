"""Who asks a running scheduler what would happen: ``explain --changes``, ``fits --changes``, and an assistant over
MCP."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp
import pytest

from app.tools.subprocesses import reserved_port
from tests.whole.harness import Cluster, Schedulers, pod, running_cluster, wait_for

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, and a pod that is too large for them."""
    folder = tmp_path_factory.mktemp("asking")
    with running_cluster(folder, "--nodes=2", "--node-cpu=4") as found, reserved_port() as port:
        schedulers = Schedulers(found, folder)
        try:
            schedulers.start(f"--secure-port={port}", "--bind-address=127.0.0.1", "--insecure-http")
            found.call("POST", "/api/v1/namespaces/default/pods", pod("large", cpu="6"))
            wait_for("a refusal", lambda: found.events("FailedScheduling"))
            yield found
        finally:
            schedulers.end()


def run(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app", *arguments, f"--kubeconfig={cluster.kubeconfig}"]
    env = {**os.environ, "COLUMNS": "160"}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=env)


def test_explain_says_what_would_help(cluster: Cluster) -> None:
    done = run(cluster, "explain", "large", "--changes")
    assert done.returncode == 0, done.stderr
    assert "What would help" in done.stdout
    assert "request 4 cpu in place of 6" in done.stdout
    assert "--changes is for text" in run(cluster, "explain", "large", "--changes", "-ojson").stderr


def test_fits_says_what_would_help(cluster: Cluster, tmp_path: Path) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", **pod("new", cpu="1", nodeSelector={"disk": "ssd"})}
    (tmp_path / "new.json").write_text(json.dumps(body))
    done = run(cluster, "fits", "-f", str(tmp_path / "new.json"), "--changes")
    assert done.returncode == 1, done.stderr
    assert "drop disk=ssd from the nodeSelector" in done.stdout
    assert "label node" in done.stdout


async def test_an_assistant_asks(cluster: Cluster) -> None:
    arguments = ["-m", "app", "mcp", f"--kubeconfig={cluster.kubeconfig}"]
    server = mcp.StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    async with mcp.stdio_client(server) as streams, mcp.ClientSession(*streams) as session:
        begun = await session.initialize()
        assert begun.instructions.endswith("Manifests are those of kubectl apply, as JSON.")
        tools = (await session.list_tools()).tools
        assert [each.name for each in tools] == [
            "fits",
            "how_many",
            "drain",
            "lose",
            "needs",
            "explain",
        ]
        assert all(each.annotations.read_only_hint for each in tools)
        assert all(each.description for each in tools)

        async def ask(tool: str, /, **given: Any) -> Any:
            answer = await session.call_tool(tool, given)
            [content] = answer.content
            return content.text if answer.is_error else json.loads(content.text)

        found = await ask("fits", pods=["default/large"])
        [row] = found["pods"]
        [change] = row["suggestions"][0]["changes"]
        assert change["text"] == "request 4 cpu in place of 6"
        one = {"apiVersion": "v1", "kind": "Pod", **pod("one", cpu="1")}
        assert (await ask("how_many", objects=[one]))["count"] == 8
        assert (await ask("drain", nodes=["node-0"]))["placed"] == 0
        told = await ask("explain", namespace="default", name="large")
        assert told["place"] in {"unschedulable", "backoff", "active"}
        assert "is not found" in await ask("drain", nodes=["gone"])
        assert "unschedulable" not in json.dumps(await ask("lose", label="zone=none"))
    assert "large" in cluster.pods()
