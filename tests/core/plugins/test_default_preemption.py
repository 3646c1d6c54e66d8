"""DefaultPreemption: against its scalar twin, and case by case."""

import msgspec
import numpy as np
import pytest

from app.cycle.attempt import Attempt, Unfit
from app.framework.diagnosis import Diagnosis
from app.framework.interface import MAY_PAUSE, PostFilterResult, QueueingHint
from app.framework.per_node import NodeFilter
from app.model.cluster_event import ASSIGNED_POD_DELETE, NODE_ADD, Action, ClusterEvent, Resource
from app.model.objects import (
    Container,
    LabelSelector,
    Node,
    NodeStatus,
    ObjectMeta,
    PodCondition,
    PodSpec,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from app.model.pod import LabelSet, Pod, make_pod
from app.model.status import (
    SUCCESS,
    Code,
    SchedulingError,
    Status,
    Unfinished,
    unresolvable,
    unschedulable,
)
from app.plugins.args import DefaultPreemptionArgs
from app.plugins.default_preemption import plugin
from app.plugins.default_preemption.importance import loss
from app.state.cluster import Cluster
from app.state.nominations import Nominations
from app.state.nominator import Nominator
from app.state.table import NodeTable
from app.wire.extender_v1 import Victims
from tests.core.framework.coroutines import finish
from tests.core.plugins.preemption_world import ZONE, Crowd, Extenders, frameworks
from tests.core.plugins.twins import preemption as twin


def statuses(crowd, diagnosis):
    """What was said of each node."""
    found = {name: diagnosis.status(row) for name, row in crowd.table.row_of.items()}
    return {name: (status.code, status.reasons) for name, status in found.items()}


def check_against_twin(crowd, template):
    """Compares one preemption with the twin's; returns what it came to."""
    pod = crowd.make(template)
    attempt, diagnosis = crowd.attempt(pod)
    if diagnosis is None:
        return "fits"
    situation = crowd.situation(attempt)
    assert statuses(crowd, diagnosis) == {
        name: twin.fits(situation, name, crowd.pods[name]) for name in crowd.nodes
    }
    potential = [
        name
        for name in sorted(crowd.nodes, key=crowd.table.row_of.__getitem__)
        if diagnosis.status(crowd.table.row_of[name]).code is Code.Unschedulable
    ]
    share = len(potential) * crowd.args.min_candidate_nodes_percentage // 100
    wanted = min(len(potential), max(share, crowd.args.min_candidate_nodes_absolute))
    order = crowd.next_order(potential)
    candidates, verdicts = twin.dry_run(situation, order, wanted)
    effects = Extenders(asked=crowd.dice.random() < 0.5)
    result = crowd.post_filter(attempt, diagnosis, effects)
    if effects.asked:
        shown = {
            name: (list(victims.pods), victims.num_pdb_violations)
            for name, victims in effects.candidates.items()
        }
        assert shown == candidates
    if not candidates:
        assert not effects.evictions
        assert result.status.message == twin.message(len(crowd.nodes), verdicts)
        errors = any(code is Code.Error for code, _ in verdicts.values())
        assert result.status.code is (Code.Error if errors else Code.Unschedulable)
        assert result.nominated_node == (None if errors else "")
        return "error" if errors else "nowhere" if potential else "hopeless"
    (eviction,) = effects.evictions
    assert result.status.ok
    assert result.nominated_node == eviction.node_name
    assert eviction.node_name in twin.best(candidates)
    assert list(eviction.victims) == candidates[eviction.node_name][0]
    if crowd.dice.random() < 0.7:
        crowd.nominate(eviction.node_name, pod)
    return "violating" if candidates[eviction.node_name][1] else "harmless"


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_its_twin(seed):
    limits = ((10, 100), (50, 1), (0, 2), (100, 0), (10, 0))
    crowd = Crowd(seed, args=DefaultPreemptionArgs(*limits[seed % len(limits)]))
    for _ in range(7):
        check_against_twin(crowd, crowd.dice.choice(crowd.preemptors))
        for _ in range(crowd.dice.randint(0, 3)):
            crowd.disturb()


def test_random_crowds_show_every_outcome():
    seen = set()
    for seed in range(100, 108):
        crowd = Crowd(seed)
        for _ in range(4):
            seen.add(check_against_twin(crowd, crowd.dice.choice(crowd.preemptors)))
            crowd.disturb()
    assert seen >= {"fits", "nowhere", "harmless", "violating"}


# ---------------------------------------------------------------- case by case


def node(name, *, cpu="4"):
    status = NodeStatus(allocatable={"cpu": cpu, "memory": "8Gi", "pods": "10"})
    return Node(metadata=ObjectMeta(name=name), status=status)


def pod(name, cpu="1", priority=0, *, on="", labels=None, **fields):
    spec = PodSpec(
        priority=priority,
        preemption_policy=fields.pop("policy", None),
        containers=(Container(resources=ResourceRequirements(requests={"cpu": cpu})),),
    )
    fields = {"namespace": "ns", "name": name, "uid": name, "start_time": 1.0, **fields}
    return make_pod(spec, labels, node_name=on, **fields)


class Town:
    """A cluster of exactly these nodes and pods."""

    def __init__(self, nodes, pods=(), *, args=None, seed=0, filters=None):
        self.table, self.cluster = NodeTable(), Cluster()
        self.nominator = Nominator()
        self.rng = np.random.default_rng(seed)
        self.framework, self.plugin = frameworks(
            self.table, self.cluster, self.nominator, self.rng, args=args, more=filters
        )
        self.nominations = Nominations(self.nominator, self.table)
        for each in nodes:
            self.table.set_node(each)
        for each in pods:
            self.table.add_pod(each)

    def judge(self, preemptor):
        attempt = Attempt(
            self.framework,
            self.table,
            preemptor,
            nominated=self.nominations.concerning,
            rng=self.rng,
        )
        with pytest.raises(Unfit) as unfit:
            attempt.find()
        return attempt, unfit.value.diagnosis

    def preempt(self, preemptor, effects=None, diagnosis=None):
        """The result of PostFilter, and the evictions as (node, victims' names)."""
        effects = effects or Extenders(asked=False)
        attempt, found = self.judge(preemptor)
        result = finish(
            self.plugin.post_filter(attempt.state, preemptor, diagnosis or found, effects)
        )
        return result, [(e.node_name, [v.name for v in e.victims]) for e in effects.evictions]


def full(name, priority=0, **fields):
    """A node with four pods on it, and these."""
    return node(name), [pod(f"{name}-{i}", "1", priority, on=name, **fields) for i in range(4)]


def town_of_full_nodes(*names, **fields):
    nodes, pods = zip(*(full(name) for name in names), strict=True)
    return Town(nodes, [each for some in pods for each in some], **fields)


def test_evicts_as_few_as_it_takes():
    town = town_of_full_nodes("a")
    result, evictions = town.preempt(pod("boss", "2", 10))
    assert result == PostFilterResult(SUCCESS, "a")
    ((where, victims),) = evictions
    assert where == "a"
    assert len(victims) == 2


def test_never_preempts_by_policy():
    result, evictions = town_of_full_nodes("a").preempt(pod("boss", "2", 10, policy="Never"))
    message = "preemption: not eligible due to preemptionPolicy=Never."
    assert result == PostFilterResult(unschedulable(message))
    assert result.nominated_node is None
    assert not evictions


LEAVING = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler")


@pytest.mark.parametrize(
    ("fields", "eligible"),
    [
        pytest.param({"conditions": (LEAVING,)}, False, id="preempted before"),
        pytest.param({"conditions": (LEAVING,), "priority": 10}, True, id="of equal priority"),
        pytest.param({}, True, id="leaving by itself"),
        pytest.param(
            {"conditions": (LEAVING,), "deletion_timestamp": None}, True, id="not leaving yet"
        ),
        pytest.param(
            {"conditions": (PodCondition("DisruptionTarget", "False"), LEAVING)},
            True,
            id="the first condition counts",
        ),
        pytest.param(
            {"conditions": (PodCondition("DisruptionTarget", "True", "EvictionByEvictionAPI"),)},
            True,
            id="evicted by somebody else",
        ),
    ],
)
@pytest.mark.parametrize("known_by", ["status", "nominator"])
def test_waits_for_pods_that_are_leaving_the_nominated_node(fields, eligible, known_by):
    town = town_of_full_nodes("a", "b")
    fields = {"deletion_timestamp": "2026-01-01T00:00:00Z", **fields}
    town.table.remove_pod(town.table.pods[0]["a-0"])
    town.table.add_pod(pod("leaving", "1", on="a", **fields))
    boss = pod("boss", "2", 10, nominated_node_name="a" if known_by == "status" else "")
    if known_by == "nominator":
        town.nominator.add(boss, "a")
    result, evictions = town.preempt(boss)
    if eligible:
        assert result.status.ok
        assert evictions
    else:
        message = "preemption: not eligible due to a terminating pod on the nominated node."
        assert result == PostFilterResult(unschedulable(message))
        assert not evictions


def test_a_nominated_node_beyond_help_does_not_hold_it_up():
    town = town_of_full_nodes("a", "b")
    town.table.set_node(node("a", cpu="1"))
    town.table.add_pod(pod("leaving", on="a", deletion_timestamp="now", conditions=(LEAVING,)))
    result, _ = town.preempt(pod("boss", "2", 10, nominated_node_name="a"))
    assert result.nominated_node == "b"


def test_terminating_victims_are_victims_too():
    town = Town([node("a")], [pod("going", "4", on="a", deletion_timestamp="now")])
    _, evictions = town.preempt(pod("boss", "2", 10))
    assert evictions == [("a", ["going"])]


def test_a_victim_that_is_ending_counts_for_spreading_in_the_dry_run_only():
    """As in kube-scheduler 1.36.2 (seen there): ``kept`` stays at first, since ``going`` is subtracted without having
    been counted.

    Once it is gone, the skew is 2 with ``kept``, which has to go too.
    """
    web = {"app": "web"}
    zones = {ZONE: "a"}, {ZONE: "b"}
    nodes = [
        msgspec.structs.replace(node(name), metadata=ObjectMeta(name=name, labels=labels))
        for name, labels in zip("ab", zones, strict=True)
    ]
    going = pod("going", "1", 1, on="a", labels=web, deletion_timestamp="now")
    town = Town(
        nodes,
        [
            going,
            pod("kept", "1", 2, on="a", labels=web),
            pod("other", "2", 3, on="a"),
            pod("mighty", "4", 100, on="b"),
        ],
    )
    skew = TopologySpreadConstraint(
        max_skew=1,
        topology_key=ZONE,
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector(match_labels=web),
    )
    boss = pod("boss", "1", 50, labels=web)
    spec = msgspec.structs.replace(boss.spec, topology_spread_constraints=(skew,))
    boss = make_pod(spec, web, namespace="ns", name="boss", uid="boss")
    assert town.preempt(boss)[1] == [("a", ["going"])]
    town.table.remove_pod(going)
    assert town.preempt(boss)[1] == [("a", ["kept"])]


def test_says_when_evicting_cannot_help():
    town = town_of_full_nodes("a", "b")
    result, evictions = town.preempt(pod("boss", "5", 10))
    message = "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    assert result == PostFilterResult(unschedulable(message), "")
    assert not evictions


def test_counts_the_reasons_of_the_dry_run():
    town = Town(
        [node("a"), node("b"), node("c", cpu="1"), node("d")],
        [
            pod("x", "4", 10, on="a"),
            pod("y", "3", 10, on="b"),
            pod("z", "1", 0, on="b"),
            pod("v", "4", 10, on="d"),
        ],
    )
    result, _ = town.preempt(pod("boss", "2", 10))
    message = (
        "preemption: 0/4 nodes are available: 1 Insufficient cpu, "
        "1 Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
    )
    assert result == PostFilterResult(unschedulable(message), "")


def test_a_node_on_which_nobody_has_to_go_is_an_error_unless_there_is_another():
    town = Town([node("a"), node("b")], [pod("x", "1", on="a"), pod("y", "4", on="b")])
    boss = pod("boss", "1", 10)
    refused = Diagnosis(node_count=2)
    refused.by_row[0] = unschedulable("not here", plugin="Extender")
    attempt = Attempt(town.framework, town.table, boss, nominated=lambda _: {}, rng=town.rng)
    attempt.find()
    only_a = finish(town.plugin.post_filter(attempt.state, boss, refused, Extenders()))
    message = 'preemption: expected at least one victim pod on node "a"'
    assert only_a == PostFilterResult(Status(Code.Error, (message,)))
    refused.by_row[1] = unschedulable("full")
    both = finish(town.plugin.post_filter(attempt.state, boss, refused, Extenders()))
    assert both == PostFilterResult(SUCCESS, "b")


@pytest.mark.parametrize("asked", [False, True])
def test_from_138_on_a_node_on_which_nobody_has_to_go_is_the_best_candidate(asked):
    town = Town([node("a"), node("b")], [pod("x", "1", on="a"), pod("y", "4", on="b")])
    town.plugin._empty_victims = True
    boss = pod("boss", "1", 10)
    refused = Diagnosis(node_count=2)
    refused.by_row[0] = unschedulable("not here", plugin="Extender")
    refused.by_row[1] = unschedulable("full")
    attempt = Attempt(town.framework, town.table, boss, nominated=lambda _: {}, rng=town.rng)
    attempt.find()
    effects = Extenders(asked=asked)
    result = finish(town.plugin.post_filter(attempt.state, boss, refused, effects))
    assert result == PostFilterResult(SUCCESS, "a")
    assert [each.victims for each in effects.evictions] == [()]


class Moody(NodeFilter):
    """Fails on the nodes whose names begin with x, once they have lost a pod."""

    NAME = "Moody"

    def filter_node(self, state, pod, info):
        if info.name.startswith("x") and info.pod_count < 4:
            return Status(Code.Error, (f"{info.name} is moody",))
        return None


def test_a_fault_concerns_no_node_but_its_own():
    town = town_of_full_nodes("xa", "b", "xc", filters=[Moody()])
    result, evictions = town.preempt(pod("boss", "2", 10))
    assert result == PostFilterResult(SUCCESS, "b")
    assert len(evictions) == 1


def test_faults_on_all_nodes_are_told_together():
    town = town_of_full_nodes("xa", "xc", filters=[Moody()])
    result, evictions = town.preempt(pod("boss", "2", 10))
    assert result.status.code is Code.Error
    assert result.status.message == (
        'preemption: [running "Moody" filter plugin: xa is moody, '
        'running "Moody" filter plugin: xc is moody]'
    )
    assert result.nominated_node is None
    assert not evictions


class Thoughtful(NodeFilter):
    """Pauses twice while it is asked about nodes that have lost a pod, and then takes what it has."""

    NAME = "Thoughtful"

    def __init__(self, pauses=2):
        self.pauses = pauses
        self.seen = []

    def filter_node(self, state, pod, info):
        if info.pod_count < 4:
            self.seen.append(state.get(MAY_PAUSE))
            if self.pauses and state.get(MAY_PAUSE):
                self.pauses -= 1
                raise Unfinished


def test_a_filter_that_pauses_is_asked_again():
    filters = [Thoughtful()]
    town = town_of_full_nodes("a", filters=filters)
    effects = Extenders(asked=False)
    boss = pod("boss", "4", 10)
    attempt, diagnosis = town.judge(boss)
    result = finish(town.plugin.post_filter(attempt.state, boss, diagnosis, effects))
    assert result == PostFilterResult(SUCCESS, "a")
    assert effects.pauses == 2
    assert not attempt.state.get(MAY_PAUSE)
    assert set(filters[0].seen) == {True}


def test_a_node_that_goes_while_a_filter_pauses_is_no_candidate():
    town = town_of_full_nodes("a", "b", filters=[Thoughtful(1)])

    class Gone(Extenders):
        async def sleep(self, seconds):
            town.table.remove_node("a")

    effects = Gone(asked=False)
    result, evictions = town.preempt(pod("boss", "4", 10), effects)
    assert result == PostFilterResult(SUCCESS, "b")
    assert [node for node, _ in evictions] == ["b"]


def test_a_row_that_another_node_has_taken_over_while_a_filter_pauses_is_no_candidate():
    """The filters may have rejected the other node for good."""
    town = town_of_full_nodes("a", "b", filters=[Thoughtful(1)])

    class Replaced(Extenders):
        async def sleep(self, seconds):
            row = town.table.row_of["a"]
            for victim in list(town.table.pods[row].values()):
                town.table.remove_pod(victim)
            town.table.remove_node("a")
            town.table.set_node(node("c"))
            assert town.table.row_of["c"] == row
            town.table.add_pod(pod("small", "4", on="c"))

    result, evictions = town.preempt(pod("boss", "4", 10), Replaced(asked=False))
    assert result == PostFilterResult(SUCCESS, "b")
    assert [name for name, _ in evictions] == ["b"]


def test_after_a_pause_the_current_version_of_the_pod_is_evaluated():
    """It asks for less by now: one victim less is enough."""
    town = town_of_full_nodes("a", filters=[Thoughtful(1)])

    class Resized(Extenders):
        def latest(self, _pod):
            return pod("boss", "1", 10)

    result, evictions = town.preempt(pod("boss", "4", 10), Resized(asked=False))
    assert result == PostFilterResult(SUCCESS, "a")
    assert [len(victims) for _, victims in evictions] == [1]


def test_a_search_does_not_pause_for_ever(monkeypatch):
    monkeypatch.setattr(plugin, "MAX_PAUSES", 5)
    town = town_of_full_nodes("a", filters=[Thoughtful(99)])
    effects = Extenders(asked=False)
    result, _ = town.preempt(pod("boss", "4", 10), effects)
    assert result == PostFilterResult(SUCCESS, "a")
    assert effects.pauses == 5


class Reluctant:
    """PreFilter turns every pod down, though not for good."""

    NAME = "Reluctant"

    def pre_filter(self, state, pod):
        return unschedulable("not now")


def test_after_a_refusal_by_pre_filter_every_node_may_be_tried():
    town = town_of_full_nodes("a", "b", filters=[Reluctant()])
    _, diagnosis = town.judge(pod("boss", "2", 10))
    assert diagnosis.message() == "0/2 nodes are available: not now."
    result, evictions = town.preempt(pod("boss", "2", 10))
    assert result.status.ok
    assert len(evictions[0][1]) == 2


LOWEST = -(2**31)


@pytest.mark.parametrize(
    ("cheaper", "dearer"),
    [
        ({"priorities": [9]}, {"priorities": [1], "violating": 1}),
        ({"priorities": [1, 1]}, {"priorities": [2]}),
        ({"priorities": [5]}, {"priorities": [5, -3]}),
        ({"priorities": [5, LOWEST + 1, LOWEST + 1]}, {"priorities": [5, LOWEST + 3]}),
        ({"priorities": [5]}, {"priorities": [5, LOWEST]}),
        ({"priorities": [5, 1], "started": [8, 0]}, {"priorities": [5, 1], "started": [7, 9]}),
        ({"priorities": [5, 5], "started": [9, 8]}, {"priorities": [5, 5], "started": [7, 9]}),
    ],
)
def test_what_costs_less(cheaper, dearer):
    def cost(priorities, violating=0, started=None):
        times = started or [0] * len(priorities)
        pods = [
            pod("p", priority=priority, start_time=time)
            for priority, time in zip(priorities, times, strict=True)
        ]
        return loss(Victims(tuple(pods), violating))

    assert cost(**cheaper) < cost(**dearer)


def test_any_of_equal_nodes_is_chosen():
    chosen = set()
    for seed in range(20):
        result, _ = town_of_full_nodes("a", "b", "c", seed=seed).preempt(pod("boss", "2", 10))
        chosen.add(result.nominated_node)
    assert chosen == {"a", "b", "c"}


def test_a_limited_search_begins_anywhere():
    args = DefaultPreemptionArgs(0, 1)
    chosen = set()
    for seed in range(20):
        town = town_of_full_nodes("a", "b", "c", seed=seed, args=args)
        effects = Extenders()
        town.preempt(pod("boss", "2", 10), effects)
        assert len(effects.candidates) == 1
        chosen.update(effects.candidates)
    assert chosen == {"a", "b", "c"}


def test_a_pod_that_has_started_meanwhile_is_more_important():
    town = Town([node("a")], [])
    old, young = (pod(name, "2", on="a", start_time=None) for name in ("old", "young"))
    town.table.add_pod(young)
    town.table.add_pod(old)
    template = pod("boss", "2", 10).template
    _, first = town.preempt(pod("boss-1", "2", 10, uid="1"))
    boss = Pod("ns", "boss", "boss", template, LabelSet())
    _, before = town.preempt(boss)
    town.table.replace_pod(old, pod("old", "2", on="a", start_time=5.0))
    _, after = town.preempt(Pod("ns", "boss-2", "boss-2", template, LabelSet()))
    assert first == before == [("a", ["old"])]
    assert after == [("a", ["young"])]


def test_victims_are_as_they_were_last_seen():
    town = town_of_full_nodes("a")
    template = pod("boss", "2", 10).template
    town.preempt(Pod("ns", "one", "one", template, LabelSet()))
    for each in list(town.table.pods[0].values()):
        newer = msgspec.structs.replace(each, resource_version="2")
        town.table.replace_pod(each, newer)
    effects = Extenders()
    town.preempt(Pod("ns", "two", "two", template, LabelSet()), effects)
    (candidate,) = effects.candidates.values()
    assert {victim.resource_version for victim in candidate.pods} == {"2"}


# ---------------------------------------------------------------- extenders


def test_extenders_may_leave_nothing():
    town = town_of_full_nodes("a", "b")
    result, evictions = town.preempt(pod("boss", "2", 10), Extenders(answer=lambda _: {}))
    assert result == PostFilterResult(unschedulable("preemption: no candidate node for preemption"))
    assert not evictions


def test_an_extenders_failure_is_an_error():
    def fail(_candidates):
        raise SchedulingError("the extender is away")

    result, evictions = town_of_full_nodes("a").preempt(
        pod("boss", "2", 10), Extenders(answer=fail)
    )
    assert result == PostFilterResult(Status(Code.Error, ("preemption: the extender is away",)))
    assert not evictions


def test_extenders_know_best_who_has_to_go():
    def one_only(candidates):
        return {"b": Victims(candidates["b"].pods[:1], 0)}

    result, evictions = town_of_full_nodes("a", "b").preempt(
        pod("boss", "2", 10), Extenders(answer=one_only)
    )
    assert result.nominated_node == "b"
    assert len(evictions[0][1]) == 1


def test_a_node_promised_to_another_pod_meanwhile_is_passed_over():
    town = town_of_full_nodes("a", "b", "c")

    def meanwhile(candidates):
        for number, name in enumerate(("a", "b")):
            town.nominator.add(pod(f"rival-{number}", "3", 10), name)
        return dict(candidates)

    result, evictions = town.preempt(pod("boss", "2", 10), Extenders(answer=meanwhile))
    assert result.nominated_node == "c"
    assert [where for where, _ in evictions] == ["c"]


def test_nothing_is_evicted_where_everything_changed_meanwhile():
    town = town_of_full_nodes("a", "b")

    def meanwhile(candidates):
        town.nominator.add(pod("rival", "3", 10), "a")
        for each in list(town.table.pods[1].values()):
            town.table.remove_pod(each)
        town.table.remove_node("b")
        return dict(candidates)

    result, evictions = town.preempt(pod("boss", "2", 10), Extenders(answer=meanwhile))
    assert result.status.message == "preemption: no candidate node for preemption"
    assert not evictions


def test_a_change_that_does_not_matter_is_put_up_with():
    town = town_of_full_nodes("a")

    def meanwhile(candidates):
        town.table.remove_pod(candidates["a"].pods[0])
        return dict(candidates)

    result, evictions = town.preempt(pod("boss", "2", 10), Extenders(answer=meanwhile))
    assert result.nominated_node == "a"
    assert len(evictions[0][1]) == 2


# ---------------------------------------------------------------- holding preemptors back


def test_a_preemptor_is_held_until_its_last_victim_is_going():
    town = town_of_full_nodes("a")
    boss = pod("boss", "2", 10)
    effects = Extenders(asked=False)
    town.preempt(boss, effects)
    (eviction,) = effects.evictions
    hold, progress = town.plugin.pre_enqueue, eviction.progress
    assert hold(boss) == SUCCESS
    progress.begin(boss.uid)
    assert hold(boss) == unresolvable("waiting for the preemption for this pod to be finished")
    assert hold(pod("other")) == SUCCESS
    first, last = eviction.victims
    town.table.remove_pod(first)
    assert not hold(boss).ok
    progress.last(boss.uid, last)
    assert not hold(boss).ok
    going = msgspec.structs.replace(last, deletion_timestamp="now")
    town.table.replace_pod(last, going)
    assert hold(boss) == SUCCESS
    town.table.replace_pod(going, last)
    assert not hold(boss).ok
    town.table.remove_pod(last)
    assert hold(boss) == SUCCESS
    assert progress.end(boss.uid, evicted=True)
    assert hold(boss) == SUCCESS
    assert not len(progress)


def held_for(town, boss):
    """The boss has evicted its victims; the last of them, as it still is in the cache."""
    effects = Extenders(asked=False)
    town.preempt(boss, effects)
    (eviction,) = effects.evictions
    eviction.progress.begin(boss.uid)
    last = eviction.victims[-1]
    eviction.progress.last(boss.uid, last)
    return eviction.progress, last


def test_a_preemptor_is_held_until_the_watch_has_shown_what_the_server_confirmed():
    town = town_of_full_nodes("a")
    boss, hold = pod("boss", "2", 10), town.plugin.pre_enqueue
    progress, last = held_for(town, boss)
    assert not progress.end(boss.uid, evicted=True)
    assert not hold(boss).ok
    marked = msgspec.structs.replace(last, resource_version="7")
    town.table.replace_pod(last, marked)
    assert not hold(boss).ok
    going = msgspec.structs.replace(marked, deletion_timestamp="now")
    town.table.replace_pod(marked, going)
    assert hold(boss) == SUCCESS


def test_a_preemptor_is_held_until_a_victim_without_grace_is_gone():
    town = town_of_full_nodes("a")
    boss, hold = pod("boss", "2", 10), town.plugin.pre_enqueue
    progress, last = held_for(town, boss)
    at_once = msgspec.structs.replace(last, deletion_timestamp="now", leaves_at_once=True)
    town.table.replace_pod(last, at_once)
    assert not hold(boss).ok
    assert not progress.end(boss.uid, evicted=True)
    assert not hold(boss).ok
    town.table.remove_pod(at_once)
    assert hold(boss) == SUCCESS


def test_a_preemptor_is_woken_when_its_last_victim_has_left():
    """Whatever its rejectors say of that: they have not heard what happened while it was held."""
    town = town_of_full_nodes("a")
    boss = pod("boss", "2", 10)
    progress, last = held_for(town, boss)
    deleted, _ = town.plugin.events_to_register()
    assert not deleted.hint(boss, last, None)
    progress.end(boss.uid, evicted=True)
    assert deleted.hint(boss, last, None)
    assert deleted.narrow(boss.template, last, None) == [boss.uid]
    assert not deleted.hint(boss, last, last)
    assert not deleted.hint(boss, pod("another"), None)
    assert not deleted.hint(pod("another boss"), last, None)


def test_a_preemptor_whose_eviction_failed_is_not_held():
    town = town_of_full_nodes("a")
    boss = pod("boss", "2", 10)
    progress, _ = held_for(town, boss)
    assert progress.end(boss.uid, evicted=False)
    assert town.plugin.pre_enqueue(boss) == SUCCESS


def test_preemptors_that_nobody_asks_about_are_forgotten():
    town = town_of_full_nodes("a")
    progress, last = held_for(town, pod("boss", "2", 10))
    for number in range(1000):
        victim = msgspec.structs.replace(last, uid=f"victim-{number}")
        town.table.add_pod(victim)
        progress.begin(f"boss-{number}")
        progress.last(f"boss-{number}", victim)
        assert not progress.end(f"boss-{number}", evicted=True)
        town.table.remove_pod(victim)
    assert len(progress._leaving) <= 257


@pytest.mark.parametrize("event", [NODE_ADD, ASSIGNED_POD_DELETE])
def test_room_wakes_nobody_by_itself(event):
    [registration] = [
        each for each in Town([]).plugin.events_to_register() if each.event.matches(event)
    ]
    assert registration.hint is not None
    assert registration.hint(pod("boss"), pod("victim"), None) is QueueingHint.SKIP


def test_what_brings_no_room_is_not_waited_for():
    update = ClusterEvent(Resource.AssignedPod, Action.Update)
    events = [each.event for each in Town([]).plugin.events_to_register()]
    assert not any(event.matches(update) for event in events)
