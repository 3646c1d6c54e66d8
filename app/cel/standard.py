"""Operators and functions of the language itself."""

import functools
import math
import operator as op
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.cel.costs import LIMIT, MAX_LENGTH
from app.cel.errors import CostLimitExceeded, EvaluationError
from app.cel.types import INT_MAX, INT_MIN, UINT_MAX
from app.cel.values import (
    NO_OVERLOAD,
    NONE,
    Growing,
    Map,
    Optional,
    TypeName,
    Uint,
    Value,
    among,
    compare,
    general,
    is_list,
    show,
    size,
    type_name,
)

Signatures = Mapping[str, Callable[..., Value] | None]
"""Functions by signatures such as ``string.split(string, int): list<string>``, see ``environment``."""


def for_each(kinds: str, signature: str, call: Callable[..., Value]) -> Signatures:
    """One function for several types, each in the place of ``$`` in the signature."""
    return {signature.replace("$", kind): call for kind in kinds.split()}


def unsupported(value: Value, name: str) -> EvaluationError:
    """The error for an operator that the value's type does not have."""
    return EvaluationError(NO_OVERLOAD if type(value) is str else f"{NO_OVERLOAD}: {name}")


# ---------------------------------------------------------------- arithmetic


def to_int(number: int) -> int:
    """The number as an int. Raises EvaluationError if it overflows."""
    if INT_MIN <= number <= INT_MAX:
        return number
    raise EvaluationError("integer overflow")


def to_uint(number: int) -> Uint:
    """The number as a uint. Raises EvaluationError if it overflows."""
    if 0 <= number <= UINT_MAX:
        return Uint(number)
    raise EvaluationError("unsigned integer overflow")


def _quotient(one: int, other: int) -> int:
    """The quotient, rounded towards zero."""
    if not other:
        raise EvaluationError("division by zero")
    quotient = abs(one) // abs(other)
    return quotient if (one < 0) == (other < 0) else -quotient


def _remainder(one: int, other: int) -> int:
    """The remainder, with the sign of the dividend."""
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
    doubles: Callable[[float, float], float] | None = None,
    others: Callable[[Value, Value], Value] | None = None,
) -> Callable[[Value, Value], Value]:
    """An operator of numbers; ``others`` implements it for strings and lists."""

    def calculate(one: Value, other: Value) -> Value:
        kind = type(one)
        if kind is int or kind is Uint or (kind is float and doubles is not None):
            if type(other) is not kind:
                raise EvaluationError(NO_OVERLOAD)
            if doubles is not None and kind is float:
                return doubles(one, other)
            result = integers(int(one), int(other))
            return to_int(result) if kind is int else to_uint(result)
        if others is not None and (kind is str or is_list(one)):
            return others(one, other)
        raise unsupported(one, name)

    return calculate


def _concatenate(one: Any, other: Any) -> Value:
    if type(one) is not type(other) and not (is_list(one) and is_list(other)):
        raise EvaluationError(NO_OVERLOAD)
    if len(one) + len(other) > (MAX_LENGTH if type(one) is str else LIMIT):
        raise CostLimitExceeded
    if type(one) is str:
        return one + other
    if type(one) is Growing:
        one.extend(other)
        return one
    return (*one, *other)


add = _arithmetic("_+_", op.add, op.add, _concatenate)


def _negate(value: Value) -> Value:
    if type(value) is int:
        return to_int(-value)
    if type(value) is float:
        return -value
    raise EvaluationError(NO_OVERLOAD) if type(value) is bool else unsupported(value, "-_")


def _invert(value: Value) -> bool:
    if type(value) is not bool:
        raise EvaluationError(NO_OVERLOAD)
    return not value


def _relation(name: str, test: Callable[[int, int], bool]) -> Signatures:
    def decide(one: Value, other: Value) -> bool:
        if type(one) not in _COMPARED:
            raise unsupported(one, name)
        return test(compare(one, other), 0)

    pairs = (
        "bool, bool|int, int|int, double|int, uint|uint, uint|uint, double|uint, int|"
        "double, double|double, int|double, uint|string, string|bytes, bytes"
    )
    return {f"{name}({it}): bool": decide for it in pairs.split("|")}


_COMPARED = (bool, int, Uint, float, str)


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


def _of_strings(search: Callable[[str, str], bool]) -> Callable[[Value, Value], bool]:
    def decide(text: Value, part: Value) -> bool:
        if type(text) is not str or type(part) is not str:
            raise EvaluationError(NO_OVERLOAD)
        return search(text, part)

    return decide


# ---------------------------------------------------------------- regular expressions


@functools.lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """A regular expression in RE2's syntax, which matches in linear time. Raises EvaluationError."""
    import re2  # noqa: PLC0415 - few expressions use it

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 2**21
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0]
        raise EvaluationError(
            _complaint(text.decode() if isinstance(text, bytes) else str(text))
        ) from None


_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}
"""Go's words for RE2's errors."""


