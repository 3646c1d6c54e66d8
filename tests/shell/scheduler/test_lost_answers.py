"""Room and devices are not given away twice: what a pod keeps while nobody knows what became of its binding."""

import asyncio
import contextlib
import functools

import msgspec
import pytest

from app.framework.testing import make_pod
from app.kube.errors import SETTLED, ConnectionFailed
from app.model.pod import Pod
from app.scheduler.options import RunOptions
from tests.shell.kube.fakes import ok, refused
from tests.shell.scheduler.world import running

pytestmark = pytest.mark.looptime

#: A pod that fills a node.
WHOLE = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}
LOST = ConnectionFailed("POST: no answer in time", sent=True)


class Server:
    """Loses the answer to the first binding, done or not; ``lookups`` answer what is asked about its pod after that."""

    def __init__(self, *, done):
        self.done, self.bound, self.lookups = done, {}, None
        self.posts = []

    def __call__(self, sent):
        name = sent.path.split("/")[-2] if sent.method == "POST" else sent.path.split("/")[-1]
        if sent.path.endswith("/binding"):
            self.posts.append(name)
            if len(self.posts) > 1 or self.done:
                self.bound[name] = sent.body["target"]["name"]
            return LOST if len(self.posts) == 1 else ok(status=201)
        if sent.method == "GET":
            if self.lookups is not None:
                return self.lookups
            uid = f"uid-of-default-{name}"
            return ok({"metadata": {"uid": uid}, "spec": {"nodeName": self.bound.get(name, "")}})
        return ok(status=201)


def add_two(world):
    for name in ("first", "second"):
        world.add(make_pod(name, spec=WHOLE))


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_binding_without_an_answer_is_not_settled(cancelled):
    """So that the lease is not released meanwhile; cancelling its task does not settle it either."""
    server = Server(done=True)
    server.lookups = refused(403)
    with contextlib.suppress(ExceptionGroup):
        async with running("a") as world:
            world.transport.handler = server
            world.add(make_pod("first", spec=WHOLE))
            await world.run_for(1)
            assert world.scheduler.binder.unsettled == {"uid-of-default-first"}
            if cancelled:
                raise RuntimeError("the process ends")
            server.lookups = None
    assert bool(world.scheduler.binder.unsettled) == cancelled


@pytest.mark.parametrize(("settled_after", "waited"), [(None, 10.0), (4.0, 5.0)])
async def test_the_end_waits_for_an_unsettled_binding(settled_after, waited, looptime, caplog):
    """For 10 s at most; after that it is still unsettled, so that the lease is not released."""
    server = Server(done=True)
    server.lookups = refused(403)
    async with running("a") as world:
        world.transport.handler = server
        world.add(make_pod("first", spec=WHOLE))
        await world.run_for(1)
        started = float(looptime)
        if settled_after is not None:
            settle = functools.partial(setattr, server, "lookups", None)
            asyncio.get_running_loop().call_later(settled_after, settle)
        await world.scheduler.wind_down(RunOptions().shutdown_seconds)
        assert float(looptime) - started == pytest.approx(waited, abs=1.0)
        assert bool(world.scheduler.binder.unsettled) == (settled_after is None)
        assert ("Not finished within 10 s: 1 bindings" in caplog.text) == (settled_after is None)
        server.lookups = None


@pytest.mark.parametrize("status", [401, 403, 404, 500])
async def test_a_place_is_kept_while_lookups_are_refused(status):
    """An API server that starts answers 401 and 403 until it knows its roles."""
    server = Server(done=True)
    server.lookups = refused(status)
    async with running("a") as world:
        world.transport.handler = server
        add_two(world)
        await world.run_for(300)
        assert server.posts == ["first"]
        assert world.scheduler.binder.cycles.count == 1
        assert [doubt.pod for doubt in world.scheduler.writer.doubts] == ["default/first"]
        server.lookups = None
        await world.run_for(10)
        assert server.bound == {"first": "a"}
        assert world.scheduler.writer.doubts == []


async def test_the_watch_settles_it():
    server = Server(done=True)
    server.lookups = refused(403)
    async with running("a", "b") as world:
        world.transport.handler = server
        add_two(world)
        await world.run_for(30)
        assert server.posts == ["first", "second"]
        pod = world.state.pods["default/first"]
        node = server.bound["first"]
        world.change(Pod, pod, msgspec.structs.replace(pod, node_name=node, resource_version="9"))
        await world.run_for(5)
        assert world.scheduler.binder.cycles.count == 0


async def test_a_place_is_free_again_when_the_binding_has_failed_for_good():
    """Nothing answers, and nothing was done: as long as a request may still take effect the place is kept."""
    server = Server(done=False)
    async with running("a") as world:
        bind, first = world.transport, "first"

        def handler(sent):
            if sent.path.endswith("/binding") and f"/{first}/" in sent.path:
                server.posts.append(first)
                return LOST
            return server(sent)

        bind.handler = handler
        add_two(world)
        await world.run_for(SETTLED - 5)
        assert set(server.posts) == {"first"}
        await world.run_for(10)
        assert server.bound == {"second": "a"}
