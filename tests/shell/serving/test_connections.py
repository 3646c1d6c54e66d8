"""How many connections callers may hold, and for how long."""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl

import pytest
import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry

from app.observe.metrics.process import ServingMetrics
from app.observe.metrics.series import MetricFamilies
from app.runtime.clock import SystemClock
from app.runtime.shortages import CALM, Shortages
from app.serving import connections
from app.serving.access import Authenticator, Authorizer
from app.serving.connections import HEAD_SECONDS, IDLE_SECONDS
from app.serving.options import ConnectionLimits, ServingOptions
from app.serving.server import REQUEST_SECONDS, serving
from tests.shell.clock import leap

FULL = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


class Callers:
    """Callers of a server; ``closed`` tells why connections were closed."""

    def __init__(self, listening, registry):
        self._listening, self._registry = listening, registry
        self._writers = []

    async def call(self, said=b"", source="127.0.0.1", **more):
        """A connection over which this much of a request was sent."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._listening.port, local_addr=(source, 0), **more
        )
        self._writers.append(writer)
        writer.write(said)
        await self.settled()
        return reader

    async def answer(self, source="127.0.0.1"):
        """The status line of an answer to a whole request on a connection of its own."""
        reader = await self.call(FULL, source)
        return (await reader.readline()).decode().strip()

    async def settled(self):
        """The server, which runs in this loop, has heard what was sent."""
        for _ in range(50):
            await asyncio.sleep(0)

    def closed(self):
        return {
            sample.labels["reason"]: sample.value
            for family in self._registry.collect()
            for sample in family.samples
            if sample.name == "aiokube_scheduler_endpoint_connections_closed_total"
        }

    def held(self):
        return self._registry.get_sample_value("aiokube_scheduler_endpoint_connections")

    async def hang_up(self):
        for writer in self._writers:
            writer.close()
        for writer in self._writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def health(_request):
    return web.Response(text="ok")


@contextlib.asynccontextmanager
async def served(*routes, total=8, per_source=4, **options):
    settings = ServingOptions(
        secure_port=0,
        bind_address="127.0.0.1",
        connections=ConnectionLimits(total, per_source),
        **{"insecure_http": True, **options},
    )
    registry = CollectorRegistry()
    async with serving(
        [web.get("/healthz", health), *routes],
        settings,
        authenticator=Authenticator(settings, None),
        authorizer=Authorizer(settings, None),
        metrics=ServingMetrics(MetricFamilies(registry)),
        wall=SystemClock().wall,
    ) as listening:
        callers = Callers(listening, registry)
        try:
            yield callers
        finally:
            await callers.hang_up()


async def ended(reader):
    """What was still said on a connection until the server closed it."""
    said = b""
    with contextlib.suppress(ConnectionError):
        said = await reader.read()
    return said


# ---------------------------------------------------------------- time


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nX-"])
async def test_the_first_head_must_come_in_time(said):
    async with served() as callers:
        reader = await callers.call(said)
        leap(HEAD_SECONDS)
        assert await ended(reader) == b""
        assert callers.closed() == {"head": 1}
        assert callers.held() == 0


async def test_a_handshake_must_come_in_time():
    async with served(insecure_http=False) as callers:
        reader = await callers.call(b"\x16\x03\x01")
        leap(HEAD_SECONDS)
        assert await ended(reader) == b""
        assert callers.closed() == {"handshake": 1}
        assert callers.held() == 0


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nX-"])
async def test_the_next_head_must_come_in_time(said):
    async with served() as callers:
        reader = await callers.call(FULL)
        leap(HEAD_SECONDS)
        await callers.settled()
        assert not reader.at_eof()
        callers._writers[0].write(said)
        await callers.settled()
        leap(IDLE_SECONDS)
        assert (await ended(reader)).endswith(b"ok")


async def test_the_body_of_a_request_must_come_in_time():
    async def read(request):
        await request.read()
        raise AssertionError("unreachable")

    request = b"PUT /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"
    async with served(web.put("/healthz", read)) as callers:
        reader = await callers.call(request)
        leap(REQUEST_SECONDS)
        assert await ended(reader) == b""
        assert callers.closed() == {"request": 1}


async def test_an_answer_must_be_taken_in_time():
    async def long(request):
        return web.Response(body=bytes(50_000_000))

    async with served(web.get("/livez", long)) as callers:
        reader = await callers.call(FULL.replace(b"healthz", b"livez"))
        leap(REQUEST_SECONDS)
        assert len(await ended(reader)) < 50_000_000
        assert callers.closed() == {"request": 1}


# ---------------------------------------------------------------- number


async def test_a_newer_connection_takes_the_place_of_the_oldest_that_serves_nothing():
    async with served(per_source=4) as callers:
        readers = [await callers.call(b"GET") for _ in range(4)]
        assert await callers.answer() == "HTTP/1.1 200 OK"
        assert await ended(readers[0]) == b""
        assert not readers[1].at_eof()
        assert callers.closed() == {"crowded": 1}
        assert callers.held() == 4


async def test_a_source_takes_no_place_of_others():
    async with served(total=8, per_source=4) as callers:
        other = await callers.call(b"GET", "127.0.0.2")
        for _ in range(20):
            await callers.call(b"GET")
        assert not other.at_eof()
        assert callers.held() == 5
        assert await callers.answer("127.0.0.3") == "HTTP/1.1 200 OK"


async def test_many_sources_keep_nobody_out():
    async with served(total=8, per_source=4) as callers:
        for number in range(2, 30):
            await callers.call(b"GET", f"127.0.0.{number}")
        assert callers.held() == 8
        assert await callers.answer("127.0.0.99") == "HTTP/1.1 200 OK"


async def test_connections_that_serve_are_not_closed_for_others():
    go_on = asyncio.Event()

    async def slow(_request):
        await go_on.wait()
        return web.Response(text="done")

    async with served(web.get("/livez", slow), per_source=3) as callers:
        busy = [await callers.call(FULL.replace(b"healthz", b"livez")) for _ in range(3)]
        refused = await callers.call(FULL)
        assert await ended(refused) == b""
        assert callers.closed() == {"refused": 1}
        go_on.set()
        assert [await reader.readline() for reader in busy] == [b"HTTP/1.1 200 OK\r\n"] * 3


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_handshake_gives_way_to_a_newer_connection(loop_factory):
    async def run():
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        async with served(insecure_http=False, per_source=2) as callers:
            stuck = [await callers.call(b"\x16\x03\x01") for _ in range(2)]
            reader = await callers.call(FULL, ssl=trusting)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            assert await ended(stuck[0]) == b""
            assert callers.closed() == {"crowded": 1}

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


def test_limits_follow_from_the_descriptors():
    limits = ConnectionLimits()
    assert limits.within(1_048_576) == ConnectionLimits(256, 64)
    assert limits.within(1024) == ConnectionLimits(128, 32)
    assert limits.within(64) == ConnectionLimits(8, 2)
    assert limits.within(10) == ConnectionLimits(4, 2)


# ---------------------------------------------------------------- shortages


async def test_a_shortage_of_descriptors_is_waited_out(monkeypatch, caplog):
    monkeypatch.setattr(connections, "FIRST_RETRY", 0.0)
    monkeypatch.setattr(connections, "SHORTAGES", Shortages())
    loop = asyncio.get_running_loop()
    accept, failures = loop.sock_accept, [OSError(errno.EMFILE, "Too many open files")] * 3

    async def failing(listening: socket.socket):
        if failures:
            raise failures.pop()
        return await accept(listening)

    async with served() as callers:
        idle = await callers.call(b"GET")
        monkeypatch.setattr(loop, "sock_accept", failing)
        await callers.call()  # for the accept under way
        assert await callers.answer() == "HTTP/1.1 200 OK"
        assert await ended(idle) == b""
    assert connections.SHORTAGES.counts == {"accept connections": 3}
    assert connections.SHORTAGES.reason(loop.time()) == (
        "cannot accept connections: Too many open files"
    )
    [error] = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert error.startswith("Cannot accept connections: [Errno 24] Too many open files")
    leap(CALM)
    assert connections.SHORTAGES.reason(loop.time()) is None
