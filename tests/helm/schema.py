"""The part of values.schema.json that says what a configuration may hold, made from the models that read it.

``python -m tests.helm.schema`` writes it; a test tells when that has been forgotten. Everything but ``definitions`` is
written by hand.
"""

import json
from pathlib import Path
from typing import Any, Final

from app.settings.base import Model
from app.settings.extension import AiokubeSchedulerConfiguration
from app.settings.mistakes import model_of
from app.settings.models import KubeSchedulerConfiguration

FILE: Final = Path(__file__).parents[2] / "helm" / "aiokube-scheduler" / "values.schema.json"
_DOCUMENTS: Final[tuple[type[Model], ...]] = (
    KubeSchedulerConfiguration,
    AiokubeSchedulerConfiguration,
)
_ANNOTATIONS: Final = frozenset({"title", "default", "discriminator"})
_INTEGERS: Final = frozenset({"minimum", "maximum"})


def definitions() -> dict[str, Any]:
    """Name -> JSON schema (draft 7) of everything that occurs in the two documents."""
    found: dict[str, Any] = {}
    for document in _DOCUMENTS:
        schema = model_of(document).model_json_schema(ref_template="#/definitions/{model}")
        found |= schema.pop("$defs")
        found[document.__name__] = schema
    found = {name: _plain(schema) for name, schema in found.items()}
    found["PluginConfig"] = _plugin_config(found)
    found["KubeSchedulerProfile"]["properties"]["pluginConfig"]["items"] = {
        "$ref": "#/definitions/PluginConfig"
    }
    return dict(sorted((k, v) for k, v in found.items() if not k.startswith("PluginConfig_")))


def _plain(schema: Any) -> Any:
    """Without what says nothing about validity. Nothing is required: the program says so in better words."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: _plain(each) for name, each in value.items()}
        elif key not in _ANNOTATIONS | {"required"} and not _is_machine_limit(key, value):
            kept[key] = _plain(value)
    return kept


def _is_machine_limit(key: str, value: Any) -> bool:
    """Whether it is an int64's end: JSON readers would round it."""
    return key in _INTEGERS and abs(value) > 2**53


def _plugin_config(found: dict[str, Any]) -> dict[str, Any]:
    """A plugin with arguments of its own: those of in-tree plugins are known by the plugin's name."""
    known = {
        name.removeprefix("PluginConfig_").removesuffix("Args_"): schema["properties"]["args"]
        for name, schema in found.items()
        if name.startswith("PluginConfig_") and name != "PluginConfig_Any_"
    }
    return {
        "type": "object",
        "description": "Arguments for one plugin.",
        "additionalProperties": False,
        "properties": {"name": {"type": "string"}, "args": {}},
        "allOf": [
            {
                "if": {"properties": {"name": {"const": plugin}}, "required": ["name"]},
                "then": {"properties": {"args": {"anyOf": [args, {"type": "null"}]}}},
            }
            for plugin, args in sorted(known.items())
        ],
    }


def main() -> None:
    """Writes the definitions into the file."""
    schema = json.loads(FILE.read_text())
    schema["definitions"] = definitions()
    FILE.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
