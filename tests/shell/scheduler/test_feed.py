"""/debug/feed: who gets what and when, and that it ends."""

import asyncio
import contextlib
import json

import pytest

from app.framework.testing import make_node
from app.model.objects import Node
from app.runtime.tasks import at_once
from app.serving import feed as module
from app.serving.feed import INTERVAL
from app.tools.feed_model import FeedModel, events_of
from tests.shell.scheduler.test_endpoints import browsing


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 0.01)


@contextlib.asynccontextmanager
async def listening(browser, **headers):
    async with browser._client.get("/debug/feed", headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        yield aiter(named(answer))


async def named(answer):
    async for event in events_of(answer.content.iter_any()):
        if event.data:
            yield event


async def test_a_snapshot_and_then_changes():
    async with browsing("n1") as browser, listening(browser) as events:
        first, model = await anext(events), FeedModel()
        assert first.kind == "snapshot"
        model.apply(first.kind, first.data)
        assert [node.name for node in model.nodes.values()] == ["n1"]
        browser.world.change(Node, None, make_node("n2"))
        while len(model.nodes) == 1:
            event = await anext(events)
            assert event.kind == "change"
            model.apply(event.kind, event.data)
        assert {node.name for node in model.nodes.values()} == {"n1", "n2"}
        assert model.sections["scheduler"]["version"] == "1.2.3"
        assert "sched-handler-sync" in [name for name, *_ in model.sections["health"]]


async def test_a_listener_continues_where_it_was():
    async with browsing("n1") as browser:
        async with listening(browser) as events:
            await anext(events)
            seen = await anext(events)
        async with listening(browser, **{"Last-Event-ID": seen.number}) as events:
            following = await anext(events)
        assert following.kind == "change"
        assert int(following.number.split("-")[1]) == int(seen.number.split("-")[1]) + 1
        for other in ("1-1", "x", f"{seen.number}9"):
            async with listening(browser, **{"Last-Event-ID": other}) as events:
                assert (await anext(events)).kind == "snapshot"


async def test_all_listeners_get_the_same_and_it_is_computed_once(monkeypatch):
    async with browsing("n1") as browser:
        feed, advanced = browser.endpoints.feed._feed, []
        advance = feed.advance
        monkeypatch.setattr(feed, "advance", lambda: (advanced.append(1), advance())[1])

        async def follow():
            async with listening(browser) as events:
                return {e.number: e.data for e in [await anext(events) for _ in range(10)]}

        told = await asyncio.gather(*(follow() for _ in range(20)))
        common = set.intersection(*(set(each) for each in told))
        assert common
        for number in common:
            assert len({each[number] for each in told if b'"nodes":{' not in each[number]}) <= 1
        assert len(advanced) <= 40


async def test_a_listener_that_is_too_slow_gets_a_snapshot_and_is_counted(monkeypatch):
    async with browsing("n1") as browser, listening(browser) as events:
        first = await anext(events)
        feed = browser.endpoints.feed._feed
        for _ in range(30):
            at_once(feed.advance())
        kinds = [(await anext(events)).kind for _ in range(2)]
        assert first.kind == "snapshot"
        assert "snapshot" in kinds
        assert "aiokube_scheduler_feed_skips_total 1.0" in await browser.get("/metrics")
        assert "aiokube_scheduler_feed_listeners 1.0" in await browser.get("/metrics")


async def test_only_so_many_listeners(monkeypatch):
    monkeypatch.setattr(module, "MAX_LISTENERS", 1)
    async with browsing("n1") as browser, listening(browser) as events:
        await anext(events)
        assert "1 listeners are served" in await browser.get("/debug/feed", status=429)


async def test_nothing_is_kept_once_all_have_left(monkeypatch):
    monkeypatch.setattr(module, "LINGER_SECONDS", 0.0)
    async with browsing("n1") as browser:
        recent = browser.world.telemetry.recent
        async with listening(browser) as events:
            await anext(events)
            assert recent.listening
        while recent.listening:  # the server notices at its next write
            await asyncio.sleep(0.001)
        assert not browser.endpoints.feed._feed._sections


@pytest.mark.parametrize("how", ["stop", "end", "time"])
async def test_answers_end(how, monkeypatch):
    async with browsing("n1") as browser:
        if how == "time":
            monkeypatch.setattr(module, "FEED_SECONDS", 0.05)
        async with listening(browser) as events:
            await anext(events)
            if how == "stop":
                browser.stop()
            elif how == "end":
                browser.endpoints.feed.end()
            async for _ in events:
                pass


async def test_a_feed_that_fails_breaks_off_and_is_named(monkeypatch, caplog):
    async with browsing("n1") as browser:

        def fail():
            yield
            raise RuntimeError("cannot go on")

        async with listening(browser) as events:
            await anext(events)
            monkeypatch.setattr(browser.endpoints.feed._feed, "advance", fail)
            with contextlib.suppress(Exception):
                async for _ in events:
                    pass
        assert "cannot go on" in caplog.text
        monkeypatch.undo()
        monkeypatch.setattr(module, "INTERVAL", 0.01)
        async with listening(browser) as events:
            assert (await anext(events)).kind == "snapshot"


@pytest.mark.parametrize("path", ["/debug/feed", "/debug/cache", "/metrics/resources"])
async def test_head_is_answered_without_a_body(path):
    """What is sent after the headers would be the beginning of the next answer of the connection."""
    async with browsing("n1") as browser:
        server = browser._client.server
        reader, writer = await asyncio.open_connection(server.host, server.port)
        try:
            for method, target in (("HEAD", path), ("GET", "/livez")):
                writer.write(f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(2) == b"ok"
        finally:
            writer.close()
            await writer.wait_closed()


async def test_one_node_with_its_pods():
    async with browsing("n1") as browser:
        await browser.get("/debug/nodes/n2", status=404)
        found = json.loads(await browser.get("/debug/nodes/n1"))
        assert found["node"]["name"] == "n1"
        assert found["node"]["allocatable"]["cpu"] == 4000
        assert found["pods"] == []


def test_the_answer_ends_before_the_limit_of_requests():
    from app.serving.server import REQUEST_SECONDS

    assert module.FEED_SECONDS + 2 * INTERVAL < REQUEST_SECONDS
