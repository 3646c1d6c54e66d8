"""How many calls an extender's server is found to take, on simulated servers."""

import heapq

import pytest

from app.extender.config import Verb
from app.extender.limit import FIRST_OF_BINDERS, RESERVE, ConcurrencyLimit, Places


class Bucket:
    """Answers after client-go's default limiter (5 requests a second, 10 at once), in the order of the calls."""

    def __init__(self, requests=1):
        self.requests, self.tokens, self.at = requests, 10.0, 0.0

    def __call__(self, now):
        self.tokens = min(10.0, self.tokens + 5 * max(0.0, now - self.at))
        begins = max(now, self.at)
        self.tokens -= self.requests
        wait = max(0.0, -self.tokens / 5)
        if wait:
            begins, self.tokens = begins + wait, 0.0
        self.at = begins
        return begins - now + 0.005


def run(serve, seconds, limit=None, timeout=5.0):
    """As many calls as the limit allows all the time; (limits over time, (end, seconds) of each call)."""
    limit = limit or ConcurrencyLimit(16, timeout=timeout)
    now, flying, number, limits, calls = 0.0, [], 0, [], []
    while now < seconds:
        while limit.left(now) > 0:
            limit.used += 1
            took = min(serve(now), timeout)
            number += 1
            heapq.heappush(flying, (now + took, number, limit.begin(Verb.FILTER, now), took))
        now, _, call, took = heapq.heappop(flying)
        limit.end(call, now, answered=took < timeout)
        limit.used -= 1
        limits.append(limit.limit)
        calls.append((now, took))
    return limits, calls


def test_an_extender_that_scales_is_called_as_often_as_allowed():
    limits, calls = run(lambda _now: 0.01, 5)
    assert min(limits) == 16
    assert len(calls) == pytest.approx(5 / 0.01 * 16, rel=0.01)


@pytest.mark.parametrize("requests", [1, 2])
def test_a_client_limited_to_five_requests_a_second_is_not_swamped(requests):
    limits, calls = run(Bucket(requests), 60)
    late = [took for end, took in calls if end > 10]
    assert max(late) < 2.5
    assert len(calls) >= (5 * 60) / requests
    assert max(limits[-20:]) <= 6


def test_no_call_is_late_where_one_call_is_served_after_the_other():
    free = [0.0]

    def serial(now):
        free[0] = max(now, free[0]) + 0.3
        return free[0] - now

    _, calls = run(serial, 60)
    assert max(took for end, took in calls if end > 10) < 2
    assert len(calls) >= 0.98 * 60 / 0.3


def test_an_extender_that_becomes_slower_but_scales_is_called_as_often_again():
    limits, _ = run(lambda now: 0.05 if now < 10 else 0.3, 60)
    assert limits[-1] == 16


def test_a_fast_extender_that_becomes_limited_is_found():
    bucket = Bucket()
    _, calls = run(lambda now: 0.01 if now < 20 else bucket(now), 60)
    assert max(took for end, took in calls if end > 30) < 2.5


def test_it_gets_slower_and_slower():
    free = [0.0]

    def serial(now):
        free[0] = max(now, free[0]) + 0.01 * (1 + now)
        return free[0] - now

    _, calls = run(serial, 100)
    assert max(took for end, took in calls if end > 10) < 5


def test_what_is_configured_is_not_changed():
    limits, _ = run(Bucket(), 20, ConcurrencyLimit(16, fixed=3))
    assert set(limits) == {3}


def test_nothing_begins_while_nobody_is_answered():
    limit = ConcurrencyLimit(16, timeout=4.0)
    limit.begin(Verb.FILTER, 0.0)
    assert limit.left(0.9) == 16
    assert limit.left(1.1) == 0


def test_at_a_limit_of_one_a_binding_begins_beside_an_attempt():
    """As with kube-scheduler, whose bindings do not wait for its attempts, if both end in time one after the other."""
    for seconds, both in ((0.2, True), (3.0, False)):
        places = Places(ConcurrencyLimit(1, timeout=5.0))
        for verb in (Verb.FILTER, Verb.BIND):
            places.limit.end(places.limit.begin(verb, 0.0), seconds, answered=True)
        places.take()
        assert (places.left(9.0) > 0, places.take_outside(9.0)) == (False, both)
        if both:
            assert (places.left(9.0) > 0, places.take_outside(9.0)) == (False, False)
            places.give_back(9.0)
            assert (places.left(9.0), places.take_outside(9.0)) == (1, False)


def test_what_is_configured_holds_for_bindings_and_attempts_together():
    places = Places(ConcurrencyLimit(16, fixed=1, timeout=5.0))
    places.take()
    assert not places.take_outside(0.0)
    places.give_back(0.0)
    assert places.take_outside(0.0)
    assert places.left(0.0) == 0


def test_where_an_extender_binds_the_limit_is_small_until_a_reserve_would_be_used_up():
    limits, calls = run(lambda _now: 0.01, 5, ConcurrencyLimit(16, binds=True))
    assert set(limits[: RESERVE - 1]) == {FIRST_OF_BINDERS}
    assert limits[-1] == 16
    assert len(calls) == pytest.approx(5 / 0.01 * 16, rel=0.05)


def test_a_preemption_does_not_delay_the_growth():
    limit = ConcurrencyLimit(16, binds=True)
    for verb in (Verb.PREEMPT, *[Verb.FILTER] * 40):
        limit.used = 2
        limit.end(limit.begin(verb, 0.0), 0.01, answered=True)
    assert limit.limit > FIRST_OF_BINDERS


def test_no_attempt_begins_before_a_binding_that_waits_or_is_announced():
    places = Places(ConcurrencyLimit(1, timeout=5.0))
    places.announce("uid")
    assert places.left(0.0) <= 0
    places.waiting["call"] = lambda: None
    places.arrived("uid", 0.0)
    assert not places.waiting
    assert places.left(0.0) == 1  # beside the binding that has begun
    places.waiting["other"] = lambda: None
    assert places.left(0.0) <= 0
