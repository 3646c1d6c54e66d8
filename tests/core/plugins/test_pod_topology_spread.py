"""PodTopologySpread: against its scalar twin, and case by case."""

import math

import msgspec
import numpy as np
import pytest

from app.framework.interface import CycleState
from app.model.cluster_event import Action, Resource
from app.model.objects import (
    LabelSelector,
    ObjectMeta,
    OwnerReference,
    PodSpec,
    ReplicaSet,
    ReplicationController,
    Requirement,
    Service,
    ServiceSpec,
    StatefulSet,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    WorkloadSpec,
)
from app.model.pod import LabelSet, make_pod
from app.model.status import Code
from app.plugins.args import DefaultConstraint, PodTopologySpreadArgs
from app.plugins.pod_topology_spread import PodTopologySpread
from app.plugins.pod_topology_spread.soft import round_half_away
from app.state.view import DryRunView, View
from tests.core.plugins.twins import spread as twin
from tests.core.plugins.twins.compare import (
    check_filter,
    garbage_of_a_cycle,
    judge,
    rows_of,
    scored,
)
from tests.core.plugins.twins.world import HOSTNAME, RACK, ZONE, Dice, World, make_node, two_zones

SKEW = (2, "node(s) didn't match pod topology spread constraints")
MISSING = (3, "node(s) didn't match pod topology spread constraints (missing required label)")
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"
WEB = LabelSelector(match_labels={"app": "web"})


def hard_twin(world, pod):
    return twin.Hard(world, pod, twin.own_rules(pod, HARD))


# ---------------------------------------------------------------- against the twin


@pytest.mark.parametrize("seed", range(25))
def test_filter_is_the_twins(seed):
    dice = Dice(seed)
    world = dice.world(affinity=0)
    plugin = PodTopologySpread(None, world.handle)
    for _ in range(15):
        for _ in range(2):
            check_filter(world, plugin, dice.pod(affinity=0, constraints=True), hard_twin, dice)
        dice.disturb(world)


def test_random_worlds_show_every_verdict():
    seen = set()
    for seed in range(12):
        dice = Dice(seed)
        world = dice.world(affinity=0)
        plugin = PodTopologySpread(None, world.handle)
        for _ in range(10):
            pod = dice.pod(affinity=0, constraints=True)
            seen.update(check_filter(world, plugin, pod, hard_twin, dice).values())
    assert seen == {None, SKEW, MISSING}


@pytest.mark.parametrize("seed", range(25))
def test_scores_are_the_twins(seed):
    dice = Dice(1000 + seed)
    world = dice.world(nodes=10, affinity=0)
    plugin = PodTopologySpread(None, world.handle)
    for _ in range(12):
        for _ in range(2):
            pod = dice.pod(affinity=0, constraints=True)
            names = list(world.nodes)
            feasible = dice.random.sample(names, dice.random.randint(1, len(names)))
            expected = twin.scores(
                world, pod, twin.own_rules(pod, SOFT), feasible, require_all=True
            )
            assert scored(world, plugin, pod, feasible, dice) == expected
        dice.disturb(world)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["System", "List"])
def test_default_constraints_are_the_twins(seed, kind):
    dice = Dice(2000 + seed)
    world = dice.world(nodes=10, affinity=0)
    pairs = twin.SYSTEM if kind == "System" else ((RACK, 2), (ZONE, 1))
    listed = tuple(
        DefaultConstraint(skew, key, action) for action in (HARD, SOFT) for key, skew in pairs
    )
    args = PodTopologySpreadArgs(kind, () if kind == "System" else listed)
    plugin = PodTopologySpread(args, world.handle)

    def default_twin(world, pod):
        return twin.Hard(
            world, pod, twin.default_rules(world, pod, () if kind == "System" else pairs)
        )

    for _ in range(12):
        _change_owners(world, dice)
        pod = _owned(dice.pod(affinity=0.2), dice)
        if kind == "List":
            check_filter(world, plugin, pod, default_twin, dice)
        rules = twin.default_rules(world, pod, pairs)
        names = list(world.nodes)
        feasible = dice.random.sample(names, dice.random.randint(1, len(names)))
        expected = twin.scores(world, pod, rules, feasible, require_all=kind == "List")
        assert scored(world, plugin, pod, feasible, dice) == expected
        dice.disturb(world)


