"""After any sequence of events every pod is in exactly one place, and the table equals one rebuilt from scratch."""

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.model.cluster_event import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE
from app.model.objects import (
    Container,
    ContainerImage,
    ContainerPort,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    PodSpec,
    ResourceRequirements,
    Taint,
)
from app.model.pod import LabelSet, Pod, PodTemplate
from app.state.cache import Cache
from app.state.cluster import Cluster
from app.state.columns.resources import ResourceColumns
from app.state.nominator import Nominator
from app.state.queue.hints import EventRegistration
from app.state.queue.queued_pod import Place, QueuedPod
from app.state.queue.scheduling_queue import QueuePlugins, SchedulingQueue
from app.state.scheduler_state import Change, SchedulerState
from app.state.table import NodeTable
from tests.core.state.queue_kit import registered

NODES = [f"node-{i}" for i in range(4)]
LABELS = [LabelSet({"app": "web"}), LabelSet({"app": "db"}), LabelSet({})]


def template(cpu: str, port: int = 0, **extra: str) -> PodTemplate:
    ports = (ContainerPort(host_port=port),) if port else None
    container = Container(
        name="c", resources=ResourceRequirements(requests={"cpu": cpu, **extra}), ports=ports
    )
    return PodTemplate(PodSpec(scheduler_name="default-scheduler", containers=(container,)))


TEMPLATES = [template("100m"), template("1"), template("2", 80), PodTemplate(PodSpec(scheduler_name="default-scheduler")),
             template("1", **{"example.com/gpu": "1"})]  # fmt: skip


#: Template, labels, node name.
KINDS_OF_PODS = st.tuples(
    st.integers(0, len(TEMPLATES) - 1),
    st.sampled_from(LABELS),
    st.sampled_from(["", "", *NODES, "unknown"]),
)


def new_pod(number: int, which: int, labels: LabelSet, node_name: str) -> Pod:
    return Pod(
        "ns",
        f"p{number}",
        f"u{number}",
        TEMPLATES[which],
        labels,
        str(number),
        node_name=node_name,
    )


def node(name: str, version: int) -> Node:
    labels = {"zone": f"z{version % 3}"} if version % 4 else {}
    return Node(
        metadata=ObjectMeta(name=name, resource_version=str(version), labels=labels),
        spec=NodeSpec(
            unschedulable=version % 5 == 0,
            taints=(Taint("k", "v", "NoSchedule"),) if version % 2 else None,
        ),
        status=NodeStatus(
            allocatable={
                "cpu": str(version % 7 + 1),
                "memory": "1Gi",
                "pods": "10",
                "example.com/gpu": "2",
            },
            images=(ContainerImage((f"img-{version % 3}",), 1000),) if version % 3 else None,
        ),
    )


def _rank(queued: QueuedPod) -> tuple[int, float]:
    return -queued.pod.priority, queued.timestamp


def new_state(*hints: EventRegistration) -> SchedulerState:
    pods: dict[str, Pod] = {}
    plugins = QueuePlugins(_rank, hints={"default-scheduler": hints})
    return SchedulerState(
        cache=Cache(NodeTable()),
        cluster=Cluster(),
        pods=pods,
        queue=SchedulingQueue(plugins, Nominator(pods)),
        profiles=["default-scheduler"],
    )


def amounts(columns: ResourceColumns, row: int) -> dict[str, int]:
    """The amounts of a row, other than 0."""
    found = {name: int(columns.column(name)[row]) for name in columns.names}
    return {name: amount for name, amount in found.items() if amount}


def facts(table: NodeTable) -> dict[str, object]:
    """Everything the table says, by node name, whatever its rows."""
    counter = table.families.counter("web", lambda ns, labels, going: labels.get("app") == "web")
    zone = table.labels.column("zone")
    return {
        name: (
            bool(table.exists[row]),
            amounts(table.requested, row),
            amounts(table.allocatable, row),
            amounts(table.nonzero, row),
            int(table.pod_count[row]),
            int(table.allocatable_pods[row]),
            bool(table.unschedulable[row]),
            table.taints.values[table.taints.codes[row]],
            zone.values[zone.codes[row]],
            sorted(table.pods[row]),
            int(counter.counts[row]),
            sorted(n for n, image in table.images.by_name.items() if row in image.rows),
            any(row in rows for rows in table.ports.claimed_rows(TEMPLATES[2].host_ports)),
        )
        for name, row in table.row_of.items()
    }


