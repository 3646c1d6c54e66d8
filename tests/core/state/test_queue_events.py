"""Which events wake which pods, whether they come while the pod waits or while it is being tried."""

import weakref

import pytest

from app.model.budget import UNLIMITED, ByteBudget, memory_of
from app.model.cluster_event import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    Resource,
)
from app.model.pod import PodTemplate
from app.state.queue.active_queue import InFlight
from app.state.queue.hints import with_taint_registrations
from app.state.queue.queued_pod import Place, QueuedPod
from tests.core.state.queue_kit import (
    NODE_ADDED,
    NOW,
    POD_DELETED,
    PROFILE,
    Recorder,
    attempt,
    make_pod,
    make_queue,
    places,
    registered,
    spec,
)

ACTIVE, BACKOFF, PARKED = Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE
LATER = NOW + 60
NODE_TAINT = ClusterEvent(Resource.Node, Action.UpdateNodeTaint)
NODE_LABEL = ClusterEvent(Resource.Node, Action.UpdateNodeLabel)
ANY = ClusterEvent(Resource.Any, Action.All)


class Hint:
    """A hint with a fixed answer that remembers whom it was asked about."""

    def __init__(self, answer: bool = True) -> None:
        self.answer = answer
        self.asked: list[tuple[str, object, object]] = []

    def __call__(self, pod, old, new) -> bool:
        self.asked.append((pod.name, old, new))
        return self.answer


# ---------------------------------------------------------------- while the pod waits


@pytest.mark.parametrize(
    ("awaited", "by", "event", "wakes"),
    [
        pytest.param(NODE_ADDED, "Fit", NODE_ADD, True, id="the rejector waits for it"),
        pytest.param(NODE_ADDED, "Taint", NODE_ADD, False, id="somebody else waits for it"),
        pytest.param(NODE_ADDED, "Fit", NODE_DELETE, False, id="nobody waits for it"),
        pytest.param(NODE_ADDED, "Fit", NODE_TAINT, False, id="another action"),
        pytest.param(POD_DELETED, "Fit", ASSIGNED_POD_DELETE, True, id="a kind of pod"),
        pytest.param(POD_DELETED, "Fit", ASSIGNED_POD_ADD, False, id="another action on a pod"),
        pytest.param(ANY, "Fit", NODE_LABEL, True, id="anything at all"),
        pytest.param(NODE_ADDED, "Fit", UNSCHEDULABLE_TIMEOUT, True, id="wildcard"),
        pytest.param(NODE_ADDED, "Nobody", UNSCHEDULABLE_TIMEOUT, True, id="wildcard, nobody asked"),
    ],
)  # fmt: skip
def test_an_event_wakes_the_pods_whose_rejectors_wait_for_it(awaited, by, event, wakes):
    queue = make_queue([registered(awaited, "Fit")])
    attempt(queue, make_pod(), by=[by])
    assert queue.move_all(event, None, None, LATER) == int(wakes)
    assert queue.where("pod") is (ACTIVE if wakes else PARKED)


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("template_only", [True, False])
def test_the_hint_decides(answer, template_only):
    hint = Hint(answer)
    queue = make_queue([registered(NODE_ADDED, "Fit", hint, template_only)])
    attempt(queue, make_pod())
    assert queue.move_all(NODE_ADD, "old", "new", LATER) == int(answer)
    assert hint.asked == [("pod", "old", "new")]


def test_one_welcome_among_several_hints_is_enough():
    hints = [Hint(False), Hint(True), Hint(True)]
    queue = make_queue(registered(NODE_ADDED, f"P{i}", h) for i, h in enumerate(hints))
    attempt(queue, make_pod(), by=["P0", "P1", "P2"])
    assert queue.move_all(NODE_ADD, None, None, LATER) == 1
    assert [len(hint.asked) for hint in hints] == [1, 1, 0]


def test_several_registrations_of_one_plugin_are_all_asked():
    first, second = Hint(False), Hint(True)
    wide = ClusterEvent(Resource.Node, Action.Add | Action.UpdateNodeLabel)
    queue = make_queue([registered(wide, "Fit", first), registered(NODE_ADDED, "Fit", second)])  # fmt: skip
    attempt(queue, make_pod())
    assert queue.move_all(NODE_LABEL, None, None, LATER) == 0
    assert queue.move_all(NODE_ADD, None, None, LATER) == 1
    assert (len(first.asked), len(second.asked)) == (2, 1)