OWNERS = [
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1beta1", "ReplicaSet"),
    ("batch/v1", "Job"),
]


def _owned(pod, dice):
    if dice.chance(0.3):
        return pod
    version, kind = dice.random.choice(OWNERS)
    owner = OwnerReference(kind=kind, name="one", uid="u", controller=True, api_version=version)
    return msgspec.structs.replace(pod, owner=owner)


def _change_owners(world, dice):
    meta = ObjectMeta(name=dice.random.choice(["one", "two"]), namespace=dice.namespace())
    pairs = dice.random.choice([None, {"app": dice.random.choice("abc")}, {"tier": "x"}, {}])
    selector = WorkloadSpec(selector=dice.selector())
    world.cluster.lister(Service).store(Service(metadata=meta, spec=ServiceSpec(pairs)))
    for kind, spec in (
        (ReplicationController, ServiceSpec(pairs)),
        (ReplicaSet, selector),
        (StatefulSet, selector),
    ):
        obj = kind(metadata=meta, spec=spec)
        if dice.chance(0.7):
            world.cluster.lister(kind).store(obj)
        else:
            world.cluster.lister(kind).remove(obj)


# ---------------------------------------------------------------- building


def constraint(key=ZONE, *, action=HARD, max_skew=1, selector=WEB, **fields):
    return TopologySpreadConstraint(
        max_skew=max_skew,
        topology_key=key,
        when_unsatisfiable=action,
        label_selector=selector,
        **fields,
    )


def pod(name, *constraints, on="", app="web", namespace="north", labels=None, **fields):
    spec = {"tolerations": fields.pop("tolerations", None)}
    spec["node_selector"] = fields.pop("node_selector", None)
    return make_pod(
        PodSpec(topology_spread_constraints=constraints or None, **spec),
        {"app": app, **(labels or {})},
        name=name,
        uid=name,
        namespace=namespace,
        node_name=on,
        **fields,
    )


@pytest.fixture
def world():
    return two_zones()


@pytest.fixture
def plugin(world):
    return PodTopologySpread(None, world.handle)


def populate(world, **counts):
    for node, count in counts.items():
        for number in range(count):
            world.add_pod(pod(f"{node}-{number}", on=node))


# ---------------------------------------------------------------- filter


def test_reasons(world, plugin):
    populate(world, a1=1)
    assert judge(world, plugin, pod("new", constraint())) == {
        "a1": SKEW,
        "a2": SKEW,
        "b1": None,
        "x": MISSING,
    }


def test_skips_without_hard_constraints(world, plugin):
    assert judge(world, plugin, pod("new")) is None
    assert judge(world, plugin, pod("new", constraint(action=SOFT))) is None


def test_the_first_constraint_that_fails_gives_the_reason(world, plugin):
    world.set_node(make_node("c", {ZONE: "a"}))
    populate(world, a1=1)
    in_order = judge(world, plugin, pod("new", constraint(HOSTNAME), constraint()))
    assert in_order["c"] == MISSING
    other_order = judge(world, plugin, pod("new", constraint(), constraint(HOSTNAME)))
    assert other_order["c"] == SKEW


def test_nodes_that_lack_one_of_the_keys_do_not_count(world, plugin):
    world.set_node(make_node("c", {ZONE: "c"}))
    populate(world, a1=1, b1=1)
    assert judge(world, plugin, pod("new", constraint()))["a1"] == SKEW
    both = judge(world, plugin, pod("new", constraint(), constraint(HOSTNAME, max_skew=9)))
    assert both["a1"] is None


def test_max_skew(world, plugin):
    populate(world, a1=2)
    assert judge(world, plugin, pod("new", constraint(max_skew=2)))["a1"] == SKEW
    assert judge(world, plugin, pod("new", constraint(max_skew=3)))["a1"] is None


