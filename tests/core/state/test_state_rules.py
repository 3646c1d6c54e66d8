"""What becomes of watch events, and of what cycles decide, one rule at a time.

See docs/spec/cluster-events.md#pod-changes, docs/spec/cycle.md#failed-attempts.
"""

import msgspec
import pytest

from app.framework.testing import make_node, make_object
from app.model.objects import Named, ObjectMeta, Service
from app.model.pod import LabelSet, Pod, PodTemplate
from app.model.pod_groups import GROUP_LABEL, LabelledPodGroup
from app.model.storage import PersistentVolume, StorageClass
from app.state.cache import Cache
from app.state.cluster import Cluster
from app.state.nominator import Nominator
from app.state.queue.queued_pod import Place
from app.state.queue.scheduling_queue import QueuePlugins, SchedulingQueue
from app.state.scheduler_state import (
    AbandonPod,
    Change,
    ClearNomination,
    ReportProblem,
    SchedulerState,
)
from app.state.table import NodeTable
from tests.core.state.queue_kit import NOW, PROFILE, make_pod, priority_sort, spec

ELSEWHERE = PodTemplate(spec(scheduler_name="another-scheduler"))


class Listening(SchedulingQueue):
    """A queue that notes the events it is told of, and the priorities that each is for (None: any)."""

    def __init__(self, nominator):
        super().__init__(QueuePlugins(priority_sort), nominator)
        self.heard = []
        self.for_priorities = []
        self.prechecks = []

    def move_all(self, event, old, new, now, precheck=None):
        self.heard.append((event.label, old, new))
        self.prechecks.append(precheck)
        allowed = [p for p in range(10) if precheck is None or precheck(make_pod(priority=p))]
        self.for_priorities.append(None if len(allowed) == 10 else max(allowed))
        return super().move_all(event, old, new, now, precheck)


class World:
    """The state after these objects have come; what was heard of them is forgotten."""

    def __init__(self, *objects):
        pods = {}
        self.state = SchedulerState(
            cache=Cache(NodeTable()),
            cluster=Cluster(),
            pods=pods,
            queue=Listening(Nominator(pods)),
            profiles=[PROFILE],
        )
        self.queue: Listening = self.state.queue
        for each in objects:
            self.tell(None, each)
        self.queue.heard.clear()
        self.queue.for_priorities.clear()

    def tell(self, old, new):
        kind = type(new if old is None else old)
        return list(self.state.apply(Change(kind, old, new), NOW))

    @property
    def heard(self):
        return [label for label, _, _ in self.queue.heard]

    def assumed(self, name="node"):
        """The pod that is next, assumed on a node."""
        return self.state.assume(self.state.pop(NOW).pod, name)


def later(pod: Pod, **fields) -> Pod:
    """A later version of a pod."""
    return msgspec.structs.replace(pod, resource_version=f"{pod.resource_version}+", **fields)


WAITING = make_pod()
BOUND = make_pod(node_name="node")
NODE = make_node("node")

# ---------------------------------------------------------------- pods on nodes


def test_a_bound_pod_comes():
    world = World()
    assert world.tell(None, BOUND) == []
    assert world.queue.heard == [("AssignedPodAdd", None, BOUND)]
    assert world.state.cache.get("pod") is BOUND
    assert world.queue.where("pod") is Place.OUTSIDE


@pytest.mark.parametrize(
    ("change", "heard"),
    [
        pytest.param({"labels": make_pod(labels={"a": "b"}).labels}, ["AssignedPodUpdatePodLabel"], id="labels"),
        pytest.param({"phase": "Running"}, ["AssignedPodUpdate"], id="nothing particular"),
    ],
)  # fmt: skip
def test_a_bound_pod_changes(change, heard):
    world, new = World(BOUND), later(BOUND, **change)
    assert world.tell(BOUND, new) == []
    assert world.queue.heard == [(label, BOUND, new) for label in heard]
    assert world.state.cache.get("pod") is new


def test_a_bound_pod_goes():
    world = World(BOUND)
    assert world.tell(BOUND, None) == []
    assert world.queue.heard == [("AssignedPodDelete", BOUND, None)]
    assert world.state.cache.get("pod") is None


