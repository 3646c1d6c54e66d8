"""Events that concern very many waiting pods are dealt with in goes of bounded size, and nobody is missed."""

import tracemalloc

import pytest

from app.model.budget import ByteBudget
from app.model.cluster_event import NODE_ADD
from app.model.pod import PodTemplate
from app.model.status import SUCCESS, unresolvable
from app.state.queue.queued_pod import Place
from app.state.queue.scheduling_queue import MAX_PENDING_EVENTS
from app.state.queue.unschedulable_pods import MAX_STEP
from tests.core.state.queue_kit import (
    NODE_ADDED,
    NOW,
    PROFILE,
    Recorder,
    attempt,
    fail_next,
    make_pod,
    make_queue,
    pop_all,
    registered,
    spec,
)

LATER = NOW + 60
MANY = 4 * MAX_STEP + 7


class Asked:
    """A hint that says yes to the templates of these priorities, and counts how often it is asked."""

    def __init__(self, *priorities: int) -> None:
        self.priorities = priorities
        self.times = 0

    def __call__(self, pod, old, new):
        self.times += 1
        return not self.priorities or pod.priority in self.priorities


def waiting(queue, templates, count=MANY, prefix="p"):
    """So many pods of these templates, dealt in turn, all rejected."""
    for number in range(count):
        template = templates[number % len(templates)]
        queue.add(make_pod(f"{prefix}{number}", template=template), NOW)
    for _ in range(count):
        fail_next(queue)


def templates(count):
    return [PodTemplate(spec(priority=number)) for number in range(count)]


def goes(queue):
    """How many pods each further go wakes, until there is nothing left to do."""
    out = []
    while queue.next_flush_time(LATER) == LATER:
        out.append(queue.continue_waking())
    return out


def queue_with(hint):
    return make_queue([registered(NODE_ADDED, "Fit", hint, template_only=True)])


def test_siblings_are_asked_about_once_and_moved_bit_by_bit():
    hint = Asked()
    queue = queue_with(hint)
    waiting(queue, templates(1))
    first = queue.move_all(NODE_ADD, None, "node", LATER)
    further = goes(queue)
    assert hint.times == 1
    assert max(first, *further) <= MAX_STEP
    assert first + sum(further) == queue.count(Place.ACTIVE) == MANY
    assert queue.next_flush_time(LATER) is None


def test_hints_about_many_kinds_of_pods_are_asked_bit_by_bit():
    hint = Asked(3, MANY - 1)
    queue = queue_with(hint)
    waiting(queue, templates(MANY))
    queue.move_all(NODE_ADD, None, "node", LATER)
    assert hint.times == MAX_STEP
    before = hint.times
    while queue.next_flush_time(LATER) == LATER:
        queue.continue_waking()
        assert hint.times - before <= MAX_STEP
        before = hint.times
    assert hint.times == MANY
    assert sorted(pop_all(queue, LATER)) == sorted(["p3", f"p{MANY - 1}"])


def test_hints_about_the_pods_of_many_pod_groups_are_asked_bit_by_bit():
    hint = Asked(-1)
    queue = make_queue([registered(NODE_ADDED, "Fit", hint)])
    (template,) = templates(1)
    for number in range(MANY):
        pod = make_pod(f"p{number}", template=template, pod_group_name=f"group-{number // 4}")
        queue.add(pod, NOW)
        fail_next(queue)
    queue.move_all(NODE_ADD, None, "node", LATER)
    asked = [hint.times]
    while queue.next_flush_time(LATER) == LATER:
        queue.continue_waking()
        asked.append(hint.times - sum(asked))
    assert max(asked) <= 4 * MAX_STEP
    assert sum(asked) == MANY


