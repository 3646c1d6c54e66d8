"""Preemption for and of pod groups as a whole: whose pods go, and where the group fits then."""

import itertools
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cycle.attempt import Attempt, Unfit
from app.framework.interface import GroupMember
from app.framework.testing import make_node, make_object, make_pod
from app.model.objects import PodDisruptionBudget
from app.model.pod_groups import GroupKey, PodGroup
from app.model.status import Code
from app.plugins.default_preemption import importance
from app.plugins.default_preemption.dry_run import DryRunViews
from app.plugins.default_preemption.importance import (
    WholeLosses,
    by_importance,
    loss,
    started_at,
)
from app.state.cluster import Cluster
from app.state.nominations import NO_PODS
from app.state.nominator import Nominator
from app.state.table import NodeTable
from app.wire.extender_v1 import Victims
from tests.core.framework.coroutines import finish
from tests.core.plugins.preemption_world import Extenders, frameworks

GANG = GroupKey(PodGroup, "default", "gang")


def group(name, priority=0, min_count=1, mode="Pod"):
    spec = {
        "schedulingPolicy": {"gang": {"minCount": min_count}},
        "disruptionMode": mode,
        "priority": priority,
    }
    metadata = {"name": name, "namespace": "default", "uid": f"uid-of-{name}"}
    return make_object(PodGroup, {"metadata": metadata, "spec": spec})


def pod(name, cpu=1, priority=0, group=None, labels=None, deleted=False, started=None, **spec):
    if group is not None:
        spec["schedulingGroup"] = {"podGroupName": group}
    containers = [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]
    made = make_pod(
        name,
        labels=labels or {"app": "x"},
        spec={"containers": containers, "priority": priority, **spec},
    )
    stamp = "2026-01-01T00:00:00Z" if deleted else None
    return msgspec.structs.replace(made, start_time=started, deletion_timestamp=stamp)


class Clock:
    def monotonic(self):
        return 0.0


class World:
    """Nodes with pods on them; ``preempt`` asks for a gang that needs room."""

    def __init__(self, **nodes):
        self.table, self.cluster = NodeTable(), Cluster()
        self.groups = self.cluster.pod_groups
        self.groups.preempt_whole()
        self.groups.watch(PodGroup, lambda: "/apis/scheduling.k8s.io/v1alpha2/podgroups")
        self.nominator = Nominator()
        self.framework, self.plugin = frameworks(
            self.table, self.cluster, self.nominator, np.random.default_rng(1)
        )
        self.plugin._handle.clock = Clock()
        self.effects = Extenders()
        for name, cpu in nodes.items():
            allocatable = {"cpu": str(cpu), "memory": "16Gi", "pods": "110"}
            self.table.set_node(make_node(name, status={"allocatable": allocatable}))

    def run(self, node, *pods):
        for each in pods:
            self.table.add_pod(each.on(node))
            self.groups.put(each.on(node), scheduled=True)
        return self

    def add(self, *groups):
        for each in groups:
            self.groups.listers[PodGroup].store(each)
        return self

    def preempt(self, members, need, **more):
        members = [GroupMember(each, fits=False) for each in members]
        request = self.plugin.pod_group_post_filter(GANG, members, need, self.effects, **more)
        return finish(request)

    @property
    def evicted(self):
        return [victim.name for eviction in self.effects.evictions for victim in eviction.victims]


def gang(size, cpu=1, priority=1000, **fields):
    return [pod(f"g{i}", cpu, priority, "gang", **fields) for i in range(size)]


def test_evicts_the_least_important_pods_for_the_minimum():
    world = World(a=2, b=2).add(group("gang", 1000, 2))
    world.run("a", pod("old", started=1.0), pod("high", priority=5))
    world.run("b", pod("new", started=2.0), pod("newer", started=3.0))
    result = world.preempt(gang(3), 2)
    assert result.status.ok
    assert Counter(result.nodes.values()) == {"b": 2}
    assert world.evicted == ["new", "newer"]


