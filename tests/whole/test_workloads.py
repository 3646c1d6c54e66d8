"""Workloads on the embedded cluster, with kubectl as people use it and a scheduler beside it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.whole.harness import Cluster, Schedulers, running_cluster, wait_for
from tests.whole.kubectl import NEEDS_KUBECTL, Kubectl

pytestmark = [pytest.mark.whole, NEEDS_KUBECTL]

WAIT = "--timeout=60s"
NODES = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    flags = (f"--nodes={NODES}", "--start-delay=0.05", "--grace-factor=0.01", "--volumes")
    with running_cluster(folder, *flags) as running:
        schedulers = Schedulers(running, folder)
        schedulers.start(leaderElection={"leaderElect": False})
        yield running
        schedulers.end()
        assert "Traceback" not in running.process.output()


@pytest.fixture
def kubectl(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Kubectl:
    """kubectl in a new namespace, named after the test."""
    home = tmp_path_factory.mktemp("home")
    name = request.node.name.removeprefix("test_").replace("_", "-")[:50]
    Kubectl(cluster.kubeconfig, home)("create", "namespace", name)
    return Kubectl(cluster.kubeconfig, home, name)


def container(image: str = "app:1", **parts: Any) -> dict[str, Any]:
    return {"name": "c", "image": image, **parts}


def workload(kind: str, name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": list(containers or [container()])},
    }
    selector = {"matchLabels": labels}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": selector, "template": template, **spec},
    }


def images(kubectl: Kubectl) -> set[str]:
    """The images of the pods that are not going away."""
    pods = kubectl.json("get", "pods")["items"]
    return {
        pod["spec"]["containers"][0]["image"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }


def test_a_deployment_is_created_scaled_and_rolled(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "shop", "--image=shop:1", "--replicas=3")
    said = kubectl("rollout", "status", "deployment/shop", WAIT)
    assert 'deployment "shop" successfully rolled out' in said
    assert kubectl.rows("get", "deployment", "shop")[0][1:4] == ["3/3", "3", "3"]
    kubectl("scale", "deployment", "shop", "--replicas=5")
    kubectl("rollout", "status", "deployment/shop", WAIT)
    assert kubectl.rows("get", "deployment", "shop")[0][1:4] == ["5/5", "5", "5"]
    refused = kubectl.run("scale", "deployment", "shop", "--replicas=1", "--current-replicas=3")
    assert refused.code == 1, refused
    kubectl("set", "image", "deployment/shop", "shop=shop:2")
    kubectl("rollout", "status", "deployment/shop", WAIT)
    assert images(kubectl) == {"shop:2"}
    history = kubectl("rollout", "history", "deployment/shop")
    assert [line.split()[0] for line in history.split("\n") if line[:1].isdigit()] == ["1", "2"]
    kubectl("rollout", "undo", "deployment/shop")
    kubectl("rollout", "status", "deployment/shop", WAIT)
    assert images(kubectl) == {"shop:1"}
    before = set(kubectl("get", "replicasets", "-o", "name").split())
    kubectl("rollout", "restart", "deployment/shop")
    kubectl("rollout", "status", "deployment/shop", WAIT)
    assert len(set(kubectl("get", "replicasets", "-o", "name").split()) - before) == 1
    described = kubectl("describe", "deployment", "shop")
    assert "NewReplicaSetAvailable" in described


def test_a_rollout_that_cannot_progress_is_told(kubectl: Kubectl) -> None:
    huge = container(resources={"requests": {"cpu": "1000"}})
    kubectl.apply(workload("Deployment", "huge", huge, progressDeadlineSeconds=2))
    result = kubectl.run("rollout", "status", "deployment/huge", WAIT)
    assert result.code == 1
    assert "exceeded its progress deadline" in result.err


def test_a_paused_deployment_waits(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "calm", "--image=calm:1")
    kubectl("rollout", "status", "deployment/calm", WAIT)
    kubectl("rollout", "pause", "deployment/calm")
    kubectl("set", "image", "deployment/calm", "calm=calm:2")
    kubectl("wait", "deployment/calm", "--for=condition=Progressing=Unknown", WAIT)
    assert images(kubectl) == {"calm:1"}
    kubectl("rollout", "resume", "deployment/calm")
    kubectl("rollout", "status", "deployment/calm", WAIT)
    assert images(kubectl) == {"calm:2"}


def test_deleting_takes_what_is_owned(kubectl: Kubectl) -> None:
    for name in ("back", "fore", "kept"):
        kubectl("create", "deployment", name, f"--image={name}")
        kubectl("rollout", "status", f"deployment/{name}", WAIT)
    kubectl("delete", "deployment", "fore", "--cascade=foreground", WAIT)
    assert kubectl("get", "replicasets,pods", "-l", "app=fore", "-o", "name") == ""
    kubectl("delete", "deployment", "back")
    kubectl("wait", "pods", "-l", "app=back", "--for=delete", WAIT)
    assert kubectl("get", "replicasets,pods", "-l", "app=back", "-o", "name") == ""
    kubectl("delete", "deployment", "kept", "--cascade=orphan")
    (pod,) = kubectl("get", "pods", "-l", "app=kept", "-o", "name").split()
    (old,) = kubectl("get", "replicasets", "-l", "app=kept", "-o", "name").split()
    assert "ownerReferences" not in kubectl.json("get", old)["metadata"]
    kubectl("create", "deployment", "kept", "--image=kept")
    kubectl("rollout", "status", "deployment/kept", WAIT)
    assert kubectl("get", "pods", "-l", "app=kept", "-o", "name").split() == [pod]


def test_a_job_completes(kubectl: Kubectl) -> None:
    kubectl("create", "job", "once", "--image=worker")
    kubectl("wait", "job/once", "--for=condition=Complete", WAIT)
    assert kubectl.rows("get", "job", "once")[0][1:3] == ["Complete", "1/1"]
    (row,) = kubectl.rows("get", "pods")
    assert row[1:3] == ["0/1", "Completed"]
    template = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
    failing = {"metadata": {"annotations": {"sim.aiokube-scheduler.io/exit-code": "3"}}}
    for name, spec in {
        "many": {"completions": 3, "parallelism": 2, "completionMode": "Indexed"},
        "broken": {"backoffLimit": 1},
    }.items():
        marked = template | (failing if name == "broken" else {})
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
        kubectl.apply(job | {"spec": spec | {"template": marked}})
    kubectl("wait", "job/many", "--for=condition=Complete", WAIT)
    assert kubectl.json("get", "job", "many")["status"]["completedIndexes"] == "0-2"
    kubectl("wait", "job/broken", "--for=condition=Failed", WAIT)
    status = kubectl.json("get", "job", "broken")["status"]
    assert status["failed"] == 2
    kubectl("delete", "job", "once", "many", "broken")
    kubectl("wait", "pods", "--all", "--for=delete", WAIT)


def test_a_stateful_set_keeps_order_and_claims(kubectl: Kubectl) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    mounted = container(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    kubectl.apply(
        workload(
            "StatefulSet",
            "db",
            mounted,
            replicas=3,
            serviceName="db",
            volumeClaimTemplates=[claim],
        )
    )
    kubectl("rollout", "status", "statefulset/db", WAIT)
    pods = kubectl.json("get", "pods", "--sort-by=.metadata.name")["items"]
    assert [pod["metadata"]["name"] for pod in pods] == ["db-0", "db-1", "db-2"]
    started = [pod["status"]["startTime"] for pod in pods]
    assert started == sorted(started)
    assert {row[1] for row in kubectl.rows("get", "pvc")} == {"Bound"}
    kubectl("set", "image", "statefulset/db", "c=db:2")
    kubectl("rollout", "status", "statefulset/db", WAIT)
    assert images(kubectl) == {"db:2"}
    kubectl("rollout", "undo", "statefulset/db")
    kubectl("rollout", "status", "statefulset/db", WAIT)
    assert images(kubectl) == {"app:1"}
    kubectl("scale", "statefulset", "db", "--replicas=1")
    kubectl("wait", "pod/db-1", "--for=delete", WAIT)
    assert kubectl("get", "pods", "-o", "name").split() == ["pod/db-0"]
    assert len(kubectl.rows("get", "pvc")) == 3


def test_a_daemon_set_is_on_every_node(kubectl: Kubectl) -> None:
    kubectl.apply(workload("DaemonSet", "agent"))
    kubectl("rollout", "status", "daemonset/agent", WAIT)
    nodes = {pod["spec"]["nodeName"] for pod in kubectl.json("get", "pods")["items"]}
    assert nodes == {f"node-{number}" for number in range(NODES)}
    kubectl("set", "image", "daemonset/agent", "c=agent:2")
    kubectl("rollout", "status", "daemonset/agent", WAIT)
    assert images(kubectl) == {"agent:2"}
    kubectl("rollout", "undo", "daemonset/agent")
    kubectl("rollout", "status", "daemonset/agent", WAIT)
    assert images(kubectl) == {"app:1"}
    kubectl("patch", "daemonset", "agent", "-p", nodes_of("node-1"))
    kubectl("rollout", "status", "daemonset/agent", WAIT)
    left = wait_for("one pod", lambda: len(rows := kubectl.rows("get", "pods")) == 1 and rows)
    assert left[0][2] == "Running"


def nodes_of(name: str) -> str:
    selector = {"nodeSelector": {"kubernetes.io/hostname": name}}
    return json.dumps({"spec": {"template": {"spec": selector}}})


def test_a_drain_keeps_to_the_budget(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=web", f"--replicas={NODES}")
    kubectl("create", "pdb", "web", "--selector=app=web", "--max-unavailable=1")
    kubectl("rollout", "status", "deployment/web", WAIT)
    pods = kubectl.json("get", "pods")["items"]
    node = pods[0]["spec"]["nodeName"]
    kubectl("drain", node, "--ignore-daemonsets", "--force", WAIT)
    kubectl("rollout", "status", "deployment/web", WAIT)
    pods = kubectl.json("get", "pods")["items"]
    assert node not in {pod["spec"].get("nodeName") for pod in pods}
    kubectl("uncordon", node)


def test_a_quota_is_kept(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "small", "--hard=pods=2,requests.cpu=1")
    request = {"resources": {"requests": {"cpu": "300m"}}}
    kubectl.apply(workload("Deployment", "d", container(**request), replicas=3))
    wait_for("two pods", lambda: len(kubectl.rows("get", "pods")) == 2)
    wait_for(
        "the use", lambda: "pods: 2/2, requests.cpu: 600m/1" in kubectl("get", "quota", "small")
    )
    assert "exceeded quota: small, requested: pods=1" in kubectl("get", "events")
    refused = kubectl.run("run", "p", "--image=x")
    assert "must specify requests.cpu for: p" in refused.err
    kubectl("delete", "quota", "small")
    kubectl("rollout", "status", "deployment/d", WAIT)


def test_limit_ranges_give_defaults(kubectl: Kubectl) -> None:
    limits = [{"type": "Container", "defaultRequest": {"cpu": "200m"}, "max": {"memory": "1Gi"}}]
    limits[0]["default"] = {"memory": "512Mi"}
    ranges = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}}
    kubectl.apply(ranges | {"spec": {"limits": limits}})
    kubectl("run", "p", "--image=x")
    resources = kubectl.json("get", "pod", "p")["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "200m", "memory": "512Mi"}
    assert resources["limits"] == {"memory": "512Mi"}
    big = (
        '{"spec":{"containers":[{"name":"c","image":"x","resources":{"limits":{"memory":"2Gi"}}}]}}'
    )
    refused = kubectl.run("run", "q", "--image=x", f"--overrides={big}")
    assert "maximum memory usage per Container is 1Gi, but limit is 2Gi" in refused.err


def test_explain(kubectl: Kubectl) -> None:
    said = kubectl("explain", "pods")
    assert "KIND:       Pod" in said
    assert "spec\t<PodSpec>" in said
    said = kubectl("explain", "deployment.spec.strategy")
    assert "FIELD: strategy <DeploymentStrategy>" in said
    assert "rollingUpdate\t<RollingUpdateDeployment>" in said
    assert "maxSurge" in kubectl("explain", "deployment", "--recursive")
    missing = kubectl.run("explain", "pods.spec.nothing")
    assert 'field "nothing" does not exist' in missing.err


def test_top(kubectl: Kubectl) -> None:
    request = {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    kubectl.apply(workload("Deployment", "busy", container(**request)))
    kubectl("rollout", "status", "deployment/busy", WAIT)
    (row,) = kubectl.rows("top", "pods", "-l", "app=busy")
    assert 200 <= int(row[1].removesuffix("m")) <= 800
    assert 204 <= int(row[2].removesuffix("Mi")) <= 820
    rows = kubectl.rows("top", "nodes")
    assert [row[0] for row in rows] == [f"node-{number}" for number in range(NODES)]
    used = sum(int(row[1].removesuffix("m")) for row in rows)
    assert used >= 200


def test_apply_merges_lists_by_their_keys(kubectl: Kubectl) -> None:
    """Also with the schemas that kubectl reads now, which say how lists are merged."""
    side = {"name": "side", "image": "side:1", "env": [{"name": "A", "value": "1"}]}
    deployment = workload("Deployment", "d", container(), side)
    kubectl.apply(deployment)
    added = '{"spec":{"template":{"spec":{"containers":[{"name":"side","env":[{"name":"B","value":"2"}]}]}}}}'
    kubectl("patch", "deployment", "d", "-p", added)
    deployment["spec"]["template"]["spec"]["containers"][0]["image"] = "app:2"
    assert "configured" in kubectl.apply(deployment)
    spec = kubectl.json("get", "deployment", "d")["spec"]["template"]["spec"]
    assert [each["image"] for each in spec["containers"]] == ["app:2", "side:1"]
    assert {each["name"] for each in spec["containers"][1]["env"]} == {"A", "B"}
    applied = kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(deployment)
    )
    assert "serverside-applied" in applied


def test_what_a_namespace_has(kubectl: Kubectl) -> None:
    assert kubectl("get", "serviceaccounts", "-o", "name").split() == ["serviceaccount/default"]
    found = kubectl("get", "configmaps", "-o", "name").split()
    assert found == ["configmap/kube-root-ca.crt"]
    kubectl("delete", "serviceaccount", "default")
    wait_for("another one", lambda: kubectl.run("get", "serviceaccount", "default").code == 0)


def test_malformed_workloads_concern_only_themselves(kubectl: Kubectl, cluster: Cluster) -> None:
    path = f"/apis/apps/v1/namespaces/{kubectl.namespace}"
    good = workload("Deployment", "good")
    for number, broken in enumerate(BROKEN):
        value = workload("Deployment", f"bad-{number}")
        value["spec"] |= broken
        code, _ = cluster.answer("POST", f"{path}/deployments", value)
        assert code in (201, 400, 422), (broken, code)
    kubectl.apply(good)
    kubectl("rollout", "status", "deployment/good", WAIT)


BROKEN: list[dict[str, Any]] = [
    {"replicas": -1},
    {"replicas": "three"},
    {"replicas": 1.5},
    {"template": []},
    {"template": {"metadata": {"labels": {"app": "other"}}, "spec": {"containers": []}}},
    {"selector": {}},
    {"selector": {"matchLabels": {"app": 7}}},
    {"selector": {"matchExpressions": [{"key": "a"}]}},
    {"strategy": {"rollingUpdate": {"maxSurge": "many"}}},
    {"strategy": []},
    {"revisionHistoryLimit": None},
    {"progressDeadlineSeconds": {}},
]
