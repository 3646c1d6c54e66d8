"""A cluster in which a configuration's own placements add up, beside the one that it follows."""

from typing import Any

import msgspec
import numpy as np
import pytest

from app.framework.testing import make_pod
from app.model.objects import Node, OwnerReference, PodCondition
from app.model.pod import Pod
from app.plugins import registry
from app.runtime.tasks import at_once
from app.settings.load import load
from app.state.queue.backoff_queue import RetryTimes
from app.state.scheduler_state import Change
from app.tools.shadow.comparison import Comparison
from app.tools.shadow.imagined import ImaginedCluster
from app.tools.shadow.outcomes import EVICTED
from app.tools.shadow.world import make_imagined_world
from tests.core.shadow.playing import HEAD, Player, world

PACKING = (
    "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: "
    "{type: MostAllocated, resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}]}}}]}]\n"
)
OWNER = OwnerReference(kind="ReplicaSet", name="r", uid="r", controller=True)


class Worlds(Player):
    """A cluster that one configuration schedules, and the imagined one of another."""

    def __init__(self, here: str = "", *, follows: Any = lambda _: False) -> None:
        super().__init__(world(), world(here))
        classes = registry.registry()
        profiles = load(HEAD + here).to_plain(registry.capabilities(classes))
        rng = np.random.default_rng(2)
        self.imagined = ImaginedCluster(
            make_imagined_world(profiles, classes, RetryTimes(), rng),
            self.here.state,
            rng,
            follows=follows,
        )

    def go_on(self, seconds: float = 0.0, *, early: int = 10) -> None:
        """Both clusters take what was shown; then time passes."""
        while self.timeline.ahead:
            entry = self.timeline.ahead[0]
            self.timeline.advance()
            refused = entry.outcome is not None and entry.outcome.message is not None
            self.imagined.take(entry.change, entry.at, refused=refused)
            at_once(self.imagined.decide(entry.at))
        self.now += seconds
        at_once(self.imagined.decide(self.now, early=early))

    def placed(self) -> dict[str, str]:
        """The nodes of the imagined cluster's pods."""
        return {pod.name: pod.node_name for pod in self.imagined.state.cache}

    def waiting(self) -> set[str]:
        return {queued.pod.name for queued in self.imagined.state.queue.all_pods()}

    def compare(self) -> Comparison:
        return self.imagined.compare(self.now)


def spec(cpu: str, **parts: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    return {"containers": [container], **parts}


def owned(player: Player, name: str, **parts: Any) -> Pod:
    """A pending pod with a controller, which both see."""
    pod = player.versioned(make_pod(name, **parts), owner=OWNER)
    player.tell(Pod, None, pod)
    return pod


def decided(player: Player, pod: Pod) -> Pod:
    after = player.decide(pod)
    player.show(Pod, pod, after)
    return after


def test_the_same_configuration_places_pods_as_in_the_real_cluster():
    worlds = Worlds()
    for name in "abcdef":
        worlds.node(name)
    for number in range(30):
        worlds.schedule(f"p{number}", spec=spec("300m"))
    worlds.go_on()
    real = {pod.name: pod.node_name for pod in worlds.here.state.cache}
    assert worlds.placed() == real
    assert len(set(real.values())) == 6
    told = worlds.compare()
    assert told.theirs == told.mine
    assert told.mine.pods == 30


def test_own_placements_add_up():
    """Bin packing fills a node, on which the real cluster has few pods, before it takes the next."""
    worlds = Worlds(PACKING)
    for name in "abcd":
        worlds.node(name)
    for number in range(8):
        worlds.schedule(f"p{number}", spec=spec("500m"))
    worlds.go_on()
    assert len({pod.node_name for pod in worlds.here.state.cache}) == 4
    assert len(set(worlds.placed().values())) == 1
    told = worlds.compare()
    assert told.theirs.utilization == told.mine.utilization
    assert (told.theirs.idle_nodes, told.mine.idle_nodes) == (0, 3)


def test_a_pod_is_not_decided_before_the_real_cluster_has_decided_on_it():
    worlds = Worlds()
    worlds.node("a")
    pod = worlds.pod("p", spec=spec("1"))
    worlds.go_on(5)
    assert worlds.placed() == {}
    assert (worlds.compare().theirs.waiting, worlds.compare().mine.waiting) == (1, 1)
    decided(worlds, pod)
    worlds.go_on()
    assert worlds.placed() == {"p": "a"}
    told = worlds.compare()
    assert told.theirs.waits == told.mine.waits
    assert told.mine.waiting == 0


def test_a_pod_that_was_refused_there_may_be_bound_here():
    here = "profiles: [{plugins: {filter: {disabled: [{name: NodeUnschedulable}]}}}]\n"
    worlds = Worlds(here)
    worlds.node("a", spec={"unschedulable": True})
    pod = worlds.pod("p", spec=spec("1"))
    after = decided(worlds, pod)
    worlds.go_on()
    assert after.node_name == ""
    assert worlds.placed() == {"p": "a"}
    told = worlds.compare()
    assert (told.theirs.waiting, told.mine.waiting) == (1, 0)
    assert sum(told.mine.waits.values()) == 1
    worlds.gone(after)
    worlds.go_on()
    assert worlds.placed() == {}


def test_a_pod_that_waits_here_is_tried_again_by_the_rules_of_the_queue():
    added = (
        "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        "[{matchExpressions: [{key: disk, operator: Exists}]}]}}"
    )
    worlds = Worlds(f"profiles: [{{pluginConfig: [{{name: NodeAffinity, args: {{{added}}}}}]}}]\n")
    worlds.node("a", labels={"disk": "ssd"})
    worlds.node("b")
    first = worlds.schedule("first", spec=spec("3"))
    second = worlds.schedule("second", spec=spec("3"))
    worlds.go_on(60)
    assert {first.node_name, second.node_name} == {"a", "b"}
    assert worlds.placed() == {"first": "a"}
    assert worlds.waiting() == {"second"}
    worlds.gone(first)
    worlds.go_on()
    assert worlds.placed() == {"second": "a"}
    told = worlds.compare()
    assert sum(told.theirs.waits.values()) == sum(told.mine.waits.values()) == 2
    assert max(told.mine.waits) > max(told.theirs.waits)


