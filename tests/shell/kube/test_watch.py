"""The three functions of rising patience and the lists they begin with, on a virtual clock and a scripted transport.

Left out: real connections (test_client.py) and what becomes of the events (test_store.py, test_informer.py).
"""

import asyncio
from contextlib import aclosing

import msgspec
import numpy as np
import pytest

from app.kube import watch
from app.kube.errors import ConnectionFailed, Expired, Forbidden
from app.kube.listing import PAGE_SIZE, SLICE, list_pages
from app.kube.transport import Response
from app.kube.watch import watch_forever, watch_once, watch_resuming
from app.kube.watch_decoder import KindFeed, ListPart, ResourceKind
from app.model.devices import ResourceClaim
from app.wire.kube import decoder_for
from tests.shell.kube.fakes import (
    SERVICES,
    FakeTransport,
    Hang,
    Silence,
    added,
    bookmark,
    error_line,
    modified,
    ok,
    page,
    refused,
    service,
)

pytestmark = pytest.mark.looptime

BROKEN = ConnectionFailed("GET stream: connection reset", sent=True)


def rng():
    return np.random.default_rng(1)


def names(events):
    return [(kind, item.name, int(item.resource_version)) for kind, item in events]


async def take(updates, count):
    """The first ``count`` updates, the parts of a list put together and empty batches left out."""
    taken, listed = [], []
    async with aclosing(updates):
        async for update in updates:
            if isinstance(update, ListPart):
                listed += [item.name for item in update.items.values()]
                if update.keys is not None:
                    taken.append(sorted(listed))
                    listed = []
            elif update:
                taken.append(names(update))
            if len(taken) == count:
                return taken
    raise AssertionError(f"ended after {taken}")


# ---------------------------------------------------------------- one connection


async def test_one_connection_gives_lines_and_ends():
    transport = FakeTransport([added("a", 1) + added("b", 2)[:9], added("b", 2)[9:]])
    batches = [batch async for batch in watch_once(transport, "/api/v1/services", {}, rng())]
    assert [len(batch) for batch in batches] == [1, 1]
    assert transport.open_streams == 0


async def test_the_server_is_asked_to_end_the_connection_and_outwaited(looptime):
    transport = FakeTransport([added("a", 1), Hang()])
    with pytest.raises(ConnectionFailed):
        async for _ in watch_once(transport, "/api/v1/services", {"fieldSelector": "x=y"}, rng()):
            pass
    (params,) = transport.streamed
    life = int(params.pop("timeoutSeconds"))
    assert params == {"watch": "true", "allowWatchBookmarks": "true", "fieldSelector": "x=y"}
    assert 60 <= life <= 120
    assert looptime == life + watch.SLACK


async def test_lives_are_jittered():
    lives, chance = set(), rng()
    for _ in range(10):
        transport = FakeTransport([])
        async for _ in watch_once(transport, "/x", {}, chance):
            pass
        lives.add(transport.streamed[0]["timeoutSeconds"])
    assert len(lives) > 5


# ---------------------------------------------------------------- resuming


def feed_at(version):
    feed = KindFeed(SERVICES)
    feed.resource_version = version
    return feed


async def test_resumes_from_the_last_event_after_a_break():
    transport = FakeTransport([added("a", 11), BROKEN], [modified("a", 12), Hang()])
    taken = await take(watch_resuming(transport, feed_at("10"), rng()), 2)
    assert taken == [[("ADDED", "a", 11)], [("MODIFIED", "a", 12)]]
    assert [params["resourceVersion"] for params in transport.streamed] == ["10", "11"]


async def test_resumes_from_a_bookmark():
    transport = FakeTransport([bookmark(40), BROKEN], [added("a", 41), Hang()])
    feed = feed_at("10")
    await take(watch_resuming(transport, feed, rng()), 2)
    assert [params["resourceVersion"] for params in transport.streamed] == ["10", "40"]
    assert feed.reconnects == 1


