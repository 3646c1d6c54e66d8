"""The example package of docs/plugins.md, as a new user would take it: installed, configured, run against a cluster."""

import json
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.markdown import ROOT, blocks
from tests.whole.installed import TIMEOUT_SECONDS, Environment, fresh, steps, stop, until

pytestmark = pytest.mark.whole

GUIDE = ROOT / "docs" / "plugins.md"
MAINTENANCE = "example.com/maintenance"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A fresh environment with the scheduler and without plugins; working in a copy of the documentation."""
    made = fresh(tmp_path_factory.mktemp("environment"))
    shutil.copytree(GUIDE.parent, made.directory / "docs")
    return made


@pytest.fixture(scope="module")
def installed(environment: Environment) -> Environment:
    """The environment with the example package."""
    environment("pip install --quiet ./docs/examples/plugin 2>&1")
    return environment


# ---------------------------------------------------------------- the guide's transcripts


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH")
def test_what_the_guide_shows_happens(environment: Environment) -> None:
    running: list[subprocess.Popen[str]] = []
    told = list(steps(block.text for block in blocks(GUIDE) if block.language == "console"))
    assert len(told) >= 6
    try:
        for step in told:
            if step.in_background:
                running.append(environment.start(step.command.removesuffix(" &")))
                assert running[-1].stdout is not None
                printed = "".join(running[-1].stdout.readline() for _ in step.expected.splitlines())
                assert step.agrees(printed), (step, printed)
            elif " get " in step.command:
                until(step.expected, lambda step=step: step.agrees(environment(step.command)))
            else:
                printed = environment(step.command)
                assert step.agrees(printed), (step, printed)
        assert [process.poll() for process in running] == [None] * len(running)
    finally:
        for process in reversed(running):
            stop(process)


# ---------------------------------------------------------------- the package


def test_its_own_tests_pass_where_it_is_installed(installed: Environment) -> None:
    status, out = installed.run(
        "cd docs/examples/plugin/tests && python -W ignore -m pytest -q -p no:cacheprovider -p no:randomly 2>&1"
    )
    assert status == 0, out
    assert re.search(r"\d\d passed", out), out


def test_the_wheel_brings_types(installed: Environment) -> None:
    code = "import aiokube_scheduler as a, pathlib; print(pathlib.Path(a.__file__).with_name('py.typed').exists())"
    assert installed(f'python -c "{code}"').strip() == "True"


KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def test_mistakes_are_found_before_and_at_the_start(installed: Environment) -> None:
    text = (ROOT / "docs/examples/plugin/scheduler.yaml").read_text()
    text = text.replace("annotation: example", "anotation: example")
    text = text.replace("unlabelledPrice: 0.5", "unlabelledPrice: -1")
    (installed.directory / "mistaken.yaml").write_text(text)
    (installed.directory / "nowhere.config").write_text(KUBECONFIG)
    said = "initializing profiles: creating profile for scheduler name default-scheduler: initializing plugin "
    first = f'{said}"Maintenance": args: Object contains unknown field `anotation`\n'
    second = f'{said}"CheapNodes": args: unlabelledPrice must be between 0 and 1000000\n'

    assert installed.run("aiokube-scheduler check-config mistaken.yaml") == (
        1,
        f"mistaken.yaml:16:5: profiles[0].pluginConfig[0].args: {first}"
        "    16 |     args:\n       |     ^\n"
        f"mistaken.yaml:19:5: profiles[0].pluginConfig[1].args: {second}"
        "    19 |     args:\n       |     ^\n"
        "mistaken.yaml: not valid: 2 mistakes\n",
    )
    status, out = installed.run(
        "aiokube-scheduler run --config mistaken.yaml --kubeconfig nowhere.config --secure-port 0"
    )
    assert (status, out.endswith(f"Error: {second}")) == (1, True), out


# ---------------------------------------------------------------- in a cluster


class Api:
    """The embedded cluster's objects."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Content-Type": "application/merge-patch+json"
                if method == "PATCH"
                else "application/json"
            },
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    def pod(self, name: str) -> Any:
        return self("GET", f"/api/v1/namespaces/default/pods/{name}")

    def create_pod(self, name: str, **spec: Any) -> None:
        container = {"name": "main", "image": "registry.example.com/app:1"}
        pod = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
        self("POST", "/api/v1/namespaces/default/pods", pod)

    def node_of(self, name: str) -> str:
        return until(f"{name} on a node", lambda: self.pod(name)["spec"].get("nodeName"))

    def message(self, name: str) -> str:
        """Why a pod is pending."""
        return until(
            f"a condition of {name}",
            lambda: next(
                (
                    c["message"]
                    for c in self.pod(name)["status"].get("conditions", ())
                    if "message" in c
                ),
                None,
            ),
        )

    def annotate(self, node: str, **annotations: str | None) -> None:
        body = {"metadata": {"annotations": annotations}}
        self("PATCH", f"/api/v1/nodes/{node}", body)

    def events(self, name: str, reason: str) -> int:
        """How often something happened to a pod, at least once; events come some time after what they tell of."""
        return until(
            f"{reason} of {name}",
            lambda: sum(
                (event.get("series") or {}).get("count", 1)
                for event in self("GET", "/apis/events.k8s.io/v1/namespaces/default/events")[
                    "items"
                ]
                if event["regarding"]["name"] == name and event["reason"] == reason
            ),
        )


@pytest.fixture(scope="module")
def api(installed: Environment) -> Iterator[Api]:
    """The embedded cluster with the example's objects and the scheduler with its profile."""
    example = "docs/examples/plugin"
    server = installed.start(
        f"exec aiokube-scheduler apiserver --port 0 --load {example}/cluster.yaml --kubeconfig-out server.config"
    )
    scheduler = None
    try:
        assert server.stdout is not None
        url = server.stdout.readline().removeprefix("listening on ").strip()
        scheduler = installed.start(
            f"exec aiokube-scheduler run --config {example}/scheduler.yaml --kubeconfig server.config --secure-port 0"
        )
        yield Api(url)
        scheduler.send_signal(signal.SIGTERM)
        assert scheduler.wait(TIMEOUT_SECONDS) == 0
    finally:
        if scheduler is not None:
            stop(scheduler)
        stop(server)


def test_pods_go_where_the_plugins_want_them(api: Api) -> None:
    assert api.node_of("anywhere") == "cheap"
    for number in range(5):
        api.create_pod(f"more-{number}")
    assert {api.node_of(f"more-{number}") for number in range(5)} == {"cheap"}


def test_a_pod_that_is_turned_down_is_told_why_and_woken_by_the_event_of_the_hint(api: Api) -> None:
    api.annotate("dear", **{MAINTENANCE: "paint"})
    api.create_pod("later", nodeSelector={"kubernetes.io/hostname": "dear"})
    assert api.message("later").startswith(
        "0/3 nodes are available: 1 node(s) were in maintenance (paint), "
    )
    for round_number in range(3):
        api.annotate("dear", **{"example.com/unrelated": str(round_number)})
        api.annotate("dear", **{MAINTENANCE: f"paint, coat {round_number}"})
    api.create_pod("after-that")
    assert api.node_of("after-that") == "cheap"
    assert api.events("after-that", "Scheduled") == 1
    assert api.events("later", "FailedScheduling") == 1, "woken by events that its hint rejects"
    api.annotate("dear", **{MAINTENANCE: None})
    assert api.node_of("later") == "dear"
