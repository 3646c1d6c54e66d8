"""Estimates how much of an object's JSON is decoded, without decoding it, in about 2 ns per byte."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args

import msgspec

from app.model.limits import MAX_READ_BYTES

#: Lists whose objects are large in parts that are not decoded, or fast to decode: containers, and images of nodes.
_COUNTED: Final = frozenset({"containers", "init_containers", "images"})
#: The size in bytes that counts for an object in these lists, on any level, and for a string in such an object.
_OBJECT: Final = 32
_TEXT: Final = 8


def size_check(model: type[msgspec.Struct]) -> Callable[[msgspec.Raw], None]:
    """A function that raises ValueError for the JSON of an object of which more than MAX_READ_BYTES are decoded as
    ``model``.

    It raises msgspec.DecodeError and RecursionError, too.
    """

    def check(raw: msgspec.Raw) -> None:
        size = sum(_sizes(_outline_decoder(model).decode(raw)))
        if size > MAX_READ_BYTES:
            raise ValueError(f"{size} bytes would be read, and the limit is {MAX_READ_BYTES}")

    return check


@functools.cache
def _outline_decoder(model: type[msgspec.Struct]) -> msgspec.json.Decoder[Any]:
    """Made for the first large object: many kinds never have one."""
    return msgspec.json.Decoder(_outline(model, levels=2))


def _outline(model: type[msgspec.Struct], levels: int) -> type[msgspec.Struct]:
    """A struct with the fields of ``model``; those on the last level are kept as raw JSON."""
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(model):
        inner = _struct_in(field.type) if levels > 1 else None
        kind: Any = msgspec.Raw if inner is None else _outline(inner, levels - 1) | None
        default = msgspec.Raw() if inner is None else None
        fields.append((field.name, kind, msgspec.field(default=default, name=field.encode_name)))
    return msgspec.defstruct(model.__name__, fields, gc=False)


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The struct type of a field, also if it is optional."""
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None


def _sizes(outline: msgspec.Struct) -> Iterator[int]:
    for name in outline.__struct_fields__:
        value = getattr(outline, name)
        if isinstance(value, msgspec.Struct):
            yield from _sizes(value)
        elif value is not None:
            yield _counted(bytes(value)) if name in _COUNTED else len(value)


def _counted(objects: bytes) -> int:
    """The counted characters are outside strings, because quotes in strings are escaped; except ``,{}``, which is
    rare."""
    return _OBJECT * (objects.count(b'},{"') + objects.count(b",{}")) + _TEXT * objects.count(
        b'":"'
    )
