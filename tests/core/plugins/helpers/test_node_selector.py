import re

import numpy as np
import pytest

from app.model.objects import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    PodSpec,
    PreferredSchedulingTerm,
)
from app.model.selectors import Requirement, SelectorError
from app.plugins.helpers.node_selector import (
    PreferredTerms,
    RequiredNodeAffinity,
    compile_node_selector,
    is_small,
    match_node_selector,
)
from app.state.table import NodeTable
from app.state.view import View
from tests.core.framework.worlds import World, random_spec, random_term
from tests.core.plugins.twins import selectors as twin

LABELS = (
    {},
    {"zone": "a"},
    {"zone": "b", "cores": "8"},
    {"zone": "", "cores": "-2"},
    {"cores": "many", "example.com/x": "1"},
    {"zone": "a", "cores": "9223372036854775808"},
)


def cluster():
    table = NodeTable()
    for number, labels in enumerate(LABELS):
        table.set_node(Node(metadata=ObjectMeta(name=f"n{number}", labels=labels or None)))
    return table


def expression(key, operator, *values):
    return NodeSelectorTerm(match_expressions=(Requirement(key, operator, values),))


def field(operator, *values, key="metadata.name"):
    return NodeSelectorTerm(match_fields=(Requirement(key, operator, values),))


@pytest.mark.parametrize(
    ("term", "rows"),
    [
        (expression("zone", "In", "a"), [1, 5]),
        (expression("zone", "In", "a", "b", "never"), [1, 2, 5]),
        (expression("zone", "In", "never"), []),
        (expression("zone", "In", ""), [3]),
        (expression("zone", "NotIn", "a"), [0, 2, 3, 4]),
        (expression("zone", "NotIn", "a", "b"), [0, 3, 4]),
        (expression("zone", "NotIn", "never"), [0, 1, 2, 3, 4, 5]),
        (expression("zone", "Exists"), [1, 2, 3, 5]),
        (expression("zone", "DoesNotExist"), [0, 4]),
        (expression("cores", "Gt", "7"), [2]),
        (expression("cores", "Gt", "8"), []),
        (expression("cores", "Lt", "8"), [3]),
        (expression("example.com/x", "Exists"), [4]),
        (field("In", "n2"), [2]),
        (field("NotIn", "n2"), [0, 1, 3, 4, 5]),
        (field("In", "nobody"), []),
        (field("In", "u", key="metadata.uid"), []),
        (field("NotIn", "u", key="metadata.uid"), [0, 1, 2, 3, 4, 5]),
        (NodeSelectorTerm(), []),
        (NodeSelectorTerm((), ()), []),
        (
            NodeSelectorTerm(
                (Requirement("zone", "Exists"), Requirement("cores", "Exists")),
                (Requirement("metadata.name", "NotIn", ("n3",)),),
            ),
            [2, 5],
        ),
    ],
)
def test_one_term(term, rows):
    table = cluster()
    selector = NodeSelector((term,))
    mask = match_node_selector(View.everything(table), selector)
    assert mask.dtype == bool
    assert np.flatnonzero(mask).tolist() == rows
    matcher = compile_node_selector(selector)
    by_object = [row for row, node in enumerate(table.nodes) if matcher.matches_node(node)]
    assert by_object == rows


@pytest.mark.parametrize(
    ("term", "error"),
    [
        (expression("zone", "Near", "a"), '"Near" is not a valid label selector operator'),
        (expression("zone", "In"), "values set can't be empty"),
        (expression("zone", "Exists", "a"), "must be empty for exists"),
        (expression("cores", "Gt", "8", "9"), "exactly one integer"),
        (expression("cores", "Lt", "eight"), "the value must be an integer"),
        (expression("cores", "Gt", "9223372036854775808"), "the value must be an integer"),
        (expression("a b", "Exists"), '"a b" is not a qualified label name'),
        (
            expression("zone", "In", "a", "b c"),
            'values[1][zone]: Invalid value: "b c": a valid label must',
        ),
        (expression("zone", "In", "x" * 64), "must be no more than 63 bytes"),
        (
            expression("cores", "Gt", "-3"),
            'values[0][cores]: Invalid value: "-3": a valid label must',
        ),
        (field("Exists"), '"Exists" is not a valid field selector operator'),
        (field("In"), "must have one value"),
        (field("In", "n1", "n2"), "must have one value"),
        (
            NodeSelectorTerm((Requirement("zone", "Exists"),), (Requirement("f", "Gt", ("1",)),)),
            '"Gt" is not a valid field selector operator',
        ),
    ],
)
def test_an_unreadable_term_never_matches_and_leaves_the_others_alone(term, error):
    view = View.everything(cluster())
    alone = compile_node_selector(NodeSelector((term,)))
    assert not alone.matches(view).any()
    assert [error in text for text in alone.errors] == [True]
    both = NodeSelector((term, expression("zone", "In", "a")))
    assert np.flatnonzero(match_node_selector(view, both)).tolist() == [1, 5]
    with pytest.raises(SelectorError, match=re.escape(error)):
        PreferredTerms([PreferredSchedulingTerm(1, term)])


