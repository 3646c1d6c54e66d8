"""Converts plain values to models, and reports all mistakes of shape together.

Pydantic finds the mistakes; here they get kube-scheduler's texts and hints. Then the wrong parts are removed and the
rest is decoded again, so that the rules about values (``app.settings.validation``) apply to everything that can be
decoded.
"""

import copy
import typing
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from app.settings.base import Model
from app.settings.fieldtext import SECRETS, required, show
from app.settings.problems import Finding, Locator, Path, render_path

M = TypeVar("M", bound=Model)

_MAX_SHOWN: Final = 200
"""Characters of a value that a message shows."""

_EXPECTED: Final = {
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
}
_MIN_SIMILARITY: Final = 0.7


class Decoded(NamedTuple, Generic[M]):
    """The model of what could be decoded, and the mistakes."""

    model: M
    findings: tuple[Finding, ...]
    """Every mistake of shape."""
    lost: frozenset[Path]
    """The removed paths; findings of later checks there are consequences, not mistakes."""

    def genuine(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """The findings that are not about removed paths."""
        for finding in findings:
            path = finding.path
            if not any(path[:length] in self.lost for length in range(1, len(path) + 1)):
                yield finding


def decode(model: type[M], value: dict[str, Any], locator: Locator) -> Decoded[M]:
    """Decodes ``value`` as ``model``, with its mistakes."""
    value = copy.deepcopy(value)
    decoded, errors = _validate(model, value)
    findings = [_finding(model, error, locator) for error in errors]
    lost = [_path(model, error["loc"]) for error in errors]
    _cut_all(value, lost)
    while decoded is None:
        decoded, errors = _validate(model, value)
        _cut_all(value, [_up_to_key(_path(model, error["loc"])) for error in errors])
    return Decoded(decoded, tuple(findings), frozenset(lost))


def _validate(model: type[M], value: Any) -> tuple[M | None, list[ErrorDetails]]:
    try:
        return model.model_validate(value, by_alias=True, by_name=False), []
    except ValidationError as error:
        return None, [
            detail
            for detail in error.errors(include_url=False)
            if detail["type"] != "default_factory_not_called"
        ]


def _cut_all(value: dict[str, Any], paths: Iterable[Path]) -> None:
    """Removes all paths from the value, the deepest first."""
    for path in sorted(paths, key=len, reverse=True):
        if path:
            _cut(value, path)
        else:
            value.clear()


def _cut(value: Any, path: Path) -> None:
    """Removes a key; an item of a list is emptied instead, so that the others keep their indices."""
    for element in path[:-1]:
        value = value[element]
    if isinstance(value, list):
        value[typing.cast("int", path[-1])] = {}
    else:
        value.pop(path[-1], None)


def _up_to_key(path: Path) -> Path:
    """The closest part of the path that ends in a key."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    return path


# ---------------------------------------------------------------- messages


def _finding(model: type[Model], error: ErrorDetails, locator: Locator) -> Finding:
    """A pydantic error in kube-scheduler's words."""
    path = _path(model, error["loc"])
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        return Finding(path, _unknown_field(model, error["loc"], locator.origin(path)))
    if kind == "missing":
        return required(path)
    if kind == "value_error":
        detail = str(error["ctx"]["error"])
    elif kind in {"greater_than_equal", "less_than_equal"}:
        detail = f"must be {error['msg'].removeprefix('Input should be ')}"
    else:
        detail = _EXPECTED.get(kind, error["msg"])
    if path[-1] in SECRETS:
        return Finding(path, f"Invalid value: {detail}")
    shown = show(value)
    shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
    return Finding(path, f"Invalid value: {shown}: {detail}")


def _unknown_field(model: type[Model], location: Path, path: Path) -> str:
    message = f'unknown field "{render_path(path)}"'
    known = [
        str(field.alias)
        for owner in _owners(model, location)
        for field in owner.model_fields.values()
    ]
    hint = closest(str(path[-1]), known)
    return f'{message}; did you mean "{hint}"?' if hint else message


def closest(name: str, known: Iterable[str], *, similarity: float = _MIN_SIMILARITY) -> str | None:
    """The known name that was probably meant: the same in another case, or a similar one; else None."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes only

    matches = get_close_matches(name.lower(), by_lower, n=1, cutoff=similarity)
    return by_lower[matches[0]] if matches else None


# ---------------------------------------------------------------- walking the models


def _path(model: type[Model], location: Path) -> Path:
    """Pydantic's location without the names of union members that it puts in between."""
    return tuple(element for element, _ in _steps(model, location) if element is not None)


def _owners(model: type[Model], location: Path) -> tuple[type[Model], ...]:
    """The models that the last element of the location should have been a field of."""
    steps = list(_steps(model, location[:-1]))
    return steps[-1][1] if steps else (model,)


def _steps(
    model: type[Model], location: Path
) -> Iterator[tuple[str | int | None, tuple[type[Model], ...]]]:
    """Each element of the location with the models found below it; None for a union member's name."""
    here: dict[str, type[Model]] = {"": model}
    for element in location:
        if isinstance(element, str) and element in here and len(here) > 1:
            here = {"": here[element]}
            yield None, tuple(here.values())
            continue
        if isinstance(element, str):
            fields = [
                field.rebuild_annotation()
                for owner in here.values()
                for field in owner.model_fields.values()
                if field.alias == element
            ]
            here = {tag: found for annotation in fields for tag, found in _models_in(annotation)}
        yield element, tuple(here.values())


def _models_in(annotation: Any, tag: str = "") -> Iterator[tuple[str, type[Model]]]:
    """The models that an annotation mentions, by their union tag."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield tag, typing.cast("type[Model]", annotation)
        return
    tags = [item.tag for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Tag)]
    for argument in typing.get_args(annotation):
        yield from _models_in(argument, tags[0] if tags else tag)
