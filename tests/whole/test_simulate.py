"""``simulate`` as users run it."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.whole.harness import WAIT_SECONDS, Process

pytestmark = pytest.mark.whole

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
ZONE = "topology.kubernetes.io/zone"


def node(name, zone, *, cpu="4", **spec):
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, ZONE: zone}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "uid": f"uid-{name}"},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def pod(name, cpu, *, phase="Running", **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {"containers": [container], **spec},
        "status": {"phase": phase, "startTime": "2026-01-01T00:00:00Z"},
    }


def workload(kind, name, *, cpu, template=None, **spec):
    labels = {"app": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    pods = {"containers": [container]} | (template or {})
    spec |= {"template": {"metadata": {"labels": labels}, "spec": pods}}
    if kind != "Job":
        spec["selector"] = {"matchLabels": labels}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def write(path: Path, *objects) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(path)


def simulate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", "simulate", *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        env=os.environ | environment,
        check=False,
    )


DUMP = (
    node("a", "z1"),
    node("b", "z2"),
    node("c", "z2", taints=[{"key": "gpu", "effect": "NoSchedule"}]),
    pod("old", "3", nodeName="a", priority=-1),
    pod("huge", "64", phase="Pending"),
    pod("ready", "500m", phase="Pending"),
    pod("foreign", "1", phase="Pending", schedulerName="volcano"),
    {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}},
    {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "disk"}}
    | {"provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    | {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}]},
)


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> tuple[subprocess.CompletedProcess[str], str]:
    """One run with a bit of everything, and its page."""
    folder = tmp_path_factory.mktemp("simulate")
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "disk"}
    claim |= {"resources": {"requests": {"storage": "1Gi"}}}
    files = {
        "dump.json": DUMP,
        "workload.json": (
            high | {"metadata": {"name": "high"}},
            workload(
                "Deployment", "vip", cpu="3", template={"priorityClassName": "high"}, replicas=2
            ),
            workload("DaemonSet", "agent", cpu="100m"),
            workload(
                *("StatefulSet", "db"),
                cpu="100m",
                volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": claim}],
            ),
            workload("Job", "late", cpu="1", template={"schedulingGates": [{"name": "g"}]}),
        ),
    }
    for name, objects in files.items():
        write(folder / name, *objects)
    page = folder / "page.html"
    arguments = ["--cluster", str(folder / "dump.json"), "--page", str(page), "-o", "json"]
    result = simulate(*arguments, "--workload", str(folder / "workload.json"))
    assert result.returncode == 1, result.stdout + result.stderr
    return result, page.read_text()


@pytest.fixture
def answer(done):
    return json.loads(done[0].stdout)


def test_where_everything_goes(answer):
    found = {each["name"]: each for each in answer["workloads"]}
    assert answer["isComplete"]
    assert list(found) == ["vip", "agent", "db", "late"]
    assert found["vip"]["nodes"] == {"a": 1, "b": 1}
    assert found["agent"]["nodes"] == {"a": 1, "b": 1}
    assert found["db"]["nodes"] == {"b": 1}  # where its class makes volumes
    assert found["late"]["pending"] == 1
    assert "scheduling gates" in found["late"]["reasons"][0]["message"]


def test_who_had_to_go(answer):
    (victim,) = answer["preempted"]
    assert (victim["pod"], victim["node"], victim["priority"]) == ("shop/old", "a", -1)
    assert victim["by"].startswith("shop/vip-")
    nodes = {each["name"]: each["resources"] for each in answer["nodes"]}
    assert (nodes["a"]["cpu"]["before"], nodes["c"]["cpu"]["after"]) == (3000, 0)
    assert sum(nodes[name]["cpu"]["after"] for name in "ab") == 2 * 3100 + 100 + 500


def test_pending_pods_of_the_dump_are_told_apart(answer):
    before = {each["name"]: each for each in answer["pendingBefore"]}
    assert before["ready"]["placed"] == 1
    assert before["huge"]["reasons"][0]["message"].startswith("0/3 nodes are available: ")
    assert answer["otherSchedulers"] == {"volcano": 1}
    assert answer["passedOver"] == {"Event": 1}


def test_the_page_is_written_and_the_progress_kept_apart(done):
    result, page = done
    assert "4 of 5 pods get a node" not in result.stdout
    assert "5 of 6 pods get a node, 1 stay pending, 1 pod of the cluster is preempted." in page
    assert "The workload comes" in result.stderr
    assert "Traceback" not in result.stderr


def dry_run(url, verb="filter"):
    """The second document: this extender's filter reserves nothing."""
    head = "apiVersion: aiokube-scheduler.io/v1alpha1\nkind: AiokubeSchedulerConfiguration\n"
    return f"---\n{head}extenders: [{{urlPrefix: '{url}', dryRun: {{filterVerb: {verb}}}}}]\n"


