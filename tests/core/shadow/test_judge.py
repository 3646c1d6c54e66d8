"""Classes of verdicts: each difference is planted, and found as what it is."""

import msgspec
import pytest

from app.framework.testing import make_node, make_object
from app.model.objects import Node, PodCondition
from app.model.pod import Pod
from app.model.pod_groups import GROUP_LABEL, LabelledPodGroup, PodGroup
from app.model.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from tests.core.shadow.playing import Player, world


def requests(cpu: str, memory: str = "1Gi") -> dict:
    return {
        "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
        ]
    }


@pytest.fixture
def player() -> Player:
    return Player(world(), world())


def test_the_only_best_node_is_the_same(player):
    player.node("a")
    player.node("b", status={"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}})
    player.schedule("p", spec=requests("1"))
    (verdict,) = player.catch_up()
    assert (verdict.kind, verdict.node, verdict.node_here) == ("same", "b", "b")
    assert (verdict.feasible, verdict.equal, verdict.loss) == (2, 1, 0)


def test_one_of_equal_nodes_is_a_tie(player):
    for name in "abc":
        player.node(name)
    player.schedule("p", spec=requests("1"))
    (verdict,) = player.catch_up()
    assert (verdict.kind, verdict.equal) == ("tie", 3)


def test_the_same_refusal_is_the_same(player):
    player.node("a")
    player.schedule("p", spec=requests("9"))
    (verdict,) = player.catch_up()
    assert verdict.kind == "same"


def test_another_message_shows_both(player):
    player.node("a")
    pod = player.pod("p", spec=requests("9"))
    player.show(Pod, pod, player.refused(pod, "0/1 nodes are available: 1 Too many pods."))
    (verdict,) = player.catch_up()
    assert verdict.kind == "other-message"
    assert verdict.message.endswith("1 Too many pods.")
    assert "Insufficient cpu" in verdict.message_here
    assert verdict.plugins == ("NodeResourcesFit",)


def test_a_node_that_does_not_fit_here_is_named_with_its_plugin(player):
    player.node("a", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]})
    player.node("b")
    pod = player.pod("p")
    player.show(Pod, pod, player.versioned(pod, node_name="a"))
    (verdict,) = player.catch_up()
    assert verdict.kind == "does-not-fit-here"
    assert verdict.plugins == ("TaintToleration",)
    assert (verdict.node, verdict.node_here) == ("a", "b")
    assert "untolerated taint" in verdict.message_here


def test_a_bound_pod_that_fits_nowhere_here(player):
    player.node("a", spec={"unschedulable": True})
    pod = player.pod("p")
    player.show(Pod, pod, player.versioned(pod, node_name="a"))
    (verdict,) = player.catch_up()
    assert verdict.kind == "fits-there-refused-here"
    assert verdict.plugins[0] == "NodeUnschedulable"


def test_a_refused_pod_that_fits_here(player):
    player.node("a")
    pod = player.pod("p")
    said = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    player.show(Pod, pod, player.refused(pod, said))
    (verdict,) = player.catch_up()
    assert (verdict.kind, verdict.node_here) == ("refused-there-fits-here", "a")
    assert verdict.plugins == ("TaintToleration",)


GANG = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}


def grouped(player, name):
    return player.pod(name, labels={GROUP_LABEL: "g"})


def test_a_pod_that_is_refused_with_its_group_cannot_be_compared(player):
    """Its mates counted on the nodes when it was decided, and were taken back."""
    player.node("a")
    player.tell(LabelledPodGroup, None, make_object(LabelledPodGroup, GANG))
    for name, said in (
        ("p", "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled"),
        ("q", "0/1 nodes are available: 1 Insufficient cpu."),
    ):
        pod = grouped(player, name)
        player.show(Pod, pod, player.refused(pod, said))
    verdicts = player.catch_up()
    assert [each.kind for each in verdicts] == ["not-comparable"] * 2
    assert "other pods of its group" in verdicts[0].change


