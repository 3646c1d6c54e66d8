"""kubectl, unmodified, against the embedded cluster in a process of its own."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.whole.kubectl import NEEDS_KUBECTL, TIMEOUT_SECONDS, Kubectl, as_list

pytestmark = [pytest.mark.whole, NEEDS_KUBECTL]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of a kubeconfig for a cluster of three nodes."""
    kubeconfig = tmp_path_factory.mktemp("cluster") / "kubeconfig"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "app", "apiserver", "--port=0", "--nodes=3"),
            *("--start-delay=0.05", "--grace-factor=0.01", f"--kubeconfig-out={kubeconfig}"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on http://127.0.0.1:")
        yield kubeconfig
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(server: Path, home: Path, request: pytest.FixtureRequest) -> Kubectl:
    """kubectl in a new namespace, named after the test."""
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50]
    Kubectl(server, home)("create", "namespace", name)
    return Kubectl(server, home, name)


def pod(name: str, node: str = "", **labels: str) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "pause:3.9",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    spec: dict[str, Any] = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_what_the_server_is(kubectl: Kubectl) -> None:
    version = json.loads(kubectl("version", "-o", "json"))["serverVersion"]
    assert (version["major"], version["minor"]) == ("1", "36")
    resources = kubectl("api-resources", "-o", "name").split()
    assert {"pods", "nodes", "leases.coordination.k8s.io", "events.events.k8s.io"} <= set(resources)
    assert "apps/v1" in kubectl("api-versions").split()
    assert kubectl("get", "--raw", "/readyz") == "ok"


def test_who_one_is_and_what_one_may(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
    assert "kubernetes-admin" in kubectl("auth", "whoami")


def test_get_in_every_form(kubectl: Kubectl) -> None:
    kubectl.apply(pod("a", "node-0", app="x"), pod("b", "node-1", app="y"), pod("c", app="x"))
    kubectl("wait", "pod/a", "pod/b", "--for=condition=Ready", f"--timeout={TIMEOUT_SECONDS}s")
    rows = kubectl.rows("get", "pods", "-o", "wide")
    assert [row[:3] for row in rows] == [
        ["a", "1/1", "Running"],
        ["b", "1/1", "Running"],
        ["c", "0/1", "Pending"],
    ]
    assert [row[6] for row in rows] == ["node-0", "node-1", "<none>"]
    assert yaml.safe_load(kubectl("get", "pod", "a", "-o", "yaml"))["status"]["phase"] == "Running"
    assert kubectl.json("get", "pods")["items"][0]["kind"] == "Pod"
    path = "jsonpath={.items[*].spec.nodeName}"
    assert kubectl("get", "pods", "-o", path) == "node-0 node-1"
    assert kubectl("get", "po", "-l", "app in (x)", "-o", "name").split() == ["pod/a", "pod/c"]
    pending = kubectl("get", "pods", "--field-selector", "status.phase=Pending", "-o", "name")
    assert pending.split() == ["pod/c"]
    by_label = kubectl("get", "pods", "--sort-by=.metadata.labels.app", "-o", "name").split()
    assert by_label == ["pod/a", "pod/c", "pod/b"]
    assert [row[1] for row in kubectl.rows("get", "nodes")] == ["Ready"] * 3
    columns = "custom-columns=N:.metadata.name,P:.status.qosClass"
    assert kubectl.rows("get", "pods", "a", "-o", columns) == [["a", "Burstable"]]
    missing = kubectl.run("get", "pod", "nope")
    assert (missing.code, missing.err.strip()) == (
        1,
        'Error from server (NotFound): pods "nope" not found',
    )


def test_get_and_watch(kubectl: Kubectl) -> None:
    kubectl.apply(pod("before"))
    watching = subprocess.Popen(
        kubectl.command("get", "pods", "--watch", "--no-headers"),
        env=kubectl.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    guard = threading.Timer(TIMEOUT_SECONDS, watching.kill)
    guard.start()
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[:3] == ["before", "0/1", "Pending"]
        kubectl.apply(pod("after", "node-2"))
        states = []
        while states[-1:] != ["Running"]:
            name, _, state, *_ = watching.stdout.readline().split()
            assert name == "after"
            states.append(state)
        assert states == ["Pending", "Running"]
    finally:
        guard.cancel()
        watching.kill()
        watching.communicate()


def test_describe(kubectl: Kubectl) -> None:
    kubectl.apply(pod("p", "node-0"))
    kubectl("wait", "pod/p", "--for=jsonpath={.status.phase}=Running")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "p.1"},
        "involvedObject": {
            "kind": "Pod",
            "apiVersion": "v1",
            "namespace": kubectl.namespace,
            "name": "p",
            "uid": kubectl.json("get", "pod", "p")["metadata"]["uid"],
        },
        "reason": "Scheduled",
        "message": "Successfully assigned",
        "type": "Normal",
        "source": {"component": "default-scheduler"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    text = kubectl("describe", "pod", "p")
    assert "Node:         node-0/10.1.0.1" in text
    assert "Successfully assigned" in text
    rows = kubectl.rows("get", "events")
    assert [row[1:4] for row in rows] == [["Normal", "Scheduled", "pod/p"]]
    assert "Successfully assigned" in kubectl("events", "--for", "pod/p")
    text = kubectl("describe", "node", "node-0")
    assert "topology.kubernetes.io/zone=zone-0" in text
    assert f"{kubectl.namespace}" in text
    assert "100m (0%)" in text
    assert "Status:       Active" in kubectl("describe", "namespace", kubectl.namespace)


def test_apply_and_diff(kubectl: Kubectl) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    maps = config_map("m", keep="1", drop="2")
    assert "created" in kubectl.apply(deployment, maps)
    assert kubectl.apply(deployment, maps).count("unchanged") == 2
    template["spec"]["containers"].append({"name": "side", "image": "busybox"})
    maps["data"] = {"keep": "1", "new": "3"}
    changed = kubectl.run("diff", "-f", "-", stdin=as_list(deployment, maps))
    assert (changed.code, "image: busybox" in changed.out) == (1, True), changed
    assert kubectl.apply(deployment, maps).count("configured") == 2
    assert kubectl.json("get", "configmap", "m")["data"] == {"keep": "1", "new": "3"}
    containers = kubectl.json("get", "deploy", "d")["spec"]["template"]["spec"]["containers"]
    assert [container["name"] for container in containers] == ["c", "side"]
    del template["spec"]["containers"][0]
    kubectl.apply(deployment)
    containers = kubectl.json("get", "deploy", "d")["spec"]["template"]["spec"]["containers"]
    assert [container["name"] for container in containers] == ["side"]
    served = kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(maps))
    assert "serverside-applied" in served
    dry = kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(config_map("dry")))
    assert "created (server dry run)" in dry
    assert "dry" not in kubectl("get", "configmaps", "-o", "name")