def test_a_bound_pod_goes_that_nobody_knew():
    world = World()
    assert world.tell(BOUND, None) == [ReportProblem("pod ns/pod was deleted but not in the cache")]
    assert world.heard == ["AssignedPodDelete"]


def test_a_bound_pod_is_taken_off_its_node():
    """No API server allows it; kube-scheduler takes it for a pod that goes and one that comes."""
    world, new = World(BOUND), later(BOUND, node_name="")
    assert world.tell(BOUND, new) == []
    assert world.heard == ["AssignedPodDelete"]
    assert world.state.cache.get("pod") is None
    assert "" not in world.state.table.row_of
    assert world.queue.where("pod") is Place.ACTIVE
    assert world.state.pods == {new.key: new}


# ---------------------------------------------------------------- pods that wait


def test_a_waiting_pod_changes_to_another_scheduler_and_back():
    """No API server allows that either."""
    world, theirs = World(WAITING), later(WAITING, template=ELSEWHERE)
    world.tell(WAITING, theirs)
    assert world.queue.where("pod") is Place.OUTSIDE
    assert world.queue.dump() == []
    world.tell(theirs, later(theirs, template=WAITING.template))
    assert world.queue.where("pod") is Place.ACTIVE


def test_a_pod_comes_that_is_ours_to_schedule():
    world = World()
    assert world.tell(None, WAITING) == []
    assert world.queue.where("pod") is Place.ACTIVE
    assert world.heard == []


def test_another_schedulers_pods_are_left_alone_until_they_are_bound():
    theirs = make_pod(template=ELSEWHERE, nominated_node_name="node")
    world = World(theirs)
    new = later(theirs, nominated_node_name="")
    world.tell(theirs, new)
    assert world.queue.where("pod") is Place.OUTSIDE
    assert world.heard == []
    bound = later(new, node_name="node")
    world.tell(new, bound)
    assert world.heard == ["AssignedPodAdd"]
    assert world.state.cache.get("pod") is bound
    assert World(theirs).tell(theirs, None) == []


def test_a_waiting_pod_is_bound():
    world, bound = World(WAITING), later(WAITING, node_name="node")
    assert world.tell(WAITING, bound) == []
    assert world.queue.heard == [("AssignedPodAdd", None, bound)]
    assert world.queue.where("pod") is Place.OUTSIDE
    assert world.state.cache.get("pod") is bound


@pytest.mark.parametrize("same_version", [False, True])
def test_a_waiting_pod_changes_unless_it_is_the_same_version(same_version):
    world = World(WAITING)
    new = msgspec.structs.replace(WAITING, resource_version="" if same_version else "2")
    world.tell(WAITING, new)
    assert world.queue.get("pod").pod is (WAITING if same_version else new)
    assert world.heard == []


def test_a_waiting_pod_goes():
    world = World(WAITING)
    assert world.tell(WAITING, None) == []
    assert world.queue.where("pod") is Place.OUTSIDE
    assert world.heard == []


@pytest.mark.parametrize("to", ["", "other", None], ids=["taken back", "another", "pod goes"])
def test_a_freed_nomination_is_for_pods_of_no_higher_priority(to):
    nominated = make_pod(nominated_node_name="node", priority=4)
    world = World(nominated)
    world.tell(nominated, None if to is None else later(nominated, nominated_node_name=to))
    assert world.queue.heard == [("AssignedPodDelete", nominated, None)]
    assert world.queue.for_priorities == [4]


def test_a_first_nomination_frees_nothing():
    world = World(WAITING)
    world.tell(WAITING, later(WAITING, nominated_node_name="node"))
    assert world.heard == []


# ---------------------------------------------------------------- assumed pods


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "being deleted"])
def test_an_assumed_pod_that_is_deleted_is_forgotten(gone):
    world = World(NODE, WAITING)
    assumed = world.assumed()
    new = None if gone else later(WAITING, deletion_timestamp="now")
    assert world.tell(WAITING, new) == [AbandonPod("pod")]
    assert world.state.cache.get("pod") is None
    assert world.queue.heard == [("AssignedPodDelete", assumed, None)]
    assert world.queue.for_priorities == [None]


