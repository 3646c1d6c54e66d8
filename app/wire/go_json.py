"""Decodes JSON like Go's encoding/json, with its leniency and its error texts.

Extenders are written for kube-scheduler, whose decoder ignores the case of keys, accepts null for every type, stops
after the first value and names the first field of a wrong type. Responses that the strict decoder of
app.wire.extender_v1 does not accept are decoded here. The error texts become pod conditions.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, Self

import msgspec

from app.model.gotext import quote

_INT64: Final = range(-(2**63), 2**63)
_BLANK: Final = re.compile(r"[ \t\r\n]*")


class GoJSONError(ValueError):
    """JSON that Go rejects; the text is Go's."""


def first_value(body: bytes) -> Any:
    """The first JSON value of ``body`` as plain Python; what follows it is ignored. Raises GoJSONError.

    As in Go, invalid UTF-8 becomes U+FFFD and the last of equal keys counts.
    """
    text = body.decode("utf-8", "replace")
    blank = _BLANK.match(text)
    start = blank.end() if blank else 0
    try:
        return _PLAIN.raw_decode(text, start)[0]
    except json.JSONDecodeError as err:
        raise GoJSONError(syntax_error(body) or f"invalid JSON: {err}") from err
    except RecursionError as err:
        raise GoJSONError("exceeded max depth") from err


def _refuse(constant: str) -> None:
    raise json.JSONDecodeError(f"{constant} is not JSON", "", 0)


class _Number(float):
    """A number that is not an int64, printed as written."""

    text: str

    def __new__(cls, text: str) -> Self:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __repr__(self) -> str:
        return self.text


def _integer(digits: str) -> int | float:
    """Parses short integers only: long ones fit no type and are slow to parse."""
    return int(digits) if len(digits) < 40 else _Number(digits)


_PLAIN: Final = json.JSONDecoder(parse_constant=_refuse, parse_int=_integer, parse_float=_Number)


def clean(text: str) -> str:
    """The text with U+FFFD for lone surrogates, as in Go."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ---------------------------------------------------------------- types


class Where(msgspec.Struct, frozen=True):
    """The location of a value: the innermost Go struct and the path of fields from the root."""

    struct: str = ""
    path: tuple[str, ...] = ()

    def mismatch(self, found: str, go_type: str) -> GoJSONError:
        """The error for a value of the wrong type."""
        place = f"struct field {self.struct}.{'.'.join(self.path)}" if self.struct else "value"
        return GoJSONError(f"json: cannot unmarshal {found} into Go {place} of type {go_type}")


class GoType(Protocol):
    """A Go type. ``read`` raises GoJSONError; null becomes the type's zero value."""

    def read(self, value: Any, where: Where) -> Any:
        """Checks and converts one plain value."""


class Text(msgspec.Struct, frozen=True):
    """string."""

    def read(self, value: Any, where: Where) -> str:
        """The text, empty for null; lone surrogates become U+FFFD."""
        if value is None:
            return ""
        if not isinstance(value, str):
            raise where.mismatch(_found(value), "string")
        return clean(value)


class Int64(msgspec.Struct, frozen=True):
    """int64: JSON integers only, not 5.0."""

    def read(self, value: Any, where: Where) -> int:
        """The number, 0 for null."""
        if value is None:
            return 0
        if type(value) is int and value in _INT64:
            return value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        raise where.mismatch(f"number {value!r}" if number else _found(value), "int64")


class ListOf(msgspec.Struct, frozen=True):
    """A slice (or a pointer to one), called ``go`` in errors.

    ``fast`` decodes the JSON of a whole slice with the result of ``read``; None if it cannot.
    """

    element: GoType
    go: str
    fast: Callable[[bytes], list[Any] | None] | None = None

    def read(self, value: Any, where: Where) -> list[Any] | None:
        """The elements, None for null."""
        if value is None:
            return None
        if not isinstance(value, list):
            raise where.mismatch(_found(value), self.go)
        return [self.element.read(item, where) for item in value]


class MapOf(msgspec.Struct, frozen=True):
    """A map with string keys, called ``go`` in errors; ``fast`` as in ListOf."""

    element: GoType
    go: str
    fast: Callable[[bytes], dict[str, Any] | None] | None = None

    def read(self, value: Any, where: Where) -> dict[str, Any] | None:
        """The entries, None for null."""
        if value is None:
            return None
        if not isinstance(value, dict):
            raise where.mismatch(_found(value), self.go)
        return {clean(key): self.element.read(item, where) for key, item in value.items()}


class StructOf(msgspec.Struct, frozen=True):
    """A struct; ``fields`` by their JSON names, matched whatever the case. Unknown keys are ignored."""

    name: str
    fields: Mapping[str, GoType]

    def read(self, value: Any, where: Where) -> dict[str, Any] | None:
        """The known fields that are present, None for null. Of several spellings of a key the last one counts."""
        if value is None:
            return None
        if not isinstance(value, dict):
            raise where.mismatch(_found(value), f"v1.{self.name}")
        out: dict[str, Any] = {}
        for key, item in value.items():
            field = self.field(key)
            if field is not None:
                out[field] = self.fields[field].read(item, Where(self.name, (*where.path, field)))
        return out

    def field(self, key: str) -> str | None:
        """The field for ``key``: the one with this name, else one that differs in case only."""
        if key in self.fields:
            return key
        folded = key.casefold()
        return next((name for name in self.fields if name.casefold() == folded), None)


