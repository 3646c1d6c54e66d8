"""Backoff and the flushes: how long, in which order, never early, on which second."""

import itertools
import math

import pytest

from app.model.cluster_event import NODE_ADD
from app.model.status import unresolvable
from app.state.queue.backoff_queue import BackoffQueue, RetryTimes
from app.state.queue.queued_pod import Place, QueuedPod
from tests.core.state.queue_kit import (
    NODE_ADDED,
    NOW,
    Recorder,
    attempt,
    fail_next,
    make_pod,
    make_queue,
    pop_all,
    priority_sort,
    registered,
)

_closed = unresolvable("closed")
ACTIVE, BACKOFF, ERROR = Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF
PARKED, GATED = Place.UNSCHEDULABLE, Place.GATED


def backoff_queue(initial_seconds, max_seconds):
    return BackoffQueue(RetryTimes(initial_seconds, max_seconds), priority_sort, itertools.count(1))


def failed(*, rejections=0, errors=0, at=NOW) -> QueuedPod:
    return QueuedPod(
        make_pod(), at, unschedulable_count=rejections, consecutive_errors_count=errors
    )


@pytest.mark.parametrize(
    ("initial", "maximum", "durations"),
    [
        (1, 10, [0, 1, 2, 4, 8, 10, 10, 10]),
        (1, 8, [0, 1, 2, 4, 8, 8]),
        (3, 10, [0, 3, 6, 10, 10]),
        (10, 10, [0, 10, 10]),
        (20, 10, [0, 10, 10]),
        (0.5, 10, [0, 0.5, 1, 2, 4, 8, 10]),
        (1, 0, [0, 0, 0]),
    ],
)
def test_the_backoff_doubles_up_to_its_maximum(initial, maximum, durations):
    backoff = backoff_queue(initial, maximum)
    assert [backoff.duration(attempts) for attempts in range(len(durations))] == durations


def test_the_backoff_stays_at_its_maximum_for_ever():
    assert backoff_queue(1, 10).duration(10_000) == 10


@pytest.mark.parametrize(
    ("queued", "expiration"),
    [
        pytest.param(failed(), 0, id="never failed"),
        pytest.param(failed(rejections=1, at=NOW + 0.3), NOW + 1, id="down to the second"),
        pytest.param(failed(rejections=1, at=NOW + 0.999), NOW + 1, id="not rounded"),
        pytest.param(failed(rejections=3, at=NOW), NOW + 4, id="rejections"),
        pytest.param(failed(rejections=5, errors=2, at=NOW), NOW + 2, id="errors come first"),
        pytest.param(failed(errors=9, at=NOW), NOW + 10, id="maximum"),
    ],
)
def test_the_end_of_the_backoff_is_a_whole_second(queued, expiration):
    assert backoff_queue(1, 10).expiration(queued) == expiration


def test_the_end_is_worked_out_once_per_attempt():
    backoff, queued = backoff_queue(1, 10), failed(rejections=1)
    assert backoff.expiration(queued) == NOW + 1
    queued.timestamp += 100
    assert backoff.expiration(queued) == NOW + 1


@pytest.mark.parametrize(
    ("now", "waits"),
    [(NOW + 1, True), (NOW + 1.999, True), (NOW + 2, False), (NOW + 2.5, False)],
)
def test_a_pod_backs_off_through_the_second_in_which_its_backoff_ends(now, waits):
    backoff, queued = backoff_queue(1, 10), failed(rejections=1, at=NOW + 0.7)
    assert backoff.is_backing_off(queued, now) is waits
    assert backoff.release_time(queued) == NOW + 2


def test_without_a_maximum_nobody_backs_off():
    assert not backoff_queue(1, 0).is_backing_off(failed(rejections=3), NOW)


# ---------------------------------------------------------------- in the queue


def waking_queue(**options):
    return make_queue([registered(NODE_ADDED, "Fit")], **options)


def park_and_wake(queue, name, *, priority=0, now=NOW):
    attempt(queue, make_pod(name, priority=priority), now=now)
    queue.move_all(NODE_ADD, None, "node", now)


@pytest.mark.parametrize(
    ("after", "place"),
    [(0, BACKOFF), (1.9, BACKOFF), (2, ACTIVE), (60, ACTIVE)],
)
def test_a_woken_pod_backs_off_only_if_its_backoff_is_not_over_yet(after, place):
    queue = waking_queue()
    attempt(queue, make_pod())
    assert queue.move_all(NODE_ADD, None, "node", NOW + after) == 1
    assert queue.where("pod") is place


def test_the_flush_takes_just_the_pods_whose_backoff_is_over():
    queue = make_queue()
    attempt(queue, make_pod("error"), by=[], now=NOW + 0.5)
    assert queue.next_flush_time(NOW + 0.5) == NOW + 2
    assert queue.flush_backoff(NOW + 1.999) == 0
    assert queue.flush_backoff(NOW + 2) == 1
    assert queue.where("error") is ACTIVE
    assert queue.next_flush_time(NOW + 2) is None


def test_both_backoff_queues_are_flushed():
    queue = waking_queue()
    attempt(queue, make_pod("error"), by=[])
    park_and_wake(queue, "rejected")
    assert (queue.where("error"), queue.where("rejected")) == (ERROR, BACKOFF)
    assert queue.flush_backoff(NOW + 2) == 2
    assert queue.count(ACTIVE) == 2


