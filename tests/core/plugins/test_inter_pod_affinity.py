"""InterPodAffinity: against its scalar twin, and case by case."""

import numpy as np
import pytest

from app.framework.interface import CycleState
from app.model.cluster_event import Action, Resource
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
from app.model.status import Code
from app.plugins.args import InterPodAffinityArgs
from app.plugins.inter_pod_affinity import InterPodAffinity
from app.state.view import DryRunView
from tests.core.plugins.twins import pod_affinity as twin
from tests.core.plugins.twins.compare import (
    check_filter,
    garbage_of_a_cycle,
    judge,
    pre_filtered,
    rows_of,
    scored,
    verdicts,
)
from tests.core.plugins.twins.world import HOSTNAME, RACK, ZONE, Dice, World, make_node, two_zones

AFFINITY = (3, "node(s) didn't match pod affinity rules")
ANTI = (2, "node(s) didn't match pod anti-affinity rules")
EXISTING = (2, "node(s) didn't satisfy existing pods anti-affinity rules")


# ---------------------------------------------------------------- against the twin


@pytest.mark.parametrize("seed", range(25))
def test_filter_is_the_twins(seed):
    dice = Dice(seed)
    world = dice.world()
    plugin = InterPodAffinity(InterPodAffinityArgs(), world.handle)
    for _ in range(15):
        for _ in range(2):
            check_filter(world, plugin, dice.pod(affinity=0.7), twin.Filter, dice)
        dice.disturb(world)


@pytest.mark.parametrize("seed", range(25))
def test_scores_are_the_twins(seed):
    dice = Dice(1000 + seed)
    world = dice.world(nodes=10)
    weight, ignore = dice.random.choice([0, 1, 1, 100]), dice.chance(0.2)
    plugin = InterPodAffinity(InterPodAffinityArgs(weight, ignore), world.handle)
    for _ in range(12):
        for _ in range(2):
            pod = dice.pod(affinity=0.6)
            names = list(world.nodes)
            feasible = dice.random.sample(names, dice.random.randint(1, len(names)))
            expected = twin.scores(world, pod, feasible, weight, ignore)
            assert scored(world, plugin, pod, feasible, dice) == expected
        dice.disturb(world)


def test_random_worlds_show_every_verdict():
    seen = set()
    for seed in range(12):
        dice = Dice(seed)
        world = dice.world()
        plugin = InterPodAffinity(InterPodAffinityArgs(), world.handle)
        for _ in range(10):
            found = check_filter(world, plugin, dice.pod(affinity=0.7), twin.Filter, dice)
            seen.update(found.values())
    assert seen == {None, AFFINITY, ANTI, EXISTING}


# ---------------------------------------------------------------- building


def app(*names):
    return LabelSelector(match_expressions=(Requirement("app", "In", names),))


def term(key=ZONE, selector=None, **fields):
    return PodAffinityTerm(topology_key=key, label_selector=selector or app("web"), **fields)


def weighted(weight, *args, **fields):
    return WeightedPodAffinityTerm(weight, term(*args, **fields))


def spec(*, near=(), far=(), liked=(), disliked=()):
    return PodSpec(
        affinity=Affinity(
            pod_affinity=PodAffinity(required=tuple(near), preferred=tuple(liked)),
            pod_anti_affinity=PodAffinity(required=tuple(far), preferred=tuple(disliked)),
        )
    )


def pod(name, *, on="", app="web", namespace="north", labels=None, **terms):
    return make_pod(
        spec(**terms) if terms else PodSpec(),
        {"app": app, **(labels or {})},
        name=name,
        uid=name,
        namespace=namespace,
        node_name=on,
    )


@pytest.fixture
def world():
    return two_zones()


@pytest.fixture
def plugin(world):
    return InterPodAffinity(None, world.handle)


# ---------------------------------------------------------------- filter


def test_reason_of_affinity(world, plugin):
    world.add_pod(pod("web", on="a1"))
    assert judge(world, plugin, pod("new", app="db", near=[term()])) == {
        "a1": None,
        "a2": None,
        "b1": AFFINITY,
        "x": AFFINITY,
    }


def test_reason_of_anti_affinity(world, plugin):
    world.add_pod(pod("web", on="a1"))
    assert judge(world, plugin, pod("new", app="db", far=[term()])) == {
        "a1": ANTI,
        "a2": ANTI,
        "b1": None,
        "x": None,
    }


