"""What comes back on a connection, byte by byte, without a socket."""

import asyncio
import errno
import gc
import itertools
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.body import read_beginning, read_whole
from app.http.connection import (
    MAX_HEAD_BYTES,
    MAX_HEAD_LINES,
    READ_BUFFER,
    HTTPConnection,
    KnownHeads,
    MalformedAnswerError,
)
from app.http.errors import (
    ConnectionBrokenError,
    HTTPError,
    PayloadError,
    ServerDisconnectedError,
)


class Transport(asyncio.Transport):
    """Remembers what it is told."""

    def __init__(self):
        super().__init__()
        self.written, self.reading, self.closed = b"", True, False

    def set_protocol(self, protocol):
        self.protocol = protocol

    def is_closing(self):
        return self.closed

    def abort(self):
        self.closed = True

    def write(self, data):
        self.written += data

    def pause_reading(self):
        assert self.reading
        self.reading = False

    def resume_reading(self):
        assert not self.reading
        self.reading = True


def made():
    connection, transport = HTTPConnection(), Transport()
    connection.connection_made(transport)
    return connection, transport


async def read(*pieces, lost=False):
    """The answer, its body, and whether the connection can carry another exchange."""
    connection, _ = made()
    for piece in pieces:
        connection.data_received(piece)
    if lost is not False:
        connection.connection_lost(lost)
    answer = await connection.answer()
    body = await read_whole(connection, 10**9)
    return answer.status, answer.headers, body, connection.release()


OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = OK + b"Content-Length: 2\r\n"


@pytest.mark.parametrize(
    ("data", "status", "body", "stays"),
    [
        (LENGTH + b"\r\n{}", 200, b"{}", True),
        (LENGTH + b"Connection: close\r\n\r\n{}", 200, b"{}", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}", False),
        (LENGTH.replace(b"1.1", b"1.0") + b"Connection: keep-alive\r\n\r\n{}", 200, b"{}", True),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;a=b\r\n}\r\n0\r\n\r\n",
            200,
            b"{}",
            True,
        ),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n", 200, b"{}", True),
        (LENGTH + b"Transfer-Encoding: Chunked\r\n\r\n3\r\n[1]\r\n0\r\n\r\n", 200, b"[1]", True),
        (b"HTTP/1.1 100 Continue\r\nB: a\r\n\r\n" * 3 + LENGTH + b"\r\n{}", 200, b"{}", True),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n", 204, b"", True),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, b"", False),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nxyz",
            101,
            b"",
            False,
        ),
        (LENGTH + b"\r\n{}garbage", 200, b"{}", False),
        (LENGTH + b"\r\n{}" + LENGTH + b"\r\n[]", 200, b"{}", False),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}", 200, b"{}", True),
        (LENGTH + b"Empty:\r\nA: \xc3\xa9 \r\n\r\n{}", 200, b"{}", True),
    ],
)
async def test_answers_whole_and_in_single_bytes(data, status, body, stays):
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        got = await read(*pieces)
        assert (got[0], got[2], got[3]) == (status, body, stays)
        assert "B" not in got[1], "nothing of an interim answer"
        if b"Empty" in data:
            assert (got[1]["empty"], got[1]["a"]) == ("", "\xe9")