def test_a_pod_that_does_not_match_itself_adds_nothing(world, plugin):
    populate(world, a1=1)
    assert judge(world, plugin, pod("new", constraint(), app="db"))["a1"] is None


@pytest.mark.parametrize(
    ("min_domains", "verdict"), [(None, None), (1, None), (2, None), (3, SKEW)]
)
def test_min_domains(world, plugin, min_domains, verdict):
    populate(world, a1=1, b1=1)
    found = judge(world, plugin, pod("new", constraint(min_domains=min_domains)))
    assert found["a1"] == verdict


def test_the_empty_selector_counts_nobody_but_the_pod_itself(world, plugin):
    populate(world, a1=5)
    everybody = constraint(selector=LabelSelector())
    assert judge(world, plugin, pod("new", everybody))["a1"] is None


def test_the_absent_selector_counts_nobody(world, plugin):
    populate(world, a1=5)
    assert judge(world, plugin, pod("new", constraint(selector=None)))["a1"] is None


def test_only_living_pods_of_the_namespace_count(world, plugin):
    world.add_pod(pod("elsewhere", on="a1", namespace="south"))
    world.add_pod(pod("going", on="a1", deletion_timestamp="2026-01-01T00:00:00Z"))
    world.add_pod(pod("lost", on="no-such-node"))
    assert judge(world, plugin, pod("new", constraint()))["a1"] is None


def test_match_label_keys(world, plugin):
    for version in ("1", "2"):
        world.add_pod(pod(f"old-{version}", on="a1", labels={"version": version}))
    world.add_pod(pod("old-3", on="b1", labels={"version": "1"}))
    rule = constraint(match_label_keys=("version", "absent"))
    assert judge(world, plugin, pod("new", rule, labels={"version": "2"})) == {
        "a1": SKEW,
        "a2": SKEW,
        "b1": None,
        "x": MISSING,
    }
    assert judge(world, plugin, pod("new", rule, labels={"version": "1"}))["a1"] is None
    assert judge(world, plugin, pod("new", rule))["a1"] == SKEW
    already_merged = constraint(
        selector=LabelSelector(
            match_labels={"app": "web"},
            match_expressions=(Requirement("version", "In", ("2",)),),
        ),
        match_label_keys=("version",),
    )
    assert judge(world, plugin, pod("new", already_merged, labels={"version": "2"}))["a1"] == SKEW


def test_match_label_keys_tell_siblings_apart(world, plugin):
    for number in range(2):
        world.add_pod(pod(f"old-{number}", on="a1", labels={"version": "1"}))
    first = pod("first", constraint(match_label_keys=("version",)), labels={"version": "1"})
    assert judge(world, plugin, first)["a1"] == SKEW
    sibling = msgspec.structs.replace(first, labels=LabelSet({"app": "web", "version": "2"}))
    assert judge(world, plugin, sibling)["a1"] is None


def test_match_label_keys_do_not_mend_an_absent_selector(world, plugin):
    world.add_pod(pod("old", on="a1", labels={"version": "1"}))
    rule = constraint(selector=None, match_label_keys=("version",))
    assert judge(world, plugin, pod("new", rule, labels={"version": "1"}))["a1"] is None


@pytest.mark.parametrize(("policy", "verdict"), [(None, None), ("Honor", None), ("Ignore", SKEW)])
def test_node_affinity_policy(world, plugin, policy, verdict):
    """Zone b is the emptier one; it counts only if the pod may go there or nobody asks."""
    world.set_node(make_node("a1", {ZONE: "a", HOSTNAME: "a1", "disk": "ssd"}))
    populate(world, a1=1)
    new = pod("new", constraint(node_affinity_policy=policy), node_selector={"disk": "ssd"})
    assert judge(world, plugin, new)["a1"] == verdict


