"""Odd requests to the real endpoints: each is answered, none with a status of 5xx, and none fills the log."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator

import pytest
from prometheus_client import generate_latest

from app.framework.testing import make_pod
from app.kube.reviews import Access, User
from app.runtime import logs
from app.runtime.clock import SystemClock
from app.scheduler.endpoints import Endpoints
from app.serving.access import Authenticator, Authorizer
from app.serving.listening import Listening
from app.serving.options import ServingOptions
from app.serving.server import serving
from tests.shell.scheduler.world import CONFIG, running

REQUEUE = (
    "---\napiVersion: aiokube-scheduler.io/v1alpha1\nkind: AiokubeSchedulerConfiguration\n"
    "requeueEndpoint: {enabled: true}\n"
)


class Everybody:
    """An API server that knows every token and allows everything, as far as it can be asked."""

    async def who_has(self, token):
        token.encode()
        return User("somebody")

    async def may(self, user, verb, path):
        f"{verb}{path}".encode()
        return Access(allowed=True)


class Caller:
    def __init__(self, port, world):
        self.port, self.world = port, world

    async def send(self, request):
        """The whole answer to these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        return answer

    async def status(self, method, path, body=b"", headers=(), **more):
        """The status of the answer to a request."""
        length = [f"Content-Length: {len(body)}".encode()] if more.get("length", True) else []
        lines = [b"Host: x", b"Connection: close", *length, *headers]
        line = f"{method} {path} HTTP/1.1".encode("utf-8", "surrogateescape")
        answer = await self.send(b"\r\n".join([line, *lines, b"", b""]) + body)
        protocol, status = answer.split(b" ")[:2]
        assert protocol in {b"HTTP/1.1", b"HTTP/1.0"}
        return int(status)


@contextlib.asynccontextmanager
async def serving_everybody(endpoints: Endpoints) -> AsyncIterator[Listening]:
    """The endpoints on a port of this machine, without TLS."""
    options = ServingOptions(secure_port=0, bind_address="127.0.0.1", insecure_http=True)
    everybody = Everybody()
    async with serving(
        endpoints.routes,
        options,
        authenticator=Authenticator(options, everybody),
        authorizer=Authorizer(options, everybody),
        metrics=endpoints.metrics,
        wall=SystemClock().wall,
    ) as listening:
        yield listening


@contextlib.asynccontextmanager
async def calling():
    async with running("a", config=CONFIG + REQUEUE) as world:
        for informer in world.scheduler.informers:
            informer.synced.set()
        world.add(make_pod("p"))
        await world.settle()
        async with serving_everybody(world.endpoints()) as listening:
            yield Caller(listening.port, world)


@pytest.fixture(autouse=True)
def quiet(caplog):
    """Nothing that a caller sends is worth an error in the log."""
    caplog.set_level(logging.INFO)
    yield
    logs.set_verbosity(0)
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


PATHS = [
    *("/", "//", "*", "/%", "/%zz", "/a\tb", "/[", "/]", "?", "/\u00fc", "\udcff", "/\udcff"),
    *("/healthz/../metrics", "/livez?verbose", "/readyz?exclude=%ff", "/HEALTHZ", "/healthz;x=1"),
    f"/readyz?exclude={'x,' * 2000}",
    *("/metrics?name[]=%00", "/metrics/resources", "/metrics/slis", "/configz", "/statusz"),
    *("/flagz", "/debug", "/debug/", "/debug/queue", "/debug/cache", "/debug/cache/compare"),
    *("/debug/tasks", "/debug/flags/v", "/extenders/requeue"),
    *(
        "/debug/pods",
        "/debug/pods?limit=1&limit=2",
        "/debug/pods?limit=%ff",
        "/debug/pods?\udcff=1",
    ),
    *("/debug/pods/default/p", "/debug/pods/%00/%ff", "/debug/pods/%ed%a0%80/x", "/debug/pods//"),
    *(
        "/debug/pods/\udcff/\udcfe",
        "/debug/pods/..%2f..%2fetc",
        f"/debug/pods/default/{'x' * 3000}",
    ),
    *("http://evil/metrics", "http://[::bad/metrics", "http://x:99999/metrics", "//evil/metrics"),
]
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW", "CONNECT")


async def test_odd_paths_and_methods():
    async with calling() as caller:
        for path, method in itertools.product(PATHS, METHODS):
            assert await caller.status(method, path) < 500, (method, path)


HEADERS = [
    *(b"Authorization: Bearer \xff", b"Authorization: \xff", b"Authorization:"),
    b"Authorization: Bearer " + b"x" * 5000,
    *(b"Accept: \xff", b"Accept: application/json;;;,", b"Accept-Encoding: gzip;q=x,\xff"),
    *(b"Content-Type: text/plain; charset=bogus", b"Content-Type: \xff"),
    *(b"Content-Encoding: gzip", b"Content-Encoding: br", b"Content-Encoding: deflate"),
    *(b"Range: bytes=0-1", b"If-Modified-Since: x", b"Cookie: \xff=\xff", b"Host: ]"),
    *(b"Upgrade: websocket", b"Expect: something"),
]
REQUESTS = [
    ("GET", "/statusz", b""),
    ("GET", "/debug/queue", b""),
    ("GET", "/debug/cache", b""),
    ("PUT", "/debug/flags/v", b"2"),
    ("POST", "/extenders/requeue", b"{}"),
]


async def test_odd_headers():
    async with calling() as caller:
        for header, request in itertools.product(HEADERS, REQUESTS):
            assert await caller.status(*request, [header]) < 500, (header, request)


BODIES = [
    *(b"", b"[", b"null", b"\xff\xfe", b"9" * 5000, b"x" * 70_000, b"[" * 60_000),
    *(b'{"pods":null}', b'{"pods":[{"namespace":"\\ud800"}]}', b'{"extender":"\\ud800"}'),
    b'{"x":' * 9000,
    b'{"pods":[' + b'{"namespace":"a","name":"b"},' * 2000 + b'{"namespace":"a","name":"b"}]}',
]


async def test_odd_bodies():
    async with calling() as caller:
        for body in BODIES:
            for method, path in (("PUT", "/debug/flags/v"), ("POST", "/extenders/requeue")):
                assert await caller.status(method, path, body) < 500, (path, body[:50])
        for chunk in (b"zz\r\n", b"-1\r\n"):
            status = await caller.status(
                "POST", "/extenders/requeue", chunk, [b"Transfer-Encoding: chunked"], length=False
            )
            assert 400 <= status < 500


async def test_what_is_no_http():
    async with calling() as caller:
        for noise in (
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\x00" + bytes(500),
            b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: 1\r\n" * 50_000 + b"\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        ):
            answer = await caller.send(noise)
            assert answer[:12] in {b"", b"HTTP/1.1 400", b"HTTP/1.0 400"}


async def test_no_handler_has_failed():
    async with calling() as caller:
        assert await caller.status("GET", "/debug/pods") == 200
        text = generate_latest(caller.world.telemetry.registry).decode()
    assert "aiokube_scheduler_endpoint_failures_total{" not in text