def test_create(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "m", "--from-literal=a=b")
    again = kubectl.run("create", "configmap", "m", "--from-literal=a=b")
    assert again.code == 1
    assert 'configmaps "m" already exists' in again.err
    kubectl("create", "secret", "generic", "s", "--from-literal=k=v")
    kubectl("create", "deployment", "d", "--image=nginx", "--replicas=2")
    kubectl("create", "pdb", "b", "--selector=app=d", "--min-available=50%")
    kubectl("create", "priorityclass", "vip", "--value=1000")
    kubectl("create", "-f", "-", stdin=json.dumps(pod("p")))
    kubectl("run", "q", "--image=nginx", "--labels=a=b")
    assert kubectl.json("get", "secret", "s")["data"] == {"k": "dg=="}
    assert kubectl.rows("get", "deploy", "d")[0][:2] == ["d", "0/2"]
    assert kubectl.rows("get", "pdb", "b")[0][:3] == ["b", "50%", "N/A"]
    assert kubectl.rows("get", "pc", "vip")[0][:3] == ["vip", "1000", "false"]
    assert kubectl("get", "pods", "-l", "app!=d", "-o", "name").split() == ["pod/p", "pod/q"]
    bad = pod("bad") | {"spec": {"containers": []}}
    refused = kubectl.run("create", "-f", "-", stdin=json.dumps(bad))
    assert "spec.containers: Required value" in refused.err


def test_patch_and_edit(kubectl: Kubectl) -> None:
    kubectl.apply(pod("p"), config_map("m", a="1"))
    kubectl("patch", "configmap", "m", "--type=merge", "-p", '{"data":{"a":null,"b":"2"}}')
    add = '[{"op":"add","path":"/data/c","value":"3"}]'
    kubectl("patch", "configmap", "m", "--type=json", "-p", add)
    assert kubectl.json("get", "configmap", "m")["data"] == {"b": "2", "c": "3"}
    image = '{"spec":{"containers":[{"name":"c","image":"pause:3.10"}]}}'
    kubectl("patch", "pod", "p", "-p", image)
    kubectl("set", "image", "pod/p", "c=pause:3.11")
    container = kubectl.json("get", "pod", "p")["spec"]["containers"][0]
    assert container["image"] == "pause:3.11"
    assert container["resources"]["requests"] == {"cpu": "100m", "memory": "64Mi"}
    forbidden = kubectl.run("patch", "pod", "p", "-p", '{"spec":{"nodeName":"n"}}')
    assert "pod updates may not change fields other than" in forbidden.err
    status = '{"status":{"conditions":[{"type":"X","status":"True"}]}}'
    kubectl("patch", "pod", "p", "--subresource=status", "-p", status)
    kubectl("wait", "pod/p", "--for=condition=X")
    replaced = json.dumps(config_map("m", whole="new"))
    kubectl("replace", "-f", "-", stdin=replaced)
    assert kubectl.json("get", "configmap", "m")["data"] == {"whole": "new"}