@pytest.mark.parametrize("terms", [None, ()])
def test_no_terms_match_nothing(terms):
    selector = NodeSelector(terms)
    view = View.everything(cluster())
    assert not match_node_selector(view, selector).any()
    spec = PodSpec(affinity=Affinity(node_affinity=NodeAffinity(required=selector)))
    required = RequiredNodeAffinity.of(spec)
    assert not required.everything
    assert not required.matches(view).any()


@pytest.mark.parametrize(
    "spec", [PodSpec(), PodSpec(node_selector={}), PodSpec(affinity=Affinity())]
)
def test_no_demands_match_everything(spec):
    table = cluster()
    required = RequiredNodeAffinity.of(spec)
    assert required.everything
    assert required.matches(View.everything(table)).all()
    assert required.matches_node(table.nodes[0])


def test_masks_are_fresh():
    view = View.everything(cluster())
    for term in (expression("zone", "Exists"), expression("cores", "Gt", "1"), field("In", "n1")):
        selector = NodeSelector((term,))
        first = match_node_selector(view, selector)
        before = first.copy()
        first[:] = ~first
        np.testing.assert_array_equal(match_node_selector(view, selector), before)


def test_values_that_appear_later_are_known():
    table = cluster()
    selector = NodeSelector((expression("cores", "Gt", "100"),))
    unheard = NodeSelector((expression("zone", "In", "new"),))
    assert not match_node_selector(View.everything(table), selector).any()
    assert not match_node_selector(View.everything(table), unheard).any()
    labels = {"cores": "101", "zone": "new"}
    row = table.set_node(Node(metadata=ObjectMeta(name="later", labels=labels)))
    view = View.everything(table)
    assert np.flatnonzero(match_node_selector(view, selector)).tolist() == [row]
    assert np.flatnonzero(match_node_selector(view, unheard)).tolist() == [row]


def test_random_selectors_agree_with_the_twin():
    matched = 0
    for seed in range(20):
        world = World(seed)
        for _ in range(15):
            selector = NodeSelector(tuple(random_term(world.rng) for _ in range(2)))
            matcher = compile_node_selector(selector)
            spec = random_spec(world.rng)
            required = RequiredNodeAffinity.of(spec)
            for seen in world.views():
                mask = match_node_selector(seen.view, selector)
                allowed = required.matches(seen.view)
                for position, scene in enumerate(seen.scenes):
                    if scene is not None:
                        want = twin.selector_matches(selector, scene.node)
                        assert mask[position] == matcher.matches_node(scene.node) == want
                        want_pod = twin.pod_allows(spec, scene.node)
                        assert allowed[position] == required.matches_node(scene.node) == want_pod
                        matched += want
    assert matched


@pytest.mark.parametrize(
    ("terms", "kept"),
    [
        ([expression("a", "In", "x")], True),
        ([expression("kubernetes.io/hostname", "In", *[f"node-{n}" for n in range(60)])], True),
        ([expression("a", "In", "x" * 5000)], False),
        ([expression("a" * 5000, "Exists")], False),
        ([expression("a", "x" * 5000)], False),
        ([expression("a", "In", *["x"] * 200)], False),
        ([NodeSelectorTerm()] * 200, False),
    ],
)
def test_only_small_selectors_are_kept_compiled(terms, kept):
    selector = NodeSelector(tuple(terms))
    same = compile_node_selector(selector) is compile_node_selector(selector)
    assert (same, is_small(selector)) == (kept, kept)
