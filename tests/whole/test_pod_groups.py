"""The recorded answers about PodGroups and Workloads, from a real API server again, and its acceptance of the
definition.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.shell.sim.pod_group_cases import (
    CASES,
    FLAGS,
    PREPARED,
    ROOT,
    created,
    recorded,
    summary,
)
from tests.whole.harness import wait_for
from tests.whole.real import NEEDS_REAL, RealApiServer

pytestmark = [pytest.mark.whole, *NEEDS_REAL]

DEFINITION = Path("tests/manifests/podgroups.scheduling.x-k8s.io.yaml").absolute()
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    with RealApiServer(tmp_path_factory.mktemp("real"), *FLAGS).running() as running:
        for path, body in PREPARED:
            assert request(running, "POST", path, body)[0] == 201
        yield running


def request(
    server: RealApiServer, method: str, path: str, body: Any, content_type: str = "application/json"
) -> tuple[int, dict[str, Any]]:
    """The code and the body of an answer, also of one that refuses."""
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": content_type}
    data = json.dumps(body).encode()
    asked = urllib.request.Request(server.url + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(asked, context=server.tls, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        # A path that the server does not know yet is answered in plain text.
        is_json = error.headers.get_content_type() == "application/json"
        return error.code, json.loads(error.read()) if is_json else {}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['resource']}-{case['name']}")
def test_the_answers_are_still_those(server: RealApiServer, case: dict[str, Any]) -> None:
    path = f"{ROOT}/{case['resource']}"
    answer = request(server, "POST", path, created(case))
    if "patch" in case:
        assert answer[0] == 201
        path = "/".join(filter(None, (path, case["name"], case["subresource"])))
        answer = request(server, "PATCH", path, case["patch"], MERGE)
    assert summary(*answer) == recorded(case)


def test_the_definition_of_custom_groups_is_valid(server: RealApiServer) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert request(server, "POST", definitions, yaml.safe_load(DEFINITION.read_text()))[0] == 201
    groups = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
    body = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 3, "minResources": {"cpu": 3, "memory": "1Gi"}},
    }
    made: dict[str, Any] = wait_for("the kind", lambda: _created(server, groups, body))
    assert made["spec"] == body["spec"]
    status = {"status": {"phase": "Scheduling", "scheduled": 2}}
    _, patched = request(server, "PATCH", f"{groups}/g/status", status, MERGE)
    assert patched["status"] == status["status"]


def _created(server: RealApiServer, path: str, body: Any) -> dict[str, Any]:
    code, made = request(server, "POST", path, body)
    return made if code == 201 else {}
