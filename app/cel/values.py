"""Values of expressions: their equality, order, members and text.

bool, int, double (float), string, null (None) and list (tuple) are Python's own types, the others are classes. Values
are compared by ``equal``, never by ``==``: 1 equals 1.0 and 1u, but not true.
"""

import decimal
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from app.cel.errors import EvaluationAborted, EvaluationError
from app.cel.kubernetes import IPAddress, Network, QuantityValue, Semver
from app.cel.types import INT_MAX, INT_MIN, UINT_MAX

Value = Any

NO_OVERLOAD = "no such overload"


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


class Growing(list[Value]):
    """The list that a comprehension builds. ``+`` extends it in place."""


class Optional:
    """optional_type. ``NONE`` is the one without a value."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value: Final = value

    def get(self) -> Value:
        """The value. Raises EvaluationError if there is none."""
        if self is NONE:
            raise EvaluationError("optional.none() dereference")
        return self.value

    def __str__(self) -> str:
        return "optional.none()" if self is NONE else f"optional({show(self.value)})"


NONE: Final = Optional(None)


class TypeName:
    """A type as a value."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: Final = name

    def __str__(self) -> str:
        return self.name


class Missing:
    """The result of a look-up that found nothing."""


MISSING: Final = Missing()


class _Key:
    """A key that Python would confuse with another (True with 1) or cannot hash (a list). Compared by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value: Final = value


_FLAGS: Final = {True: _Key(True), False: _Key(False)}


def hashed(value: Value) -> Value:
    """The dictionary key for a value. Raises EvaluationAborted for values that kube-scheduler cannot hash."""
    kind = type(value)
    if kind is bool:
        return _FLAGS[value]
    if kind is Semver:
        raise EvaluationAborted("internal error: runtime error: hash of unhashable type cel.Semver")
    return _Key(value) if kind is tuple or kind is Growing else value


class Map:
    """A map. ``entries`` is by ``hashed`` keys; strings are their own."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[Any, Value] | None = None) -> None:
        self.entries: Final[dict[Any, Value]] = {} if entries is None else entries

    def put(self, name: Value, value: Value) -> None:
        """Adds or replaces an entry, while the map is built."""
        self.entries[hashed(name)] = value

    def remove(self, name: Value) -> None:
        """Removes an entry, if there is one, while the map is built."""
        self.entries.pop(hashed(name), None)

    def find(self, wanted: Value) -> Value:
        """The value of a key, or MISSING."""
        return self.entries.get(hashed(wanted), MISSING) if self.entries else MISSING

    def contains(self, wanted: Value) -> bool:
        """Whether the map has the key."""
        return Map.find(self, wanted) is not MISSING

    def items(self) -> Iterator[tuple[Value, Value]]:
        """The pairs of key and value."""
        for name, value in self.entries.items():
            yield (name.value if type(name) is _Key else name), value

    def __len__(self) -> int:
        return len(self.entries)


class GrowingMap(Map):
    """The map that a comprehension builds, in place."""

    __slots__ = ()


class NameMap(Map):
    """The attributes or capacities of a device in one domain. All keys are strings."""

    __slots__ = ()

    def find(self, wanted: Value) -> Value:
        """The value of a key, or MISSING."""
        return self.entries.get(wanted, MISSING) if type(wanted) is str else MISSING

    def contains(self, wanted: Value) -> bool:
        """Whether the map has the key."""
        return NameMap.find(self, wanted) is not MISSING


class DomainMap(NameMap):
    """The attributes or capacities of a device by domain. A domain without any is an empty map."""

    __slots__ = ()

    def find(self, wanted: Value) -> Value:
        """The entries of a domain; empty if there are none."""
        return self.entries.get(wanted, _EMPTY) if type(wanted) is str else _EMPTY


_EMPTY: Final = Map()


# ---------------------------------------------------------------- types

_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    type(None): "null_type",
    tuple: "list",
    Growing: "list",
    Map: "map",
    GrowingMap: "map",
    NameMap: "map",
    DomainMap: "map",
    Optional: "optional_type",
    TypeName: "type",
    QuantityValue: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    IPAddress: "net.IP",
    Network: "net.CIDR",
}


def type_name(value: Value) -> str:
    """The name of a value's type."""
    return _NAMES[type(value)]


def is_list(value: Value) -> bool:
    """Whether a value is a list."""
    return type(value) is tuple or type(value) is Growing


def size(value: Value) -> int | None:
    """The number of characters, elements or entries; None for values without a size."""
    return len(value) if isinstance(value, str | tuple | list | Map) else None


# ---------------------------------------------------------------- equality and order


def equal(one: Value, other: Value) -> bool:
    """Whether two values are equal. Values of different types are not, except numbers.

    Raises EvaluationError if a value of a Kubernetes type is compared with one of another type.
    """
    kind = type(one)
    if one is None or other is None:
        return one is other
    if kind is str or kind is bool:
        return type(other) is kind and bool(one == other)
    if kind is int or kind is Uint or kind is float:
        return type(other) in _NUMBERS and compare_numbers(one, other) == 0
    return _EQUALITY[kind](one, other)


def same(one: Value, other: Value) -> bool:
    """``equal`` for elements of lists and maps, where values that cannot be compared count as equal."""
    try:
        return equal(one, other)
    except EvaluationError:
        return True


def among(value: Value, elements: Any) -> bool:
    """Whether a list has an equal element; elements that cannot be compared are not equal."""
    for it in elements:
        try:
            if equal(value, it):
                return True
        except EvaluationError:
            continue
    return False