def test_new_labels_of_an_assumed_pod_count_at_once():
    world = World(NODE, WAITING)
    assumed = world.assumed()
    new = later(WAITING, labels=make_pod(labels={"a": "b"}).labels)
    assert world.tell(WAITING, new) == []
    state = world.state
    counted = state.cache.get("pod")
    assert (counted.labels, counted.node_name) == (new.labels, "node")
    assert state.cache.is_assumed("pod")
    # Hints of other pods ignore an old version without a node.
    assert world.queue.heard == [("AssignedPodUpdatePodLabel", assumed, counted)]
    assert state.forget(assumed) is counted
    assert state.cache.get("pod") is None


def test_other_changes_of_an_assumed_pod_do_not_matter():
    world = World(NODE, WAITING)
    assumed = world.assumed()
    assert world.tell(WAITING, later(WAITING, nominated_node_name="node")) == []
    assert world.state.cache.get("pod") is assumed
    assert world.heard == []


def test_the_watch_confirms_an_assumed_pod():
    world = World(NODE, WAITING)
    world.assumed()
    bound = later(WAITING, node_name="node")
    world.tell(WAITING, bound)
    assert world.state.cache.get("pod") is bound
    assert not world.state.cache.is_assumed("pod")
    assert world.heard == ["AssignedPodAdd"]


def test_an_assumed_pod_is_confirmed_with_other_labels():
    """Pods that its old labels kept away may fit."""
    world = World(NODE, WAITING)
    assumed = world.assumed()
    labels = make_pod(labels={"a": "b"}).labels
    bound = later(WAITING, node_name="node", labels=labels)
    world.tell(WAITING, bound)
    assert world.queue.heard == [
        ("AssignedPodAdd", None, bound),
        ("AssignedPodUpdatePodLabel", assumed, bound),
    ]


# ---------------------------------------------------------------- nodes and the rest


def test_nodes_come_change_and_go():
    world, tainted = World(), make_node("node", spec={"unschedulable": True})
    for old, new, heard in (
        (None, tainted, ["NodeAdd"]),
        (tainted, make_node("node", labels={"a": "b"}), ["NodeUpdateNodeTaint", "NodeUpdateNodeLabel"]),
        (NODE, make_node("node", status={"images": [{"names": ["i"]}]}), []),
        (NODE, None, ["NodeDelete"]),
    ):  # fmt: skip
        world.queue.heard.clear()
        assert world.tell(old, new) == []
        assert world.queue.heard == [(label, old, new) for label in heard]
        assert world.state.table.node_count == (new is not None)


def test_a_node_goes_that_nobody_knew():
    assert World().tell(NODE, None) == [ReportProblem("node node is not found")]


def named(kind: type[Named], version: str) -> Named:
    return kind(metadata=ObjectMeta(name="x", resource_version=version))


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (PersistentVolume, "PersistentVolume"),
        (StorageClass, "storage.k8s.io/StorageClass"),
        (Service, None),
    ],
)
def test_other_kinds_are_kept_and_wake_pods_where_plugins_may_wait_for_them(kind, label):
    world, old, new = World(), named(kind, "1"), named(kind, "2")
    for before, after, verb in ((None, old, "Add"), (old, new, "Update"), (new, None, "Delete")):
        assert world.tell(before, after) == []
        assert world.state.cluster.lister(kind).get("x") is after
        assert world.heard[-1:] == ([] if label is None else [label + verb])


def test_only_our_own_pods_of_a_list_are_queued():
    theirs, ours = make_pod("theirs", template=ELSEWHERE), make_pod("ours")
    world = World()
    world.state.apply_new(Pod, {pod.key: pod for pod in (theirs, ours)}, NOW)
    assert world.queue.where("theirs") is Place.OUTSIDE
    assert world.queue.where("ours") is Place.ACTIVE


# ---------------------------------------------------------------- what a cycle decided


@pytest.mark.parametrize(("but", "woken"), [("", ["a", "b"]), ("a", ["b"])])
def test_a_forgotten_pods_place_is_for_all_others(but, woken):
    world = World(NODE, WAITING)
    world.state.freed(world.assumed(), NOW, but=but)
    assert world.heard == ["AssignedPodDelete"]
    precheck = world.queue.prechecks[-1]
    assert [name for name in "ab" if precheck is None or precheck(make_pod(name))] == woken


