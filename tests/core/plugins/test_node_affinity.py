import random

import msgspec
import numpy as np
import pytest

from app.framework.interface import CycleState, PreFilterResult, QueueingHint
from app.model import objects
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import (
    Affinity,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    PodSpec,
    PreferredSchedulingTerm,
)
from app.model.pod import make_pod
from app.model.selectors import Requirement
from app.model.status import SKIP, SUCCESS, Code, unresolvable
from app.plugins.args import NodeAffinityArgs
from app.plugins.node_affinity import NodeAffinity
from app.state.view import View
from tests.core.framework.worlds import (
    World,
    check_filter,
    check_score,
    random_readable_term,
    verdict,
)
from tests.core.plugins.twins import node_affinity as twin

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
IN_Z1 = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}
    ]
}


def term(*names, label=None):
    fields = tuple(Requirement("metadata.name", "In", group) for group in names)
    expressions = None if label is None else (Requirement(label, "Exists"),)
    return NodeSelectorTerm(expressions, fields or None)


def pod_requiring(*terms, node_selector=None):
    affinity = objects.NodeAffinity(required=NodeSelector(terms))
    spec = PodSpec(affinity=Affinity(node_affinity=affinity), node_selector=node_selector)
    return make_pod(spec, namespace="ns", name="p", uid="u")


def pod_selecting(**labels):
    return make_pod(PodSpec(node_selector=labels), namespace="ns", name="p", uid="u")


def node(name="n", **labels):
    return Node(metadata=ObjectMeta(name=name, labels=labels))


def random_added(rng: random.Random):
    """Arguments as configured, and as the twin reads them; sometimes none."""
    if rng.random() < 0.5:
        return NodeAffinityArgs(), None
    added = objects.NodeAffinity(
        NodeSelector((random_readable_term(rng),)) if rng.random() < 0.7 else None,
        (PreferredSchedulingTerm(5, random_readable_term(rng)),) if rng.random() < 0.7 else None,
    )
    return NodeAffinityArgs(msgspec.to_builtins(added)), added


def test_filter_agrees_with_its_twin():
    rejected = skipped = 0
    for seed in range(25):
        world = World(seed)
        args, added = random_added(world.rng)
        plugin = NodeAffinity(args, world.handle)
        for _ in range(6):
            pod, state = world.random_pod(), CycleState()
            result = plugin.pre_filter(state, pod)
            if twin.skips(pod, added):
                assert result == SKIP
                skipped += 1
                continue
            names = twin.narrowed(pod)
            if names is None:
                assert result == SUCCESS
            elif not names:
                assert result == unresolvable("pod affinity terms conflict")
            else:
                assert result == PreFilterResult(SUCCESS, frozenset(names))
            rejected += check_filter(
                world,
                plugin,
                pod,
                lambda pod, scene, added=added: twin.filter_node(pod, scene, added),
                state=state,
            )
    assert rejected
    assert skipped


def test_score_agrees_with_its_twin():
    scores = []
    for seed in range(25):
        world = World(seed)
        args, added = random_added(world.rng)
        plugin = NodeAffinity(args, world.handle)
        for _ in range(6):
            pod, state = world.random_pod(), CycleState()
            status = plugin.pre_score(state, pod, View.everything(world.table))
            if twin.preferred_of(pod) is None and (added is None or added.preferred is None):
                assert status == SKIP
                continue
            assert status == SUCCESS
            scores += check_score(
                world,
                plugin,
                pod,
                lambda pod, scene, added=added: twin.score_node(pod, scene, added),
                state=state,
            )
    assert len(set(scores)) > 3


@pytest.mark.parametrize("raw", [[0, 0], [30, 0, 11], [2], []])
def test_normalize(raw):
    world = World(0, nodes=4)
    view = View(world.table, np.zeros(0, np.intp))
    plugin = NodeAffinity(None, world.handle)
    got = plugin.normalize(CycleState(), pod_selecting(), np.array(raw, np.int64), view)
    assert got.tolist() == twin.normalize(raw)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ((), SUCCESS),
        ((term(label="zone"),), SUCCESS),
        ((term(("a",)), term(label="zone")), SUCCESS),
        ((term(("a",)),), frozenset({"a"})),
        ((term(("a", "b"), ("b", "c")),), frozenset({"b"})),
        ((term(("a",)), term(("b",), label="zone")), frozenset({"a", "b"})),
        ((term(("a",), ("b",)), term(("c",))), frozenset({"c"})),
        ((term(("a",), ("b",)),), unresolvable("pod affinity terms conflict")),
    ],
)
def test_narrowing(terms, expected):
    plugin = NodeAffinity(None, World(0, nodes=4).handle)
    result = plugin.pre_filter(CycleState(), pod_requiring(*terms))
    if isinstance(expected, frozenset):
        assert result == PreFilterResult(SUCCESS, expected)
    else:
        assert result == expected


def test_an_empty_node_selector_is_not_skipped():
    plugin = NodeAffinity(None, World(0, nodes=4).handle)
    assert plugin.pre_filter(CycleState(), pod_selecting()) == SUCCESS
    assert plugin.pre_filter(CycleState(), make_pod(namespace="n", name="p", uid="u")) == SKIP


def test_reasons():
    world = World(0, nodes=4)
    plain, enforced = node("plain"), node("enforced", zone="z1")
    rows = [world.table.set_node(n) for n in (plain, enforced)]
    plugin = NodeAffinity(NodeAffinityArgs({REQUIRED: IN_Z1}), world.handle)
    state, pod = CycleState(), pod_selecting(disk="ssd")
    plugin.pre_filter(state, pod)
    verdicts = plugin.filter(state, pod, View(world.table, np.array(rows, np.intp)))
    code = Code.UnschedulableAndUnresolvable
    assert verdict(verdicts, 0) == (
        code,
        ("node(s) didn't match scheduler-enforced node affinity",),
    )
    assert verdict(verdicts, 1) == (code, ("node(s) didn't match Pod's node affinity/selector",))


