"""Reads plain texts: JSON, and YAML of mappings and lists in lines of their own with values on one line.

What a text means here it means in full_yaml too.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from app.settings.problems import Mark, Path, Problem

_LONGEST: Final = 1 << 16
"""Characters of a plain text: too few for many values or levels."""
_PRINTABLE: Final = re.compile(r"[\n\x20-\x7e]*\Z")
_KEY: Final = re.compile(r"([A-Za-z0-9_./-]*[A-Za-z_./-]):(?: +|\Z)")
_VALUE: Final = re.compile(
    r"(?!-(?: |\Z))[A-Za-z0-9_./+~-](?:[A-Za-z0-9_./+~=@%$^&*()<>,;-]|[ :](?=[A-Za-z0-9_./+~=@%$^&*()<>,;-]))*\Z"
)
_QUOTED: Final = re.compile(r"""(?:'([^']*)'|"([^"\\]*)")(?: +#.*)?\Z""")

INTEGER: Final = re.compile(
    r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)\Z",
)
FLOAT: Final = re.compile(
    r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9_]+)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
BOOLEANS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
}
_SPECIAL: Final = re.compile(r"(?i:true|yes|on|false|no|off|null|~|[-+.0-9].*)\Z")
"""Plain values that may be something else than text."""


class YamlError(ValueError):
    """A text is no YAML, or more than is read."""


class Document(msgspec.Struct, frozen=True):
    """One document of a file."""

    value: Any
    """Its content: dict, list, str, int, float, bool, None."""
    marks: Mapping[Path, Mark]
    """Where each key (for a value in a mapping) or item (in a list) starts."""


class YamlText(msgspec.Struct, frozen=True):
    """The documents of a text, and its YAML mistakes."""

    documents: tuple[Document, ...]
    problems: tuple[Problem, ...] = ()


class _NotPlainError(Exception):
    pass


def plain_values(text: str) -> list[Any] | None:
    """The documents of a plain text that are not empty; None for another one."""
    if len(text) > _LONGEST or not _PRINTABLE.match(text):
        return None
    try:
        found = [_json(text)] if text.lstrip().startswith("{") else list(_documents(text))
    except (_NotPlainError, ValueError, RecursionError):
        return None
    return [value for value in found if value is not None]


def _json(text: str) -> Any:
    if "\\" in text:
        raise _NotPlainError
    return json.loads(
        text,
        object_pairs_hook=_unique,
        parse_int=_value,
        parse_float=_value,
        parse_constant=_value,
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _NotPlainError
    return found


def _documents(text: str) -> Iterator[Any]:
    lines: list[str] = []
    for line in [*text.split("\n"), "---"]:
        if line.startswith(("---", "...", "%")):
            if line != "---":
                raise _NotPlainError
            yield _Lines(lines).read()
            lines = []
        else:
            lines.append(line)


def _without_comment(line: str) -> str:
    """The line without a comment, unless that may be a part of a quoted text."""
    before = "" if line.lstrip().startswith("#") else line.partition(" #")[0]
    return line if "'" in before or '"' in before else before


class _Lines:
    """The lines of one document that say something, and which of them is next."""

    def __init__(self, lines: list[str]) -> None:
        kept = [line.rstrip() for line in map(_without_comment, lines) if line.strip()]
        #: From the last to the first: how far each is indented, and its text.
        self._left: Final = [
            (len(line) - len(line.lstrip()), line.lstrip()) for line in reversed(kept)
        ]

    def read(self) -> Any:
        """The document; None for an empty one. Raises _NotPlainError."""
        if not self._left:
            return None
        value = self._block(0)
        if self._left:
            raise _NotPlainError
        return value

    def _indent(self) -> int:
        """Of the next line; -1 at the end."""
        return self._left[-1][0] if self._left else -1

    def _block(self, indent: int) -> Any:
        return self._list(indent) if self._at_item(indent) else self._mapping(indent)

    def _at_item(self, indent: int) -> bool:
        return self._indent() == indent and f"{self._left[-1][1]} ".startswith("- ")

    def _list(self, indent: int) -> list[Any]:
        items = []
        while self._at_item(indent):
            _, text = self._left.pop()
            rest = text[1:].lstrip()
            if not rest:
                items.append(self._inner(indent))
            elif rest.startswith("- ") or _KEY.match(rest):
                inner = indent + len(text) - len(rest)
                self._left.append((inner, rest))
                items.append(self._block(inner))
            else:
                items.append(_value(rest))
        return items

    def _mapping(self, indent: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while self._indent() == indent:
            _, text = self._left.pop()
            found = _KEY.match(text)
            if found is None or _SPECIAL.match(found[1]) or found[1] in values:
                raise _NotPlainError
            rest = text[found.end() :]
            if rest:
                values[found[1]] = _value(rest)
            elif self._at_item(indent):
                values[found[1]] = self._list(indent)
            else:
                values[found[1]] = self._inner(indent)
        return values

    def _inner(self, indent: int) -> Any:
        """What is indented further; None if nothing is."""
        inner = self._indent()
        return self._block(inner) if inner > indent else None


def _value(text: str) -> Any:
    """A value on one line. Raises _NotPlainError for one that may be something else, or go on in the next line."""
    if text in {"{}", "[]"}:
        return {} if text == "{}" else []
    if quoted := _QUOTED.match(text):
        return quoted[1] or quoted[2] or ""
    if not _VALUE.match(text):
        raise _NotPlainError
    if not _SPECIAL.match(text):
        return text
    lower = text.lower()
    if lower in BOOLEANS or lower in {"null", "~"}:
        if text not in {lower, lower.upper(), lower.capitalize()}:
            return text
        return BOOLEANS.get(lower)
    if INTEGER.match(text):
        if len(text) > _LONG:
            raise _NotPlainError
        return integer(text)
    return number(text) if FLOAT.match(text) else text


_LONG: Final = 18
"""Characters beyond which an integer may have more than 64 bits."""


def integer(text: str) -> int:
    """An integer in one of YAML's notations. Raises ValueError."""
    digits = text.replace("_", "")
    if re.fullmatch(r"[-+]?0[0-7]+", digits):
        return int(digits, 8)
    return int(digits, 0)


def number(text: str) -> float:
    """A number with a fraction or an exponent, infinity or NaN. Raises ValueError."""
    return float(re.sub(r"\.(?=inf|nan)", "", text.lower().replace("_", "")))