def fill(worlds: Worlds) -> None:
    """A node that two pods of low priority fill in both clusters: one has a controller, one has none."""
    worlds.node("a")
    for pod in (owned(worlds, "owned", spec=spec("2")), worlds.pod("bare", spec=spec("2"))):
        decided(worlds, pod)
    worlds.go_on()
    assert worlds.placed() == {"owned": "a", "bare": "a"}


def preempt(worlds: Worlds, node: str, cpu: str = "4") -> Pod:
    """A pod of high priority, for which the real cluster's scheduler nominates a node."""
    preemptor = worlds.pod("p", spec=spec(cpu, priority=100))
    after = worlds.refused(preemptor, "0/1 nodes are available.", node)
    worlds.show(Pod, preemptor, after)
    return after


def evicted_there(worlds: Worlds, pod: Pod) -> Pod:
    """The real cluster's scheduler evicts a pod, which is terminating then."""
    after = worlds.versioned(pod, conditions=(EVICTED,), deletion_timestamp="now")
    worlds.tell(Pod, pod, after)
    return after


def real(worlds: Worlds, name: str) -> Pod:
    return worlds.here.state.pods[f"default/{name}"]


def test_victims_with_a_controller_wait_again_and_others_are_gone():
    worlds = Worlds()
    fill(worlds)
    preempt(worlds, "a")
    worlds.go_on(0.5)
    assert worlds.placed() == {"owned": "a", "bare": "a"}  # terminating
    worlds.go_on(0.5)
    assert worlds.placed() == {"p": "a"}
    assert worlds.waiting() == {"owned"}
    told = worlds.compare()
    assert (told.theirs.preempted, told.mine.preempted) == (0, 2)
    # What the real cluster tells of the pods that have left changes nothing.
    for name in ("owned", "bare"):
        worlds.tell(Pod, real(worlds, name), worlds.versioned(real(worlds, name), start_time=5.0))
    worlds.go_on()
    assert (worlds.placed(), worlds.waiting()) == ({"p": "a"}, {"owned"})
    for name in ("owned", "bare"):
        worlds.gone(real(worlds, name))
    worlds.go_on()
    assert (worlds.placed(), worlds.waiting()) == ({"p": "a"}, set())


def test_a_pod_that_is_evicted_in_both_clusters_leaves_with_the_real_one():
    worlds = Worlds()
    fill(worlds)
    preempt(worlds, "a")
    worlds.go_on()
    victims = [evicted_there(worlds, real(worlds, name)) for name in ("owned", "bare")]
    worlds.go_on(20)
    assert worlds.placed() == {"owned": "a", "bare": "a"}
    for pod in victims:
        worlds.gone(pod)
    worlds.go_on()
    assert (worlds.placed(), worlds.waiting()) == ({"p": "a"}, set())
    told = worlds.compare()
    assert (told.theirs.preempted, told.mine.preempted) == (2, 2)