def test_a_faulty_hint_counts_as_welcome_and_is_reported():
    def broken(pod, old, new):
        raise ValueError("no such field")

    recorder = Recorder()
    queue = make_queue([registered(NODE_ADDED, "Fit", broken)], recorder=recorder)
    attempt(queue, make_pod())
    assert queue.move_all(NODE_ADD, None, None, LATER) == 1
    assert recorder.faults == [("Fit", "QueueingHint", "pod", "no such field")]


def test_a_hint_that_looks_at_the_template_only_is_asked_once_per_family():
    once, each = Hint(False), Hint(False)
    queue = make_queue([registered(NODE_ADDED, "Fit", once, template_only=True), registered(NODE_ADDED, "Affinity", each)])  # fmt: skip
    web, db = PodTemplate(spec()), PodTemplate(spec())
    for i in range(5):
        attempt(queue, make_pod(f"web-{i}", template=web))
        attempt(queue, make_pod(f"db-{i}", template=db), by=["Fit", "Affinity"])
    assert queue.move_all(NODE_ADD, None, "node", LATER) == 0
    assert [name for name, *_ in once.asked] == ["web-0", "db-0"]
    assert [name for name, *_ in each.asked] == [f"db-{i}" for i in range(5)]


def test_siblings_are_woken_one_by_one_where_the_hint_looks_at_the_pod():
    queue = make_queue([registered(POD_DELETED, "Affinity", lambda pod, old, new: pod.name == old.name)])  # fmt: skip
    template = PodTemplate(spec())
    for i in range(3):
        attempt(queue, make_pod(f"p{i}", template=template), by=["Affinity"])
    assert queue.move_all(ASSIGNED_POD_DELETE, make_pod("p1"), None, LATER) == 1
    assert places(queue) == {"p0": PARKED, "p1": ACTIVE, "p2": PARKED}


def test_an_event_looks_at_nobody_but_those_it_may_help():
    hint = Hint(False)
    queue = make_queue([registered(NODE_ADDED, "Fit", hint), registered(POD_DELETED, "Ports", hint)])  # fmt: skip
    for i in range(50):
        attempt(queue, make_pod(f"p{i}"), by=["Ports" if i % 10 else "Fit"])
    prechecked = []
    queue.move_all(NODE_ADD, None, None, LATER, lambda pod: prechecked.append(pod.name) or True)
    assert [name for name, *_ in hint.asked] == prechecked == ["p0", "p10", "p20", "p30", "p40"]


def test_the_precheck_keeps_pods_where_they_are_unasked():
    hint = Hint(True)
    queue = make_queue([registered(NODE_ADDED, "Fit", hint)])
    for name, priority in [("low", 1), ("high", 5)]:
        attempt(queue, make_pod(name, priority=priority))
    assert queue.move_all(NODE_ADD, None, None, LATER, lambda pod: pod.priority <= 3) == 1
    assert places(queue) == {"low": ACTIVE, "high": PARKED}
    assert [name for name, *_ in hint.asked] == ["low"]


def test_a_wildcard_event_with_a_pod_concerns_that_pod_alone():
    queue = make_queue()
    for name in ("a", "b"):
        attempt(queue, make_pod(name))
    assert queue.move_all(UNSCHEDULABLE_TIMEOUT, None, make_pod("b"), LATER) == 1
    assert queue.move_all(UNSCHEDULABLE_TIMEOUT, None, "no pod", LATER) == 0
    assert places(queue) == {"a": PARKED, "b": ACTIVE}


def test_profiles_do_not_share_registrations():
    ours, theirs = Hint(True), Hint(True)
    queue = make_queue(hints={PROFILE: [registered(NODE_ADDED, "Fit", ours)], "other": [registered(POD_DELETED, "Fit", theirs)]})  # fmt: skip
    attempt(queue, make_pod("ours"))
    attempt(queue, make_pod("theirs", template=PodTemplate(spec(scheduler_name="other"))))
    assert queue.move_all(NODE_ADD, None, None, LATER) == 1
    assert places(queue) == {"ours": ACTIVE, "theirs": PARKED}
    assert not theirs.asked