def test_reason_of_existing_anti_affinity(world, plugin):
    world.add_pod(pod("db", on="a1", app="db", far=[term(HOSTNAME)]))
    assert judge(world, plugin, pod("new")) == {"a1": EXISTING, "a2": None, "b1": None, "x": None}


def test_the_reasons_come_in_order(world, plugin):
    world.add_pod(pod("web", on="a1", far=[term()]))
    both = pod("new", near=[term(HOSTNAME)], far=[term()])
    assert judge(world, plugin, both) == {
        "a1": ANTI,
        "a2": AFFINITY,
        "b1": AFFINITY,
        "x": AFFINITY,
    }


def test_skips_when_no_term_concerns_the_pod(world, plugin):
    world.add_pod(pod("db", on="a1", app="db", far=[term()]))
    assert judge(world, plugin, pod("new", app="cache")) is None
    assert judge(world, plugin, pod("new", app="cache", liked=[weighted(1)])) is None


def test_skips_when_existing_terms_sit_where_their_key_is_missing(world, plugin):
    world.add_pod(pod("db", on="x", app="db", far=[term()]))
    world.add_pod(pod("lost", on="no-such-node", app="db", far=[term()]))
    assert judge(world, plugin, pod("new")) is None


def test_the_first_of_its_kind_may_go_where_the_keys_are(world, plugin):
    first = pod("new", near=[term(), term(HOSTNAME)])
    assert judge(world, plugin, first) == {"a1": None, "a2": None, "b1": None, "x": AFFINITY}
    world.add_pod(pod("lost", on="x"))
    assert judge(world, plugin, first)["b1"] is None
    world.add_pod(pod("web", on="a1"))
    assert judge(world, plugin, first) == {
        "a1": None,
        "a2": AFFINITY,
        "b1": AFFINITY,
        "x": AFFINITY,
    }


def test_a_pod_that_does_not_mean_itself_is_not_the_first_of_its_kind(world, plugin):
    assert set(judge(world, plugin, pod("new", app="db", near=[term()])).values()) == {AFFINITY}


def test_a_neighbour_in_a_place_with_only_one_of_the_keys_ends_the_first_pod_rule(world, plugin):
    world.set_node(make_node("r", {RACK: "r1"}))
    world.add_pod(pod("web", on="r"))
    found = judge(world, plugin, pod("new", near=[term(), term(RACK)]))
    assert set(found.values()) == {AFFINITY}


def test_one_neighbour_must_satisfy_all_affinity_terms(world, plugin):
    both = [term(), term(HOSTNAME, LabelSelector(match_labels={"tier": "x"}))]
    world.add_pod(pod("web", on="a1"))
    world.add_pod(pod("tiered", on="a1", app="db", labels={"tier": "x"}))
    assert judge(world, plugin, pod("new", near=both))["a1"] == AFFINITY
    world.add_pod(pod("ideal", on="a2", labels={"tier": "x"}))
    found = judge(world, plugin, pod("new", near=both))
    assert found["a2"] is None
    assert found["a1"] == AFFINITY


def test_pods_being_deleted_count(world, plugin):
    world.add_pod(
        make_pod(
            None,
            {"app": "web"},
            name="going",
            uid="going",
            namespace="north",
            node_name="a1",
            deletion_timestamp="2026-01-01T00:00:00Z",
        )
    )
    assert judge(world, plugin, pod("new", app="db", far=[term()]))["a1"] == ANTI


def test_an_absent_selector_means_nobody_and_an_empty_one_everybody(world, plugin):
    world.add_pod(pod("web", on="a1"))
    nobody = PodAffinityTerm(topology_key=ZONE)
    everybody = PodAffinityTerm(topology_key=ZONE, label_selector=LabelSelector())
    assert set(judge(world, plugin, pod("new", far=[nobody])).values()) == {None}
    assert judge(world, plugin, pod("new", app="db", far=[everybody]))["a2"] == ANTI


NOT_RED = LabelSelector(match_expressions=(Requirement("team", "NotIn", ("red",)),))
RED = LabelSelector(match_labels={"team": "red"})