def test_a_preemption_whose_outcome_shows_after_its_victims_have_gone_is_counted_here():
    worlds = Worlds()
    fill(worlds)
    for name in ("owned", "bare"):
        worlds.gone(evicted_there(worlds, real(worlds, name)))
    worlds.go_on(0.5)
    assert worlds.placed() == {"owned": "a", "bare": "a"}
    preempt(worlds, "a")
    worlds.go_on()
    assert worlds.placed() == {"p": "a"}
    assert worlds.compare().mine.preempted == 2
    assert not worlds.imagined._victims


def test_a_pod_that_is_evicted_in_the_real_cluster_only_leaves_when_its_preemptor_is_bound():
    worlds = Worlds()
    fill(worlds)
    worlds.node("b")
    for name in ("owned", "bare"):
        worlds.gone(evicted_there(worlds, real(worlds, name)))
    preemptor = worlds.pod("p", spec=spec("4", priority=100))
    worlds.show(Pod, preemptor, worlds.versioned(preemptor, node_name="a"))
    worlds.go_on(0.1)
    worlds.go_on()
    assert worlds.placed() == {"p": "b"}
    assert worlds.compare().mine.preempted == 0


def test_a_preemption_takes_no_time_if_the_real_cluster_has_bound_the_pod_already():
    worlds = Worlds()
    fill(worlds)
    preemptor = worlds.pod("p", spec=spec("4", priority=100))
    bound = worlds.versioned(preemptor, node_name="a")
    worlds.theirs.state.apply(Change(Pod, preemptor, bound), 0.0)
    worlds.show(Pod, preemptor, bound)
    worlds.go_on(early=0)
    assert worlds.placed() == {"p": "a"}
    assert worlds.compare().mine.preempted == 2
    for name in ("owned", "bare"):  # Other watches may be late.
        worlds.gone(evicted_there(worlds, real(worlds, name)))
    worlds.go_on()
    assert (worlds.placed(), worlds.waiting()) == ({"p": "a"}, set())


def test_evictions_end_when_the_real_cluster_binds_their_preemptor():
    worlds = Worlds()
    fill(worlds)
    after = preempt(worlds, "a")
    worlds.go_on(0.1)
    assert worlds.placed() == {"owned": "a", "bare": "a"}
    worlds.show(Pod, after, worlds.versioned(after, node_name="a"))
    worlds.go_on()
    assert worlds.placed() == {"p": "a"}


def test_a_pod_that_is_evicted_in_the_real_cluster_only_leaves_a_little_later():
    worlds = Worlds()
    fill(worlds)
    worlds.gone(evicted_there(worlds, real(worlds, "owned")))
    worlds.go_on(0.5)
    assert worlds.placed() == {"owned": "a", "bare": "a"}
    again = msgspec.structs.replace(make_pod("owned", spec=spec("1")), uid="another")
    worlds.tell(Pod, None, again)
    worlds.go_on()
    assert worlds.placed() == {"bare": "a"}
    decided(worlds, again)
    worlds.gone(evicted_there(worlds, real(worlds, "bare")))
    worlds.go_on(5)
    worlds.go_on()
    assert worlds.placed() == {"owned": "a"}
    told = worlds.compare()
    assert (told.theirs.preempted, told.mine.preempted) == (2, 0)


def test_victims_terminate_for_as_long_as_in_the_real_cluster():
    worlds = Worlds()
    worlds.node("b")
    for number in range(40):
        bound = decided(worlds, owned(worlds, f"slow{number}", spec=spec("4")))
        worlds.go_on()
        terminating = evicted_there(worlds, bound)
        worlds.go_on(30)
        worlds.gone(terminating)
        worlds.go_on(2)
    worlds.tell(Node, worlds.here.state.table.nodes[0], None)
    fill(worlds)
    preempt(worlds, "a")
    worlds.go_on(29)
    assert worlds.placed() == {"owned": "a", "bare": "a"}
    worlds.go_on(1)
    assert worlds.placed() == {"p": "a"}


def test_of_equally_cheap_nodes_the_one_that_was_nominated_there_is_preempted():
    for nominated in "abc":
        worlds = Worlds()
        for name in "abc":
            worlds.node(name)
            pod = worlds.pod(f"v{name}", spec=spec("3"))
            bound = worlds.versioned(pod, node_name=name, start_time=1.0)
            worlds.theirs.state.apply(Change(Pod, pod, bound), 0.0)
            worlds.show(Pod, pod, bound)
            worlds.go_on()
        preempt(worlds, nominated, "3")
        worlds.go_on(1)
        assert worlds.placed()["p"] == nominated
        assert len(worlds.placed()) == 3


