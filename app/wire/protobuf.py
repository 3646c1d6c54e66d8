"""Kubernetes' protobuf encoding, as far as needed to add a finalizer to an object.

A JSON patch fails for some objects. Opaque parameters (runtime.RawExtension) are stored as written, with white space,
but Go's JSON encoder removes it, so that an immutable spec seems to have changed. Such an object is read in protobuf
and written back unchanged with a field appended: protobuf merges repeated fields.
"""

from collections.abc import Iterator
from typing import Final

from app.wire.envelope import DecodeError

#: Before every object: "k8s" and NUL. A runtime.Unknown follows.
MAGIC: Final = b"k8s\x00"
# Field numbers: of runtime.Unknown, of every object, and of ObjectMeta.
_TYPE: Final = 1
_OBJECT: Final = 2
_METADATA: Final = 1
_RESOURCE_VERSION: Final = 6
_FINALIZERS: Final = 14

_VARINT: Final = 0
_BYTES: Final = 2
#: Bytes by wire type.
_FIXED_SIZES: Final = {1: 8, 5: 4}
_MAX_VARINT_BYTES: Final = 10


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and value of each field: bytes for length-delimited fields, else an int. Raises ValueError for
    malformed data."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if wire_type == _BYTES:
            size, at = _varint(message, at)
        elif wire_type in _FIXED_SIZES:
            size = _FIXED_SIZES[wire_type]
        else:
            raise ValueError(f"wire type {wire_type}")
        content = message[at : at + size]
        if len(content) < size:
            raise ValueError("a field is longer than its message")
        yield tag >> 3, content if wire_type == _BYTES else int.from_bytes(content, "little")
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at a position, and the position after it."""
    value = 0
    for count, byte in enumerate(message[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value, at + count + 1
    raise ValueError("a number does not end")


# ---------------------------------------------------------------- finalizers


def resource_version(encoded: bytes) -> str:
    """metadata.resourceVersion. Raises DecodeError."""
    metadata = _field(_field(_unwrapped(encoded), _OBJECT), _METADATA)
    return _field(metadata, _RESOURCE_VERSION).decode()


def with_finalizer(encoded: bytes, finalizer: str) -> bytes:
    """The object with one more finalizer. Raises DecodeError."""
    unknown = _unwrapped(encoded)
    metadata = _piece(_METADATA, _piece(_FINALIZERS, finalizer.encode()))
    changed = _field(unknown, _OBJECT) + metadata
    return MAGIC + _piece(_TYPE, _field(unknown, _TYPE)) + _piece(_OBJECT, changed)


def _unwrapped(encoded: bytes) -> bytes:
    if not encoded.startswith(MAGIC):
        raise DecodeError("object", "not in Kubernetes' protobuf encoding")
    return encoded[len(MAGIC) :]


def _field(message: bytes, number: int) -> bytes:
    """A field of bytes, of text or of a message; empty if it is absent."""
    try:
        value = dict(fields(message)).get(number, b"")
    except ValueError as error:
        raise DecodeError("object", str(error)) from error
    if isinstance(value, int):
        raise DecodeError("object", f"field {number} is a number")
    return value


def _piece(number: int, content: bytes) -> bytes:
    """A field with a length."""
    length, head = len(content), bytearray([number << 3 | _BYTES])
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + content
