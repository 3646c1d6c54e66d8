"""config/manifests/share-of-pods.yaml on a real API server: which pods get the scheduler's name, and the way back."""

import time
from pathlib import Path

import pytest
import yaml

from tests.whole.harness import wait_for
from tests.whole.real import NEEDS_REAL, RealApiServer

pytestmark = [*NEEDS_REAL]

MANIFEST = Path(__file__).parents[2] / "config" / "manifests" / "share-of-pods.yaml"
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolic"
OURS, THEIRS = "aiokube-scheduler", "default-scheduler"


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    with RealApiServer(tmp_path_factory.mktemp("real")).running() as started:
        for name in ("shop", "other"):
            namespace = {"metadata": {"name": name}}
            started.call("POST", "/api/v1/namespaces", namespace)
        yield started


@pytest.fixture
def server(bare):
    policy, binding = yaml.safe_load_all(MANIFEST.read_text())
    bare.call("POST", f"{POLICIES}ies", policy)
    bare.call("POST", f"{POLICIES}ybindings", binding)
    # An API server that has just learnt of a policy does not apply it to every request at first.
    wait_for("the policy", lambda: applied(bare), 60)
    yield bare
    for each in bare.call("GET", f"{POLICIES}ybindings")["items"]:
        bare.call("DELETE", f"{POLICIES}ybindings/{each['metadata']['name']}")
    bare.call("DELETE", f"{POLICIES}ies/{policy['metadata']['name']}")


def applied(server):
    return all(scheduler_of(server, "shop", "0", dry=True) == OURS for _ in range(40))


def scheduler_of(server, namespace, digit, *, dry=False, **spec):
    """The schedulerName of a new pod whose controller's uid ends with this digit; empty for no controller."""
    uid = f"00000000-0000-0000-0000-00000000000{digit}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid}
    pod = {
        "metadata": {
            "generateName": "web-",
            "ownerReferences": [{**owner, "controller": True}] if digit else [],
        },
        "spec": {"containers": [{"name": "c", "image": "c"}], **spec},
    }
    query = "?dryRun=All" if dry else ""
    made = server.call("POST", f"/api/v1/namespaces/{namespace}/pods{query}", pod)
    return made["spec"]["schedulerName"]


def test_a_quarter_of_the_workloads_of_the_namespace_comes_to_us(server):
    found = {digit: scheduler_of(server, "shop", digit) for digit in "0123456789abcdef"}
    assert found == {digit: OURS if digit in "0123" else THEIRS for digit in found}


def test_other_pods_keep_their_scheduler(server):
    assert scheduler_of(server, "other", "0") == THEIRS
    assert scheduler_of(server, "shop", "") == THEIRS
    assert scheduler_of(server, "shop", "0", schedulerName="mine") == "mine"


def test_without_the_binding_all_pods_are_theirs_again(server):
    server.call("DELETE", f"{POLICIES}ybindings/share-of-pods")
    deadline = time.monotonic() + 60
    while scheduler_of(server, "shop", "0", dry=True) != THEIRS:
        assert time.monotonic() < deadline
        time.sleep(0.2)
