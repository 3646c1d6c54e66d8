"""Fixtures for tests with pytest: a cluster and schedulers, each a process, for extenders, plugins and configurations.

In a ``conftest.py``::

    pytest_plugins = ["aiokube_scheduler.testing"]

    def test_it(embedded_cluster, scheduler):
        scheduler(extenders=[{"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True}])
        embedded_cluster.create(pod)
        assert embedded_cluster.node_of("p") == "node-1"

docs/extenders.md has an example with everything around it. It may be imported before pytest loads it:
PYTEST_DONT_REWRITE.
"""

import contextlib
import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import pytest
import yaml

from app.tools.subprocesses import module

T = TypeVar("T")

#: Seconds that a process may take to start or to end, and a pod to be scheduled.
PATIENCE: Final = 60.0
_POLL_SECONDS: Final = 0.05
_PACKAGE: Final = __name__.partition(".")[0]
#: In a log as text or as JSON.
_SCHEDULES: Final = re.compile(r'(?:\] |"msg": ?")Scheduling(?:\n|")')
_ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:\d+")
#: Proxies of the environment are for other machines.
_DIRECTLY: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class EnvironmentFailure(AssertionError):  # noqa: N818 - pytest shows it as the reason of a failure
    """A process ended or something did not happen in time; the text has the end of the log."""


