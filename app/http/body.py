"""Reads and unpacks the bodies of answers."""

import zlib
from typing import Final, Protocol

from app.http.connection import READ_BUFFER, HTTPConnection
from app.http.errors import PayloadError

_GZIP: Final = 16 + zlib.MAX_WBITS


class BadEncodingError(PayloadError):
    """The body is not encoded as its Content-Encoding says."""


class GzipReader:
    """A body with ``Content-Encoding: gzip``, unpacked as it is read, READ_BUFFER bytes at a time."""

    def __init__(self, packed: HTTPConnection) -> None:
        self._packed: Final = packed
        self._unzip = zlib.decompressobj(_GZIP)
        #: Bytes that are not unpacked yet.
        self._input = b""
        #: Whether a gzip member is incomplete, and whether the last step has left more output.
        self._begun = self._full = False

    def at_eof(self) -> bool:
        """Whether the whole body was read."""
        return self._packed.at_eof() and not (self._input or self._begun)

    async def readany(self) -> bytes:
        """The next bytes, waiting for them; empty at the end. Raises what HTTPConnection.readany does, and BadEncodingError."""
        data = b""
        while not data and not self.at_eof():
            if not self._input and not self._full:
                self._input = await self._packed.readany()
                if not self._input and self._begun:
                    raise BadEncodingError("gzip: unexpected end")
            data = self._step()
        return data

    def _step(self) -> bytes:
        unzip = self._unzip
        try:
            data = unzip.decompress(self._input, READ_BUFFER)
        except zlib.error as err:
            raise BadEncodingError(f"gzip: {err}") from err
        self._begun = not unzip.eof
        self._full = self._begun and len(data) == READ_BUFFER
        self._input = unzip.unconsumed_tail
        if unzip.eof:  # another member may follow
            self._input = unzip.unused_data
            self._unzip = zlib.decompressobj(_GZIP)
        return data


class Readable(Protocol):
    """A body, or the rest of one."""

    async def readany(self) -> bytes:
        """The next bytes, waiting for some; empty at the end."""

    def at_eof(self) -> bool:
        """Whether the whole body was read."""


async def read_beginning(body: Readable, limit: int) -> bytes:
    """The first ``limit`` bytes of a body, or all of it."""
    chunks: list[bytes] = []
    while limit > 0 and not body.at_eof():
        chunks.append((await body.readany())[:limit])
        limit -= len(chunks[-1])
    return b"".join(chunks)


async def read_whole(body: Readable, limit: int) -> bytes:
    """A body. Raises PayloadError for one of more than ``limit`` bytes."""
    data = await body.readany()
    if len(data) <= limit and not body.at_eof():
        data += await read_beginning(body, limit + 1 - len(data))
    if len(data) > limit:
        raise PayloadError(f"the answer has more than {limit} bytes")
    return data
