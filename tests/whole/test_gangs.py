"""Pod groups, with the embedded cluster and the scheduler as processes of their own."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.markdown import ROOT, blocks
from tests.whole.harness import Cluster, Schedulers, pod, running_cluster, wait_for

pytestmark = pytest.mark.whole

GATES = "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true"
PODS = "/api/v1/namespaces/default/pods"


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
