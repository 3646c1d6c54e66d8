"""The scheduling queue: arrival, order, attempts, updates, deletion and what it shows of itself."""

import pytest

from app.model.cluster_event import NODE_ADD, Action, ClusterEvent, Resource
from app.model.objects import Toleration
from app.model.pod import PodTemplate
from app.model.status import SUCCESS, unresolvable
from app.state.queue.backoff_queue import RetryTimes
from app.state.queue.queued_pod import (
    LEGAL_MOVES,
    TRANSITIONS,
    WAITING,
    InvalidTransition,
    Move,
    Place,
    QueuedPod,
    QueueStatistics,
)
from app.state.queue.scheduling_queue import AlreadyQueuedError
from tests.core.state.queue_kit import (
    NODE_ADDED,
    NOW,
    PROFILE,
    Recorder,
    attempt,
    fail_next,
    make_pod,
    make_queue,
    places,
    pop_all,
    registered,
    spec,
)

OWN_TOLERATIONS = [ClusterEvent(Resource.Pod, Action.UpdatePodToleration)]
ACTIVE, BACKOFF, ERROR = Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF
PARKED, GATED, FLYING, OUT = Place.UNSCHEDULABLE, Place.GATED, Place.IN_FLIGHT, Place.OUTSIDE


# ---------------------------------------------------------------- arrival and order


def test_pods_come_out_by_priority_and_then_by_arrival():
    queue = make_queue()
    for at, (name, priority) in enumerate([("low", -1), ("b", 5), ("none", 0), ("a", 5)]):
        queue.add(make_pod(name, priority=priority), NOW + at)
    assert pop_all(queue) == ["b", "a", "none", "low"]


def test_pods_of_one_instant_come_out_as_they_came():
    queue = make_queue()
    names = [f"p{i}" for i in range(20)]
    for name in names:
        queue.add(make_pod(name), NOW)
    assert pop_all(queue) == names


def test_an_empty_queue_has_nothing_to_pop_and_nothing_to_wait_for():
    queue = make_queue()
    assert queue.pop(NOW) is None
    assert queue.next_flush_time(NOW) is None
    assert not queue.ready
    assert queue.flush_backoff(NOW) == queue.flush_unschedulable(NOW) == 0


def test_pop_counts_the_attempt_and_hands_the_pod_out():
    queue = make_queue()
    pod = make_pod()
    queue.add(pod, NOW)
    assert queue.ready
    queued = queue.pop(NOW + 1)
    assert (queued.pod, queued.attempts, queued.place) == (pod, 1, FLYING)
    assert (queued.timestamp, queued.initial_attempt_timestamp) == (NOW, NOW)
    assert queue.pop(NOW + 1) is None
    assert len(queue) == 0


def test_the_first_time_in_the_active_queue_is_kept_for_good():
    queue = make_queue()
    queued = attempt(queue, make_pod(), now=NOW)
    queue.activate([queued.pod], NOW + 50)
    assert (queued.initial_attempt_timestamp, queued.timestamp) == (NOW, NOW)


def test_adding_a_waiting_pod_again_starts_it_afresh():
    queue = make_queue()
    queued = attempt(queue, make_pod())
    queue.add(queued.pod, NOW + 7)
    again = queue.get("pod")
    assert again is not queued
    assert (again.place, again.attempts, again.timestamp, again.rejectors) == (
        ACTIVE, 0, NOW + 7, frozenset(),
    )  # fmt: skip
    assert places(queue) == {"pod": ACTIVE}


def test_adding_a_pod_in_flight_again_counts_as_an_update():
    queue = make_queue()
    queue.add(make_pod(), NOW)
    queue.pop(NOW)
    queue.add(make_pod(labels={"a": "b"}), NOW)
    assert places(queue) == {"pod": FLYING}
    assert queue.in_flight_events() == {"PodPopped": 1, "UnschedulablePodUpdatePodLabel": 1}