def _equal_lists(one: Any, other: Value) -> bool:
    return is_list(other) and len(one) == len(other) and all(map(same, one, other))


def _equal_maps(one: Map, other: Value) -> bool:
    if not isinstance(other, Map) or len(one) != len(other):
        return False
    for name, value in one.items():
        its = other.find(name)
        if its is MISSING or not same(value, its):
            return False
    return True


def _equal_optionals(one: Optional, other: Value) -> bool:
    if type(other) is not Optional:
        return False
    if one is NONE or other is NONE:
        return one is other
    return equal(one.value, other.value)


def _equal_quantities(one: QuantityValue, other: Value) -> bool:
    if type(other) is not QuantityValue or other.computed:
        raise EvaluationError(NO_OVERLOAD)
    return one.compare(other) == 0


def _strictly(same: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compared(one: Value, other: Value) -> bool:
        if type(other) is not type(one):
            raise EvaluationError(NO_OVERLOAD)
        return same(one, other)

    return compared


_NUMBERS: Final = frozenset({int, Uint, float})
_EQUALITY: Final[dict[type, Callable[[Any, Any], bool]]] = {
    tuple: _equal_lists,
    Growing: _equal_lists,
    Map: _equal_maps,
    GrowingMap: _equal_maps,
    NameMap: _equal_maps,
    DomainMap: _equal_maps,
    Optional: _equal_optionals,
    TypeName: lambda one, other: type(other) is TypeName and one.name == other.name,
    QuantityValue: _equal_quantities,
    Semver: _strictly(lambda one, other: one.compare(other) == 0),
    IPAddress: _strictly(lambda one, other: bool(one.ip == other.ip)),
    Network: _strictly(
        lambda one, other: one.bits == other.bits and bool(one.address.ip == other.address.ip)
    ),
}


def compare_numbers(one: float, other: float) -> int | None:
    """-1, 0 or 1; None if either is NaN. An integer is compared with a double as a double."""
    if type(one) is float or type(other) is float:
        one, other = _rounded(one, other), _rounded(other, one)
        if math.isnan(one) or math.isnan(other):
            return None
    return (one > other) - (one < other)


def _rounded(number: float, other: float) -> float:
    """An integer as a double, unless ``other`` is out of the range of the integer's type."""
    if type(number) is float:
        return number
    low, high = (0, UINT_MAX) if type(number) is Uint else (INT_MIN, INT_MAX)
    return float(number) if low <= other <= float(high) else number


def compare(one: Value, other: Value) -> int:
    """-1, 0 or 1 for two numbers, strings or bools. Raises EvaluationError for other values."""
    kind = type(one)
    if kind in _NUMBERS and type(other) in _NUMBERS:
        order = compare_numbers(one, other)
        if order is None:
            raise EvaluationError("NaN values cannot be ordered")
        return order
    if kind is not type(other) or kind not in _ORDERED:
        raise EvaluationError(NO_OVERLOAD)
    return int(one > other) - int(one < other)


_ORDERED: Final = frozenset({bool, str})


# ---------------------------------------------------------------- members


KEYS: Final = frozenset({str, int, Uint, bool, float})
"""Types of values that can be keys."""


def look_up(value: Value, key: Value) -> Value:
    """``value[key]``, which is optional if the value is. Raises EvaluationError."""
    if isinstance(value, Map):
        found = value.find(key)
        if found is not MISSING:
            return found
    elif is_list(value):
        index = _index(key)
        if 0 <= index < len(value):
            return value[index]
        raise EvaluationError(f"index out of bounds: {show(key)}")
    elif type(value) is Optional:
        return look_up_optional(value, key)
    raise EvaluationError(f"no such key: {show(key)}")


def look_up_optional(value: Value, key: Value) -> Optional:
    """``value[?key]``."""
    if type(value) is Optional:
        if value is NONE:
            return NONE
        value = value.value
    found = find(value, key)
    return NONE if found is MISSING else Optional(found)


def find(value: Value, key: Value) -> Value:
    """The member of a list or map, or MISSING; other values have no members. Raises EvaluationError."""
    if isinstance(value, Map):
        return value.find(key)
    if is_list(value):
        index = _index(key)
        return value[index] if 0 <= index < len(value) else MISSING
    return MISSING


def _index(key: Value) -> int:
    if type(key) is int or type(key) is Uint:
        return int(key)
    if type(key) is float:
        if key.is_integer():
            return int(key)
        raise EvaluationError(f"unsupported index value {show(key)} in list")
    raise EvaluationError(f"unsupported index type '{type_name(key)}' in list")


# ---------------------------------------------------------------- text


def digits(number: float) -> str:
    """The shortest decimal digits that mean this number, without an exponent."""
    return format(decimal.Decimal(repr(number)), "f").removesuffix(".0")


def general(number: float) -> str:
    """A double as Go's ``%g`` writes it: with an exponent if that is below -4 or at least 6."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    exact = decimal.Decimal(repr(number)).normalize()
    power = exact.adjusted()
    if not number or -4 <= power < 6:
        return digits(number)
    sign, significant, _ = exact.as_tuple()
    first, *rest = map(str, significant)
    mantissa = f"{first}.{''.join(rest)}" if rest else first
    return f"{'-' if sign else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def show(value: Value) -> str:
    """A value as errors show it."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return general(value)
    if value is None:
        return "NULL_VALUE"
    if is_list(value):
        return f"[{', '.join(map(show, value))}]"
    if isinstance(value, Map):
        return f"{{{', '.join(f'{show(k)}: {show(v)}' for k, v in value.items())}}}"
    return str(value)