def test_nodes_come_and_go():
    worlds = Worlds(PACKING)
    first = worlds.node("a")
    pods = [owned(worlds, f"p{number}", spec=spec("1")) for number in range(2)]
    decided(worlds, pods[0])
    worlds.go_on()
    worlds.node("b")
    bound = worlds.versioned(pods[1], node_name="b")
    worlds.theirs.state.apply(Change(Pod, pods[1], bound), 0.0)
    worlds.show(Pod, pods[1], bound)
    worlds.go_on()
    assert worlds.placed() == {"p0": "a", "p1": "a"}
    worlds.tell(Node, first, None)
    worlds.go_on()
    # The real cluster has p0 on the lost node, so that it will be deleted, and p1 on the other.
    assert worlds.placed() == {"p0": "a", "p1": "b"}
    assert worlds.compare().mine.nodes == 1
    assert worlds.compare().mine.preempted == 0


def test_pods_of_other_schedulers_and_of_the_first_list_are_where_they_really_are():
    worlds = Worlds(PACKING)
    worlds.node("a")
    worlds.node("b")
    there = msgspec.structs.replace(make_pod("old", spec=spec("1")), node_name="b")
    refused = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="m")
    waiting = msgspec.structs.replace(make_pod("waiting", spec=spec("1")), conditions=(refused,))
    objects = {pod.key: pod for pod in (there, waiting, make_pod("new", spec=spec("1")))}
    worlds.go_on()
    worlds.here.state.apply_new(Pod, objects, 0.0)
    worlds.imagined.fill(Pod, objects, 0.0)
    worlds.go_on()
    assert worlds.placed() == {"old": "b", "waiting": "b"}
    other = worlds.pod("other", spec=spec("1", schedulerName="other"))
    worlds.tell(Pod, other, worlds.versioned(other, node_name="a"))
    worlds.go_on()
    assert worlds.placed()["other"] == "a"
    assert worlds.compare().mine.pods == 3


def test_a_gated_pod_does_not_wait_and_is_decided_only_with_the_real_cluster():
    worlds = Worlds()
    worlds.node("a")
    gates = [{"name": "gate"}]
    gated = PodCondition(type="PodScheduled", status="False", reason="SchedulingGated")
    pod = msgspec.structs.replace(
        make_pod("p", spec=spec("1", schedulingGates=gates)), conditions=(gated,)
    )
    worlds.tell(Pod, None, pod)
    worlds.go_on()
    assert worlds.compare().mine.waiting == 0
    ready = msgspec.structs.replace(make_pod("p", spec=spec("1")), uid=pod.uid)
    worlds.tell(Pod, pod, worlds.versioned(ready))
    worlds.go_on(5)
    assert worlds.compare().mine.waiting == 1
    assert worlds.placed() == {}
    decided(worlds, real(worlds, "p"))
    worlds.go_on()
    assert worlds.placed() == {"p": "a"}


def test_pods_that_cannot_be_decided_here_follow_the_real_cluster():
    worlds = Worlds(PACKING, follows=lambda pod: pod.name == "asks")
    for name in "ab":
        worlds.node(name)
    worlds.schedule("p", spec=spec("1"))
    pod = worlds.pod("asks", spec=spec("1"))
    worlds.show(Pod, pod, worlds.refused(pod, "refused"))
    worlds.go_on()
    assert "asks" not in worlds.placed()
    latest = worlds.here.state.pods["default/asks"]
    elsewhere = "b" if worlds.placed()["p"] == "a" else "a"
    worlds.show(Pod, latest, worlds.versioned(latest, node_name=elsewhere))
    worlds.go_on()
    assert worlds.placed()["asks"] == elsewhere


def test_nothing_is_kept_of_pods_that_have_gone():
    worlds = Worlds(PACKING)
    worlds.node("a")
    for number in range(20):
        pod = worlds.schedule(f"p{number}", spec=spec("1" if number % 2 else "9"))
        worlds.go_on()
        worlds.gone(pod)
        worlds.go_on()
    imagined = worlds.imagined
    assert not imagined.state.pods
    assert not imagined._undecided
    assert not imagined._shapes
    assert not imagined._there.since
    assert not imagined._here.since
    assert len(imagined.state.queue) == 0


@pytest.mark.parametrize("cpus", [("2", "2"), ("3", "1")])
def test_fragmentation_is_the_free_capacity_that_common_pods_cannot_use(cpus):
    worlds = Worlds()
    for name, cpu in zip("ab", cpus, strict=True):
        worlds.node(name, status={"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"}})
    worlds.pod("p", spec=spec("2"))
    worlds.go_on()
    told = worlds.compare()
    assert [dict(shape.requests)["cpu"] for shape in told.shapes] == [2000]
    assert told.mine.room == ([2] if cpus == ("2", "2") else [1])
    assert told.mine.fragmentation == (0.0 if cpus == ("2", "2") else 0.5)
