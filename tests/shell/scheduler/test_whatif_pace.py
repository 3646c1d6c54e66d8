"""Questions leave the time to the scheduler while pods wait for it."""

import asyncio
import itertools

import pytest

from app.scheduler.whatif.world import LONGEST_WAIT, GivenUp, Pace
from tests.shell.clock import LoopClock

pytestmark = pytest.mark.looptime


class WorkingClock(LoopClock):
    """Also counts work, which takes no virtual time."""

    def __init__(self, others=0.0):
        self.worked = 0.0
        self.others = others

    def monotonic(self):
        return super().monotonic() + self.worked

    def waiting(self):
        """Whether pods wait: always. Other tasks have worked before each look."""
        self.worked += self.others
        return True


#: The others' work between two looks, if there is no time to spare.
BUSY = 0.002


def pace_of(others):
    clock = WorkingClock(others)
    return clock, Pace(clock, clock.waiting, lambda: clock.worked)


async def work(clock, pace, seconds):
    """A question of so many seconds of work."""
    pace.begin(60.0)
    for _ in range(round(seconds / 0.0025)):
        clock.worked += 0.0025
        await pace.wait_for_room()
    await pace.end()


async def questions(clock, pace, seconds):
    """How many questions of 10 ms of work are answered in so many seconds."""
    ends, answered = clock.monotonic() + seconds, 0
    while clock.monotonic() < ends:
        await pace.turn(60.0, reads=False)
        await work(clock, pace, 0.01)
        answered += 1
        await asyncio.sleep(0.001)
    return answered


async def test_a_busy_scheduler_gives_a_share_of_eight_thousandths():
    assert 70 <= await questions(*pace_of(BUSY), 100.0) <= 90  # of 10 ms each


async def test_a_scheduler_that_waits_for_others_itself_gives_a_quarter():
    assert 200 <= await questions(*pace_of(0.0), 10.0) <= 280


async def test_an_idle_scheduler_gives_all_of_it():
    clock = WorkingClock()
    assert await questions(clock, Pace(clock, bool, lambda: clock.worked), 10.0) > 800


async def test_short_questions_are_counted_too():
    clock, pace = pace_of(BUSY)
    pace.begin(60.0)
    clock.worked += 0.001
    await pace.end()
    began = clock.monotonic()
    await pace.turn(60.0, reads=False)
    assert 0.1 < clock.monotonic() - began < 0.3


async def test_the_next_question_begins_as_soon_as_no_pod_waits():
    clock, waiting = WorkingClock(BUSY), itertools.chain([True] * 8, itertools.repeat(False))
    pace = Pace(clock, lambda: clock.waiting() and next(waiting), lambda: clock.worked)
    pace.begin(1.0)
    clock.worked += 1.0
    await pace.end()
    began = clock.monotonic()
    await pace.turn(60.0, reads=False)
    assert clock.monotonic() - began < 1.0


async def test_no_question_waits_longer_than_the_longest_wait_for_its_turn():
    clock, pace = pace_of(BUSY)
    await work(clock, pace, 0.29)
    began = clock.monotonic()
    assert pace.until_turn == pytest.approx(LONGEST_WAIT, abs=0.1)
    await pace.turn(60.0, reads=False)
    assert LONGEST_WAIT - 0.1 < clock.monotonic() - began < LONGEST_WAIT + 0.2


async def test_a_turn_that_does_not_come_in_time():
    clock, pace = pace_of(BUSY)
    await work(clock, pace, 0.29)
    with pytest.raises(TimeoutError):
        await pace.turn(2.0, reads=False)
    assert 27.0 < pace.until_turn < 28.0


async def test_a_long_question_rests_until_it_keeps_the_share_again():
    clock, pace = pace_of(BUSY)
    began = clock.monotonic()
    await work(clock, pace, 0.34)
    assert 4.5 < clock.monotonic() - began < 5.5  # 0.04 s beyond 0.3 s


async def test_a_rest_ends_with_the_question_or_when_nobody_waits_for_it():
    clock, pace = pace_of(BUSY)
    pace.begin(2.0)
    clock.worked += 1.0
    with pytest.raises(GivenUp):
        await pace.pause()
    pace.begin(60.0, lambda: True)
    with pytest.raises(GivenUp):
        await pace.pause()


async def test_a_busy_scheduler_puts_the_reading_of_the_cluster_off_once():
    clock, pace = pace_of(BUSY)
    with pytest.raises(TimeoutError):
        await pace.turn(20.0, reads=True)
    began = clock.monotonic()
    await pace.turn(20.0, reads=True)
    assert 9.0 < clock.monotonic() - began < 11.0


async def test_the_cluster_is_read_soon_if_there_is_time_to_spare_for_some_time():
    clock, pace = pace_of(0.0)
    began = clock.monotonic()
    await pace.turn(20.0, reads=True)
    assert 0.15 < clock.monotonic() - began < 0.3


async def test_a_moment_to_spare_is_not_enough_to_read_the_cluster():
    clock = WorkingClock()
    busy = itertools.cycle([BUSY] * 32 + [0.0])

    def waiting():
        clock.worked += next(busy)
        return True

    pace = Pace(clock, waiting, lambda: clock.worked)
    with pytest.raises(TimeoutError):
        await pace.turn(20.0, reads=True)


async def test_following_is_done_at_once_and_owed():
    clock, pace = pace_of(BUSY)

    def steps():
        for _ in range(50):
            clock.worked += 0.01
            yield

    pace.begin(60.0)
    began = clock.monotonic()
    await pace.through(steps())
    assert clock.monotonic() - began < 1.5
    clock.worked += 0.003
    await pace.wait_for_room()
    assert clock.monotonic() - began < 1.6
    await pace.end()
    assert pace.until_turn > 29.0