@pytest.mark.parametrize("other", [1, 2])
def test_a_pod_with_the_host_port_goes(other):
    ports = [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    world = World(a=4, b=1).add(group("gang", 1000))
    world.run("a", pod("low", priority=1), pod("holds", priority=other, containers=ports))
    world.run("b", pod("more", priority=900, containers=ports))
    assert world.preempt(gang(1, containers=ports), 1).nodes == {"uid-of-default-g0": "a"}
    assert world.evicted == ["holds"]


def test_what_is_as_important_stays():
    world = World(a=1).add(group("gang", 10)).run("a", pod("same", priority=10))
    status = world.preempt(gang(1), 1).status
    assert status.message == "No preemption victims found for incoming preemptor"
    assert status.code is Code.UnschedulableAndUnresolvable


def test_the_groups_own_priority_counts():
    world = World(a=1).add(group("gang", 10)).run("a", pod("p", priority=9))
    assert world.preempt(gang(1, priority=0), 1).status.ok
    assert world.evicted == ["p"]


def test_evicts_nothing_if_the_minimum_does_not_fit():
    world = World(a=2, b=2).add(group("gang", 10, 4))
    world.run("a", pod("p")).run("b", pod("q", priority=10))
    status = world.preempt(gang(4), 4).status
    assert status.message == "pod group is unschedulable"
    assert not world.effects.evictions


def test_a_group_does_not_evict_its_own_pods():
    world = World(a=1, b=1).add(group("gang", 10, 2)).run("a", pod("mate", group="gang"))
    world.run("b", pod("other", priority=5))
    assert world.preempt(gang(1), 1).status.ok
    assert world.evicted == ["other"]


def test_a_pod_that_never_preempts_keeps_its_group_from_it():
    world = World(a=1).add(group("gang", 10)).run("a", pod("p"))
    status = world.preempt(gang(1, preemptionPolicy="Never"), 1).status
    assert status.message == "not eligible due to preemptionPolicy=Never."


def test_a_group_in_mode_podgroup_goes_as_a_whole():
    world = World(a=1, b=1, c=1).add(group("gang", 10), group("whole", 5, 2, "PodGroup"))
    world.run("a", pod("w0", group="whole")).run("b", pod("w1", group="whole"))
    world.run("c", pod("p", priority=6))
    assert world.preempt(gang(1), 1).status.ok
    assert sorted(world.evicted) == ["w0", "w1"]


def test_a_group_in_mode_podgroup_has_its_own_priority():
    world = World(a=1, b=1).add(group("gang", 10), group("whole", 10, 2, "PodGroup"))
    world.run("a", pod("w0", group="whole")).run("b", pod("p", priority=9))
    assert world.preempt(gang(2), 2).status.message == "pod group is unschedulable"
    assert world.preempt(gang(1), 1).status.ok
    assert world.evicted == ["p"]


def test_groups_are_more_important_than_pods_and_large_ones_more_than_small_ones():
    world = World(**dict.fromkeys("abcd", 1))
    world.add(group("gang", 10), group("one", 0, 1, "PodGroup"), group("two", 0, 2, "PodGroup"))
    world.run("a", pod("t0", group="two", started=9.0)).run("b", pod("t1", group="two"))
    world.run("c", pod("o0", group="one", started=1.0)).run("d", pod("p", started=1.0))
    assert world.preempt(gang(1), 1).status.ok
    assert world.evicted == ["p"]
    world.effects.evictions.clear()
    assert world.preempt(gang(2), 2).status.ok
    assert world.evicted == ["o0", "p"]


def test_a_pod_of_a_group_in_mode_pod_is_a_unit():
    world = World(a=1, b=1).add(group("gang", 10), group("each"))
    world.run("a", pod("e0", group="each")).run("b", pod("e1", group="each"))
    assert world.preempt(gang(1), 1).status.ok
    assert len(world.evicted) == 1


def test_pods_whose_budget_would_be_violated_are_reprieved_first():
    world = World(a=1, b=1).add(group("gang", 10))
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "guarded"}}},
        "status": {"disruptionsAllowed": 0},
    }
    world.cluster.disruption_budgets.store(make_object(PodDisruptionBudget, budget))
    world.run("a", pod("guarded", labels={"app": "guarded"})).run("b", pod("p", priority=5))
    assert world.preempt(gang(1), 1).status.ok
    assert world.evicted == ["p"]
    world.effects.evictions.clear()
    assert world.preempt(gang(2), 2).status.ok
    assert world.effects.evictions[0].num_pdb_violations == 1