@pytest.mark.parametrize(("policy", "verdict"), [(None, SKEW), ("Honor", None), ("Ignore", SKEW)])
def test_node_taints_policy(world, plugin, policy, verdict):
    world.set_node(make_node("b1", {ZONE: "b"}, [Taint("gpu", "", "NoSchedule")]))
    populate(world, a1=1)
    rule = constraint(node_taints_policy=policy)
    assert judge(world, plugin, pod("new", rule))["a1"] == verdict
    tolerant = pod("new", rule, tolerations=(Toleration(key="gpu", operator="Exists"),))
    assert judge(world, plugin, tolerant)["a1"] == SKEW


def test_an_excluded_node_is_judged_by_its_domain(world, plugin):
    world.set_node(make_node("a2", {ZONE: "a"}, [Taint("gpu", "", "NoSchedule")]))
    populate(world, a1=1, a2=5)
    found = judge(world, plugin, pod("new", constraint(node_taints_policy="Honor")))
    assert found == {"a1": SKEW, "a2": SKEW, "b1": None, "x": MISSING}


def test_unreadable_constraints_fail_the_attempt(world, plugin):
    bad = LabelSelector(match_expressions=(Requirement("app", "Near", ("web",)),))
    status = plugin.pre_filter(CycleState(), pod("new", constraint(selector=bad)))
    assert status.code is Code.Error
    assert status.message == (
        "get constraints from pod: obtaining pod's hard topology spread constraints: "
        '"Near" is not a valid label selector operator'
    )
    soft = pod("new", constraint(selector=bad, action=SOFT))
    status = plugin.pre_score(CycleState(), soft, View.everything(world.table))
    assert status.code is Code.Error
    assert status.message == (
        "calculating preScoreState: obtaining pod's soft topology spread constraints: "
        '"Near" is not a valid label selector operator'
    )


# ---------------------------------------------------------------- imagined pods


def test_an_imagined_removal_moves_the_minimum_of_its_own_world_only(world, plugin):
    populate(world, a1=1, b1=1)
    view = DryRunView(world.table, rows_of(world, ["a1", "b1", "a2"]))
    new = pod("new", constraint())
    assert set(judge(world, plugin, new, view).values()) == {None}
    view.add(2, pod("extra", on="a2"))
    assert judge(world, plugin, new, view) == {"a1": None, "b1": None, "a2": SKEW}
    view.remove(1, world.on("b1")[0])
    assert judge(world, plugin, new, view) == {"a1": None, "b1": None, "a2": SKEW}


def test_imagined_removals_under_the_empty_selector_count_below_zero(world, plugin):
    """As in kube-scheduler, which counts nobody there but takes away everybody."""
    populate(world, a1=2)
    view = DryRunView(world.table, rows_of(world, ["a1"]))
    for old in world.on("a1"):
        view.remove(0, old)
    wide = constraint(selector=LabelSelector())
    narrow = constraint(selector=LabelSelector(), min_domains=3)
    assert judge(world, plugin, pod("new", wide), view) == {"a1": None}
    assert judge(world, plugin, pod("new", narrow), view) == {"a1": None}


# ---------------------------------------------------------------- score


def test_scores(world, plugin):
    populate(world, a1=2, b1=1)
    new = pod("new", constraint(action=SOFT, max_skew=3))
    raw, normalised = scored(world, plugin, new, list(world.nodes), Dice(0))
    in_a, in_b = round(2 * math.log(4) + 2), round(1 * math.log(4) + 2)
    assert raw == {"a1": in_a, "a2": in_a, "b1": in_b, "x": 0}
    assert normalised == {"a1": 60, "a2": 60, "b1": 100, "x": 0}


def test_only_feasible_domains_weigh(world, plugin):
    populate(world, a1=10)
    new = pod("new", constraint(action=SOFT))
    raw, _ = scored(world, plugin, new, ["a1", "a2"], Dice(0))
    assert raw == dict.fromkeys(("a1", "a2"), round(10 * math.log(3)))


def test_hostname_scores_each_node_by_its_own_pods(world, plugin):
    populate(world, a1=3)
    new = pod("new", constraint(HOSTNAME, action=SOFT))
    raw, normalised = scored(world, plugin, new, ["a1", "a2", "b1"], Dice(0))
    assert raw == {"a1": round(3 * math.log(5)), "a2": 0, "b1": 0}
    assert normalised == {"a1": 0, "a2": 100, "b1": 100}