# ---------------------------------------------------------------- the end of an attempt


def test_done_forgets_the_pod():
    queue = make_queue()
    queue.add(make_pod(), NOW)
    queued = queue.pop(NOW)
    queue.done("pod")
    assert queued.place is OUT
    assert queue.where("pod") is OUT
    assert queue.get("pod") is None
    queue.done("pod")
    queue.done("never seen")


def test_done_leaves_pods_alone_that_are_not_in_flight():
    queue = make_queue()
    queue.add(make_pod(), NOW)
    queue.done("pod")
    assert queue.where("pod") is ACTIVE


def test_a_rejected_pod_waits_for_an_event():
    queue = make_queue()
    queued = attempt(queue, make_pod(), by=["Fit"], now=NOW + 3)
    assert queued.place is PARKED
    assert (queued.unschedulable_count, queued.consecutive_errors_count) == (1, 0)
    assert queued.timestamp == NOW + 3


def test_a_pod_that_met_an_error_backs_off_at_once():
    queue = make_queue()
    queued = attempt(queue, make_pod(), by=[])
    assert queued.place is ERROR
    assert (queued.unschedulable_count, queued.consecutive_errors_count) == (0, 1)


def test_a_rejection_ends_a_row_of_errors():
    queue = make_queue()
    queued = attempt(queue, make_pod(), by=[])
    for at in (10, 20):
        queue.flush_backoff(NOW + at)
        fail_next(queue, by=[], now=NOW + at)
    assert (queued.unschedulable_count, queued.consecutive_errors_count) == (0, 3)
    queue.flush_backoff(NOW + 30)
    fail_next(queue, by=["Fit"], now=NOW + 30)
    assert (queued.unschedulable_count, queued.consecutive_errors_count) == (1, 0)


def test_a_failure_after_done_is_retried_after_backoff_whoever_turned_the_pod_down():
    queue = make_queue()
    queue.add(make_pod(), NOW)
    queued = queue.pop(NOW)
    queue.done("pod")
    queued.reject(["VolumeBinding"])
    assert queue.add_unschedulable_if_not_present(queued, NOW) is BACKOFF
    assert places(queue) == {"pod": BACKOFF}


def test_a_failed_pod_without_backoff_is_active_at_once():
    queue = make_queue(times=RetryTimes(max_backoff=0))
    assert attempt(queue, make_pod(), by=[]).place is ACTIVE


@pytest.mark.parametrize(
    ("by", "text"),
    [
        (None, "Pod ns/pod is already present in the active queue"),
        ([], "Pod ns/pod is already present in the backoff queue"),
        (["Fit"], "Pod ns/pod is already present in unschedulable queue"),
    ],
)
def test_a_pod_that_is_queued_already_is_not_taken_back(by, text):
    queue = make_queue()
    queue.add(make_pod(), NOW)
    late = queue.pop(NOW)
    queue.done("pod")
    queue.add(make_pod(), NOW)
    if by is not None:
        fail_next(queue, by=by)
    before = places(queue)
    with pytest.raises(AlreadyQueuedError, match=f"^{text}$"):
        queue.add_unschedulable_if_not_present(late, NOW)
    assert places(queue) == before
    assert late.place is OUT


def test_giving_the_same_pod_back_twice_is_refused():
    queue = make_queue()
    queued = attempt(queue, make_pod())
    with pytest.raises(AlreadyQueuedError, match="unschedulable"):
        queue.add_unschedulable_if_not_present(queued, NOW)
    assert (queued.place, queued.unschedulable_count) == (PARKED, 1)


def test_a_pod_that_is_being_tried_again_is_not_taken_back_from_an_earlier_attempt():
    queue = make_queue()
    queue.add(make_pod(), NOW)
    late = queue.pop(NOW)
    queue.done("pod")
    queue.add(make_pod(), NOW)
    present = queue.pop(NOW)
    with pytest.raises(AlreadyQueuedError, match="being tried again"):
        queue.add_unschedulable_if_not_present(late, NOW)
    assert present.place is FLYING