def test_room_of_terminating_pods_is_waited_for_before_more_are_evicted():
    world = World(a=1, b=1).add(group("gang", 10))
    world.run("a", pod("leaving", priority=9, deleted=True)).run("b", pod("p"))
    result = world.preempt(gang(1), 1)
    assert result.nodes == {"uid-of-default-g0": "a"}
    assert not world.effects.evictions


def test_a_domain_restricts_the_plan():
    world = World(a=1, b=1).add(group("gang", 10))
    world.run("a", pod("p")).run("b", pod("q", priority=5))
    assert world.preempt(gang(1), 1, rows=np.array([1])).nodes == {"uid-of-default-g0": "b"}
    assert world.evicted == ["q"]


def test_nodes_that_extenders_rejected_are_left_out():
    world = World(a=1, b=1).add(group("gang", 10))
    world.run("a", pod("p")).run("b", pod("q", priority=5))
    members = [GroupMember(each, False, frozenset({"a"})) for each in gang(1)]
    finish(world.plugin.pod_group_post_filter(GANG, members, 1, world.effects))
    assert world.evicted == ["q"]


def test_a_unit_on_two_nodes_stays_out_if_only_one_pod_can_move():
    """Both pods of the gang are on the unit's nodes; c has room for one of them."""
    world = World(a=1, b=1, c=2).add(group("gang", 10), group("whole", 1, 2, "PodGroup"))
    world.run("a", pod("w0", group="whole")).run("b", pod("w1", group="whole"))
    world.run("c", pod("p", priority=9))
    result = world.preempt(gang(2), 2)
    assert sorted(world.evicted) == ["w0", "w1"]
    assert set(result.nodes.values()) == {"a", "b"}


def test_where_a_unit_stays_out_there_is_room_for_pods_of_other_nodes():
    world = World(a=3, b=1).add(group("gang", 10))
    world.run("a", pod("large", 3, priority=5)).run("b", pod("small", priority=3))
    result = world.preempt(gang(2), 2)
    assert world.evicted == ["large"]
    assert set(result.nodes.values()) == {"a"}


def test_room_is_kept_for_nominated_pods_of_other_groups():
    world = World(a=1, b=1).add(group("gang", 10))
    world.run("a", pod("p")).run("b", pod("q", priority=5))
    world.nominator.add(pod("other", priority=2000), "a")
    assert world.preempt(gang(1), 1).status.ok
    assert world.evicted == ["q"]


def test_a_plan_judges_fewer_rows_at_once_if_many_pods_were_removed_from_them(monkeypatch):
    nodes, pods = 100, 50
    world = World(**{f"n{i}": pods for i in range(nodes)}).add(group("gang", 10))
    for i in range(nodes):
        world.run(f"n{i}", *(pod(f"v{i}-{k}") for k in range(pods)))
    judged = []
    take = DryRunViews.take
    monkeypatch.setattr(
        DryRunViews,
        "take",
        lambda views, positions: judged.append(len(positions)) or take(views, positions),
    )
    assert world.preempt(gang(1, cpu=pods + 1), 1).status.message == "pod group is unschedulable"
    assert sum(judged) == nodes
    assert max(judged) * pods <= 2048


def test_of_nodes_that_cost_the_same_those_with_the_highest_scores_are_taken(monkeypatch):
    world = World(a=1, b=1, c=1, d=1).add(group("gang", 10), group("whole", 1, mode="PodGroup"))
    for node in "abcd":
        world.run(node, pod(f"on-{node}", group="whole"))
    world.run("d", pod("alone"))
    points = {"a": 1, "b": 30, "c": 20, "d": 100}
    monkeypatch.setattr(
        world.framework.scoring,
        "score",
        lambda _state, _pod, _memo, view: np.array([points[name] for name in view.names()]),
    )
    assert Counter(world.preempt(gang(2), 2).nodes.values()) == {"b": 1, "c": 1}
    assert sorted(world.evicted) == ["on-a", "on-b", "on-c", "on-d"]


