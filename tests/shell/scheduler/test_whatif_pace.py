"""Questions leave the time to the scheduler while pods wait for it."""

import asyncio
import itertools

import pytest

from app.scheduler.whatif.world import GivenUp, Pace
from tests.shell.clock import LoopClock

pytestmark = pytest.mark.looptime


class WorkingClock(LoopClock):
    """Also counts work, which takes no virtual time."""

    worked = 0.0

    def monotonic(self):
        return super().monotonic() + self.worked


async def questions(clock, pace, seconds):
    """How many questions of 10 ms of work are answered in so many seconds."""
    loop = asyncio.get_running_loop()
    ends, answered = loop.time() + seconds, 0
    while loop.time() < ends:
        await pace.turn(60.0)
        pace.begin(60.0)
        for _ in range(4):
            clock.worked += 0.0025
            await pace.wait_for_room()
        pace.end()
        answered += 1
        await asyncio.sleep(0.001)
    return answered


async def test_a_busy_scheduler_gives_about_a_hundredth_of_the_time():
    clock = WorkingClock()
    pace = Pace(clock, lambda: True)
    answered = await questions(clock, pace, 100.0)
    assert 80 <= answered <= 130  # of 10 ms each: about 1 % of 100 s


async def test_an_idle_scheduler_gives_all_of_it():
    clock = WorkingClock()
    assert await questions(clock, Pace(clock, lambda: False), 1.0) > 500


async def test_the_next_question_begins_as_soon_as_no_pod_waits():
    clock, busy = WorkingClock(), itertools.chain([True] * 5, itertools.repeat(False))
    pace = Pace(clock, lambda: next(busy))
    pace.begin(1.0)
    clock.worked += 1.0
    pace.end()
    started = clock.monotonic()
    await pace.turn(60.0)
    assert clock.monotonic() - started < 1.0


async def test_a_turn_that_does_not_come_in_time():
    clock = WorkingClock()
    pace = Pace(clock, lambda: True)
    pace.begin(1.0)
    clock.worked += 1.0
    pace.end()
    with pytest.raises(TimeoutError):
        await pace.turn(2.0)
    pace.begin(0.5, lambda: True)
    with pytest.raises(GivenUp):
        await pace.pause()
