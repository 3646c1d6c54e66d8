"""Groups as controllers of training jobs make them, with the embedded cluster and with a real API server."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.whole.harness import ApiServer, Schedulers, running_cluster, wait_for
from tests.whole.real import NEEDS_REAL, RealApiServer
from tests.whole.training import (
    CUSTOM,
    SCHEDULER,
    Object,
    leader_worker_set,
    mpi_job,
    ray_cluster,
    ray_cluster_workload,
    ray_pod,
    train_job,
    training_job,
)

pytestmark = pytest.mark.whole

#: $PODGROUP_DEFINITION names another CustomResourceDefinition, for example that of the scheduler plugins.
DEFINITION = Path(
    os.environ.get("PODGROUP_DEFINITION", "tests/manifests/podgroups.scheduling.x-k8s.io.yaml")
).absolute()
PLURALS = {"Pod": "pods", "PodGroup": "podgroups", "Workload": "workloads"}
MERGE = "application/merge-patch+json"
NOW = {"gracePeriodSeconds": 0}
GATES = "GenericWorkload=true,GangScheduling=true"


class Server:
    """A server with two nodes of 4 CPUs and a scheduler; each test has a namespace of its own."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        account = {"metadata": {"name": "default"}}
        api.answer("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)

    def path(self, made: Object) -> str:
        version = made["apiVersion"]
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        return f"{root}/namespaces/{self.namespace}/{PLURALS[made['kind']]}"

    def make(self, *objects: Object) -> None:
        for each in objects:
            self.api.call("POST", self.path(each), each)

    def remove(self, *objects: Object) -> None:
        for each in objects:
            self.api.call("DELETE", f"{self.path(each)}/{each['metadata']['name']}", NOW)

    def change(self, made: Object, patch: Object) -> None:
        self.api.call("PATCH", f"{self.path(made)}/{made['metadata']['name']}", patch, MERGE)

    def status(self, made: Object) -> Object:
        found = self.api.call("GET", f"{self.path(made)}/{made['metadata']['name']}")
        status: Object = found.get("status") or {}
        return status

    def bound(self) -> set[str]:
        pods = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}

    def wait_bound(self, *pods: Object) -> None:
        names = {pod["metadata"]["name"] for pod in pods}
        wait_for(f"bindings of {names}", lambda: self.bound() >= names)

    def wipe(self) -> None:
        """So that the room is free for the next test."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        for pod in self.api.call("GET", path)["items"]:
            self.api.call("DELETE", f"{path}/{pod['metadata']['name']}", NOW)


@contextlib.contextmanager
def scheduled(api: ApiServer, directory: Path) -> Iterator[None]:
    schedulers = Schedulers(api, directory)
    try:
        profiles = [{"schedulerName": "default-scheduler"}, {"schedulerName": SCHEDULER}]
        schedulers.start(f"--feature-gates={GATES}", profiles=profiles)
        api.create_nodes(2, cpu="4")
        yield
    finally:
        schedulers.end()


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=[*NEEDS_REAL])])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The API server with the custom PodGroups and those of Kubernetes 1.36."""
    directory = tmp_path_factory.mktemp("training")
    with contextlib.ExitStack() as stack:
        flags = ("--runtime-config=scheduling.k8s.io/v1alpha2=true", f"--feature-gates={GATES}")
        running: ApiServer
        if request.param == "real":
            running = stack.enter_context(RealApiServer(directory, *flags).running())
        else:
            running = stack.enter_context(running_cluster(directory, *flags))
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        running.call("POST", definitions, yaml.safe_load(DEFINITION.read_text()))
        groups = f"/apis/{CUSTOM}/podgroups"
        wait_for("the kind", lambda: running.answer("GET", groups)[0] == 200)
        stack.enter_context(scheduled(running, directory))
        yield running