@pytest.mark.parametrize(
    ("now", "report"),
    [
        pytest.param(None, True, id="gone"),
        pytest.param(later(WAITING, node_name="node"), True, id="bound"),
        pytest.param(make_pod(uid="another"), False, id="another pod has its name"),
    ],
)
def test_a_pod_that_failed_and_does_not_wait_any_more_is_not_requeued(now, report):
    world = World(NODE, WAITING)
    queued = world.state.pop(NOW)
    world.tell(WAITING, None)
    if now is not None:
        world.tell(None, now)
    queued.reject(["Fit"])
    failure = world.state.fail(queued, NOW, nominated_node="node")
    assert (failure.pod.uid, failure.report) == ((now or WAITING).uid, report)
    assert world.queue.where("pod") is Place.OUTSIDE
    assert world.state.nominator.node_of("pod") is None


@pytest.mark.parametrize(
    ("nominated_node", "expected"),
    [
        pytest.param(None, "old", id="left as the status has it"),
        pytest.param("", "", id="cleared"),
        pytest.param("new", "new", id="set"),
    ],
)
def test_a_pod_that_failed_waits_on_in_its_latest_version(nominated_node, expected):
    world = World(NODE, WAITING)
    queued = world.state.pop(NOW)
    latest = later(WAITING, nominated_node_name="old")
    world.tell(WAITING, latest)
    queued.reject(["Fit"])
    failure = world.state.fail(queued, NOW, nominated_node=nominated_node)
    assert (failure.pod, failure.report) == (latest, True)
    assert world.queue.get("pod").pod is latest
    assert world.state.nominator.node_of("pod") == expected


def test_an_assumed_pod_is_counted_and_no_longer_nominated():
    world = World(NODE, make_pod(nominated_node_name="node"))
    world.assumed()
    assert world.state.nominator.node_of("pod") is None
    assert [pod.uid for pod in world.state.table.pods_on("node")] == ["pod"]


def test_an_attempt_ends_when_the_binding_begins():
    world = World(NODE, WAITING)
    world.assumed()
    assert world.queue.where("pod") is Place.IN_FLIGHT
    world.state.done("pod")
    assert world.queue.where("pod") is Place.OUTSIDE


@pytest.mark.parametrize("confirmed", [False, True])
def test_an_assumption_is_taken_back_unless_the_watch_has_confirmed_it(confirmed):
    world = World(NODE, WAITING)
    assumed = world.assumed()
    if confirmed:
        world.tell(WAITING, later(WAITING, node_name="node"))
    world.state.forget(assumed)
    assert [pod.uid for pod in world.state.table.pods_on("node")] == ["pod"] * confirmed


# ---------------------------------------------------------------- nominations of groups that are not complete


def grouped(size, *pods):
    """A world with these pods, of a group that needs ``size``; the group."""
    world = World()
    world.state.cluster.pod_groups.watch(LabelledPodGroup, lambda: "/apis/groups")
    manifest = {"metadata": {"name": "g", "namespace": "ns"}, "spec": {"minMember": size}}
    group = make_object(LabelledPodGroup, manifest)
    for each in (NODE, group, *pods):
        world.tell(None, each)
    world.queue.heard.clear()
    return world, group


def member(name):
    return make_pod(name=name, uid=name, labels={GROUP_LABEL: "g"})


def test_a_pod_of_a_group_that_went_during_its_attempt_is_not_nominated():
    world, group = grouped(1, member("p"))
    queued = world.state.pop(NOW)
    world.tell(group, None)
    queued.reject(["Fit"])
    failure = world.state.fail(queued, NOW, nominated_node="node")
    assert failure.nominated_node == ""
    assert not world.state.nominator.node_of("p")


def test_each_nomination_of_a_group_that_goes_is_cleared_and_frees_its_node():
    first, second = member("p"), member("q")
    world, group = grouped(2, first, second)
    world.state.nominator.add(first, "node")
    world.state.nominator.add(second, "")
    assert world.tell(group, None) == [ClearNomination(first)]
    (freed,) = [old for label, old, _ in world.queue.heard if label == "AssignedPodDelete"]
    assert (freed.uid, freed.nominated_node_name) == ("p", "node")
    assert world.tell(None, group) == []