async def test_a_line_cut_off_by_a_break_comes_again_whole():
    whole = modified("a", 12)
    transport = FakeTransport([added("a", 11) + whole[:40], BROKEN], [whole, Hang()])
    taken = await take(watch_resuming(transport, feed_at("10"), rng()), 2)
    assert taken == [[("ADDED", "a", 11)], [("MODIFIED", "a", 12)]]


async def test_a_watch_that_the_server_ends_is_renewed_at_once(looptime):
    transport = FakeTransport([Silence(59)], [Silence(59)], [added("a", 11), Hang()])
    await take(watch_resuming(transport, feed_at("10"), rng()), 1)
    assert looptime == 118


async def test_a_watch_that_ends_as_it_begins_is_not_repeated_without_a_pause(looptime):
    transport = FakeTransport([bookmark(11)], [bookmark(12)], [added("a", 13), Hang()])
    await take(watch_resuming(transport, feed_at("10"), rng()), 3)
    assert 0.2 <= looptime <= 0.4


async def test_a_silent_watch_is_noticed(looptime):
    transport = FakeTransport([Hang()], [added("a", 11), Hang()])
    await take(watch_resuming(transport, feed_at("10"), rng()), 1)
    assert 60 + watch.SLACK <= looptime <= 121 + watch.SLACK


async def test_waits_grow_while_the_server_is_away(looptime):
    down = [ConnectionFailed("refused", sent=False) for _ in range(30)]
    transport = FakeTransport(*down, [added("a", 11), Hang()])
    await take(watch_resuming(transport, feed_at("10"), rng()), 1)
    assert 24 * watch.RETRY_LONGEST < looptime < 30 * 2 * watch.RETRY_LONGEST
    assert {params["resourceVersion"] for params in transport.streamed} == {"10"}


@pytest.mark.parametrize(
    "trouble",
    [refused(500), refused(503), refused(429), [error_line(500, "InternalError")]],
    ids=["500", "503", "429", "ERROR 500"],
)
async def test_passing_trouble_is_waited_out(trouble):
    transport = FakeTransport(trouble, [added("a", 11), Hang()])
    assert await take(watch_resuming(transport, feed_at("10"), rng()), 1) == [[("ADDED", "a", 11)]]


@pytest.mark.parametrize(
    "answer", [refused(410), [error_line(410)]], ids=["as status", "as ERROR line"]
)
async def test_lost_history_is_reported(answer):
    with pytest.raises(Expired):
        await take(watch_resuming(FakeTransport(answer), feed_at("10"), rng()), 1)


async def test_what_waiting_does_not_heal_is_reported():
    with pytest.raises(Forbidden):
        await take(watch_resuming(FakeTransport(refused(403)), feed_at("10"), rng()), 1)


async def test_leaving_closes_the_connection():
    transport = FakeTransport([added("a", 11), Hang()])
    await take(watch_resuming(transport, feed_at("10"), rng()), 1)
    assert transport.open_streams == 0


async def test_cancelling_closes_the_connection():
    transport = FakeTransport([Hang()])

    async def follow():
        async for _ in watch_resuming(transport, feed_at("10"), rng()):
            pass

    task = asyncio.create_task(follow())
    await asyncio.sleep(1)
    assert transport.open_streams == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert transport.open_streams == 0


# ---------------------------------------------------------------- pages


async def listed(transport, feed):
    """The list as a whole: its names, and the keys that the last part has."""
    parts = [part async for part in list_pages(transport, feed)]
    assert [part.keys is None for part in parts] == [True] * (len(parts) - 1) + [False]
    return [item.name for part in parts for item in part.items.values()], parts[-1].keys


async def test_pages_are_joined():
    transport = FakeTransport()
    transport.answers += [
        page(service("a", 1), version=30, token="more"),
        page(service("b", 2), version=30, token="and more"),
        page(service("c", 3), version=30),
    ]
    feed = KindFeed(SERVICES)
    assert await listed(transport, feed) == (["a", "b", "c"], {"shop/a", "shop/b", "shop/c"})
    assert feed.resource_version == "30"
    assert [sent.params.get("continue") for sent in transport.sent] == [None, "more", "and more"]
    assert {sent.params["limit"] for sent in transport.sent} == {str(PAGE_SIZE)}


