"""Extenders that are limited, fail or do not answer: no pod is lost, none is bound twice, and others keep their
speed."""

import asyncio

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.extender.breaker import State
from app.extender.config import ManagedResource, Verb
from app.extender.errors import CallOutcome, TransportError
from app.extender.events import CallFinished
from app.framework.testing import make_pod
from tests.shell.extender.fakes import URL
from tests.shell.scheduler.extender_world import World, scripted
from tests.shell.scheduler.test_extender_cycle import until
from tests.shell.scheduler.world import running

pytestmark = pytest.mark.looptime
GPU = "example.com/gpu"
NIC = "example.com/nic"


def now():
    return asyncio.get_running_loop().time()


class Bucket:
    """client-go's default limiter: 5 requests a second, 10 at once."""

    def __init__(self, rate=5.0, burst=10):
        self.rate, self.burst, self.free = rate, burst, float("-inf")

    async def __call__(self, requests=1):
        for _ in range(requests):
            self.free = max(self.free, now() - self.burst / self.rate) + 1 / self.rate
            await asyncio.sleep(max(0.0, self.free - now()))


class Serial:
    """A lock that is held for ``seconds()`` by each call."""

    def __init__(self, seconds):
        self.seconds, self.lock = seconds, asyncio.Lock()

    async def __call__(self):
        async with self.lock:
            await asyncio.sleep(self.seconds())


class Server:
    """An extender's server. ``before``: what a verb waits for; ``timeouts``: when calls got no answer, after the first
    ten seconds."""

    def __init__(self, **before):
        self.before, self.world, self.began, self.timeouts = before, None, now(), []
        #: The pods whose binding is refused once, and what is refused now.
        self.refuses = lambda _pod: False
        self.down = False

    def extender(self, **fields):
        return scripted(self.reply, sink=self.saw, bind_verb="bind", **fields)

    def saw(self, event):
        late = isinstance(event, CallFinished) and event.outcome is CallOutcome.TIMEOUT
        if late and now() > self.began + 10:
            self.timeouts.append(now())

    async def reply(self, verb, request):
        if self.down:
            raise TransportError(CallOutcome.UNREACHABLE, "connection refused", sent=False)
        if verb in self.before:
            await self.before[verb]()
        await asyncio.sleep(0.002)
        if verb == "filter":
            return {"NodeNames": request["NodeNames"]}
        if verb == "prioritize":
            return [{"Host": name, "Score": 1} for name in request["NodeNames"]]
        pod = request["PodName"]
        if self.refuses(pod):
            return {"Error": "no devices"}
        await self.world.bind(_Named(pod), request["Node"])
        return {"Error": ""}


class _Named:
    def __init__(self, name):
        self.name = name


def settled(*extenders):
    """Nothing is left of calls and of what waited for them."""
    for extender in extenders:
        places = extender.places
        assert not places.limit.used
        assert not places.waiting
        assert not places.limit._calls


async def play(pods, *servers, seconds=600, nodes=50, requests=None, **fields):
    """All pods are bound through these servers; seconds since the beginning, by pod in order."""
    made = [server.extender(**fields) for server in servers]
    times = []
    async with World(*made).running() as world:
        for server in servers:
            server.world = world
        world.nodes(*(f"n{number}" for number in range(nodes)), cpu="99")
        began, bind = now(), world.bind

        async def noted(pod, node):
            times.append(now() - began)
            return await bind(pod, node)

        world.bind = noted
        for number in range(pods):
            world.pod(f"p{number}", cpu="100m", **(requests or {}))
        await until(lambda: len(world.bound) == pods, seconds=seconds)
        await asyncio.sleep(10)
        settled(*made)
    return world, times


@pytest.mark.parametrize("verbs", [("filter",), ("bind",), ("filter", "bind")])
async def test_a_client_with_five_requests_a_second(verbs):
    server = Server(**dict.fromkeys(verbs, Bucket()))
    world, times = await play(60, server)
    assert times[-1] <= 1.05 * (60 * len(verbs) - 10) / 5 + 1
    assert not server.timeouts
    assert {reason for _, reason, _ in world.told} == {"Scheduled"}


