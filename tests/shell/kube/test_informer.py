"""An informer as a whole, on a virtual clock: what the handler is told, when all is synced, what the figures say."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import numpy as np
import pytest

from app.kube.informer import Informer, wait_synced
from app.kube.listing import SLICE
from app.kube.watch import RETRY_FIRST
from tests.shell.kube.fakes import (
    SERVICES,
    FakeTransport,
    Hang,
    Silence,
    added,
    bookmark,
    deleted,
    error_line,
    modified,
    ok,
    page,
    refused,
    service,
)

pytestmark = pytest.mark.looptime


class Told:
    """A handler that notes what it is told."""

    def __init__(self):
        self.changes = []

    def __call__(self, old, new):
        self.changes.append((old and old.name, new and new.name))


@asynccontextmanager
async def running(*transports, handlers=None, kind=SERVICES):
    handlers = handlers or [Told() for _ in transports]
    informers = [
        Informer(kind, transport, handler, rng=np.random.default_rng(3))
        for transport, handler in zip(transports, handlers, strict=True)
    ]
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        yield informers, handlers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_from_list_to_changes():
    transport = FakeTransport(
        [
            Silence(1),
            modified("a", 4) + deleted("b", 5) + added("c", 6),
            Hang(),
        ]
    )
    transport.answers.append(page(service("a", 1), service("b", 2), version=3))
    async with running(transport) as ([informer], [told]):
        await informer.synced.wait()
        assert set(informer.objects) == {"shop/a", "shop/b"}
        assert told.changes == [(None, "a"), (None, "b")]
        told.changes.clear()
        await asyncio.sleep(2)
        assert told.changes == [
            ("a", "a"),
            ("b", None),
            (None, "c"),
        ]
        assert set(informer.objects) == {"shop/a", "shop/c"}


async def test_a_second_list_tells_the_difference_only():
    transport = FakeTransport(
        [Silence(1), error_line(410)],
        [Hang()],
    )
    transport.answers += [
        page(service("same", 1), service("old", 2), service("again", 3), version=9),
        page(service("same", 1), service("again", 7, uid="other"), service("new", 8), version=20),
    ]
    async with running(transport) as ([informer], [told]):
        await informer.synced.wait()
        told.changes.clear()
        await asyncio.sleep(5)
        assert told.changes == [
            ("again", None),
            (None, "again"),
            ("old", None),
            (None, "new"),
        ]
        assert informer.statistics().lists == 2


async def test_what_has_gone_is_told_before_what_is_new_in_a_list_of_several_parts():
    transport = FakeTransport([Silence(1), error_line(410)], [Hang()])
    transport.answers.append(page(service("old", 1), version=2))
    names = [f"new-{number:04}" for number in range(2 * SLICE)]
    transport.answers.append(
        page(*(service(name, 3) for name in names[:SLICE]), version=4, token="more")
    )
    transport.answers.append(page(*(service(name, 3) for name in names[SLICE:]), version=4))
    async with running(transport) as ([informer], [told]):
        await informer.synced.wait()
        told.changes.clear()
        await asyncio.sleep(5)
        assert told.changes == [("old", None), *((None, name) for name in names)]


async def test_a_list_that_failed_adds_nothing():
    """Its continue token expires behind the first part; an object of that part has gone when the next list comes."""
    transport = FakeTransport([Silence(1), error_line(410)], [Hang()])
    transport.answers.append(page(service("old", 1), version=2))
    transport.answers.append(page(service("gone", 3), service("kept", 3), version=4, token="more"))
    transport.answers.append(refused(410))
    transport.answers.append(page(service("kept", 5), service("old", 1), version=6))
    async with running(transport) as ([informer], [told]):
        await informer.synced.wait()
        told.changes.clear()
        await asyncio.sleep(5)
        assert told.changes == [(None, "kept")]
        assert informer.objects["shop/kept"].resource_version == "5"


async def test_what_a_list_brings_to_light_may_be_told_in_one_go():
    """Changes and deletions of known objects are told as ever, and first."""
    told, seen = Told(), []

    def on_list(objects):
        assert objects.items() <= informer.objects.items()
        seen.append((list(objects), list(told.changes)))
        return {}

    transport = FakeTransport([error_line(410)], [Hang()])
    transport.answers += [
        page(service("a", 1), service("b", 2), version=9),
        page(service("a", 4), service("c", 5), version=20),
    ]
    informer = Informer(SERVICES, transport, told, rng=np.random.default_rng(3), on_list=on_list)
    task = asyncio.create_task(informer.run())
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == [(["shop/a", "shop/b"], []), (["shop/c"], [("a", "a"), ("b", None)])]
    assert told.changes == [("a", "a"), ("b", None)]


@pytest.mark.parametrize("turn", [1.0, 0.0])
async def test_a_chunk_is_handled_in_one_go_if_it_does_not_take_too_long(turn, monkeypatch):
    monkeypatch.setattr("app.kube.informer.TURN", turn)
    seen, interruptions = [], []

    def handler(_old, new):
        seen.append(new.name)

    async def onlooker():
        while True:
            interruptions.append(len(seen))
            await asyncio.sleep(0)

    events = b"".join(added(f"s{number}", number) for number in range(100))
    transport = FakeTransport([events, events[:0], Hang()])
    transport.answers.append(page(version=1))
    async with running(transport, handlers=[handler]):
        watcher = asyncio.create_task(onlooker())
        while len(seen) < 100:
            await asyncio.sleep(0)
        watcher.cancel()
    assert (set(interruptions) <= {0, 100}) if turn else (set(interruptions) >= set(range(100)))


async def test_others_get_their_turn_between_chunks():
    turns = 0

    async def onlooker():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    transport = FakeTransport([*(added(f"s{number}", number) for number in range(50)), Hang()])
    transport.answers.append(page(version=1))
    async with running(transport) as ([informer], _):
        watcher = asyncio.create_task(onlooker())
        while len(informer.objects) < 50:
            await asyncio.sleep(0)
        watcher.cancel()
    assert turns >= 50


async def test_the_barrier_waits_for_the_slowest(looptime):
    quick, slow, absent = FakeTransport(), FakeTransport(), FakeTransport()
    quick.answers.append(page(version=1))
    slow.answers += [refused(500), page(version=1)]
    groups = ok({"kind": "APIGroupList", "groups": []})
    absent.answers += [refused(404), refused(404), groups]
    kind = msgspec.structs.replace(SERVICES, path="/apis/example.com/v1/services")
    async with running(quick, slow, absent, kind=kind) as (informers, _):
        await wait_synced(informers)
        assert RETRY_FIRST <= looptime <= 2 * RETRY_FIRST
        assert [informer.statistics().served for informer in informers] == [True, True, False]


async def test_a_list_may_have_to_wait_for_that_of_another_kind(looptime):
    slow, quick = FakeTransport(), FakeTransport()
    slow.latency = 5.0
    for transport in (slow, quick):
        transport.answers.append(page(service("a", 1), version=3))
    rng = np.random.default_rng(3)
    first, told = Informer(SERVICES, slow, Told(), rng=rng), Told()
    second = Informer(SERVICES, quick, told, rng=rng, after=[first])
    tasks = [asyncio.create_task(informer.run()) for informer in (second, first)]
    await asyncio.sleep(4)
    assert quick.sent
    assert not told.changes
    await second.synced.wait()
    assert first.synced.is_set()
    assert told.changes == [(None, "a")]
    assert looptime == 5
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Picky(Told):
    """A handler that refuses some objects."""

    def __init__(self, *refused):
        super().__init__()
        self.refused = set(refused)

    def __call__(self, old, new):
        super().__call__(old, new)
        if (new or old).name in self.refused:
            raise RuntimeError("no good")


async def test_an_object_that_is_refused_costs_itself_only(caplog):
    transport = FakeTransport(
        [modified("a", 4) + modified("b", 5) + added("c", 6) + added("d", 7), Hang()]
    )
    transport.answers.append(page(service("a", 1), service("b", 2), version=3))
    told = Picky("a", "c")
    async with running(transport, handlers=[told]) as ([informer], _):
        await asyncio.sleep(1)
        assert told.changes == [
            (None, "a"),
            (None, "b"),
            ("a", "a"),
            ("b", "b"),
            (None, "c"),
            (None, "d"),
        ]
        statistics = informer.statistics()
        assert (statistics.synced, statistics.refused, statistics.handler_errors) == (True, 2, 3)
        assert informer.describe()["refused_objects"] == ["shop/a", "shop/c"]
    assert [record.getMessage() for record in caplog.records] == [
        "Service shop/a cannot be used: RuntimeError('no good')",
        "Service shop/c cannot be used: RuntimeError('no good')",
    ]


async def test_an_object_is_refused_until_it_is_not():
    transport = FakeTransport(
        [Silence(1), modified("a", 4), Silence(1), deleted("b", 5), Silence(1), modified("c", 6)]
    )
    transport.answers.append(page(*(service(name, 1) for name in "abc"), version=3))
    told = Picky("a", "b", "c")
    async with running(transport, handlers=[told]) as ([informer], _):
        await asyncio.sleep(0.5)
        assert informer.statistics().refused == 3
        told.refused.discard("a")
        await asyncio.sleep(1)
        assert informer.describe()["refused_objects"] == ["shop/b", "shop/c"]
        await asyncio.sleep(1)
        assert informer.describe()["refused_objects"] == ["shop/c"]
        await asyncio.sleep(1)
        assert informer.statistics().handler_errors == 5


@pytest.mark.parametrize("raises", [False, True])
async def test_objects_of_a_list_are_refused_one_by_one(raises):
    def on_list(objects):
        if raises:
            raise RuntimeError("no good at all")
        return {"shop/b": RuntimeError("no good")}

    transport = FakeTransport([Hang()])
    transport.answers.append(page(service("a", 1), service("b", 2), version=3))
    informer = Informer(SERVICES, transport, Told(), on_list=on_list, rng=np.random.default_rng(3))
    task = asyncio.create_task(informer.run())
    await informer.synced.wait()
    assert informer.describe()["refused_objects"] == (
        ["shop/a", "shop/b"] if raises else ["shop/b"]
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_statistics():
    transport = FakeTransport([Silence(10), bookmark(4)], [Hang()])
    transport.answers.append(
        page(service("a", 1), service("bad", 2, spec={"selector": 7}), version=3)
    )
    async with running(transport) as ([informer], _):
        before = informer.statistics()
        assert (before.synced, before.heard_at, before.age) == (False, None, None)
        await asyncio.sleep(25)
        after = informer.statistics()
    assert (after.kind, after.synced, after.objects) == ("Service", True, 1)
    assert (after.heard_at, after.age) == (10, 15)
    assert (after.lists, after.reconnects) == (1, 1)
    assert (after.decode_errors, after.unreadable) == (1, 1)


async def test_a_large_list_lets_others_have_their_turn(monkeypatch):
    """So does one in which most of the objects are missing that were there before."""
    monkeypatch.setattr("app.kube.informer.TURN", 0.0)
    sizes, onlookers = [], []

    async def onlooker(last):
        while len(informer.objects) != last:
            sizes.append(len(informer.objects))
            await asyncio.sleep(0)

    def handler(_old, new):
        if new is None and not onlookers:
            onlookers.append(asyncio.create_task(onlooker(2)))

    many = [service(f"s{number}", number) for number in range(4 * SLICE)]
    transport = FakeTransport([Silence(1), error_line(410)], [Hang()])
    transport.answers += [page(*many, version=9), page(*many[:2], version=9999)]
    async with running(transport, handlers=[handler]) as ([informer], _):
        await onlooker(4 * SLICE)
        assert {SLICE, 2 * SLICE, 3 * SLICE} <= set(sizes)
        sizes.clear()
        await asyncio.sleep(5)
        (deleting,) = onlookers
        await deleting
        assert {3 * SLICE, 2 * SLICE, SLICE} <= set(sizes)