def test_a_label_without_a_group_changes_nothing(player):
    player.node("a")
    pod = grouped(player, "p")
    player.show(Pod, pod, player.refused(pod, "0/1 nodes are available: 1 Insufficient cpu."))
    (verdict,) = player.catch_up()
    assert verdict.kind == "refused-there-fits-here"


def test_a_pod_whose_group_stays_in_one_domain_cannot_be_compared(player):
    player.node("a")
    player.node("b", status={"allocatable": {"cpu": "40", "memory": "160Gi", "pods": "110"}})
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 1}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
    }
    group = make_object(PodGroup, GANG | {"spec": spec})
    player.tell(PodGroup, None, group)
    player.now += 1
    member = {"schedulingGroup": {"podGroupName": "g"}}
    pod = player.pod("p", spec=requests("3", "12Gi") | member)
    player.show(Pod, pod, player.versioned(pod, node_name="a"))
    (verdict,) = player.catch_up()
    assert (verdict.kind, verdict.node_here) == ("not-comparable", "b")
    assert "one value of rack" in verdict.change


def test_a_worse_node_is_unexplained_and_says_what_would_have_to_change(player):
    player.node("a")
    player.node("b", status={"allocatable": {"cpu": "40", "memory": "160Gi", "pods": "110"}})
    player.now += 1
    pod = player.pod("p", spec=requests("3", "12Gi"))
    player.show(Pod, pod, player.versioned(pod, node_name="a"))
    (verdict,) = player.catch_up()
    assert verdict.kind == "unexplained"
    assert verdict.loss > 0
    assert verdict.plugins == ("NodeResourcesFit",)
    assert "NodeResourcesFit" in verdict.change
    assert verdict.scores.keys() == verdict.scores_here.keys()
    assert sum(verdict.scores_here.values()) - sum(verdict.scores.values()) == verdict.loss


@pytest.mark.parametrize("ordering", [True, False])
def test_bindings_out_of_order_are_judged_in_the_order_of_the_queue(player, ordering):
    """The first pod is decided first, and its binding shows last."""
    player.ordering = ordering
    for number in range(4):
        cpu = {"cpu": str(4 + number), "memory": "16Gi", "pods": "110"}
        player.node(f"n{number}", status={"allocatable": cpu})
    pods = [player.pod(f"p{i}", spec=requests("1")) for i in range(3)]
    outcomes = [(pod, player.decide(pod)) for pod in pods]
    for pod, after in reversed(outcomes):
        player.show(Pod, pod, after)
    player.catch_up()
    assert set(player.classes()) <= {"same", "tie"}
    judged = [verdict.pod for verdict in player.verdicts]
    assert judged == sorted(judged, reverse=not ordering)


def test_a_burst_moves_few_changes(player):
    """However far bindings are out of order, a decision costs the same."""
    for number in range(10):
        player.node(
            f"n{number}", status={"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "200"}}
        )
    pods = [player.pod(f"p{i:03}", spec=requests("1")) for i in range(300)]
    outcomes = [(pod, player.decide(pod)) for pod in pods]
    for pod, after in reversed(outcomes):
        player.show(Pod, pod, after)
    applied = []
    apply = player.here.state.apply
    player.here.state.apply = lambda change, now: applied.append(change) or apply(change, now)
    player.catch_up()
    assert set(player.classes()) <= {"same", "tie"}
    assert len(applied) <= 2 * 2 * len(pods)


def test_a_verdict_behind_a_backlog_moves_few_changes(player):
    """Pods wait for seconds, in which many others end: these changes are not undone for each verdict."""
    large = {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "200"}}
    player.node("a", status=large)
    player.node("closed", status=large, spec={"unschedulable": True})
    ending = [player.versioned(player.pod(f"old{i:03}"), node_name="closed") for i in range(100)]
    for old in ending:
        player.tell(Pod, player.here.state.pods.get(old.key), old)
    player.schedule("first", spec=requests("100m"))
    player.catch_up()
    pods = [player.pod(f"p{i:03}", spec=requests("100m")) for i in range(100)]
    applied = []
    apply = player.here.state.apply
    player.here.state.apply = lambda change, now: applied.append(change) or apply(change, now)
    for pod, old in zip(pods, ending, strict=True):
        player.now += 0.02
        player.gone(old)
        player.now += 0.02
        player.show(Pod, pod, player.decide(pod))
        player.catch_up()
    assert set(player.classes()) == {"same"}
    assert len(applied) <= 2 * (len(pods) * 3)


