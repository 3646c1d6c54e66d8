"""The queue is flushed when its first pod is due, sooner if that changes, and not looked at in between."""

import asyncio
import contextlib

import pytest

from app.scheduler.queue_flusher import QueueFlusher
from tests.shell.clock import WALL, LoopClock

pytestmark = pytest.mark.looptime


class Queue:
    """A queue with one pod that is due at a time, and that one of the three ways makes active."""

    def __init__(self, way="flush_backoff"):
        self.way, self.due = way, None
        self.ready, self.looks = False, 0

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
async def flushing(queue):
    """The flusher, and the seconds at which it said that pods may be active."""
    loop, woken = asyncio.get_running_loop(), []
    flusher = QueueFlusher(queue, LoopClock(), lambda: woken.append(round(loop.time(), 1)))
    running = asyncio.create_task(flusher.run())
    await asyncio.sleep(0)
    yield flusher, woken
    running.cancel()


@pytest.mark.parametrize("way", ["continue_waking", "flush_backoff", "flush_unschedulable"])
async def test_a_pod_that_is_due_is_made_active_in_its_time(way):
    queue = Queue(way)
    queue.due = WALL + 7
    async with flushing(queue) as (_, woken):
        await asyncio.sleep(60)
    assert woken == [7]


async def test_a_pod_that_is_due_sooner_is_not_kept_waiting():
    queue = Queue()
    queue.due = WALL + 7
    async with flushing(queue) as (flusher, woken):
        await asyncio.sleep(1)
        queue.due = WALL + 3
        flusher.poke()
        await asyncio.sleep(60)
    assert woken == [3]


async def test_a_change_that_makes_nothing_due_sooner_does_not_end_the_sleep():
    queue = Queue()
    queue.due = WALL + 7
    async with flushing(queue) as (flusher, _):
        looks = queue.looks
        flusher.poke()
        await asyncio.sleep(1)
    assert queue.looks == looks + 1, "but the poke's own"


async def test_active_pods_are_told_of_at_once():
    queue = Queue()
    async with flushing(queue) as (flusher, woken):
        await asyncio.sleep(2)
        queue.ready = True
        flusher.poke()
        assert woken == [2]


async def test_a_queue_in_which_nothing_is_due_is_left_alone():
    queue = Queue()
    async with flushing(queue) as (_, woken):
        looks = queue.looks
        await asyncio.sleep(3600)
        assert (queue.looks, woken) == (looks, [])