def test_a_pod_of_a_profile_without_registrations_is_woken_by_any_event_somebody_waits_for():
    queue = make_queue([registered(NODE_ADDED, "Fit")])
    attempt(queue, make_pod(template=PodTemplate(spec(scheduler_name="unknown"))))
    assert queue.move_all(NODE_DELETE, None, None, LATER) == 0
    assert queue.move_all(NODE_ADD, None, None, LATER) == 1


def test_a_plugin_that_registered_nothing_is_never_woken_by_events():
    queue = make_queue([registered(NODE_ADDED, "Fit")])
    attempt(queue, make_pod(), by=["Silent"])
    for event in (NODE_ADD, NODE_DELETE, ASSIGNED_POD_DELETE, NODE_TAINT):
        assert queue.move_all(event, None, None, LATER) == 0


@pytest.mark.parametrize(
    ("rejector", "pending", "place"),
    [
        pytest.param(True, False, BACKOFF, id="the rejector only"),
        pytest.param(False, True, ACTIVE, id="the pending one only"),
        pytest.param(True, True, ACTIVE, id="both"),
        pytest.param(False, False, PARKED, id="neither"),
    ],
)
@pytest.mark.parametrize("template_only", [True, False])
def test_what_a_pending_plugin_welcomes_needs_no_backoff(rejector, pending, place, template_only):
    queue = make_queue([registered(NODE_ADDED, "Fit", Hint(rejector), template_only), registered(NODE_ADDED, "Permit", Hint(pending))])  # fmt: skip
    attempt(queue, make_pod(), by=["Fit"], pending=["Permit"])
    queue.move_all(NODE_ADD, None, None, NOW)
    assert queue.where("pod") is place


def test_pods_that_do_not_wait_for_an_event_are_left_alone():
    queue = make_queue([registered(NODE_ADDED, "Fit")])
    queue.add(make_pod("active"), NOW)
    attempt(queue, make_pod("error", priority=1), by=[])
    attempt(queue, make_pod("backoff", priority=1))
    queue.move_all(NODE_ADD, None, None, NOW)
    before = places(queue)
    assert queue.move_all(NODE_ADD, None, None, LATER) == 0
    assert places(queue) == before


# ---------------------------------------------------------------- activation


def test_activation_ignores_backoff_and_events():
    queue = make_queue([registered(NODE_ADDED, "Fit")])
    pods = [make_pod(name) for name in ("parked", "error", "backoff")]
    attempt(queue, pods[2])
    queue.move_all(NODE_ADD, None, None, NOW)
    attempt(queue, pods[1], by=[])
    attempt(queue, pods[0], by=["Taint"])
    assert queue.activate([*pods, make_pod("unknown")], NOW) == 3
    assert places(queue) == dict.fromkeys(["parked", "error", "backoff"], ACTIVE)
    assert queue.activate(pods, NOW) == 0


def test_activating_a_pod_in_flight_spares_it_the_wait_but_nobody_else():
    queue = make_queue()
    pods = [make_pod("wanted"), make_pod("other")]
    flying = []
    for pod in pods:
        queue.add(pod, NOW)
        flying.append(queue.pop(NOW))
    queue.activate([pods[0]], NOW)
    for queued in flying:
        queued.reject(["Fit"])
        queue.add_unschedulable_if_not_present(queued, NOW)
    assert places(queue) == {"wanted": BACKOFF, "other": PARKED}


# ---------------------------------------------------------------- while the pod is being tried


def fail_in_flight(queue, queued, by=("Fit",), pending=(), now=NOW):
    queued.reject(by, pending)
    return queue.add_unschedulable_if_not_present(queued, now)


def in_flight(queue, *names):
    flying = []
    for name in names:
        queue.add(make_pod(name), NOW)
        flying.append(queue.pop(NOW))
    return flying