def test_label_annotate_taint(kubectl: Kubectl) -> None:
    kubectl("label", "node", "node-2", "pool=gold")
    assert kubectl("get", "nodes", "-l", "pool=gold", "-o", "name").split() == ["node/node-2"]
    kubectl("label", "node", "node-2", "pool-")
    assert kubectl("get", "nodes", "-l", "pool", "-o", "name") == ""
    kubectl.apply(pod("p"))
    kubectl("annotate", "pod", "p", "note=hello")
    assert kubectl.json("get", "pod", "p")["metadata"]["annotations"]["note"] == "hello"
    kubectl("taint", "node", "node-2", "k=v:NoSchedule", "l:NoExecute")
    taints = kubectl.json("get", "node", "node-2")["spec"]["taints"]
    assert sorted(taint["key"] for taint in taints) == ["k", "l"]
    kubectl("taint", "node", "node-2", "k=w:NoSchedule", "--overwrite")
    kubectl("taint", "node", "node-2", "l-")
    taints = kubectl.json("get", "node", "node-2")["spec"]["taints"]
    assert taints == [{"effect": "NoSchedule", "key": "k", "value": "w"}]
    kubectl("taint", "node", "node-2", "k-")
    assert "taints" not in kubectl.json("get", "node", "node-2")["spec"]


def test_cordon_and_drain(kubectl: Kubectl) -> None:
    kubectl("cordon", "node-1")
    assert kubectl.rows("get", "node", "node-1")[0][1] == "Ready,SchedulingDisabled"
    kubectl("uncordon", "node-1")
    daemon_set = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "ds"},
        "spec": {
            "selector": {"matchLabels": {"a": "ds"}},
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": {"a": "ds"}}, "spec": pod("x")["spec"]},
        },
    }
    kubectl.apply(daemon_set)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "controller": True}
    owner["uid"] = kubectl.json("get", "ds", "ds")["metadata"]["uid"]
    owned = pod("owned", "node-1", a="ds")
    owned["metadata"]["ownerReferences"] = [owner]
    kubectl.apply(pod("p", "node-1"), pod("other", "node-0"), owned)
    kubectl("wait", "pod", "p", "other", "owned", "--for=condition=Ready")
    refused = kubectl.run("drain", "node-1")
    assert refused.code == 1
    assert "cannot delete DaemonSet-managed Pods" in refused.err
    drained = kubectl(
        "drain", "node-1", "--force", "--ignore-daemonsets", f"--timeout={TIMEOUT_SECONDS}s"
    )
    assert "pod/p evicted" in drained
    bound = "custom-columns=NODE:.spec.nodeName,NAME:.metadata.name"
    rows = kubectl.rows("get", "pods", "--field-selector=spec.nodeName!=", "-o", bound)
    assert rows == [["node-0", "other"], ["node-1", "owned"]]
    assert kubectl.rows("get", "node", "node-1")[0][1] == "Ready,SchedulingDisabled"
    kubectl("uncordon", "node-1")


def test_eviction_asks_the_budget(kubectl: Kubectl) -> None:
    kubectl.apply(pod("p", "node-2", app="web"))
    kubectl("wait", "pod/p", "--for=condition=Ready")
    kubectl("create", "pdb", "b", "--selector=app=web", "--min-available=1")
    kubectl("wait", "pdb/b", "--for=jsonpath={.status.currentHealthy}=1")
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/p/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    blocked = kubectl.run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    assert "would violate the pod's disruption budget" in blocked.err
    kubectl("delete", "pdb", "b")
    assert "pod/p evicted" in kubectl("drain", "node-2", "--force", f"--timeout={TIMEOUT_SECONDS}s")
    kubectl("uncordon", "node-2")


def test_what_a_cluster_that_pretends_cannot_do_is_said(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=nginx")
    refused = kubectl.run("exec", "p", "--", "ls")
    assert refused.code == 1
    assert "the embedded cluster does not serve pods/exec: " in refused.err


def test_kinds_without_a_controller_come_with_a_warning(kubectl: Kubectl) -> None:
    result = kubectl.run("create", "cronjob", "nightly", "--image=nginx", "--schedule=0 3 * * *")
    assert result.code == 0
    warning = "Warning: the embedded cluster has no controller for cronjobs.batch: no pods are made"
    assert warning in result.err


def test_delete(kubectl: Kubectl) -> None:
    kubectl.apply(pod("a", "node-0"), pod("b", app="x"), pod("c", app="x"), config_map("m"))
    assert "deleted" in kubectl("delete", "pod", "a")
    assert kubectl("delete", "pods", "-l", "app=x").count("deleted") == 2
    kubectl("delete", "-f", "-", stdin=json.dumps(config_map("m")))
    gone = kubectl.run("delete", "configmap", "m")
    assert 'configmaps "m" not found' in gone.err
    kubectl.apply(pod("stuck", "node-0"))
    kubectl("delete", "pod", "stuck", "--grace-period=0", "--force")
    kubectl("wait", "pod/stuck", "--for=delete", f"--timeout={TIMEOUT_SECONDS}s")
    kubectl("delete", "namespace", kubectl.namespace)
    assert kubectl.run("get", "namespace", kubectl.namespace).code == 1
