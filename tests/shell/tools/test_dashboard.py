"""The server of the page: who is answered, and what becomes of the feed when the scheduler goes and comes."""

import asyncio
import contextlib
import io
import itertools
import json
import re
import time
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from app.tools import scheduler_client
from app.tools.dashboard import server as module
from app.tools.dashboard import static_files
from app.tools.dashboard.server import has_windows, serving_page
from app.tools.feed_model import events_of
from app.tools.scheduler_client import Link, NotAnswered, SchedulerTarget
from app.tools.subprocesses import reserved_port

TOKEN = "secret-token-of-the-user"


class Scheduler:
    """What answers under /debug; it repeats what it was sent in what it says."""

    def __init__(self):
        self.asked = []
        #: Paths, as they were sent.
        self.paths = []
        self.authorized = set()
        self.answers = []
        self.status = 200
        #: The status of answers about pods and nodes.
        self.refusing = 200
        #: Whether the feed goes on; otherwise an answer has one event.
        self.steady = False
        self.runner = None

    async def start(self, port=0):
        app = web.Application(middlewares=[self.noting])
        app.add_routes(
            [
                web.get("/debug/feed", self.feed),
                web.get("/debug/pods/{namespace}/{name}", self.thing),
                web.get("/debug/nodes/{name}", self.thing),
                web.post("/whatif", self.question),
            ]
        )
        self.runner = web.AppRunner(app, shutdown_timeout=0)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", port).start()
        return self.runner.addresses[0][1]

    async def stop(self):
        await self.runner.cleanup()

    @web.middleware
    async def noting(self, request, handler):
        self.paths.append((request.method, request.raw_path.partition("?")[0]))
        self.authorized.add(request.headers.get("Authorization"))
        return await handler(request)

    async def feed(self, request):
        self.asked.append(request.query.get("after", ""))
        if self.status != 200:
            return web.json_response({"message": "no right"}, status=self.status)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"retry: 1\n\n")
        for number in itertools.count(len(self.asked)):
            await response.write(b'event: change\nid: 7-%d\ndata: {"a":%d}\n\n' % (number, number))
            if not self.steady:
                break
            await asyncio.sleep(0.02)
        await response.write_eof()
        return response

    async def thing(self, request):
        if self.refusing != 200:
            return web.json_response({"message": "not now"}, status=self.refusing)
        if request.match_info["name"] == "none":
            return web.json_response({"message": "there is none"}, status=404)
        return web.json_response({"path": request.raw_path})

    async def question(self, request):
        if self.refusing != 200:
            return web.json_response({"message": "not now"}, status=self.refusing)
        return web.json_response({"asked": await request.json()})


