"""Kubernetes' protobuf encoding of objects, as far as clients insist on sending it.

Go clients with typed APIs, kubectl's ``create`` commands and kube-scheduler among them, post protobuf unless told
otherwise, and read JSON happily. Bodies of the kinds they create are decoded here into the JSON form; the messages are
listed in ``protobuf_messages``. Anything not listed there is refused rather than lost.

The encoding is an envelope (four magic bytes, then a message with type and content) around a proto2 message.
"""

import functools
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from app.model.timestamps import format_micro_time, format_time
from app.sim.errors import ApiError, bad_request, unsupported_media_type
from app.sim.http.protobuf_messages import MESSAGES, ROOTS

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_INT64_SIGN: Final = 1 << 63


class _Field(NamedTuple):
    name: str
    type: str
    shape: str
    """``one``, ``list``, ``map``, ``inline`` (the message's fields belong to its parent) or ``skip``."""


def decode_protobuf(body: bytes) -> Any:
    """Decodes a request body into the object it stands for. Raises 400, or 415 if its kind is not known."""
    if not body.startswith(_MAGIC):
        raise bad_request("the protobuf body does not begin with the Kubernetes prefix")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        type_ = dict(_fields(_bytes(envelope.get(1, b""))))
        version, kind = (_bytes(type_.get(number, b"")).decode() for number in (1, 2))
        root = ROOTS.get((version, kind)) or ROOTS.get(("", kind))
        if root is None:
            raise _unknown(f"{kind} in {version}")
        return {"apiVersion": version, "kind": kind} | _message(root, _bytes(envelope.get(2, b"")))
    except (ValueError, IndexError) as error:
        raise bad_request(f"the protobuf body cannot be decoded: {error}") from error


def _unknown(what: str) -> ApiError:
    accepted = ["application/json", "application/yaml", f"{PROTOBUF} (but not for {what})"]
    return unsupported_media_type(accepted)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message belongs")  # noqa: TRY004 - malformed data, not a bug
    return value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Reads a varint; returns it and the position behind it. Raises IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields (field number, value) of a message. Raises ValueError or IndexError if it is malformed."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if position + size > len(data):
            raise ValueError("a field is longer than its message")
        yield tag >> 3, data[position : position + size]
        position += size


@functools.cache
def _layout(message: str) -> dict[int, _Field]:
    """Reads a message's line in the table: field number -> field."""
    layout = {}
    for entry in MESSAGES[message].split():
        number, _, rest = entry.partition(":")
        name, _, type_ = rest.partition("/")
        shape = "one"
        for brackets, bracketed in (("[]", "list"), ("{}", "map"), ("<>", "inline")):
            if type_[:1] == brackets[0]:
                shape, type_ = bracketed, type_[1:-1]
        layout[int(number)] = _Field(name, type_ or "string", "skip" if type_ == "-" else shape)
    return layout


def _message(name: str, data: bytes) -> dict[str, Any]:
    """Decodes a message. Empty texts and messages are as good as absent, because Go always sends them."""
    result: dict[str, Any] = {}
    layout = _layout(name)
    for number, raw in _fields(data):
        field = layout.get(number)
        if field is None:
            raise _unknown(f"field {number} of {name}")
        _add(result, field, raw)
    return result


def _add(result: dict[str, Any], field: _Field, raw: int | bytes) -> None:
    if field.shape == "skip":
        return
    if field.shape == "inline":
        result |= _message(field.type, _bytes(raw))
    elif field.shape == "list":
        result.setdefault(field.name, []).append(_value(field.type, raw))
    elif field.shape == "map":
        entry = dict(_fields(_bytes(raw)))
        key = _bytes(entry.get(1, b"")).decode()
        result.setdefault(field.name, {})[key] = _value(field.type, entry.get(2, b""))
    else:
        value = _value(field.type, raw)
        if value not in (None, "") and (value != {} or field.type == "LabelSelector"):
            result[field.name] = value


def _value(type_: str, raw: int | bytes) -> Any:
    match type_:
        case "string":
            return _bytes(raw).decode()
        case "bytes":
            return b64encode(_bytes(raw)).decode()
        case "bool":
            return bool(raw)
        case "int":
            return _signed(raw)
        case "Time" | "MicroTime":
            return _time(_bytes(raw), micro=type_ == "MicroTime")
        case "Quantity":
            return _bytes(dict(_fields(_bytes(raw))).get(1, b"0")).decode()
        case "IntOrString":
            return _int_or_string(_bytes(raw))
        case "JSON":
            return msgspec.json.decode(_bytes(dict(_fields(_bytes(raw))).get(1, b"null")))
    return _message(type_, _bytes(raw))


def _signed(raw: int | bytes) -> int:
    if isinstance(raw, bytes):
        raise ValueError("a message where a number belongs")  # noqa: TRY004 - malformed data, not a bug
    return raw - 2 * _INT64_SIGN if raw >= _INT64_SIGN else raw


def _time(data: bytes, *, micro: bool) -> str | None:
    """Reads a timestamp; the zero time of Go (sent as nothing, or as the year 1) is None."""
    parts = dict(_fields(data))
    seconds, nanos = _signed(parts.get(1, 0)), _signed(parts.get(2, 0))
    if seconds <= 0:
        return None
    return format_micro_time(seconds + nanos / 1e9) if micro else format_time(seconds)


def _int_or_string(data: bytes) -> int | str:
    parts = dict(_fields(data))
    if parts.get(1, 0):
        return _bytes(parts.get(3, b"")).decode()
    return _signed(parts.get(2, 0))
