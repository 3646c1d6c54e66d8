"""The process: what ends its work."""

import asyncio
from types import SimpleNamespace

import pytest

from app.framework.testing import make_pod
from app.scheduler import process as processes
from app.scheduler.options import RunOptions
from app.scheduler.process import ANSWERING_DELAY, EXIT_LOST, EXIT_STOPPED, Process
from app.serving.options import ServingOptions
from app.settings.load import load
from tests.shell.clock import LoopClock
from tests.shell.scheduler.world import CONFIG, running

pytestmark = pytest.mark.looptime


def process(stop):
    return Process(load(CONFIG), RunOptions(seed=1), stop, LoopClock())


async def test_the_lease_is_not_released_while_a_binding_is_not_settled():
    started = process(asyncio.Event())
    elector = started._make_elector(None, None)
    assert elector._callbacks.may_release(), "before there is a scheduler"
    started._scheduler = SimpleNamespace(binder=SimpleNamespace(unsettled={"uid"}))
    assert not elector._callbacks.may_release()
    started._scheduler.binder.unsettled.clear()
    assert elector._callbacks.may_release()


async def work(done, seconds=100.0):
    await asyncio.sleep(seconds)
    done.append(asyncio.get_running_loop().time())


async def test_work_that_ends_by_itself():
    done = []
    assert await process(asyncio.Event())._unless_stopped("work", work(done))
    assert done == [100.0]


@pytest.mark.parametrize("end", ["stop", "lease lost", "API server upgraded"])
@pytest.mark.parametrize("before", [True, False])
async def test_work_ends_with_a_request_to_stop_and_with_leading(end, before, looptime):
    """Not only once the lease has been released, which takes up to five seconds."""
    stop, done = asyncio.Event(), []
    started = process(stop)
    ends = {"stop": stop, "lease lost": started._stopped_leading}
    event = ends.get(end, started._outdated)
    if before:
        event.set()
    else:
        asyncio.get_running_loop().call_later(7, event.set)
    assert not await started._unless_stopped("work", work(done, 0.0 if before else 100.0))
    assert done == []
    assert looptime == (0 if before else 7)


@pytest.mark.parametrize("lost", [True, False])
async def test_only_who_still_leads_waits_for_what_is_under_way(lost):
    """Who has lost the lease may write nothing more."""
    stop, waited = asyncio.Event(), []
    started = process(stop)

    async def schedule():
        (started._stopped_leading if lost else stop).set()

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
    status = await started._schedule(scheduler, asyncio.create_task(campaign()), events)
    assert (status, waited) == ((EXIT_LOST, []) if lost else (EXIT_STOPPED, [10.0, 5.0]))
    assert bool(closed) is lost


async def test_the_first_pods_are_caught_up_with_when_they_are_bound():
    async with running("a") as world:
        world.transport.latency = 1.0
        world.add(make_pod("pod", spec={"schedulerName": "default-scheduler"}))
        done = asyncio.create_task(world.scheduler.caught_up())
        await asyncio.sleep(5)
        assert not done.done(), "nobody leads"
        lead = asyncio.create_task(world.lead())
        await asyncio.sleep(0.5)
        assert not done.done(), "the binding is being written"
        await asyncio.sleep(1)
        assert done.done()
        lead.cancel()
        await asyncio.wait([lead])


class ImportedError(Exception):
    pass


def imported():
    raise ImportedError


@pytest.mark.parametrize("caught_up_after", [0.5, 100.0])
async def test_requests_wait_for_the_first_pods_but_not_for_long(
    caught_up_after, monkeypatch, looptime
):
    monkeypatch.setattr(processes, "_import_endpoints", imported)
    scheduler = SimpleNamespace(caught_up=lambda: asyncio.sleep(caught_up_after))
    with pytest.raises(ImportedError):
        await process(asyncio.Event())._answer(scheduler, None, None, ())
    assert looptime == min(caught_up_after, ANSWERING_DELAY)


def test_the_lease_tells_that_the_endpoints_are_still_to_come():
    started = process(asyncio.Event())
    assert started._as_leader().starting
    started._server = "https://10.0.0.1:10259"
    assert not started._as_leader().starting
    without = RunOptions(seed=1, serving=ServingOptions(secure_port=0))
    assert not Process(load(CONFIG), without, asyncio.Event(), LoopClock())._as_leader().starting


@pytest.mark.parametrize(
    ("ends", "stopped", "status"),
    [
        ([EXIT_STOPPED, EXIT_STOPPED, EXIT_LOST], 3, EXIT_LOST),
        ([EXIT_STOPPED, EXIT_STOPPED], 2, EXIT_STOPPED),
        ([EXIT_LOST], 1, EXIT_LOST),
    ],
)
async def test_after_an_upgrade_another_process_begins(monkeypatch, ends, stopped, status):
    """One that ended without being asked to has seen an upgrade; the last one of the list is asked to stop."""
    begun = []

    class One:
        def __init__(self, _loaded, _options, stop, _clock):
            begun.append(self)
            self._stop = stop

        async def run(self):
            if len(begun) == stopped:
                self._stop.set()
            return ends[len(begun) - 1]

    monkeypatch.setattr(processes, "Process", One)
    for name in ("freeze", "unfreeze", "set_threshold"):  # of the test's process
        monkeypatch.setattr(processes.gc, name, lambda *_: None)
    assert await processes.run(load(CONFIG), RunOptions()) == status
    assert len(begun) == len(ends)