async def test_the_next_page_is_on_its_way_while_one_is_handed_out():
    transport = FakeTransport()
    transport.answers += [
        page(*(service(f"s{i}", i) for i in range(2 * SLICE)), version=30, token="more"),
        page(service("last", 2), version=30),
    ]
    async with aclosing(list_pages(transport, KindFeed(SERVICES))) as parts:
        assert len((await anext(parts)).items) == SLICE
        await asyncio.sleep(0)
        assert [sent.params.get("continue") for sent in transport.sent] == [None, "more"]


async def test_a_list_that_is_not_read_to_its_end_leaves_nothing_behind(looptime):
    transport = FakeTransport()
    transport.latency = 20
    transport.answers += [page(service("a", 1), version=30, token="more"), refused(500)]
    feed = KindFeed(SERVICES)
    async with aclosing(list_pages(transport, feed)) as parts:
        await anext(parts)
    assert looptime == 20, "the next page is not waited for"
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (feed.resource_version, feed.lists) == ("", 0)


async def test_an_old_continue_token_means_one_whole_list():
    transport = FakeTransport()
    transport.answers += [
        page(service("a", 1), service("gone", 1), version=30, token="more"),
        refused(410),
        page(service("a", 1), service("b", 2), version=40),
    ]
    feed = KindFeed(SERVICES)
    assert await listed(transport, feed) == (["a", "gone", "a", "b"], {"shop/a", "shop/b"})
    assert feed.resource_version == "40"
    assert transport.sent[-1].params == {}


async def test_a_list_that_fails_begins_again(looptime):
    transport = FakeTransport([modified("a", 41), Hang()])
    transport.answers += [
        page(service("a", 1), version=30, token="more"),
        refused(500),
        page(service("a", 1), version=40),
    ]
    taken = await take(watch_forever(transport, KindFeed(SERVICES), rng()), 2)
    assert taken == [["a", "a"], [("MODIFIED", "a", 41)]]
    assert transport.streamed[0]["resourceVersion"] == "40"


async def test_an_unreadable_object_in_a_list_costs_itself_only(caplog):
    transport = FakeTransport()
    transport.answers.append(
        page(service("a", 1), service("bad", 2, spec={"selector": 7}), version=30)
    )
    feed = KindFeed(SERVICES)
    assert await listed(transport, feed) == (["a"], {"shop/a", "shop/bad"})
    assert feed.decode_errors == 1
    assert feed.unreadable == {"shop/bad"}


async def test_the_field_selector_is_part_of_every_request():
    kind = ResourceKind("Service", "/api/v1/services", SERVICES.decoder, "spec.type=ClusterIP")
    transport = FakeTransport([added("a", 31), Hang()])
    transport.answers.append(page(version=30))
    await take(watch_forever(transport, KindFeed(kind), rng()), 2)
    assert transport.sent[0].params["fieldSelector"] == "spec.type=ClusterIP"
    assert transport.streamed[0]["fieldSelector"] == "spec.type=ClusterIP"


# ---------------------------------------------------------------- for ever


async def test_list_then_watch():
    transport = FakeTransport([modified("a", 31), Hang()])
    transport.answers.append(page(service("a", 1), version=30))
    taken = await take(watch_forever(transport, KindFeed(SERVICES), rng()), 2)
    assert taken == [["a"], [("MODIFIED", "a", 31)]]
    assert transport.streamed[0]["resourceVersion"] == "30"


@pytest.mark.parametrize(
    "answer", [refused(410), [error_line(410)]], ids=["as status", "as ERROR line"]
)
async def test_lost_history_means_another_list(answer):
    transport = FakeTransport(answer, [added("c", 51), Hang()])
    transport.answers += [page(service("a", 1), version=30), page(service("b", 2), version=50)]
    taken = await take(watch_forever(transport, KindFeed(SERVICES), rng()), 3)
    assert taken == [["a"], ["b"], [("ADDED", "c", 51)]]


