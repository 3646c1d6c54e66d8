"""The state is flushed when its first pod is due, sooner if that changes, and not looked at in between."""

import asyncio
import contextlib

import pytest

from app.scheduler.loop import QueueFlusher
from app.state.scheduler_state import SchedulerState
from tests.shell.clock import WALL, LoopClock

pytestmark = pytest.mark.looptime


class State:
    """A state with one pod that is due at a time, and that one of the queue's three ways makes active."""

    flush = SchedulerState.flush

    def __init__(self, way="flush_backoff"):
        self.way, self.due = way, None
        self.ready, self.looks = False, 0
        self.queue = self

    def next_flush_time(self, _now):
        self.looks += 1
        return self.due

    def _tried(self, way, now):
        if way != self.way or self.due is None or now < self.due:
            return 0
        self.due = None
        return 1

    def continue_waking(self):
        return self._tried("continue_waking", LoopClock().steady())

    def flush_backoff(self, now):
        return self._tried("flush_backoff", now)

    def flush_unschedulable(self, now):
        return self._tried("flush_unschedulable", now)


@contextlib.asynccontextmanager
async def flushing(state):
    """The flusher, and the seconds at which it said that pods may be active."""
    loop, woken = asyncio.get_running_loop(), []
    flusher = QueueFlusher(state, LoopClock(), lambda: woken.append(round(loop.time(), 1)))
    running = asyncio.create_task(flusher.run())
    await asyncio.sleep(0)
    yield flusher, woken
    running.cancel()


@pytest.mark.parametrize("way", ["continue_waking", "flush_backoff", "flush_unschedulable"])
async def test_a_pod_that_is_due_is_made_active_in_its_time(way):
    state = State(way)
    state.due = WALL + 7
    async with flushing(state) as (_, woken):
        await asyncio.sleep(60)
    assert woken == [7]


async def test_a_pod_that_is_due_sooner_is_not_kept_waiting():
    state = State()
    state.due = WALL + 7
    async with flushing(state) as (flusher, woken):
        await asyncio.sleep(1)
        state.due = WALL + 3
        flusher.notify()
        await asyncio.sleep(60)
    assert woken == [3]


async def test_a_change_that_makes_nothing_due_sooner_does_not_end_the_sleep():
    state = State()
    state.due = WALL + 7
    async with flushing(state) as (flusher, _):
        looks = state.looks
        flusher.notify()
        await asyncio.sleep(1)
    assert state.looks == looks + 1, "but that of notify itself"


async def test_active_pods_are_told_of_at_once():
    state = State()
    async with flushing(state) as (flusher, woken):
        await asyncio.sleep(2)
        state.ready = True
        flusher.notify()
        assert woken == [2]


async def test_a_queue_in_which_nothing_is_due_is_left_alone():
    state = State()
    async with flushing(state) as (_, woken):
        looks = state.looks
        await asyncio.sleep(3600)
        assert (state.looks, woken) == (looks, [])
