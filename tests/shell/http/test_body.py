"""How bodies are read and unpacked."""

import gzip
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
