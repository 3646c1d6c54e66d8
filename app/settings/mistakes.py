"""Finds all mistakes of shape in a document, with models of pydantic that are made of ours.

Pydantic finds the mistakes; here they get kube-scheduler's texts and hints. Then the wrong parts are removed and the
rest is decoded again, so that the rules about values (``app.settings.validation``) apply to everything that can be
decoded.
"""

import copy
import functools
import operator
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Strict,
    Tag,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import ErrorDetails

from app.model.gotext import Duration
from app.settings import models
from app.settings.args import ARGS
from app.settings.base import Model, ReadBy
from app.settings.fieldtext import SECRETS, required, show
from app.settings.problems import Finding, Locator, Path, closest, render_path

M = TypeVar("M", bound=Model)
Args = TypeVar("Args")

_OPAQUE: Final = "out-of-tree"
"""The union tag of plugin configurations with unknown arguments."""
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


def find_mistakes(
    model: type[M], value: dict[str, Any], locator: Locator
) -> tuple[M, tuple[Finding, ...], frozenset[Path]]:
    """The model of what could be decoded, the mistakes, and the paths that were removed."""
    checked, value = model_of(model), copy.deepcopy(value)
    decoded, errors = _validate(checked, value)
    findings = [_finding(checked, error, locator) for error in errors]
    lost = [_path(checked, error["loc"]) for error in errors]
    _cut_all(value, lost)
    while decoded is None:
        decoded, errors = _validate(checked, value)
        _cut_all(value, [_up_to_key(_path(checked, error["loc"])) for error in errors])
    given = decoded.model_dump(by_alias=True, exclude_unset=True)
    return msgspec.convert(given, model), tuple(findings), frozenset(lost)


def _validate(model: type[BaseModel], value: Any) -> tuple[BaseModel | None, list[ErrorDetails]]:
    try:
        return model.model_validate(value, by_alias=True, by_name=False), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


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


def _finding(model: type[BaseModel], error: ErrorDetails, locator: Locator) -> Finding:
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


def _unknown_field(model: type[BaseModel], location: Path, path: Path) -> str:
    message = f'unknown field "{render_path(path)}"'
    known = [
        str(field.alias)
        for owner in _owners(model, location)
        for field in owner.model_fields.values()
    ]
    hint = closest(str(path[-1]), known)
    return f'{message}; did you mean "{hint}"?' if hint else message


# ---------------------------------------------------------------- walking the models


def _path(model: type[BaseModel], location: Path) -> Path:
    """Pydantic's location without the names of union members that it puts in between."""
    return tuple(element for element, _ in _steps(model, location) if element is not None)


def _owners(model: type[BaseModel], location: Path) -> tuple[type[BaseModel], ...]:
    """The models that the last element of the location should have been a field of."""
    steps = list(_steps(model, location[:-1]))
    return steps[-1][1] if steps else (model,)


def _steps(
    model: type[BaseModel], location: Path
) -> Iterator[tuple[str | int | None, tuple[type[BaseModel], ...]]]:
    """Each element of the location with the models found below it; None for a union member's name."""
    here: dict[str, type[BaseModel]] = {"": model}
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


def _models_in(annotation: Any, tag: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """The models that an annotation mentions, by their union tag."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield tag, annotation
        return
    tags = [item.tag for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Tag)]
    for argument in typing.get_args(annotation):
        yield from _models_in(argument, tags[0] if tags else tag)


# ---------------------------------------------------------------- models of models


class _Checked(BaseModel):
    """Null means absent, as in Go."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _nulls_are_absent(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if item is not None}
        return value


class PluginConfig(_Checked, Generic[Args]):
    """Arguments for one plugin."""

    name: Annotated[str, Strict()] = Field(default="", alias="name")
    args: Args = Field(alias="args")

    @model_validator(mode="before")
    @classmethod
    def _args_may_be_absent(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("args") is None:
            return {**value, "args": {}}
        return value


def _tag(value: Any) -> str:
    """Which member of the union a plugin configuration is: the plugin's name, or ``_OPAQUE``."""
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    return name if isinstance(name, str) and name in ARGS else _OPAQUE


@functools.cache
def _any_plugin_config() -> Any:
    """The configuration of an in-tree plugin with typed arguments, or of any other plugin with opaque ones."""
    kinds = {name: model_of(args) for name, args in ARGS.items()} | {_OPAQUE: Any}
    members = [Annotated[PluginConfig[kind], Tag(name)] for name, kind in kinds.items()]  # type: ignore[valid-type]
    return Annotated[functools.reduce(operator.or_, members), Discriminator(_tag)]


@functools.cache
def model_of(model: type[Model]) -> type[BaseModel]:
    """The model of pydantic with the same fields and rules."""
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(model):
        made = functools.partial(_like, field.default)
        given: dict[str, Any] = {"default": made()}
        if isinstance(field.default, Model | tuple):
            given = {"default_factory": made}
        elif field.default is msgspec.NODEFAULT:
            given = {"default_factory": field.default_factory}
        fields[field.name] = (_annotation(field.type), Field(alias=field.encode_name, **given))
    return create_model(model.__name__, __base__=_Checked, __doc__=model.__doc__, **fields)


def _like(value: Any) -> Any:
    """A default as the models of pydantic have it."""
    if isinstance(value, str):
        return str(value)  # also one of a class of its own
    if isinstance(value, Model):
        given = {name: _like(getattr(value, name)) for name in value.__struct_fields__}
        return model_of(type(value)).model_construct(**given)
    return tuple(map(_like, value)) if isinstance(value, tuple) else value


def _annotation(kind: Any) -> Any:
    """A field's type with its rules, for pydantic."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _annotated(*arguments)
    if origin is types.UnionType:
        return functools.reduce(operator.or_, map(_annotation, arguments))
    if origin is not None:
        return origin[tuple(each if each is ... else _annotation(each) for each in arguments)]
    if kind is models.PluginConfig:
        return _any_plugin_config()
    if kind is float:
        return Annotated[float, Strict(), Field(allow_inf_nan=False)]
    if kind in {str, bool, int}:
        return Annotated[kind, Strict()]
    return model_of(kind) if isinstance(kind, type) and issubclass(kind, Model) else kind


def _annotated(kind: Any, *notes: Any) -> Any:
    rules: list[Any] = []
    for note in notes:
        if isinstance(note, msgspec.Meta):
            rules.append(Field(ge=note.ge, le=note.le))
        elif isinstance(note, ReadBy) and kind is Any:
            described = {"type": "string", "description": "a Go duration such as 1m30s"}
            rules += (
                PlainValidator(note.read),
                PlainSerializer(str, return_type=str),
                WithJsonSchema(described),
            )
        elif isinstance(note, ReadBy):
            rules.append(AfterValidator(note.read))
    kind = Duration if kind is Any else _annotation(kind)
    return Annotated[(kind, *rules)] if rules else kind
