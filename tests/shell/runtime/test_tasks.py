"""Guarded tasks, and the clocks behind them."""

import asyncio
import inspect

import numpy as np
import pytest

from app.runtime.clock import SystemClock, make_rng
from app.runtime.tasks import EternalTaskEnded, Slots, spawn, spawn_eternal


async def for_ever():
    await asyncio.Event().wait()


async def test_a_task_that_ends_is_fine():
    async def work():
        return 7

    async with asyncio.TaskGroup() as group:
        task = spawn(group, work(), name="work")
    assert task.get_name() == "work"
    assert task.result() == 7


async def test_a_task_that_fails_is_logged_by_name_and_ends_the_group(caplog):
    async def work():
        raise ValueError("a bug")

    async def owner():
        async with asyncio.TaskGroup() as group:
            spawn(group, work(), name="counting sheep")
            others.append(spawn_eternal(group, for_ever(), name="other"))

    others = []
    with pytest.raises(ExceptionGroup) as caught:
        await owner()
    assert caught.group_contains(ValueError, match="a bug")
    assert others[0].cancelled()
    assert "Task counting sheep has failed" in caplog.text


async def test_an_eternal_task_that_ends_is_a_fault(caplog):
    async def quits():
        pass

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            spawn_eternal(group, quits(), name="watch pods")
    assert caught.group_contains(EternalTaskEnded, match="watch pods")
    assert "Task watch pods has ended, although it should run until it is cancelled" in caplog.text


async def test_an_eternal_task_is_cancelled_quietly(caplog):
    async def owner():
        async with asyncio.TaskGroup() as group:
            spawn_eternal(group, for_ever(), name="eternal")
            await asyncio.sleep(0)
            raise ValueError("the owner has had enough")

    with pytest.raises(ExceptionGroup, match="unhandled"):
        await owner()
    assert caplog.records == []


@pytest.mark.parametrize("start", [spawn, spawn_eternal])
async def test_the_work_of_a_task_that_is_cancelled_before_it_begins_is_closed(start):
    work = for_ever()
    async with asyncio.TaskGroup() as group:
        start(group, work, name="work").cancel()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_who_has_waited_longest_gets_the_place_that_is_given_back():
    async def wait(name):
        await places.wait()
        served.append(name)

    places, served = Slots(1), []
    assert places.take()
    assert not places.take()
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(wait(name)) for name in "abc"]
        await asyncio.sleep(0)
        waiting[0].cancel()
        places.give_back()  # before "a" has noticed
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert served == ["b"]
        assert not places.take()
        places.give_back()
    assert served == ["b", "c"]
    places.give_back()
    assert places.take()
    assert not places.take()


async def test_a_place_is_given_on_by_who_is_cancelled_after_getting_it():
    places = Slots(0)
    first, second = (asyncio.ensure_future(places.wait()) for _ in range(2))
    await asyncio.sleep(0)
    places.give_back()
    first.cancel()
    await second
    assert first.cancelled()
    assert not places.take()


def test_the_clock_goes_forward():
    clock = SystemClock()
    assert 0 < clock.monotonic() <= clock.monotonic()
    assert clock.wall() > 1_700_000_000


def test_a_seed_repeats_the_dice():
    rng, seed = make_rng()
    again, same = make_rng(seed)
    assert same == seed
    assert np.array_equal(rng.random(5), again.random(5))
    assert make_rng(7)[0].random() == np.random.default_rng(7).random()
