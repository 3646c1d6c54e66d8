"""The embedded cluster and the scheduler as processes of their own, for tests of the whole."""

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

WAIT_SECONDS = 60.0
JSON = "application/json"


def wait_for(what: str, check: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """Asks until the answer is true. Whole tests live in real time; nothing else here sleeps."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}; last answer {answer!r}")
        time.sleep(0.05)


@contextlib.contextmanager
def hangups_end_processes() -> Iterator[None]:
    """For starting processes: under nohup they would inherit that SIGHUP is ignored."""
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, inherited)


class Process:
    """A command with its output in a file; ended with the test."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log = log
        with log.open("ab") as out, hangups_end_processes():
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments], stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def stop(self, seconds: float = WAIT_SECONDS) -> int:
        """Asks the process to stop and returns its exit status."""
        if self.status is None:
            self.send(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Returns the exit status of the process when it has ended by itself."""
        return self._process.wait(seconds)

    def kill(self) -> None:
        if self.status is None:
            self._process.kill()
        self._process.wait()


class ApiServer:
    """An API server in a process of its own; ``call`` speaks JSON to it, as somebody who may do everything."""

    kubeconfig: Path
    url: str
    token = ""
    tls: ssl.SSLContext | None = None

    def call(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Any:
        """The answer, decoded; None for 404. Raises for other errors."""
        code, answer = self.answer(method, path, body, content_type)
        if code == 404:
            return None
        assert code < 400, f"{method} {path}: {code} {answer!r}"
        return answer

    def answer(
        self, method: str, path: str, body: Any = None, content_type: str = JSON
    ) -> tuple[int, Any]:
        """The status code, and what is in the answer if that is JSON."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with self._ask(method, path, data, content_type) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
                is_json = error.headers.get_content_type() == JSON
                return error.code, json.loads(text) if is_json else text

    def _ask(
        self, method: str, path: str, data: bytes | None = None, content_type: str = JSON
    ) -> Any:
        headers = {"Content-Type": content_type}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        return urllib.request.urlopen(request, timeout=WAIT_SECONDS, context=self.tls)

    def changes(self, path: str, since: str) -> Iterator[dict[str, Any]]:
        """The events of a watch, from a collection's resource version on; waits for more at the end."""
        with self._ask("GET", f"{path}?watch=true&resourceVersion={since}") as answer:
            yield from map(json.loads, answer)

    def wipe(self) -> None:
        """Deletes what tests make, whatever holds it."""
        collections = (
            *("/api/v1/namespaces/default/pods", "/api/v1/nodes", "/api/v1/persistentvolumes"),
            "/api/v1/namespaces/default/persistentvolumeclaims",
            "/apis/storage.k8s.io/v1/storageclasses",
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            "/apis/events.k8s.io/v1/namespaces/default/events",
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
            "/apis/resource.k8s.io/v1/resourceslices",
            "/apis/resource.k8s.io/v1/deviceclasses",
        )
        for path in collections:
            for item in (self.call("GET", path) or {"items": []})["items"]:
                where = f"{path}/{item['metadata']['name']}"
                if item["metadata"].get("finalizers"):
                    free = {"metadata": {"finalizers": None}}
                    self.call("PATCH", where, free, "application/merge-patch+json")
                self.call("DELETE", where, {"gracePeriodSeconds": 0})
        for item in self.call("GET", "/apis/scheduling.k8s.io/v1/priorityclasses")["items"]:
            if not (name := item["metadata"]["name"]).startswith("system-"):
                self.call("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")

    def create_nodes(self, count: int, *, cpu: str = "4", zones: int = 3) -> None:
        """node-0, node-1 and so on, ready, in zone-0, zone-1 and so on by turns."""
        for number in range(count):
            name, zone = f"node-{number}", f"zone-{number % zones}"
            labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
            amounts = {"cpu": cpu, "memory": "32Gi", "pods": "1000"}
            self.call(
                "POST",
                "/api/v1/nodes",
                {
                    "metadata": {"name": name, "labels": labels},
                    "status": {"capacity": amounts, "allocatable": amounts},
                },
            )

    def create_pods(self, count: int, *, prefix: str = "p", **spec: Any) -> None:
        for number in range(count):
            self.call("POST", "/api/v1/namespaces/default/pods", pod(f"{prefix}-{number}", **spec))

    def pods(self) -> dict[str, dict[str, Any]]:
        items = self.call("GET", "/api/v1/namespaces/default/pods")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def events(self, reason: str) -> list[dict[str, Any]]:
        items = self.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
        return [item for item in items if item["reason"] == reason]

    def lease(self, name: str = "kube-scheduler") -> dict[str, Any] | None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}"
        answer: dict[str, Any] | None = self.call("GET", path)
        return answer

    def holder(self) -> str:
        """Whose name is in kube-scheduler's lease."""
        return ((self.lease() or {}).get("spec") or {}).get("holderIdentity") or ""

    def all_bound(self, count: int) -> bool:
        pods = self.pods()
        return len(pods) == count and all(p["spec"].get("nodeName") for p in pods.values())


class Cluster(ApiServer):
    """An embedded cluster."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.kubeconfig = directory / "kubeconfig"
        arguments = ["app", "apiserver", "--port=0", "--debug", "--no-volumes", *flags]
        arguments += ["--kubeconfig-out", str(self.kubeconfig)]
        self.process = Process(arguments, directory / "cluster.log")
        wait_for("a kubeconfig", self._has_kubeconfig)
        config = yaml.safe_load(self.kubeconfig.read_text())
        self.url = config["clusters"][0]["cluster"]["server"]

    def _has_kubeconfig(self) -> bool:
        assert self.process.status is None, self.process.output()
        return self.kubeconfig.exists() and "server" in self.kubeconfig.read_text()

    def debug(self, action: str, body: Any = None) -> None:
        """One of /debug/cluster; its answer may be cut off with the connection."""
        with contextlib.suppress(OSError):
            self.call("POST", f"/debug/cluster/{action}", body or {})

    def clear_faults(self) -> None:
        """Whoever waits because of one goes on."""
        self.call("DELETE", "/debug/cluster/faults")


def pod(name: str, *, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    """A pod with one container."""
    container = {"name": "c", "image": "img", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


class Schedulers:
    """Starts ``run`` with a configuration for one cluster."""

    def __init__(self, cluster: ApiServer, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._started: list[Process] = []

    def start(self, *flags: str, **configuration: Any) -> Process:
        number = len(self._started)
        path = self._directory / f"config-{number}.yaml"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(self._cluster.kubeconfig),
                "qps": 1000,
                "burst": 1000,
            },
            **configuration,
        }
        path.write_text(yaml.safe_dump(document))
        arguments = ["app", "run", f"--config={path}", "--secure-port=0", *flags]
        process = Process(arguments, self._directory / f"scheduler-{number}.log")
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()


@contextlib.contextmanager
def running_cluster(directory: Path, *flags: str) -> Iterator[Cluster]:
    """A cluster for one test."""
    cluster = Cluster(directory, *flags)
    try:
        yield cluster
    finally:
        cluster.process.kill()
