"""Helm on the embedded cluster, with a chart that has one object of each kind that ordinary charts have."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helm.chart import find_program
from tests.whole.harness import Cluster, Schedulers, running_cluster
from tests.whole.kubectl import NEEDS_KUBECTL, Kubectl

HELM = find_program()
CHART = Path(__file__).parent / "chart"
SECONDS = 120

pytestmark = [
    pytest.mark.whole,
    NEEDS_KUBECTL,
    pytest.mark.skipif(HELM is None, reason="there is no helm: 'make helm' builds it"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    flags = ("--nodes=2", "--start-delay=0.05", "--grace-factor=0.01", "--volumes")
    with running_cluster(tmp_path, *flags) as running:
        schedulers = Schedulers(running, tmp_path)
        schedulers.start(leaderElection={"leaderElect": False})
        yield running
        schedulers.end()
        assert "Traceback" not in running.process.output()


class Release:
    """A release of the chart."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(home),
        }

    def __call__(self, verb: str, *arguments: str) -> str:
        limits = ("--namespace=shop", "--wait", f"--timeout={SECONDS}s")
        done = subprocess.run(
            [str(HELM), verb, "shop", *arguments, *limits],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=2 * SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def test_a_chart_is_installed_upgraded_rolled_back_and_removed(
    cluster: Cluster, tmp_path: Path
) -> None:
    helm, kubectl = Release(cluster.kubeconfig, tmp_path), Kubectl(cluster.kubeconfig, tmp_path)
    kubectl.namespace = "shop"
    assert "STATUS: deployed" in helm("install", str(CHART), "--create-namespace")
    assert kubectl.rows("get", "deployment", "shop-web")[0][1] == "2/2"
    assert kubectl.rows("get", "statefulset", "shop-db")[0][1] == "2/2"
    assert kubectl.rows("get", "daemonset", "shop-agent")[0][1:4] == ["2", "2", "2"]
    assert kubectl.rows("get", "job", "shop-migrate")[0][1] == "Complete"
    assert {row[1] for row in kubectl.rows("get", "pvc")} == {"Bound"}
    check_services(kubectl)
    check_custom_resources(kubectl)

    upgraded = helm("upgrade", str(CHART), "--set=image=app:2,replicas=3")
    assert "REVISION: 2" in upgraded
    assert image(kubectl) == "app:2"
    assert kubectl.rows("get", "deployment", "shop-web")[0][1] == "3/3"
    assert kubectl.json("get", "widget", "shop")["spec"] == {"size": 3}

    helm("rollback", "1")
    assert image(kubectl) == "app:1"
    assert kubectl.rows("get", "deployment", "shop-web")[0][1] == "2/2"

    helm("uninstall", "--cascade=foreground")
    kinds = "deployments,statefulsets,daemonsets,replicasets,services,ingresses,hpa,pdb,widgets"
    assert kubectl("get", kinds, "-o", "name") == ""
    assert kubectl("get", "clusterroles", "-o", "name") == ""
    kubectl("delete", "crd", "widgets.example.com")
    assert kubectl.run("get", "widgets").code == 1


def image(kubectl: Kubectl) -> str:
    pods = kubectl.json("get", "pods", "-l", "app=web")["items"]
    (found,) = {
        pod["spec"]["containers"][0]["image"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }
    return str(found)


def check_services(kubectl: Kubectl) -> None:
    services = {each["metadata"]["name"]: each for each in kubectl.json("get", "services")["items"]}
    assert services["shop-db"]["spec"]["clusterIP"] == "None"
    addresses = {each["spec"]["clusterIP"] for each in services.values()}
    assert len(addresses) == len(services)
    ports = [services[f"shop-{kind}"]["spec"]["ports"][0] for kind in ("nodeport", "loadbalancer")]
    assert len({port["nodePort"] for port in ports}) == 2
    (ingress,) = services["shop-loadbalancer"]["status"]["loadBalancer"]["ingress"]
    assert ingress["ip"].startswith("198.18.")


def check_custom_resources(kubectl: Kubectl) -> None:
    assert kubectl.json("get", "wd", "shop")["apiVersion"] == "example.com/v1"
    older = kubectl.json("get", "widgets.v1beta1.example.com", "shop")
    assert (older["apiVersion"], older["spec"]) == ("example.com/v1beta1", {"size": 2})
    kubectl("wait", "crd/widgets.example.com", "--for=condition=Established")
    assert "How large it is." in kubectl("explain", "widget.spec")
    again = json.dumps(older | {"spec": {"size": 4}})
    kubectl("replace", "-f", "-", stdin=again)
    assert kubectl.json("get", "widget", "shop")["spec"] == {"size": 4}
    assert kubectl.json("get", "widget", "shop")["metadata"]["generation"] == 2
    kubectl("patch", "widget", "shop", "--type=merge", "-p", '{"spec":{"size":2}}')
