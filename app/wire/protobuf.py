"""Objects in Kubernetes' protobuf encoding, as far as adding a finalizer to one takes it.

JSON cannot do that for every object: opaque parameters (runtime.RawExtension) are kept as their author wrote them, blanks
included, but Go's JSON encoder compacts them, so that a spec that must not change seems to change with any patch. An object is
read and written back in protobuf then, byte for byte, with a piece at its end: protobuf merges what occurs twice.
"""

from collections.abc import Iterator
from typing import Final

from app.wire.envelope import DecodeError

#: Before every object: "k8s" and NUL; a runtime.Unknown follows.
_MAGIC: Final = b"k8s\x00"
# Numbers of fields: of runtime.Unknown, of every object, and of ObjectMeta.
_TYPE: Final = 1
_OBJECT: Final = 2
_METADATA: Final = 1
_RESOURCE_VERSION: Final = 6
_FINALIZERS: Final = 14

_VARINT: Final = 0
_BYTES: Final = 2


def resource_version(encoded: bytes) -> str:
    """metadata.resourceVersion. Raises DecodeError."""
    metadata = _field(_field(_unwrapped(encoded), _OBJECT), _METADATA)
    return _field(metadata, _RESOURCE_VERSION).decode()


def with_finalizer(encoded: bytes, finalizer: str) -> bytes:
    """The object with one more finalizer. Raises DecodeError."""
    unknown = _unwrapped(encoded)
    metadata = _piece(_METADATA, _piece(_FINALIZERS, finalizer.encode()))
    changed = _field(unknown, _OBJECT) + metadata
    return _MAGIC + _piece(_TYPE, _field(unknown, _TYPE)) + _piece(_OBJECT, changed)


def _unwrapped(encoded: bytes) -> bytes:
    if not encoded.startswith(_MAGIC):
        raise DecodeError("object", "not in Kubernetes' protobuf encoding")
    return encoded[len(_MAGIC) :]


def _field(message: bytes, number: int) -> bytes:
    """A field of bytes, of text or of a message; empty where it is absent."""
    try:
        return dict(_fields(message)).get(number, b"")
    except IndexError as error:
        raise DecodeError("object", "ends within a field") from error


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of the fields that have a length; numbers are passed over."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        value, at = _varint(message, at)
        if tag & 7 == _BYTES:
            if at + value > len(message):
                raise IndexError
            yield tag >> 3, message[at : at + value]
            at += value
        elif tag & 7 != _VARINT:
            raise DecodeError("object", f"field {tag >> 3} has the unexpected type {tag & 7}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that stands at ``at``, and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _piece(number: int, content: bytes) -> bytes:
    """A field with a length."""
    length, head = len(content), bytearray([number << 3 | _BYTES])
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + content