@pytest.fixture
def server(api: ApiServer) -> Iterator[Server]:
    made = Server(api, f"test-{len(api.call('GET', '/api/v1/namespaces')['items'])}")
    yield made
    made.wipe()


@pytest.mark.parametrize("job", [ray_cluster, mpi_job, training_job, train_job])
def test_a_job_runs_once_all_of_it_has_room(server: Server, job: Any) -> None:
    group, pods = job("job", 10)
    server.make(group, *pods)
    wait_for("a verdict", lambda: server.status(group).get("phase") == "Scheduling")
    assert not server.bound()
    server.wipe()
    group, pods = job("other", 3)
    *most, last = pods
    server.make(*most, group)
    server.make(last)
    server.wait_bound(*pods)
    wait_for("the phase", lambda: server.status(group).get("phase") == "Scheduled")


@pytest.mark.parametrize("version", ["v1alpha2"])
def test_a_ray_cluster_with_a_workload(server: Server, version: str) -> None:
    made, pods = ray_cluster_workload("ray", version, 3)
    server.make(*made, *pods)
    server.wait_bound(*pods)
    conditions = wait_for("a condition", lambda: server.status(made[1]).get("conditions"))
    assert [each["status"] for each in conditions] == ["True"]


def test_a_worker_that_is_restarted_joins_alone(server: Server) -> None:
    group, pods = training_job("job", 3)
    server.make(group, *pods)
    server.wait_bound(*pods)
    server.remove(pods[-1])
    server.make(pods[-1])
    server.wait_bound(*pods)


def test_workers_that_an_autoscaler_adds_join_alone(server: Server) -> None:
    group, pods = ray_cluster("ray", 2)
    server.make(group, *pods)
    server.wait_bound(*pods)
    more = [ray_pod("ray", "worker", f"worker-{i}") for i in range(2, 12)]
    server.make(*more)
    wait_for("a full cluster", lambda: len(server.bound()) == 8)


def test_a_group_that_is_deleted_before_its_pods(server: Server) -> None:
    group, pods = mpi_job("mpi", 2)
    server.make(group, *pods)
    server.wait_bound(*pods)
    server.remove(group)
    *others, worker = pods
    server.remove(worker)
    server.make(worker)
    other, alone = ray_cluster("ray", 1)
    server.make(other, *alone)
    server.wait_bound(*alone)
    assert worker["metadata"]["name"] not in server.bound(), "its group does not exist"
    server.make(group)
    server.wait_bound(worker, *others)


def test_a_job_that_is_suspended_and_comes_back_smaller(server: Server) -> None:
    """The controller deletes the pods, changes minMember, and makes fewer pods."""
    group, pods = training_job("job", 3)
    server.make(group, *pods)
    server.wait_bound(*pods)
    server.remove(*pods)
    server.make(pods[0], pods[1])
    other, alone = ray_cluster("ray", 1)
    server.make(other, *alone)
    server.wait_bound(*alone)
    assert pods[0]["metadata"]["name"] not in server.bound(), "two of four pods exist"
    server.change(group, {"spec": {"minMember": 2}})
    server.wait_bound(pods[0], pods[1])


def test_a_leader_and_its_workers(tmp_path: Path) -> None:
    flags = (
        "--runtime-config=scheduling.k8s.io/v1beta1=true",
        "--feature-gates=GenericWorkload=true",
    )
    with running_cluster(tmp_path, *flags) as cluster, scheduled(cluster, tmp_path):
        server = Server(cluster, "lws")
        groups, pods = leader_worker_set("lws", 4)
        server.make(*groups, *pods)
        server.wait_bound(*pods)
        made, others = ray_cluster_workload("ray", "v1beta1", 8)
        server.make(*made, *others)
        wait_for("a verdict", lambda: server.status(made[1]).get("conditions"))
        assert not server.bound() & {pod["metadata"]["name"] for pod in others}
        server.change(made[1], {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}})
        wait_for("a smaller cluster", lambda: len(server.bound()) == 8)