# ---------------------------------------------------------------- pods recreated under their name


def test_a_recreated_pod_takes_the_place_of_its_namesake():
    queue = make_queue()
    attempt(queue, make_pod("web", uid="one"))
    queue.add(make_pod("web", uid="two"), NOW)
    assert queue.where("one") is OUT
    assert places(queue) == {"web": ACTIVE}
    assert len(queue) == 1


def test_an_update_to_another_uid_replaces_the_pod():
    queue = make_queue()
    old = attempt(queue, make_pod("web", uid="one")).pod
    queue.update(old, make_pod("web", uid="two"), NOW + 9)
    assert (queue.where("one"), queue.where("two")) == (OUT, ACTIVE)
    assert (queue.get("two").attempts, queue.get("two").timestamp) == (0, NOW + 9)


def test_a_pod_recreated_while_in_flight_is_queued_and_the_old_one_is_not_taken_back():
    queue = make_queue()
    old = make_pod("web", uid="one")
    queue.add(old, NOW)
    late = queue.pop(NOW)
    queue.delete(old)
    assert queue.where("one") is FLYING
    queue.add(make_pod("web", uid="two"), NOW)
    late.reject(["Fit"])
    with pytest.raises(AlreadyQueuedError, match="active queue"):
        queue.add_unschedulable_if_not_present(late, NOW)
    assert (queue.where("one"), queue.where("two")) == (OUT, ACTIVE)
    assert queue.statistics().in_flight == 0


def test_deleting_the_old_pod_late_does_not_touch_its_successor():
    queue = make_queue()
    old = make_pod("web", uid="one")
    queue.add(old, NOW)
    queue.add(make_pod("web", uid="two"), NOW)
    queue.delete(old)
    assert queue.where("two") is ACTIVE


# ---------------------------------------------------------------- updates


def test_an_update_of_an_unknown_pod_adds_it():
    recorder = Recorder()
    queue = make_queue(recorder=recorder)
    queue.update(make_pod(), make_pod(resource_version="2"), NOW)
    assert queue.get("pod").pod.resource_version == "2"
    assert recorder.entered == [("active", "UnschedulablePodUpdate")]


def test_an_active_pod_is_replaced_and_put_where_it_now_belongs():
    queue = make_queue()
    first, second = make_pod("first"), make_pod("second")
    queue.add(first, NOW)
    queue.add(second, NOW + 1)
    queue.update(second, make_pod("second", priority=3), NOW + 2)
    assert pop_all(queue) == ["second", "first"]


def test_an_update_that_changes_nothing_keeps_the_order():
    queue = make_queue()
    pods = [make_pod(f"p{i}") for i in range(3)]
    for pod in pods:
        queue.add(pod, NOW)
    queue.update(pods[0], make_pod("p0", resource_version="2"), NOW + 1)
    assert pop_all(queue) == ["p0", "p1", "p2"]


@pytest.mark.parametrize(("by", "place"), [(["Fit"], BACKOFF), ([], ERROR)])
def test_a_pod_that_backs_off_keeps_its_place_through_updates(by, place):
    queue = make_queue([registered(NODE_ADDED, "Fit")])
    old = attempt(queue, make_pod(), by=by).pod
    queue.move_all(NODE_ADD, None, "node", NOW)
    new = make_pod(labels={"a": "b"}, priority=9)
    queue.update(old, new, NOW)
    assert (queue.where("pod"), queue.get("pod").pod) == (place, new)
    assert queue.get("pod").attempts == 1


def test_a_pod_in_flight_keeps_its_object():
    queue = make_queue()
    old = make_pod()
    queue.add(old, NOW)
    queued = queue.pop(NOW)
    queue.update(old, make_pod(labels={"a": "b"}), NOW)
    assert queued.pod is old


