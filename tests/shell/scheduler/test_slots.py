"""Slots: so many attempts at a time, in order, and no gap between one and the next."""

import asyncio
import inspect
from collections import deque

import pytest

from app.scheduler.slots import Slots


class Hand:
    """A clock that a test turns."""

    def __init__(self):
        self.time = 0.0

    def monotonic(self):
        return self.time

    wall = monotonic


class Bench:
    """Work that waits until it is let go, and work that follows when asked for."""

    def __init__(self, number):
        self.clock = Hand()
        self.following = deque()
        self.begun = []
        self.gates = {}
        self.tasks = []
        self.slots = Slots(
            number,
            more=lambda: self.following.popleft() if self.following else None,
            freed=lambda: None,
            clock=self.clock,
            spawn=self._spawn,
        )

    def _spawn(self, coroutine, name):
        task = asyncio.create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    async def work(self, name):
        self.begun.append(name)
        gate = self.gates[name] = asyncio.Event()
        await gate.wait()

    async def instant(self, name):
        self.begun.append(name)
        self.clock.time += 0.004

    async def let_go(self, name):
        self.gates[name].set()
        await settled()


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_so_many_at_a_time_in_the_order_given():
    bench = Bench(2)
    starting = [asyncio.create_task(bench.slots.start(bench.work(n), n)) for n in "abcd"]
    await settled()
    assert (bench.begun, [s.done() for s in starting]) == (["a", "b"], [True, True, False, False])
    await bench.let_go("b")
    assert (bench.begun, starting[2].done(), starting[3].done()) == (["a", "b", "c"], True, False)
    for name in "acd":
        await bench.let_go(name)
    assert bench.begun == ["a", "b", "c", "d"]
    await asyncio.gather(*starting, *bench.tasks)


async def test_who_is_done_begins_the_next_before_anything_else_runs():
    bench = Bench(1)
    await bench.slots.start(bench.work("a"), "a")
    await settled()
    bench.following.append(bench.work("b"))
    bench.gates["a"].set()
    await asyncio.sleep(0)  # wakes the task ...
    assert bench.begun == ["a", "b"]  # ... which has not waited for another turn
    await bench.let_go("b")
    await asyncio.gather(*bench.tasks)


async def test_those_that_wait_for_a_slot_come_before_those_that_follow():
    bench = Bench(1)
    await bench.slots.start(bench.work("a"), "a")
    waiting = asyncio.create_task(bench.slots.start(bench.work("b"), "b"))
    bench.following.append(bench.work("c"))
    await settled()
    for name in "abc":
        await bench.let_go(name)
    assert bench.begun == ["a", "b", "c"]
    await asyncio.gather(waiting, *bench.tasks)


async def test_work_that_never_waits_leaves_others_their_turn():
    bench = Bench(1)
    bench.following.extend(bench.instant(f"follower {n}") for n in range(9))
    await bench.slots.start(bench.instant("first"), "first")
    await asyncio.sleep(0)
    assert len(bench.begun) == 4  # the first, and those that fit into a turn of 10 ms, 4 ms each
    await bench.slots.start(bench.instant("later"), "later")  # the slot was given back
    await settled()
    assert "later" in bench.begun
    for work in bench.following:
        work.close()
    await asyncio.gather(*bench.tasks)


async def test_a_start_that_is_given_up_takes_no_slot():
    bench = Bench(1)
    await bench.slots.start(bench.work("a"), "a")
    given_up = asyncio.create_task(bench.slots.start(bench.work("b"), "b"))
    await settled()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await bench.let_go("a")
    await bench.slots.start(bench.work("c"), "c")
    await settled()
    assert bench.begun == ["a", "c"]
    await bench.let_go("c")
    await asyncio.gather(*bench.tasks)


async def test_work_whose_task_is_cancelled_before_it_begins_is_closed():
    bench = Bench(1)
    work = bench.work("a")
    await bench.slots.start(work, "a")
    bench.tasks[0].cancel()
    await settled()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED
    assert bench.begun == []
