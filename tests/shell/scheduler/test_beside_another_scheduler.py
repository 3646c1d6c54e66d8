"""Pods of another scheduler that come to a node while a pod of ours is about to be bound there."""

import asyncio

import pytest

from app.framework.runner import Framework
from app.framework.testing import make_pod
from app.model.pod import Pod
from tests.shell.kube.fakes import FakeTransport, ok
from tests.shell.scheduler.world import running

pytestmark = pytest.mark.looptime

#: Seconds for which a binding waits for its turn.
WAIT = 1.0


class Queue(FakeTransport):
    """An API server whose client lets each binding wait before it is sent, as its rate limiter does."""

    def __init__(self):
        super().__init__(handler=lambda _sent: ok(status=201))

    async def request(self, method, path, **fields):
        if path.endswith("/binding"):
            await asyncio.sleep(WAIT)
        return await super().request(method, path, **fields)

    def bindings(self):
        return [sent.body["target"]["name"] for sent in self.sent if "binding" in sent.path]


def needing(name, cpu):
    return make_pod(
        name, spec={"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    )


async def play(*foreign, nodes=("a", "b"), seconds=20):
    """One pod of three cpus, and pods of another scheduler that come to its node while it waits for its turn."""
    transport = Queue()
    async with running(transport=transport) as world:
        world.add_nodes(*nodes)
        pod = world.add(needing("p", "3"))
        work = asyncio.ensure_future(world.lead())
        await asyncio.sleep(WAIT / 2)
        chosen = world.state.cache.get(pod.uid).node_name
        for other in foreign:
            world.change(Pod, None, other.on(chosen))
        await asyncio.sleep(seconds)
        work.cancel()
        await asyncio.wait([work])
    events = [sent for sent in transport.sent if "events" in sent.path]
    return chosen, transport.bindings(), world.scheduler.binder.decided_again, events


async def test_a_pod_whose_node_was_filled_is_decided_again_at_once():
    chosen, bindings, again, _ = await play(needing("other", "2"), seconds=2 * WAIT)
    assert bindings == [{"a": "b", "b": "a"}[chosen]]
    assert again == 1


async def test_it_stays_pending_if_there_is_no_other_node():
    _, bindings, again, _ = await play(needing("other", "2"), nodes=("a",))
    assert (bindings, again) == ([], 1)


async def test_a_node_that_still_has_room_is_kept():
    chosen, bindings, again, _ = await play(needing("other", "1"))
    assert (bindings, again) == ([chosen], 0)


async def test_pods_of_other_schedulers_elsewhere_do_not_matter(monkeypatch):
    def never(*_args):
        raise AssertionError("the node was looked at")

    monkeypatch.setattr(Framework, "why_unfit", never)
    chosen, bindings, again, _ = await play()
    assert (bindings, again) == ([chosen], 0)


async def test_a_pod_that_grows_counts_as_one_that_comes():
    transport = Queue()
    async with running(transport=transport) as world:
        world.add_nodes("a")
        small = world.add(needing("small", "1").on("a"))
        world.add(needing("p", "3"))
        work = asyncio.ensure_future(world.lead())
        await asyncio.sleep(WAIT / 2)
        world.change(Pod, small, needing("small", "2").on("a"))
        await asyncio.sleep(10)
        work.cancel()
        await asyncio.wait([work])
    assert transport.bindings() == []


async def test_arrivals_are_followed_only_while_pods_are_assumed():
    async with running("a", "b") as world:
        state = world.state
        world.add(needing("x", "1").on("a"))
        assert state.arrivals("a") == 0
        pod = world.add(needing("p", "1"))
        assumed = state.assume(pod, "b")
        world.add(needing("y", "1").on("a"))
        first = state.arrivals("a")
        world.add(needing("z", "1").on("a"))
        assert 0 < first < state.arrivals("a")
        assert state.arrivals("b") == 0
        state.forget(assumed)
        world.add(needing("w", "1").on("a"))
        assert state.arrivals("a") == 0
