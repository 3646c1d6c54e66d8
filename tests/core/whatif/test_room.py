"""The room of all nodes at once is how many pods fit when they are placed one after another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cycle.attempt import Attempt, Unfit
from app.cycle.room import room_of
from app.framework.testing import make_pod
from app.runtime.tasks import at_once
from tests.core.scheduler.full_state import FullState

amounts = st.integers(0, 9)
nodes = st.lists(
    st.fixed_dictionaries(
        {"cpu": amounts, "memory": amounts, "pods": st.integers(0, 12), "taken": st.integers(0, 3)}
    ),
    max_size=6,
)
REQUESTS = [{}, {"cpu": "1"}, {"cpu": "700m", "memory": "2Gi"}, {"memory": "3Gi"}]


def filled(rows):
    full = FullState()
    for number, row in enumerate(rows):
        offered = {"cpu": str(row["cpu"]), "memory": f"{row['memory']}Gi", "pods": str(row["pods"])}
        full.node(f"n{number}", status={"allocatable": offered})
        for taken in range(row["taken"]):
            spec = {"nodeName": f"n{number}", "containers": [box({"cpu": "300m"})]}
            full.store(make_pod(f"taken-{number}-{taken}", spec=spec))
    return full


def box(requests, **more):
    return {"name": "main", "resources": {"requests": requests}} | more


def room(full, pod, most=1000):
    return at_once(room_of(full.framework, full.state.table, pod, full.state.nominated_for, most))


def placed_one_by_one(full, make):
    """How many go, and the message of the first that does not."""
    for number in range(200):
        pod = make(number)
        full.store(pod)
        attempt = Attempt(
            full.framework, full.state.table, pod, nominated=full.state.nominated_for, rng=full.rng
        )
        try:
            choice = attempt.choose(attempt.find())
        except Unfit as unfit:
            return number, str(unfit)
        full.state.assume(pod, choice.node_name)
    raise AssertionError("there is room without end")


@given(nodes.filter(bool), st.sampled_from(REQUESTS), st.booleans())
def test_the_room_is_what_fits(rows, requests, port):
    ports = {"ports": [{"containerPort": 80, "hostPort": 8080}]} if port else {}
    spec = {"containers": [box(requests, **ports)]}
    full = filled(rows)
    found = room(full, make_pod("asked", spec=spec))
    count, message = placed_one_by_one(full, lambda i: make_pod(f"new-{i}", spec=spec))
    assert found.by_row.sum() == count
    assert found.diagnosis.message() == message


def test_no_more_is_counted_than_asked_for():
    full = filled([{"cpu": 9, "memory": 9, "pods": 100, "taken": 0}] * 2)
    found = room(full, make_pod("asked"), most=7)
    assert found.by_row[:2].tolist() == [7, 7]


def test_nominated_pods_keep_their_room():
    full = filled([{"cpu": 4, "memory": 9, "pods": 100, "taken": 0}])
    spec = {"containers": [box({"cpu": "1"})]}
    waiting = make_pod("waiting", spec=spec)
    full.store(waiting)
    full.state.nominate(waiting, "n0")
    assert room(full, make_pod("asked", spec=spec)).by_row.sum() == 3


@pytest.mark.parametrize(
    "spec",
    [
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule",
                                        "labelSelector": {"matchLabels": {"a": "b"}}}]},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}}]}}},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    ],
    ids=["spread", "anti-affinity", "volume"],
)  # fmt: skip
def test_what_looks_across_nodes_or_volumes_cannot_be_told(spec):
    full = filled([{"cpu": 4, "memory": 9, "pods": 100, "taken": 0}])
    full.node("n1", labels={"z": "a"})
    assert room(full, make_pod("asked", labels={"a": "b"}, spec=spec)) is None


def test_thousands_of_nodes_take_several_steps():
    full = FullState()
    for number in range(2100):
        full.node(f"n{number}")
    spec = {"containers": [box({"cpu": "1"})]}
    found = room(full, make_pod("asked", spec=spec))
    assert found.by_row.sum() == 4 * 2100
    assert np.count_nonzero(found.by_row) == 2100