def test_no_pods_anywhere_is_best_everywhere(world, plugin):
    new = pod("new", constraint(action=SOFT))
    _, normalised = scored(world, plugin, new, ["a1", "b1", "x"], Dice(0))
    assert normalised == {"a1": 100, "b1": 100, "x": 0}


def test_skips_scoring_without_soft_constraints_or_nodes(world, plugin):
    assert scored(world, plugin, pod("new", constraint()), ["a1"], Dice(0)) is None
    assert scored(world, plugin, pod("new"), ["a1"], Dice(0)) is None
    empty = World()
    soft = pod("new", constraint(action=SOFT))
    assert scored(empty, PodTopologySpread(None, empty.handle), soft, [], Dice(0)) is None


def test_system_defaults_need_something_that_selects_the_pod(world, plugin):
    populate(world, a1=1)
    assert scored(world, plugin, pod("new"), ["a1", "b1"], Dice(0)) is None
    meta = ObjectMeta(name="web", namespace="north")
    world.cluster.services.store(Service(metadata=meta, spec=ServiceSpec({"app": "web"})))
    raw, _ = scored(world, plugin, pod("new"), ["a1", "b1", "x"], Dice(0))
    hostname, zone = math.log(3 + 2), math.log(3 + 2)
    assert raw == {"a1": round(hostname + 2 + zone + 4), "b1": 6, "x": 0}
    world.cluster.services.remove(Service(metadata=meta))
    assert scored(world, plugin, pod("new"), ["a1", "b1"], Dice(0)) is None


def test_default_selector_follows_the_controller(world, plugin):
    owner = OwnerReference(
        kind="ReplicaSet", name="web", uid="u", controller=True, api_version="apps/v1"
    )
    populate(world, a1=1)
    new = pod("new", owner=owner)
    assert scored(world, plugin, new, ["a1", "b1"], Dice(0)) is None
    meta = ObjectMeta(name="web", namespace="north")
    for selector, in_a in ((WEB, 1), (LabelSelector(match_labels={"app": "db"}), 0)):
        world.cluster.replica_sets.store(ReplicaSet(metadata=meta, spec=WorkloadSpec(selector)))
        raw, _ = scored(world, plugin, new, ["a1", "b1"], Dice(0))
        assert raw["a1"] - raw["b1"] == round(in_a * 2 * math.log(4) + 6) - 6


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.0, 0), (0.49999999999999994, 0), (0.5, 1), (1.5, 2), (2.5, 3), (2.4999, 2)],
)
def test_rounding(value, rounded):
    assert round_half_away(np.array([value])).tolist() == [rounded]


def test_a_cycle_leaves_no_garbage(world, plugin):
    populate(world, a1=1)
    new = pod("new", constraint(), constraint(HOSTNAME, action=SOFT))
    garbage_of_a_cycle(world, plugin, new)
    assert garbage_of_a_cycle(world, plugin, new) == 0


# ---------------------------------------------------------------- events


def hints(plugin):
    by_resource = {r.event.resource: r for r in plugin.events_to_register()}
    assert by_resource[Resource.Pod].event.action == (
        Action.Add | Action.UpdatePodLabel | Action.UpdatePodToleration | Action.Delete
    )
    assert by_resource[Resource.Node].event.action == (
        Action.Add | Action.Delete | Action.UpdateNodeLabel | Action.UpdateNodeTaint
    )
    return by_resource[Resource.Pod].hint, by_resource[Resource.Node].hint


