"""Reads and unpacks the bodies of answers."""

import asyncio
import zlib
from typing import Final, Protocol

from app.http.connection import READ_BUFFER, HTTPConnection
from app.http.errors import PayloadError

_GZIP: Final = 16 + zlib.MAX_WBITS
#: Packed bytes that are unpacked at once: they may be 200 members, and each one copies what follows it.
_STEP: Final = 4096
#: Packed and unpacked bytes after which other tasks run.
_TURN: Final = 16 * 1024
_TURN_UNPACKED: Final = 4 * READ_BUFFER
#: Packed bytes that may unpack to nothing, as empty members and names in headers do, and to one byte each.
_MAX_EMPTY: Final = 64 * 1024
_MAX_PER_BYTE: Final = 16


class BadEncodingError(PayloadError):
    """The body is not encoded as its Content-Encoding says."""


class GzipReader:
    """A body with ``Content-Encoding: gzip``, unpacked as it is read, READ_BUFFER bytes at a time."""

    def __init__(self, packed: HTTPConnection) -> None:
        self._packed: Final = packed
        self._unzip = zlib.decompressobj(_GZIP)
        #: Bytes that were read from the connection, and how many of them were taken from there.
        self._read = b""
        self._taken = 0
        #: Bytes that were taken and are not unpacked yet.
        self._input = b""
        #: Whether a gzip member is incomplete, and whether the last step has left more output.
        self._begun = self._full = False
        #: Bytes that were taken so far, packed, and what they gave.
        self._packed_bytes = self._bytes = 0
        #: Both numbers at which other tasks run next.
        self._turn_ends = (_TURN, _TURN_UNPACKED)

    def at_eof(self) -> bool:
        """Whether the whole body was read."""
        taken = self._taken == len(self._read) and not self._input
        return taken and not self._begun and self._packed.at_eof()

    async def readany(self) -> bytes:
        """The next bytes, waiting for them; empty at the end. Raises what HTTPConnection.readany does, and
        BadEncodingError."""
        data = b""
        while not data and not self.at_eof():
            packed_end, end = self._turn_ends
            if self._packed_bytes >= packed_end or self._bytes >= end:
                self._turn_ends = (self._packed_bytes + _TURN, self._bytes + _TURN_UNPACKED)
                await asyncio.sleep(0)
            if not self._input and not self._full:
                await self._take()
            data = self._step()
        return data

    async def _take(self) -> None:
        """Takes further packed bytes, waiting for them. Raises BadEncodingError if there are none, or too many for what
        they give."""
        if self._taken == len(self._read):
            self._read, self._taken = await self._packed.readany(), 0
            if not self._read and self._begun:
                raise BadEncodingError("gzip: unexpected end")
        self._input = self._read[self._taken : self._taken + _STEP]
        self._taken += len(self._input)
        self._packed_bytes += len(self._input)
        if self._packed_bytes > _MAX_EMPTY + _MAX_PER_BYTE * self._bytes:
            raise BadEncodingError(f"gzip: more than {_MAX_PER_BYTE} bytes for each one in it")

    def _step(self) -> bytes:
        unzip = self._unzip
        try:
            data = unzip.decompress(self._input, READ_BUFFER)
        except zlib.error as err:
            raise BadEncodingError(f"gzip: {err}") from err
        self._bytes += len(data)
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
