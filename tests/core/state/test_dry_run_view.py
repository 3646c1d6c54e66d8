"""Imagined worlds: whatever is moved, and in whatever order, the columns say what the pods do."""

import random
import weakref

import numpy as np
import pytest

from app.model.objects import (
    Container,
    ContainerPort,
    Node,
    ObjectMeta,
    PodSpec,
    ResourceRequirements,
)
from app.model.pod import HostPort, LabelSet, Pod, PodTemplate
from app.state.columns.families import PodCounter
from app.state.pod_batch import PodBatch
from app.state.table import CPU_ROW, MEMORY_ROW, NodeTable
from app.state.view import DryRunView, dry_run_with

RESOURCES = ("cpu", "memory", "example.com/gpu")
LABELS = (LabelSet({"app": "web"}), LabelSet({"app": "db"}), LabelSet())


def template(dice):
    requests = {name: dice.choice(("0", "1", "2")) for name in RESOURCES if dice.random() < 0.6}
    ports = (ContainerPort(host_port=dice.choice((80, 90))),) if dice.random() < 0.3 else None
    resources = ResourceRequirements(requests=requests) if requests else None
    return PodTemplate(PodSpec(containers=(Container(resources=resources, ports=ports),)))


class Scene:
    """A table, some rows of it, and what is imagined there as plain lists."""

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.templates = [template(self.dice) for _ in range(4)]
        self.serial = 0
        self.table = NodeTable()
        for number in range(6):
            self.table.set_node(Node(metadata=ObjectMeta(name=f"n{number}")))
            for _ in range(self.dice.randint(0, 4)):
                self.table.add_pod(self.pod(f"n{number}"))
        rows = self.dice.sample(range(6), 4)
        self.view = DryRunView(self.table, np.array(rows, np.intp))
        self.pods = [dict(self.table.pods[row]) for row in rows]
        self.ports = [self._ports(pods.values()) for pods in self.pods]

    @staticmethod
    def _ports(pods):
        return {port for pod in pods for port in pod.template.host_ports}

    def pod(self, node):
        self.serial += 1
        labels = self.dice.choice(LABELS)
        name = f"p{self.serial}"
        return Pod("ns", name, name, self.dice.choice(self.templates), labels, node_name=node)

    def note(self, position, pod, added):
        if added:
            self.pods[position][pod.uid] = pod
            self.ports[position] |= self._ports([pod])
        else:
            del self.pods[position][pod.uid]
            self.ports[position] -= self._ports([pod])

    def remove_some(self, *, many):
        gone = [
            (position, pod)
            for position, pods in enumerate(self.pods)
            for pod in self.dice.sample(list(pods.values()), self.dice.randint(0, len(pods)))
        ]
        for position, pod in gone:
            self.note(position, pod, added=False)
            if not many:
                self.view.remove(position, pod)
        if many:
            # Only every second pod of the batch is meant.
            batch = PodBatch([pod for _, pod in gone for _ in range(2)])
            chosen = np.arange(1, 2 * len(gone), 2)
            positions = np.array([position for position, _ in gone], np.intp)
            self.view.remove_many(batch, chosen, positions)

    def add_some(self, *, many):
        come = [
            (self.dice.randrange(self.view.n), self.pod("")) for _ in range(self.dice.randint(0, 3))
        ]
        for position, pod in come:
            self.note(position, pod, added=True)
            if not many:
                self.view.add(position, pod)
        if many:
            batch = PodBatch([pod for _, pod in come])
            positions = np.array([position for position, _ in come], np.intp)
            self.view.add_many(batch, np.arange(len(come)), positions)

    def take_some(self):
        chosen = sorted(self.dice.sample(range(4), 3))
        self.view = self.view.take(np.array(chosen))
        self.pods = [self.pods[i] for i in chosen]
        self.ports = [self.ports[i] for i in chosen]

    def check(self, counter):
        view = self.view
        lists = [list(pods.values()) for pods in self.pods]
        for position, pods in enumerate(lists):
            assert {pod.uid for pod in view.pods(position)} == {pod.uid for pod in pods}
        for name in RESOURCES:
            want = [sum(dict(p.resources.requested).get(name, 0) for p in pods) for pods in lists]
            assert view.requested(name).tolist() == want
            assert view.requested_of((name, "cpu"))[0].tolist() == want
        for which, field in ((CPU_ROW, "nonzero_cpu"), (MEMORY_ROW, "nonzero_memory")):
            want = [sum(getattr(p.resources, field) for p in pods) for pods in lists]
            assert view.nonzero_requested(which).tolist() == want
            assert view.nonzero_of_both()[which].tolist() == want
        assert view.pod_count().tolist() == [len(pods) for pods in lists]
        assert view.counts(counter).tolist() == [
            sum(pod.labels.get("app") == "web" for pod in pods) for pods in lists
        ]
        for number in (80, 90):
            port = HostPort("TCP", number, "0.0.0.0")
            assert view.port_conflicts([port]).tolist() == [port in p for p in self.ports]
        changed = {(position, pod.uid): sign for position, pod, sign in view.changes()}
        for (position, uid), sign in changed.items():
            there = uid in self.table.pods[view.rows[position]]
            assert sign == (-1 if there else 1)
            assert (uid in self.pods[position]) == (sign > 0)