def test_those_that_are_tried_first_are_woken_first():
    queue = queue_with(Asked())
    for template in templates(10):
        waiting(queue, [template], MANY // 10, prefix=f"p{template.priority}-")
    queue.move_all(NODE_ADD, None, "node", LATER)
    popped = []
    while queue.next_flush_time(LATER) == LATER:
        queue.continue_waking()
        while queue.count(Place.ACTIVE):
            popped.append(queue.pop(LATER).pod.priority)
    assert popped == sorted(popped, reverse=True)
    assert len(popped) == MANY // 10 * 10


def test_pods_that_left_or_were_tried_meanwhile_are_left_alone():
    queue = queue_with(Asked())
    waiting(queue, templates(1))
    queue.move_all(NODE_ADD, None, "node", LATER)
    waits = [entry.pod for entry in queue.dump() if entry.place is Place.UNSCHEDULABLE]
    gone, tried, active = waits[0], waits[1], waits[2]
    queue.delete(gone)
    queue.activate([tried, active], LATER)
    taken = None
    while taken is None or taken.pod is not tried:
        taken = queue.pop(LATER + 1)
        if taken.pod is not tried:
            queue.done(taken.pod.uid)
    taken.reject(("Fit",))
    queue.add_unschedulable_if_not_present(taken, LATER + 1)
    goes(queue)
    assert queue.where(tried.uid) is Place.UNSCHEDULABLE
    assert queue.where(gone.uid) is Place.OUTSIDE
    assert queue.where(active.uid) is Place.ACTIVE


def test_events_that_come_meanwhile_take_their_turn():
    hint = Asked(1)
    queue = queue_with(hint)
    waiting(queue, templates(2))
    assert queue.move_all(NODE_ADD, None, "first", LATER) < MAX_STEP
    hint.priorities = ()
    assert queue.move_all(NODE_ADD, None, "second", LATER) == 0
    goes(queue)
    assert queue.count(Place.ACTIVE) == MANY


class Gate:
    """A PreEnqueue plugin that keeps everybody out while it is closed."""

    closed = True

    def __call__(self, _pod):
        return unresolvable("closed") if self.closed else SUCCESS


def test_events_that_are_not_dealt_with_have_a_limit_of_bytes():
    budget, recorder = ByteBudget(50_000), Recorder()
    registrations = [registered(NODE_ADDED, "Fit", Asked(-1), template_only=True)]
    queue = make_queue(registrations, recorder=recorder, pending_budget=budget)
    waiting(queue, templates(MANY))
    for _ in range(20):
        queue.move_all(NODE_ADD, None, "n" * 1000, LATER)
        assert budget.used <= budget.limit
    assert 0 < recorder.dropped < 21
    goes(queue)
    assert budget.used == 0
    assert queue.count(Place.ACTIVE) == MANY


def test_events_that_nobody_deals_with_do_not_pile_up():
    """As on a standby whose event loop is busy: then all pods that wait are tried again instead, gated ones too."""
    hint, gate, recorder = Asked(-1), Gate(), Recorder()
    registrations = [
        registered(NODE_ADDED, plugin, hint, template_only=True) for plugin in ("Fit", "Gate")
    ]
    queue = make_queue(
        registrations,
        pre_enqueue=lambda pod: [("Gate", gate)] if pod.name.startswith("g") else (),
        recorder=recorder,
    )
    waiting(queue, templates(MANY))
    for number, template in enumerate(templates(MAX_STEP)):
        queue.add(make_pod(f"g{number}", template=template), NOW)
    queue.move_all(NODE_ADD, None, "node", LATER)
    for number in range(4 * MAX_PENDING_EVENTS):
        assert queue.move_all(NODE_ADD, None, number, LATER) == 0
        assert len(queue._pending_events) <= MAX_PENDING_EVENTS
    assert recorder.dropped > 3 * MAX_PENDING_EVENTS
    assert (
        recorder.dropped + len(queue._pending_events) == 4 * MAX_PENDING_EVENTS + 2
    )  # the last wakes all
    gate.closed = False
    goes(queue)
    assert queue.count(Place.ACTIVE) == MANY + MAX_STEP


def test_an_event_that_waits_for_its_turn_holds_no_list_of_pods():
    queue = queue_with(Asked(-1))
    waiting(queue, templates(MANY))
    queue.move_all(NODE_ADD, None, "node", LATER)
    tracemalloc.start()
    for _ in range(100):
        queue.move_all(NODE_ADD, None, "node", LATER)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 100 * 2000 < 100 * 8 * MANY


def test_a_pod_that_begins_to_wait_before_an_event_has_its_turn_is_judged_by_it():
    hint = Asked(MANY + 1)
    queue = queue_with(hint)
    waiting(queue, templates(MANY))
    queue.move_all(NODE_ADD, None, "first", LATER)
    queue.move_all(NODE_ADD, None, "second", LATER + 2)
    attempt(queue, make_pod("late", template=PodTemplate(spec(priority=MANY + 1))), now=LATER + 1)
    assert queue.count(Place.UNSCHEDULABLE) == MANY + 1
    goes(queue)
    assert pop_all(queue, LATER + 60) == ["late"]


@pytest.mark.parametrize("judged", [False, True])
def test_a_pod_that_changes_its_template_meanwhile_is_not_missed(judged):
    """Whether the event that is being dealt with has passed its old siblings or not."""
    hint = Asked(MANY + 1)
    queue = queue_with(hint)
    waiting(queue, templates(MANY))
    queue.move_all(NODE_ADD, None, "node", LATER)
    old = queue.get("p0" if judged else f"p{MANY - 1}").pod
    changed = make_pod(old.name, template=PodTemplate(spec(priority=MANY + 1)))
    queue.update(old, changed, LATER)
    goes(queue)
    assert pop_all(queue, LATER + 60) == [old.name]


def test_overdue_pods_are_woken_bit_by_bit():
    queue = make_queue()
    waiting(queue, templates(1))
    overdue, woken = NOW + 360, []
    while queue.next_flush_time(overdue) == overdue:
        woken.append(queue.flush_unschedulable(overdue))
    assert max(woken) == MAX_STEP
    assert sum(woken) == MANY


def test_backoffs_end_bit_by_bit():
    queue = make_queue([registered(NODE_ADDED, "Fit")], hints={PROFILE: ()})
    for number in range(MANY):
        queue.add(make_pod(f"p{number}"), NOW)
    for _ in range(MANY):
        fail_next(queue, by=())
    ended, over = [], NOW + 5
    while queue.next_flush_time(over) == over:
        ended.append(queue.flush_backoff(over))
    assert max(ended) == MAX_STEP
    assert sum(ended) == MANY


def test_an_event_for_few_of_many_siblings_is_asked_about_these_only():
    hint = Asked()
    queue = make_queue(
        [registered(NODE_ADDED, "Fit", hint, narrow=lambda *_: ["p3", "p7", "gone"])]
    )
    waiting(queue, templates(1), count=10)
    queue.move_all(NODE_ADD, None, "node", LATER)
    assert sorted(pop_all(queue, LATER)) == ["p3", "p7"]
    assert hint.times == 2


def test_siblings_are_woken_in_the_order_in_which_they_are_named():
    named = [f"p{number}" for number in range(20)]
    registration = registered(NODE_ADDED, "Fit", Asked(), narrow=lambda *_: named)
    queue = make_queue([registration])
    waiting(queue, templates(1), count=20)
    queue.move_all(NODE_ADD, None, "node", LATER)
    assert pop_all(queue, LATER) == named


def test_siblings_whom_any_registration_does_not_narrow_are_all_asked_about():
    nobody, anybody = Asked(99), Asked()
    queue = make_queue(
        [
            registered(NODE_ADDED, "Fit", nobody, narrow=lambda *_: []),
            registered(NODE_ADDED, "Fit", anybody),
        ]
    )
    waiting(queue, templates(1), count=3)
    queue.move_all(NODE_ADD, None, "node", LATER)
    assert len(pop_all(queue, LATER)) == 3
    assert anybody.times == 3


def test_a_registration_may_know_no_limits():
    def broken(*_):
        raise RuntimeError("broken")

    for narrow in (lambda *_: None, broken):
        queue = make_queue([registered(NODE_ADDED, "Fit", Asked(), narrow=narrow)])
        waiting(queue, templates(1), count=3)
        queue.move_all(NODE_ADD, None, "node", LATER)
        assert len(pop_all(queue, LATER)) == 3