@contextlib.asynccontextmanager
async def showing(port=None):
    scheduler = Scheduler()
    if port is None:
        port = await scheduler.start()
    try:
        async with (
            serving_page(SchedulerTarget(f"http://127.0.0.1:{port}", token=TOKEN)) as url,
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
        assert headers["Content-Security-Policy"] == (
            "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
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


#: What makes HTML or code of a text, or the name of an attribute or address that could be code.
PARSING = re.compile(
    r"""innerHTML|outerHTML|insertAdjacentHTML|document\s*\.\s*write|createContextualFragment|DOMParser|srcdoc|setHTML
    |\beval\b|\bFunction\b|\bimport\s*\(|set(?:Timeout|Interval)\s*\(\s*["'`]|javascript:|\bsetAttributeNS\b
    |\b(?:href|src|action)\s*[:=]|\.cssText|\bpostMessage\b|location\s*(?:=|\.\s*(?:href|assign|replace))""",
    re.VERBOSE,
)


def test_no_text_is_parsed_as_html_or_code():
    for name, body in static_files().items():
        if name.endswith(".js"):
            assert PARSING.findall(body.decode()) == [], name
    for hostile in ("a.innerHTML = b", "x.insertAdjacentHTML('beforeend', y)", "new Function(a)"):
        assert PARSING.search(hostile)


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


async def asked(session, url, body, **headers):
    given = {"Content-Type": "application/json", **headers}
    data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    async with session.post(url + "whatif", data=data, headers=given) as answer:
        return answer.status, await answer.text()


async def test_questions_are_passed_on_with_manifests_as_objects():
    manifest = "kind: Pod\nmetadata: {name: a}\n---\n---\n" + json.dumps({"kind": "Job"})
    async with showing() as (_, url, session):
        status, text = await asked(session, url, {"question": "fits", "manifest": manifest})
        assert status == 200
        question = json.loads(text)["asked"]
        assert question["objects"] == [{"kind": "Pod", "metadata": {"name": "a"}}, {"kind": "Job"}]
        assert (question["question"], question["changes"]) == ("fits", True)
        _, text = await asked(session, url, {"question": "drain", "nodes": ["n1"]})
        question = json.loads(text)["asked"]
        assert (question["nodes"], question["changes"]) == (["n1"], False)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        {"question": "needs"},
        {"question": "fits", "extenders": True},
        {"question": "fits", "manifest": "a: [b"},
        {"question": "fits", "manifest": "just a text"},
        {"question": "fits", "manifest": "!!python/object/apply:os.system [true]"},
        {"question": "fits", "manifest": "[" * 50_000},
        {"question": "fits", "manifest": "when: 2026-11-27\n1: 2\n? [a]\n: b"},
    ],
)
async def test_what_is_no_question_is_not_passed_on(body):
    async with showing() as (scheduler, url, session):
        status, text = await asked(session, url, body)
        assert status == 400
        assert "read" in text or "no manifest" in text
        assert scheduler.paths == []


async def test_other_sites_cannot_ask():
    question = {"question": "drain", "nodes": ["n1"]}
    async with showing() as (scheduler, url, session):
        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            assert (await asked(session, url, question, **headers))[0] == 403
        assert (await asked(session, url, question, **{"Content-Type": "text/plain"}))[0] == 415
        large = {"question": "fits", "manifest": "#" * (1 << 20)}
        assert (await asked(session, url, large))[0] == 413
        assert scheduler.paths == []
        scheduler.refusing = 403
        status, text = await asked(session, url, question)
        assert (status, 'right to "post"' in text) == (502, True)


async def test_pods_and_nodes():
    async with showing() as (_, url, session):
        status, text, _ = await got(session, url + "pods/shop/cart-0")
        assert (status, json.loads(text)) == (200, {"path": "/debug/pods/shop/cart-0"})
        assert json.loads((await got(session, url + "nodes/n1"))[1]) == {"path": "/debug/nodes/n1"}
        status, text, _ = await got(session, url + "pods/shop/none")
        assert (status, "404" in text) == (404, True)


async def test_only_three_paths_can_be_asked_for():
    """Whatever is in the address; and the answers never have the user's token."""
    names = (
        "a",
        "..",
        "%2e%2e",
        "%2E.",
        ".",
        "..%2f..%2fmetrics",
        "%2fmetrics",
        "a%3fb",
        "a%23b",
        "é",
    )
    paths = [f"nodes/{name}" for name in names]
    paths += [f"pods/{first}/{second}" for first in names for second in names]
    paths += [
        "tasks",
        "flags/v",
        "queue",
        "pods/a",
        "pods/a/b/c",
        "feed/x",
        "debug/queue",
        "pods/a/none",
    ]
    async with showing() as (scheduler, url, session):
        bodies = [await told(session, url, 2)]
        for path in paths:
            async with session.get(URL(url + path, encoded=True)) as answer:
                bodies.append([answer.headers, await answer.text()])
        bodies += [await got(session, url + name) for name in ("", *static_files())]
        scheduler.status = 403
        bodies.append(await told(session, url, 1))
        asked = set(scheduler.paths)
        assert scheduler.authorized == {f"Bearer {TOKEN}"}
    assert ("GET", "/debug/pods/a/a") in asked
    assert ("GET", "/debug/nodes/..%2F..%2Fmetrics") in asked
    name = r"(?!\.{1,2}(?:/|$))[^/?#]+"
    for method, path in asked:
        assert method == "GET"
        assert re.fullmatch(rf"/debug/(?:feed|nodes/{name}|pods/{name}/{name})", path), path
    assert TOKEN not in repr(bodies)


