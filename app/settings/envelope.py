"""Recognizes the documents of a file by apiVersion and kind, and prepares them for the models."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.model.gotext import Duration
from app.settings.args import ARGS
from app.settings.base import V1
from app.settings.extension import KIND as EXTENSION_KIND
from app.settings.extension import V1ALPHA1
from app.settings.legacy import GROUP, VERSIONS
from app.settings.problems import Finding, Path
from app.settings.rewrite import mappings

KIND: Final = "KubeSchedulerConfiguration"
_KINDS: Final = frozenset({KIND, *(f"{name}Args" for name in ARGS)})
"""Every kind that kube-scheduler knows."""
HOW_TO_START: Final = f"start it with apiVersion: {V1} and kind: {KIND}"
_SHOWN_TEXT: Final = 60
_SHORTEST: Final = 1_000_000
"""Nanoseconds of a time limit that may be meant: below a millisecond it is seconds that are meant."""


def is_extension(value: Mapping[str, Any]) -> bool:
    """Whether a document is, or is meant to be, an AiokubeSchedulerConfiguration."""
    group = str(value.get("apiVersion", "")).partition("/")[0]
    return value.get("kind") == EXTENSION_KIND or group == V1ALPHA1.partition("/")[0]


def is_readable(value: Mapping[str, Any]) -> bool:
    """Whether a document is to be checked beyond its apiVersion and kind."""
    version, kind = _text(value, "apiVersion"), _text(value, "kind")
    return kind in {KIND, ""} and version in {"", V1, *VERSIONS}


def _text(value: Mapping[str, Any], key: str) -> str:
    """The value as text; empty when absent."""
    found = value.get(key)
    return "" if found is None else str(found)


def wrong_type(value: Mapping[str, Any], text: str) -> Iterable[Finding]:
    """What kube-scheduler says about the apiVersion and kind, with what to write instead."""
    version, kind = _text(value, "apiVersion"), _text(value, "kind")
    if not version:
        said = f"Object 'apiVersion' is missing in '{_excerpt(text)}'"
        yield Finding(("apiVersion",), f"{said}; write apiVersion: {V1}")
    if not kind:
        said = f"Object 'Kind' is missing in '{_excerpt(text)}'"
        yield Finding(("kind",), f"{said}; write kind: {KIND}")
    if not version or not kind:
        return
    if version in {V1, *VERSIONS} and kind in _KINDS - {KIND}:
        said = f"couldn't decode as {KIND}, got {version}, Kind={kind}: "
        yield Finding(("kind",), f"{said}arguments belong into profiles[].pluginConfig[].args")
    elif version not in {V1, *VERSIONS} or kind != KIND:
        said = f'no kind "{kind}" is registered for version "{version}"'
        wrong = "kind" if version in {V1, *VERSIONS} else "apiVersion"
        yield Finding((wrong,), f"{said}; {_what_to_write(version, kind)}")


def _what_to_write(version: str, kind: str) -> str:
    if kind == "Policy":
        return f"scheduler policies are gone: list the extenders in a {KIND} of {V1}"
    if kind == "ConfigMap":
        return "the configuration is a text below its data: write that into a file of its own"
    read = ", ".join(VERSIONS.values())
    written = f"write apiVersion: {V1}, kind: {KIND}"
    return f"{written} ({read} are read too)" if version.startswith(GROUP) else written


def _excerpt(text: str) -> str:
    """The text on one line, cut to a length."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_TEXT else f"{line[:_SHOWN_TEXT]}..."


def wrong_extension_type(value: Mapping[str, Any]) -> Iterable[Finding]:
    """What is wrong with the apiVersion and kind of the second document."""
    for name, wanted in (("apiVersion", V1ALPHA1), ("kind", EXTENSION_KIND)):
        if value.get(name) != wanted:
            said = f"of the second document must be {wanted}, not {value.get(name)}"
            yield Finding((name,), said)


# ---------------------------------------------------------------- before the models


def wrong_args_types(value: dict[str, Any]) -> Iterable[Finding]:
    """Findings about arguments whose kind is another plugin's; they are emptied, so that they are reported once."""
    for index, profile in mappings(value, "profiles"):
        for number, entry in mappings(profile, "pluginConfig"):
            name, args = _text(entry, "name"), entry.get("args")
            if not isinstance(args, dict) or name not in ARGS:
                continue
            said = _type_mismatch(name, args)
            if said:
                entry["args"] = {}
                path: Path = ("profiles", index, "pluginConfig", number)
                where = f"decoding .profiles[{index}].pluginConfig[{number}]"
                yield Finding((*path, "args"), f"{where}: {said}")


def _type_mismatch(name: str, args: Mapping[str, Any]) -> str | None:
    wanted = f"{name}Args"
    version, kind = _text(args, "apiVersion") or V1, _text(args, "kind") or wanted
    if (version, kind) == (V1, wanted):
        return None
    said = (
        f'decoding args for plugin {name}: no kind "{kind}" is registered for version "{version}"'
    )
    if version == V1 and kind in _KINDS:
        said = f"args for plugin {name} were not of type {wanted}.{GROUP}, got {kind}.{GROUP}"
    return f"{said}; write apiVersion: {V1} and kind: {wanted}, or neither"


def nanoseconds_as_durations(value: dict[str, Any]) -> Iterable[Finding]:
    """An extender's httpTimeout as a number, as scheduler policies had it: nanoseconds."""
    for index, extender in mappings(value, "extenders"):
        timeout = extender.get("httpTimeout")
        if isinstance(timeout, int) and not isinstance(timeout, bool) and abs(timeout) < 2**63:
            extender["httpTimeout"] = str(Duration(timeout))
            meant = f"{timeout}s" if abs(timeout) < _SHORTEST else f"{Duration(timeout)}"
            said = (
                f"{timeout} is read as nanoseconds: write {meant}; kube-scheduler refuses a number"
            )
            yield Finding(("extenders", index, "httpTimeout"), said)