@pytest.mark.parametrize(
    ("fields", "means"),
    [
        pytest.param({}, {"north"}, id="own namespace"),
        pytest.param({"namespaces": ("south",)}, {"south"}, id="listed"),
        pytest.param({"namespace_selector": RED}, {"south"}, id="selected"),
        pytest.param({"namespaces": ("north",), "namespace_selector": RED}, {"north", "south"}),
        pytest.param(
            {"namespace_selector": LabelSelector()}, {"north", "south", "unknown"}, id="all"
        ),
        pytest.param(
            {"namespace_selector": NOT_RED}, {"north", "south", "unknown"}, id="kept selector"
        ),
    ],
)
def test_namespaces_of_the_pods_own_terms(world, plugin, fields, means):
    world.set_namespace("north", {"team": "blue"})
    world.set_namespace("south", {"team": "red"})
    shy = pod("new", far=[term(HOSTNAME, **fields)])
    found = set()
    for namespace in ("north", "south", "unknown"):
        other = pod("other", on="a1", namespace=namespace)
        world.add_pod(other)
        if judge(world, plugin, shy)["a1"] == ANTI:
            found.add(namespace)
        world.remove_pod(other)
    assert found == means


@pytest.mark.parametrize(
    ("fields", "means"),
    [
        pytest.param({}, {"north"}, id="own namespace"),
        pytest.param({"namespace_selector": RED}, {"south"}, id="selected"),
        pytest.param({"namespace_selector": NOT_RED}, {"north", "unknown"}, id="labels asked"),
        pytest.param(
            {"namespace_selector": LabelSelector()}, {"north", "south", "unknown"}, id="all"
        ),
    ],
)
def test_namespaces_of_existing_terms(world, plugin, fields, means):
    world.set_namespace("north", {"team": "blue"})
    world.set_namespace("south", {"team": "red"})
    world.add_pod(pod("shy", on="a1", far=[term(HOSTNAME, **fields)]))
    found = {
        namespace
        for namespace in ("north", "south", "unknown")
        if judge(world, plugin, pod("new", namespace=namespace)) is not None
    }
    assert found == means


def test_follows_namespaces_that_change(world, plugin):
    shy = pod("new", far=[term(HOSTNAME, namespace_selector=RED)])
    world.add_pod(pod("other", on="a1", namespace="south"))
    world.add_pod(pod("guard", on="b1", app="db", far=[term(HOSTNAME, namespace_selector=RED)]))
    assert judge(world, plugin, shy) == {"a1": None, "a2": None, "b1": None, "x": None}
    world.set_namespace("south", {"team": "red"})
    assert judge(world, plugin, shy)["a1"] == ANTI
    assert judge(world, plugin, pod("web", namespace="south"))["b1"] == EXISTING
    world.set_namespace("south", {"team": "blue"})
    assert judge(world, plugin, shy)["a1"] is None
    assert judge(world, plugin, pod("web", namespace="south")) is None


def test_unreadable_terms_turn_the_pod_down_for_good(world, plugin):
    bad = LabelSelector(match_expressions=(Requirement("app", "Near", ("web",)),))
    status = plugin.pre_filter(CycleState(), pod("new", near=[term(selector=bad)]))
    assert status.code is Code.UnschedulableAndUnresolvable
    assert status.message == (
        'parsing pod: requiredAffinityTerms: "Near" is not a valid label selector operator'
    )
    twice = pod("new", far=[term(selector=bad)], liked=[weighted(1, selector=bad)])
    assert plugin.pre_filter(CycleState(), twice).message == (
        'parsing pod: [requiredAntiAffinityTerms: "Near" is not a valid label selector operator, '
        'preferredAffinityTerms: "Near" is not a valid label selector operator]'
    )


def test_unreadable_terms_of_existing_pods_are_passed_over(world, plugin):
    bad = LabelSelector(match_expressions=(Requirement("app", "Near", ("web",)),))
    world.add_pod(pod("odd", on="a1", far=[term(selector=bad)], disliked=[weighted(7)]))
    assert judge(world, plugin, pod("new")) is None
    raw, _ = scored(world, plugin, pod("new"), ["a1", "b1"], Dice(0))
    assert raw == {"a1": -7, "b1": 0}


# ---------------------------------------------------------------- imagined pods


def test_an_imagined_pod_brings_terms_nobody_has_yet(world, plugin):
    world.add_pod(pod("db", on="b1", app="db", far=[term(HOSTNAME)]))
    view = DryRunView(world.table, rows_of(world, ["a1", "a2"]))
    view.add(1, pod("nominated", on="a2", app="db", far=[term(ZONE)]))
    assert judge(world, plugin, pod("new"), view) == {"a1": None, "a2": EXISTING}


