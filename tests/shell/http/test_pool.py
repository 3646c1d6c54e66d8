"""Connections between exchanges; what happens during one is tested with those who exchange."""

import asyncio
import contextlib
import errno
import os
import ssl

import pytest
import uvloop

from app.http import pool as pool_module
from app.http.body import read_whole
from app.http.dial import Dialer
from app.http.errors import ConnectError, ServerDisconnectedError
from app.http.pool import Pool
from app.http.request import Route
from app.runtime.shortages import Shortages
from tests.shell.extender.servers import Authority, Server, polite, server_context

REQUEST = b"GET / HTTP/1.1\r\n\r\n"


@contextlib.asynccontextmanager
async def pool_with(keepalive=30.0):
    pool = Pool(Dialer(), keepalive=keepalive)
    try:
        yield pool
    finally:
        await pool.close()


async def ask(pool, server, pieces=(REQUEST,), *, seconds=60.0):
    """The status of one exchange."""
    route = Route(server.url, (), tls=True, server_hostname=None, proxy=None)
    deadline = asyncio.get_running_loop().time() + seconds
    connection = await pool.take(route, deadline)
    try:
        connection.write(pieces)
        answer = await connection.answer()
        await read_whole(connection, 1000)
    except BaseException:
        pool.drop(connection)
        raise
    pool.give_back(route, connection)
    return answer.status


async def test_a_connection_is_used_again():
    async with Server(polite) as server, pool_with() as pool:
        for _ in range(3):
            assert await ask(pool, server, (REQUEST[:9], REQUEST[9:])) == 200
    assert [number for number, _ in server.requests] == [0, 0, 0]


async def test_one_at_rest_is_closed_in_time():
    closed = asyncio.Event()

    async def serve(connection):
        await polite(connection)
        closed.set()

    async with Server(serve) as server, pool_with(keepalive=0.01) as pool:
        await ask(pool, server)
        await closed.wait()
        assert not pool._idle, "nor is its server remembered"
        assert await ask(pool, server) == 200
    assert [number for number, _ in server.requests] == [0, 1]


async def test_one_that_has_rested_for_too_long_is_not_used_even_before_it_is_closed():
    async with Server(polite) as server, pool_with(keepalive=0.0) as pool:
        for _ in range(2):
            assert await ask(pool, server) == 200
    assert [number for number, _ in server.requests] == [0, 1]


async def test_one_on_which_the_server_speaks_up_is_closed():
    closed = asyncio.Event()

    async def serve(connection):
        await connection.request()
        connection.answer()
        await connection.writer.drain()
        connection.answer(b"", "408 Request Timeout")
        await polite(connection)
        closed.set()

    async with Server(serve) as server, pool_with() as pool:
        await ask(pool, server)
        await closed.wait()
        assert await ask(pool, server) == 200


async def test_an_answer_that_announces_the_end():
    async def serve(connection):
        await connection.request()
        connection.answer(Connection="close")
        await connection.request()

    async with Server(serve) as server, pool_with() as pool:
        for _ in range(2):
            assert await ask(pool, server) == 200
    assert len(server.connections) == 2


async def test_an_answer_without_a_body_that_claims_one():
    async def serve(connection):
        while await connection.request():
            connection.answer(b"", "204 No Content", length=7)

    async with Server(serve) as server, pool_with() as pool:
        for _ in range(2):
            assert await ask(pool, server) == 204
    assert len(server.connections) == 1


async def test_a_server_that_does_not_wait_for_the_question():
    async def serve(connection):
        connection.answer(b"", "503 Service Unavailable")
        await connection.request()

    async with Server(serve) as server, pool_with() as pool:
        assert await ask(pool, server) == 503