@pytest.mark.parametrize(
    ("events", "place"),
    [
        pytest.param([], PARKED, id="nothing happened"),
        pytest.param([NODE_ADD], BACKOFF, id="something welcome"),
        pytest.param([NODE_TAINT, NODE_DELETE, NODE_ADD], BACKOFF, id="the last of several"),
        pytest.param([ASSIGNED_POD_DELETE], PARKED, id="of interest to somebody else"),
        pytest.param([UNSCHEDULABLE_TIMEOUT], BACKOFF, id="wildcard"),
    ],
)
def test_what_happened_in_flight_is_put_to_the_rejectors(events, place):
    queue = make_queue([registered(NODE_ADDED, "Fit"), registered(POD_DELETED, "Ports"), registered(NODE_TAINT, "Taint")])  # fmt: skip
    [queued] = in_flight(queue, "pod")
    for event in events:
        queue.move_all(event, None, None, NOW)
    assert fail_in_flight(queue, queued) is place
    assert queue.statistics().in_flight_events == 0


@pytest.mark.parametrize(
    ("answers", "place"),
    [
        ({"Fit"}, BACKOFF),
        ({"Permit"}, ACTIVE),
        ({"Fit", "Permit"}, ACTIVE),
        (set(), PARKED),
    ],
)
def test_a_pending_plugins_welcome_beats_an_earlier_one_of_a_rejector(answers, place):
    registrations = [registered(NODE_ADDED, "Fit", Hint("Fit" in answers)), registered(POD_DELETED, "Permit", Hint("Permit" in answers))]  # fmt: skip
    queue = make_queue(registrations)
    [queued] = in_flight(queue, "pod")
    queue.move_all(NODE_ADD, None, None, NOW)
    queue.move_all(ASSIGNED_POD_DELETE, None, None, NOW)
    assert fail_in_flight(queue, queued, ["Fit"], ["Permit"]) is place


def test_a_pod_sees_just_the_events_since_it_was_popped():
    queue = make_queue([registered(NODE_ADDED, "Fit")])
    [early] = in_flight(queue, "early")
    queue.move_all(NODE_ADD, None, None, NOW)
    [late] = in_flight(queue, "late")
    assert fail_in_flight(queue, late) is PARKED
    assert fail_in_flight(queue, early) is BACKOFF


def test_events_are_kept_for_the_oldest_pod_in_flight_and_no_longer():
    queue = make_queue([registered(NODE_ADDED, "Fit")])
    kept = []
    queue.move_all(NODE_ADD, None, None, NOW)
    kept.append(queue.statistics().in_flight_events)
    in_flight(queue, "first")
    queue.move_all(NODE_ADD, None, None, NOW)
    in_flight(queue, "second")
    queue.move_all(NODE_ADD, None, None, NOW)
    in_flight(queue, "third")
    kept.append(queue.statistics().in_flight_events)
    assert queue.in_flight_events() == {"PodPopped": 3, "NodeAdd": 2}
    for name in ("second", "first", "third"):
        queue.done(name)
        kept.append(queue.statistics().in_flight_events)
    assert kept == [0, 2, 2, 0, 0]
    assert queue.in_flight_events() == {"PodPopped": 0, "NodeAdd": 0}


def test_an_event_that_nobody_waits_for_is_not_kept():
    queue = make_queue([registered(NODE_ADDED, "Fit")])
    in_flight(queue, "pod")
    queue.move_all(NODE_DELETE, None, None, NOW)
    assert queue.statistics().in_flight_events == 0


def test_an_update_in_flight_is_kept_for_the_return():
    event = ClusterEvent(Resource.Pod, Action.UpdatePodLabel)
    queue = make_queue([registered(event, "Affinity", lambda pod, old, new: pod.uid == new.uid)])  # fmt: skip
    changed, other = in_flight(queue, "changed", "other")
    queue.update(changed.pod, make_pod("changed", labels={"a": "b"}), NOW)
    assert fail_in_flight(queue, other, ["Affinity"]) is PARKED
    assert fail_in_flight(queue, changed, ["Affinity"]) is BACKOFF


def test_the_timeout_of_others_counts_for_pods_in_flight():
    queue = make_queue()
    attempt(queue, make_pod("parked"))
    [queued] = in_flight(queue, "pod")
    queue.flush_unschedulable(NOW + 301)
    assert fail_in_flight(queue, queued, now=NOW + 301) is BACKOFF


