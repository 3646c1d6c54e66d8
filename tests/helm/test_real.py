"""The chart on a real API server: installed, run with the rights it gives, upgraded, removed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helm.chart import CHART, NAMESPACE, RELEASE, Helm
from tests.whole.real import NEEDS_REAL, RealApiServer
from tests.whole.harness import Process, pod, wait_for

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not ASSETS, reason="needs etcd and kube-apiserver: KUBEBUILDER_ASSETS"),
]

ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{RELEASE}"
PODS = "/api/v1/namespaces/default/pods"
NODE = {
    "metadata": {"name": "node-0", "labels": {"kubernetes.io/hostname": "node-0"}},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealApiServer]:
    with RealApiServer(tmp_path).running() as running:
        yield running


def on_server(helm: Helm, server: RealApiServer, *arguments: str) -> None:
    where = ("--namespace", NAMESPACE, "--kubeconfig", str(server.kubeconfig))
    done = helm.run(*arguments, *where)
    assert done.returncode == 0, done.stderr


def installed(server: RealApiServer) -> list[str]:
    """Everything in the cluster that says it is the release's."""
    collections = [
        *("/api/v1/configmaps", "/api/v1/serviceaccounts", "/api/v1/services"),
        *("/apis/apps/v1/deployments", "/apis/policy/v1/poddisruptionbudgets"),
        *(
            f"/apis/rbac.authorization.k8s.io/v1/{kind}"
            for kind in ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
        ),
    ]
    selector = f"?labelSelector=app.kubernetes.io/instance%3D{RELEASE}"
    return [
        f"{path}/{item['metadata']['name']}"
        for path in collections
        for item in server.call("GET", path + selector)["items"]
    ]


def test_a_release_schedules_with_the_rights_it_has(
    helm: Helm, server: RealApiServer, tmp_path: Path
) -> None:
    values = tmp_path / "scheduler.kubeconfig"
    on_server(
        *(helm, server, "install", RELEASE, str(CHART)),
        *("--set", f"config.clientConnection.kubeconfig={values}"),
    )
    assert len(installed(server)) == 9
    assert server.write_kubeconfig("scheduler", token_of(server)) == values
    config = tmp_path / "scheduler.yaml"
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{RELEASE}"
    config.write_text(server.call("GET", path)["data"]["scheduler.yaml"])
    server.call("POST", "/api/v1/nodes", NODE)
    flags = [f"--config={config}", "--secure-port=0"]
    scheduler = Process(["app", "run", *flags], tmp_path / "log")
    try:
        check_that_it_works(server)
        assert scheduler.stop() == 0
    finally:
        scheduler.kill()
    assert "forbidden" not in scheduler.output().lower()
    on_server(helm, server, "upgrade", RELEASE, str(CHART), "--set", "replicaCount=1")
    assert len(installed(server)) == 8
    on_server(helm, server, "uninstall", RELEASE)
    assert installed(server) == []


def token_of(server: RealApiServer) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token: str = server.call("POST", f"{ACCOUNT}/token", request)["status"]["token"]
    return token


def check_that_it_works(server: RealApiServer) -> None:
    """It binds, refuses with a reason, and preempts."""

    def found(name: str) -> dict[str, Any]:
        answer: dict[str, Any] = server.call("GET", f"{PODS}/{name}")
        return answer

    def create(name: str, **spec: Any) -> None:
        spec |= {"schedulerName": RELEASE, "terminationGracePeriodSeconds": 0}
        server.call("POST", PODS, pod(name, **spec))

    create("first", cpu="3")
    wait_for("a binding", lambda: found("first")["spec"].get("nodeName"))
    create("big", cpu="64")
    wait_for("a refusal", lambda: found("big")["status"].get("conditions"))
    urgent = {"metadata": {"name": "urgent"}, "value": 1000}
    server.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
    create("second", cpu="3", priorityClassName="urgent")
    wait_for("a preemption", lambda: found("second")["spec"].get("nodeName"))
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    reasons = {"Scheduled", "FailedScheduling", "Preempted"}
    wait_for(
        "events",
        lambda: reasons <= {event["reason"] for event in server.call("GET", events)["items"]},
    )