async def test_closing_closes_those_in_use():
    async def serve(connection):
        await connection.request()
        asking.set()
        await connection.request()

    asking = asyncio.Event()
    async with Server(serve) as server, pool_with() as pool:
        task = asyncio.create_task(ask(pool, server))
        await asking.wait()
        await pool.close()
        with pytest.raises(ServerDisconnectedError):
            await task


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{"])
async def test_each_exchange_has_its_own_time(begun):
    async def serve(connection):
        await connection.request()
        if connection is server.connections[0]:
            await late.wait()
            connection.answer()
        else:
            connection.writer.write(begun)
        await connection.request()

    late = asyncio.Event()
    async with Server(serve) as server, pool_with() as pool:
        patient = asyncio.create_task(ask(pool, server))
        while not server.requests:
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await ask(pool, server, seconds=0.01)
        with pytest.raises(TimeoutError):
            await ask(pool, server, seconds=0.02)
        late.set()
        assert await patient == 200


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_whose_server_does_not_read_is_closed_at_once(tmp_path, loop_factory, tls):
    """What is not sent yet would keep its descriptor for as long as the server likes."""
    authority = Authority()
    served = server_context(tmp_path, authority.issue("server", "127.0.0.1")) if tls else None

    async def deaf(connection):
        connection.writer.transport.pause_reading()
        await asyncio.Event().wait()

    async def drop():
        trusted = ssl.create_default_context(cadata=authority.pem.decode()) if tls else True
        async with Server(deaf, served) as server, pool_with() as pool:
            route = Route(server.url, (), tls=trusted, server_hostname=None, proxy=None)
            connection = await pool.take(route, asyncio.get_running_loop().time() + 60)
            connection.write((b"x" * 2**24,))
            await asyncio.sleep(0.01)
            descriptors = len(os.listdir("/proc/self/fd"))
            pool.drop(connection)
            async with asyncio.timeout(10):
                while len(os.listdir("/proc/self/fd")) >= descriptors:
                    await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(drop())


# ---------------------------------------------------------------- shortages


def no_descriptors():
    return ConnectError("x", 80, OSError(errno.EMFILE, "Too many open files"))


@pytest.fixture
def shortages(monkeypatch):
    """Those of the pool alone."""
    found = Shortages()
    monkeypatch.setattr(pool_module, "SHORTAGES", found)
    return found


def failing(monkeypatch, pool, times):
    """Has the next attempts to connect fail; how many are left is in the list."""
    dial, failures = pool._dialer.dial, [no_descriptors() for _ in range(times)]

    async def attempt(*arguments):
        if failures:
            raise failures.pop()
        return await dial(*arguments)

    monkeypatch.setattr(pool._dialer, "dial", attempt)
    return failures


async def test_a_shortage_of_descriptors_is_waited_out(monkeypatch, shortages, caplog):
    monkeypatch.setattr(pool_module, "FIRST_RETRY", 0.0)
    async with Server(polite) as server, Server(polite) as other, pool_with() as pool:
        await ask(pool, other)
        failing(monkeypatch, pool, 3)
        assert await ask(pool, server) == 200
        assert shortages.counts == {"connect": 3}
        assert await ask(pool, other) == 200
    assert len(other.connections) == 2, "the one at rest was given up"
    assert [r.getMessage() for r in caplog.records if r.name == "app.runtime.shortages"] == [
        "Cannot connect: Cannot connect to host x:80 [Too many open files]; it is tried again until it succeeds"
    ]


@pytest.mark.looptime
async def test_a_shortage_that_lasts_is_told_when_the_time_is_over(monkeypatch, shortages):
    async with pool_with() as pool:
        failures = failing(monkeypatch, pool, 1000)
        route = Route("http://x", (), tls=True, server_hostname=None, proxy=None)
        started = asyncio.get_running_loop().time()
        with pytest.raises(ConnectError, match="Too many open files"):
            await pool.take(route, started + 10)
        assert 8 < asyncio.get_running_loop().time() - started < 10
    assert 10 < shortages.counts["connect"] == 1000 - len(failures) < 20


async def test_other_failures_are_told_at_once(shortages):
    async with Server(polite) as server, pool_with() as pool:
        await server.__aexit__()
        with pytest.raises(ConnectError):
            await ask(pool, server)
    assert not shortages.counts
    assert not pool._idle, "a server that was never reached is not remembered"
