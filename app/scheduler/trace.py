"""The files of a recording: blocks of records, compressed, with checksums (docs/replay.md has the format).

A file begins with MAGIC, whose last byte is the version. A block is its length (4 bytes, big endian), the CRC-32 of
what follows, and a zstd frame with values: a length (4 bytes) and, in MessagePack, a record, which is an array, or
several (see records_of). The first record of a file is its Header, then come a checkpoint (``Op.ROWS`` to
``Op.CHECKPOINT``) and what happened, in order. No length is believed before it is compared with a limit. Several files,
one after the other, are read as one.
"""

import enum
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import zstandard

from app.model.objects import OwnerReference, PodCondition, PodResourceClaimStatus
from app.model.requests import PodResources

MAGIC: Final = b"aiokube-trace\x00\x00\x03"
#: Versions that are read: the first one has no Op.POD_BOUND, the second one no records without arrays of their own.
_READ: Final = (1, 2, MAGIC[-1])
#: How files are named: by number.
SUFFIX: Final = ".aktrace"

#: The largest block, compressed and not, in bytes, the largest record, and the largest array of records as written.
MAX_COMPRESSED: Final = 8 << 20
MAX_BLOCK: Final = 16 << 20
MAX_RECORD: Final = 4 << 20
MAX_GROUP: Final = 1 << 20
#: A third less CPU than with level 1, for 1.4 times the bytes.
_LEVEL: Final = -3
_BLOCK_HEAD: Final = struct.Struct(">II")
_LENGTH: Final = struct.Struct(">I")


class Op(enum.StrEnum):
    """The kinds of records; what follows each in its array is in docs/replay.md."""

    # What records refer to by number, and the checkpoint.
    TEMPLATE = "T"
    LABELS = "L"
    NAMES = "H"
    ROWS = "N"
    OBJECT = "O"
    POD = "P"
    ASSUMED = "A"
    NOMINATED = "M"
    CHECKPOINT = "E"
    # What came in.
    CHANGED = "c"
    POD_CHANGED = "p"
    POD_BOUND = "B"
    DELETED = "x"
    LISTED = "l"
    LISTED_PODS = "q"
    # What the queue and the cycles did.
    FLUSH = "f"
    ACTIVATE = "v"
    REFRESH_LANES = "R"
    POP = "o"
    POP_GROUP = "g"
    ASSUME = "a"
    UNFIT = "u"
    REJECTED = "r"
    DONE = "n"
    DROP = "d"
    FAIL = "F"
    FORGET = "k"
    FREED = "e"
    BOUND = "b"
    GONE = "U"
    RANDOM = "G"
    # What went out, and what was answered.
    EVICT = "V"
    EVICTION = "y"
    CALL = "X"
    REQUEST = "w"


#: How many values the records that need no array of their own have, the Op included.
_VALUES: Final[Mapping[str, int]] = {
    Op.POD_BOUND: 5,
    Op.POP: 4,
    Op.ASSUME: 3,
    Op.DONE: 2,
    Op.BOUND: 2,
    Op.REQUEST: 5,
}


class Header(msgspec.Struct, frozen=True):
    """What a recording was made with."""

    #: Of aiokube-scheduler.
    version: str
    #: The configuration file's text; empty for the defaults.
    configuration: str
    #: The version whose rules hold, and the feature gates that are on.
    rules: str
    gates: list[str]
    #: See RunOptions.
    max_unschedulable_seconds: float
    #: Seconds since the epoch at which the file begins.
    began: float
    #: Whether it begins with the process: the queue was empty.
    first: bool
    #: Whether records are missing before this file.
    gap: bool = False
    #: The kinds of pod groups that are watched, and the paths at which they are served.
    groups: dict[str, str] = {}
    #: Whether it was made by a shadow: another scheduler has decided, and only objects are recorded.
    observed: bool = False
    #: Whether names and texts are hidden (app/scheduler/redaction.py): messages are empty.
    redacted: bool = False


