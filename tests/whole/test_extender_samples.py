"""The samples in Python, Go and TypeScript: built, started, checked with check-extender, and held to the same answers.

Where a toolchain is missing its sample is skipped, except in CI.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from app.testing import EmbeddedCluster, StartScheduler
from extenders.kit import NodesRequest
from extenders.python.seats import FREE, WANTED, score, suits

pytest_plugins = ["app.testing"]
pytestmark = [pytest.mark.whole, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
#: Kept between runs: compiling Go's library takes longer than all the rest.
CACHES = Path(tempfile.gettempdir()) / "aiokube-scheduler-tests"
OFFLINE = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH|network")


def unavailable(why: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{why}, which CI must have")
    pytest.skip(why)


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        unavailable(f"there is no {name} here")
    return path


def build(command: list[str], directory: Path, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    said = f"{done.stdout}\n{done.stderr}"
    if done.returncode and command[0].endswith("npm") and OFFLINE.search(said):
        unavailable("the npm registry cannot be reached")
    assert done.returncode == 0, said


def python(_directory: Path) -> list[str]:
    return [sys.executable, "-m", "extenders.python.seats"]


def go(directory: Path) -> list[str]:
    program = directory / "seats"
    build(
        [tool("go"), "build", "-o", str(program), "."],
        ROOT / "extenders" / "go",
        GOCACHE=str(CACHES / "go"),
        CGO_ENABLED="0",
        GOFLAGS="",
        GOPROXY="off",
        GOTOOLCHAIN="local",
    )
    return [str(program)]


def typescript(directory: Path) -> list[str]:
    node, npm = tool("node"), tool("npm")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").partition(".")[0]) < 20:
        unavailable(f"node is {version.strip()}, older than 20")
    project = directory / "typescript"
    ignored = shutil.ignore_patterns("node_modules", "dist")
    shutil.copytree(ROOT / "extenders" / "typescript", project, ignore=ignored)
    cache = {"npm_config_cache": str(CACHES / "npm")}
    build([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], project, **cache)
    build([npm, "run", "build"], project, **cache)
    return [node, str(project / "dist" / "main.js")]


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[str]:
    """The address of the sample, which must end well when it is asked to."""
    process = subprocess.Popen(
        [*command, "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = None
        while address is None:
            line = process.stdout.readline()
            assert line, f"it ended with {process.wait()} without saying where it listens"
            address = re.search(r"https?://\S+", line)
        yield address[0].rstrip("/")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def pod(wanted: str | None) -> dict[str, Any]:
    annotations = {} if wanted is None else {"annotations": {WANTED: wanted}}
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", **annotations},
        "spec": {"containers": [{"name": "main"}]},
    }


def node(name: str, free: str | None = None) -> dict[str, Any]:
    annotations = {} if free is None else {"annotations": {FREE: free}}
    return {
        "metadata": {"name": name, "labels": {"a/b": "ünï"}, **annotations},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"allocatable": {"cpu": "4"}, "images": [{"sizeBytes": 123456789012}]},
    }


NODES = [
    node("none"),
    node("zero", "0"),
    node("one", "1"),
    node("three", "3"),
    node("seven", "7"),
    node("odd", "x"),
    node("huge", "9" * 12),
]


def asked(wanted: str | None, *nodes: dict[str, Any], names: list[str] | None = None) -> bytes:
    whole = None if names is not None else {"metadata": {}, "items": list(nodes)}
    return json.dumps({"Pod": pod(wanted), "Nodes": whole, "NodeNames": names}).encode()


REQUESTS = [
    asked("2", *NODES),
    asked("1", *NODES),
    asked("0", *NODES),
    asked(None, *NODES),
    asked("many", *NODES),
    asked("", *NODES),
    asked("99", *NODES),
    asked("2", NODES[0]),
    asked("2"),
    asked("many", names=["a", "b"]),
]


def post(url: str, body: bytes) -> tuple[int, Any, str | None]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer), answer.headers.get("Retry-After")
    except urllib.error.HTTPError as error:
        with error:
            return error.status, json.load(error), None


def check(url: str, *arguments: str) -> tuple[int, str]:
    verbs = ("--filter-verb", "filter", "--prioritize-verb", "prioritize")
    command = [sys.executable, "-m", "app", "check-extender", "--url", url, *verbs, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("sample", [python, go, typescript], ids=lambda sample: sample.__name__)
def test_sample(
    sample: Any,
    tmp_path: Path,
    embedded_cluster: EmbeddedCluster,
    scheduler: StartScheduler,
) -> None:
    with running(sample(tmp_path)) as url:
        check_with_a_scheduler(url, embedded_cluster, scheduler)
        check_with_check_extender(url, tmp_path)
        check_answers(url)
        check_mishaps(url)


def check_with_a_scheduler(
    url: str, embedded_cluster: EmbeddedCluster, scheduler: StartScheduler
) -> None:
    verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 1}
    scheduler(extenders=[{"urlPrefix": url, **verbs}])
    for name, free in (("few", "1"), ("many", "5"), ("none", None)):
        made = node(name, free)
        made["metadata"]["labels"] = {"kubernetes.io/hostname": name}
        made["status"] = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
        embedded_cluster.create({"apiVersion": "v1", "kind": "Node", **made})
    for name, wanted in (("fits", "2"), ("waits", "9")):
        container = {"name": "main", "image": "solver"}
        metadata = {"name": name, "annotations": {WANTED: wanted}}
        spec = {"containers": [container]}
        embedded_cluster.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )
    assert embedded_cluster.node_of("fits") == "many"
    reason = next(iter(suits(NodesRequest.read(asked("9", node("many", "5")))).failed.values()))
    assert f"1 {reason}" in embedded_cluster.why_pending("waits")


def check_with_check_extender(url: str, directory: Path) -> None:
    status, said = check(url, "--large", "300")
    assert status == 0, said
    assert said.endswith("  no errors, no warnings\n"), said
    manifests = {"pod": pod("2"), "nodes": {"kind": "List", "items": NODES}}
    files = []
    for name, manifest in manifests.items():
        file = directory / f"{name}.json"
        file.write_text(json.dumps(manifest))
        files += [f"--{name}", str(file)]
    status, said = check(url, "--large", "0", *files)
    assert (status, said.endswith("  no errors, no warnings\n")) == (0, True), said
    status, said = check(url, "--large", "0", "--node-cache-capable")
    assert status == 1
    assert "set nodeCacheCapable: false" in said


def check_answers(url: str) -> None:
    for body in REQUESTS:
        question = NodesRequest.read(body)
        filtered = suits(question)
        status, answer, retry_after = post(f"{url}/filter", body)
        expected = json.loads(question.answer(filtered))
        assert (status, answer) == (200, expected)
        retries = filtered.retry_after is not None
        assert retry_after == (str(filtered.retry_after) if retries else None)
        if question.nodes is None:
            continue
        status, answer, _ = post(f"{url}/prioritize", body)
        assert (status, {e["Host"]: e["Score"] for e in answer}) == (200, score(question))


def check_mishaps(url: str) -> None:
    for verb in ("filter", "prioritize"):
        for body in (b"", b"{}", b"[1]", b'{"Pod":null,"Nodes":null}'):
            status, answer, _ = post(f"{url}/{verb}", body)
            assert status == 400
            assert answer["Error"].startswith(f"/{verb}: ")
    status, answer, _ = post(f"{url}/filter", asked("1", names=["a"]))
    assert (status, "nodeCacheCapable: false" in answer["Error"]) == (200, True)
    with urllib.request.urlopen(f"{url}/healthz", timeout=60) as healthy:
        assert healthy.read() == b"ok"