def test_everything_is_placed_on_nodes_made_up(tmp_path):
    config = tmp_path / "config.yaml"
    extender = "[{urlPrefix: 'http://127.0.0.1:1', filterVerb: filter, managedResources: ["
    extender += "{name: example.com/licence, ignoredByScheduler: true}]}]"
    first = f"{HEAD}profiles: [{{schedulerName: mine}}]\nextenders: {extender}\n"
    config.write_text(first + dry_run("http://127.0.0.1:1"))
    limits = {"resources": {"limits": {"example.com/licence": "1"}}}
    container = {"name": "c", "image": "i"} | limits
    template = {"schedulerName": "mine", "containers": [container]}
    given = write(tmp_path / "w.json", workload("Deployment", "web", cpu="1", template=template))
    common = ("--workload", given, "--nodes=2", "--config", str(config))
    result = simulate(*common, COLUMNS="200")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 of 1 pods get a node." in result.stdout
    assert "WARNING: extenders are left out" in result.stderr
    asked = simulate(*common, "--extenders", "--timeout=3")
    assert asked.returncode == 1, asked.stdout + asked.stderr
    assert "WARNING: the time was up after" in asked.stderr
    assert "1 of Deployment shop/web: " in asked.stderr
    assert "not decided: " in asked.stdout