def test_a_parked_pod_is_found_by_its_new_template():
    shared = PodTemplate(spec())
    queue = make_queue([registered(NODE_ADDED, "Fit", lambda pod, *_: pod.template is shared, template_only=True)])  # fmt: skip
    old = attempt(queue, make_pod(), now=NOW).pod
    queue.update(old, make_pod(template=shared), NOW)
    assert queue.where("pod") is PARKED
    assert queue.move_all(NODE_ADD, None, "node", NOW + 5) == 1


def test_the_first_event_of_an_update_that_is_welcome_wakes_the_pod():
    recorder = Recorder()
    asked = []

    def hint(pod, old, new):
        asked.append((pod.name, old.name, new.spec.tolerations))
        return True

    tolerations = (Toleration(key="k", operator="Exists"),)
    events = [registered(event, "Taint", hint) for event in OWN_TOLERATIONS]
    queue = make_queue(events, recorder=recorder)
    old = attempt(queue, make_pod(), by=["Taint"]).pod
    new = make_pod(template=PodTemplate(spec(tolerations=tolerations)), labels={"a": "b"})
    queue.update(old, new, NOW + 30)
    assert asked == [("pod", "pod", tolerations)]
    assert queue.where("pod") is ACTIVE
    assert recorder.entered[-1] == ("active", "UnschedulablePodUpdatePodToleration")


def test_a_pod_that_one_event_of_an_update_has_woken_is_not_woken_by_the_next():
    hint_events = [Action.UpdatePodLabel, Action.UpdatePodToleration]
    recorder = Recorder()
    queue = make_queue(
        [registered(ClusterEvent(Resource.Pod, action), "Fit") for action in hint_events],
        recorder=recorder,
    )
    old = attempt(queue, make_pod()).pod
    tolerating = PodTemplate(spec(tolerations=(Toleration(key="k"),)))
    queue.update(old, make_pod(template=tolerating, labels={"a": "b"}), NOW)
    assert queue.where("pod") is BACKOFF
    assert recorder.entered[2:] == [("backoff", "UnschedulablePodUpdatePodLabel")]


def test_an_update_that_nobody_welcomes_leaves_the_pod_parked():
    queue = make_queue([registered(event, "Taint") for event in OWN_TOLERATIONS])
    old = attempt(queue, make_pod(), by=["Taint"]).pod
    new = make_pod(labels={"a": "b"})
    queue.update(old, new, NOW)
    assert (queue.where("pod"), queue.get("pod").pod) == (PARKED, new)


# ---------------------------------------------------------------- deletion


@pytest.mark.parametrize("place", [ACTIVE, BACKOFF, ERROR, PARKED])
def test_a_deleted_pod_is_gone_from_wherever_it_was(place):
    recorder = Recorder()
    queue = make_queue([registered(NODE_ADDED, "Fit")], recorder=recorder)
    pod = make_pod()
    if place is ACTIVE:
        queue.add(pod, NOW)
    else:
        attempt(queue, pod, by=[] if place is ERROR else ["Fit"])
    if place is BACKOFF:
        queue.move_all(NODE_ADD, None, "node", NOW)
    assert queue.where("pod") is place
    queue.delete(pod)
    assert queue.where("pod") is OUT
    assert len(queue) == queue.count(place) == 0
    assert queue.next_flush_time(NOW) is None
    assert not recorder.gauge
    queue.delete(pod)


def test_many_deleted_pods_leave_nothing_behind():
    queue = make_queue()
    pods = [make_pod(f"p{i}", priority=i % 7) for i in range(500)]
    for pod in pods:
        queue.add(pod, NOW)
    for pod in pods[::2] + pods[1:-2:2]:
        queue.delete(pod)
    assert len(queue._active._heaps[frozenset()]._entries) < 200
    assert pop_all(queue) == ["p499"]


# ---------------------------------------------------------------- looking in


