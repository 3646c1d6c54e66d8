"""Operators and functions of the language itself."""

import datetime as dt
import math
import operator as op
import re
from collections.abc import Callable
from typing import Any

from app.cel import regexes
from app.cel.basics import INT_MAX, INT_MIN, UINT_MAX
from app.cel.costs import LIMIT, MAX_LENGTH
from app.cel.declarations import Overload, function, method, operator
from app.cel.errors import CostLimitExceeded, EvaluationError
from app.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    parameter,
    type_of,
)
from app.cel.values import (
    NO_OVERLOAD,
    NONE,
    Duration,
    Growing,
    Map,
    Optional,
    Timestamp,
    TypeName,
    Uint,
    Value,
    among,
    compare,
    general,
    is_list,
    size,
    type_name,
)

A, B = parameter("A"), parameter("B")
LIST, MAP = list_of(A), map_of(A, B)
_RECEIVERS = (str, Timestamp, Duration)
"""Types of values that the complaint about an operator's operand names no operator for."""


def unsupported(value: Value, name: str) -> EvaluationError:
    """An operator that a value's type does not have."""
    return EvaluationError(NO_OVERLOAD if type(value) in _RECEIVERS else f"{NO_OVERLOAD}: {name}")


# ---------------------------------------------------------------- arithmetic


