"""Functions of strings beyond the language's own: cel-go's extension in version 2, and Kubernetes' regular expressions."""

import math
import re
from collections.abc import Callable
from typing import Any

from app.cel import regexes
from app.cel.basics import quote
from app.cel.costs import MAX_LENGTH
from app.cel.declarations import Overload, function, method
from app.cel.errors import CostLimitExceeded, EvaluationError
from app.cel.types import DYN, INT, STRING, list_of
from app.cel.values import (
    Duration,
    Map,
    Timestamp,
    TypeName,
    Uint,
    Value,
    general,
    is_list,
    type_name,
)

_BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise _out_of_range(start)
    return text.find(part, start)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_before(text: str, part: str, start: int) -> int:
    if not part:
        return start
    if start < 0:
        raise _out_of_range(start)
    if start >= len(text):
        return -1
    return text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if old else len(text) + 1
    found = found if count < 0 else min(found, count)
    if len(text) + found * len(new) > MAX_LENGTH:
        raise CostLimitExceeded
    return text.replace(old, new, found)


def _split(text: str, separator: str, count: int = -1) -> tuple[str, ...]:
    if count == 0:
        return ()
    if separator:
        return tuple(text.split(separator, count - 1 if count > 0 else -1))
    if 0 < count < len(text):
        return (*text[: count - 1], text[count - 1 :])
    return tuple(text)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if index is not None and not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _join(parts: Any, separator: str = "") -> str:
    for it in parts:
        if type(it) is not str:
            raise EvaluationError(f"join: invalid input: {it}")
    if sum(map(len, parts)) + len(separator) * len(parts) > MAX_LENGTH:
        raise CostLimitExceeded
    return separator.join(parts)


_QUOTED = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def _quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


# ---------------------------------------------------------------- texts made of values

_CLAUSE = re.compile(r"%(?:(%)|(\.([0-9]*))?(.?))", re.DOTALL)
_PLAIN = frozenset({bool, int, Uint, float, str, bytes, Timestamp, Duration, TypeName})
_UNREADABLE = "could not parse formatting clause: "


def interpolate(template: str, count: int, write: Callable[[int, str, int], str]) -> str:
    """Fills in a template of format(): ``write`` has the argument's place, the clause's letter, and its precision.

    Raises EvaluationError.
    """
    place = -1

    def clause(match: re.Match[str]) -> str:
        nonlocal place
        if match[1]:
            return "%"
        if match[0] == "%":
            raise EvaluationError("unexpected end of string")
        place += 1
        if place >= count:
            raise EvaluationError(f"index {place} out of range")
        precision = _precision(match)
        if match[4] not in _CLAUSES:
            raise EvaluationError(
                f'{_UNREADABLE}unrecognized formatting clause "{match[4]}"',
            )
        return write(place, match[4], precision)

    return _CLAUSE.sub(clause, template)


def _precision(match: re.Match[str]) -> int:
    if match[2] is None:
        return 6
    if not match[4]:
        raise EvaluationError(
            f"{_UNREADABLE}error while parsing precision: could not find end of precision specifier"
        )
    if not match[3] or len(match[3]) > 3:
        raise EvaluationError(
            f"{_UNREADABLE}error while parsing precision: error while converting precision "
            f"to integer: strconv.Atoi: parsing {quote(match[3])}: invalid syntax"
        )
    return int(match[3])


def _format(template: str, arguments: Any) -> str:
    """``'%s: %d'.format([a, b])``."""

    length = 0

    def write(place: int, letter: str, precision: int) -> str:
        nonlocal length
        try:
            text = _CLAUSES[letter](arguments[place], precision)
        except EvaluationError as error:
            raise EvaluationError(FORMATTING + str(error)) from None
        length += len(text)
        if length > MAX_LENGTH:
            raise CostLimitExceeded
        return text

    return interpolate(template, len(arguments), write)


# What clauses say of values that they are not for.
FORMATTING = "error during formatting: "
STRING_CLAUSE = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
    "durations, and timestamps, was given "
)
DECIMAL_CLAUSE = "decimal clause can only be used on integers, was given "
FIXED_CLAUSE = "fixed-point clause can only be used on doubles, was given "
SCIENTIFIC_CLAUSE = "scientific clause can only be used on doubles, was given "
BINARY_CLAUSE = "only integers and bools can be formatted as binary, was given "
HEX_CLAUSE = "only integers, byte buffers, and strings can be formatted as hex, was given "
OCTAL_CLAUSE = "octal clause can only be used on integers, was given "


def _text(value: Value, _precision: int = 0) -> str:
    """%s."""
    if is_list(value):
        return f"[{', '.join(map(_nested, value))}]"
    if isinstance(value, Map):
        return _text_of_map(value)
    if value is None:
        return "null"
    if type(value) not in _PLAIN:
        raise EvaluationError(STRING_CLAUSE + type_name(value))
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return general(value)
    if type(value) is bytes:
        return value.decode(errors="replace")
    return str(value)


