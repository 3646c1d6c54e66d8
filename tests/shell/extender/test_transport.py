"""The transport against real servers, good and bad."""

import asyncio
import errno
import gzip
import hashlib
import json
import socket
import time
import tracemalloc
import zlib

import pytest
import uvloop

from app.extender import exchange
from app.extender.errors import CallOutcome, TransportError
from app.extender.exchange import Large
from app.extender.memory import PLACE_BYTES, AnswerMemory
from app.extender.transport import ERROR_BODY_BYTES, HTTPTransport
from app.http import pool as pool_module
from app.http.connection import HTTPConnection
from app.http.proxy import parse_proxy
from app.runtime.shortages import Shortages
from app.tools.subprocesses import reserved_port
from app.wire.extender_v1 import FILTER_BY_NAME, AnswerError, Body
from tests.shell.clock import leap
from tests.shell.extender.servers import Server, polite

#: Longer than anything takes here.
LONG = 60.0


@pytest.fixture
async def transport():
    made = HTTPTransport(keepalive_timeout=30)
    yield made
    await made.close()


def post(transport, url, pieces=(b'{"a":1}',), *, headers=None, timeout_seconds=LONG, large=None):
    return transport.post(
        url, Body(pieces), headers=headers or {}, timeout_seconds=timeout_seconds, large=large
    )


def arrived(transport):
    """Waits until there is something to be read on each connection at rest. The event loop has not heard of it then."""
    for idle in transport._pool._idle.values():
        for _, connection in idle:
            assert connection._poll.poll(LONG * 1000)


async def fail(transport, url, **kwargs):
    with pytest.raises(TransportError) as caught:
        await post(transport, url, **kwargs)
    return caught.value


class TestRequest:
    async def test_what_is_sent(self, transport):
        async with Server(polite) as server:
            await post(transport, f"{server.url}/deep//fil%2Fter?x=y", headers={"traceparent": "t"})
        [(_, (line, headers, body))] = server.requests
        assert line == "POST /deep//fil%2Fter?x=y HTTP/1.1"
        assert body == b'{"a":1}'
        assert headers == {
            "host": f"127.0.0.1:{server.port}",
            "content-type": "application/json",
            "content-length": "7",
            "user-agent": "aiokube-scheduler",
            "accept-encoding": "gzip",
            "accept": "*/*",
            "traceparent": "t",
        }

    async def test_what_no_request_line_can_hold_is_quoted(self, transport):
        async with Server(polite) as server:
            await post(transport, f"{server.url}/a b\r\nX: é")
        [(_, (line, headers, _))] = server.requests
        assert line == "POST /a%20bX:%20%C3%A9 HTTP/1.1"
        assert "x" not in headers

    async def test_a_large_body_goes_out_in_chunks_with_its_length(self, transport):
        piece = bytes(range(256)) * 400
        async with Server(polite) as server:
            await post(transport, server.url, [piece] * 200)
        [(_, (_, headers, body))] = server.requests
        assert headers["content-length"] == str(200 * len(piece))
        assert "transfer-encoding" not in headers
        assert hashlib.sha256(body).digest() == hashlib.sha256(piece * 200).digest()

    def test_a_large_body_on_the_loop_that_production_runs_on(self):
        piece = bytes(range(256)) * 40

        async def call():
            transport = HTTPTransport()
            async with Server(polite) as server:
                await post(transport, server.url, [piece, b","] * 500)
                await transport.close()
            return server.requests

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            [(_, (_, headers, body))] = runner.run(call())
        assert headers["content-length"] == str(len(body))
        assert body == (piece + b",") * 500

    async def test_a_large_body_that_the_server_does_not_want(self, transport):
        async def serve(connection):
            await connection.reader.readuntil(b"\r\n\r\n")
            connection.answer(b"too much", "413 Request Entity Too Large")
            await asyncio.Event().wait()

        async with Server(serve) as server:
            got = await post(transport, server.url, [b"x" * 100_000] * 500)
            assert (got.status, got.body) == (413, b"too much")
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == 2  # this one and the server's

    async def test_what_waits_to_be_sent_is_bounded(self, transport):
        class Watched(Body):
            taken = 0

            def batches(self, size):
                for batch in super().batches(size):
                    Watched.taken += sum(map(len, batch))
                    yield batch

        async def reads_nothing(connection):
            while not Watched.taken:
                await asyncio.sleep(0)
            for _ in range(100):  # turns to take more
                await asyncio.sleep(0)
            leap(LONG)
            await asyncio.Event().wait()

        body = Watched([b"x" * 100_000] * 1000)
        async with Server(reads_nothing) as server:
            with pytest.raises(TransportError, match="awaiting headers"):
                await transport.post(server.url, body, headers={}, timeout_seconds=LONG)
        assert 0 < Watched.taken < body.size / 4


