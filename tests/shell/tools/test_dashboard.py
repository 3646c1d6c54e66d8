"""The server of the page: who is answered, and what becomes of the feed when the scheduler goes and comes."""

import asyncio
import contextlib
import json
import re

import aiohttp
import pytest
from aiohttp import web

from app.tools.dashboard import server as module
from app.tools.dashboard import static_files
from app.tools.dashboard.server import has_windows, serving_page
from app.tools.feed_model import events_of
from app.tools.scheduler_client import SchedulerTarget
from app.tools.subprocesses import reserved_port


class Scheduler:
    """What answers under /debug."""

    def __init__(self):
        self.asked = []
        self.answers = []
        self.status = 200
        self.runner = None

    async def start(self, port=0):
        app = web.Application()
        app.add_routes(
            [
                web.get("/debug/feed", self.feed),
                web.get("/debug/pods/{namespace}/{name}", self.thing),
                web.get("/debug/nodes/{name}", self.thing),
            ]
        )
        self.runner = web.AppRunner(app, shutdown_timeout=0)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", port).start()
        return self.runner.addresses[0][1]

    async def stop(self):
        await self.runner.cleanup()

    async def feed(self, request):
        self.asked.append(request.query.get("after", ""))
        if self.status != 200:
            return web.json_response({"message": "no right"}, status=self.status)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        number = len(self.asked)
        await response.write(b"retry: 1\n\n")
        await response.write(b'event: change\nid: 7-%d\ndata: {"a":%d}\n\n' % (number, number))
        await response.write_eof()
        return response

    async def thing(self, request):
        if request.match_info["name"] == "none":
            return web.json_response({"message": "there is none"}, status=404)
        return web.json_response({"path": request.raw_path})


@contextlib.asynccontextmanager
async def showing(port=None):
    scheduler = Scheduler()
    if port is None:
        port = await scheduler.start()
    try:
        async with (
            serving_page(SchedulerTarget(f"http://127.0.0.1:{port}")) as url,
            aiohttp.ClientSession() as session,
        ):
            yield scheduler, url, session
    finally:
        if scheduler.runner is not None:
            await scheduler.stop()


async def got(session, url, **headers):
    async with session.get(url, headers=headers, allow_redirects=False) as answer:
        return answer.status, await answer.text(), answer.headers


async def test_the_page_and_its_files():
    async with showing() as (_, url, session):
        status, text, headers = await got(session, url)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "no-referrer"
        named = re.findall(r'(?:src|href)="([a-z.]+)"', text)
        assert {"main.js", "style.css", "theme.js", "icon.svg"} <= set(named)
        for name in static_files():
            assert (await got(session, url + name))[0] == 200
        for name in ("server.py", "..%2fserver.py", "none.js"):
            assert (await got(session, url + name))[0] == 404


def test_the_page_needs_nothing_from_elsewhere():
    """No inline script or style, which the policy forbids, and no address of another machine."""
    for name, body in static_files().items():
        text = body.decode()
        if name.endswith(".html"):
            assert not re.search(r"<style|<script>|\sstyle=|\son[a-z]+=", text)
        found = set(re.findall(r"https?://[\w./]+", text))
        assert found <= {"http://www.w3.org/2000/svg"}
        assert "innerHTML" not in text


@pytest.mark.parametrize(
    ("headers", "secret", "said"),
    [
        ({"Host": "evil.example:80"}, True, "this machine only"),
        ({"Host": "127.0.0.1"}, True, "this machine only"),
        ({"Origin": "http://evil.example"}, True, "other sites"),
        ({"Origin": "null"}, True, "other sites"),
        ({"Sec-Fetch-Site": "cross-site"}, True, "other sites"),
        ({"Sec-Fetch-Site": "same-site"}, True, "other sites"),
        ({}, False, "the address that the command has printed"),
    ],
)
async def test_others_are_refused(headers, secret, said):
    async with showing() as (scheduler, url, session):
        for path in ("", "feed", "pods/a/b", "main.js"):
            where = url + path if secret else re.sub(r"(:\d+)/[^/]+/", r"\1/guess/", url) + path
            status, text, _ = await got(session, where, **headers)
            assert (status, said in text) == (403, True), text
        assert not scheduler.asked


async def test_only_reading():
    async with showing() as (_, url, session):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with session.request(method, url + "feed") as answer:
                assert answer.status == 403


async def test_pods_and_nodes():
    async with showing() as (_, url, session):
        status, text, _ = await got(session, url + "pods/shop/cart-0")
        assert (status, json.loads(text)) == (200, {"path": "/debug/pods/shop/cart-0"})
        assert json.loads((await got(session, url + "nodes/n1"))[1]) == {"path": "/debug/nodes/n1"}
        status, text, _ = await got(session, url + "pods/shop/none")
        assert (status, "404" in text) == (404, True)


async def told(session, url, count):
    """The first events of the feed."""
    async with session.get(url + "feed") as answer:
        found = []
        async for event in events_of(answer.content.iter_any()):
            if event.data:
                found.append(event)
            if len(found) == count:
                break
        return found


async def test_answers_of_the_feed_follow_one_another():
    async with showing() as (scheduler, url, session):
        events = await told(session, url, 3)
        assert [json.loads(event.data)["a"] for event in events] == [1, 2, 3]
        assert scheduler.asked[:3] == ["", "7-1", "7-2"]


async def test_without_the_right_the_page_is_told_so():
    async with showing() as (scheduler, url, session):
        scheduler.status = 403
        (event,) = await told(session, url, 1)
        assert event.kind == "problem"
        assert "/debug/feed" in json.loads(event.data)["text"]


async def test_the_scheduler_may_come_later(monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    with reserved_port() as port:
        async with showing(port) as (scheduler, url, session):
            (event,) = await told(session, url, 1)
            assert "cannot be asked" in json.loads(event.data)["text"]
            await scheduler.start(port)
            async with session.get(url + "feed") as answer, asyncio.timeout(30):
                async for event in events_of(answer.content.iter_any()):
                    if event.kind == "change":
                        break


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [({}, "linux", False), ({"DISPLAY": ":0"}, "linux", True), ({}, "darwin", True)],
)
def test_a_browser_is_opened_only_where_there_are_windows(environ, platform, expected):
    assert has_windows(environ, platform) is expected
