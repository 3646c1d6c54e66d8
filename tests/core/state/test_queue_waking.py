"""Events that concern very many waiting pods are dealt with in goes of bounded size, and nobody is missed."""

from app.model.cluster_event import NODE_ADD
from app.model.pod import PodTemplate
from app.state.queue.hints import HintRegistration
from app.state.queue.queued_pod import Place
from app.state.queue.waking import ONE_GO
from tests.core.state.queue_kit import (
    NODE_ADDED,
    NOW,
    PROFILE,
    fail_next,
    make_pod,
    make_queue,
    pop_all,
    spec,
)

LATER = NOW + 60
MANY = 4 * ONE_GO + 7


class Asked:
    """A hint that says yes to the templates of these priorities, and counts how often it is asked."""

    def __init__(self, *priorities: int) -> None:
        self.priorities = priorities
        self.times = 0

    def __call__(self, pod, old, new):
        self.times += 1
        return not self.priorities or pod.priority in self.priorities


def waiting(queue, templates, count=MANY, prefix="p"):
    """So many pods of these templates, dealt in turn, all turned down."""
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
    return make_queue([HintRegistration(NODE_ADDED, "Fit", hint, template_only=True)])


def test_siblings_are_asked_about_once_and_moved_bit_by_bit():
    hint = Asked()
    queue = queue_with(hint)
    waiting(queue, templates(1))
    first = queue.move_all(NODE_ADD, None, "node", LATER)
    further = goes(queue)
    assert hint.times == 1
    assert max(first, *further) <= ONE_GO
    assert first + sum(further) == queue.count(Place.ACTIVE) == MANY
    assert queue.next_flush_time(LATER) is None


def test_hints_about_many_kinds_of_pods_are_asked_bit_by_bit():
    hint = Asked(3, MANY - 1)
    queue = queue_with(hint)
    waiting(queue, templates(MANY))
    queue.move_all(NODE_ADD, None, "node", LATER)
    assert hint.times == ONE_GO
    before = hint.times
    while queue.next_flush_time(LATER) == LATER:
        queue.continue_waking()
        assert hint.times - before <= ONE_GO
        before = hint.times
    assert hint.times == MANY
    assert sorted(pop_all(queue, LATER)) == sorted(["p3", f"p{MANY - 1}"])


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
    assert queue.move_all(NODE_ADD, None, "first", LATER) < ONE_GO
    hint.priorities = ()
    assert queue.move_all(NODE_ADD, None, "second", LATER) == 0
    goes(queue)
    assert queue.count(Place.ACTIVE) == MANY


def test_overdue_pods_are_woken_bit_by_bit():
    queue = make_queue()
    waiting(queue, templates(1))
    overdue, woken = NOW + 360, []
    while queue.next_flush_time(overdue) == overdue:
        woken.append(queue.flush_unschedulable(overdue))
    assert max(woken) == ONE_GO
    assert sum(woken) == MANY


def test_backoffs_end_bit_by_bit():
    queue = make_queue([HintRegistration(NODE_ADDED, "Fit")], hints={PROFILE: ()})
    for number in range(MANY):
        queue.add(make_pod(f"p{number}"), NOW)
    for _ in range(MANY):
        fail_next(queue, by=())
    ended, over = [], NOW + 5
    while queue.next_flush_time(over) == over:
        ended.append(queue.flush_backoff(over))
    assert max(ended) == ONE_GO
    assert sum(ended) == MANY


def test_an_event_for_few_of_many_siblings_is_asked_about_these_only():
    hint = Asked()
    queue = make_queue(
        [HintRegistration(NODE_ADDED, "Fit", hint, narrow=lambda *_: ["p3", "p7", "gone"])]
    )
    waiting(queue, templates(1), count=10)
    queue.move_all(NODE_ADD, None, "node", LATER)
    assert sorted(pop_all(queue, LATER)) == ["p3", "p7"]
    assert hint.times == 2


def test_siblings_whom_any_registration_does_not_narrow_are_all_asked_about():
    nobody, anybody = Asked(99), Asked()
    queue = make_queue(
        [
            HintRegistration(NODE_ADDED, "Fit", nobody, narrow=lambda *_: []),
            HintRegistration(NODE_ADDED, "Fit", anybody),
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
        queue = make_queue([HintRegistration(NODE_ADDED, "Fit", Asked(), narrow=narrow)])
        waiting(queue, templates(1), count=3)
        queue.move_all(NODE_ADD, None, "node", LATER)
        assert len(pop_all(queue, LATER)) == 3
