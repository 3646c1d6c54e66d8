"""When there is nothing left to wait for."""

import asyncio

import aiohttp
import pytest
from aioresponses import CallbackResult

from app.sim import EmbeddedCluster
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import PODS
from app.tools.pod_tracker import PodTracker
from app.tools.simulate.groups import SimulatedGroups
from app.tools.simulate.run import QUIET, Quiescence, is_idle
from tests.shell.responses import Response, Responses
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


def test_groups_that_are_tried_again_do_not_keep_it_busy():
    assert is_idle(metrics(backoff=3.0), retrying=3)
    assert not is_idle(metrics(backoff=4.0), retrying=3)
    assert not is_idle(metrics(backoff=3.0, active=1.0), retrying=3)


REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}
PORT = 10251


@pytest.fixture
def said():
    """A scheduler's metrics page, whose text tests change."""
    page = {"text": metrics(backoff=1.0)}

    def show(_url, **_more):
        return CallbackResult(body=page["text"], response_class=Response)

    with Responses() as responses:
        responses.get(f"http://127.0.0.1:{PORT}/metrics", callback=show, repeat=True)
        yield page


def settling(cluster, name_of_node):
    now = asyncio.get_running_loop().time
    return Quiescence(
        cluster, PodTracker(cluster, now, name_of_node), SimulatedGroups(cluster), PORT, now
    )


pytestmark = pytest.mark.looptime


async def test_all_is_decided_idle_and_quiet(said):
    cluster, looks = EmbeddedCluster(), []
    waiting = asyncio.create_task(settling(cluster, lambda _pod: "w").wait(looks.append))

    async def waits() -> bool:
        await asyncio.sleep(10 * QUIET)
        return not waiting.done()

    cluster.apply(PODS, pod("p"))
    cluster.apply(PODS, pod("q", nodeName="n"))
    said["text"] = metrics()
    assert await waits(), "a pod is not decided about"
    said["text"] = metrics(backoff=1.0)
    cluster.apply(PODS, pod("p") | {"status": {"conditions": [REFUSED]}})
    assert await waits(), "the scheduler is busy"
    said["text"] = metrics()
    for number in range(4):  # longer than it has to be quiet
        cluster.apply(PODS, pod(f"r-{number}", nodeName="n"))
        await asyncio.sleep(QUIET / 2)
    assert not waiting.done(), "something is written"
    await asyncio.wait_for(waiting, 2 * QUIET)
    assert looks[-1] == 5


async def test_pods_of_groups_are_not_counted_while_others_get_nodes(said, monkeypatch):
    """Each count looks at all pods of the cluster."""
    cluster, counts = EmbeddedCluster(), []
    said["text"] = metrics()
    held = SimulatedGroups.held
    monkeypatch.setattr(SimulatedGroups, "held", lambda self: counts.append(1) or held(self))
    waiting = asyncio.create_task(settling(cluster, lambda _pod: "w").wait(lambda _bound: None))
    cluster.apply(PODS, pod("p"))
    for number in range(100):
        cluster.apply(PODS, pod(f"q-{number}", nodeName="n"))
        await asyncio.sleep(QUIET / 10)
    assert not counts
    await asyncio.sleep(QUIET)
    assert counts
    cluster.apply(PODS, pod("p") | {"status": {"conditions": [REFUSED]}})
    await asyncio.wait_for(waiting, 2 * QUIET)


async def test_pods_on_their_way_out_are_waited_for(said):
    cluster = EmbeddedCluster()
    said["text"] = metrics()
    waits_for = settling(cluster, lambda _pod: None)
    for name, held in {"leaving": [], "held": ["example.com/hold"]}.items():
        value = pod(name, nodeName="n")
        value["metadata"]["finalizers"] = held
        cluster.apply(PODS, value)
        delete(cluster.api, PODS, "shop", name, DeleteOptions(grace_period_seconds=30))
    waiting = asyncio.create_task(waits_for.wait(lambda _bound: None))
    await asyncio.sleep(10 * QUIET)
    assert not waiting.done()
    delete(cluster.api, PODS, "shop", "leaving", DeleteOptions(grace_period_seconds=0))
    await asyncio.wait_for(waiting, 2 * QUIET)
    assert cluster.api.find(PODS, "shop", "held") is not None


@pytest.mark.parametrize("answer", [{"exception": aiohttp.ClientError()}, {"status": 500}])
async def test_a_scheduler_that_does_not_answer(answer):
    with Responses() as responses:
        responses.get(f"http://127.0.0.1:{PORT}/metrics", repeat=True, **answer)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(
                settling(EmbeddedCluster(), lambda _pod: "w").wait(lambda _bound: None), 60
            )
