"""OpenAPI v3 documents, for ``kubectl explain`` and for what kubectl asks before it writes.

The schemas come from the models of kubernetes_asyncio: names and types of the fields, and their descriptions. The rules
of strategic merge patches are added from ``merge_keys``. A document is built when it is first asked for, because
importing the models takes seconds.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from app.sim.patches.merge_keys import STRUCTS, Struct
from app.sim.resources.kinds import BY_RESOURCE, STORED_VERBS, Kind

Schema = dict[str, Any]

_REF: Final = "#/components/schemas/"
_GVK: Final = "x-kubernetes-group-version-kind"
_SIMPLE: Final[Mapping[str, Schema]] = {
    "str": {"type": "string"},
    "int": {"type": "integer", "format": "int32"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "bytearray": {"type": "string", "format": "byte"},
    "object": {"type": "object"},
}
_LIST: Final = re.compile(r"list\[(.*)\]")
_MAP: Final = re.compile(r"dict[(\[]str, ?(.*)[)\]]")
_MODEL: Final = re.compile(r"([A-Z][a-z]+)?(V\d+(?:(?:alpha|beta)\d+)?)([A-Z].*)")
_DESCRIPTION: Final = re.compile(r"\n\s*\n(.*?)#\s*noqa", re.DOTALL)


def document(kinds: list[Kind], custom: Mapping[Kind, Schema], version: str) -> bytes:
    """The document of one group and version. ``custom``: the schemas of custom resources."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Schema] = {}
    for kind in kinds:
        paths[_object_path(kind)] = _operations(kind)
        if "get" in kind.verbs:
            name, schema = _root(kind, custom, schemas)
            schemas[name] = schema | {_GVK: [_type_of(kind)]}
    return msgspec.json.encode(
        {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": version},
            "paths": paths,
            "components": {"schemas": schemas},
        }
    )


def _type_of(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _object_path(kind: Kind) -> str:
    root = f"apis/{kind.group_version}" if kind.group else f"api/{kind.version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"/{root}{scope}/{kind.plural}/{{name}}"


def _operations(kind: Kind) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "get" in kind.verbs:
        found["get"] = {_GVK: _type_of(kind)}
    if "patch" in kind.verbs or kind.verbs == STORED_VERBS:
        names = ("dryRun", "fieldManager", "fieldValidation", "force")
        parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
        found["patch"] = {"parameters": parameters, _GVK: _type_of(kind)}
    return found


def _root(
    kind: Kind, custom: Mapping[Kind, Schema], schemas: dict[str, Schema]
) -> tuple[str, Schema]:
    """The schema of a kind, by its name in the document. Adds those that it refers to."""
    given = custom.get(kind)
    model = None if given is not None else _model_of(kind)
    if model is None:
        metadata = _models().V1ObjectMeta
        _add(metadata, schemas)
        parts: Schema = {"metadata": {"allOf": [{"$ref": _REF + _name_of(metadata.__name__)}]}}
        parts |= {name: {"type": "string"} for name in ("apiVersion", "kind")}
        own = dict(given or {})
        properties = own.get("properties")
        own["properties"] = (properties if isinstance(properties, dict) else {}) | parts
        return f"{kind.group_version.replace('/', '.')}.{kind.kind}", {"type": "object"} | own
    _add(model, schemas)
    name = _name_of(model.__name__)
    return name, schemas[name]


@functools.cache
def _models() -> Any:
    """The models, which take seconds to import."""
    from kubernetes_asyncio.client import models  # noqa: PLC0415 - see above

    return models


def _model_of(kind: Kind) -> Any:
    version = kind.version[0].upper() + kind.version[1:]
    group = (kind.group.partition(".")[0] or "core").capitalize()
    for name in (f"{group}{version}{kind.kind}", f"{version}{kind.kind}"):
        model = getattr(_models(), name, None)
        if model is not None:
            return model
    return None


def _name_of(model: str) -> str:
    """``V1PodSpec`` as ``v1.PodSpec``: explain shows what is behind the last dot."""
    match = _MODEL.fullmatch(model)
    if match is None:
        return model
    group, version, kind = match.groups()
    return ".".join(filter(None, ((group or "").lower(), version.lower(), kind)))


def _add(model: Any, schemas: dict[str, Schema]) -> None:
    """Adds the schema of a model and of all that it refers to."""
    todo = [model]
    while todo:
        current = todo.pop()
        name = _name_of(current.__name__)
        if name not in schemas:
            schemas[name], found = _schema(current)
            todo += found


@functools.cache
def _schema(model: Any) -> tuple[Schema, list[Any]]:
    """The schema of a model, and the models that it refers to."""
    properties: dict[str, Schema] = {}
    found: list[Any] = []
    for attribute, type_ in model.openapi_types.items():
        schema, inner = _typed(type_)
        if inner is not None:
            found.append(inner)
        text = _description(model, attribute)
        rules = _patch_rules().get((model.__name__, model.attribute_map[attribute]), {})
        if "$ref" in schema:
            schema = {"allOf": [schema]}
        described = {"description": text} if text else {}
        properties[model.attribute_map[attribute]] = described | schema | rules
    return {"type": "object", "properties": properties}, found


def _typed(type_: str) -> tuple[Schema, Any]:
    """The schema of a type, and the model in it."""
    if type_ in _SIMPLE:
        return dict(_SIMPLE[type_]), None
    if match := _LIST.fullmatch(type_):
        schema, model = _typed(match[1])
        return {"type": "array", "items": schema}, model
    if match := _MAP.fullmatch(type_):
        schema, model = _typed(match[1])
        return {"type": "object", "additionalProperties": schema}, model
    model = getattr(_models(), type_, None)
    if model is None:
        return {"type": "object"}, None
    return {"$ref": _REF + _name_of(type_)}, model


def _description(model: Any, attribute: str) -> str:
    """What the model says about a field."""
    match = _DESCRIPTION.search(getattr(model, attribute).__doc__ or "")
    text = " ".join(match[1].split()) if match else ""
    return "" if text.startswith(":return") else text


@functools.cache
def _patch_rules() -> Mapping[tuple[str, str], Schema]:
    """(model, field) -> how a strategic merge patch of the field is applied."""
    rules: dict[tuple[str, str], Schema] = {}
    for resource, struct in STRUCTS.items():
        kind = BY_RESOURCE.get(resource)
        model = None if kind is None else _model_of(kind)
        if model is not None:
            rules |= dict(_rules_of(model, struct))
    return rules


def _rules_of(model: Any, struct: Struct) -> Iterator[tuple[tuple[str, str], Schema]]:
    types = {model.attribute_map[name]: type_ for name, type_ in model.openapi_types.items()}
    for field, rule in struct.fields.items():
        extension: Schema = {}
        if rule.merge:
            extension["x-kubernetes-patch-strategy"] = "merge"
        if rule.merge_key:
            extension["x-kubernetes-patch-merge-key"] = rule.merge_key
        if rule.replace:
            extension["x-kubernetes-patch-strategy"] = "replace"
        if extension:
            yield (model.__name__, field), extension
        inner = _typed(types[field])[1] if field in types else None
        if rule.struct is not None and inner is not None:
            yield from _rules_of(inner, rule.struct)