TWO_RULES = (constraint(), constraint(HOSTNAME, selector=LabelSelector(match_labels={"tier": "x"})))


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        pytest.param(None, {"app": "web"}, True, id="matching pod comes"),
        pytest.param(None, {"app": "db", "labels": {"tier": "x"}}, True, id="matches the second"),
        pytest.param(None, {"app": "db"}, False, id="other pod comes"),
        pytest.param({"app": "web"}, None, True, id="matching pod goes"),
        pytest.param({"app": "db"}, None, False, id="other pod goes"),
        pytest.param({"app": "db"}, {"app": "web"}, True, id="begins to match"),
        pytest.param({"app": "web"}, {"app": "db"}, True, id="ceases to match"),
        pytest.param({"app": "web"}, {"app": "web", "labels": {"a": "b"}}, False, id="no matter"),
        pytest.param(None, {"on": ""}, False, id="pod without a place"),
        pytest.param(None, {"on": "", "nominated_node_name": "a1"}, True, id="nominated pod"),
        pytest.param(None, {"namespace": "south"}, False, id="other namespace"),
    ],
)
def test_pod_hint(plugin, old, new, wakes):
    hint, _ = hints(plugin)

    def make(fields):
        return None if fields is None else pod("other", **{"on": "a1", **fields})

    assert hint(pod("waiting", *TWO_RULES), make(old), make(new)) is wakes


@pytest.mark.parametrize(("policy", "wakes"), [("Honor", True), (None, False)])
def test_pod_hint_on_own_tolerations(plugin, policy, wakes):
    hint, _ = hints(plugin)
    rule = constraint(node_taints_policy=policy)
    tolerant = pod("waiting", rule, tolerations=(Toleration(operator="Exists"),))
    assert hint(tolerant, pod("waiting", rule), tolerant) is wakes
    assert hint(pod("other", rule, on="a1"), pod("waiting", rule, on="a1"), tolerant) is False


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        pytest.param(None, {ZONE: "a", HOSTNAME: "n"}, True, id="node with the keys comes"),
        pytest.param(None, {ZONE: "a"}, False, id="node without one comes"),
        pytest.param({ZONE: "a", HOSTNAME: "n"}, None, True, id="node with the keys goes"),
        pytest.param({HOSTNAME: "n"}, None, False, id="node without one goes"),
        pytest.param({ZONE: "a"}, {ZONE: "a", HOSTNAME: "n"}, True, id="gets the last key"),
        pytest.param({ZONE: "a", HOSTNAME: "n"}, {ZONE: "a"}, True, id="loses a key"),
        pytest.param(
            {ZONE: "a", HOSTNAME: "n"}, {ZONE: "b", HOSTNAME: "n"}, True, id="changes domain"
        ),
        pytest.param(
            {ZONE: "a", HOSTNAME: "n"}, {ZONE: "a", HOSTNAME: "n", "x": ""}, False, id="no matter"
        ),
        pytest.param({ZONE: "a"}, {ZONE: "b"}, False, id="never had all keys"),
    ],
)
def test_node_hint(plugin, old, new, wakes):
    _, hint = hints(plugin)
    make = lambda labels: None if labels is None else make_node("n", labels)  # noqa: E731
    assert hint(pod("waiting", *TWO_RULES), make(old), make(new)) is wakes


def test_node_hint_on_taints(plugin):
    _, hint = hints(plugin)
    plain = make_node("n", {ZONE: "a"})
    tainted = make_node("n", {ZONE: "a"}, [Taint("gpu", "", "NoSchedule")])
    assert hint(pod("waiting", constraint()), tainted, plain) is True
    assert hint(pod("waiting", constraint()), tainted, tainted) is False
    assert hint(pod("waiting", constraint(RACK)), tainted, plain) is False


def test_hints_wake_pods_whose_constraints_cannot_be_read(plugin):
    bad = LabelSelector(match_expressions=(Requirement("app", "Near", ("web",)),))
    waiting = pod("waiting", constraint(selector=bad))
    on_pod, on_node = hints(plugin)
    assert on_pod(waiting, None, pod("other", on="a1")) is True
    assert on_node(waiting, None, make_node("n")) is True


def test_node_hint_looks_at_more_than_the_template_only_with_hard_defaults(world):
    def template_only(args):
        registered = PodTopologySpread(args, world.handle).events_to_register()
        return next(r.template_only for r in registered if r.event.resource is Resource.Node)

    assert template_only(None)
    assert not template_only(PodTopologySpreadArgs("List", (DefaultConstraint(1, ZONE, HARD),)))
