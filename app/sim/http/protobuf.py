"""Decodes request bodies in Kubernetes' protobuf encoding.

Go clients with typed APIs, such as kubectl's ``create`` commands and kube-scheduler, send protobuf by default, but
accept JSON. The bodies of the kinds that they create are decoded into the JSON form. ``protobuf_messages`` lists the
messages; a field that is not listed is refused, because it would be lost.

The encoding is an envelope (four bytes, then a message with type and content) around a proto2 message.
"""

import functools
from base64 import b64encode
from typing import Any, Final, NamedTuple

import msgspec

from app.model.timestamps import format_micro_time, format_time
from app.sim.errors import ApiError, bad_request, unsupported_media_type
from app.sim.http.protobuf_messages import MESSAGES, ROOTS
from app.wire.protobuf import MAGIC, fields

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_INT64_SIGN: Final = 1 << 63


class _Field(NamedTuple):
    name: str
    type: str
    shape: str
    """``one``, ``list``, ``map``, ``inline`` (the message's fields belong to its parent) or ``skip``."""


def decode_protobuf(body: bytes) -> Any:
    """Decodes a request body into an object. Raises 400, or 415 if its kind is unknown."""
    if not body.startswith(MAGIC):
        raise bad_request("the protobuf body does not begin with the Kubernetes prefix")
    try:
        envelope = dict(fields(body[len(MAGIC) :]))
        type_ = dict(fields(_bytes(envelope.get(1, b""))))
        version, kind = (_bytes(type_.get(number, b"")).decode() for number in (1, 2))
        root = ROOTS.get((version, kind)) or ROOTS.get(("", kind))
        if root is None:
            raise _unknown(f"{kind} in {version}")
        return {"apiVersion": version, "kind": kind} | _message(root, _bytes(envelope.get(2, b"")))
    except ValueError as error:
        raise bad_request(f"the protobuf body cannot be decoded: {error}") from error


def _unknown(what: str) -> ApiError:
    accepted = ["application/json", "application/yaml", f"{PROTOBUF} (but not for {what})"]
    return unsupported_media_type(accepted)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message belongs")  # noqa: TRY004 - malformed data, not a bug
    return value


_KEPT_EMPTY: Final = ("LabelSelector", "BasicPolicy")
"""Messages that mean something without fields: Go sends them only if they are set."""


@functools.cache
def _layout(message: str) -> dict[int, _Field]:
    """The fields of a message by number, from the table."""
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
    """Decodes a message. Empty texts and messages are left out, because Go always sends them."""
    result: dict[str, Any] = {}
    layout = _layout(name)
    for number, raw in fields(data):
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
        entry = dict(fields(_bytes(raw)))
        key = _bytes(entry.get(1, b"")).decode()
        result.setdefault(field.name, {})[key] = _value(field.type, entry.get(2, b""))
    else:
        value = _value(field.type, raw)
        if value not in (None, "") and (value != {} or field.type in _KEPT_EMPTY):
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
            return _bytes(dict(fields(_bytes(raw))).get(1, b"0")).decode()
        case "IntOrString":
            return _int_or_string(_bytes(raw))
        case "JSON":
            return msgspec.json.decode(_bytes(dict(fields(_bytes(raw))).get(1, b"null")))
    return _message(type_, _bytes(raw))


def _signed(raw: int | bytes) -> int:
    if isinstance(raw, bytes):
        raise ValueError("a message where a number belongs")  # noqa: TRY004 - malformed data, not a bug
    return raw - 2 * _INT64_SIGN if raw >= _INT64_SIGN else raw


def _time(data: bytes, *, micro: bool) -> str | None:
    """A timestamp; None for Go's zero time, which is sent as nothing or as the year 1."""
    parts = dict(fields(data))
    seconds, nanos = _signed(parts.get(1, 0)), _signed(parts.get(2, 0))
    if seconds <= 0:
        return None
    return format_micro_time(seconds + nanos / 1e9) if micro else format_time(seconds)


def _int_or_string(data: bytes) -> int | str:
    parts = dict(fields(data))
    if parts.get(1, 0):
        return _bytes(parts.get(3, b"")).decode()
    return _signed(parts.get(2, 0))
