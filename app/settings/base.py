"""The base of all configuration models: no unknown fields, camelCase names, and Go's notion of unset values.

The models are Structs, which are read at the start of the process. What is wrong with a document is found by pydantic,
with models that ``app.settings.mistakes`` makes of these, and only then.
"""

import base64
import binascii
import copy
import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec

from app.model.gotext import Duration

V1: Final = "kubescheduler.config.k8s.io/v1"
"""The API version that kube-scheduler 1.36 reads."""

M = TypeVar("M", bound="Model")


class ReadBy(msgspec.Struct, frozen=True):
    """In an annotation: the function that makes the value of what is given. It raises ValueError."""

    read: Callable[[Any], Any]


class UnsetMeans(msgspec.Struct, frozen=True):
    """In an annotation: the default that replaces zero and empty, because Go does not distinguish them from unset."""

    default: Any


class Model(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Frozen, without unknown fields; in files names are camelCase and case-sensitive."""

    def __post_init__(self) -> None:
        """Applies what the annotations say besides the type. Raises ValueError."""
        for name, notes in _notes(type(self)):
            value = getattr(self, name)
            for note in notes:
                value = note.read(value) if isinstance(note, ReadBy) else value or note.default
            msgspec.structs.force_setattr(self, name, value)


@functools.cache
def _notes(model: type[Model]) -> list[tuple[str, list[ReadBy | UnsetMeans]]]:
    """The fields of a model with more than a type."""
    found = [
        (field.name, [n for n in metadata if isinstance(n, ReadBy | UnsetMeans)])
        for field in msgspec.structs.fields(model)
        if (metadata := getattr(field.type, "__metadata__", ()))
    ]
    return [(name, notes) for name, notes in found if notes]


def replaced(model: M, **changes: Any) -> M:
    """The same model with some fields replaced, and nothing applied to them: an empty text stays empty."""
    new = copy.copy(model)
    for name, value in changes.items():
        msgspec.structs.force_setattr(new, name, value)
    return new


def as_json(value: Any) -> Any:
    """Models, and what they consist of, as JSON values with the names of a file; fields that are None are left out."""
    if isinstance(value, Model):
        fields = msgspec.structs.fields(type(value))
        given = ((field.encode_name, getattr(value, field.name)) for field in fields)
        return {name: as_json(item) for name, item in given if item is not None}
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, tuple | list) else value


def _duration(value: Any) -> Duration:
    if isinstance(value, Duration):
        return value
    if not isinstance(value, str):
        raise ValueError('must be a duration such as "5s" or "1m30s"')  # noqa: TRY004 - as all mistakes
    return Duration.parse(value)


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("must be base64") from None
    return text


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("must be a finite number")
    return number


#: The longest duration of Go, in whole seconds.
_MAX_SECONDS: Final = 2**63 // 10**9 - 1


def _seconds(value: Any) -> Duration:
    """A number means seconds. What no duration can hold is refused."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return _duration(Duration.of(value) if number and abs(value) <= _MAX_SECONDS else value)


Float = Annotated[float, ReadBy(_finite)]
Base64 = Annotated[str, ReadBy(_base64)]
"""Bytes, as base64 text."""

if TYPE_CHECKING:
    GoDuration = Duration
    Seconds = Duration
else:
    GoDuration = Annotated[Any, ReadBy(_duration)]
    """A duration in Go's notation."""
    Seconds = Annotated[Any, ReadBy(_seconds)]
    """A number of seconds, or a duration such as 1m."""