def test_a_scheduler_that_is_behind_with_its_watches_is_followed(player):
    """It does not see a node that the shadow sees. Only every other pod depends on it."""
    large = {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}}
    player.node("a", labels={"only": "a"})
    closed = make_node("b", spec={"unschedulable": True}, status=large)
    player.tell(Node, None, closed)
    for number in range(10):  # the usual latency
        player.schedule(f"first-{number}", spec=requests("10m"))
        player.catch_up()
    pods = []
    for number in range(10):
        select = {"nodeSelector": {"only": "a"}} if number % 2 else {}
        pods.append(player.pod(f"p{number}", spec=requests("10m") | select))
    player.now += 0.05
    player.show(Node, closed, make_node("b", status=large))
    player.now += 0.05
    for pod in pods:
        player.show(Pod, pod, player.decide(pod))
        player.now += 0.01
        player.catch_up()
    assert set(player.classes()) == {"same"}


def test_pods_that_were_queued_before_are_awaited_behind_any_backlog(player):
    player.node("a")
    player.pod("stuck")
    player.now += 30
    pods = [player.pod(f"p{number}", spec=requests("100m")) for number in range(2)]
    player.catch_up()
    player.now += 60
    outcomes = [(pod, player.decide(pod)) for pod in pods]
    player.show(Pod, *outcomes[1])
    (second,) = player.timeline.ahead
    assert player.timeline.awaits_earlier(second)
    player.show(Pod, *outcomes[0])
    assert not player.timeline.awaits_earlier(second)