def test_devices_are_given_to_the_claims_of_the_workload(tmp_path):
    """Three pods with a device each, made from a template, on nodes that have two; a fourth names no template that is
    there."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    template |= {"metadata": {"name": "one", "namespace": "shop"}}
    template |= {"spec": {"spec": {"devices": {"requests": [request]}}}}
    claim = {"name": "gpu", "resourceClaimTemplateName": "one"}
    file = write(
        tmp_path / "w.json",
        template,
        workload("Deployment", "train", cpu="1", template={"resourceClaims": [claim]}, replicas=3),
        pod("lost", "1", resourceClaims=[claim | {"resourceClaimTemplateName": "none"}]),
    )
    result = simulate("--nodes=2", "--node-devices=2", "--workload", str(file), "-o", "json")
    assert result.returncode == 1, result.stdout + result.stderr
    answer = json.loads(result.stdout)
    train, lost = answer["workloads"]
    assert (train["placed"], lost["pending"]) == (3, 1)
    assert 'template "none"' in lost["reasons"][0]["message"]
    used = {each["name"]: each["resources"]["gpu.example.com"]["after"] for each in answer["nodes"]}
    assert used == train["nodes"]


CORE = "scheduling.k8s.io/v1alpha2"
CUSTOM = "scheduling.x-k8s.io/v1alpha1"


def group(version, name, least):
    policy = {"gang": {"minCount": least}}
    spec = {"minMember": least} if version == CUSTOM else {"schedulingPolicy": policy}
    metadata = {"name": name, "namespace": "shop"}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def gang_of(version, name, count, cpu):
    """A Job whose pods belong to a group."""
    template = {"restartPolicy": "Never"}
    template |= {} if version == CUSTOM else {"schedulingGroup": {"podGroupName": name}}
    made = workload("Job", name, cpu=cpu, template=template, parallelism=count, completions=count)
    if version == CUSTOM:
        made["spec"]["template"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = name
    return made


@pytest.mark.parametrize("version", [CORE, "scheduling.k8s.io/v1beta1", CUSTOM])
def test_groups_run_whole_or_not_at_all(tmp_path, version):
    objects = [
        *(group(version, "fits", 3), gang_of(version, "fits", 3, "1")),
        *(group(version, "large", 6), gang_of(version, "large", 6, "1")),
        *(group(version, "few", 3), gang_of(version, "few", 2, "1")),
        gang_of(version, "none", 1, "1"),
    ]
    dump = write(tmp_path / "dump.json", node("a", "z1"), node("b", "z2"))
    page = tmp_path / "page.html"
    arguments = ["--cluster", dump, "--workload", write(tmp_path / "jobs.json", *objects)]
    done = simulate(*arguments, "-o", "json", "--page", str(page))
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["isComplete"]
    groups = {each["name"]: each for each in told["groups"]}
    assert [name for name, each in groups.items() if each["runs"]] == ["fits"]
    assert {name: each["placed"] for name, each in groups.items() if not each["runs"]} == {
        "large": 0,
        "few": 0,
        "none": 0,
    }
    assert groups["large"]["reason"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert groups["few"]["reason"] == "pod group few: 2 of 3 pods exist"
    assert groups["none"]["reason"] == "pod group none does not exist"
    reasons = {each["name"]: each["reasons"] for each in told["workloads"]}
    assert reasons["few"][0]["message"] == groups["few"]["reason"]
    assert reasons["few"][0]["isDecided"]
    assert "Pod groups" in page.read_text()


def test_groups_of_two_versions_are_no_cluster(tmp_path):
    versions = (CORE, "scheduling.k8s.io/v1beta1")
    objects = [group(version, "g", 2) for version in versions]
    dump = write(tmp_path / "dump.json", node("a", "z1"))
    done = simulate("--cluster", dump, "--workload", write(tmp_path / "w.json", *objects))
    assert done.returncode == 2
    assert "PodGroups of several versions" in done.stderr


@pytest.mark.parametrize("version", [CORE, "scheduling.k8s.io/v1beta1"])
def test_the_pods_of_a_group_share_its_device(tmp_path, version):
    entry = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu", "namespace": "shop"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    mates, job = group(version, "g", 3), gang_of(version, "g", 3, "1")
    mates["spec"]["resourceClaims"] = [entry]
    job["spec"]["template"]["spec"]["resourceClaims"] = [entry]
    given = write(tmp_path / "w.json", template, mates, job)
    done = simulate("--nodes=2", "--node-devices=1", "--workload", given, "-o", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = json.loads(done.stdout)["groups"]
    assert (told["runs"], told["placed"]) == (True, 3)


def test_a_workload_that_cannot_be_loaded(tmp_path):
    bad = workload("Deployment", "x", cpu="1")
    bad["spec"]["selector"] = {"matchLabels": {"app": "y"}}
    result = simulate("--nodes=1", "--workload", write(tmp_path / "w.json", bad))
    assert result.returncode == 2, result.stdout + result.stderr
    assert "w.json: document 1, items[0]: Deployment shop/x: Deployment.apps" in result.stderr
    assert "Traceback" not in result.stderr


def test_nothing_is_left_when_it_is_interrupted(tmp_path):
    given = write(tmp_path / "w.json", pod("p", "1", phase="Pending"))
    config = tmp_path / "config.yaml"
    # An extender that does not answer keeps it from coming to an end.
    with socket.create_server(("127.0.0.1", 0)) as extender:
        url = f"http://127.0.0.1:{extender.getsockname()[1]}"
        first = f"{HEAD}extenders: [{{urlPrefix: '{url}', filterVerb: f}}]\n"
        config.write_text(first + dry_run(url, "f"))
        arguments = ["app", "simulate", "--nodes=1", "--workload", given]
        arguments += ["--config", str(config), "--extenders"]
        process = Process(arguments, tmp_path / "log")
        try:
            extender.settimeout(WAIT_SECONDS)
            connection, _ = extender.accept()
            assert not psutil.Process(process.pid).children(recursive=True)
            process.send(signal.SIGINT)
            assert process.wait() == 2, process.output()
            connection.close()
            assert "Traceback" not in process.output()
        finally:
            process.kill()