class TestAnswer:
    async def test_status_headers_and_body(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(b'{"b":2}', Retry_After="3")

        async with Server(serve) as server:
            got = await post(transport, server.url)
        assert (got.status, got.body) == (200, b'{"b":2}')
        assert got.headers["retry-after"] == "3"

    async def test_long_headers_and_many(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(
                **{f"X-{number}": "x" * 99 for number in range(1000)}, Long="y" * 99_999
            )

        async with Server(serve) as server:
            got = await post(transport, server.url)
        assert len(got.headers["Long"]) == 99_999
        assert got.headers["X-999"]

    async def test_compressed(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(gzip.compress(b"x" * 99999), Content_Encoding="gzip")

        async with Server(serve) as server:
            assert (await post(transport, server.url)).body == b"x" * 99999

    async def test_of_an_error_only_the_beginning_is_read(self, transport, monkeypatch):
        monkeypatch.setattr(exchange, "_END_SECONDS", LONG)

        async def serve(connection):
            await connection.request()
            connection.answer(b"y" * 1_000_000, "500 No")
            await connection.request()

        async with Server(serve) as server:
            got = await post(transport, server.url)
            assert (got.status, got.body) == (500, b"y" * ERROR_BODY_BYTES)

    @pytest.mark.parametrize("declared", [True, False])
    async def test_too_large(self, declared):
        async def serve(connection):
            await connection.request()
            if declared:
                connection.answer(b"", length=1001)
            else:
                connection.writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b"z" * 5000)
            await connection.request()

        transport = HTTPTransport(max_answer_bytes=1000)
        async with Server(serve) as server:
            err = await fail(transport, server.url)
        await transport.close()
        assert str(err) == "the answer has more than 1000 bytes"
        assert (err.outcome, err.sent) == (CallOutcome.BAD_ANSWER, True)

    async def test_as_large_as_allowed(self):
        async def serve(connection):
            await connection.request()
            connection.answer(b"z" * 1000)

        transport = HTTPTransport(max_answer_bytes=1000)
        async with Server(serve) as server:
            assert len((await post(transport, server.url)).body) == 1000
        await transport.close()


def large_of(reading, memory=None):
    return Large(reading, None, memory or AnswerMemory(0))


def names_json(count):
    return json.dumps({"NodeNames": [f"node-{number:06}" for number in range(count)]}).encode()


class TestLargeAnswers:
    """Those that are read as they come."""

    reading = FILTER_BY_NAME

    @pytest.mark.parametrize("encoding", ["identity", "gzip"])
    async def test_is_taken_in_by_a_stream(self, transport, encoding):
        body = names_json(200_000)

        async def serve(connection):
            await connection.request()
            packed = gzip.compress(body, 1) if encoding == "gzip" else body
            connection.answer(packed, Content_Encoding=encoding)
            await connection.request()

        async with Server(serve) as server:
            got = await post(transport, server.url, large=large_of(self.reading))
        assert (got.body, got.received) == (b"", len(body))
        assert len(self.reading.finished(got.stream).node_names) == 200_000

    async def test_the_connection_is_kept_when_the_answer_was_read_to_its_end(self, transport):
        body = names_json(100_000)

        async def serve(connection):
            while await connection.request():
                connection.answer(body)

        async with Server(serve) as server:
            for _ in range(2):
                await post(transport, server.url, large=large_of(self.reading))
        assert len(server.connections) == 1

    async def test_what_follows_the_value_is_not_waited_for(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(names_json(100_000), length=10**9)
            await connection.request()

        async with Server(serve) as server:
            transport._max_answer_bytes = 10**9
            got = await post(transport, server.url, large=large_of(self.reading))
            assert len(self.reading.finished(got.stream).node_names) == 100_000

    @pytest.mark.parametrize("declared", [True, False])
    async def test_too_large(self, declared):
        async def serve(connection):
            await connection.request()
            head = b"HTTP/1.1 200 OK\r\n" + b"Content-Length: 8000000\r\n" * declared + b"\r\n"
            connection.writer.write(head + b'{"x":[' + b"0," * 4_000_000)
            await connection.request()

        transport, memory = HTTPTransport(max_answer_bytes=5_000_000), AnswerMemory(0)
        async with Server(serve) as server:
            err = await fail(transport, server.url, large=large_of(self.reading, memory))
        await transport.close()
        assert str(err) == "the answer has more than 5000000 bytes"
        assert memory.reading == 0

    async def test_what_is_wrong_ends_it_at_once(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(b'{"NodeNames":5,"x":[' + b"1," * 1_000_000, length=10**8)
            await connection.request()

        memory = AnswerMemory(0)
        async with Server(serve) as server:
            with pytest.raises(AnswerError, match="cannot unmarshal number"):
                await post(transport, server.url, large=large_of(self.reading, memory))
        assert (memory.reading, memory.taken) == (0, 1)

    async def test_cut_short(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(names_json(100_000)[:-5], length=10**8)

        async with Server(serve) as server:
            err = await fail(transport, server.url, large=large_of(self.reading))
        assert (str(err), err.outcome) == ("unexpected EOF", CallOutcome.BROKEN)

    async def test_late(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(names_json(100_000)[:-5], length=10**7)
            await connection.writer.drain()
            leap(LONG)
            await connection.request()

        async with Server(serve) as server:
            err = await fail(transport, server.url, large=large_of(self.reading))
        assert err.outcome is CallOutcome.TIMEOUT

    async def test_they_wait_for_a_place(self, transport):
        """The first to come keeps its place until its end comes."""
        begun, go_on = asyncio.Event(), asyncio.Event()
        body = names_json(100_000)

        async def serve(connection):
            first = not begun.is_set()
            begun.set()
            await connection.request()
            connection.answer(body[:-1], length=len(body))
            await connection.writer.drain()
            if first:
                await go_on.wait()
            connection.writer.write(body[-1:])
            await connection.request()

        memory = AnswerMemory(1)
        async with Server(serve) as server, asyncio.TaskGroup() as group:
            calls = []
            for waiting in range(3):
                calls.append(
                    group.create_task(
                        post(transport, server.url, large=large_of(self.reading, memory))
                    )
                )
                while (memory.reading, memory.waiting) != (1, waiting):
                    await asyncio.sleep(0)
            assert memory.places == 1
            go_on.set()
        for call in calls:
            assert len(self.reading.finished(call.result().stream).node_names) == 100_000
        assert (memory.reading, memory.waiting, memory.taken, memory.given_up) == (0, 0, 3, 0)

    async def test_no_place_in_time(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(names_json(100_000))
            await connection.request()

        memory = AnswerMemory(1)
        async with Server(serve) as server, memory.place(float("inf")):
            call = asyncio.ensure_future(
                fail(transport, server.url, large=large_of(self.reading, memory))
            )
            while not memory.waiting:
                await asyncio.sleep(0)
            leap(LONG)
            err = await call
        assert err.outcome is CallOutcome.BAD_ANSWER
        assert str(err) == (
            "the answer is large, and there was no memory for it in time: 1 large answers are read at a time"
        )
        assert (memory.given_up, memory.waiting) == (1, 0)

    @pytest.mark.parametrize("unit", [b"0", b'"x":[],', b"{}"])
    async def test_a_bomb_takes_little_memory(self, transport, unit):
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        bomb = packer.compress(b'{"Error":"' if unit == b"0" else b'{"x":[{')
        bomb += b"".join(packer.compress(unit * (100_000 // len(unit))) for _ in range(600))
        bomb += packer.flush()

        async def serve(connection):
            await connection.request()
            connection.answer(bomb, Content_Encoding="gzip")
            await connection.request()

        async def call():
            got = await post(transport, server.url, large=large_of(self.reading))
            return self.reading.finished(got.stream)

        async with Server(serve) as server:
            tracemalloc.start()
            with pytest.raises(AnswerError):
                await call()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert len(bomb) < 1_000_000
        assert peak < PLACE_BYTES


class TestReuse:
    async def test_one_connection_for_calls_in_a_row(self, transport):
        async with Server(polite) as server:
            for _ in range(5):
                await post(transport, server.url)
        assert len(server.connections) == 1
        assert len(server.requests) == 5

    async def test_many_connections_for_calls_at_once(self, transport):
        async with Server(polite) as server, asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(post(transport, server.url))
        assert len(server.connections) == len(server.requests) == 20

    async def test_idle_connections_are_given_up(self):
        transport = HTTPTransport(keepalive_timeout=0.01)
        async with Server(polite) as server:
            await post(transport, server.url)
            await asyncio.sleep(0.03)
            await post(transport, server.url)
        await transport.close()
        assert [number for number, _ in server.requests] == [0, 1]

    @pytest.mark.parametrize("noticed", [False, True])
    async def test_a_connection_that_the_server_closed_meanwhile(self, transport, noticed):
        async with Server(polite) as server:
            await post(transport, server.url)
            server.connections[0].hang_up()
            arrived(transport)
            if noticed:
                while not server.connections[0].reader.at_eof():
                    await asyncio.sleep(0)
            await post(transport, server.url)
        assert [number for number, _ in server.requests] == [0, 1]

    async def test_several_connections_that_the_server_closed_meanwhile(self, transport):
        async with Server(polite) as server:
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(post(transport, server.url))
            for connection in list(server.connections):
                connection.hang_up()
            arrived(transport)
            await post(transport, server.url)
        assert [number for number, _ in server.requests[3:]] == [3]

    async def test_a_connection_on_which_the_server_spoke_out_of_turn(self, transport):
        async with Server(polite) as server:
            await post(transport, server.url)
            server.connections[0].answer(b"", "408 Request Timeout")
            arrived(transport)
            await post(transport, server.url)
        assert [number for number, _ in server.requests] == [0, 1]

    @pytest.mark.parametrize("earlier", [0, 1])
    async def test_a_request_that_was_seen_is_never_sent_again(self, transport, earlier):
        async def serve(connection):
            for _ in range(earlier):
                await connection.request()
                connection.answer()
            await connection.request()

        async with Server(serve) as server:
            for _ in range(earlier):
                await post(transport, server.url)
            err = await fail(transport, f"{server.url}/filter")
        assert str(err) == f'Post "{server.url}/filter": EOF'
        assert (err.outcome, err.sent) == (
            CallOutcome.STALE if earlier else CallOutcome.BROKEN,
            True,
        )
        assert len(server.requests) == earlier + 1
        assert len(server.connections) == 1


class TestFailure:
    async def test_refused(self, transport):
        with reserved_port() as port:
            err = await fail(transport, f"http://127.0.0.1:{port}/filter")
        assert str(err) == (
            f'Post "http://127.0.0.1:{port}/filter": dial tcp 127.0.0.1:{port}: connect: connection refused'
        )
        assert (err.outcome, err.sent) == (CallOutcome.UNREACHABLE, False)

    async def test_no_descriptor_is_left(self, transport, monkeypatch):
        def no_socket(*_args, **_more):
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(pool_module, "SHORTAGES", Shortages())
        async with Server(polite) as server:
            monkeypatch.setattr(socket, "socket", no_socket)
            err = await fail(transport, f"{server.url}/filter", timeout_seconds=0.01)
            monkeypatch.undo()
        assert (err.outcome, err.sent) == (CallOutcome.SHORTAGE, False)
        assert str(err).endswith("connect: too many open files")

    async def test_a_host_that_does_not_exist(self, transport, monkeypatch):
        async def getaddrinfo(*_args, **_more):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        err = await fail(transport, "http://no-such-host.invalid/filter")
        assert str(err) == (
            'Post "http://no-such-host.invalid/filter": dial tcp: lookup no-such-host.invalid: no such host'
        )
        assert not err.sent

    async def test_no_answer(self, transport):
        async def serve(connection):
            await connection.request()
            leap(LONG)
            await connection.request()

        async with Server(serve) as server:
            err = await fail(transport, f"{server.url}/bind")
        assert str(err) == (
            f'Post "{server.url}/bind": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
        )
        assert (err.outcome, err.sent) == (CallOutcome.TIMEOUT, True)

    async def test_half_an_answer(self, transport, monkeypatch):
        async def serve(connection):
            await connection.request()
            connection.answer(b'{"Node', length=100)
            await connection.request()

        async def answer(connection):
            head = await hear(connection)
            leap(LONG)
            return head

        hear = HTTPConnection.answer
        monkeypatch.setattr(HTTPConnection, "answer", answer)
        async with Server(serve) as server:
            err = await fail(transport, server.url)
        assert str(err) == (
            "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
        )

    async def test_an_answer_cut_short(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(b'{"Node', length=100)

        async with Server(serve) as server:
            err = await fail(transport, server.url)
        assert (str(err), err.outcome) == ("unexpected EOF", CallOutcome.BROKEN)

    @pytest.mark.parametrize(
        "pieces", [[b'["whole"]'], [b'["whole"', b"]\n"], [b'["whole"]', b"\n"]]
    )
    @pytest.mark.parametrize("stays", [True, False])
    async def test_a_whole_value_in_an_answer_without_end(self, transport, pieces, stays):
        """Some count their bytes wrongly; kube-scheduler reads no further than the value goes."""

        async def serve(connection):
            await connection.request()
            connection.answer(pieces[0], length=100)
            for piece in pieces[1:]:
                await connection.writer.drain()
                connection.writer.write(piece)
            if stays:
                await connection.request()

        async with Server(serve) as server:
            for _ in range(2):
                got = await post(transport, server.url)
                assert (got.status, got.body) == (200, b"".join(pieces))
        assert len(server.connections) == 2

    async def test_deep_nesting_in_an_answer_without_end(self, transport):
        """Depth is the reader's to judge, not the transport's."""
        deep = b'{"a":' * 50_000 + b"1" + b"}" * 50_000

        async def serve(connection):
            await connection.request()
            connection.writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + deep)
            await connection.writer.drain()

        async with Server(serve) as server:
            assert (await post(transport, server.url)).body == deep

    async def test_an_end_that_comes_later(self, transport, monkeypatch):
        monkeypatch.setattr(exchange, "_END_SECONDS", LONG)

        async def serve(connection):
            while await connection.request():
                head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                connection.writer.write(head + b"2\r\n{}\r\n")
                await connection.writer.drain()
                await asyncio.sleep(0)
                connection.writer.write(b"0\r\n\r\n")

        async with Server(serve) as server:
            for _ in range(2):
                assert (await post(transport, server.url)).body == b"{}"
        assert len(server.connections) == 1

    @pytest.mark.parametrize("stays", [True, False])
    async def test_an_error_whose_body_does_not_come(self, transport, stays):
        async def serve(connection):
            await connection.request()
            connection.answer(b"no", "503 Service Unavailable", length=100)
            if stays:
                await connection.request()

        async with Server(serve) as server:
            got = await post(transport, server.url)
        assert got.status == 503
        assert got.body == (b"no" if stays else got.body)

    async def test_a_body_that_is_not_what_it_says(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(b"plain", Content_Encoding="gzip")

        async with Server(serve) as server:
            err = await fail(transport, server.url)
        assert (str(err), err.outcome) == ("gzip: invalid header", CallOutcome.BAD_ANSWER)

    async def test_another_protocol(self, transport):
        async def serve(connection):
            await connection.request()
            connection.writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n")
            connection.writer.write(b"Connection: Upgrade\r\n\r\n")
            await connection.request()

        async with Server(serve) as server:
            assert (await post(transport, server.url)).status == 101
            assert (await post(transport, server.url)).status == 101

    async def test_an_answer_that_is_no_http(self, transport):
        async def serve(connection):
            await connection.request()
            connection.writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
            await connection.request()

        async with Server(serve) as server:
            err = await fail(transport, f"{server.url}/f")
        start = f'Post "{server.url}/f": net/http: HTTP/1.x transport connection broken: malformed HTTP response'
        assert str(err).startswith(start)
        assert "b'SSH-2.0-OpenSSH_9.6'" in str(err)
        assert "\n" not in str(err)
        assert err.sent

    async def test_a_reset(self, transport):
        async def serve(connection):
            await connection.request()
            linger = b"\1\0\0\0\0\0\0\0"
            sock = connection.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.writer.transport.abort()

        async with Server(serve) as server:
            err = await fail(transport, f"{server.url}/f")
        assert str(err) == f'Post "{server.url}/f": read: connection reset by peer'
        assert (err.outcome, err.sent) == (CallOutcome.BROKEN, True)

    async def test_a_password_is_not_told(self, transport):
        with reserved_port() as port:
            err = await fail(transport, f"http://me:secret@127.0.0.1:{port}/f")
        assert "secret" not in str(err)
        assert f"http://me:***@127.0.0.1:{port}/f" in str(err)

    async def test_giving_up_closes_the_connection(self, transport):
        closed = asyncio.Event()

        async def serve(connection):
            await connection.request()
            assert await connection.request() is None
            closed.set()

        async with Server(serve) as server:
            call = asyncio.ensure_future(post(transport, server.url))
            while not server.requests:
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await closed.wait()


class TestRedirect:
    async def answers(self, transport, status, location="/there"):
        async def serve(connection):
            while request := await connection.request():
                if request[0].split()[1] == "/here":
                    connection.answer(b"", f"{status} Moved", Location=location)
                else:
                    connection.answer(b'"there"')

        async with Server(serve) as server:
            got = await post(transport, f"{server.url}/here")
        return got, [(line, body) for _, (line, _, body) in server.requests]

    @pytest.mark.parametrize("status", [307, 308])
    async def test_the_same_again_elsewhere(self, transport, status):
        got, requests = await self.answers(transport, status)
        assert got.body == b'"there"'
        assert requests == [
            ("POST /here HTTP/1.1", b'{"a":1}'),
            ("POST /there HTTP/1.1", b'{"a":1}'),
        ]

    @pytest.mark.parametrize("status", [301, 302, 303])
    async def test_a_look_elsewhere(self, transport, status):
        got, requests = await self.answers(transport, status)
        assert got.body == b'"there"'
        assert requests == [("POST /here HTTP/1.1", b'{"a":1}'), ("GET /there HTTP/1.1", b"")]

    async def test_round_in_circles(self, transport):
        async def serve(connection):
            while await connection.request():
                connection.answer(b"", "307 Temporary Redirect", Location="/again")

        async with Server(serve) as server:
            err = await fail(transport, f"{server.url}/f")
        assert str(err) == 'Post "/again": stopped after 10 redirects'
        assert len(server.requests) == 10

    async def test_nowhere(self, transport):
        async def serve(connection):
            await connection.request()
            connection.answer(b"gone", "302 Found")

        async with Server(serve) as server:
            got = await post(transport, server.url)
        assert (got.status, got.body) == (302, b"gone")

    async def test_nowhere_named(self, transport):
        got, requests = await self.answers(transport, 307, location="")
        assert (got.status, len(requests)) == (307, 1)

    @pytest.mark.parametrize(
        ("location", "text"),
        [
            ("http://[::1", 'failed to parse Location header "http://[::1"'),
            ("http://a:99999/x", 'failed to parse Location header "http://a:99999/x"'),
            ("ftp://elsewhere/x", 'Post "ftp://elsewhere/x": unsupported protocol scheme "ftp"'),
            (
                "http://127.0.0.1:1/x",
                'Post "http://127.0.0.1:1/x": dial tcp 127.0.0.1:1: connect: ',
            ),
        ],
    )
    async def test_where_nobody_can_go(self, transport, location, text):
        with pytest.raises(TransportError) as caught:
            await self.answers(transport, 307, location)
        assert text in str(caught.value)

    async def test_a_token_does_not_follow_to_another_host(self, transport):
        async def serve_first(connection):
            while await connection.request():
                connection.answer(b"", "307 Moved", Location=f"{second.url}/f")

        async with Server(polite) as second, Server(serve_first) as first:
            await post(transport, first.url, headers={"Authorization": "Bearer t"})
        assert first.requests[0][1][1]["authorization"] == "Bearer t"
        assert "authorization" not in second.requests[0][1][1]


async def test_through_a_proxy():
    async with Server(polite) as proxy:
        way = parse_proxy(f"http://user:word@127.0.0.1:{proxy.port}")
        transport = HTTPTransport(proxy_for=lambda _url: way)
        await post(transport, "http://ext.test:8080/filter")
        await transport.close()
    [(_, (line, headers, body))] = proxy.requests
    assert line == "POST http://ext.test:8080/filter HTTP/1.1"
    assert headers["proxy-authorization"] == "Basic dXNlcjp3b3Jk"
    assert (headers["host"], body) == ("ext.test:8080", b'{"a":1}')


async def test_a_proxy_is_not_told_the_password_of_the_extender():
    async with Server(polite) as proxy:
        way = parse_proxy(f"http://127.0.0.1:{proxy.port}")
        transport = HTTPTransport(proxy_for=lambda _url: way)
        await post(transport, "http://me:s3cret@ext.test:8080/filter")
        await transport.close()
    [(_, (line, headers, _))] = proxy.requests
    assert line == "POST http://ext.test:8080/filter HTTP/1.1"
    assert headers["authorization"].startswith("Basic ")


async def test_a_redirect_is_asked_for_its_own_proxy():
    async def serve(connection):
        await connection.request()
        connection.answer(b"", "307 Moved", Location="http://ext.test:8080/filter")

    async with Server(polite) as proxy, Server(serve) as server:
        way = parse_proxy(f"http://127.0.0.1:{proxy.port}")
        transport = HTTPTransport(proxy_for=lambda url: way if "ext.test" in url else None)
        await post(transport, server.url)
        await transport.close()
    assert [line for _, (line, _, _) in proxy.requests] == [
        "POST http://ext.test:8080/filter HTTP/1.1"
    ]


async def test_it_works_again_after_closing(transport):
    async with Server(polite) as server:
        await post(transport, server.url)
        await transport.close()
        await post(transport, server.url)
    assert len(server.connections) == 2


class Drips:
    """A body in very small parts, each of which looks like an end."""

    def __init__(self, first, number):
        self.parts = [first, *[b",{}"] * number, b"]}"]

    def at_eof(self):
        return not self.parts

    async def readany(self):
        return self.parts.pop(0)


async def test_a_body_in_many_small_parts_costs_little():
    body = Drips(b'{"NodeNames":[' + b"{}," * 100_000 + b"{}", 2000)
    began = time.process_time()
    chunks = await exchange._value(body, 1024 * 1024)
    assert time.process_time() - began < 0.4
    assert len(chunks) == 2002