def test_a_pod_imagined_away_takes_all_its_terms_along(world, plugin):
    guard = pod("guard", on="a1", app="db", far=[term(), term(selector=app("web", "cache"))])
    world.add_pod(guard)
    view = DryRunView(world.table, rows_of(world, ["a1", "a2"]))
    state, _ = pre_filtered(plugin, pod("new"))
    assert verdicts(plugin, state, pod("new"), view) == [EXISTING, EXISTING]
    view.remove(0, guard)
    assert verdicts(plugin, state, pod("new"), view) == [None, EXISTING]
    assert judge(world, plugin, pod("new"), view) == {"a1": None, "a2": EXISTING}


def test_taking_away_the_last_neighbour_makes_the_pod_the_first_of_its_kind(world, plugin):
    web = pod("web", on="a1")
    world.add_pod(web)
    view = DryRunView(world.table, rows_of(world, ["a1", "b1"]))
    view.remove(0, web)
    assert judge(world, plugin, pod("new", near=[term()]), view) == {"a1": None, "b1": AFFINITY}


# ---------------------------------------------------------------- score


def test_scores_both_ways(world, plugin):
    world.add_pod(pod("web", on="a1", liked=[weighted(5)], near=[term(HOSTNAME)]))
    world.add_pod(pod("db", on="b1", app="db", disliked=[weighted(3)]))
    new = pod("new", liked=[weighted(10)], disliked=[weighted(20, HOSTNAME, app("db"))])
    raw, normalised = scored(world, plugin, new, list(world.nodes), Dice(0))
    assert raw == {"a1": 16, "a2": 15, "b1": -23, "x": 0}
    assert normalised == {"a1": 100, "a2": 97, "b1": 0, "x": 58}


def test_hard_affinity_weight(world):
    world.add_pod(pod("web", on="a1", near=[term()]))
    heavy = InterPodAffinity(InterPodAffinityArgs(hard_pod_affinity_weight=30), world.handle)
    raw, _ = scored(world, heavy, pod("new"), ["a1", "b1"], Dice(0))
    assert raw == {"a1": 30, "b1": 0}
    light = InterPodAffinity(InterPodAffinityArgs(hard_pod_affinity_weight=0), world.handle)
    assert scored(world, light, pod("new"), ["a1", "b1"], Dice(0)) is None


def test_preferred_terms_of_existing_pods_can_be_ignored(world):
    world.add_pod(pod("web", on="a1", liked=[weighted(5)]))
    args = InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True)
    plugin = InterPodAffinity(args, world.handle)
    assert scored(world, plugin, pod("new"), ["a1", "b1"], Dice(0)) is None
    asking = pod("new", liked=[weighted(1, selector=app("none"))])
    assert scored(world, plugin, asking, ["a1", "b1"], Dice(0))[0] == {"a1": 5, "b1": 0}


def test_weights_that_cancel_out_are_no_reason_to_skip(world, plugin):
    world.add_pod(pod("web", on="a1"))
    torn = pod("new", liked=[weighted(4)], disliked=[weighted(4)])
    raw, normalised = scored(world, plugin, torn, ["a1", "b1"], Dice(0))
    assert raw == normalised == {"a1": 0, "b1": 0}
    assert scored(world, plugin, torn, ["a1"], Dice(0)) is not None


def test_normalising_no_nodes():
    plugin = InterPodAffinity(None, World().handle)
    nothing = np.zeros(0, np.int64)
    assert not len(plugin.normalize(CycleState(), pod("new"), nothing, None))


def test_a_cycle_leaves_no_garbage(world, plugin):
    world.add_pod(pod("web", on="a1", far=[term(HOSTNAME)], liked=[weighted(1)]))
    new = pod("new", near=[term()], far=[term(RACK)], liked=[weighted(1)])
    garbage_of_a_cycle(world, plugin, new)
    assert garbage_of_a_cycle(world, plugin, new) == 0


# ---------------------------------------------------------------- events


def hints(plugin):
    by_resource = {r.event.resource: r for r in plugin.events_to_register()}
    assert by_resource[Resource.Pod].event.action == (
        Action.Add | Action.UpdatePodLabel | Action.Delete
    )
    assert by_resource[Resource.Node].event.action == Action.Add | Action.UpdateNodeLabel
    return by_resource[Resource.Pod].hint, by_resource[Resource.Node].hint


NEAR = {"near": [term(), term(HOSTNAME, LabelSelector(match_labels={"tier": "x"}))]}
FAR = {"far": [term(), term(HOSTNAME, LabelSelector(match_labels={"tier": "x"}))]}


