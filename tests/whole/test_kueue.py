"""The AdmissionCheck for Kueue: workloads are as Kueue makes them, on the embedded cluster and on a real API server."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.sim.resources.reviews import ADMIN_TOKEN
from app.tools.subprocesses import reserved_port
from extenders.kueue import CONTROLLER
from tests.whole.harness import ApiServer, Process, Schedulers, running_cluster, wait_for
from tests.whole.real import NEEDS_REAL, RealApiServer

pytestmark = pytest.mark.whole

GROUP = "kueue.x-k8s.io"
ROOT = f"/apis/{GROUP}/v1beta2"
WORKLOADS = f"{ROOT}/namespaces/default/workloads"


def definition(kind: str, plural: str, scope: str) -> dict[str, Any]:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1beta2",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": free},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": scope, "names": names, "versions": [version]},
    }


def made(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    meta = {"metadata": {"name": name}}
    return {"apiVersion": f"{GROUP}/v1beta2", "kind": kind, **meta, **fields}


def workload(name: str, count: int, cpu: str, *, flavor: str = "plain") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"containers": [container]}}
    return made(
        "Workload",
        name,
        spec={"podSets": [{"name": "main", "count": count, "template": template}]},
        status={
            "conditions": [
                {
                    "type": "QuotaReserved",
                    "status": "True",
                    "reason": "QuotaReserved",
                    "message": "",
                    "lastTransitionTime": "2026-11-27T00:00:00Z",
                }
            ],
            "admission": {
                "clusterQueue": "q",
                "podSetAssignments": [{"name": "main", "count": count, "flavors": {"cpu": flavor}}],
            },
            "admissionChecks": [
                {
                    "name": name,
                    "state": "Pending",
                    "message": "",
                    "lastTransitionTime": "2026-11-27T00:00:00Z",
                }
                for name in ("other", "room")
            ],
        },
    )


def reserve(server: ApiServer, value: dict[str, Any]) -> None:
    """The workload, with the status that Kueue writes when its quota is reserved."""
    created = server.call("POST", WORKLOADS, value)
    path = f"{WORKLOADS}/{value['metadata']['name']}/status"
    server.call("PUT", path, created | {"status": value["status"]})


def state(server: ApiServer, name: str) -> dict[str, Any]:
    checks = server.call("GET", f"{WORKLOADS}/{name}")["status"]["admissionChecks"]
    assert checks[0]["state"] == "Pending"
    decided: dict[str, Any] = checks[1]
    return {} if decided["state"] == "Pending" else decided


@contextlib.contextmanager
def served(kind: str, folder: Path) -> Iterator[tuple[ApiServer, str]]:
    if kind == "real":
        with RealApiServer(folder).running() as server:
            yield server, server.token
    else:
        with running_cluster(folder, "--no-kubelets") as cluster:
            yield cluster, ADMIN_TOKEN


@pytest.mark.parametrize("kind", ["embedded", pytest.param("real", marks=NEEDS_REAL)])
def test_a_workload_is_admitted_when_the_scheduler_has_room(kind: str, tmp_path: Path) -> None:
    with served(kind, tmp_path) as (server, token), reserved_port() as port:
        for each in (
            ("Workload", "workloads", "Namespaced"),
            ("AdmissionCheck", "admissionchecks", "Cluster"),
            ("ResourceFlavor", "resourceflavors", "Cluster"),
        ):
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            server.call("POST", path, definition(*each))
        wait_for("the kinds", lambda: server.answer("GET", f"{ROOT}/resourceflavors")[0] == 200)
        server.create_nodes(2)
        checks = f"{ROOT}/admissionchecks"
        server.call(
            "POST", checks, made("AdmissionCheck", "room", spec={"controllerName": CONTROLLER})
        )
        server.call("POST", checks, made("AdmissionCheck", "other", spec={"controllerName": "o"}))
        labels = {"topology.kubernetes.io/zone": "zone-1"}
        flavors = f"{ROOT}/resourceflavors"
        server.call("POST", flavors, made("ResourceFlavor", "plain", spec={}))
        server.call(
            "POST", flavors, made("ResourceFlavor", "one-zone", spec={"nodeLabels": labels})
        )
        (tmp_path / "token").write_text(token)
        schedulers = Schedulers(server, tmp_path)
        schedulers.start(
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--insecure-http",
            "--authorization-always-allow-paths=/whatif",
        )
        controller = Process(
            [
                "extenders.kueue",
                f"--scheduler=http://127.0.0.1:{port}",
                f"--api={server.url}",
                f"--token-file={tmp_path / 'token'}",
                "--insecure-skip-tls-verify",
                "--seconds=0.1",
            ],
            tmp_path / "controller.log",
        )
        try:
            reserve(server, workload("bad", 1, "1") | {"spec": {"podSets": [{"name": "main"}]}})
            reserve(server, workload("fits", 6, "1"))
            found = wait_for("an answer", lambda: state(server, "fits"))
            assert (found["state"], found["message"]) == (
                "Ready",
                "the scheduler has a node for each of 6 pods",
            )
            reserve(server, workload("large", 9, "1"))
            found = wait_for("an answer", lambda: state(server, "large"))
            assert found["state"] == "Retry"
            assert found["message"].startswith(
                "1 of 9 pods would wait: 0/2 nodes are available: 2 Insufficient cpu."
            )
            reserve(server, workload("zone", 5, "1", flavor="one-zone"))
            found = wait_for("an answer", lambda: state(server, "zone"))
            assert found["message"].startswith("1 of 5 pods would wait")
            active = server.call("GET", f"{checks}/room")["status"]["conditions"]
            assert [(each["type"], each["status"]) for each in active] == [("Active", "True")]
            assert "status" not in server.call("GET", f"{checks}/other")
            assert "default/bad has an unexpected form" in controller.output()
            assert "Traceback" not in controller.output()
            assert server.pods() == {}
        finally:
            controller.kill()
            schedulers.end()