async def test_a_server_that_always_forgets_is_not_asked_all_the_time(looptime):
    transport = FakeTransport(*[refused(410) for _ in range(20)])
    transport.answers += [page(version=number) for number in range(21)]
    await take(watch_forever(transport, KindFeed(SERVICES), rng()), 21)
    assert looptime > 60


async def test_trouble_that_is_over_makes_nobody_wait_later():
    transport = FakeTransport([added("a", 31), error_line(410)], [Hang()])
    transport.answers += [*[refused(500)] * 6, page(version=30), page(version=40)]
    now = asyncio.get_running_loop().time
    async with aclosing(watch_forever(transport, KindFeed(SERVICES), rng())) as updates:
        async for update in updates:
            if update and not isinstance(update, ListPart):
                break
        lost = now()
        async for update in updates:
            if isinstance(update, ListPart):
                break
        assert now() - lost <= 2 * watch.RETRY_FIRST


CLAIMS = ResourceKind(
    "ResourceClaim",
    "/apis/resource.k8s.io/v1/resourceclaims",
    decoder_for(ResourceClaim),
)
GROUPS = {"kind": "APIGroupList", "groups": [{"versions": [{"groupVersion": "apps/v1"}]}]}
RESOURCES = {"kind": "APIResourceList", "resources": [{"name": "resourceslices"}]}


def server(**answers):
    """A server with these answers to ``list``, ``version`` and ``groups``; 404 where there is none."""
    names = {CLAIMS.path: "list", "/apis/resource.k8s.io/v1": "version", "/apis": "groups"}

    def answer(sent):
        known = answers.get(names[sent.path])
        return refused(404, "no such kind") if known is None else ok(known)

    return FakeTransport(handler=answer)


@pytest.mark.parametrize("says", [{"groups": GROUPS}, {"version": RESOURCES}])
async def test_a_kind_that_the_server_does_not_have_is_empty_and_asked_for_rarely(
    says, looptime, caplog
):
    feed = KindFeed(CLAIMS)
    assert await take(watch_forever(server(**says), feed, rng()), 3) == [[], [], []]
    assert not feed.served
    assert 2 * watch.ABSENT_RETRY <= looptime <= 4 * watch.ABSENT_RETRY
    assert "no such kind" in caplog.text


async def test_an_optional_kind_that_the_server_does_not_have_is_not_worth_a_warning(caplog):
    feed = KindFeed(msgspec.structs.replace(CLAIMS, optional=True))
    assert await take(watch_forever(server(groups=GROUPS), feed, rng()), 1) == [[]]
    assert not feed.served
    assert not caplog.text


async def test_an_optional_kind_that_the_server_does_not_have_may_be_forbidden(looptime, caplog):
    """As for kube-scheduler's role: the server checks rights before it looks for the kind."""
    has = server(groups=GROUPS)
    transport = FakeTransport(
        handler=lambda sent: (
            refused(403, "no right") if sent.path == CLAIMS.path else has.handler(sent)
        )
    )
    feed = KindFeed(msgspec.structs.replace(CLAIMS, optional=True))
    assert await take(watch_forever(transport, feed, rng()), 1) == [[]]
    assert looptime < 1
    assert not feed.served
    assert not caplog.text


async def test_an_optional_kind_that_may_not_be_read_is_empty_after_a_while(looptime, caplog):
    kind = msgspec.structs.replace(CLAIMS, optional=True)
    feed = KindFeed(kind)
    transport = FakeTransport(handler=lambda _: refused(403, "no right"))
    assert await take(watch_forever(transport, feed, rng()), 1) == [[]]
    assert watch.FORBIDDEN_SECONDS <= looptime <= 3 * watch.FORBIDDEN_SECONDS
    assert not feed.served
    assert "counts as absent: it may not be read" in caplog.text


