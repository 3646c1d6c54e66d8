"""The index of existing pods' affinity terms."""

import gc
import weakref

import numpy as np
import pytest

from app.model.objects import (
    Affinity,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    Requirement,
    WeightedPodAffinityTerm,
)
from app.model.pod import make_pod
from app.state.columns.terms import ExistingTerm, TermKind, Terms, parse_term, parse_terms
from app.state.table import NodeTable
from tests.core.plugins.twins import pod_affinity as twin
from tests.core.plugins.twins.world import ZONE, Dice


def term(app="web", **fields):
    selector = LabelSelector(match_labels={"app": app})
    return PodAffinityTerm(topology_key=ZONE, label_selector=selector, **fields)


def carrier(name="carrier", *required, node="node", namespace="north", liked=()):
    anti = PodAffinity(required=required or None, preferred=tuple(liked) or None)
    spec = PodSpec(affinity=Affinity(pod_anti_affinity=anti))
    return make_pod(spec, name=name, uid=name, namespace=namespace, node_name=node)


def asking(app="web", namespace="north"):
    return make_pod(None, {"app": app}, name="asking", uid="asking", namespace=namespace)


def counts(existing, capacity):
    column = np.zeros(capacity, np.int64)
    existing.add_to(column, 1)
    return column.tolist()


# ---------------------------------------------------------------- parsing


@pytest.mark.parametrize(
    ("fields", "namespaces", "anywhere"),
    [
        ({}, {"north"}, False),
        ({"namespaces": ()}, {"north"}, False),
        ({"namespaces": ("south",)}, {"south"}, False),
        ({"namespace_selector": LabelSelector()}, set(), True),
        ({"namespaces": ("south",), "namespace_selector": LabelSelector()}, {"south"}, True),
    ],
)
def test_namespaces_of_a_term(fields, namespaces, anywhere):
    parsed = parse_term(term(**fields), "north")
    assert parsed.namespaces == namespaces
    assert parsed.namespace_selector.everything is anywhere
    assert parsed.namespace_selector.nothing is not anywhere
    assert parsed.scope.namespaces == (None if anywhere else namespaces)


def test_an_unreadable_list_is_empty_and_the_others_stay():
    bad = LabelSelector(match_expressions=(Requirement("app", "Near", ("web",)),))
    affinity = Affinity(
        pod_affinity=PodAffinity(
            required=(term(), PodAffinityTerm(topology_key=ZONE, label_selector=bad)),
            preferred=(WeightedPodAffinityTerm(5, term()),),
        )
    )
    parsed = parse_terms(affinity, "north")
    assert parsed.required_affinity == ()
    assert parsed.preferred_affinity == ((parse_term(term(), "north"), 5),)
    assert parsed.error == 'requiredAffinityTerms: "Near" is not a valid label selector operator'


def test_terms_are_parsed_once_per_template_and_namespace():
    terms = Terms(4)
    pod = carrier("one", term())
    assert terms.of(pod) is terms.of(pod)
    elsewhere = make_pod(pod.spec, name="two", uid="two", namespace="south")
    assert terms.of(elsewhere).required_anti_affinity[0].namespaces == {"south"}
    assert terms.of(asking()) == parse_terms(None, "north")


def test_parsed_terms_go_with_their_template():
    terms = Terms(4)
    terms.of(carrier("one", term()))
    gc.collect()
    assert not len(terms._parsed._by_owner)


# ---------------------------------------------------------------- counting


def test_equal_terms_are_one():
    table = NodeTable()
    for number in range(3):
        table.add_pod(carrier(str(number), term(), node=f"node-{number}"))
    assert len(table.terms) == 1
    (existing,) = table.terms.matching(asking(), {}).required_anti_affinity
    assert existing.kind is TermKind.REQUIRED_ANTI_AFFINITY
    assert existing.column().sum() == 3
    assert counts(existing, 3) == [1, 1, 1]