def to_int(number: int) -> int:
    """An int64. Raises EvaluationError."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise EvaluationError("integer overflow")


def to_uint(number: int) -> Uint:
    """A uint64. Raises EvaluationError."""
    if 0 <= number <= UINT_MAX:
        return Uint(number)
    raise EvaluationError("unsigned integer overflow")


def _quotient(one: int, other: int) -> int:
    """Rounded towards zero."""
    if not other:
        raise EvaluationError("division by zero")
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _remainder(one: int, other: int) -> int:
    """With the sign of the dividend."""
    if not other:
        raise EvaluationError("modulus by zero")
    if one == INT_MIN and other == -1:
        raise EvaluationError("integer overflow")
    rest = abs(one) % abs(other)
    return rest if one >= 0 else -rest


def _ratio(one: float, other: float) -> float:
    if other:
        return one / other
    if not one or math.isnan(one):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1, other)


def _arithmetic(
    name: str,
    integers: Callable[[int, int], int],
    doubles: Callable[[float, float], float] | None,
    others: Callable[[Value, Value], Value],
) -> Callable[[Value, Value], Value]:
    def calculate(one: Value, other: Value) -> Value:
        kind = type(one)
        if kind is int or kind is Uint or (kind is float and doubles is not None):
            if type(other) is not kind:
                raise EvaluationError(NO_OVERLOAD)
            if doubles is not None and kind is float:
                return doubles(one, other)
            result = integers(int(one), int(other))
            return to_int(result) if kind is int else to_uint(result)
        result = others(one, other)
        if result is NotImplemented:
            raise unsupported(one, name)
        return result

    return calculate


def _add_others(one: Value, other: Value) -> Value:
    kind = type(one)
    if kind is str or kind is bytes:
        if type(other) is not kind:
            raise EvaluationError(NO_OVERLOAD)
        if len(one) + len(other) > MAX_LENGTH:
            raise CostLimitExceeded
        return one + other
    if is_list(one):
        return _concatenate(one, other)
    if kind is Duration or kind is Timestamp:
        return _later(one, other)
    return NotImplemented


def _concatenate(one: Any, other: Value) -> Value:
    if not is_list(other):
        raise EvaluationError(NO_OVERLOAD)
    if len(one) + len(other) > LIMIT:
        raise CostLimitExceeded
    if type(one) is Growing:
        one.extend(other)
        return one
    return (*one, *other)


def _later(one: Value, other: Value) -> Value:
    if type(one) is Duration and type(other) is Duration:
        return Duration(one.nanos + other.nanos)
    if type(one) is Duration and type(other) is Timestamp:
        return Timestamp(one.nanos + other.nanos, other.offset)
    if type(one) is Timestamp and type(other) is Duration:
        return Timestamp(one.nanos + other.nanos, one.offset)
    raise EvaluationError(NO_OVERLOAD)


def _subtract_others(one: Value, other: Value) -> Value:
    if type(one) is Timestamp:
        if type(other) is Timestamp:
            return Duration(one.nanos - other.nanos)
        if type(other) is Duration:
            return Timestamp(one.nanos - other.nanos, one.offset)
    elif type(one) is Duration and type(other) is Duration:
        return Duration(one.nanos - other.nanos)
    elif type(one) is not Duration:
        return NotImplemented
    raise EvaluationError(NO_OVERLOAD)


def _no_others(_one: Value, _other: Value) -> Value:
    return NotImplemented


def negate(value: Value) -> Value:
    """``-value``."""
    if type(value) is int:
        return to_int(-value)
    if type(value) is float:
        return -value
    if type(value) is Duration:
        return Duration(-value.nanos)
    raise EvaluationError(NO_OVERLOAD if type(value) is bool else str(unsupported(value, "-_")))


def invert(value: Value) -> bool:
    """``!value``."""
    if type(value) is not bool:
        raise EvaluationError(NO_OVERLOAD)
    return not value


_COMPARED = (bool, int, Uint, float, str, bytes, Duration, Timestamp)


def _comparison(name: str, test: Callable[[int, int], bool]) -> Callable[[Value, Value], bool]:
    def decide(one: Value, other: Value) -> bool:
        if type(one) not in _COMPARED:
            raise unsupported(one, name)
        return test(compare(one, other), 0)

    return decide


def contains(value: Value, container: Value) -> bool:
    """``value in container``."""
    if is_list(container):
        return among(value, container)
    if isinstance(container, Map):
        return container.contains(value)
    raise EvaluationError(NO_OVERLOAD)


def _size(value: Value) -> int:
    length = size(value)
    if length is None:
        raise unsupported(value, "size")
    return length


def _matches(text: Value, pattern: Value) -> bool:
    if type(text) is not str or type(pattern) is not str:
        raise EvaluationError(NO_OVERLOAD)
    return regexes.matches(text, pattern)


# ---------------------------------------------------------------- conversions


def _converted(value: Value, wanted: Type) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{type_name(value)}' to '{wanted.name}'")


_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
_DOUBLE = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?"
    r"|(?i:inf|infinity|nan))"
)
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _int_of_string(text: str) -> int:
    if _INTEGER.fullmatch(text) and INT_MIN <= int(text) <= INT_MAX:
        return int(text)
    raise _converted(text, INT)


def _uint_of_string(text: str) -> Uint:
    if _INTEGER.fullmatch(text) and text[0] not in "+-" and int(text) <= UINT_MAX:
        return Uint(text)
    raise _converted(text, UINT)


def _double_of_string(text: str) -> float:
    if _DOUBLE.fullmatch(text):
        number = float(text)
        if not math.isinf(number) or "n" in text.lower():
            return number
    raise _converted(text, DOUBLE)


def _bool_of_string(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise _converted(text, BOOL)


def _int_of_double(number: float) -> int:
    if not math.isfinite(number) or not INT_MIN < number < INT_MAX:
        raise EvaluationError("integer overflow")
    return int(number)


def _uint_of_double(number: float) -> Uint:
    if not math.isfinite(number) or number < 0:
        raise EvaluationError("unsigned integer overflow")
    return to_uint(int(number))


def _string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


_UNITS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"([0-9]{0,40})(?:\.([0-9]{0,40}))?(ns|us|µs|μs|ms|s|m|h)")


def duration_of(text: str) -> Duration:
    """Reads ``1h30m``. Raises EvaluationError."""
    rest = text[1:] if text[:1] in {"+", "-"} else text
    if rest == "0":
        return Duration(0)
    nanos, at = 0, 0
    while at < len(rest):
        match = _PART.match(rest, at)
        if match is None or not (match[1] or match[2]):
            raise _converted(text, DURATION)
        unit, fraction = _UNITS[match[3]], match[2] or ""
        nanos += int(match[1] or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        at = match.end()
    if not rest or nanos > INT_MAX:
        raise _converted(text, DURATION)
    return Duration(-nanos if text[0] == "-" else nanos)


_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})"
)


def timestamp_of(text: str) -> Timestamp:
    """Reads RFC 3339. Raises EvaluationError."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise _converted(text, TIMESTAMP)
    try:
        moment = dt.datetime(*map(int, match.groups()[:6]), tzinfo=dt.UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        raise _converted(text, TIMESTAMP) from None
    offset = 0 if match[8] == "Z" else _offset(match[8])
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    seconds = since.days * 86400 + since.seconds - offset
    return Timestamp(seconds * 10**9 + int((match[7] or "0")[:9].ljust(9, "0")), offset)


def _offset(text: str) -> int:
    """Seconds of ``+01:30``."""
    hours, _, minutes = text.partition(":")
    if not (_INTEGER.fullmatch(hours) and _INTEGER.fullmatch(minutes)):
        raise EvaluationError(f"unknown time zone {text}")
    sign = -1 if text.startswith("-") else 1
    return int(hours) * 3600 + sign * int(minutes) * 60


def timestamp_of_int(seconds: int) -> Timestamp:
    """Of seconds since 1970. Raises EvaluationError."""
    return Timestamp(seconds * 10**9)


# ---------------------------------------------------------------- time


def _reading(name: str, read: Callable[[dt.datetime, Timestamp], int]) -> list[Overload]:
    def in_utc(moment: Timestamp) -> int:
        return read(moment.local(0), moment)

    def in_zone(moment: Timestamp, zone: str) -> int:
        if zone in {"", "UTC"}:
            return in_utc(moment)
        if ":" not in zone:
            raise EvaluationError(f"unknown time zone {zone}")
        return read(moment.local(_offset(zone)), moment)

    key = f"timestamp_{name}"
    return [
        method(name, key, (TIMESTAMP,), INT, in_utc),
        method(name, f"{key}_with_tz", (TIMESTAMP, STRING), INT, in_zone),
    ]


def _lasting(name: str, nanos: int) -> Overload:
    def read(duration: Duration) -> int:
        return _quotient(duration.nanos, nanos)

    return method(name, f"duration_{name}", (DURATION,), INT, read)


# ---------------------------------------------------------------- optional values


def _of_non_zero(value: Value) -> Optional:
    return NONE if _zero(value) else Optional(value)


def _zero(value: Value) -> bool:
    if isinstance(value, Duration):
        return value.nanos == 0
    if isinstance(value, Timestamp):
        return value.nanos == -62135596800 * 10**9
    length = size(value)
    if length is not None:
        return length == 0
    return value is None or (isinstance(value, int | float) and not value)


def _unwrap(values: Any) -> tuple[Value, ...]:
    return tuple(it.value for it in values if it is not NONE)


# ---------------------------------------------------------------- declarations


def _relation(name: str, test: Callable[[int, int], bool]) -> list[Overload]:
    word = {"_<_": "less", "_<=_": "less_equals", "_>_": "greater", "_>=_": "greater_equals"}[name]
    pairs = [(BOOL, BOOL)]
    pairs += [(INT, INT), (INT, DOUBLE), (INT, UINT)]
    pairs += [(UINT, UINT), (UINT, DOUBLE), (UINT, INT)]
    pairs += [(DOUBLE, DOUBLE), (DOUBLE, INT), (DOUBLE, UINT)]
    pairs += [(it, it) for it in (STRING, BYTES, TIMESTAMP, DURATION)]
    return operator(
        name,
        tuple((f"{word}_{one.name}_{other.name}", (one, other), BOOL) for one, other in pairs),
        _comparison(name, test),
    )


def _searching(name: str, key: str, search: Callable[[str, str], bool]) -> list[Overload]:
    def find(text: Value, part: Value) -> bool:
        if type(text) is not str or type(part) is not str:
            raise EvaluationError(NO_OVERLOAD)
        return search(text, part)

    return operator(name, ((key, (STRING, STRING), BOOL),), find, methods=True)


def _each(key: str, types: tuple[Type, ...]) -> tuple[tuple[str, tuple[Type, ...], Type], ...]:
    return tuple((f"{key}_{it.name}", (it, it), it) for it in types)


def _convert(name: str, wanted: Type, sources: dict[Type, Callable[..., Value]]) -> list[Overload]:
    return [
        function(name, f"{source.name}_to_{name}", (source,), wanted, call)
        for source, call in ({wanted: lambda it: it} | sources).items()
    ]


def duration_of_int(value: int) -> Value:
    """Declared, but no int is a duration. Raises EvaluationError."""
    raise _converted(value, DURATION)


_NUMBERS = (DOUBLE, INT, UINT)
OVERLOADS: list[Overload] = [
    *operator("_?_:_", (("conditional", (BOOL, A, A), A),), None),
    *operator("_&&_", (("logical_and", (BOOL, BOOL), BOOL),), None),
    *operator("_||_", (("logical_or", (BOOL, BOOL), BOOL),), None),
    *operator("_==_", (("equals", (A, A), BOOL),), None),
    *operator("_!=_", (("not_equals", (A, A), BOOL),), None),
    *operator("!_", (("logical_not", (BOOL,), BOOL),), invert),
    *operator("@not_strictly_false", (("not_strictly_false", (BOOL,), BOOL),), None),
    *operator(
        "_+_",
        (
            *_each("add", (BYTES, DOUBLE, DURATION)),
            ("add_duration_timestamp", (DURATION, TIMESTAMP), TIMESTAMP),
            ("add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP),
            *_each("add", (INT, LIST, STRING, UINT)),
        ),
        _arithmetic("_+_", op.add, op.add, _add_others),
    ),
    *operator(
        "_-_",
        (
            *_each("subtract", (DOUBLE, DURATION, INT)),
            ("subtract_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP),
            ("subtract_timestamp_timestamp", (TIMESTAMP, TIMESTAMP), DURATION),
            *_each("subtract", (UINT,)),
        ),
        _arithmetic("_-_", op.sub, op.sub, _subtract_others),
    ),
    *operator("_*_", _each("multiply", _NUMBERS), _arithmetic("_*_", op.mul, op.mul, _no_others)),
    *operator("_/_", _each("divide", _NUMBERS), _arithmetic("_/_", _quotient, _ratio, _no_others)),
    *operator(
        "_%_", _each("modulo", (INT, UINT)), _arithmetic("_%_", _remainder, None, _no_others)
    ),
    *operator("-_", (("negate_double", (DOUBLE,), DOUBLE), ("negate_int", (INT,), INT)), negate),
    *_relation("_<_", op.lt),
    *_relation("_<=_", op.le),
    *_relation("_>_", op.gt),
    *_relation("_>=_", op.ge),
    *operator("@in", (("in_list", (A, LIST), BOOL), ("in_map", (A, MAP), BOOL)), contains),
    *operator(
        "_[_]",
        (
            ("index_list", (LIST, INT), A),
            ("index_map", (MAP, A), B),
            ("optional_list_index_int", (optional_of(LIST), INT), optional_of(A)),
            ("optional_map_index_value", (optional_of(MAP), A), optional_of(B)),
        ),
        None,
    ),
    *operator(
        "_[?_]",
        (
            ("list_optindex", (LIST, INT), optional_of(A)),
            ("optional_list_optindex", (optional_of(LIST), INT), optional_of(A)),
            ("map_optindex", (MAP, A), optional_of(B)),
            ("optional_map_optindex", (optional_of(MAP), A), optional_of(B)),
        ),
        None,
    ),
    *operator(
        "size",
        tuple((f"size_{it.name}", (it,), INT) for it in (BYTES, LIST, MAP, STRING)),
        _size,
    ),
    *operator(
        "size",
        tuple((f"{it.name}_size", (it,), INT) for it in (BYTES, LIST, MAP, STRING)),
        _size,
        methods=True,
    ),
    *operator("type", (("type", (A,), type_of(A)),), lambda it: TypeName(type_name(it))),
    *operator("dyn", (("to_dyn", (A,), DYN),), lambda it: it),
    *_convert("bool", BOOL, {STRING: _bool_of_string}),
    *_convert("bytes", BYTES, {STRING: lambda it: it.encode()}),
    *_convert("double", DOUBLE, {INT: float, STRING: _double_of_string, UINT: float}),
    *_convert("duration", DURATION, {INT: duration_of_int, STRING: duration_of}),
    *_convert(
        "int",
        INT,
        {
            DOUBLE: _int_of_double,
            DURATION: lambda it: it.nanos,
            STRING: _int_of_string,
            TIMESTAMP: lambda it: it.nanos // 10**9,
            UINT: lambda it: to_int(int(it)),
        },
    ),
    *_convert(
        "string",
        STRING,
        {
            BOOL: lambda it: "true" if it else "false",
            BYTES: _string_of_bytes,
            DOUBLE: general,
            DURATION: str,
            INT: str,
            TIMESTAMP: str,
            UINT: lambda it: str(int(it)),
        },
    ),
    *_convert("timestamp", TIMESTAMP, {INT: timestamp_of_int, STRING: timestamp_of}),
    *_convert("uint", UINT, {DOUBLE: _uint_of_double, INT: to_uint, STRING: _uint_of_string}),
    *_searching("contains", "contains_string", op.contains),
    *_searching("endsWith", "ends_with_string", str.endswith),
    *_searching("startsWith", "starts_with_string", str.startswith),
    *operator("matches", (("matches", (STRING, STRING), BOOL),), _matches),
    *operator("matches", (("matches_string", (STRING, STRING), BOOL),), _matches, methods=True),
    *_reading("getFullYear", lambda it, _: it.year),
    *_reading("getMonth", lambda it, _: it.month - 1),
    *_reading("getDayOfYear", lambda it, _: it.timetuple().tm_yday - 1),
    *_reading("getDayOfMonth", lambda it, _: it.day - 1),
    *_reading("getDate", lambda it, _: it.day),
    *_reading("getDayOfWeek", lambda it, _: it.isoweekday() % 7),
    *_reading("getHours", lambda it, _: it.hour),
    *_reading("getMinutes", lambda it, _: it.minute),
    *_reading("getSeconds", lambda it, _: it.second),
    *_reading("getMilliseconds", lambda _, it: it.nanos % 10**9 // 10**6),
    _lasting("getHours", 3600 * 10**9),
    _lasting("getMinutes", 60 * 10**9),
    _lasting("getSeconds", 10**9),
    _lasting("getMilliseconds", 10**6),
    function("optional.of", "optional_of", (A,), optional_of(A), Optional),
    function("optional.ofNonZeroValue", "optional_ofNonZero", (A,), optional_of(A), _of_non_zero),
    function("optional.none", "optional_none", (), optional_of(A), lambda: NONE),
    method("value", "optional_value", (optional_of(A),), A, Optional.get),
    method("hasValue", "optional_hasValue", (optional_of(A),), BOOL, lambda it: it is not NONE),
    *operator(
        "or",
        (("optional_or", (optional_of(A), optional_of(A)), optional_of(A)),),
        None,
        methods=True,
    ),
    *operator("orValue", (("optional_orValue", (optional_of(A), A), A),), None, methods=True),
    method(
        "first",
        "list_first",
        (LIST,),
        optional_of(A),
        lambda it: Optional(it[0]) if it else NONE,
    ),
    method(
        "last",
        "list_last",
        (LIST,),
        optional_of(A),
        lambda it: Optional(it[-1]) if it else NONE,
    ),
    function("optional.unwrap", "optional_unwrap", (list_of(optional_of(A)),), LIST, _unwrap),
    method("unwrapOpt", "optional_unwrapOpt", (list_of(optional_of(A)),), LIST, _unwrap),
]