def state_with(pods: list[Pod], *, at_once: bool) -> tuple[object, ...]:
    """What is known and said after a list of these pods; ``now`` is theirs all."""
    state = new_state()
    if at_once:
        said = list(state.apply_new(Pod, {pod.key: pod for pod in pods}, 1.0))
    else:
        said = [text for pod in pods for text in state.apply(Change(Pod, None, pod), 1.0)]
    rows = state.table.row_of
    return facts(state.table), rows, state.pods, places(state, pods), popped(state), said


def places(state: SchedulerState, pods: list[Pod]) -> list[object]:
    return [(state.queue.where(pod.uid), state.cache.get(pod.uid)) for pod in pods]


def popped(state: SchedulerState) -> list[Pod]:
    return [queued.pod for queued in iter(lambda: state.pop(2.0), None)]


@given(st.lists(KINDS_OF_PODS, max_size=20), st.integers(-1, 19))
def test_pods_of_a_list_come_as_if_one_by_one(kinds, nameless):
    """One without a uid, which no server sends, keeps no other out."""
    pods = [new_pod(number, *kind) for number, kind in enumerate(kinds)]
    pods = [msgspec.structs.replace(p, uid="") if i == nameless else p for i, p in enumerate(pods)]
    assert state_with(pods, at_once=True) == state_with(pods, at_once=False)


def test_bound_pods_of_a_list_wake_those_that_wait_for_one():
    state = new_state(registered(ASSIGNED_POD_ADD, "InterPodAffinity"))
    waiting, bound = new_pod(1, 0, LABELS[0], ""), new_pod(2, 0, LABELS[0], "node-1")
    state.apply_new(Pod, {waiting.key: waiting}, 1.0)
    queued = state.pop(1.0)
    queued.reject({"InterPodAffinity"})
    state.fail(queued, 2.0, nominated_node=None)
    assert state.queue.where(waiting.uid) is Place.UNSCHEDULABLE
    state.apply_new(Pod, {bound.key: bound}, 2.0)
    assert state.queue.where(waiting.uid) is Place.BACKOFF


@pytest.mark.parametrize(
    ("node_name", "place"), [("node-1", Place.UNSCHEDULABLE), ("node-2", Place.BACKOFF)]
)
def test_a_pod_that_another_scheduler_binds_elsewhere_leaves_its_assumed_place(node_name, place):
    state = new_state(registered(ASSIGNED_POD_DELETE, "InterPodAffinity"))
    waiting, other = new_pod(1, 0, LABELS[0], ""), new_pod(2, 0, LABELS[0], "")
    state.apply_new(Pod, {other.key: other}, 1.0)
    state.pop(1.0)
    state.assume(other, "node-1")
    state.apply_new(Pod, {waiting.key: waiting}, 1.0)
    queued = state.pop(1.0)
    queued.reject({"InterPodAffinity"})
    state.fail(queued, 2.0, nominated_node=None)
    bound = msgspec.structs.replace(other, node_name=node_name, resource_version="9")
    state.apply(Change(Pod, other, bound), 2.0)
    assert state.queue.where(waiting.uid) is place


@pytest.mark.parametrize("node_name", ["", "node-1"])
def test_a_failure_is_not_reported_about_another_pod_of_the_same_name(node_name):
    state = new_state()
    tried, successor = new_pod(1, 0, LABELS[0], ""), new_pod(2, 0, LABELS[0], node_name)
    successor = msgspec.structs.replace(successor, name=tried.name)
    state.apply_new(Pod, {tried.key: tried}, 1.0)
    queued = state.pop(1.0)
    state.apply(Change(Pod, tried, None), 2.0)
    state.apply(Change(Pod, None, successor), 2.0)
    failure = state.fail(queued, 3.0, nominated_node=None)
    assert not failure.report
    assert state.queue.get(tried.uid) is None


def test_other_objects_of_a_list_come_one_by_one():
    state = new_state()
    assert not state.apply_new(Node, {name: node(name, 1) for name in NODES}, 1.0)
    assert sorted(state.table.row_of) == NODES