@pytest.mark.parametrize(
    ("terms", "old", "new", "wakes"),
    [
        pytest.param(NEAR, None, {"tier": "x"}, True, id="wanted pod comes"),
        pytest.param(NEAR, None, {}, False, id="pod with half of what is wanted comes"),
        pytest.param(NEAR, {}, {"tier": "x"}, True, id="pod becomes wanted"),
        pytest.param(NEAR, {"tier": "x"}, {"tier": "x", "n": "1"}, False, id="was wanted before"),
        pytest.param(NEAR, {"tier": "x"}, {}, False, id="no longer wanted"),
        pytest.param(NEAR, {"tier": "x"}, None, False, id="wanted pod goes"),
        pytest.param(FAR, {"tier": "x"}, None, True, id="shunned pod goes"),
        pytest.param(FAR, {}, None, False, id="pod that one of two terms shuns goes"),
        pytest.param(FAR, {"tier": "x"}, {}, True, id="no longer shunned"),
        pytest.param(FAR, {}, {"tier": "x"}, False, id="becomes shunned"),
        pytest.param(FAR, None, {"tier": "x"}, False, id="shunned pod comes"),
        pytest.param({}, {"tier": "x"}, None, False, id="no terms"),
    ],
)
def test_pod_hint(plugin, terms, old, new, wakes):
    hint, _ = hints(plugin)
    make = lambda labels: None if labels is None else pod("other", on="a1", labels=labels)  # noqa: E731
    assert hint(pod("waiting", app="db", **terms), make(old), make(new)) is wakes


def test_pod_hint_heeds_the_terms_of_a_pod_that_goes(plugin):
    hint, _ = hints(plugin)
    guard = pod("guard", on="a1", app="db", far=[term()])
    assert hint(pod("waiting"), guard, None) is True
    assert hint(pod("waiting", app="cache"), guard, None) is False
    assert hint(pod("waiting", namespace="south"), guard, None) is False


def test_pod_hint_on_the_pod_itself_and_on_pods_without_a_place(plugin):
    hint, _ = hints(plugin)
    waiting = pod("waiting", app="db", near=[term()])
    assert hint(waiting, waiting, waiting) is True
    assert hint(waiting, None, pod("other")) is False
    assert hint(waiting, None, pod("other", on="a1")) is True


@pytest.mark.parametrize(
    ("terms", "old", "new", "wakes"),
    [
        pytest.param({"near": [term()]}, None, {ZONE: "a"}, True, id="node with the key"),
        pytest.param({"near": [term()]}, None, {}, False, id="node without it"),
        pytest.param({"near": [term()]}, {}, {ZONE: "a"}, True, id="gets the key"),
        pytest.param({"near": [term()]}, {ZONE: "a"}, {ZONE: "b"}, True, id="changes domain"),
        pytest.param({"near": [term()]}, {ZONE: "a"}, {ZONE: "a"}, False, id="stays"),
        pytest.param({"near": [term()]}, {ZONE: "a"}, {}, False, id="loses the key"),
        pytest.param({"far": [term()]}, None, {}, True, id="any node helps the shy"),
        pytest.param({"far": [term()]}, {ZONE: "a"}, {}, True, id="leaves the domain"),
        pytest.param({"far": [term()]}, {ZONE: "a"}, {ZONE: "b"}, True, id="changes its domain"),
        pytest.param({"far": [term()]}, {}, {ZONE: "a"}, False, id="enters a domain"),
        pytest.param({}, None, {ZONE: "a"}, True, id="nobody shuns it there"),
        pytest.param({}, {ZONE: "a"}, {ZONE: "b"}, False, id="no terms"),
    ],
)
def test_node_hint(plugin, terms, old, new, wakes):
    _, hint = hints(plugin)
    make = lambda labels: None if labels is None else make_node("n", labels)  # noqa: E731
    assert hint(pod("waiting", **terms), make(old), make(new)) is wakes


def test_hints_wake_pods_whose_terms_cannot_be_read(plugin):
    bad = LabelSelector(match_expressions=(Requirement("app", "Near", ("web",)),))
    waiting = pod("waiting", near=[term(selector=bad)])
    on_pod, on_node = hints(plugin)
    assert on_pod(waiting, None, pod("other", on="a1")) is True
    assert on_node(waiting, None, make_node("n")) is True