def test_without_its_object_a_group_does_not_preempt():
    result = World(a=1).run("a", pod("p")).preempt(gang(1), 1)
    assert result.status.code is Code.Error


@pytest.mark.parametrize(
    "wide",
    [
        {
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"app": "x"}},
                        }
                    ]
                }
            }
        }
    ],
)
def test_pods_with_filters_that_look_at_other_nodes_are_not_planned(wide):
    world = World(a=1).add(group("gang", 10)).run("a", pod("p"))
    assert world.preempt(gang(1, **wide), 1).status.message == "pod group is unschedulable"


# ------------------------------------------------------------ the same as a naive search


class Naive:
    """One kind of pods in a gang: all units out, then each put back while enough fit. Numbers only."""

    def __init__(self, nodes, units, need, cpu):
        self.nodes, self.units, self.need, self.cpu = nodes, units, need, cpu

    def fits(self, free):
        return sum(max(left, 0) // self.cpu for left in free.values()) >= self.need

    def victims(self):
        free = dict(self.nodes)
        if not self.units or not self.fits(free):
            return None
        out = set()
        for unit in self.units:
            for each in unit:
                free[each.node_name] -= _cpu(each)
            if any(left < 0 for left in free.values()) or not self.fits(free):
                for each in unit:
                    free[each.node_name] += _cpu(each)
                out |= {each.name for each in unit}
        return out


def _cpu(one):
    return dict(one.resources.requested)["cpu"] // 1000


def _importance(unit):
    priority, grouped, pods = unit
    size = len(pods) if grouped else 0
    return -priority, not grouped, -size, min(map(started_at, pods))


@st.composite
def clusters(draw):
    nodes = {f"n{i}": draw(st.integers(1, 4)) for i in range(draw(st.integers(1, 5)))}
    groups = {
        name: (draw(st.integers(0, 12)), draw(st.sampled_from(["Pod", "PodGroup"])))
        for name in ("x", "y")
    }
    pods, serial = [], itertools.count()
    for node, room in nodes.items():
        left = room
        while left > 0 and draw(st.booleans()):
            cpu = draw(st.integers(1, left))
            left -= cpu
            name = f"p{next(serial)}"
            named = draw(st.sampled_from([None, None, "x", "y"]))
            priority = draw(st.integers(0, 12))
            pods.append(pod(name, cpu, priority, named, started=float(next(serial))).on(node))
    size = draw(st.integers(1, 5))
    return nodes, groups, pods, size, draw(st.integers(1, size)), draw(st.integers(1, 3))


@given(clusters())
@settings(max_examples=300, deadline=None)
def test_equals_a_naive_search_on_small_clusters(cluster):
    nodes, groups, pods, size, need, cpu = cluster
    world = World(**nodes).add(group("gang", 10, need))
    world.add(*(group(name, priority, 1, mode) for name, (priority, mode) in groups.items()))
    units, whole = [], {}
    for each in pods:
        world.run(each.node_name, each)
        named = _group_of(each)
        if named and groups[named][1] == "PodGroup":
            whole.setdefault(named, []).append(each)
        else:
            units.append((each.priority, named is not None, [each]))
    units += [(groups[name][0], True, mates) for name, mates in whole.items()]
    lower = sorted((unit for unit in units if unit[0] < 10), key=_importance)
    free = dict(nodes)
    for priority, _, mates in units:
        for each in mates if priority >= 10 else ():
            free[each.node_name] -= _cpu(each)
    expected = Naive(free, [mates for _, _, mates in lower], need, cpu).victims()
    result = world.preempt(gang(size, cpu), need)
    if expected is None:
        assert not result.status.ok
        assert not world.effects.evictions
        return
    assert result.status.ok
    assert set(world.evicted) == expected
    placed = Counter(result.nodes.values())
    assert placed.total() == need
    staying = Counter()
    for each in pods:
        if each.name not in expected:
            staying[each.node_name] += _cpu(each)
    for node, room in nodes.items():
        assert staying[node] + cpu * placed[node] <= room
    for mates in whole.values():
        assert len({each.name for each in mates} & expected) in (0, len(mates))


@given(clusters(), st.lists(st.integers(1, 4), min_size=1, max_size=5), st.booleans())
@settings(max_examples=200, deadline=None)
def test_pods_of_several_templates_fit_where_the_plan_has_them(cluster, sizes, nominate):
    """Whatever a plan evicts, there is room for the minimum, next to pods that stay and to other nominated ones."""
    nodes, groups, pods, _, need, _ = cluster
    need = min(need, len(sizes))
    world = World(**nodes).add(group("gang", 10, need))
    world.add(*(group(name, priority, 1, mode) for name, (priority, mode) in groups.items()))
    room = dict(nodes)
    for each in pods:
        world.run(each.node_name, each)
        room[each.node_name] -= _cpu(each)
    if nominate:
        world.nominator.add(pod("promised", 1, 2000), "n0")
        room["n0"] -= 1
    members = [pod(f"g{i}", cpu, 1000, "gang") for i, cpu in enumerate(sizes)]
    result = world.preempt(members, need)
    by_name = {each.name: each for each in pods}
    if not result.status.ok:
        assert not world.effects.evictions
        return
    assert len(result.nodes) == need
    for name in world.evicted:
        room[by_name[name].node_name] += _cpu(by_name[name])
        named = _group_of(by_name[name])
        if named is None or groups[named][1] == "Pod":
            assert by_name[name].priority < 10
        else:
            assert groups[named][0] < 10
            mates = {each.name for each in pods if _group_of(each) == named}
            assert mates <= set(world.evicted)
    for member in members:
        if member.uid in result.nodes:
            room[result.nodes[member.uid]] -= _cpu(member)
    used = set(result.nodes.values())
    assert all(room[node] >= 0 for node in used)


@given(clusters(), st.integers(0, 3), st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_loss_with_whole_groups_is_that_of_all_their_pods(cluster, allowed, guarded):
    nodes, groups, pods, *_ = cluster
    world = World(**nodes)
    world.add(*(group(name, priority, 1, mode) for name, (priority, mode) in groups.items()))
    if guarded:
        budget = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "x"}}},
            "status": {"disruptionsAllowed": allowed, "disruptedPods": {"p0": "2026-01-01"}},
        }
        world.cluster.disruption_budgets.store(make_object(PodDisruptionBudget, budget))
    for each in pods:
        world.run(each.node_name, each)
    losses = WholeLosses(world.groups, world.plugin._budgets)
    for node in nodes:
        there = by_importance(each for each in pods if each.node_name == node)
        if there:
            violations = sum(world.plugin._budgets.violating(there))
            victims = Victims(tuple(there), violations)
            assert losses.of(victims) == loss(world.plugin._whole(victims))


def test_each_whole_group_is_gone_through_once_for_all_nodes(monkeypatch):
    nodes, size = 40, 80
    world = World(**dict.fromkeys((f"n{i}" for i in range(nodes)), 2))
    world.add(group("victims", 0, 1, "PodGroup"))
    for i in range(size):
        world.run(f"n{i % nodes}", pod(f"v{i}", group="victims", started=float(i)))
    compared = []
    monkeypatch.setattr(
        importance, "started_at", lambda each: compared.append(each) or started_at(each)
    )
    boss = pod("boss", 2, 100)
    attempt = Attempt(
        world.framework,
        world.table,
        boss,
        nominated=lambda _pod: NO_PODS,
        rng=np.random.default_rng(1),
    )
    with pytest.raises(Unfit) as unfit:
        attempt.find()
    world.effects.asked = False
    diagnosis = unfit.value.diagnosis
    finish(world.plugin.post_filter(attempt.state, boss, diagnosis, world.effects))
    assert len(world.evicted) == size
    assert len(compared) < 6 * size


def _group_of(one):
    return one.pod_group_name or None