async def test_an_optional_kind_is_not_absent_while_others_are_refused_too(looptime):
    """An API server that starts may refuse everything for longer."""
    feed = KindFeed(msgspec.structs.replace(CLAIMS, optional=True))
    transport = FakeTransport(handler=lambda _: refused(403, "RBAC: not yet known"))
    updates = watch_forever(transport, feed, rng(), lambda: looptime >= 60.0)
    assert await take(updates, 1) == [[]]
    assert looptime >= 60.0


async def test_another_kind_that_may_not_be_read_is_waited_for():
    transport = FakeTransport(handler=lambda _: refused(403, "no right"))
    assert await nothing(transport, KindFeed(CLAIMS))


async def nothing(transport, feed, seconds=600.0):
    """Whether nothing is heard for so long."""
    updates = watch_forever(transport, feed, rng())
    async with aclosing(updates):
        try:
            async with asyncio.timeout(seconds):
                await anext(updates)
        except TimeoutError:
            return True
    return False


@pytest.mark.parametrize(
    "says",
    [
        {},
        {"groups": {"kind": "Status"}},
        {
            "groups": {
                "kind": "APIGroupList",
                "groups": [{"versions": [{"groupVersion": "resource.k8s.io/v1"}]}],
            }
        },
        {"version": {"kind": "APIResourceList", "resources": [{"name": "resourceclaims"}]}},
        {"version": {"kind": "APIResourceList", "resources": 5}},
    ],
)
async def test_a_404_alone_does_not_mean_that_there_is_no_such_kind(says):
    """It may come from a proxy that has lost the server."""
    feed = KindFeed(CLAIMS)
    assert await nothing(server(**says), feed)
    assert feed.served


async def test_kinds_that_every_server_has_are_never_empty_by_a_404():
    transport = FakeTransport(handler=lambda sent: refused(404, "no such kind"))
    assert await nothing(transport, KindFeed(SERVICES))
    assert {sent.path for sent in transport.sent} == {SERVICES.path}


VERSIONED = msgspec.structs.replace(
    CLAIMS,
    path="/apis/example.com/v1beta1/claims",
    older=("/apis/example.com/v1alpha3/claims", "/apis/example.com/v1alpha2/claims"),
)


def versions(served):
    """A server that has the versions in ``served``, which may change."""

    def answer(sent):
        if sent.path == "/apis":
            names = [{"groupVersion": f"example.com/{version}"} for version in served]
            return ok({"kind": "APIGroupList", "groups": [{"versions": names}]})
        if sent.path.endswith("/claims") and sent.path.split("/")[3] in served:
            return ok({"metadata": {"resourceVersion": "3"}, "items": []})
        return refused(404, "no such version")

    return FakeTransport(handler=answer)


@pytest.mark.parametrize(
    ("served", "used"),
    [(["v1alpha2"], "v1alpha2"), (["v1alpha2", "v1alpha3"], "v1alpha3"), (["v1beta1"], "v1beta1")],
)
async def test_the_newest_version_that_is_served_is_watched(served, used, caplog):
    feed = KindFeed(VERSIONED)
    transport = versions(served)
    assert await take(watch_forever(transport, feed, rng()), 1) == [[]]
    assert (feed.kind.path, feed.served) == (f"/apis/example.com/{used}/claims", True)
    assert not caplog.text


async def test_a_question_about_a_version_that_fails_does_not_make_the_kind_absent():
    transport = versions(["v1alpha2"])
    answer, failures = transport.handler, [refused(503, "busy")]
    asked = f"{VERSIONED.older[0].rpartition('/')[0]}"
    transport.handler = lambda sent: (
        failures.pop() if failures and sent.path == asked else answer(sent)
    )
    feed = KindFeed(VERSIONED)
    assert await take(watch_forever(transport, feed, rng()), 1) == [[]]
    assert not failures
    assert (feed.kind.path, feed.served) == (VERSIONED.older[1], True)