async def one_after_the_other(server, pods):
    """What kube-scheduler does: filters one after the other, and each binding beside the next of them; when pods are
    bound."""
    began, bound, bindings = now(), [], []

    async def bind(pod):
        await server.reply("bind", {"PodName": pod, "Node": ""})
        bound.append(now() - began)

    class Pods:
        async def bind(self, _pod, _node):
            pass

    server.world = Pods()
    for number in range(pods):
        await server.reply("filter", {"NodeNames": []})
        bindings.append(asyncio.ensure_future(bind(f"p{number}")))
        await asyncio.sleep(0)
    await asyncio.gather(*bindings)
    return bound


LIMITED = st.sampled_from([("filter",), ("bind",), ("filter", "bind")])


@given(LIMITED, st.sampled_from([1.0, 2.0, 3.0, 5.0, 10.0, 20.0]), st.integers(1, 20))
@example(("filter",), 5.0, 10)
@example(("bind",), 2.0, 20)
@example(("filter", "bind"), 5.0, 10)
@example(("filter", "bind"), 2.0, 1)
@example(("filter", "bind"), 20.0, 5)
@example(("filter", "bind"), 20.0, 30)
@settings(max_examples=12)
async def test_no_fewer_pods_are_bound_than_one_after_the_other(verbs, rate, burst):
    """At any time: what is filtered too early takes the place of bindings, and what times out is lost."""
    pods = int(burst + 12 * rate) if len(verbs) == 1 else int(burst + 15 * rate) // 2
    pods = min(pods, 60)
    bucket = Bucket(rate, burst)
    serial = await one_after_the_other(Server(**dict.fromkeys(verbs, bucket)), pods)
    bucket = Bucket(rate, burst)
    server = Server(**dict.fromkeys(verbs, bucket))
    _, times = await play(pods, server)
    assert not server.timeouts
    for number, (ours, theirs) in enumerate(zip(times, serial, strict=True)):
        assert ours < theirs + 0.01, number


async def test_a_binding_goes_before_the_next_attempt():
    """Its call is received first, and as long as one waits for a place no pod is filtered."""
    calls = []
    server = Server(filter=Bucket(5.0, 1), bind=Bucket(5.0, 1))
    reply = server.reply

    async def noted(verb, request):
        calls.append(verb)
        return await reply(verb, request)

    server.reply = noted
    await play(20, server)
    ahead = 0
    for number, verb in enumerate(calls):
        ahead += 1 if verb == "filter" else -1
        assert ahead <= 2, number


@pytest.mark.parametrize("seconds", [0.4, 1.0, 3.0])
async def test_one_call_after_the_other(seconds):
    server = Server(filter=Serial(lambda: seconds))
    world, times = await play(30, server)
    assert times[-1] <= 1.05 * 30 * seconds + 1
    assert not server.timeouts
    failed = sum(reason == "SchedulerError" for _, reason, _ in world.told)
    assert failed < 16  # of the first calls, which were made side by side


async def test_slower_and_slower():
    began = now()
    server = Server(filter=Serial(lambda: 0.01 * (1 + now() - began)))
    world, _ = await play(100, server, seconds=2000)
    assert not server.timeouts
    assert {reason for _, reason, _ in world.told} == {"Scheduled"}


async def test_fast_for_a_minute_and_then_limited():
    began, bucket = now(), Bucket()

    async def filtered():
        if now() > began + 60:
            await bucket()

    server = Server(filter=filtered)
    made = server.extender()
    async with World(made).running() as world:
        server.world = world
        world.nodes(*(f"n{number}" for number in range(5)), cpu="99")
        for number in range(300):
            world.pod(f"p{number}", cpu="100m")
            await asyncio.sleep(0.4 if number < 150 else 0)
        await until(lambda: len(world.bound) == 300, seconds=100)
        assert now() - began < 60 + 150 / 5
    assert not server.timeouts
    assert {reason for _, reason, _ in world.told} == {"Scheduled"}