def test_unreadable_preferred_term_is_an_error():
    bad = NodeSelectorTerm((Requirement("zone", "Near", ("z1",)),))
    affinity = objects.NodeAffinity(preferred=(PreferredSchedulingTerm(1, bad),))
    pod = make_pod(
        PodSpec(affinity=Affinity(node_affinity=affinity)), namespace="n", name="p", uid="u"
    )
    world = World(0, nodes=4)
    view = View.everything(world.table)
    status = NodeAffinity(None, world.handle).pre_score(CycleState(), pod, view)
    assert status.code is Code.Error
    assert '"Near" is not a valid label selector operator' in status.message


@pytest.mark.parametrize("added", [{}, {"preferredDuringSchedulingIgnoredDuringExecution": []}])
def test_without_preferred_terms_there_is_no_score(added):
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
    added = {"requiredDuringSchedulingIgnoredDuringExecution": required, **added}
    world = World(0, nodes=4)
    plugin = NodeAffinity(NodeAffinityArgs(added_affinity=added), world.handle)
    pod = pod_selecting(zone="z1")
    assert plugin.pre_score(CycleState(), pod, View.everything(world.table)) == SKIP


def expression(operator, *values, key="zone"):
    return NodeSelectorTerm((Requirement(key, operator, values),))


NO_INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"
NO_LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (
            [expression("Gt", "abc")],
            f'[0].matchExpressions[0].values[0]: Invalid value: "abc": {NO_INTEGER}',
        ),
        (
            [expression("In", "a"), expression("Lt", "-1", key="n")],
            f'[1].matchExpressions[0].values[0][n]: Invalid value: "-1": {NO_LABEL}',
        ),
        (
            [expression("NotIn", "x", 64 * "y")],
            f'[0].matchExpressions[0].values[1][zone]: Invalid value: "{64 * "y"}": must be no more than 63 bytes',
        ),
        (
            [expression("In", 'a"b'), expression("Gt", "a b")],
            f'[[0].matchExpressions[0].values[0][zone]: Invalid value: "a\\"b": {NO_LABEL}, '
            f'[1].matchExpressions[0].values[0]: Invalid value: "a b": {NO_INTEGER}, '
            f'[1].matchExpressions[0].values[0][zone]: Invalid value: "a b": {NO_LABEL}]',
        ),
    ],
)
def test_words_for_unreadable_preferred_terms(terms, words):
    preferred = tuple(PreferredSchedulingTerm(1, term) for term in terms)
    affinity = Affinity(node_affinity=objects.NodeAffinity(preferred=preferred))
    pod = make_pod(PodSpec(affinity=affinity), namespace="n", name="p", uid="u")
    world = World(0, nodes=4)
    view = View.everything(world.table)
    status = NodeAffinity(None, world.handle).pre_score(CycleState(), pod, view)
    assert (status.code, status.message) == (Code.Error, words)


def test_unreadable_preferred_term_of_weight_0_is_dropped():
    bad = NodeSelectorTerm((Requirement("zone", "Near", ("z1",)),))
    affinity = objects.NodeAffinity(preferred=(PreferredSchedulingTerm(0, bad),))
    pod = make_pod(
        PodSpec(affinity=Affinity(node_affinity=affinity)), namespace="n", name="p", uid="u"
    )
    world = World(0, nodes=4)
    view = View.everything(world.table)
    state, plugin = CycleState(), NodeAffinity(None, world.handle)
    assert plugin.pre_score(state, pod, view) == SUCCESS
    assert not plugin.score(state, pod, view).any()


@pytest.mark.parametrize(
    ("added", "message"),
    [
        (
            {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}
                    ]
                }
            },
            REQUIRED,
        ),
        (
            {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In"}]}
                    ]
                }
            },
            REQUIRED,
        ),
        (
            {
                PREFERRED: [
                    {
                        "weight": 1,
                        "preference": {
                            "matchExpressions": [{"key": "z", "operator": "Gt", "values": ["x"]}]
                        },
                    }
                ]
            },
            PREFERRED,
        ),
        ({REQUIRED: {"nodeSelectorTerms": 5}}, "addedAffinity"),
    ],
)
def test_bad_added_affinity_is_refused_at_start(added, message):
    with pytest.raises(
        ValueError, match=f"NodeAffinityArgs: addedAffinity.*{message}|addedAffinity: "
    ):
        NodeAffinity(NodeAffinityArgs(added), World(0, nodes=4).handle)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, node(zone="z1", disk="ssd"), QueueingHint.QUEUE),
        (None, node(zone="z1"), QueueingHint.SKIP),
        (None, node(disk="ssd"), QueueingHint.SKIP),
        (node(zone="z1"), node(zone="z1", disk="ssd"), QueueingHint.QUEUE),
        (node(disk="ssd"), node(zone="z1", disk="ssd"), QueueingHint.QUEUE),
        (node(zone="z1", disk="ssd"), node(zone="z1", disk="ssd", x="y"), QueueingHint.SKIP),
        (node(zone="z1", disk="ssd"), node(zone="z1"), QueueingHint.SKIP),
    ],
)
def test_node_hint(old, new, expected):
    plugin = NodeAffinity(NodeAffinityArgs({REQUIRED: IN_Z1}), World(0, nodes=4).handle)
    (registration,) = plugin.events_to_register()
    assert registration.event == ClusterEvent(Resource.Node, Action.Add | Action.UpdateNodeLabel)
    assert registration.template_only
    assert registration.hint(pod_selecting(disk="ssd"), old, new) is expected
