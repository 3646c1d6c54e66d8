"""An extender wakes a pod that it rejected, through the endpoint of a running scheduler."""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.sim.resources.reviews import ADMIN_TOKEN
from app.tools.subprocesses import reserved_port
from extenders.kit import Filtered, NodesRequest, make_app
from extenders.kit.testing import serving
from tests.whole.harness import WAIT_SECONDS, Cluster, Process, pod, running_cluster, wait_for

pytestmark = pytest.mark.whole


class Gate:
    """A filter that turns every node down until it is opened."""

    def __init__(self) -> None:
        self.open = False
        self.calls = 0

    def __call__(self, request: NodesRequest) -> Filtered:
        self.calls += 1
        if self.open:
            return Filtered(request.names)
        return Filtered((), dict.fromkeys(request.names, "no licence is free"))


def post(url: str, body: Any, token: str = ADMIN_TOKEN) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except urllib.error.URLError:
        return 0, None


@contextlib.contextmanager
def scheduler(
    cluster: Cluster, directory: Path, name: str, *options: Any, **configuration: Any
) -> Iterator[str]:
    """A scheduler's address; ``options`` are further documents of its configuration."""
    first = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": name}],
        **configuration,
    }
    file = directory / f"{name}.yaml"
    file.write_text(yaml.safe_dump_all([first, *options]))
    with reserved_port() as port:
        arguments = ["app", "run", f"--config={file}", f"--secure-port={port}", "--insecure-http"]
        process = Process(arguments, directory / f"{name}.log")
        try:
            yield f"http://127.0.0.1:{port}/extenders/requeue"
            assert process.stop() == 0, process.output()
        finally:
            process.kill()


def test_an_extender_wakes_a_pod(tmp_path: Path) -> None:
    gate = Gate()
    with (
        running_cluster(tmp_path, "--nodes=2") as cluster,
        serving(make_app(filter=gate)) as extender,
        scheduler(
            cluster,
            tmp_path,
            "default-scheduler",
            {
                "apiVersion": "aiokube-scheduler.io/v1alpha1",
                "kind": "AiokubeSchedulerConfiguration",
                "requeueEndpoint": {"enabled": True},
            },
            extenders=[{"urlPrefix": extender, "filterVerb": "filter", "nodeCacheCapable": True}],
        ) as url,
    ):
        cluster.call("POST", "/api/v1/namespaces/default/pods", pod("waits"))
        wait_for(
            "a refusal", lambda: "no licence is free" in str(cluster.pods()["waits"]["status"])
        )
        assert post(url, {}, token="nobody's")[0] == 401
        assert post(url, {"extender": "http://other"})[0] == 400
        assert post(url, {"pods": [{"namespace": "default", "name": "other"}]}) == (
            200,
            {"woken": 0},
        )
        gate.open = True
        assert post(url, {"extender": extender}) == (200, {"woken": 1})
        wait_for("the pod", lambda: cluster.all_bound(1))

        with scheduler(cluster, tmp_path, "without") as other:
            status, _ = wait_for("an answer", lambda: (answer := post(other, {}))[0] and answer)
            assert status == 404