def test_a_pod_that_missed_events_because_there_were_too_many_is_retried():
    recorder = Recorder()
    flying = InFlight(recorder, ByteBudget(UNLIMITED), max_events=3)
    interest = make_queue([registered(NODE_ADDED, "Fit")])._hints.interest(NODE_ADD)
    slow, quick = QueuedPod(make_pod("slow"), NOW), QueuedPod(make_pod("quick"), NOW)
    flying.add(slow)
    for i in range(3):
        flying.record(interest, None, i)
    flying.add(quick)
    assert [event.new for event in flying.since(slow)] == [0, 1, 2]
    flying.record(interest, None, 3)
    assert flying.since(slow) is None
    assert [event.new for event in flying.since(quick)] == [3]
    assert (flying.event_count, flying.counts["NodeAdd"], recorder.dropped) == (3, 3, 1)
    flying.remove(quick)
    flying.remove(slow)
    assert (flying.event_count, flying.counts["NodeAdd"]) == (0, 0)


def test_events_for_pods_in_flight_have_a_limit_of_bytes():
    """The oldest are dropped; one that is too large is dropped itself."""
    recorder, budget = Recorder(), ByteBudget(10_000)
    flying = InFlight(recorder, budget)
    interest = make_queue([registered(NODE_ADDED, "Fit")])._hints.interest(NODE_ADD)
    first, second, third = (QueuedPod(make_pod(name), NOW) for name in ("a", "b", "c"))
    small, large = "x" * 1000, "x" * 10_000
    flying.add(first)
    flying.record(interest, None, small, memory_of(small))
    flying.add(second)
    flying.record(interest, None, small, memory_of(small))
    assert 8000 < budget.used < 9000
    flying.record(interest, None, small, memory_of(small))
    assert flying.since(first) is None
    assert [event.new for event in flying.since(second)] == [small, small]
    flying.add(third)
    flying.record(interest, None, large, memory_of(large))
    assert (budget.used, flying.event_count, recorder.dropped) == (0, 0, 4)
    assert [flying.since(queued) for queued in (first, second, third)] == [None] * 3
    for queued in (first, second, third):
        flying.remove(queued)
    assert budget.used == 0


def test_the_memory_of_a_template_is_counted_once_while_any_event_has_it():
    budget = ByteBudget(UNLIMITED)
    queue = make_queue([registered(POD_DELETED, "Fit")], in_flight_budget=budget)
    templates = [PodTemplate(spec(), bytes(100_000)) for _ in range(2)]
    queue.add(make_pod("a"), NOW)
    queued = queue.pop(NOW)
    for number in range(10):
        pod = make_pod(f"p{number}", template=templates[number % 2])
        queue.move_all(ASSIGNED_POD_DELETE, pod, None, NOW)
    assert 800_000 < budget.used < 850_000
    queue.done(queued.pod.uid)
    assert budget.used == 0
    kept = [weakref.ref(template) for template in templates]
    del pod, templates
    assert [template() for template in kept] == [None, None]


# ---------------------------------------------------------------- registrations


@pytest.mark.parametrize(
    ("actions", "added"),
    [
        pytest.param([Action.Add], True, id="new nodes only"),
        pytest.param([Action.Add, Action.UpdateNodeLabel], True, id="new nodes and labels"),
        pytest.param([Action.Add | Action.UpdateNodeTaint], False, id="taints in the same event"),
        pytest.param([Action.Add, Action.UpdateNodeTaint], False, id="taints in another event"),
        pytest.param([Action.UpdateNodeLabel], False, id="no new nodes"),
        pytest.param([], False, id="no nodes at all"),
    ],
)
def test_waiting_for_new_nodes_means_waiting_for_taints_as_well(actions, added):
    hint = Hint(False)
    given = [registered(POD_DELETED, "Fit", hint)]
    given += [registered(ClusterEvent(Resource.Node, action), "Fit", hint) for action in actions]  # fmt: skip
    extra = (registered(NODE_TAINT, "Fit"),) if added else ()
    assert with_taint_registrations(given) == (*given, *extra)
