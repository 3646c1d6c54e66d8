"""Validation of manifests by Kubernetes' own OpenAPI schema, in the form in which kubernetes_asyncio ships it.

Stricter than the API server: a field that does not exist is a mistake. Kinds of others (custom resources) are validated
by the part of their schema that the chart uses.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from jsonschema import Draft7Validator
from kubernetes_asyncio.client import models

_SIMPLE: Final[dict[str, type | tuple[type, ...]]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": (int, float),
}
_CONTAINER: Final = re.compile(r"(list\[|dict\(str, )(.*)[\])]")

_LABELS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_ENDPOINT: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["port"],
    "properties": {
        "port": {"type": "string"},
        "scheme": {"enum": ["http", "https"]},
        "path": {"type": "string"},
        "interval": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
        "scrapeTimeout": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
        "bearerTokenFile": {"type": "string"},
        "authorization": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"type": {"type": "string"}, "credentials": {"type": "object"}},
        },
        "tlsConfig": {"type": "object"},
        "relabelings": {"type": "array", "items": {"type": "object"}},
        "metricRelabelings": {"type": "array", "items": {"type": "object"}},
    },
}
_ALERT: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["alert", "expr"],
    "properties": {
        "alert": {"type": "string"},
        "expr": {"type": "string"},
        "for": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
        "labels": _LABELS,
        "annotations": _LABELS,
    },
}
_CUSTOM: Final[dict[tuple[str, str], Any]] = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): {
        "type": "object",
        "additionalProperties": False,
        "required": ["selector", "endpoints"],
        "properties": {
            "selector": {"type": "object", "properties": {"matchLabels": _LABELS}},
            "namespaceSelector": {
                "type": "object",
                "properties": {"matchNames": {"type": "array", "items": {"type": "string"}}},
            },
            "endpoints": {"type": "array", "minItems": 1, "items": _ENDPOINT},
        },
    },
    ("monitoring.coreos.com/v1", "PrometheusRule"): {
        "type": "object",
        "additionalProperties": False,
        "required": ["groups"],
        "properties": {
            "groups": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name", "rules"],
                    "properties": {
                        "name": {"type": "string"},
                        "rules": {"type": "array", "items": _ALERT},
                    },
                },
            },
        },
    },
    ("cert-manager.io/v1", "Certificate"): {
        "type": "object",
        "additionalProperties": False,
        "required": ["secretName", "issuerRef"],
        "properties": {
            "secretName": {"type": "string", "minLength": 1},
            "dnsNames": {"type": "array", "items": {"type": "string"}},
            "privateKey": {
                "type": "object",
                "properties": {"rotationPolicy": {"enum": ["Never", "Always"]}},
            },
            "issuerRef": {"type": "object", "required": ["name"]},
        },
    },
}


def mistakes(manifest: dict[str, Any]) -> list[str]:
    """What is wrong with an object, each with its path; empty if it is valid."""
    group_version, kind = manifest.get("apiVersion", ""), manifest.get("kind", "")
    custom = _CUSTOM.get((group_version, kind))
    if custom is not None:
        found = Draft7Validator(custom).iter_errors(manifest["spec"])
        said = [f"{kind}.spec.{'.'.join(map(str, e.path))}: {e.message}" for e in found]
        return [*said, *_of_model("V1ObjectMeta", manifest["metadata"], f"{kind}.metadata")]
    version = group_version.rpartition("/")[2]
    name = f"{version.capitalize()}{kind}"
    if not hasattr(models, name):
        return [f"{kind}: no such kind in {group_version}"]
    return list(_of_model(name, manifest, kind))


def _of_type(type_: str, value: Any, path: str) -> Iterator[str]:
    compound = _CONTAINER.fullmatch(type_)
    if compound is not None:
        yield from _of_compound(compound[1] == "list[", compound[2], value, path)
    elif type_ in _SIMPLE:
        if not isinstance(value, _SIMPLE[type_]) or isinstance(value, bool) != (type_ == "bool"):
            yield f"{path}: {json.dumps(value)} is no {type_}"
    elif hasattr(models, type_):
        yield from _of_model(type_, value, path)
    elif type_ not in {"object", "datetime"}:
        yield f"{path}: unknown type {type_}"


def _of_compound(is_list: bool, of: str, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list if is_list else dict):
        yield f"{path}: {json.dumps(value)} is no {'list' if is_list else 'map'}"
        return
    for key, each in enumerate(value) if is_list else value.items():
        yield from _of_type(of, each, f"{path}[{key}]")


def _of_model(name: str, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: {json.dumps(value)} is no {name}"
        return
    model = getattr(models, name)
    attributes = {field: attribute for attribute, field in model.attribute_map.items()}
    for field in value.keys() - attributes.keys():
        yield f"{path}.{field}: no such field in {name}"
    known = {attributes[field]: each for field, each in value.items() if field in attributes}
    try:
        model(**known)
    except ValueError as error:
        yield f"{path}: {error}"
    for attribute, each in known.items():
        if each is None:
            yield f"{path}.{model.attribute_map[attribute]}: null"
        else:
            type_ = model.openapi_types[attribute]
            yield from _of_type(type_, each, f"{path}.{model.attribute_map[attribute]}")
