"""Pod groups, with the embedded cluster and the scheduler as processes of their own."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from extenders.kit import Filtered, NodesRequest, make_app
from extenders.kit.testing import serving
from extenders.python.blocks import application as block_extender
from tests.markdown import ROOT, blocks, commands
from tests.whole.harness import Cluster, Process, Schedulers, pod, running_cluster, wait_for

pytestmark = pytest.mark.whole

GATES = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"
PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"


def condition(cluster: Cluster, path: str, type_: str) -> dict[str, Any]:
    status = cluster.call("GET", path).get("status") or {}
    return next((each for each in status.get("conditions", ()) if each["type"] == type_), {})


@pytest.mark.parametrize(
    ("version", "gates", "type_"),
    [
        ("v1alpha2", "GenericWorkload=true,GangScheduling=true", "PodGroupScheduled"),
        ("v1beta1", "GenericWorkload=true", "PodGroupInitiallyScheduled"),
    ],
)
def test_a_gang_of_each_version(tmp_path: Path, version: str, gates: str, type_: str) -> None:
    served = f"--runtime-config=scheduling.k8s.io/{version}=true"
    with running_cluster(tmp_path, served, f"--feature-gates={gates}") as cluster:
        schedulers = Schedulers(cluster, tmp_path)
        try:
            schedulers.start(f"--feature-gates={gates}")
            cluster.create_nodes(1, cpu="2")
            groups = f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"
            policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
            cluster.call("POST", groups, {"metadata": {"name": "g"}, "spec": policy})
            for number in range(3):
                spec = {"schedulingGroup": {"podGroupName": "g"}}
                cluster.call("POST", PODS, pod(f"p{number}", cpu="1", **spec))
            wait_for("a verdict", lambda: condition(cluster, f"{groups}/g", type_))
            assert condition(cluster, f"{groups}/g", type_)["reason"] == "Unschedulable"
            assert not any(each["spec"].get("nodeName") for each in cluster.pods().values())
            more = {
                "metadata": {"name": "more"},
                "status": {"allocatable": {"cpu": "2", "pods": "9"}},
            }
            cluster.call("POST", "/api/v1/nodes", more)
            wait_for("the gang", lambda: cluster.all_bound(3))
            wait_for(
                "the condition",
                lambda: condition(cluster, f"{groups}/g", type_).get("status") == "True",
            )
        finally:
            schedulers.end()


def test_the_pods_of_a_group_share_its_claim(tmp_path: Path) -> None:
    """They run where its devices are; when none of them has a node, it may get other devices (KEP-5729)."""
    gates = "--feature-gates=GenericWorkload=true,DRAWorkloadResourceClaims=true"
    served = "--runtime-config=scheduling.k8s.io/v1beta1=true"
    nodes = ("--nodes=2", "--node-devices=1")
    entry = {"name": "gpu", "resourceClaimTemplateName": "gpu"}
    with running_cluster(tmp_path, served, gates, *nodes, "--emulated-version=1.37") as cluster:
        schedulers = Schedulers(cluster, tmp_path)
        try:
            schedulers.start(gates)
            request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}
            template = {"spec": {"devices": {"requests": [request]}}}
            claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaim"
            cluster.call(
                "POST", f"{claims}templates", {"metadata": {"name": "gpu"}, "spec": template}
            )
            groups = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
            policy = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": [entry]}
            cluster.call("POST", groups, {"metadata": {"name": "g"}, "spec": policy})

            def run(*names: str) -> str:
                """The node of pods that are made."""
                for name in names:
                    spec = {"schedulingGroup": {"podGroupName": "g"}, "resourceClaims": [entry]}
                    cluster.call("POST", PODS, pod(name, **spec))
                wait_for("the gang", lambda: cluster.all_bound(len(names)))
                (node,) = {each["spec"]["nodeName"] for each in cluster.pods().values()}
                return str(node)

            def status() -> dict[str, Any]:
                (claim,) = cluster.call("GET", f"{claims}s")["items"]
                (consumer,) = claim["status"]["reservedFor"]
                assert (consumer["resource"], consumer["name"]) == ("podgroups", "g")
                (device,) = claim["status"]["allocation"]["devices"]["results"]
                return {"pool": device["pool"]}

            first = run("a", "b")
            assert status() == {"pool": first}
            for name in ("a", "b"):
                cluster.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            wait_for("their end", lambda: not cluster.pods())
            cordoned = {"spec": {"unschedulable": True}}
            cluster.call("PATCH", f"/api/v1/nodes/{first}", cordoned, MERGE)
            assert status() == {"pool": first}, "the group keeps it"
            second = run("c", "d")
            assert second != first
            assert status() == {"pool": second}
        finally:
            schedulers.end()


def test_the_example_with_a_topology_constraint_runs_in_one_rack(tmp_path: Path) -> None:
    [text] = [
        block.text
        for block in blocks(ROOT / "docs" / "gangs.md")
        if block.language == "yaml" and "schedulingConstraints" in block.text
    ]
    group, job = yaml.safe_load_all(text)
    version = group["apiVersion"]
    groups = f"/apis/{version}/namespaces/default/podgroups"
    gates = f"--feature-gates={GATES}"
    with running_cluster(tmp_path, f"--runtime-config={version}=true", gates) as cluster:
        schedulers = Schedulers(cluster, tmp_path)
        try:
            for number, rack in enumerate("aaabbb-"):
                labels = {} if rack == "-" else {"example.com/rack": rack}
                amounts = {"cpu": "2" if labels else "32", "memory": "8Gi", "pods": "9"}
                node = {"metadata": {"name": f"n{number}", "labels": labels}}
                cluster.call("POST", "/api/v1/nodes", node | {"status": {"allocatable": amounts}})
            schedulers.start(gates)
            cluster.call("POST", groups, group)
            cluster.call("POST", "/apis/batch/v1/namespaces/default/jobs", job)
            where, type_ = f"{groups}/{group['metadata']['name']}", "PodGroupScheduled"
            wait_for("a verdict", lambda: condition(cluster, where, type_))
            assert condition(cluster, where, type_)["message"] == (
                "0/2 placements are available, first placement status: pod group is unschedulable"
            )
            labels = {"example.com/rack": "b"}
            more = {"metadata": {"name": "more", "labels": labels}}
            amounts = {"cpu": "2", "memory": "8Gi", "pods": "9"}
            cluster.call("POST", "/api/v1/nodes", more | {"status": {"allocatable": amounts}})
            wait_for("the gang", lambda: cluster.all_bound(4))
            nodes = {each["spec"]["nodeName"] for each in cluster.pods().values()}
            assert nodes == {"n3", "n4", "n5", "more"}
        finally:
            schedulers.end()


GUIDE = ROOT / "docs" / "gangs.md"
DEFINITION = ROOT / "tests" / "manifests" / "podgroups.scheduling.x-k8s.io.yaml"
EXTENDER = "http://127.0.0.1:8888"


def example(heading: str) -> list[str]:
    """The blocks of YAML below a heading of the guide."""
    lines = GUIDE.read_text().splitlines()
    first = lines.index(f"### {heading}") + 1
    last = next(i for i in range(first, len(lines)) if lines[i].startswith("##"))
    found = [each for each in blocks(GUIDE) if first <= each.line <= last]
    return [each.text for each in found if each.language == "yaml"]


def flags(command: str) -> Iterator[str]:
    """The flags that the guide gives a command, without those for files and nodes."""
    (said,) = (each for each in commands(GUIDE) if f"aiokube-scheduler {command} " in f"{each} ")
    wanted = ("--feature-gates", "--runtime-config")
    return (each for each in shlex.split(said) if each.startswith(wanted))


def pods_of(objects: list[dict[str, Any]]) -> int:
    return sum(
        each["spec"].get("replicas") or each["spec"]["completions"]
        for each in objects
        if each["kind"] != "PodGroup"
    )


@pytest.mark.parametrize(
    "heading",
    [
        "A Job and a PodGroup of Kubernetes",
        "What a trainer makes: a PodGroup of the scheduler plugins",
        "With an extender",
    ],
)
def test_the_examples_of_the_guide(tmp_path: Path, heading: str) -> None:
    *configurations, text = example(heading)
    (tmp_path / "objects.yaml").write_text(text)
    objects = list(yaml.safe_load_all(text))
    asked: set[str] = set()

    def filter_(request: NodesRequest) -> Filtered:
        asked.add(request.pod.name)
        return Filtered(request.names)

    loaded = ("--load", str(DEFINITION), "--load", str(tmp_path / "objects.yaml"))
    with (
        serving(make_app(filter=filter_)) as url,
        running_cluster(tmp_path, "--nodes=2", *flags("apiserver"), *loaded) as cluster,
    ):
        schedulers, process = Schedulers(cluster, tmp_path), None
        try:
            if configurations:
                documents = list(yaml.safe_load_all(configurations[0].replace(EXTENDER, url)))
                client = {"kubeconfig": str(cluster.kubeconfig)}
                documents[0]["clientConnection"] = client
                file = tmp_path / "scheduler.yaml"
                file.write_text(yaml.safe_dump_all(documents))
                start = ["app", "run", f"--config={file}", "--secure-port=0"]
                process = Process(start, tmp_path / "scheduler.log")
            else:
                schedulers.start(*flags("run"))
            wait_for("the pods", lambda: cluster.all_bound(pods_of(objects)))
            assert bool(asked) == bool(configurations)
        finally:
            if process is not None:
                process.kill()
            schedulers.end()


def test_a_gang_evicts_another_one_whole(tmp_path: Path) -> None:
    gates = "--feature-gates=GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true"
    served = "--runtime-config=scheduling.k8s.io/v1alpha2=true"
    groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    with running_cluster(tmp_path, served, gates) as cluster:
        schedulers = Schedulers(cluster, tmp_path)
        try:
            schedulers.start(gates)
            cluster.create_nodes(3, cpu="2")
            for name, value in (("low", 10), ("high", 1000)):
                cluster.call("POST", classes, {"metadata": {"name": name}, "value": value})

            def gang(name: str, priority: str, size: int, minimum: int) -> None:
                spec = {
                    "schedulingPolicy": {"gang": {"minCount": minimum}},
                    "disruptionMode": "PodGroup",
                    "priorityClassName": priority,
                }
                cluster.call("POST", groups, {"metadata": {"name": name}, "spec": spec})
                for number in range(size):
                    more = {
                        "schedulingGroup": {"podGroupName": name},
                        "priorityClassName": priority,
                        "terminationGracePeriodSeconds": 1,
                    }
                    cluster.call("POST", PODS, pod(f"{name}{number}", cpu="2", **more))

            gang("low", "low", 3, 3)
            wait_for("the first gang", lambda: cluster.all_bound(3))
            gang("large", "high", 4, 4)
            wait_for(
                "a verdict", lambda: condition(cluster, f"{groups}/large", "PodGroupScheduled")
            )
            assert cluster.pods().keys() >= {"low0", "low1", "low2"}
            gang("high", "high", 2, 2)

            def outcome() -> set[str]:
                return {name for name, one in cluster.pods().items() if one["spec"].get("nodeName")}

            wait_for("the second gang", lambda: outcome() == {"high0", "high1"})
        finally:
            schedulers.end()


def test_an_extender_is_asked_about_each_group_with_one_call(tmp_path: Path) -> None:
    """Two groups, each in a block of its own, by the sample extender with the group verb."""
    gates = "--feature-gates=GenericWorkload=true,GangScheduling=true"
    served = "--runtime-config=scheduling.k8s.io/v1alpha2=true"
    groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
    nodes = {f"{block}{number}": block for block in "ab" for number in range(2)}
    with (
        serving(block_extender(nodes)) as url,
        running_cluster(tmp_path, "--nodes=0", served, gates) as cluster,
    ):
        extender = {"urlPrefix": url}
        second = {"urlPrefix": url, "groupVerb": "group", "releaseVerb": "release"}
        documents = [
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
                "leaderElection": {"leaderElect": False},
                "extenders": [extender],
            },
            {
                "apiVersion": "aiokube-scheduler.io/v1alpha1",
                "kind": "AiokubeSchedulerConfiguration",
                "extenders": [second],
            },
        ]
        file = tmp_path / "scheduler.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        start = ["app", "run", f"--config={file}", "--secure-port=0", gates]
        process = Process(start, tmp_path / "scheduler.log")
        try:
            for name in nodes:
                allocatable = {"cpu": "8", "pods": "9"}
                node = {"metadata": {"name": name}, "status": {"allocatable": allocatable}}
                cluster.call("POST", "/api/v1/nodes", node)
            for group in ("one", "two"):
                policy = {"schedulingPolicy": {"gang": {"minCount": 4}}}
                cluster.call("POST", groups, {"metadata": {"name": group}, "spec": policy})
                for number in range(4):
                    spec = {"schedulingGroup": {"podGroupName": group}}
                    cluster.call("POST", PODS, pod(f"{group}-{number}", cpu="1", **spec))
            wait_for("the pods", lambda: cluster.all_bound(8))
            blocks_of = {
                group: {
                    nodes[each["spec"]["nodeName"]]
                    for name, each in cluster.pods().items()
                    if name.startswith(group)
                }
                for group in ("one", "two")
            }
            assert sorted(map(sorted, blocks_of.values())) == [["a"], ["b"]]
        finally:
            process.kill()
