"""How bodies are read and unpacked."""

import asyncio
import gzip
import random
import time
import zlib

import pytest

from app.http.body import BadEncodingError, GzipReader, read_beginning, read_whole
from app.http.connection import READ_BUFFER
from app.http.errors import PayloadError


class Packed:
    """A body that comes in these pieces."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)

    def at_eof(self):
        return not self.pieces

    async def readany(self):
        return self.pieces.pop(0) if self.pieces else b""


async def test_the_beginning_and_the_whole():
    assert await read_beginning(Packed(b"ab", b"cd"), 3) == b"abc"
    assert await read_whole(Packed(b"ab", b"cd"), 4) == b"abcd"
    with pytest.raises(PayloadError, match="more than 3 bytes"):
        await read_whole(Packed(b"ab", b"cd"), 3)


@pytest.mark.parametrize("step", [1, 10, 10**7])
@pytest.mark.parametrize("content", [b"", b"{}", bytes(READ_BUFFER), bytes(3 * READ_BUFFER + 5)])
async def test_gzip_members_one_after_another(content, step):
    packed = gzip.compress(content) + gzip.compress(b"end")
    unzipped = GzipReader(Packed(*(packed[n : n + step] for n in range(0, len(packed), step))))
    pieces = []
    while not unzipped.at_eof():
        pieces.append(await unzipped.readany())
    assert b"".join(pieces) == content + b"end"
    assert max(map(len, pieces)) <= READ_BUFFER
    assert await unzipped.readany() == b""


async def test_gzip_with_no_body_at_all():
    assert await read_beginning(GzipReader(Packed()), 10) == b""


@pytest.mark.parametrize(
    "packed",
    [
        b"plain",
        gzip.compress(b"x", mtime=0) + b"plain",
        zlib.compress(b"x"),
        gzip.compress(b"x", mtime=0)[:-1],
    ],
)
async def test_what_is_not_gzip(packed):
    with pytest.raises(BadEncodingError, match="gzip"):
        await read_beginning(GzipReader(Packed(packed)), 10)


class Longest:
    """Measures the longest time without the event loop, in CPU seconds of this thread."""

    async def __aenter__(self):
        self.seconds = 0.0
        self._task = asyncio.create_task(self._measure())
        await asyncio.sleep(0)
        return self

    async def _measure(self):
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            self.seconds = max(self.seconds, time.thread_time() - before)

    async def __aexit__(self, *_):
        await asyncio.sleep(0)
        self._task.cancel()


_EMPTY = gzip.compress(b"", mtime=0)


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        pytest.param(b"", _EMPTY * (READ_BUFFER // len(_EMPTY)), id="empty members"),
        pytest.param(b"", gzip.compress(b"x", mtime=0) * 12_000, id="members of one byte"),
        pytest.param(b"\x1f\x8b\x08\x08\0\0\0\0\0\3", b"n" * READ_BUFFER, id="a name"),
    ],
)
async def test_gzip_that_unpacks_to_nothing_ends(beginning, piece):
    body = Packed(beginning + piece, *[piece] * 400)
    unzipped = GzipReader(body)
    async with Longest() as longest:
        with pytest.raises(BadEncodingError, match="gzip: more than"):
            await read_whole(unzipped, 10**9)
    assert len(body.pieces) > 390
    assert longest.seconds < 0.02


@pytest.mark.parametrize(
    ("content", "members"),
    [
        pytest.param(random.Random(1).randbytes(300), 800, id="small members"),
        pytest.param(bytes(200_000_000), 1, id="a bomb"),
    ],
)
async def test_the_event_loop_runs_while_gzip_is_unpacked(content, members):
    packed = gzip.compress(content, 1, mtime=0) * members
    length = members * len(content)
    body = GzipReader(Packed(packed))
    async with Longest() as longest:
        while not body.at_eof():
            length -= len(await body.readany())
    assert not length
    assert longest.seconds < 0.02


async def test_gzip_that_is_flushed_after_every_few_bytes():
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    pieces = [packer.compress(b"12") + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(30_000)]
    body = Packed(*pieces, packer.flush())
    assert await read_whole(GzipReader(body), 10**6) == b"12" * 30_000