async def test_a_server_that_changes_its_version_is_followed(looptime):
    served = ["v1alpha2"]
    transport = versions(served)
    transport.streams += [refused(404, "no such version"), [Hang()]]
    feed = KindFeed(VERSIONED)
    updates = watch_forever(transport, feed, rng())
    async with aclosing(updates):
        assert (await anext(updates)).keys == frozenset()
        served[:] = ["v1beta1"]
        assert (await anext(updates)).keys == frozenset()
    assert feed.kind.path == VERSIONED.path
    assert looptime < 2 * watch.RETRY_FIRST


async def test_a_kind_without_any_version_is_absent_and_found_later(looptime):
    served = []
    feed = KindFeed(msgspec.structs.replace(VERSIONED, optional=True))
    updates = watch_forever(versions(served), feed, rng())
    async with aclosing(updates):
        await anext(updates)
        assert not feed.served
        served.append("v1alpha3")
        await anext(updates)
    assert (feed.kind.path, feed.served) == (VERSIONED.older[0], True)
    assert looptime >= watch.ABSENT_RETRY


@pytest.mark.parametrize("stray", ["list", "watch"])
async def test_a_404_for_a_kind_that_was_there_changes_nothing(stray, looptime):
    answers = {"list": {"metadata": {"resourceVersion": "3"}, "items": [service("a", 1)]}}
    transport = server(**answers, groups=GROUPS)
    transport.streams.append(refused(404) if stray == "watch" else refused(410))
    transport.streams.append([Hang()])
    feed = KindFeed(CLAIMS)
    updates = watch_forever(transport, feed, rng())
    async with aclosing(updates):
        assert list((await anext(updates)).items) == ["shop/a"]
        assert (await anext(updates)).keys == {"shop/a"}
        if stray == "list":
            transport.handler, handler = lambda sent: refused(404), transport.handler
            asyncio.get_running_loop().call_later(20, setattr, transport, "handler", handler)
        assert list((await anext(updates)).items) == ["shop/a"]
    assert feed.served
    assert (looptime > 20) == (stray == "list")


async def test_a_line_that_is_no_event_means_another_list():
    transport = FakeTransport([added("a", 4) + b'{"type":"ADDED","obj\n' + added("c", 6)], [Hang()])
    transport.answers += [page(version=3), page(service("a", 4), service("b", 5), version=7)]
    feed = KindFeed(SERVICES)
    got = await take(watch_forever(transport, feed, rng()), 3)
    assert got == [[], [("ADDED", "a", 4)], ["a", "b"]]


@pytest.mark.parametrize(
    "value", ["[" * 1_200 + "]" * 1_200, "[" * 10_000 + "]" * 10_000, r'"\ud800"']
)
async def test_what_msgspec_cannot_read_is_no_trouble_in_a_list(value):
    body = page(service("a", 1), service("b", 2), version=3).body
    body = body.replace(b'"name"', b'"managedFields":%s,"name"' % value.encode(), 1)
    transport = FakeTransport()
    transport.answers.append(Response(200, body))
    feed = KindFeed(SERVICES)
    assert await take(watch_forever(transport, feed, rng()), 1) == [["a", "b"]]
    assert feed.decode_errors == 0


async def test_trouble_is_logged_once_a_minute_and_asked_again(looptime, caplog):
    answers = [refused(403, "services is forbidden")] * 20 + [page(version=3)]
    transport = FakeTransport()
    transport.answers += answers
    assert await take(watch_forever(transport, KindFeed(SERVICES), rng()), 1) == [[]]
    assert looptime > 60
    assert 2 <= len(caplog.records) <= looptime // watch.REPEAT_LOG + 1


async def test_a_body_that_is_no_list_is_trouble_like_any_other(caplog):
    transport = FakeTransport()
    transport.answers += [msgspec.structs.replace(page(version=1), body=b"<html>"), page(version=3)]
    assert await take(watch_forever(transport, KindFeed(SERVICES), rng()), 1) == [[]]
    assert "unreadable list" in caplog.text
