"""The token bucket and growing waits. No event loop."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kube.backoff import Backoff, TokenBucket


def test_a_burst_costs_nothing_then_the_rate_holds():
    bucket = TokenBucket(qps=10, burst=3)
    assert [bucket.take(100.0) for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])


def test_tokens_come_back_with_time_up_to_the_burst():
    bucket = TokenBucket(qps=10, burst=3)
    for _ in range(3):
        bucket.take(100.0)
    assert bucket.take(100.2) == 0
    assert [bucket.take(900.0) for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_a_token_given_back_is_there_for_the_next():
    bucket = TokenBucket(qps=10, burst=1)
    bucket.take(100.0)
    assert bucket.take(100.0) == pytest.approx(0.1)
    bucket.give_back()
    assert bucket.take(100.0) == pytest.approx(0.1)


@given(st.lists(st.floats(0, 0.5), min_size=2, max_size=60))
def test_never_more_than_burst_plus_rate(pauses):
    bucket, now, used = TokenBucket(qps=20, burst=5), 50.0, []
    for pause in pauses:
        now += pause
        used.append(now + bucket.take(now))
    for first in range(len(used)):
        for last in range(first, len(used)):
            allowed = 5 + 20 * (used[last] - used[first])
            assert last - first + 1 <= allowed + 1e-6 or used[first] > used[last]


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_bucket_that_never_fills_is_refused(qps, burst):
    with pytest.raises(ValueError, match="greater than zero"):
        TokenBucket(qps=qps, burst=burst)


def test_waits_grow_to_a_cap_and_start_again():
    backoff = Backoff(np.random.default_rng(1), initial=1, factor=3, cap=10, jitter=0)
    assert [backoff.next() for _ in range(5)] == [1, 3, 9, 10, 10]
    backoff.reset()
    assert backoff.next() == 1


def test_waits_are_jittered():
    backoff = Backoff(np.random.default_rng(1), initial=1, factor=1, cap=1, jitter=0.5)
    waits = [backoff.next() for _ in range(100)]
    assert 1 <= min(waits) < 1.05
    assert 1.45 < max(waits) < 1.5
