"""The process: what ends its work."""

import asyncio
from types import SimpleNamespace

import pytest

from app.scheduler.options import RunOptions
from app.scheduler.process import EXIT_LOST, EXIT_STOPPED, Process
from app.settings.load import load
from tests.shell.clock import LoopClock
from tests.shell.scheduler.world import CONFIG

pytestmark = pytest.mark.looptime


def process(stop):
    return Process(load(CONFIG), RunOptions(seed=1), stop, LoopClock())


async def test_the_lease_is_not_released_while_a_binding_is_not_settled():
    running = process(asyncio.Event())
    elector = running._make_elector(None, None)
    assert elector._callbacks.may_release(), "before there is a scheduler"
    running._scheduler = SimpleNamespace(binder=SimpleNamespace(unsettled={"uid"}))
    assert not elector._callbacks.may_release()
    running._scheduler.binder.unsettled.clear()
    assert elector._callbacks.may_release()


async def work(done, seconds=100.0):
    await asyncio.sleep(seconds)
    done.append(asyncio.get_running_loop().time())


async def test_work_that_ends_by_itself():
    done = []
    assert await process(asyncio.Event())._unless_stopped("work", work(done))
    assert done == [100.0]


@pytest.mark.parametrize("end", ["stop", "lease lost"])
@pytest.mark.parametrize("before", [True, False])
async def test_work_ends_with_a_request_to_stop_and_with_leading(end, before, looptime):
    """Not only once the lease has been released, which takes up to five seconds."""
    stop, done = asyncio.Event(), []
    running = process(stop)
    event = stop if end == "stop" else running._stopped_leading
    if before:
        event.set()
    else:
        asyncio.get_running_loop().call_later(7, event.set)
    assert not await running._unless_stopped("work", work(done, 0.0 if before else 100.0))
    assert done == []
    assert looptime == (0 if before else 7)


@pytest.mark.parametrize("lost", [True, False])
async def test_only_who_still_leads_waits_for_what_is_under_way(lost):
    """Who has lost the lease may write nothing more."""
    stop, waited = asyncio.Event(), []
    running = process(stop)

    async def schedule():
        (running._stopped_leading if lost else stop).set()

    async def wait(seconds):
        waited.append(seconds)

    async def campaign():
        return None

    closed = []
    scheduler = SimpleNamespace(
        loop=SimpleNamespace(run=schedule),
        wind_down=wait,
        releases=SimpleNamespace(close=lambda: closed.append(True)),
    )
    events = SimpleNamespace(pods=SimpleNamespace(drain=wait), lease=SimpleNamespace(drain=wait))
    status = await running._schedule(scheduler, asyncio.create_task(campaign()), events)
    assert (status, waited) == ((EXIT_LOST, []) if lost else (EXIT_STOPPED, [10.0, 5.0]))
    assert bool(closed) is lost