def test_a_deletion_that_could_not_be_seen_yet_is_no_race(player):
    player.node("a")
    player.node("b", status={"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}})
    old = player.schedule("old", spec=requests("6", "24Gi"))
    assert old.node_name == "b"
    player.catch_up()
    pod = player.pod("p", spec=requests("1"))
    after = player.decide(pod)
    assert after.node_name == "a"
    player.gone(old)
    player.show(Pod, pod, after)
    (verdict,) = player.catch_up()
    assert verdict.kind == "same"
    assert player.timeline.behind[-1].change.new is after
    assert "old" not in {p.name for p in player.here.state.cache}


def test_a_moment_between_two_changes_is_a_race_and_holds_for_the_next_pod(player):
    """A node can be used for a moment. A scheduler decides on one pod after another."""
    large = {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}}
    player.node("a")
    closed = make_node("b", spec={"unschedulable": True}, status=large)
    opened = make_node("b", status=large)
    again = make_node("b", spec={"unschedulable": True}, status=large)
    player.tell(Node, None, closed)
    player.catch_up()
    pods = [player.pod(f"p{number}", spec=requests("1")) for number in range(3)]
    player.now += 0.01
    player.tell(Node, closed, opened)
    afters = [player.decide(pod) for pod in pods]
    player.now += 0.01
    player.tell(Node, opened, again)
    for pod, after in zip(pods, afters, strict=True):
        assert after.node_name == "b"
        player.show(Pod, pod, after)
    assert [verdict.kind for verdict in player.catch_up()] == ["race", "same", "same"]


def test_a_wrong_guess_of_what_had_been_seen_is_a_race_once(player):
    player.node("a")
    player.node("b", status={"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}})
    player.catch_up()
    player.now += 10
    old = player.schedule("old", spec=requests("6", "24Gi"))
    player.catch_up()
    player.verdicts.clear()
    player.now += 2
    pods = [player.pod(f"p{number}", spec=requests("500m")) for number in range(4)]
    afters = [player.decide(pod) for pod in pods]
    assert {after.node_name for after in afters} == {"a"}
    player.gone(old)
    player.now += 0.1
    for pod, after in zip(pods, afters, strict=True):
        player.show(Pod, pod, after)
    while player.timeline.ahead[0].outcome is None:
        player.timeline.advance()
    player.judge._moments._seen = player.timeline.ahead[-1].number
    assert [verdict.kind for verdict in player.catch_up()] == ["race", "same", "same", "same"]


def test_a_node_that_was_seen_late_is_a_race_once(player):
    """The shadow sees a node change before the pods, and the scheduler sees it after them."""
    large = {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}}
    player.node("a")
    closed = make_node("b", spec={"unschedulable": True}, status=large)
    player.tell(Node, None, closed)
    player.catch_up()
    player.now += 1
    player.show(Node, closed, make_node("b", status=large))
    player.now += 0.5
    for number in range(3):
        assert player.schedule(f"p{number}", spec=requests("1")).node_name == "a"
    assert [verdict.kind for verdict in player.catch_up()] == ["race", "same", "same"]


def test_another_order_of_the_queue_is_a_race(player):
    """Pods that were tried before have no known place in the queue."""
    player.node("a", status={"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}})
    player.node("b", status={"allocatable": {"cpu": "7", "memory": "28Gi", "pods": "110"}})
    pods = []
    for i in range(2):
        pod = player.pod(f"p{i}", spec=requests("4", "16Gi"))
        again = player.refused(pod, "0/0 nodes are available.")
        player.show(Pod, pod, again)
        pods.append(again)
    player.catch_up()
    player.verdicts.clear()
    outcomes = [(pod, player.decide(pod)) for pod in pods]
    for pod, after in reversed(outcomes):
        player.show(Pod, pod, after)
    player.catch_up()
    assert [v.kind for v in player.verdicts] == ["race", "same"]


def test_a_look_at_some_of_the_nodes_is_sampled():
    few = world("percentageOfNodesToScore: 40\n")
    player = Player(world(), few)
    for number in range(300):
        cpu = {"cpu": f"{2000 + 20 * number}m", "memory": "16Gi", "pods": "110"}
        player.node(f"n{number}", status={"allocatable": cpu})
    player.now += 1
    pod = player.pod("p", spec=requests("1"))
    player.show(Pod, pod, player.versioned(pod, node_name="n270"))
    low = player.pod("q", spec=requests("1"))
    player.show(Pod, low, player.versioned(low, node_name="n2"))
    sampled, unexplained = player.catch_up()
    assert (sampled.kind, unexplained.kind) == ("sampled", "unexplained")
    assert unexplained.loss >= sampled.loss > 0


def preempt(player: Player) -> tuple[Pod, Pod, dict[str, Pod]]:
    """Two full nodes; a preemptor, its outcome, and the pods by node."""
    victims = {}
    for number, name in enumerate("ab"):
        player.node(name)
        spec = requests("3") | {"priority": number}
        victims[name] = player.versioned(
            player.pod(f"v{name}", spec=spec), node_name=name, start_time=1.0
        )
        player.tell(Pod, player.here.state.pods.get(f"default/v{name}"), victims[name])
    preemptor = player.pod("p", spec=requests("3") | {"priority": 100})
    return preemptor, player.decide(preemptor), victims


def test_a_preemption_with_the_cheapest_victims_is_the_same(player):
    preemptor, after, _ = preempt(player)
    assert after.nominated_node_name == "a"
    player.show(Pod, preemptor, after)
    *_, verdict = player.catch_up()
    assert (verdict.kind, verdict.node) == ("same", "a")


def test_a_preemption_on_a_dearer_node_has_other_victims(player):
    preemptor, after, _ = preempt(player)
    player.show(Pod, preemptor, msgspec.structs.replace(after, nominated_node_name="b"))
    *_, verdict = player.catch_up()
    assert verdict.kind == "other-victims"
    assert verdict.plugins == ("DefaultPreemption",)
    assert (verdict.node, verdict.node_here) == ("b", "a")
    assert verdict.victims_here == ("default/va",)


@pytest.mark.parametrize("evicted", ["v0", "v1", "dear"])
def test_the_evicted_pods_are_compared(player, evicted):
    """The node has two pods that are alike, one of which is evicted here, and one of higher priority."""
    player.node("a", status={"allocatable": {"cpu": "3", "memory": "16Gi", "pods": "110"}})
    pods = {}
    for name, priority in (("v0", 0), ("v1", 0), ("dear", 50)):
        waiting = player.pod(name, spec=requests("1") | {"priority": priority})
        pods[name] = player.versioned(waiting, node_name="a")
        player.tell(Pod, waiting, pods[name])
    player.catch_up()
    preemptor = player.pod("p", spec=requests("1") | {"priority": 100})
    after = player.decide(preemptor)
    reason = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    victim = pods[evicted]
    player.show(Pod, preemptor, after)
    player.show(Pod, victim, player.versioned(victim, conditions=(reason,)))
    verdict = player.catch_up()[0]
    if evicted != "dear":
        assert verdict.kind in {"same", "tie"}
    else:
        assert verdict.kind == "other-victims"
        assert verdict.victims == ("default/dear",)
        assert verdict.plugins == ("DefaultPreemption",)


@pytest.mark.parametrize("evicted", ["v0", "v1", "v2", "dear"])
def test_victims_that_do_not_show_yet_are_no_difference(player, evicted):
    """Two of three pods that are alike have to go. A busy scheduler evicts them one after another; the first one
    shows.
    """
    player.node("a", status={"allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"}})
    pods = {}
    for name, priority in (("v0", 0), ("v1", 0), ("v2", 0), ("dear", 50)):
        waiting = player.pod(name, spec=requests("1") | {"priority": priority})
        pods[name] = player.versioned(waiting, node_name="a")
        player.tell(Pod, waiting, pods[name])
    player.catch_up()
    preemptor = player.pod("p", spec=requests("2") | {"priority": 100})
    after = player.decide(preemptor)
    reason = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    victim = pods[evicted]
    player.show(Pod, preemptor, after)
    player.show(Pod, victim, player.versioned(victim, conditions=(reason,)))
    verdict = player.catch_up()[0]
    assert verdict.agrees == (evicted != "dear")


def test_victims_on_a_node_to_which_others_are_nominated_are_not_compared(player):
    """It does not show for which of the preemptors a pod is evicted."""
    player.node("a", status={"allocatable": {"cpu": "3", "memory": "16Gi", "pods": "110"}})
    pods = {}
    for name, priority in (("v0", 0), ("v1", 0), ("dear", 50)):
        waiting = player.pod(name, spec=requests("1") | {"priority": priority})
        pods[name] = player.versioned(waiting, node_name="a")
        player.tell(Pod, waiting, pods[name])
    player.catch_up()
    first, second = (player.pod(n, spec=requests("1") | {"priority": 100}) for n in ("p", "q"))
    reason = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    for preemptor in (first, second):
        player.show(Pod, preemptor, player.decide(preemptor))
    player.show(Pod, pods["dear"], player.versioned(pods["dear"], conditions=(reason,)))
    assert player.catch_up()[0].kind in {"same", "tie"}


def test_a_change_of_a_node_is_found_behind_many_of_volumes(player):
    """Each kind has a watch of its own. The pod was tried before, so that its place in the queue is not known."""
    node = player.node("a")
    pod = player.pod("p", spec=requests("100"))
    first = player.decide(pod)
    player.show(Pod, pod, first)
    player.catch_up()
    player.now += 5
    player.node("b")
    second = player.decide(first)
    spec = msgspec.structs.replace(node.spec, unschedulable=True)
    player.show(Node, node, msgspec.structs.replace(node, spec=spec))
    for number in range(8):
        volume = {"metadata": {"name": f"v{number}"}, "spec": {"capacity": {"storage": "1Gi"}}}
        player.show(PersistentVolume, None, make_object(PersistentVolume, volume))
    player.show(Pod, first, second)
    assert [v.kind for v in player.catch_up()] == ["race"]


def test_state_is_restored_after_every_order(player):
    player.node("a")
    player.node("b", status={"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}})
    pods = [player.schedule(f"p{i}", spec=requests("1")) for i in range(6)]
    player.gone(pods[0])
    node = player.here.state
    odd = player.pod("odd", spec=requests("1"))
    player.show(Pod, odd, player.versioned(odd, node_name="a"))
    player.catch_up()
    table = node.table
    for name in "ab":
        row = table.row_of[name]
        counted = sum(p.resources.nonzero_cpu for p in table.pods[row].values())
        assert table.nonzero.column("cpu")[row] == counted
        assert table.pod_count[row] == len(table.pods[row])
    assert {p.name for p in node.cache} == {"p1", "p2", "p3", "p4", "p5", "odd"}


def claimed(player: Player) -> Pod:
    player.node("a")
    player.node("b", status={"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}})
    storage = make_object(
        StorageClass,
        {
            "metadata": {"name": "late"},
            "provisioner": "example.com/x",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    player.tell(StorageClass, None, storage)
    player.claim = make_object(PersistentVolumeClaim, claim_of({}))
    player.tell(PersistentVolumeClaim, None, player.claim)
    player.now += 1
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    return player.pod("p", spec=requests("1") | {"volumes": volumes})


def claim_of(annotations: dict) -> dict:
    return {
        "metadata": {
            "name": "c",
            "namespace": "default",
            "uid": "u",
            "resourceVersion": str(len(annotations)),
            "annotations": annotations,
        },
        "spec": {
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    }


def test_a_pod_that_waits_for_its_volume_is_judged_when_its_claim_names_the_node(player):
    pod = claimed(player)
    chosen = make_object(
        PersistentVolumeClaim, claim_of({"volume.kubernetes.io/selected-node": "b"})
    )
    player.show(PersistentVolumeClaim, player.claim, chosen)
    (verdict,) = player.catch_up()
    assert (verdict.kind, verdict.node, verdict.pod) == ("same", "b", "default/p")
    assert player.here.state.cache.is_assumed(pod.uid)
    player.show(Pod, pod, player.versioned(pod, node_name="b"))
    assert player.catch_up() == []
    assert not player.here.state.cache.is_assumed(pod.uid)
    assert player.here.state.cache.get(pod.uid).node_name == "b"


def test_a_nomination_before_a_binding_is_the_decision(player):
    pod = claimed(player)
    nominated = player.versioned(pod, nominated_node_name="a")
    player.show(Pod, pod, nominated)
    (verdict,) = player.catch_up()
    assert (verdict.kind, verdict.node, verdict.node_here) == ("unexplained", "a", "b")
    refused = player.refused(nominated, "0/2 nodes are available.")
    player.show(Pod, nominated, refused)
    player.catch_up()
    assert player.here.state.cache.get(pod.uid) is None


def test_pods_behind_a_pod_that_waits_for_its_volume_see_it_on_its_node(player):
    claimed(player)
    later = player.pod("q", spec=requests("1"))
    chosen = make_object(
        PersistentVolumeClaim, claim_of({"volume.kubernetes.io/selected-node": "b"})
    )
    player.show(Pod, later, player.versioned(later, node_name="b"))
    player.show(PersistentVolumeClaim, player.claim, chosen)
    player.ordering = False
    verdicts = player.catch_up()
    assert [v.pod for v in verdicts] == ["default/q", "default/p"]
    assert verdicts[0].agrees
    assert {v.kind for v in verdicts} <= {"same", "tie"}


def test_a_decision_on_what_has_just_come_is_no_race(player):
    """A pod that was refused is tried at once when another one goes; the scheduler is faster than its usual latency."""
    player.node("a")
    old = player.schedule("old", spec=requests("3", "12Gi"))
    waiting = player.pod("p", spec=requests("3", "12Gi"))
    refused = player.decide(waiting)
    player.show(Pod, waiting, refused)
    for number in range(30):  # the usual latency
        each = player.pod(f"other-{number}", spec=requests("9"))
        player.now += 0.05
        player.show(Pod, each, player.decide(each))
    player.catch_up()
    player.verdicts.clear()
    player.now += 1
    player.gone(old)
    player.now += 0.001
    player.show(Pod, refused, player.decide(refused))
    (verdict,) = player.catch_up()
    assert (verdict.kind, verdict.node) == ("same", "a")


def test_changes_before_a_binding_that_is_put_in_front_of_others_are_seen(player):
    """The pod is put in front of a pod behind it in the queue, and so in front of a deletion that it needs."""
    player.node("a")
    old = player.schedule("old", spec=requests("3", "12Gi"))
    player.catch_up()
    player.verdicts.clear()
    player.now += 1
    first = player.pod("first", spec=requests("3", "12Gi"))
    second = player.pod("second", spec=requests("500m"))
    after = player.decide(second)
    player.show(Pod, second, after)
    player.gone(old)
    player.now += 0.1
    player.show(Pod, first, player.decide(first))
    verdicts = player.catch_up()
    assert [(v.pod, v.kind) for v in verdicts] == [
        ("default/first", "same"),
        ("default/second", "same"),
    ]


def test_evictions_belong_to_one_preemptor(player):
    """Two pods are nominated to one node; the victim of the first is not put back for the second."""
    player.node("a", status={"allocatable": {"cpu": "3", "memory": "16Gi", "pods": "110"}})
    pods = []
    for number in range(3):
        spec = requests("1") | {"priority": number}
        waiting = player.pod(f"v{number}", spec=spec)
        pods.append(player.versioned(waiting, node_name="a", start_time=1.0))
        player.tell(Pod, waiting, pods[-1])
    player.node("b", status={"allocatable": {"cpu": "1", "memory": "16Gi", "pods": "110"}})
    waiting = player.pod("w", spec=requests("1") | {"priority": 1})
    player.tell(Pod, waiting, player.versioned(waiting, node_name="b", start_time=0.5))
    player.catch_up()
    reason = PodCondition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    for number in range(2):
        preemptor = player.pod(f"p{number}", spec=requests("1") | {"priority": 100})
        after = player.decide(preemptor)
        assert after.nominated_node_name == "a"
        victim = pods[number]
        evicted = player.versioned(victim, conditions=(reason,))
        player.tell(Pod, victim, evicted)
        player.show(Pod, preemptor, after)
        player.gone(evicted)
        player.now += 0.01
    verdicts = player.catch_up()
    assert [v.kind for v in verdicts] == ["same", "same"]


def test_a_failed_preparation_takes_the_pod_from_its_node(player):
    """The binding fails with an error, not with a message about nodes."""
    pod = claimed(player)
    nominated = player.versioned(pod, nominated_node_name="b")
    player.show(Pod, pod, nominated)
    player.catch_up()
    assert player.here.state.cache.get(pod.uid).node_name == "b"
    condition = PodCondition(
        type="PodScheduled", status="False", reason="SchedulerError", message="binding volumes: no"
    )
    player.show(Pod, nominated, player.versioned(nominated, conditions=(condition,)))
    assert player.catch_up() == []
    assert player.here.state.cache.get(pod.uid) is None


def test_a_preparation_that_never_ends_takes_the_pod_from_its_node(player):
    pod = claimed(player)
    player.show(Pod, pod, player.versioned(pod, nominated_node_name="b"))
    player.catch_up()
    player.now += 1000
    player.pod("later")
    player.catch_up()
    assert player.here.state.cache.get(pod.uid) is None


def test_a_pod_that_cannot_be_put_on_its_node_is_reported(player):
    pod = msgspec.structs.replace(claimed(player), uid="")
    player.here.state.pods[pod.key] = pod
    player.catch_up()
    player.show(Pod, pod, player.versioned(pod, nominated_node_name="b"))
    entry = player.timeline.ahead[0]
    assert entry.outcome is not None
    assert entry.outcome.early
    (problem,) = player.timeline.advance()
    assert "default/p" in problem.text


def test_a_search_for_victims_pauses(player):
    """Between two steps of a verdict at most some hundred nodes are tried."""
    for number in range(600):
        player.node(f"n{number:03}")
        waiting = player.pod(f"v{number:03}", spec=requests("3"))
        player.tell(Pod, waiting, player.versioned(waiting, node_name=f"n{number:03}"))
    player.catch_up()
    preemptor = player.pod("p", spec=requests("3") | {"priority": 100})
    after = player.decide(preemptor)
    assert after.nominated_node_name
    player.show(Pod, preemptor, after)
    while player.timeline.ahead[0].outcome is None:
        player.timeline.advance()
    steps = player.judge.judge(player.timeline.ahead[0])
    assert sum(1 for _ in steps) >= 3


def test_an_interrupted_verdict_leaves_the_state_as_it_was(player):
    player.node("a")
    old = player.schedule("old", spec=requests("3", "12Gi"))
    player.catch_up()
    player.now += 0.01
    pod = player.pod("p", spec=requests("2", "8Gi"))
    player.show(Pod, pod, player.decide(pod))
    player.gone(old)
    while player.timeline.ahead[0].outcome is None:
        player.timeline.advance()
    steps = player.judge.judge(player.timeline.ahead[0])
    next(steps, None)
    steps.close()
    assert {p.name for p in player.here.state.cache} == {"old"}


def test_a_pod_without_an_outcome_holds_back_others_once(player):
    player.node("a")
    player.pod("silent", spec=requests("1"))
    pods = [player.pod(f"p{number}", spec=requests("100m")) for number in range(2)]
    player.catch_up()
    for pod in pods:
        player.show(Pod, pod, player.decide(pod))
    first, second = player.timeline.ahead
    assert player.timeline.awaits_earlier(first)
    player.timeline.stop_awaiting(first)
    assert not player.timeline.awaits_earlier(first)
    assert not player.timeline.awaits_earlier(second)


def test_few_orders_are_tried_if_the_configurations_differ():
    """The default of the plugin explains each outcome, so the orders of changes need not."""
    packing = "{scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}"
    config = f"profiles: [{{pluginConfig: [{{name: NodeResourcesFit, args: {packing}}}]}}]\n"
    player = Player(world(), world(config))
    for number in range(8):
        player.node(f"n{number}")
    for number in range(30):
        player.schedule(f"p{number}", spec=requests(f"{100 + 50 * (number % 5)}m", "1Mi"))
    decided = []
    decide = player.judge._decide
    player.judge._decide = lambda *args, **named: decided.append(args) or decide(*args, **named)
    player.catch_up()
    different = [v for v in player.verdicts if not v.agrees]
    assert len(different) > 5
    assert all(v.plugins == ("NodeResourcesFit",) for v in different[2:])
    assert len(decided) < 10 * len(player.verdicts)


def test_no_unlikely_order_is_tried_if_none_may_be():
    player = Player(world(), world())
    player.node("a")
    player.node("b", status={"allocatable": {"cpu": "40", "memory": "160Gi", "pods": "110"}})
    player.now += 1
    pod = player.pod("p", spec=requests("3", "12Gi"))
    player.show(Pod, pod, player.versioned(pod, node_name="a"))
    while player.timeline.ahead[0].outcome is None:
        player.timeline.advance()
    assert sum(1 for _ in player.judge.judge(player.timeline.ahead[0], 0)) <= 2