async def test_it_restarts():
    server = Server(filter=Bucket())
    made = server.extender()
    async with World(made).running() as world:
        server.world = world
        world.nodes("n0", cpu="99")
        for number in range(60):
            world.pod(f"p{number}", cpu="100m")
        await asyncio.sleep(5)
        server.down = True
        await asyncio.sleep(5)
        server.down = False
        await until(lambda: len(world.bound) == 60, seconds=60)
        await asyncio.sleep(1)
    assert made.state(Verb.FILTER) is State.CLOSED
    settled(made)


async def test_it_accepts_calls_and_never_answers():
    """Pods that do not concern it are not delayed; once it answers, all go on within the breaker's pause."""
    hangs = True

    async def hang():
        if hangs:
            await asyncio.sleep(1e6)

    silent, healthy = Server(filter=hang), Server()
    made = silent.extender(managed_resources=(ManagedResource(GPU),))
    other = healthy.extender(url_prefix="http://other", managed_resources=(ManagedResource(NIC),))
    async with World(made, other).running() as world:
        silent.world = healthy.world = world
        world.nodes("n0", "n1", cpu="99", **{GPU: "999", NIC: "999"})
        for number in range(40):
            world.pod(f"g{number}", cpu="100m", **{GPU: "1"})
            world.pod(f"n{number}", cpu="100m", **{NIC: "1"})
        await until(lambda: len(world.bound) == 40, seconds=2)
        await asyncio.sleep(60)
        assert len(silent.timeouts) < 24
        hangs = False
        await until(lambda: len(world.bound) == 80, seconds=75)
        await asyncio.sleep(1)
    settled(made, other)


async def test_each_second_binding_is_refused():
    refused = set()

    def refuses(pod):
        if pod in refused or int(pod[1:]) % 2:
            return False
        refused.add(pod)
        return True

    server = Server()
    server.refuses = refuses
    world, times = await play(60, server)
    assert times[-1] < 5
    assert sum(reason == "SchedulerError" for _, reason, _ in world.told) == 30


async def test_beside_one_that_is_limited_another_keeps_its_speed():
    limited, healthy = Server(filter=Bucket(), bind=Bucket()), Server()
    made = limited.extender(managed_resources=(ManagedResource(GPU),))
    other = healthy.extender(url_prefix="http://other", managed_resources=(ManagedResource(NIC),))
    async with World(made, other).running() as world:
        limited.world = healthy.world = world
        world.nodes(*(f"n{number}" for number in range(5)), cpu="99", **{GPU: "999", NIC: "999"})
        for number in range(100):
            world.pod(f"g{number}", cpu="100m", **{GPU: "1"})
        await asyncio.sleep(3)
        for number in range(200):
            world.pod(f"n{number}", cpu="100m", **{NIC: "1"})
        began = now()
        await until(lambda: sum(name[0] == "n" for name in world.bound) == 200, seconds=30)
        assert now() - began < 200 * 0.004 / 16 * 4
        await until(lambda: len(world.bound) == 300, seconds=60)
        await asyncio.sleep(1)
    assert not limited.timeouts
    settled(made, other)


async def test_pods_are_told_once_that_it_is_not_called():
    """The others have it in their condition; the log has one line for all."""
    lost = TransportError(CallOutcome.UNREACHABLE, "connection refused", sent=False)
    made = []

    def make(sink):
        made.append(scripted(lambda verb, request: lost, sink=sink))
        return made

    async with running("a", extenders=make) as world:
        notes, patched = [], []
        world.scheduler._pod_events.pod_event = lambda _pod, **about: notes.append(about["note"])
        put = world.scheduler.patcher.put

        def noted(pod, patch, now):
            patched.append((pod.name, patch.message))
            put(pod, patch, now)

        world.scheduler.patcher.put = noted
        for number in range(20):
            world.add(msgspec.structs.replace(make_pod(f"p{number}"), raw=b"{}"))
        await world.run_for(4)
        assert made[0].state(Verb.FILTER) is State.OPEN
    text = f'extender "{URL}" is not called because it does not answer: connection refused'
    assert notes.count(text) == 1
    assert len({pod for pod, message in patched if message == text}) > 15