class Life(RuleBasedStateMachine):
    """A cluster's events, and a scheduler that pops, assumes, binds and fails in between."""

    def __init__(self) -> None:
        super().__init__()
        self.state = new_state()
        self.now = 1000.0
        self.number = itertools.count(1)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.in_flight: dict[str, QueuedPod] = {}
        self.binding: dict[str, Pod] = {}

    def _apply(self, kind: type, old: object, new: object) -> None:
        assert self.state.apply(Change(kind, old, new), self.now) in ((), []) or kind is Pod

    @rule(name=st.sampled_from(NODES))
    def node_comes_or_changes(self, name: str) -> None:
        new = node(name, next(self.number))
        self._apply(Node, self.nodes.get(name), new)
        self.nodes[name] = new

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        if name in self.nodes:
            self._apply(Node, self.nodes.pop(name), None)

    @rule(kind=KINDS_OF_PODS)
    def pod_comes(self, kind: tuple[int, LabelSet, str]) -> None:
        pod = new_pod(next(self.number), *kind)
        self.pods[pod.uid] = pod
        self._apply(Pod, None, pod)

    @rule(kinds=st.lists(KINDS_OF_PODS, max_size=6))
    def pods_are_listed(self, kinds: list[tuple[int, LabelSet, str]]) -> None:
        pods = [new_pod(next(self.number), *kind) for kind in kinds]
        self.pods.update({pod.uid: pod for pod in pods})
        assert not self.state.apply_new(Pod, {pod.key: pod for pod in pods}, self.now)

    @rule(data=st.data(), labels=st.sampled_from(LABELS), dying=st.booleans())
    def pod_changes(self, data: st.DataObject, labels: LabelSet, dying: bool) -> None:
        if not self.pods:
            return
        old = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        new = msgspec.structs.replace(
            old,
            labels=labels,
            resource_version=str(next(self.number)),
            deletion_timestamp=old.deletion_timestamp or ("now" if dying else None),
        )
        self.pods[new.uid] = new
        self._apply(Pod, old, new)

    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        if self.pods:
            pod = self.pods.pop(data.draw(st.sampled_from(sorted(self.pods))))
            self._apply(Pod, pod, None)
            self.binding.pop(pod.uid, None)

    @rule()
    def pop(self) -> None:
        queued = self.state.pop(self.now)
        if queued is not None:
            self.in_flight[queued.pod.uid] = queued

    @rule(data=st.data(), name=st.sampled_from(NODES))
    def decide(self, data: st.DataObject, name: str) -> None:
        if not self.in_flight:
            return
        uid = data.draw(st.sampled_from(sorted(self.in_flight)))
        pod = self.in_flight.pop(uid).pod
        if uid in self.pods and not self.pods[uid].node_name:
            self.binding[uid] = self.state.assume(pod, name)
        self.state.done(uid)

    @rule(data=st.data(), blame=st.booleans())
    def fail(self, data: st.DataObject, blame: bool) -> None:
        if not self.in_flight:
            return
        queued = self.in_flight.pop(data.draw(st.sampled_from(sorted(self.in_flight))))
        queued.reject({"NodeResourcesFit"} if blame else ())
        self.state.fail(queued, self.now, nominated_node=None)

    @rule(data=st.data(), works=st.booleans())
    def binding_ends(self, data: st.DataObject, works: bool) -> None:
        if not self.binding:
            return
        uid = data.draw(st.sampled_from(sorted(self.binding)))
        assumed = self.binding.pop(uid)
        if works and not self.pods[uid].terminating:
            self.state.cache.finish_binding(uid)
            old = self.pods[uid]
            new = msgspec.structs.replace(
                old, node_name=assumed.node_name, resource_version=str(next(self.number))
            )
            self.pods[uid] = new
            self._apply(Pod, old, new)
        else:
            self.state.forget(assumed)
            queued = QueuedPod(assumed, self.now)
            queued.reject(())
            self.state.fail(queued, self.now, nominated_node="")

    @rule(seconds=st.sampled_from([0.3, 2.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.state.queue.flush_backoff(self.now)

    @invariant()
    def every_pod_is_in_one_place(self) -> None:
        for uid, pod in self.pods.items():
            place = self.state.queue.where(uid)
            cached = self.state.cache.get(uid) is not None
            assert (
                cached or place is not Place.OUTSIDE or (uid in self.binding and pod.terminating)
            ), pod
            assert not (cached and place not in {Place.OUTSIDE, Place.IN_FLIGHT}), pod
            if pod.node_name:
                assert cached, pod
                assert not self.state.cache.is_assumed(uid), pod
        for pod in (*self.state.cache, *self.state.queue.pending_pods()):
            assert pod.uid in self.pods

    @invariant()
    def the_table_equals_one_rebuilt(self) -> None:
        fresh = NodeTable()
        for each in self.nodes.values():
            fresh.set_node(each)
        for pod in self.state.cache:
            fresh.add_pod(pod)
        assert facts(self.state.table) == facts(fresh)
        assert self.state.table.node_count == len(self.nodes)

    @invariant()
    def sums_hold(self) -> None:
        table = self.state.table
        assert int(table.pod_count.sum()) == sum(1 for _ in self.state.cache)
        assert int(np.count_nonzero(table.exists)) == len(self.nodes)


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
TestLife = Life.TestCase
