"""A shadow beside our own scheduler: agrees on every pod, and sends no request but GET."""

import json
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.whole.harness import Cluster, Process, Schedulers, wait_for

pytestmark = pytest.mark.whole

_REQUEST = re.compile(rb"(?:^|\r\n\r\n)([A-Z]+) (\S+) HTTP/1\.1\r\n")


class Relay:
    """Passes connections on to a server, and keeps the request lines of the clients."""

    def __init__(self, port: int) -> None:
        self.requests: Counter[str] = Counter()
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            self._open += [client, server]
            for source, target, note in ((client, server, True), (server, client, False)):
                threading.Thread(
                    target=self._pass, args=(source, target, note), daemon=True
                ).start()

    def _pass(self, source: socket.socket, target: socket.socket, note: bool) -> None:
        try:
            while data := source.recv(65536):
                if note:
                    self.requests.update(m.decode() for m, _ in _REQUEST.findall(data))
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        for each in (self._listening, *self._open):
            each.close()


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.process.stop()


@pytest.fixture
def relay(cluster, tmp_path):
    made = Relay(int(cluster.url.rsplit(":", 1)[1]))
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{made.port}"
    (tmp_path / "relayed").write_text(yaml.safe_dump(config))
    yield made
    made.close()


def reported(journal: Path) -> dict:
    arguments = ["-m", "app", "shadow", "report", f"--journal={journal}", "--output=json"]
    said = subprocess.run([sys.executable, *arguments], capture_output=True, check=True, timeout=60)
    told: dict = json.loads(said.stdout)
    return told


def test_it_agrees_with_our_scheduler_and_only_reads(cluster, relay, tmp_path):
    cluster.create_nodes(6)
    journal = tmp_path / "journal"
    arguments = ["app", "shadow", f"--kubeconfig={tmp_path / 'relayed'}", f"--journal={journal}"]
    arguments += ["--secure-port=0", "--summary-interval=0.2"]
    shadow = Process(arguments, tmp_path / "shadow.log")
    schedulers = Schedulers(cluster, tmp_path)
    try:
        wait_for("the shadow is ready", lambda: "nothing is written" in shadow.output())
        scheduler = schedulers.start(leaderElection={"leaderElect": False})
        wait_for("the scheduler is ready", lambda: "Scheduling" in scheduler.output())
        cluster.create_pods(40)
        cluster.create_pods(2, prefix="large", cpu="64")
        wait_for(
            "bound", lambda: sum("nodeName" in p["spec"] for p in cluster.pods().values()) == 40
        )
        wait_for("verdicts", lambda: "Of 42 decisions 42 (100.00 %)" in shadow.output())
        assert shadow.stop() == 0
    finally:
        shadow.kill()
        schedulers.end()
    told = reported(journal)
    assert told["pods"] == 42
    assert told["classes"]["same"] + told["classes"]["tie"] == 42
    assert 0 < told["lagSeconds"]["p50"] <= told["lagSeconds"]["p99"]
    assert relay.requests["GET"] > 2
    assert set(relay.requests) == {"GET"}


def test_health_and_metrics_are_served(cluster, tmp_path):
    cluster.create_nodes(2)
    arguments = ["app", "shadow", f"--kubeconfig={cluster.kubeconfig}", "--insecure-http"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments += [f"--secure-port={port}", "--authorization-always-allow-paths=/readyz,/metrics"]
    shadow = Process(arguments, tmp_path / "shadow.log")
    schedulers = Schedulers(cluster, tmp_path)
    try:
        wait_for("the shadow is ready", lambda: asked(port, "/readyz")[0] == 200)
        schedulers.start(leaderElection={"leaderElect": False})
        cluster.create_pods(3)
        name = "aiokube_scheduler_shadow_verdicts_total"
        tie = re.compile(rf'^{name}{{class="tie"}} (\S+)$', re.MULTILINE)
        same = re.compile(rf'^{name}{{class="same"}} (\S+)$', re.MULTILINE)

        def judged() -> float:
            text = asked(port, "/metrics")[1]
            return sum(float(number) for each in (tie, same) for number in each.findall(text))

        wait_for("three verdicts", lambda: judged() == 3.0)
        assert asked(port, "/configz")[0] in {403, 404}
        assert shadow.stop() == 0
    finally:
        shadow.kill()
        schedulers.end()


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""
    except OSError:
        return 0, ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config=none.yaml"], "none.yaml"),
        (["--kubeconfig=none"], "none"),
        (["report", "--journal=none"], "none is no folder with a journal"),
        (["report", "--journal=.", "--since=soon"], "give a time"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, arguments, said):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "app",
            "shadow",
            *arguments,
            *(["--secure-port=0"] if arguments[0] != "report" else []),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_another_configuration_is_told_apart(cluster, tmp_path):
    cluster.create_nodes(3, cpu="8")
    config = tmp_path / "packing.yaml"
    strategy = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [{"pluginConfig": [fit]}],
            }
        )
    )
    journal = tmp_path / "journal"
    arguments = ["app", "shadow", f"--config={config}", f"--kubeconfig={cluster.kubeconfig}"]
    arguments += [f"--journal={journal}", "--secure-port=0", "--summary-interval=0.2"]
    shadow = Process(arguments, tmp_path / "shadow.log")
    schedulers = Schedulers(cluster, tmp_path)
    try:
        wait_for("the shadow is ready", lambda: "nothing is written" in shadow.output())
        schedulers.start(leaderElection={"leaderElect": False})
        for number in range(10):
            cluster.create_pods(1, prefix=f"p{number}", cpu="500m")
            wait_for("bound", lambda count=number + 1: cluster.all_bound(count))
        wait_for("verdicts", lambda: "Of 10 decisions" in shadow.output())
    finally:
        shadow.stop()
        schedulers.end()
    told = reported(journal)
    assert told["classes"]["unexplained"] > 0
    assert next(iter(told["byPlugin"])) == "NodeResourcesFit"
    assert "NodeResourcesFit" in told["summary"]
