"""The process: what ends its work."""

import asyncio

import pytest

from app.scheduler.options import RunOptions
from app.scheduler.process import Process
from app.settings.load import load
from tests.shell.clock import LoopClock
from tests.shell.scheduler.world import CONFIG

pytestmark = pytest.mark.looptime


def process(stop):
    return Process(load(CONFIG), RunOptions(seed=1), stop, LoopClock())


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
