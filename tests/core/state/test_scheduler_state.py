"""After any sequence of events every pod is in exactly one place, and the table equals one rebuilt from scratch."""

import itertools

import msgspec
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

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
from app.state.queue.queued_pod import Place, QueuedPod
from app.state.queue.scheduling_queue import SchedulingQueue
from app.state.scheduler_state import Change, SchedulerState
from app.state.table import NodeTable

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


def new_state() -> SchedulerState:
    return SchedulerState(
        cache=Cache(NodeTable()),
        cluster=Cluster(),
        make_queue=lambda nominator: SchedulingQueue(
            sort_key=lambda queued: (-queued.pod.priority, queued.timestamp),
            pre_enqueue=lambda pod: (),
            hints={"default-scheduler": ()},
            initial_backoff_seconds=1,
            max_backoff_seconds=10,
            max_unschedulable_seconds=300,
            nominator=nominator,
        ),
        profiles=["default-scheduler"],
    )


def facts(table: NodeTable) -> dict[str, object]:
    """Everything the table says, by node name, whatever its rows."""
    counter = table.families.counter("web", lambda ns, labels, going: labels.get("app") == "web")
    zone = table.labels.column("zone")
    return {
        name: (
            bool(table.exists[row]),
            table.requested.of(row),
            table.allocatable.of(row),
            table.nonzero[:, row].tolist(),
            int(table.pod_count[row]),
            int(table.allocatable_pods[row]),
            bool(table.unschedulable[row]),
            table.taints.values[table.taints.codes[row]],
            zone.values[zone.codes[row]],
            sorted(table.pods[row]),
            int(counter.counts[row]),
            sorted(n for n, image in table.images.by_name.items() if row in image.rows),
            row in table.ports.conflicting_rows(TEMPLATES[2].host_ports),
        )
        for name, row in table.row_of.items()
    }


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

    @rule(
        which=st.integers(0, len(TEMPLATES) - 1),
        labels=st.sampled_from(LABELS),
        node_name=st.sampled_from(["", "", *NODES, "unknown"]),
    )
    def pod_comes(self, which: int, labels: LabelSet, node_name: str) -> None:
        number = next(self.number)
        pod = Pod(
            "ns",
            f"p{number}",
            f"u{number}",
            TEMPLATES[which],
            labels,
            str(number),
            node_name=node_name,
        )
        self.pods[pod.uid] = pod
        self._apply(Pod, None, pod)

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
        for uid in {p.uid for p in self.state.cache}:
            assert uid in self.pods

    @invariant()
    def the_table_equals_one_rebuilt(self) -> None:
        fresh = NodeTable()
        for each in self.nodes.values():
            fresh.set_node(each)
        for pod in self.state.cache:
            fresh.add_pod(pod)
        assert facts(self.state.table) == facts(fresh)
        assert self.state.table.node_count == len(self.nodes) == len(self.state.cache.tree)

    @invariant()
    def sums_hold(self) -> None:
        table = self.state.table
        assert int(table.pod_count.sum()) == sum(1 for _ in self.state.cache)
        assert int(np.count_nonzero(table.exists)) == len(self.nodes)


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestLife = Life.TestCase