def everywhere():
    """A queue with one pod in every place, each named after it."""
    gates = {"gated"}
    queue = make_queue(
        [registered(NODE_ADDED, "Fit")],
        pre_enqueue=lambda pod: [("Gate", lambda pod: _verdict(pod.name in gates))],
    )
    queue.add(make_pod("gated"), NOW)
    attempt(queue, make_pod("backoff"), by=["Fit"])
    queue.move_all(NODE_ADD, None, "node", NOW)
    queue.add(make_pod("in flight"), NOW)
    queue.pop(NOW)
    attempt(queue, make_pod("error backoff"), by=[])
    attempt(queue, make_pod("unschedulable"), by=["Taint"])
    queue.add(make_pod("active"), NOW)
    return queue


def _verdict(gated):
    return unresolvable("held back") if gated else SUCCESS


def test_every_place_is_counted():
    queue = everywhere()
    assert queue.statistics() == QueueStatistics(
        active=1, backoff=1, error_backoff=1, unschedulable=1, gated=1, in_flight=1, in_flight_events=0
    )  # fmt: skip
    assert queue.statistics().summary == "activeQ:1; backoffQ:2; unschedulablePods:2"
    assert places(queue) == {str(place): place for place in [*WAITING, FLYING]}
    assert len(queue) == 5
    assert [pod.name for pod in queue.pending_pods()] == [
        "active", "backoff", "error backoff", "unschedulable", "gated",
    ]  # fmt: skip
    assert [each.pod.name for each in queue.all_pods() if each.place is FLYING] == ["in flight"]


def test_the_dump_says_why_a_pod_waits():
    entries = {entry.pod.name: entry for entry in everywhere().dump()}
    parked, gated = entries["unschedulable"], entries["gated"]
    assert (parked.rejectors, parked.attempts, parked.gating_plugin) == ({"Taint"}, 1, "")
    assert (gated.rejectors, gated.gating_plugin, gated.gating_status.message) == ({"Gate"}, "Gate", "held back")  # fmt: skip
    assert entries["backoff"].backoff_expiration == NOW + 1
    assert parked.story == (
        Move(NOW, "UnschedulablePodAdd", ACTIVE),
        Move(NOW, "Pop", FLYING),
        Move(NOW, "ScheduleAttemptFailure", PARKED),
    )


def test_the_story_of_a_pod_is_short_and_ends_with_the_last_move():
    queue = make_queue()
    queued = attempt(queue, make_pod())
    for at in range(20):
        queue.activate([queued.pod], NOW + at)
        fail_next(queue, now=NOW + at)
    assert len(queued.story) == 8
    assert str(queued.story[-1]) == f"{NOW + 19:.3f} ScheduleAttemptFailure -> unschedulable"
    assert str(Move(None, "Done", OUT)) == "Done -> outside"


# ---------------------------------------------------------------- the table of moves


def test_the_table_has_just_these_moves():
    waiting = [ACTIVE, BACKOFF, ERROR, PARKED, GATED]
    assert {
        (str(start), cause, str(finish)) for start, cause, finish in LEGAL_MOVES
    } == {(str(a), cause, str(b)) for cause, a, b in [
        ("Add", OUT, ACTIVE), ("Add", OUT, GATED),
        *[(cause, PARKED, to) for cause in ("Update", "Event", "Timeout") for to in (ACTIVE, BACKOFF, GATED)],
        *[(cause, GATED, to) for cause in ("Update", "Event") for to in (ACTIVE, BACKOFF)],
        *[("Activate", start, ACTIVE) for start in (BACKOFF, ERROR, PARKED, GATED)], ("Activate", PARKED, GATED),
        ("BackoffComplete", BACKOFF, ACTIVE), ("BackoffComplete", ERROR, ACTIVE),
        ("Pop", ACTIVE, FLYING), ("Pop", BACKOFF, FLYING),
        *[("Failure", FLYING, to) for to in waiting],
        *[("Failure", OUT, to) for to in waiting if to is not PARKED],
        ("Done", FLYING, OUT),
        *[("Delete", start, OUT) for start in waiting],
    ]}  # fmt: skip
    assert sum(len(to) for ways in TRANSITIONS.values() for to in ways.values()) == len(LEGAL_MOVES)


