"""The cluster that a benchmark fills."""

import pytest

from app.sim.api import Api
from app.sim.resources.kinds import NAMESPACES, NODES, PODS
from tests.bench import workload
from tests.bench.server import fill

LOAD = {
    "nodes": 4,
    "pods": 2,
    "backlog": 2,
    "apart_every": 3,
    "zones": 2,
    "padding": 0,
    "gangs": workload.Gangs(),
}


@pytest.mark.parametrize("shape", ["basic", "preemption"])
def test_running_pods_are_as_if_each_was_admitted(shape):
    api = filled(shape, existing=12)
    admitted = new_api()
    if shape == "preemption":
        for value in workload.surroundings(shape, nodes=0, pods=0):
            admitted.create(admitted.kinds.by_type[value["apiVersion"], value["kind"]], "", value)
    for number in range(12):
        pod = workload.existing_pod(number, nodes=4, shape=shape, apart_every=3)
        expected = admitted.create(PODS, "default", pod).value
        found = api.get(PODS, "default", pod["metadata"]["name"]).value
        assert without_identity(found) == without_identity(expected)
    uids = {record.value["metadata"]["uid"] for record in api.store[PODS.storage].ordered()}
    assert len(uids) == 14


def test_there_are_nodes_running_pods_and_a_backlog():
    api = filled("basic", existing=5)
    assert (api.store[NODES.storage].count(), api.store[PODS.storage].count()) == (4, 7)


def new_api() -> Api:
    api = Api(now=lambda: 0.0)
    api.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    return api


def filled(shape: str, *, existing: int) -> Api:
    api = new_api()
    fill(api, shape=shape, existing=existing, **LOAD)
    return api


def without_identity(pod: dict) -> dict:
    metadata = {
        name: part
        for name, part in pod["metadata"].items()
        if name not in ("uid", "resourceVersion")
    }
    return pod | {"metadata": metadata}