@given(st.binary(max_size=40), st.lists(st.integers(0, 300), max_size=6), st.booleans())
def test_a_body_is_the_same_however_it_is_cut(body, cuts, chunked):
    if chunked:
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in (body[:7], body[7:]) if c)
        data = OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    else:
        data = OK + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges) if a < b]
    assert asyncio.run(read(*pieces))[2:] == (body, True)


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n\r\n", OK + b"A: b\r\n\r\n"])
async def test_a_body_until_the_connection_ends(head):
    assert (await read(head, b"ab", b"cd", lost=None))[2:] == (b"abcd", False)
    with pytest.raises(PayloadError):
        await read(head, b"ab", lost=ConnectionResetError("reset"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 20",
        LENGTH,
        LENGTH + b"\r\n{",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{",
    ],
)
async def test_an_answer_that_breaks_off(data):
    error = PayloadError if b"\r\n\r\n" in data else ServerDisconnectedError
    with pytest.raises(error):
        await read(data, lost=None)


async def test_chunks_override_a_length():
    """As in Go: the length is not even among the headers."""
    long = OK + b"Content-Length: 1000\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    _, headers, body, _ = await read(long)
    assert ("Content-Length" in headers, body) == (False, b"{}")


async def test_a_reset_keeps_its_reason():
    reset = ConnectionResetError(errno.ECONNRESET, "reset")
    with pytest.raises(ConnectionBrokenError, match="reset") as caught:
        await read(LENGTH, lost=reset)
    assert caught.value.errno == errno.ECONNRESET
    assert caught.value.__cause__ is reset


async def test_what_came_in_before_the_end_can_be_read():
    connection, _ = made()
    connection.data_received(LENGTH + b"\r\n{")
    connection.connection_lost(None)
    await connection.answer()
    assert await connection.readany() == b"{"
    with pytest.raises(PayloadError):
        await connection.readany()
    with pytest.raises(ServerDisconnectedError):
        connection.write([b"GET"])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"<html>\n<body>", r"Expected HTTP/, RTSP/ or ICE/: b'<html>'"),
        (LENGTH + b"Content-Length: 3\r\n\r\n{}", "Duplicate Content-Length"),
        (OK + b"Transfer-Encoding: x\r\n\r\n", r"unsupported Transfer-Encoding \['x'\]"),
        (LENGTH + b"Transfer-Encoding: gzip, chunked\r\n\r\n", r"Transfer-Encoding \['gzip, ch"),
        (
            OK + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n",
            r"Transfer-Encoding \['chunked', 'chunked'\]",
        ),
        (OK + b"A: b\r\n" * (MAX_HEAD_LINES + 2), f"more than {MAX_HEAD_LINES} lines"),
        (OK + b"A: " + b"b" * MAX_HEAD_BYTES, f"more than {MAX_HEAD_BYTES} bytes"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nz\r\n", "chunk size"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + b"b" * 2 * MAX_HEAD_BYTES,
            f"more than {MAX_HEAD_BYTES} bytes",
        ),
    ],
)
async def test_what_is_no_answer(data, text):
    connection, transport = made()
    for start in range(0, len(data), 2**16):
        connection.data_received(data[start : start + 2**16])
    connection.connection_lost(None)

    async def read():
        await connection.answer()
        await read_whole(connection, 1)

    with pytest.raises(MalformedAnswerError, match=text):
        await read()
    assert transport.closed


@pytest.mark.parametrize("said", [b"H", OK, LENGTH + b"\r\n{}", b"garbage"])
def test_a_server_that_speaks_before_it_is_asked(said):
    connection, _ = made()
    assert connection.untouched
    connection.data_received(said)
    assert not connection.untouched


async def test_reading_pauses_while_nobody_reads():
    connection, transport = made()
    connection.data_received(OK + b"Content-Length: %d\r\n\r\n" % (3 * READ_BUFFER))
    await connection.answer()
    connection.data_received(b"x" * (READ_BUFFER - 1))
    assert transport.reading
    connection.data_received(b"x")
    connection.data_received(b"x")
    assert not transport.reading
    assert len(await connection.readany()) == READ_BUFFER + 1
    assert transport.reading


async def test_a_connection_whose_answer_was_not_read_to_its_end_is_not_used_again():
    connection, _ = made()
    connection.data_received(OK + b"Content-Length: 4\r\n\r\n1")
    await connection.answer()
    assert await read_beginning(connection, 1) == b"1"
    assert not connection.release()
    connection.data_received(b"234")
    assert not connection.release()


async def test_limits_of_heads_are_for_each_answer_and_not_for_bodies():
    connection, _ = made()
    head = OK + b"A: b\r\n" * (MAX_HEAD_LINES - 10) + b"Content-Length: %d\r\n\r\n"
    body = b"x" * (2 * MAX_HEAD_BYTES)
    for _ in range(2):
        for piece in (head % len(body), body[:MAX_HEAD_BYTES], body[MAX_HEAD_BYTES:-1], b"x"):
            connection.data_received(piece)
        await connection.answer()
        assert await read_whole(connection, len(body)) == body
        assert connection.release()
        assert connection.acquire()


