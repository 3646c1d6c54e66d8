"""Texts of findings as in kube-scheduler: ``<path>: <Type>[: <value>][: <detail>]``."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from app.model.gotext import Duration
from app.settings.base import Model
from app.settings.problems import Finding, Path

REDACTED: Final = "REDACTED"
"""Replaces a secret; valid base64, so that a dump can be loaded."""

SECRETS: Final = frozenset({"keyData"})
"""Fields whose values are never shown."""

_USER_INFO: Final = re.compile(r"(?<=://)[^/@]*@")


def redact_url(url: str) -> str:
    """The URL without user and password."""
    return _USER_INFO.sub(f"{REDACTED}@", url)


def invalid(path: Path, value: Any, detail: str, *, near: Path = ()) -> Finding:
    """The value breaks a rule."""
    return Finding(path, f"Invalid value: {show(value)}: {detail}", near)


def required(path: Path, detail: str = "") -> Finding:
    """The value is missing or empty."""
    return Finding(path, f"Required value: {detail}" if detail else "Required value")


def duplicate(path: Path, value: Any, detail: str = "") -> Finding:
    """The value may occur only once."""
    text = f"Duplicate value: {show(value)}"
    return Finding(path, f"{text}: {detail}" if detail else text)


def unsupported(path: Path, value: str, supported: Iterable[str]) -> Finding:
    """The value is not in an enumeration."""
    names = ", ".join(show(name) for name in supported)
    return Finding(path, f"Unsupported value: {show(value)}: supported values: {names}")


def forbidden(path: Path, detail: str) -> Finding:
    """The value may not be set here."""
    return Finding(path, f"Forbidden: {detail}")


def show(value: Any) -> str:
    """The value as kube-scheduler prints it: strings quoted, everything else as JSON of its Go form."""
    return json.dumps(_jsonable(value), ensure_ascii=False, separators=(",", ":"))


def _jsonable(value: Any) -> Any:
    """Models by their Go field names, an empty list of theirs (a tuple) as Go's nil."""
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, Model):
        return {
            go_name[:1].upper() + go_name[1:]: _jsonable(getattr(value, field.name))
            for field in msgspec.structs.fields(type(value))
            for go_name in [field.encode_name]
        }
    if isinstance(value, Mapping):
        return {
            str(key): REDACTED if key in SECRETS else _jsonable(item) for key, item in value.items()
        }
    if isinstance(value, tuple):
        return [_jsonable(item) for item in value] or None
    if isinstance(value, list):
        return [_jsonable(item) for item in value]
    return value