def test_a_group_that_loses_a_pod_and_is_still_complete_keeps_its_nominations():
    first, second = member("p"), member("q")
    world, _ = grouped(1, first, second)
    world.state.nominator.add(first, "node")
    assert world.tell(second, None) == []
    assert world.state.nominator.node_of("p") == "node"


def test_a_deleted_pod_frees_a_nomination_that_was_never_written():
    world = World(NODE, WAITING)
    world.state.nominator.add(WAITING, "node")
    world.tell(WAITING, None)
    ((label, freed, _),) = world.queue.heard
    assert (label, freed.nominated_node_name) == ("AssignedPodDelete", "node")


def test_pods_of_a_list_wake_the_mates_that_came_with_an_earlier_part_of_it():
    world, _ = grouped(2)
    parts = [member("p"), make_pod("alone")], [member("q"), member("r")], [make_pod("other")]
    for part in parts:
        world.state.apply_new(Pod, {pod.key: pod for pod in part}, NOW)
    # Once for the part that completes the group.
    assert world.queue.heard == [("UnschedulablePodAdd", None, parts[1][1])]


def test_pods_of_a_list_wake_nobody_while_their_group_is_not_complete():
    world, _ = grouped(3)
    for name in ("p", "q"):
        world.state.apply_new(Pod, {f"ns/{name}": member(name)}, NOW)
    assert world.queue.heard == []


def test_a_pod_that_joins_a_group_while_it_is_assumed_does_not_count_there_before_it_is_bound():
    world, _ = grouped(2, WAITING, member("p"))
    members = world.state.cluster.pod_groups.members
    key = world.state.cluster.pod_groups.key_of(member("p"))
    queued = world.state.pop(NOW)
    assert queued.pod is WAITING
    assumed = world.state.assume(WAITING, "node")
    world.state.done("pod")
    joined = later(WAITING, labels=member("p").labels)
    world.tell(WAITING, joined)
    again = later(joined)
    world.tell(joined, again)
    assert (set(members(key).scheduled), set(members(key).unscheduled)) == (set(), {"pod", "p"})
    world.state.forget(assumed)
    assert set(members(key).unscheduled) == {"pod", "p"}
    world.tell(again, later(again, node_name="node"))
    assert set(members(key).scheduled) == {"pod"}


def test_an_assumed_pod_that_changes_still_counts_in_its_group():
    one = member("p")
    world, _ = grouped(1, one)
    world.assumed()
    key = world.state.cluster.pod_groups.key_of(one)
    world.tell(one, later(one, phase="Pending"))
    assert set(world.state.cluster.pod_groups.members(key).scheduled) == {"p"}


def test_a_pod_is_counted_in_one_group_at_a_time():
    """It is assumed in the version that was decided about, which names its former group."""
    one = member("p")
    world, _ = grouped(1, one)
    groups = world.state.cluster.pod_groups
    old, new = groups.key_of(one), groups.key_of(make_pod(labels={GROUP_LABEL: "h"}))
    world.state.pop(NOW)
    moved = later(one, labels=LabelSet({GROUP_LABEL: "h"}))
    world.tell(one, moved)
    assumed = world.state.assume(one, "node")
    assert len(groups.members(old)) + len(groups.members(new)) == 1
    world.state.forget(assumed)
    assert set(groups.members(new).unscheduled) == {"p"}
    world.tell(moved, None)
    assert not groups.groups()


@pytest.mark.parametrize(("written", "freed"), [("", ["node"]), ("node", [])])
def test_a_failed_attempt_frees_its_nomination_for_others_unless_the_watch_will_say_so(
    written, freed
):
    waiting = later(WAITING, nominated_node_name=written)
    world = World(NODE, waiting)
    world.state.nominator.add(waiting, "node")
    queued = world.state.pop(NOW)
    queued.reject(["Fit"])
    world.queue.heard.clear()
    world.state.fail(queued, NOW, nominated_node="")
    assert [
        old.nominated_node_name
        for label, old, _ in world.queue.heard
        if label == "AssignedPodDelete"
    ] == freed