def _complaint(text: str) -> str:
    mistake, _, part = text.partition(": ")
    return f"error parsing regexp: {_WORDS.get(mistake, mistake)}: `{part}`"


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern is found anywhere in the text."""
    return compiled(pattern).search(text) is not None


# ---------------------------------------------------------------- conversions


def _converted(value: Value, wanted: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{type_name(value)}' to '{wanted}'")


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
    raise _converted(text, "int")


def _uint_of_string(text: str) -> Uint:
    if _INTEGER.fullmatch(text) and text[0] not in "+-" and int(text) <= UINT_MAX:
        return Uint(text)
    raise _converted(text, "uint")


def _double_of_string(text: str) -> float:
    if _DOUBLE.fullmatch(text):
        number = float(text)
        if not math.isinf(number) or "n" in text.lower():
            return number
    raise _converted(text, "double")


def _bool_of_string(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise _converted(text, "bool")


def _int_of_double(number: float) -> int:
    if not math.isfinite(number) or not INT_MIN < number < INT_MAX:
        raise EvaluationError("integer overflow")
    return int(number)


def _uint_of_double(number: float) -> Uint:
    if not math.isfinite(number) or number < 0:
        raise EvaluationError("unsigned integer overflow")
    return to_uint(int(number))


def _itself(value: Value) -> Value:
    return value


# ---------------------------------------------------------------- optional values


def _of_non_zero(value: Value) -> Optional:
    length = size(value)
    if length is not None:
        return Optional(value) if length else NONE
    zero = value is None or (isinstance(value, int | float) and not value)
    return NONE if zero else Optional(value)


def _unwrap(values: Any) -> tuple[Value, ...]:
    for it in values:
        if type(it) is not Optional:
            raise EvaluationError(f"value {show(it)} is not optional")
    return tuple(it.value for it in values if it is not NONE)


UNTYPED: Final[Signatures] = {
    "_?_:_(bool, A, A): A": None,
    "_&&_(bool, bool): bool": None,
    "_||_(bool, bool): bool": None,
    "_==_(A, A): bool": None,
    "_!=_(A, A): bool": None,
    "!_(bool): bool": _invert,
    "@not_strictly_false(bool): bool": None,
    "-_(double): double": _negate,
    "-_(int): int": _negate,
    "@in(A, list<A>): bool": contains,
    "@in(A, map<A, B>): bool": contains,
    "_[_](list<A>, int): A": None,
    "_[_](map<A, B>, A): B": None,
    "_[_](optional<list<A>>, int): optional<A>": None,
    "_[_](optional<map<A, B>>, A): optional<B>": None,
    "_[?_](list<A>, int): optional<A>": None,
    "_[?_](optional<list<A>>, int): optional<A>": None,
    "_[?_](map<A, B>, A): optional<B>": None,
    "_[?_](optional<map<A, B>>, A): optional<B>": None,
    "optional<A>.or(optional<A>): optional<A>": None,
    "optional<A>.orValue(A): A": None,
    "type(A): type<A>": lambda it: TypeName(type_name(it)),
    "dyn(A): dyn": _itself,
    "string.contains(string): bool": _of_strings(op.contains),
    "string.endsWith(string): bool": _of_strings(str.endswith),
    "string.startsWith(string): bool": _of_strings(str.startswith),
    "matches(string, string): bool": _of_strings(matches),
    "string.matches(string): bool": _of_strings(matches),
    **for_each("bytes double int list<A> string uint", "_+_($, $): $", add),
    **for_each("double int uint", "_-_($, $): $", _arithmetic("_-_", op.sub, op.sub)),
    **for_each("double int uint", "_*_($, $): $", _arithmetic("_*_", op.mul, op.mul)),
    **for_each("double int uint", "_/_($, $): $", _arithmetic("_/_", _quotient, _ratio)),
    **for_each("int uint", "_%_($, $): $", _arithmetic("_%_", _remainder)),
    **_relation("_<_", op.lt),
    **_relation("_<=_", op.le),
    **_relation("_>_", op.gt),
    **_relation("_>=_", op.ge),
    **{
        f"{signature}: int": _size
        for kind in ("list<A>", "map<A, B>", "string")
        for signature in (f"size({kind})", f"{kind}.size()")
    },
}
"""Functions that check the types of their arguments themselves. None: the planner implements it."""
TYPED: Final[Signatures] = {
    "bool(bool): bool": _itself,
    "bool(string): bool": _bool_of_string,
    "double(double): double": _itself,
    "double(int): double": float,
    "double(string): double": _double_of_string,
    "double(uint): double": float,
    "int(int): int": _itself,
    "int(double): int": _int_of_double,
    "int(string): int": _int_of_string,
    "int(uint): int": lambda it: to_int(int(it)),
    "string(string): string": _itself,
    "string(bool): string": lambda it: "true" if it else "false",
    "string(double): string": general,
    "string(int): string": str,
    "string(uint): string": str,
    "uint(uint): uint": _itself,
    "uint(double): uint": _uint_of_double,
    "uint(int): uint": to_uint,
    "uint(string): uint": _uint_of_string,
    "optional.of(A): optional<A>": Optional,
    "optional.ofNonZeroValue(A): optional<A>": _of_non_zero,
    "optional.none(): optional<A>": lambda: NONE,
    "optional<A>.value(): A": Optional.get,
    "optional<A>.hasValue(): bool": lambda it: it is not NONE,
    "list<A>.first(): optional<A>": lambda it: Optional(it[0]) if it else NONE,
    "list<A>.last(): optional<A>": lambda it: Optional(it[-1]) if it else NONE,
    "optional.unwrap(list<optional<A>>): list<A>": _unwrap,
    "list<optional<A>>.unwrapOpt(): list<A>": _unwrap,
}
"""Functions that are only called with values of the declared types."""