def unmarshal(body: bytes, into: GoType) -> Any:
    """Reads the first JSON value of ``body``. Raises GoJSONError."""
    return into.read(first_value(body), Where())


def _found(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "number"


# ---------------------------------------------------------------- syntax errors

# The number of tokens after which the search for a syntax error ends, which limits its time.
_MAX_TOKENS: Final = 10_000
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_PLAIN_TEXT: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_DIGITS: Final = re.compile(rb"[0-9]*")
_LITERALS: Final = {b"t": b"true", b"f": b"false", b"n": b"null"}


def syntax_error(body: bytes) -> str | None:
    """Go's syntax error for the first JSON value of ``body``; None if its first part has none."""
    scanner = _Scanner(body)
    try:
        scanner.scan()
    except GoJSONError as err:
        return str(err)
    return None


class _Scanner:
    """Scans one JSON value for the first syntax error.

    ``_state`` is what is expected next: VALUE, ELEMENT (a value or the end of an array), MEMBER (a key or the end of an
    object), KEY, COLON, or MORE (a comma or the end of what is open).
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._open: list[bytes] = []
        self._state = "VALUE"

    def scan(self) -> None:
        """Raises GoJSONError at the first invalid byte."""
        steps = {
            "VALUE": self._value,
            "ELEMENT": self._value,
            "MEMBER": self._key,
            "KEY": self._key,
            "COLON": self._colon,
            "MORE": self._more,
        }
        for _ in range(_MAX_TOKENS):
            if self._state == "MORE" and not self._open:
                return
            self._skip(_SPACE)
            steps[self._state]()

    def _peek(self) -> bytes:
        char = self._body[self._at : self._at + 1]
        if not char:
            raise GoJSONError("unexpected EOF" if self._body.strip(b" \t\r\n") else "EOF")
        return char

    def _skip(self, pattern: re.Pattern[bytes]) -> int:
        match = pattern.match(self._body, self._at)
        length = len(match[0]) if match else 0
        self._at += length
        return length

    def _fail(self, context: str) -> GoJSONError:
        return GoJSONError(f"invalid character {_quoted(self._peek()[0])} {context}")

    def _need(self, allowed: bytes, context: str) -> None:
        if self._peek() not in allowed:
            raise self._fail(context)
        self._at += 1

    def _value(self) -> None:
        char = self._peek()
        if char in b"{[":
            self._at += 1
            self._open.append(char)
            self._state = "MEMBER" if char == b"{" else "ELEMENT"
            return
        if char == b"]" and self._state == "ELEMENT":
            self._close()
            return
        self._scalar(char)
        self._state = "MORE"

    def _scalar(self, char: bytes) -> None:
        if char == b'"':
            self._string()
        elif char in b"-0123456789":
            self._number()
        elif char in _LITERALS:
            self._literal(_LITERALS[char])
        else:
            raise self._fail("looking for beginning of value")

    def _key(self) -> None:
        if self._peek() == b"}" and self._state == "MEMBER":
            self._close()
            return
        if self._peek() != b'"':
            raise self._fail("looking for beginning of object key string")
        self._string()
        self._state = "COLON"

    def _colon(self) -> None:
        self._need(b":", "after object key")
        self._state = "VALUE"

    def _more(self) -> None:
        in_object = self._open[-1] == b"{"
        if self._peek() == (b"}" if in_object else b"]"):
            self._close()
            return
        self._need(b",", "after object key:value pair" if in_object else "after array element")
        self._state = "KEY" if in_object else "VALUE"

    def _close(self) -> None:
        self._at += 1
        self._open.pop()
        self._state = "MORE"

    def _string(self) -> None:
        self._at += 1
        while True:
            self._skip(_PLAIN_TEXT)
            char = self._peek()
            if char == b'"':
                self._at += 1
                return
            if char != b"\\":
                raise self._fail("in string literal")
            self._escape()

    def _escape(self) -> None:
        self._at += 1
        unicode = self._peek() == b"u"
        self._need(b'bfnrt\\/"u', "in string escape code")
        for _ in range(4 if unicode else 0):
            self._need(b"0123456789abcdefABCDEF", "in \\u hexadecimal character escape")

    def _literal(self, word: bytes) -> None:
        for expected in word:
            char = bytes((expected,))
            self._need(char, f"in literal {word.decode()} (expecting {_quoted(expected)})")

    def _number(self) -> None:
        if self._peek() == b"-":
            self._at += 1
            if self._peek() not in b"0123456789":
                raise self._fail("in numeric literal")
        if self._peek() == b"0":
            self._at += 1
        else:
            self._skip(_DIGITS)
        if self._body[self._at : self._at + 1] == b".":
            self._at += 1
            self._need(b"0123456789", "after decimal point in numeric literal")
            self._skip(_DIGITS)
        if self._body[self._at : self._at + 1] in {b"e", b"E"}:
            self._exponent()

    def _exponent(self) -> None:
        self._at += 1
        if self._peek() in b"+-":
            self._at += 1
        self._need(b"0123456789", "in exponent of numeric literal")
        self._skip(_DIGITS)


def _quoted(byte: int) -> str:
    """A byte in the format of Go's errors."""
    if byte in b"'":
        return r"'\''"
    if byte in b'"':
        return "'\"'"
    return f"'{quote(chr(byte))[1:-1]}'"