class _Process:
    def __init__(self, arguments: list[str], log: Path, program: str = _PACKAGE) -> None:
        self._log: Final = log
        with log.open("wb") as out:
            self._process: Final = subprocess.Popen(  # noqa: S603 - our own program
                module(program, *arguments), stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    def wait(self, what: str, found: Callable[[], T | None], seconds: float = PATIENCE) -> T:
        """What ``found`` returns as soon as it is true. Raises EnvironmentFailure."""
        deadline = time.monotonic() + seconds
        while True:
            if result := found():
                return result
            if self._process.poll() is not None:
                raise EnvironmentFailure(
                    f"ended with status {self._process.returncode}:\n{self.log}"
                )
            if time.monotonic() > deadline:
                raise EnvironmentFailure(f"not within {seconds:.0f} s: {what}\n{self.log[-4000:]}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> int:
        """Ends it with SIGTERM, after ``PATIENCE`` with SIGKILL; returns its exit status."""
        self._process.terminate()
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class EmbeddedCluster:
    """An API server in memory, whose kubelets pretend to run pods."""

    def __init__(self, folder: Path, *flags: str) -> None:
        """``flags`` are those of the command ``apiserver``, such as ``--nodes=3``. Raises EnvironmentFailure."""
        self.kubeconfig: Final = folder / "kubeconfig"
        file = f"--kubeconfig-out={self.kubeconfig}"
        self._process: Final = _Process(
            ["apiserver", "--port=0", file, *flags], folder / "cluster.log"
        )
        self._kinds: Final[dict[tuple[str, str], tuple[str, bool]]] = {}
        try:
            self._process.wait("the address", lambda: "kubectl " in self._process.log)
        except EnvironmentFailure:
            self._process.stop()
            raise
        config = yaml.safe_load(self.kubeconfig.read_text())
        self.url: Final[str] = config["clusters"][0]["cluster"]["server"]

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._process.log

    def stop(self) -> int:
        """Ends it; returns the exit status."""
        return self._process.stop()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request, as JSON. Raises EnvironmentFailure for answers with an error, with the server's message."""
        request = urllib.request.Request(  # noqa: S310 - the address of our own server
            f"{self.url}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with _DIRECTLY.open(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
                said = text if text[:1] != "{" else json.loads(text)["message"]
                raise EnvironmentFailure(f"{method} {path}: {error.code}: {said}") from None

    def create(self, *manifests: str | Mapping[str, Any]) -> None:
        """Creates objects: mappings, or texts of YAML with one or more documents. Raises EnvironmentFailure."""
        for manifest in manifests:
            documents = yaml.safe_load_all(manifest) if isinstance(manifest, str) else [manifest]
            for each in filter(None, documents):
                namespace = each["metadata"].get("namespace", "default")
                self.request("POST", self._path(each["apiVersion"], each["kind"], namespace), each)

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """A pod as it is now. Raises EnvironmentFailure if there is none."""
        answer: dict[str, Any] = self.request("GET", _pod_path(name, namespace))
        return answer

    def node_of(self, name: str, namespace: str = "default", seconds: float = PATIENCE) -> str:
        """The node of a pod, once it is bound. Raises EnvironmentFailure with the reason if it stays pending."""
        try:
            found = lambda: str(self.pod(name, namespace)["spec"].get("nodeName", ""))  # noqa: E731
            return self._process.wait(f"pod {name} is bound", found, seconds)
        except EnvironmentFailure as error:
            reason = _message(self.pod(name, namespace)) or "no scheduler has tried it"
            raise EnvironmentFailure(
                f"pod {name} is not bound after {seconds:.0f} s: {reason}"
            ) from error

    def why_pending(self, name: str, namespace: str = "default") -> str:
        """The reason that the scheduler gives for a pod that is not bound, once it has tried it. Raises
        EnvironmentFailure."""
        return self._process.wait(
            f"a reason for pod {name}", lambda: _message(self.pod(name, namespace))
        )

    def _path(self, api_version: str, kind: str, namespace: str) -> str:
        base = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
        if (api_version, kind) not in self._kinds:
            for known in self.request("GET", base)["resources"]:
                if "/" not in known["name"]:
                    found = known["name"], known["namespaced"]
                    self._kinds[api_version, known["kind"]] = found
        try:
            plural, namespaced = self._kinds[api_version, kind]
        except KeyError:
            raise EnvironmentFailure(
                f"the embedded cluster has no {kind} in {api_version}"
            ) from None
        return f"{base}/namespaces/{namespace}/{plural}" if namespaced else f"{base}/{plural}"


def _pod_path(name: str, namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{urllib.parse.quote(name)}"


def _message(pod: Mapping[str, Any]) -> str:
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


class StartScheduler(Protocol):
    """The fixture ``scheduler``."""

    def __call__(self, *flags: str, **configuration: Any) -> None:
        """Starts a scheduler for the cluster and returns when it schedules. Raises EnvironmentFailure.

        ``configuration`` has fields of KubeSchedulerConfiguration, ``flags`` are those of the command ``run``. With
        ``--config=FILE`` the file is the configuration.
        """


class StartExtender(Protocol):
    """The fixture ``recorded_extender``."""

    def __call__(self, trace: Path | str, *flags: str) -> str:
        """Starts an extender and returns its URL; ``--extender=NAME`` chooses one of several. Raises
        EnvironmentFailure."""


@pytest.fixture
def embedded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """A cluster for one test, without nodes."""
    cluster = EmbeddedCluster(tmp_path_factory.mktemp("cluster"), "--nodes=0")
    yield cluster
    _require_success(cluster.stop(), cluster.log)


@pytest.fixture
def scheduler(
    embedded_cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartScheduler]:
    """Starts schedulers for the cluster of the test; they end with the test."""
    with contextlib.ExitStack() as running:

        def start(*flags: str, **configuration: Any) -> None:
            folder = tmp_path_factory.mktemp("scheduler")
            own = []
            if not any(flag.startswith("--config") for flag in flags):
                file = folder / "scheduler.yaml"
                file.write_text(yaml.safe_dump(_DEFAULTS | configuration))
                own = [f"--config={file}"]
            elif configuration:
                raise TypeError("with --config the file is the configuration")
            own += [f"--kubeconfig={embedded_cluster.kubeconfig}", "--secure-port=0"]
            process = _Process(["run", "--leader-elect=false", *own, *flags], folder / "log")
            try:
                process.wait("the scheduler is ready", lambda: _SCHEDULES.search(process.log))
            except EnvironmentFailure:
                process.stop()
                raise
            running.callback(lambda: _require_success(process.stop(), process.log))

        yield start


@pytest.fixture
def recorded_extender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartExtender]:
    """Starts extenders that answer as one did in a recording, and returns their URLs; they end with the test."""
    with contextlib.ExitStack() as running:

        def start(trace: Path | str, *flags: str) -> str:
            log = tmp_path_factory.mktemp("extender") / "log"
            program = f"{_PACKAGE}.tools.replay.fake_extender"
            process = _Process([str(trace), *flags], log, program)
            running.callback(process.stop)
            found = process.wait("the address", lambda: _ADDRESS.search(process.log))
            return found[0]

        yield start


def recorded_differences(trace: Path | str, url: str, *flags: str) -> dict[str, int]:
    """How many answers of the extender at ``url`` differ from those of a recording, by kind.

    ``flags`` are those of ``check-extender``, such as ``--filter-verb=filter``. Raises EnvironmentFailure if nothing
    can be said.
    """
    arguments = ["check-extender", f"--replay={trace}", f"--url={url}", "--output=json", *flags]
    done = subprocess.run(  # noqa: S603 - our own program
        module(_PACKAGE, *arguments), capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise EnvironmentFailure(done.stderr)
    kinds: dict[str, int] = json.loads(done.stdout)[0]["kinds"]
    return kinds


_DEFAULTS: Final = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "clientConnection": {"qps": 1000, "burst": 1000},
    "leaderElection": {"leaderElect": False},
}


def _require_success(status: int, log: str) -> None:
    if status:
        raise EnvironmentFailure(f"ended with status {status}:\n{log}")
