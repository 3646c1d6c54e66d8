"""Counting columns: always equal to a count from scratch, however they came about."""

import random

import numpy as np
import pytest

from app.model.objects import Node, ObjectMeta, PodSpec
from app.model.pod import LabelSet, Pod, PodTemplate, make_pod
from app.model.selectors import NOTHING, Selector, from_map
from app.state.columns import families as families_module
from app.state.columns import labels as labels_module
from app.state.columns.families import PodFamilies
from app.state.columns.selector_index import EVERY_POD, Scope, SelectorIndex
from app.state.table import NodeTable

TEMPLATE = PodTemplate(PodSpec())


class Labels:
    """Random labels and selectors over a small alphabet."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self._sets = {}

    def labels(self):
        pairs = [("app", "abcdef"), ("tier", "xyz"), ("version", "123")]
        chosen = [(k, self.random.choice(v)) for k, v in pairs if self.random.random() < 0.7]
        return self._sets.setdefault(tuple(chosen), LabelSet(chosen))

    def selector(self):
        requirements = []
        for key, values in (("app", "abcdef"), ("tier", "xyz"), ("version", "123")):
            if self.random.random() < 0.4:
                operator = self.random.choice(["In", "In", "In", "NotIn", "Exists", "DoesNotExist"])
                some = tuple(sorted(self.random.sample(values, self.random.randint(1, 2))))
                requirements.append((key, operator, some if operator.endswith("In") else ()))
        return NOTHING if self.random.random() < 0.05 else Selector(tuple(requirements))

    def scope(self):
        spaces = self.random.choice([None, frozenset(), frozenset("n"), frozenset("ns")])
        return Scope(spaces, self.selector())

    def pod(self, number, node_name):
        return Pod(
            namespace=self.random.choice("ns"),
            name=str(number),
            uid=str(number),
            template=TEMPLATE,
            labels=self.labels(),
            node_name=node_name,
            deletion_timestamp="now" if self.random.random() < 0.2 else None,
        )


def covers(scope, namespace, labels):
    return (scope.namespaces is None or namespace in scope.namespaces) and scope.selector.matches(
        labels
    )


def predicate(scope, *, alive):
    return lambda ns, labels, terminating: covers(scope, ns, labels) and not (alive and terminating)


@pytest.mark.parametrize("seed", range(15))
def test_counters_equal_a_count_from_scratch(seed, monkeypatch):
    monkeypatch.setattr(labels_module, "_MAX_COLUMNS", 8)
    monkeypatch.setattr(families_module, "_FEW", 3)
    labels = Labels(seed)
    table = NodeTable()
    asked = [(labels.scope(), labels.random.random() < 0.5) for _ in range(25)]
    pods = []
    for step in range(300):
        if labels.random.random() < 0.6 or not pods:
            pods.append(labels.pod(step, f"node-{labels.random.randint(0, 150)}"))
            table.add_pod(pods[-1])
        else:
            table.remove_pod(pods.pop(labels.random.randrange(len(pods))))
        scope, alive = labels.random.choice(asked)
        if labels.random.random() < 0.05:
            table.families.forget((scope, alive))
        wanted = predicate(scope, alive=alive)
        within = scope if labels.random.random() < 0.8 else EVERY_POD
        counter = table.families.counter((scope, alive), wanted, within=within)
        expected = np.zeros(table.capacity, np.int32)
        for pod in pods:
            expected[table.row_of[pod.node_name]] += wanted(
                pod.namespace, pod.labels, pod.terminating
            )
        assert counter.counts.tolist() == expected.tolist()
        assert counter.total == expected.sum()


def test_asking_again_gives_the_same_counter():
    families = PodFamilies(4)
    first = families.counter("key", lambda *_: True)
    assert families.counter("key", lambda *_: False) is first
    families.forget("key")
    families.forget("key")
    assert families.counter("key", lambda *_: True) is not first


def test_the_counters_asked_for_least_recently_make_room(monkeypatch):
    monkeypatch.setattr(labels_module, "_MAX_COLUMNS", 8)
    families = PodFamilies(4)
    counters = [families.counter(n, lambda *_: True) for n in range(8)]
    assert families.counter(0, lambda *_: True) is counters[0]
    families.counter("new", lambda *_: True)
    assert families.counter(0, lambda *_: True) is counters[0]
    assert families.counter(1, lambda *_: True) is not counters[1]
    pod = make_pod(name="p", uid="p", namespace="n")
    families.add(pod, 2)
    assert counters[0].counts.tolist() == [0, 0, 1, 0]
    assert counters[1].total == 0


def test_a_new_family_asks_only_counters_that_may_count_it():
    families = PodFamilies(1)
    asked = []
    for app in range(1000):
        selector = from_map({"app": str(app)})

        def counts(namespace, labels, terminating, selector=selector):
            asked.append(selector)
            return selector.matches(labels)

        families.counter(app, counts, within=Scope(frozenset("n"), selector))
    assert not asked
    for pod in range(100):
        labels = {"app": "999", "pod": str(pod)}
        families.add(make_pod(None, labels, name="p", uid=str(pod), namespace="n"), 0)
    assert len(asked) == 100


def test_a_new_counter_asks_only_families_that_it_may_count():
    families = PodFamilies(1)
    for number in range(1000):
        labels = {"app": str(number % 100), "tier": "x", "pod": str(number)}
        families.add(make_pod(None, labels, name="p", uid=str(number), namespace="n"), 0)
    asked = []
    selector = from_map({"tier": "x", "app": "7"})

    def counts(namespace, labels, terminating):
        asked.append(labels)
        return selector.matches(labels)

    assert families.counter("key", counts, within=Scope(frozenset("n"), selector)).total == 10
    assert len(asked) == 10


def test_growing_keeps_the_counts():
    table = NodeTable()
    counter = table.families.counter("all", lambda *_: True)
    for number in range(200):
        table.set_node(Node(metadata=ObjectMeta(name=f"n{number}")))
        table.add_pod(make_pod(name="p", uid=str(number), namespace="n", node_name=f"n{number}"))
    assert counter.counts[:200].tolist() == [1] * 200
    assert len(counter.counts) == table.capacity


@pytest.mark.parametrize("seed", range(10))
def test_the_index_leads_to_every_item_that_covers_a_pod(seed):
    labels = Labels(seed)
    index = SelectorIndex()
    scopes = {}
    for step in range(200):
        if labels.random.random() < 0.7 or not scopes:
            scopes[step] = labels.scope()
            index.add(step, scopes[step])
        else:
            gone = labels.random.choice(list(scopes))
            index.remove(gone)
            del scopes[gone]
        namespace, have = labels.random.choice("nso"), labels.labels()
        found = list(index.candidates(namespace, have))
        assert len(found) == len(set(found))
        assert set(found) >= {k for k, s in scopes.items() if covers(s, namespace, have)}
    assert len(index) == len(scopes)


def test_an_emptied_index_holds_nothing():
    index = SelectorIndex()
    index.add("item", Scope(frozenset("ns"), from_map({"a": "b"})))
    index.add("other", Scope(None, NOTHING))
    index.remove("item")
    index.remove("other")
    assert not len(index)
    assert not index._spaces
    with pytest.raises(KeyError):
        index.remove("item")
