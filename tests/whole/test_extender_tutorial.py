"""The tutorial of docs/extenders.md, as a reader would follow it, and the fixtures for pytest when something fails."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.testing import EmbeddedCluster, EnvironmentFailure, StartScheduler
from app.tools.subprocesses import reserved_port
from tests.markdown import ROOT, blocks
from tests.whole.installed import Environment, fresh, steps, stop, until

pytest_plugins = ["app.testing"]
pytestmark = pytest.mark.whole

GUIDE = ROOT / "docs" / "extenders.md"
EXAMPLE = GUIDE.parent / "examples" / "extender"


def transcripts() -> Iterator[str]:
    """The commands of the tutorial, which is the beginning of the guide."""
    end = GUIDE.read_text().partition("\n## Write one\n")[0].count("\n")
    return (b.text for b in blocks(GUIDE) if b.language == "console" and b.line < end)


def test_the_tutorial(tmp_path: Path) -> None:
    environment = fresh(tmp_path)
    told = list(steps(transcripts()))
    assert len(told) == 8
    with contextlib.ExitStack() as stack:
        extender, api, secure = (str(stack.enter_context(reserved_port())) for _ in range(3))
        for file in (each for each in EXAMPLE.iterdir() if each.is_file()):
            text = file.read_text().replace("8888", extender)
            (environment.directory / file.name).write_text(text)
        for number, step in enumerate(told):
            command = step.command.replace("8888", extender).replace("8080", api)
            command = command.replace("scheduler run", f"scheduler run --secure-port {secure}")
            log = environment.directory / f"{number}.log"
            if step.in_background:
                process = environment.start(f"exec {command.removesuffix(' &')} > {log} 2>&1")
                stack.callback(stop, process)
                until(command, lambda log=log: log.exists() and log.read_text())
            elif not step.expected:
                environment(command)
            else:
                until(command, lambda c=command, s=step: s.agrees(said(environment, c, extender)))


def said(environment: Environment, command: str, port: str) -> str:
    """What a command prints, with the port of the guide."""
    return environment.run(command)[1].replace(port, "8888")


# ---------------------------------------------------------------- the fixtures

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]},
}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
}


def test_a_scheduler_of_a_file_places_a_pod(
    embedded_cluster: EmbeddedCluster, scheduler: StartScheduler, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config.write_text(json.dumps(header))
    scheduler(f"--config={config}")
    embedded_cluster.create(NODE, POD)
    assert embedded_cluster.node_of("p") == "n"
    assert embedded_cluster.pod("p")["metadata"]["name"] == "p"
    with pytest.raises(TypeError):
        scheduler(f"--config={config}", parallelism=1)


@pytest.mark.parametrize("flags", [("--logging-format=json",), ("-v", "4")])
def test_any_log_and_proxies_of_the_environment(
    flags: tuple[str, ...], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    cluster: EmbeddedCluster = request.getfixturevalue("embedded_cluster")
    request.getfixturevalue("scheduler")(*flags)
    cluster.create(NODE, POD)
    assert cluster.node_of("p") == "n"


def test_what_goes_wrong_is_told(
    embedded_cluster: EmbeddedCluster, scheduler: StartScheduler
) -> None:
    embedded_cluster.create(POD)
    with pytest.raises(EnvironmentFailure, match="after 0 s: no scheduler has tried it"):
        embedded_cluster.node_of("p", seconds=0.01)
    with pytest.raises(EnvironmentFailure, match="has no Unicorn in v1"):
        embedded_cluster.create({"apiVersion": "v1", "kind": "Unicorn", "metadata": {"name": "u"}})
    with pytest.raises(EnvironmentFailure, match='pods "none" not found'):
        embedded_cluster.pod("none")
    with pytest.raises(EnvironmentFailure, match=r"409: .* already exists"):
        embedded_cluster.create(POD)
    with pytest.raises(EnvironmentFailure, match=r"(?s)ended with status 1:.*weight"):
        scheduler(extenders=[{"urlPrefix": "http://x", "prioritizeVerb": "p", "weight": 0}])


def test_a_cluster_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match="No such option '--nosuch'"):
        EmbeddedCluster(tmp_path, "--nosuch")