async def test_a_file_may_lead_a_window_to_the_page_and_to_nothing_else():
    """As open_browser does it; to the server a file is another site."""
    window = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    async with showing() as (scheduler, url, session):
        assert (await got(session, url, **window, **{"Sec-Fetch-Dest": "document"}))[0] == 200
        for path in ("feed", "pods/a/b", "nodes/a", "main.js"):
            assert (await got(session, url + path, **window, **{"Sec-Fetch-Dest": "document"}))[
                0
            ] == 403
        for purpose in ("iframe", "embed", "object", "empty"):
            assert (await got(session, url, **window, **{"Sec-Fetch-Dest": purpose}))[0] == 403
        assert not scheduler.asked


async def test_no_command_line_has_the_secret(monkeypatch):
    """Other users see command lines."""
    opened = []

    def launch(address):
        file = Path(address.removeprefix("file://"))
        opened.append((address, file.stat().st_mode & 0o777, file.read_text()))

    monkeypatch.setattr(module.webbrowser, "open", launch)
    monkeypatch.setattr(module, "has_windows", lambda *_given: True)
    monkeypatch.setattr(module, "_READ_SECONDS", 0.0)
    await module.open_browser("http://127.0.0.1:1/the-secret/")
    ((address, mode, text),) = opened
    assert "the-secret" not in address
    assert mode == 0o600
    assert "url=http://127.0.0.1:1/the-secret/" in text
    assert not Path(address.removeprefix("file://")).exists()


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


@pytest.mark.parametrize("status", [401, 403, 429, 500])
async def test_a_refusal_disturbs_no_other_page(status):
    async with showing() as (scheduler, url, session):
        scheduler.steady = True
        async with session.get(url + "feed") as answer:
            events = events_of(answer.content.iter_any())
            async with asyncio.timeout(10):
                await anext(events)
                scheduler.refusing = status
                assert (await got(session, url + "pods/shop/cart-0"))[0] == 502
                for _ in range(20):
                    assert (await anext(events)).kind in {"change", "message"}
        assert len(scheduler.asked) == 1


async def test_a_feed_that_never_completes_an_event_is_given_up(monkeypatch):
    monkeypatch.setattr(scheduler_client, "EVENT_SECONDS", 0.1)

    async def drip(request):
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b": still here\n")
            await asyncio.sleep(0.01)

    application = web.Application()
    application.router.add_get("/debug/feed", drip)
    async with TestServer(application) as server:
        target = SchedulerTarget(str(server.make_url("/")).rstrip("/"))
        async with contextlib.aclosing(Link(target, "test")) as link, asyncio.timeout(30):
            with pytest.raises(NotAnswered, match="no complete event within"):
                async for _ in link.events(""):
                    pass


def test_long_events_take_linear_time():
    def seconds(pieces):
        async def chunks():
            for _ in range(pieces):
                yield b"x" * 1000
            yield b"\n\n"

        async def read():
            return [event async for event in events_of(chunks())]

        started = time.thread_time()
        assert len(asyncio.run(read())) == 1
        return time.thread_time() - started

    assert seconds(4000) < 30 * max(0.001, min(seconds(500) for _ in range(3)))


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_events_may_be_cut_anywhere(size):
    body = b"retry: 1\n\nevent: a\nid: 1\ndata: x\n\n\n\nevent: b\ndata: y\n\nevent: c\ndata"

    async def read():
        async def chunks():
            for at in range(0, len(body), size):
                yield body[at : at + size]

        return [event async for event in events_of(chunks())]

    found = [event for event in asyncio.run(read()) if event.data]
    assert found == [("a", "1", b"x"), ("b", "", b"y")]


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [({}, "linux", False), ({"DISPLAY": ":0"}, "linux", True), ({}, "darwin", True)],
)
def test_a_browser_is_opened_only_where_there_are_windows(environ, platform, expected):
    assert has_windows(environ, platform) is expected