class PodRecord(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A pod; ``template`` and ``labels`` are numbers of Op.TEMPLATE and Op.LABELS in the same file."""

    namespace: str
    name: str
    uid: str
    template: int
    labels: int
    resource_version: str
    generation: int
    deletion_timestamp: str | None
    leaves_at_once: bool
    owner: OwnerReference | None
    node_name: str
    pod_group_name: str
    nominated_node_name: str
    phase: str
    conditions: tuple[PodCondition, ...]
    start_time: float | None
    resized: PodResources | None
    claim_statuses: tuple[PodResourceClaimStatus, ...]
    extended_claim_status: bytes


class TraceError(Exception):
    """A recording cannot be read, or not further; the text is for the user."""


class BlockWriter:
    """Writes blocks into one file."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self.path: Final = path
        self._file: Final = path.open("wb", buffering=0)
        self._file.write(MAGIC)
        self._compressor: Final = zstandard.ZstdCompressor(level=_LEVEL)
        #: Bytes written.
        self.size = len(MAGIC)

    def write(self, records: list[bytes]) -> None:
        """Writes a block. Raises OSError."""
        plain = b"".join(
            [part for record in records for part in (_LENGTH.pack(len(record)), record)]
        )
        packed = self._compressor.compress(plain)
        left = memoryview(_BLOCK_HEAD.pack(len(packed), zlib.crc32(packed)) + packed)
        while left:
            left = left[self._file.write(left) :]
        self.size += _BLOCK_HEAD.size + len(packed)

    def close(self) -> None:
        """Closes the file. Raises OSError."""
        self._file.close()


def read_records(path: Path) -> Iterator[list[Any]]:
    """The records of a file, but the header first as [Header]. Raises TraceError at the first byte that is not
    right."""
    try:
        with path.open("rb") as file:
            yield from _records(path, file)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from error


def _records(path: Path, file: BinaryIO) -> Iterator[list[Any]]:
    _check_magic(path, file.read(len(MAGIC)))
    header = False
    number = 0
    while head := file.read(_BLOCK_HEAD.size):
        if head == MAGIC[: len(head)]:  # as a length it would be more than any block has
            _check_magic(path, head + file.read(len(MAGIC) - len(head)))
            header = False
            continue
        number += 1
        for record in _block(f"{path}, block {number}", head, file):
            if not header:
                try:
                    yield [msgspec.msgpack.decode(record, type=Header)]
                except msgspec.DecodeError as error:
                    raise TraceError(f"{path}: the header cannot be read: {error}") from error
                header = True
                continue
            try:
                decoded = _DECODER.decode(record)
            except (msgspec.DecodeError, RecursionError) as error:
                text = f"{path}, block {number}: a record cannot be read: {error}"
                raise TraceError(text) from error
            for each in records_of(decoded):
                if type(each) is not list:
                    raise TraceError(f"{path}, block {number}: a record is no array")
                yield each


def records_of(value: list[Any]) -> Iterator[Any]:
    """The records of what is written as one value: a record, an array of records, or 0 and the items of records_in."""
    match value:
        case [] | [str(), *_]:
            return iter([value])
        case [0, list(items)]:
            return records_in(items)
    return records_in(value)


def records_in(items: Sequence[Any]) -> Iterator[Any]:
    """The records of an array that has records, and between them the values of those that need no array of their own.

    Yields what is none as it is.
    """
    at = 0
    while at < len(items):
        item = items[at]
        size = _VALUES.get(item, 1) if type(item) is str else 1
        values = items[at : at + size]
        yield values if len(values) == size > 1 else item
        at += size


def _check_magic(path: Path, magic: bytes) -> None:
    if magic[:-1] != MAGIC[:-1]:
        raise TraceError(f"{path}: this is no recording")
    if magic[-1] not in _READ:
        known, found = ", ".join(map(str, _READ)), magic[-1]
        raise TraceError(f"{path}: version {found} of the format; this program reads {known}")


def _block(where: str, head: bytes, file: BinaryIO) -> Iterator[bytes]:
    if len(head) < _BLOCK_HEAD.size:
        raise TraceError(f"{where}: it is cut off")
    size, checksum = _BLOCK_HEAD.unpack(head)
    if size > MAX_COMPRESSED:
        raise TraceError(f"{where}: it says it has {size} bytes, more than any has")
    packed = file.read(size)
    if len(packed) < size:
        raise TraceError(f"{where}: it is cut off")
    if zlib.crc32(packed) != checksum:
        raise TraceError(f"{where}: it is damaged (its checksum is another)")
    plain = _unpacked(where, packed)
    at = 0
    while at < len(plain):
        if at + _LENGTH.size > len(plain):
            raise TraceError(f"{where}: its last record is cut off")
        [length] = _LENGTH.unpack_from(plain, at)
        at += _LENGTH.size
        if length > min(MAX_RECORD, len(plain) - at):
            raise TraceError(f"{where}: a record says it has {length} bytes, more than there are")
        yield plain[at : at + length]
        at += length


def _unpacked(where: str, packed: bytes) -> bytes:
    try:
        known = zstandard.frame_content_size(packed)
        if not 0 <= known <= MAX_BLOCK:
            raise TraceError(f"{where}: it says it unpacks to more than {MAX_BLOCK} bytes")
        return zstandard.ZstdDecompressor(max_window_size=MAX_BLOCK).decompress(packed)
    except zstandard.ZstdError as error:
        raise TraceError(f"{where}: it cannot be unpacked: {error}") from error


_DECODER: Final = msgspec.msgpack.Decoder(list[Any])


def files_of(trace: Path) -> list[Path]:
    """The files of a recording in order: those of a directory, or the one. Raises TraceError."""
    if not trace.is_dir():
        return [trace]
    found = sorted(trace.glob(f"*{SUFFIX}"))
    if not found:
        raise TraceError(f"{trace}: there is no recording in it")
    return found