@pytest.mark.parametrize("start", Place)
@pytest.mark.parametrize("cause", TRANSITIONS)
def test_any_other_move_raises_with_the_pods_story_and_changes_nothing(start, cause):
    queue = everywhere()
    queued = QueuedPod(make_pod("new"), NOW) if start is OUT else queue.get(str(start))
    before, story = places(queue), queued.story
    for finish in set(Place) - TRANSITIONS[cause].get(start, set()):
        with pytest.raises(InvalidTransition) as caught:
            queue._move(queued, finish, cause, NOW, "some event")
        error = caught.value
        assert (error.key, error.start, error.finish) == (queued.pod.key, start, finish)
        assert (error.story, places(queue), queued.place) == (story, before, start)


def test_an_illegal_move_reads_like_a_story():
    queued = QueuedPod(make_pod("web"), NOW)
    queued.place = ACTIVE
    queued.note(NOW, "UnschedulablePodAdd")
    error = InvalidTransition("ns/web", ACTIVE, BACKOFF, queued.story)
    assert str(error) == (
        "pod ns/web cannot go from active to backoff; lately: 1700000000.000 UnschedulablePodAdd -> active"
    )
    assert str(InvalidTransition("ns/web", OUT, PARKED, ())).endswith("; lately: nothing yet")


def test_moves_are_counted_where_they_lead():
    recorder = Recorder()
    queue = make_queue([registered(NODE_ADDED, "Fit")], recorder=recorder)
    queued = attempt(queue, make_pod())
    queue.move_all(NODE_ADD, None, "node", NOW)
    queue.pop(NOW)
    queued.reject()
    queue.add_unschedulable_if_not_present(queued, NOW)
    queue.flush_backoff(NOW + 9)
    assert recorder.entered == [
        ("active", "UnschedulablePodAdd"),
        ("unschedulable", "ScheduleAttemptFailure"),
        ("backoff", "NodeAdd"),
        ("active", "PopFromBackoffQ"),
        ("backoff", "ScheduleAttemptFailure"),
        ("active", "BackoffComplete"),
    ]


def test_the_gauge_counts_waiting_pods_by_who_turned_them_down():
    recorder = Recorder()
    queue = make_queue(recorder=recorder)
    attempt(queue, make_pod("a"), by=["Fit", "Taint"])
    attempt(queue, make_pod("b"), by=["Fit"], pending=["Permit"])
    assert recorder.waiting == {("Fit", PROFILE): 2, ("Taint", PROFILE): 1, ("Permit", PROFILE): 1}
    queue.activate([make_pod("a")], NOW)
    assert recorder.gauge == {"Fit": 2, "Taint": 1, "Permit": 1}
    queue.pop(NOW)
    assert recorder.gauge == {"Fit": 1, "Permit": 1}
    queue.delete(make_pod("b"))
    assert recorder.gauge == {}


def test_a_preemptor_comes_back_before_pods_that_arrived_later():
    """Its victims are gone: it is bound while the last preemptors still wait."""
    queue = make_queue()
    first, second, third = (make_pod(name) for name in ("first", "second", "third"))
    for number, each in enumerate((first, second, third)):
        queue.add(each, NOW + number)
    for nominated in ("", "n1"):
        queued = queue.pop(NOW + 10)
        queued.reject({"Fit"})
        queue.nominator.add(queued.pod, nominated or None)
        queue.add_unschedulable_if_not_present(queued, NOW + 10)
    queue.add(make_pod("fourth"), NOW + 15)
    queue.activate((first, second), NOW + 20)
    assert [queue.pop(NOW + 20).pod.name for _ in range(4)] == [
        "second",
        "third",
        "first",
        "fourth",
    ]
