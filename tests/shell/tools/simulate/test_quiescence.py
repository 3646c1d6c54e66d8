"""When there is nothing left to wait for."""

import asyncio

import pytest
from aiohttp import web

from app.sim import EmbeddedCluster
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import PODS
from app.tools.pod_tracker import PodTracker
from app.tools.simulate.quiescence import QUIET, Settling, is_idle
from app.tools.subprocesses import reserved_port
from tests.shell.tools.simulate.world import pod

METRICS = """\
# HELP scheduler_pending_pods Number of pending pods
scheduler_pending_pods{{queue="active"}} {active}
scheduler_pending_pods{{queue="backoff"}} {backoff}
scheduler_pending_pods{{queue="unschedulable"}} 7.0
scheduler_pending_pods{{queue="gated"}} 3.0
scheduler_goroutines{{operation="binding"}} {binding}
aiokube_scheduler_pods_in_flight {in_flight}
aiokube_scheduler_unconfirmed_bindings 0.0
aiokube_scheduler_status_patches_pending {patches}
aiokube_scheduler_events_queued {events}
scheduler_cache_size{{type="nodes"}} 5.0
"""
BUSY = ("active", "backoff", "binding", "in_flight", "patches", "events")


def metrics(**busy):
    return METRICS.format(**{name: busy.get(name, 0.0) for name in BUSY})


@pytest.mark.parametrize("what", BUSY)
def test_a_scheduler_that_will_do_something(what):
    assert not is_idle(metrics(**{what: 1.0}))


def test_one_that_waits_for_changes_only():
    assert is_idle(metrics())


def test_one_that_shows_nothing_yet():
    assert not is_idle("")


class Hand:
    """Time that stands still until a test turns it on."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time

    async def turn_until_done(self, waiting):
        async with asyncio.timeout(10):
            while not waiting.done():
                self.time += QUIET
                await asyncio.sleep(0.01)
            await waiting


REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}


@pytest.fixture
async def said():
    """A scheduler's metrics page: where it is, and its text, which tests change."""
    page = {"text": metrics(backoff=1.0)}

    async def show(_request: web.Request) -> web.Response:
        return web.Response(text=page["text"])

    answers = web.Application()
    answers.add_routes([web.get("/metrics", show)])
    runner = web.AppRunner(answers)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    page["port"] = runner.addresses[0][1]
    yield page
    await runner.cleanup()


async def test_all_is_decided_idle_and_quiet(said):
    cluster, looks, now = EmbeddedCluster(), [], Hand()
    tracker = PodTracker(cluster, now, lambda _pod: "w")
    waiting = asyncio.create_task(Settling(cluster, tracker, said["port"], now).wait(looks.append))

    async def stays_awake() -> bool:
        until = len(looks) + 2
        while len(looks) < until and not waiting.done():
            now.time += QUIET
            await asyncio.sleep(0.01)
        return not waiting.done()

    cluster.apply(PODS, pod("p"))
    cluster.apply(PODS, pod("q", nodeName="n"))
    said["text"] = metrics()
    assert await stays_awake(), "a pod is not decided about"
    said["text"] = metrics(backoff=1.0)
    cluster.apply(PODS, pod("p") | {"status": {"conditions": [REFUSED]}})
    assert await stays_awake(), "the scheduler is busy"
    said["text"] = metrics()
    for number in range(4):  # longer than it has to be quiet
        cluster.apply(PODS, pod(f"r-{number}", nodeName="n"))
        now.time += QUIET / 2
        await asyncio.sleep(0.1)
    assert not waiting.done(), "something is written"
    await now.turn_until_done(waiting)
    assert looks[-1] == tracker.bound == 5


async def test_pods_on_their_way_out_are_waited_for(said):
    cluster, now = EmbeddedCluster(), Hand()
    said["text"] = metrics()
    tracker = PodTracker(cluster, now, lambda _pod: None)
    for name, held in {"leaving": [], "held": ["example.com/hold"]}.items():
        value = pod(name, nodeName="n")
        value["metadata"]["finalizers"] = held
        cluster.apply(PODS, value)
        delete(cluster.api, PODS, "shop", name, DeleteOptions(grace_period_seconds=30))
    settling = Settling(cluster, tracker, said["port"], now)
    looks = []
    waiting = asyncio.create_task(settling.wait(looks.append))
    while len(looks) < 4:
        now.time += QUIET
        await asyncio.sleep(0.01)
    assert not waiting.done()
    delete(cluster.api, PODS, "shop", "leaving", DeleteOptions(grace_period_seconds=0))
    await now.turn_until_done(waiting)
    assert cluster.api.find(PODS, "shop", "held") is not None


async def test_nobody_listens_yet():
    cluster = EmbeddedCluster()
    now = asyncio.get_running_loop().time
    with reserved_port() as port:
        settling = Settling(cluster, PodTracker(cluster, now, lambda _pod: "w"), port, now)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(QUIET * 2):
                await settling.wait(lambda _bound: None)
