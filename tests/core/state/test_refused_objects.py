"""Whatever fails while an object is taken over costs that object only: the state is as if it were not there."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.objects import Node, ObjectMeta
from app.model.pod import Pod
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.state.cache import Cache
from app.state.cluster import Cluster
from app.state.nominator import Nominator
from app.state.queue.queued_pod import Place
from app.state.queue.scheduling_queue import QueuePlugins, SchedulingQueue
from app.state.scheduler_state import Change, RefusedObject, SchedulerState
from app.state.table import NodeTable
from tests.core.state.test_scheduler_state import (
    KINDS_OF_PODS,
    LABELS,
    NODES,
    facts,
    new_pod,
    new_state,
    node,
    popped,
)


class FaultError(Exception):
    """What must not get out."""


class Picky:
    """An index of the node table that cannot count some pods: those with any label, of these uids."""

    def __init__(self, uids):
        self.uids = uids
        self.rows = {}

    def add(self, pod, row):
        if pod.uid in self.uids and pod.spec.scheduler_name:
            raise FaultError(pod.uid)
        self.rows[pod.uid] = row

    def remove(self, pod, row):
        assert self.rows.pop(pod.uid) == row

    def grow(self, capacity):
        pass


class AfterPicky(Picky):
    """One that hears of pods after the picky one."""


def state_with_index(uids):
    state = new_state()
    picky = state.table.index(Picky, lambda: Picky(uids))
    state.table.index(AfterPicky, lambda: AfterPicky(()))
    return state, picky


def refused(commands):
    return [command.key for command in commands if isinstance(command, RefusedObject)]


def apply(state, old, new):
    return state.apply(Change(type(new or old), old, new), 1.0)


def check(state, nodes=()):
    """The table is one of the pods in the cache, and the indexes know the same."""
    fresh = NodeTable()
    for each in nodes:
        fresh.set_node(each)
    for pod in state.cache:
        fresh.add_pod(pod)
    assert facts(state.table) == facts(fresh)
    for index in (state.table.index(kind, kind) for kind in (Picky, AfterPicky)):
        assert index.rows == {pod.uid: state.table.row_of[pod.node_name] for pod in state.cache}


@given(st.lists(KINDS_OF_PODS, max_size=12), st.sets(st.integers(0, 11)), st.booleans())
def test_pods_that_cannot_be_counted_take_their_room(kinds, bad, at_once):
    pods = [new_pod(number, *kind) for number, kind in enumerate(kinds)]
    state, _ = state_with_index({f"u{number}" for number in bad})
    if at_once:
        commands = state.apply_new(Pod, {pod.key: pod for pod in pods}, 1.0)
    else:
        commands = [command for pod in pods for command in apply(state, None, pod)]
    bound = [pod for pod in pods if pod.node_name]
    assert refused(commands) == [pod.key for pod in bound if int(pod.uid[1:]) in bad]
    check(state)
    for pod in bound:
        known = state.cache.get(pod.uid)
        assert known.resources == pod.resources
        assert known.template.host_ports == pod.template.host_ports
        assert (known is pod) == (int(pod.uid[1:]) not in bad)
    assert popped(state) == [pod for pod in pods if not pod.node_name]


@given(st.data())
def test_versions_come_and_go(data):
    """A pod may be counted in one version and not in the next."""
    uids = set()
    state, _ = state_with_index(uids)
    known = {}
    for step in range(data.draw(st.integers(1, 12))):
        number = data.draw(st.integers(0, 2))
        old = known.get(number)
        (uids.add if data.draw(st.booleans()) else uids.discard)(f"u{number}")
        where = data.draw(st.sampled_from(["", "node-1"])) if old is None else old.node_name
        gone = old is not None and data.draw(st.booleans())
        new = None
        if not gone:
            made = new_pod(
                number, data.draw(st.integers(0, 4)), data.draw(st.sampled_from(LABELS)), where
            )
            new = known[number] = msgspec.structs.replace(made, resource_version=str(step))
        else:
            del known[number]
        apply(state, old, new)
        check(state)
        there = {pod.uid for pod in state.cache}
        assert there == {pod.uid for pod in known.values() if pod.node_name}
        waiting = {pod.uid for pod in state.queue.pending_pods()}
        assert waiting == {pod.uid for pod in known.values() if not pod.node_name}


def test_a_pod_of_which_not_even_the_room_can_be_counted_is_not_there():
    class Closed(Picky):
        def add(self, pod, row):
            if pod.uid in self.uids:
                raise FaultError(pod.uid)
            super().add(pod, row)

    state = new_state()
    state.table.index(Closed, lambda: Closed({"u1"}))
    bad, good = new_pod(1, 0, LABELS[0], "node-1"), new_pod(2, 0, LABELS[0], "node-2")
    assert refused(state.apply_new(Pod, {bad.key: bad, good.key: good}, 1.0)) == [bad.key]
    assert state.cache.get("u1") is None
    assert bad.key not in state.pods
    assert list(state.table.row_of) == ["node-2"]
    state.table.index(Closed, dict).uids.clear()
    later = msgspec.structs.replace(bad, resource_version="9")
    assert not apply(state, bad, later)
    assert state.cache.get("u1") is later
    assert not apply(state, later, None)
    assert state.cache.get("u1") is None


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.booleans(), st.booleans())
def test_pods_that_cannot_be_ranked_do_not_wait(bad, at_once, compare):
    """Whether no rank is found, or one that is not comparable with others."""

    def rank(queued):
        if bad[int(queued.pod.uid[1:])]:
            if compare:
                return ("text",)
            raise FaultError
        return (queued.timestamp,)

    state = state_with_rank(rank)
    pods = [new_pod(number, 0, LABELS[0], "") for number in range(len(bad))]
    if at_once:
        commands = state.apply_new(Pod, {pod.key: pod for pod in pods}, 1.0)
    else:
        commands = [command for pod in pods for command in apply(state, None, pod)]
    queue = state.queue
    out = {pod.key for pod in pods if queue.where(pod.uid) is Place.OUTSIDE}
    assert set(refused(commands)) == out
    if not compare:
        assert out == {pod.key for pod in pods if bad[int(pod.uid[1:])]}
    assert {pod.key for pod in queue.pending_pods()} == {pod.key for pod in pods} - out
    assert queue.count(Place.ACTIVE) == len(queue) == len(pods) - len(out)
    assert state.pods.keys() == {pod.key for pod in pods} - out
    for pod in pods:
        apply(state, pod, None)
    assert not state.pods
    assert len(queue) == 0
    assert not state._refused


def state_with_rank(rank):
    pods = {}
    return SchedulerState(
        cache=Cache(NodeTable()),
        cluster=Cluster(),
        pods=pods,
        queue=SchedulingQueue(QueuePlugins(rank), Nominator(pods)),
        profiles=["default-scheduler"],
    )


@pytest.mark.parametrize("column", ["labels", "taints", "images"])
@pytest.mark.parametrize("known", [False, True])
def test_a_node_that_cannot_be_taken_over_is_not_used(column, known, monkeypatch):
    state, _ = state_with_index(())
    resident = new_pod(1, 2, LABELS[0], NODES[0])
    apply(state, None, resident)
    old = node(NODES[0], 1)
    if known:
        apply(state, None, old)
    bad = node(NODES[0], 7)

    kind = type(getattr(state.table, column))
    real = kind.set

    def fail(self, row, new):
        if new:
            raise FaultError
        real(self, row, new)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "set", fail)
        assert refused(apply(state, old if known else None, bad)) == [NODES[0]]
    assert state.table.node_count == 0
    check(state)
    later = node(NODES[0], 3)
    assert not apply(state, bad, later)
    check(state, [later])
    assert not apply(state, later, None)
    check(state)


@pytest.mark.parametrize("deletion", [False, True])
def test_an_object_that_a_follower_cannot_take_over_is_not_there(deletion):
    state = new_state()
    lister = state.cluster.lister(PersistentVolume)
    heard, faulty = [], []

    def fails(old, new):
        if faulty:
            raise FaultError

    lister.follow(fails)
    lister.follow(lambda old, new: heard.append((old, new)))
    first, second, third = (
        PersistentVolume(metadata=ObjectMeta(name="v", resource_version=str(number)))
        for number in range(3)
    )
    assert not apply(state, None, first)
    faulty.append(True)
    assert refused(apply(state, first, None if deletion else second)) == ["v"]
    assert lister.get("v") is None
    assert heard[1:] == ([(first, None)] if deletion else [(first, second), (second, None)])
    faulty.clear()
    assert not apply(state, None if deletion else second, third)
    assert lister.get("v") is third
    assert heard[-1] == (None, third)


def test_one_of_a_list_keeps_no_other_out():
    state = new_state()

    def fails(old, new):
        if new is not None and new.name == "b":
            raise FaultError

    state.cluster.lister(PersistentVolumeClaim).follow(fails)
    claims = {
        f"ns/{name}": PersistentVolumeClaim(metadata=ObjectMeta(name=name, namespace="ns"))
        for name in "abc"
    }
    assert refused(state.apply_new(PersistentVolumeClaim, claims, 1.0)) == ["ns/b"]
    assert [claim.name for claim in state.cluster.lister(PersistentVolumeClaim)] == ["a", "c"]


def test_nodes_of_a_list(monkeypatch):
    state = new_state()
    real = type(state.table.taints).set

    def fail(self, row, taints):
        if taints and self is state.table.taints and state.table.names[row] == NODES[1]:
            raise FaultError
        return real(self, row, taints)

    monkeypatch.setattr(type(state.table.taints), "set", fail)
    nodes = {name: node(name, 1) for name in NODES}
    assert refused(state.apply_new(Node, nodes, 1.0)) == [NODES[1]]
    assert sorted(state.table.names_of(state.table.live_rows())) == [NODES[0], *NODES[2:]]