def _text_of_map(value: Map) -> str:
    entries = []
    for key, it in value.items():
        if type(key) not in {str, bool, int, Uint}:
            raise EvaluationError(f"no formatting function for map key of type {type_name(key)}")
        entries.append((_nested(key), _nested(it)))
    return f"{{{', '.join(f'{key}:{it}' for key, it in sorted(entries))}}}"


def _nested(value: Value) -> str:
    """As it would be written in an expression."""
    if type(value) is str:
        return quote(value)
    if type(value) is bytes:
        return f"b{quote(value.decode(errors='replace'))}"
    if type(value) is float:
        return f"{value:.6f}" if math.isfinite(value) else quote(general(value))
    if type(value) is Duration:
        return f'duration("{value}")'
    if type(value) is Timestamp:
        return f'timestamp("{value}")'
    if value is not None and type(value) not in _PLAIN and not is_list(value):
        if isinstance(value, Map):
            return _text_of_map(value)
        raise EvaluationError(f"no formatting function for {type_name(value)}")
    return _text(value)


def _integer(value: Value, _precision: int) -> str:
    if type(value) not in {int, Uint}:
        raise EvaluationError(DECIMAL_CLAUSE + type_name(value))
    return str(int(value))


def _fixed(value: Value, precision: int) -> str:
    if type(value) is str and value in {"NaN", "Infinity", "-Infinity"}:
        value = float(value)
    if type(value) is not float:
        raise EvaluationError(FIXED_CLAUSE + type_name(value))
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    return f"{value:,.{precision}f}"


def _scientific(_value: Value, _precision: int) -> str:
    raise EvaluationError("the clause %e is not supported here")


def _binary(value: Value, _precision: int) -> str:
    if type(value) not in {bool, int, Uint}:
        raise EvaluationError(BINARY_CLAUSE + type_name(value))
    return f"{int(value):b}"


def _hexadecimal(value: Value, _precision: int) -> str:
    if type(value) in {str, bytes}:
        return (value if type(value) is bytes else value.encode()).hex()
    if type(value) not in {int, Uint}:
        raise EvaluationError(HEX_CLAUSE + type_name(value))
    return f"{int(value):x}"


def _octal(value: Value, _precision: int) -> str:
    if type(value) not in {int, Uint}:
        raise EvaluationError(OCTAL_CLAUSE + type_name(value))
    return f"{int(value):o}"


_CLAUSES: dict[str, Callable[[Value, int], str]] = {
    "s": _text,
    "d": _integer,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "x": _hexadecimal,
    "X": lambda value, precision: _hexadecimal(value, precision).upper(),
    "o": _octal,
}

_TEXTS = list_of(STRING)
OVERLOADS: list[Overload] = [
    method("charAt", "string_char_at_int", (STRING, INT), STRING, _char_at),
    method("indexOf", "string_index_of_string", (STRING, STRING), INT, _index_of),
    method("indexOf", "string_index_of_string_int", (STRING, STRING, INT), INT, _index_of),
    method("lastIndexOf", "string_last_index_of_string", (STRING, STRING), INT, _last_index_of),
    method(
        "lastIndexOf",
        "string_last_index_of_string_int",
        (STRING, STRING, INT),
        INT,
        _last_index_before,
    ),
    method("lowerAscii", "string_lower_ascii", (STRING,), STRING, lambda it: it.translate(_LOWER)),
    method("upperAscii", "string_upper_ascii", (STRING,), STRING, lambda it: it.translate(_UPPER)),
    method("replace", "string_replace", (STRING, STRING, STRING), STRING, _replace),
    method("replace", "string_replace_int", (STRING, STRING, STRING, INT), STRING, _replace),
    method("split", "string_split", (STRING, STRING), _TEXTS, _split),
    method("split", "string_split_int", (STRING, STRING, INT), _TEXTS, _split),
    method("substring", "string_substring_int", (STRING, INT), STRING, _substring),
    method("substring", "string_substring_int_int", (STRING, INT, INT), STRING, _substring),
    method("trim", "string_trim", (STRING,), STRING, lambda it: it.strip(_BLANKS)),
    method("format", "string_format", (STRING, list_of(DYN)), STRING, _format),
    function("strings.quote", "strings_quote", (STRING,), STRING, _quote),
    method("join", "list_join", (_TEXTS,), STRING, _join),
    method("join", "list_join_string", (_TEXTS, STRING), STRING, _join),
    method("find", "string_find_string", (STRING, STRING), STRING, regexes.find),
    method("findAll", "string_find_all_string", (STRING, STRING), _TEXTS, regexes.find_all),
    method(
        "findAll", "string_find_all_string_int", (STRING, STRING, INT), _TEXTS, regexes.find_all
    ),
]
