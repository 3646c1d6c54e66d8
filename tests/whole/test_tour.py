"""The commands of the README as a reader types them, and what an operator and an author of an extender ask a running
scheduler.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from app.tools.subprocesses import reserved_port
from extenders.kit import Filtered, make_app
from extenders.kit.testing import serving
from tests.markdown import ROOT, blocks
from tests.whole.harness import (
    WAIT_SECONDS,
    Cluster,
    Process,
    pod,
    running_cluster,
    wait_for,
)
from tests.whole.kubectl import NEEDS_KUBECTL

pytestmark = pytest.mark.whole

SCRIPTS = Path(sys.executable).parent


class Shell:
    """A reader's shell in a copy of the repository, as far as the README names files of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("config", "docs", "extenders"):
            (folder / name).symlink_to(ROOT / name)
        self.commands = [
            re.sub(r"\s+#.*", "", line.removeprefix("$ "))
            for block in blocks(ROOT / "README.md")
            if block.language == "console"
            for line in block.text.replace("\\\n", " ").splitlines()
            if line.startswith("$ ")
        ]
        self._running: list[subprocess.Popen[str]] = []

    def command(self, beginning: str) -> str:
        """The one command of the README that begins so."""
        (found,) = [each for each in self.commands if each.startswith(beginning)]
        return found.removesuffix(" &")

    def _start(self, command: str, **streams: Any) -> subprocess.Popen[str]:
        environment = os.environ | {
            "HOME": str(self.folder),
            "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.folder / ".kube" / "config"),
            "COLUMNS": "200",
        }
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=environment,
            text=True,
            start_new_session=True,
            **streams,
        )

    def __call__(self, command: str, status: int = 0) -> str:
        """What a command prints."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with self._start(command, **pipes) as process:
            said, _ = process.communicate(timeout=2 * WAIT_SECONDS)
        assert process.returncode == status, (command, said)
        assert "Traceback" not in said, (command, said)
        return str(said)

    def in_background(self, command: str, ready: str) -> None:
        """Returns once a command has printed something."""
        log = self.folder / f"{len(self._running)}.log"
        with log.open("w") as out:
            process = self._start(f"exec {command}", stdout=out, stderr=out)
        self._running.append(process)

        def is_ready() -> bool:
            assert process.poll() is None, (command, log.read_text())
            return ready in log.read_text()

        wait_for(command, is_ready)

    def end(self) -> None:
        for process in reversed(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(WAIT_SECONDS)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    try:
        yield made
    finally:
        made.end()


@NEEDS_KUBECTL
def test_the_commands_of_the_readme(shell: Shell) -> None:
    """Those that need neither a registry of images nor a fixed port; ports are those that are free."""
    cluster = shell.command("aiokube-scheduler apiserver --nodes 50")
    shell.in_background(f"{cluster} --port 0", "kubectl ")
    (shell.folder / ".kube").mkdir()
    (shell.folder / ".kube" / "config").symlink_to(shell.folder / "kubeconfig")
    shadow = shell.command("aiokube-scheduler shadow --kubeconfig")
    shell.in_background(f"{shadow} --secure-port 0", "nothing is written")
    with reserved_port() as port:
        run = shell.command("aiokube-scheduler run --kubeconfig kubeconfig")
        shell.in_background(f"{run} --secure-port {port} --bind-address 127.0.0.1", "] Scheduling")
        shell(shell.command("kubectl --kubeconfig kubeconfig create"))
        shell("kubectl wait --for=condition=Ready pod/placed --timeout=60s")
        shell("kubectl wait --for=condition=PodScheduled=false pod/picky --timeout=60s")
        story = f"aiokube-scheduler explain default/picky --server https://127.0.0.1:{port}"
        said = shell(f"{story} --insecure-skip-tls-verify")
        assert "didn't match Pod's node affinity/selector" in " ".join(said.split())
        assert "example.com/approval" in shell("kubectl get pod gated -o yaml")
    second = shell.command("aiokube-scheduler run --config config/second-scheduler.yaml")
    with reserved_port() as port:
        flags = f"--secure-port {port} --bind-address 127.0.0.1"
        shell.in_background(f"{second} {flags}", "Successfully acquired lease")
        overrides = json.dumps({"spec": {"schedulerName": "aiokube-scheduler"}})
        shell(f"kubectl run mine --image=nginx --overrides={shlex.quote(overrides)}")
        shell("kubectl wait --for=condition=Ready pod/mine --timeout=60s")
        assert "bound to node-" in shell("aiokube-scheduler explain default/mine")
        assert "✓ healthy" in shell(shell.command("aiokube-scheduler top"))
        dashboard = shell.command("aiokube-scheduler dashboard")
        shell.in_background(f"{dashboard} --no-browser", "The dashboard is at")
    simulate = shell.command("aiokube-scheduler simulate --nodes")
    assert "pods get a node" in shell(simulate)
    dump = shell.command("kubectl get nodes,pods")
    shell(dump)
    shell(shell.command("aiokube-scheduler simulate --cluster"))
    assert "<canvas" in (shell.folder / "shop.html").read_text()
    report = shell.command("aiokube-scheduler shadow report")
    wait_for("verdicts", lambda: list((shell.folder / "verdicts").glob("*")))
    wait_for("a decision", lambda: re.search(r"Of [1-9]", shell(report)))
    assert "Did you mean 'explain'?" in shell("aiokube-scheduler explian default/mine", status=1)


# ---------------------------------------------------------------- an operator, and the author of an extender


def chosen(request: Any) -> Filtered:
    return Filtered([*request.names][:2], dict.fromkeys([*request.names][2:], "not this one"))


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[Cluster, Process, str]]:
    """A scheduler with an extender that keeps bodies of calls, and where it serves."""
    extender = make_app(filter=chosen, prioritize=lambda request: dict.fromkeys(request.names, 7))
    with (
        running_cluster(tmp_path, "--nodes=4") as cluster,
        serving(extender) as url,
        reserved_port() as port,
    ):
        first = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
            "extenders": [
                {
                    "urlPrefix": url,
                    "filterVerb": "filter",
                    "prioritizeVerb": "prioritize",
                    "weight": 1,
                    "nodeCacheCapable": True,
                }
            ],
        }
        second = {
            "apiVersion": "aiokube-scheduler.io/v1alpha1",
            "kind": "AiokubeSchedulerConfiguration",
            "extenderBodies": {"calls": 10},
        }
        file = tmp_path / "scheduler.yaml"
        file.write_text(yaml.safe_dump_all([first, second]))
        arguments = ["app", "run", f"--config={file}", f"--secure-port={port}", "--insecure-http"]
        process = Process(
            [*arguments, "--authorization-always-allow-paths=/*"], tmp_path / "scheduler.log"
        )
        try:
            wait_for("the lease", lambda: "Successfully acquired lease" in process.output())
            yield cluster, process, f"http://127.0.0.1:{port}"
            assert process.stop() == 0, process.output()
        finally:
            process.kill()


def test_what_was_sent_to_an_extender(scheduler: tuple[Cluster, Process, str]) -> None:
    """With the verbosity raised while it runs, in the log; at any time with ``explain --bodies``."""
    cluster, process, server = scheduler
    request = urllib.request.Request(f"{server}/debug/flags/v", b"10", method="PUT")
    with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
        assert answer.status == 200
    cluster.call("POST", "/api/v1/namespaces/default/pods", pod("p"))
    wait_for("a node", lambda: cluster.pods()["p"]["spec"].get("nodeName"))
    lines = wait_for(
        "the log", lambda: "Successfully bound" in process.output() and process.output()
    )
    for said in (
        r'"Called extender" pod="default/p" .* verb="filter" outcome="success"',
        r'"Extender scored node for pod" pod="default/p" .* score=7',
        r'"Request to extender" pod="default/p" .*NodeNames',
        r'"Answer of extender" pod="default/p" .*not this one',
    ):
        assert re.search(said, lines), said
    command = [SCRIPTS / "aiokube-scheduler", "explain", "p", "--kubeconfig=", "--server", server]
    shown = subprocess.check_output([*command, "--bodies"], text=True, timeout=WAIT_SECONDS)
    assert re.search(r"Sent in attempt 1, filter of http://127\S+: \d+ B\n +\{\"Pod\":", shown)
    assert "not this one" in shown.partition("Received in attempt 1, filter")[2]
    assert "No bodies" not in shown
    assert "Sent in" not in subprocess.check_output(command, text=True, timeout=WAIT_SECONDS)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{'nodenames': []}", "the answer is not JSON"),
        ("<html></html>", "the answer is not JSON"),
        ("", "ERROR"),
        ("[]", "ERROR"),
    ],
)
def test_a_broken_extender_is_told_what_is_wrong_and_nothing_else(body: str, said: str) -> None:
    async def broken(_request: web.Request) -> web.Response:
        return web.Response(text=body, content_type="application/json")

    application = web.Application()
    application.router.add_post("/filter", broken)
    with serving(application) as url:
        command = [SCRIPTS / "aiokube-scheduler", "check-extender", "--url", url]
        done = subprocess.run(
            [*command, "--filter-verb", "filter"],
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
    told = done.stdout + done.stderr
    assert done.returncode == 1, told
    assert said in told
    assert "asked about the same pod again" not in told