def test_the_flush_time_is_that_of_the_first_pod_and_never_in_the_past():
    queue = waking_queue()
    attempt(queue, make_pod("parked"), by=["Taint"], now=NOW)
    assert queue.next_flush_time(NOW) == math.floor((NOW + 300) / 30) * 30 + 30
    attempt(queue, make_pod("error"), by=[], now=NOW + 5)
    assert queue.next_flush_time(NOW + 5) == NOW + 7
    park_and_wake(queue, "rejected", now=NOW)
    assert queue.next_flush_time(NOW) == NOW + 2
    assert queue.next_flush_time(NOW + 100) == NOW + 100


def test_an_idle_scheduler_takes_rejected_pods_before_their_backoff_is_over():
    recorder = Recorder()
    queue = waking_queue(recorder=recorder)
    park_and_wake(queue, "rejected")
    assert queue.ready
    assert queue.pop(NOW).pod.name == "rejected"
    assert recorder.entered[-1] == ("active", "PopFromBackoffQ")
    assert queue.pop(NOW) is None


def test_an_idle_scheduler_leaves_pods_that_met_an_error_alone():
    queue = make_queue()
    attempt(queue, make_pod(), by=[])
    assert not queue.ready
    assert queue.pop(NOW + 100) is None


def test_active_pods_are_taken_before_any_that_back_off():
    queue = waking_queue()
    park_and_wake(queue, "rejected", priority=100)
    queue.add(make_pod("fresh"), NOW)
    assert pop_all(queue) == ["fresh", "rejected"]


def test_pods_that_back_off_come_by_second_and_then_by_queue_order():
    queue = waking_queue()
    for name, priority, after in [("late", 9, 1), ("low", 0, 0.9), ("first", 0, 0.1), ("high", 5, 0.8)]:  # fmt: skip
        attempt(queue, make_pod(name, priority=priority), now=NOW + after)
    queue.move_all(NODE_ADD, None, "node", NOW + 1)
    assert pop_all(queue, NOW + 1) == ["high", "first", "low", "late"]


def test_preenqueue_is_not_asked_again_when_a_pod_comes_out_of_backoff():
    asked = []
    queue = waking_queue(pre_enqueue=lambda pod: asked.append(pod.name) or ())
    park_and_wake(queue, "rejected")
    assert asked == ["rejected", "rejected"]
    queue.flush_backoff(NOW + 2)
    assert (queue.where("rejected"), len(asked)) == (ACTIVE, 2)


def test_every_further_rejection_backs_off_longer():
    queue = waking_queue()
    park_and_wake(queue, "stubborn")
    backoffs = [queue.get("stubborn").backoff_expiration - NOW]
    for at in (100, 200, 300, 400, 500):
        queued = fail_next(queue, now=NOW + at)
        queue.move_all(NODE_ADD, None, "node", NOW + at)
        backoffs.append(queued.backoff_expiration - NOW - at)
    assert backoffs == [1, 2, 4, 8, 10, 10]


# ---------------------------------------------------------------- waiting too long


@pytest.mark.parametrize(("after", "moved"), [(299, 0), (300, 0), (300.001, 1), (900, 1)])
def test_a_pod_that_waits_too_long_is_tried_again(after, moved):
    recorder = Recorder()
    queue = make_queue(recorder=recorder)
    queued = attempt(queue, make_pod())
    assert queue.flush_unschedulable(NOW + after) == moved
    assert queued.was_flushed_from_unschedulable is bool(moved)
    assert queued.place is (ACTIVE if moved else PARKED)
    if moved:
        assert recorder.entered[-1] == ("active", "UnschedulableTimeout")


def test_the_flag_of_the_timeout_is_cleared_by_the_next_failure():
    queue = make_queue()
    queued = attempt(queue, make_pod())
    queue.flush_unschedulable(NOW + 301)
    fail_next(queue, now=NOW + 302)
    assert not queued.was_flushed_from_unschedulable
    assert queue.flush_unschedulable(NOW + 600) == 0
    assert queue.flush_unschedulable(NOW + 603) == 1


def test_a_pod_that_waited_too_long_may_still_back_off():
    queue = make_queue(times=RetryTimes(initial_backoff=1000, max_backoff=1000))
    queued = attempt(queue, make_pod())
    queue.flush_unschedulable(NOW + 301)
    assert queued.place is BACKOFF


def test_gated_pods_wait_without_end():
    queue = make_queue(pre_enqueue=lambda pod: [("Gate", lambda pod: _closed)])
    queue.add(make_pod(), NOW)
    assert queue.next_flush_time(NOW) is None
    assert queue.flush_unschedulable(NOW + 10_000) == 0
    assert queue.where("pod") is GATED


def test_overdue_pods_are_gathered_in_steps_of_half_a_minute():
    queue = make_queue()
    attempt(queue, make_pod(), now=NOW + 7)
    at = queue.next_flush_time(NOW + 7)
    assert at % 30 == 0
    assert 307 < at - NOW <= 337
    assert queue.flush_unschedulable(at) == 1


def test_a_clock_set_back_does_not_hide_older_pods():
    queue = make_queue()
    attempt(queue, make_pod("ahead"), now=NOW + 5000)
    attempt(queue, make_pod("behind"), now=NOW)
    assert queue.flush_unschedulable(NOW + 301) == 1
    assert (queue.where("ahead"), queue.where("behind")) == (PARKED, ACTIVE)