def web(_namespace, labels, _terminating):
    return labels.get("app") == "web"


@pytest.mark.parametrize("seed", range(40))
def test_the_columns_are_those_of_the_pods(seed):
    scene = Scene(seed)
    counter = scene.table.families.counter("web", web)
    if scene.dice.random() < 0.5:
        scene.check(counter)
    scene.remove_some(many=scene.dice.random() < 0.5)
    scene.add_some(many=scene.dice.random() < 0.5)
    if scene.dice.random() < 0.5:
        scene.check(counter)
    scene.remove_some(many=True)
    scene.take_some()
    scene.check(counter)
    scene.add_some(many=True)
    scene.check(counter)


def test_pods_taken_for_granted_keep_their_ports():
    scene = Scene(3)
    port = HostPort("TCP", 80, "0.0.0.0")
    spec = PodSpec(containers=(Container(ports=(ContainerPort(host_port=80),)),))
    claiming = PodTemplate(spec)
    guest, other = (Pod("ns", uid, uid, claiming, LABELS[0]) for uid in ("guest", "other"))
    bare = Pod("ns", "bare", "bare", PodTemplate(PodSpec()), LABELS[0])
    table = NodeTable()
    for name in ("a", "b", "c"):
        table.set_node(Node(metadata=ObjectMeta(name=name)))
    table.add_pod(other.on("a"))
    view = dry_run_with(table, {2: [bare], 0: [guest, bare]})
    assert view.names() == ["c", "a"]
    assert view.port_conflicts([port]).tolist() == [False, True]
    view.remove(1, other)
    assert view.port_conflicts([port]).tolist() == [False, True]
    assert view.take(np.array([1])).port_conflicts([port]).tolist() == [True]
    plain = DryRunView(scene.table, np.array([0], np.intp))
    plain.add(0, guest)
    plain.add(0, other)
    plain.remove(0, guest)
    assert not plain.port_conflicts([port])[0]


def test_moves_that_are_summed_up_are_not_kept():
    scene = Scene(1)
    counter = scene.table.families.counter("web", web)
    batch = PodBatch([scene.pod("") for _ in range(5)])
    kept = weakref.ref(batch)
    scene.view.add_many(batch, np.arange(5), np.zeros(5, np.intp))
    for each in batch.pods:
        scene.note(0, each, added=True)
    scene.view.sum_up()
    del batch
    assert kept() is None
    scene.check(counter)


def test_a_batch_asks_a_counter_once_about_each_pod():
    asked = []

    def predicate(_namespace, labels, _terminating):
        asked.append(labels)
        return True

    scene = Scene(1)
    batch = PodBatch([scene.pod("") for _ in range(5)])
    counter = PodCounter(predicate, 64)
    for _ in range(3):
        assert batch.times(counter).tolist() == [1] * 5
    assert len(asked) == 5