async def test_writing_waits_while_the_transport_is_full():
    connection, _ = made()
    await connection.drain()
    connection.pause_writing()
    draining = asyncio.create_task(connection.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    connection.resume_writing()
    await draining
    connection.pause_writing()
    draining = asyncio.create_task(connection.drain())
    await asyncio.sleep(0)
    connection.expire()
    await draining
    with pytest.raises(TimeoutError):
        connection.write([b"more"])


@pytest.mark.parametrize("exc", [None, OSError(errno.ECONNRESET, "reset")])
async def test_a_connection_that_has_ended_is_freed_without_a_collection(exc):
    """Collections of old objects are hours apart, and with TLS each connection has large buffers."""
    connection, transport = made()
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
    connection.close()
    gone = weakref.ref(connection)
    gc.disable()
    try:
        connection.connection_lost(exc)
        del connection, transport
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "fails",
    [
        lambda connection: connection.expire(),
        lambda connection: connection.data_received(b"nonsense\r\n\r\n"),
        lambda connection: connection.data_received(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 10_000),
    ],
    ids=["late", "malformed", "a large head"],
)
async def test_a_connection_that_has_failed_is_freed_without_a_collection(fails):
    connection, transport = made()
    gone = weakref.ref(connection)
    gc.disable()
    try:
        fails(connection)
        with pytest.raises((TimeoutError, HTTPError)) as failure:
            await connection.answer()
        with pytest.raises((TimeoutError, HTTPError)):
            await connection.readany()
        connection.connection_lost(None)
        del connection, transport, failure
        assert gone() is None
    finally:
        gc.enable()


#: Heads and bodies of which some make a usual answer together, some need the parser, and some are no answer.
HEADS = (
    LENGTH + b"\r\n",
    LENGTH + b"A: b\r\n\r\n",
    LENGTH + b"Connection: close\r\n\r\n",
    LENGTH + b"Transfer-Encoding: chunked\r\n\r\n",
    OK + b"Content-Length: 0\r\n\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH + b"\r\n",
    b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\nRetry-After: 3\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 2\n\n",
    b"nonsense\r\n\r\n",
)
BODIES = (b"{}", b"[]", b"", b"{", b"{}{}", b"2\r\n{}\r\n0\r\n\r\n", b"5\r\n0\r\n\r\n\r\n0\r\n\r\n")


async def exchanged(connection, pieces):
    """What an exchange gives."""
    for piece in pieces:
        connection.data_received(piece)
    try:
        async with asyncio.timeout(0):
            answer = await connection.answer()
            body = await read_whole(connection, 10**6)
    except Exception as error:
        return type(error), connection.untouched
    stays = connection.release() and connection.acquire()
    return answer.status, dict(answer.headers), body, stays


@given(
    st.lists(
        st.tuples(st.sampled_from(HEADS), st.sampled_from(BODIES), st.integers(0, 90)),
        min_size=1,
        max_size=12,
    )
)
def test_known_heads_change_nothing(answers):
    """Connections that know heads, and share them, give what those give that parse every answer."""

    async def compare():
        heads = KnownHeads()
        knowing, parsing = made()[0], made()[0]
        for head, body, cut in answers:
            knowing.heads = heads
            data = head + body
            pieces = [piece for piece in (data[:cut], data[cut:]) if piece] if cut % 3 else [data]
            got = await exchanged(knowing, pieces)
            assert got == await exchanged(parsing, pieces)
            if not (len(got) == 4 and got[3]):
                knowing, parsing = made()[0], made()[0]

    asyncio.run(compare())


async def test_an_answer_with_a_known_head_is_not_parsed():
    connection, _ = made()
    connection.heads = KnownHeads()
    answers = []
    for body in (b"{}", b"[]", b"12"):
        connection.data_received(LENGTH + b"\r\n" + body)
        answers.append(await connection.answer())
        assert await read_whole(connection, 10) == body
        assert connection.release()
        assert connection.acquire()
    assert answers[0] is answers[1] is answers[2]


def test_few_heads_are_known():
    heads = KnownHeads()
    for number in range(1000):
        heads.add(b"%d\r\n\r\n" % number, None, number)
        assert heads.find(b"%d\r\n\r\n" % number + bytes(number)) == (None, bytes(number))
    assert len(heads._known) <= 64
    heads.add(b"a" * 5000 + b"\r\n\r\n", None, 1)
    assert heads.find(b"a" * 5000 + b"\r\n\r\n1") is None