def test_a_term_that_a_pod_has_twice_counts_twice():
    table = NodeTable()
    pod = carrier("one", liked=[WeightedPodAffinityTerm(5, term())] * 2)
    table.add_pod(pod)
    (existing,) = table.terms.matching(asking(), {}).scoring
    assert (existing.weight, counts(existing, 1)) == (5, [2])
    table.remove_pod(pod)
    assert not len(table.terms)


def test_a_term_goes_with_the_last_pod_that_has_it():
    table = NodeTable()
    one, two = carrier("one", term()), carrier("two", term(), node="other")
    table.add_pod(one)
    table.add_pod(two)
    pod = asking()
    table.remove_pod(one)
    assert len(table.terms.matching(pod, {}).required_anti_affinity) == 1
    table.remove_pod(two)
    assert table.terms.matching(pod, {}).required_anti_affinity == ()
    assert not len(table.terms)
    assert not len(table.terms._index)
    assert not table.terms._carriers


def test_answers_follow_terms_and_namespace_labels():
    table = NodeTable()
    pod = asking()
    assert table.terms.matching(pod, {}).required_anti_affinity == ()
    red = LabelSelector(match_labels={"team": "red"})
    table.add_pod(carrier("one", term(namespace_selector=red)))
    assert table.terms.matching(pod, {}).required_anti_affinity == ()
    assert len(table.terms.matching(pod, {"team": "red"}).required_anti_affinity) == 1
    assert table.terms.matching(pod, {"team": "blue"}).required_anti_affinity == ()
    same = table.terms.matching(pod, {"team": "red"})
    assert table.terms.matching(pod, {"team": "red"}) is same


def test_a_pod_asks_only_terms_that_demand_its_labels(monkeypatch):
    table = NodeTable()
    for number in range(1000):
        table.add_pod(carrier(str(number), term(app=str(number))))
        table.add_pod(carrier(f"s{number}", term(app="7"), namespace=f"space-{number}"))
    candidates = list(table.terms._index.candidates("north", {"app": "7", "tier": "x"}))
    assert len(candidates) == 1
    assert len(table.terms.matching(asking("7"), {}).required_anti_affinity) == 1


def test_a_term_with_many_rows_becomes_an_array_and_counts_on():
    existing = ExistingTerm(TermKind.REQUIRED_AFFINITY, parse_term(term(), "north"), 0, 256)
    capacity = 256
    expected = [0] * capacity
    for row in [*range(0, 120, 2), 4, 4, 8]:
        existing.add(row, 1)
        expected[row] += 1
        assert counts(existing, capacity) == expected
    assert existing._array is not None
    assert counts(existing, 50) == expected[:50]
    existing.grow(512)
    existing.add(511, 1)
    existing.add(4, -1)
    expected[4] -= 1
    assert counts(existing, 512) == [*expected, *[0] * 255, 1]
    column = np.ones(512, np.int64)
    existing.add_to(column, -10)
    assert column[4] == 1 - 10 * expected[4]


@pytest.mark.parametrize("seed", range(15))
def test_matching_terms_are_those_of_the_pods_on_rows(seed):
    dice = Dice(seed)
    world = dice.world(pods=30, affinity=0.7)
    for _ in range(40):
        dice.disturb(world)
        pod = dice.pod()
        labels = world.namespaces().get(pod.namespace, {})
        found = world.table.terms.matching(pod, labels)
        expected = sum(
            t.means(pod, labels) for other in world.placed() for t in twin.required_anti(other)
        )
        assert sum(one.column().sum() for one in found.required_anti_affinity) == expected
        weights = sum(
            weight
            for other in world.placed()
            for t, weight in twin.preferred(other)
            if t.means(pod, labels)
        )
        signs = {TermKind.PREFERRED_AFFINITY: 1, TermKind.PREFERRED_ANTI_AFFINITY: -1}
        assert weights == sum(
            one.column().sum() * one.weight * signs.get(one.kind, 0) for one in found.scoring
        )


def test_templates_of_pods_that_went_are_not_kept_alive():
    table = NodeTable()
    pod = carrier("one", term())
    table.add_pod(pod)
    table.remove_pod(pod)
    template = weakref.ref(pod.template)
    del pod
    gc.collect()
    assert template() is None
