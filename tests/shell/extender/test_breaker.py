"""The breaker as a state machine; time is an argument."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.extender.breaker import Admission, Breaker, State
from app.extender.config import BreakerSettings

CALL, PROBE, HELD_BACK = Admission.CALL, Admission.PROBE, Admission.HELD_BACK


def breaker(**settings):
    return Breaker(BreakerSettings(**settings))


def opened(now=0.0, **settings):
    made = breaker(**settings)
    for _ in range(3):
        assert made.admit(now) is CALL
        made.failed(CALL, now, now)
    assert made.state is State.OPEN
    return made


def test_failures_in_a_row_open_it():
    made = breaker()
    for _ in range(2):
        made.failed(CALL, 0.0, 0.0)
    assert made.state is State.CLOSED
    made.failed(CALL, 0.0, 0.0)
    assert made.state is State.OPEN


def test_a_success_in_between_starts_the_count_anew():
    made = breaker()
    for _ in range(9):
        made.failed(CALL, 0.0, 0.0)
        made.failed(CALL, 0.0, 0.0)
        made.succeeded(0.0)
    assert made.state is State.CLOSED


def test_failures_of_calls_that_began_before_one_that_was_answered():
    made = breaker()
    made.succeeded(2.0)
    for began in (0.0, 1.0, 1.9, 2.0, 3.0):
        made.failed(CALL, began, 5.0)
    assert made.state is State.CLOSED
    made.succeeded(1.0)
    for began in (1.5, 2.5, 3.0, 3.5):
        made.failed(CALL, began, 6.0)
    assert made.state is State.OPEN


def test_open_it_holds_calls_back_until_the_pause_is_over():
    made = opened(now=100.0)
    assert made.admit(104.9) is HELD_BACK
    assert made.admit(105.0) is PROBE
    assert made.state is State.HALF_OPEN


def test_one_probe_at_a_time():
    made = opened()
    assert made.admit(5.0) is PROBE
    assert made.admit(500.0) is HELD_BACK


def test_a_probe_that_succeeds_closes_it():
    made = opened()
    made.admit(5.0)
    made.succeeded(0.0)
    assert made.state is State.CLOSED
    assert made.admit(5.0) is CALL


def test_each_probe_that_fails_doubles_the_pause_up_to_a_limit():
    made, now, pauses = opened(), 0.0, []
    for _ in range(6):
        began = now
        while made.admit(now) is not PROBE:
            now += 1.0
        pauses.append(now - began)
        made.failed(PROBE, now, now)
    assert pauses == [5, 10, 20, 40, 60, 60]


def test_after_recovery_the_pause_is_short_again():
    made = opened()
    made.admit(5.0)
    made.failed(PROBE, 5.0, 5.0)
    made.succeeded(0.0)
    for _ in range(3):
        made.failed(CALL, 100.0, 100.0)
    assert made.admit(105.0) is PROBE


@pytest.mark.parametrize("half", [False, True], ids=["open", "half-open"])
def test_calls_from_before_it_opened(half):
    made = opened()
    if half:
        made.admit(5.0)
    state = made.state
    made.failed(CALL, 5.0, 5.0)
    made.abandoned(CALL, 5.0)
    assert made.state is state
    made.succeeded(0.0)
    assert made.state is State.CLOSED


@pytest.mark.parametrize("ending", ["failed", "abandoned"])
def test_a_probe_that_an_answer_to_an_earlier_call_overtakes(ending):
    made = opened()
    assert made.admit(5.0) is PROBE
    made.succeeded(0.0)
    if ending == "failed":
        made.failed(PROBE, 5.0, 6.0)
    else:
        made.abandoned(PROBE, 6.0)
    assert made.state is State.CLOSED


def test_a_probe_that_was_given_up_leaves_the_next_call_to_probe():
    made = opened()
    made.admit(5.0)
    made.abandoned(PROBE, 6.0)
    assert made.state is State.OPEN
    assert made.admit(6.0) is PROBE


def test_switched_off():
    made = breaker(failures=0)
    for _ in range(99):
        made.failed(made.admit(0.0), 0.0, 0.0)
    assert made.state is State.CLOSED


@given(
    st.lists(
        st.tuples(st.floats(0, 30), st.sampled_from(["succeeded", "failed", "abandoned"])),
        max_size=60,
    )
)
def test_never_more_than_one_probe_and_always_one_in_the_end(steps):
    made, now, in_flight = breaker(), 0.0, []
    for pause, ending in steps:
        now += pause
        admission = made.admit(now)
        if admission is not HELD_BACK:
            in_flight.append((admission, now))
        assert [each for each, _ in in_flight].count(PROBE) <= 1
        if in_flight and ending == "succeeded":
            made.succeeded(in_flight.pop(0)[1])
            if made.state is State.CLOSED:
                in_flight = [(CALL, began) for _, began in in_flight]
        elif in_flight and ending == "failed":
            made.failed(*in_flight.pop(0), now)
        elif in_flight:
            made.abandoned(in_flight.pop(0)[0], now)
    for admission, _ in in_flight:
        made.abandoned(admission, now)
    assert made.admit(now + 61.0) is not HELD_BACK
