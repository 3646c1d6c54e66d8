"""Values of expressions, and how they are compared, converted and shown.

bool, int, float (double), str, None (null) and tuple (list) are Python's own; the rest are classes here. Equality is
``equal``, never ``==``: 1 equals 1.0 and 1u, but not true.
"""

import decimal
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from app.cel.addresses import Address, Network
from app.cel.basics import INT_MAX, INT_MIN, UINT_MAX
from app.cel.errors import EvaluationAborted, EvaluationError
from app.cel.quantities import Quantity
from app.cel.versions import Semver

Value = Any

NO_OVERLOAD = "no such overload"


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


class Growing(list[Value]):
    """The list that a comprehension makes: adding to it grows it in place."""


class Optional:
    """optional_type: a value, or NONE."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value: Final = value

    def get(self) -> Value:
        """The value; raises EvaluationError where there is none."""
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
    """What is looked up and not there."""


MISSING: Final = Missing()


class _Key:
    """What Python would take for another key (True for 1), or cannot look up (a list): found by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value: Final = value


_FLAGS: Final = {True: _Key(True), False: _Key(False)}


def hashed(value: Value) -> Value:
    """What a value is looked up by. Raises EvaluationAborted for what kube-scheduler cannot look up."""
    kind = type(value)
    if kind is bool:
        return _FLAGS[value]
    if kind is Semver:
        raise EvaluationAborted("internal error: runtime error: hash of unhashable type cel.Semver")
    return _Key(value) if kind is tuple or kind is Growing else value


class Map:
    """A map. ``entries`` may be given as they are where all keys are strings."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[Any, Value] | None = None) -> None:
        self.entries: Final[dict[Any, Value]] = {} if entries is None else entries

    def put(self, name: Value, value: Value) -> None:
        """Adds or replaces an entry; only while the map is made."""
        self.entries[hashed(name)] = value

    def remove(self, name: Value) -> None:
        """Drops an entry, if there is one; only while the map is made."""
        self.entries.pop(hashed(name), None)

    def find(self, wanted: Value) -> Value:
        """The value of a key, or MISSING."""
        return self.entries.get(hashed(wanted), MISSING) if self.entries else MISSING

    def contains(self, wanted: Value) -> bool:
        """Whether there is such an entry."""
        return Map.find(self, wanted) is not MISSING

    def items(self) -> Iterator[tuple[Value, Value]]:
        """Keys and values."""
        for name, value in self.entries.items():
            yield (name.value if type(name) is _Key else name), value

    def __len__(self) -> int:
        return len(self.entries)


class GrowingMap(Map):
    """The map that a comprehension makes: adding to it grows it in place."""

    __slots__ = ()


class NameMap(Map):
    """The attributes or capacities of a device in one domain: all keys are strings, and looked up as such."""

    __slots__ = ()

    def find(self, wanted: Value) -> Value:
        """The value of a key, or MISSING."""
        return self.entries.get(wanted, MISSING) if type(wanted) is str else MISSING

    def contains(self, wanted: Value) -> bool:
        """Whether there is such an entry."""
        return NameMap.find(self, wanted) is not MISSING


class DomainMap(NameMap):
    """The attributes or capacities of a device by domain: a domain that it has nothing of is an empty map."""

    __slots__ = ()

    def find(self, wanted: Value) -> Value:
        """The names of a domain; whatever is no domain is empty, too."""
        return self.entries.get(wanted, _EMPTY) if type(wanted) is str else _EMPTY


_EMPTY: Final = Map()


# ---------------------------------------------------------------- types of values

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
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    Address: "net.IP",
    Network: "net.CIDR",
}


def type_name(value: Value) -> str:
    """The name of a value's type."""
    return _NAMES[type(value)]


def is_list(value: Value) -> bool:
    """Whether a value is a list."""
    return type(value) is tuple or type(value) is Growing


def size(value: Value) -> int | None:
    """The length of what has one: characters, elements, entries."""
    return len(value) if isinstance(value, str | tuple | list | Map) else None


# ---------------------------------------------------------------- equality and order


def equal(one: Value, other: Value) -> bool:
    """Whether two values are equal; values of different types are not, but for numbers.

    Raises EvaluationError where a type of Kubernetes' is compared with something else.
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
    """``equal`` inside of lists and maps: what cannot be compared does not stand out there."""
    try:
        return equal(one, other)
    except EvaluationError:
        return True


def among(value: Value, elements: Any) -> bool:
    """Whether a list has an equal element; what cannot be compared is none."""
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


def _equal_quantities(one: Quantity, other: Value) -> bool:
    if type(other) is not Quantity or other.computed:
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
    Quantity: _equal_quantities,
    Semver: _strictly(lambda one, other: one.compare(other) == 0),
    Address: _strictly(lambda one, other: bool(one.ip == other.ip)),
    Network: _strictly(
        lambda one, other: one.bits == other.bits and bool(one.address.ip == other.address.ip)
    ),
}


def compare_numbers(one: float, other: float) -> int | None:
    """-1, 0 or 1; None where one is not a number. An integer beside a double is rounded to one."""
    if type(one) is float or type(other) is float:
        one, other = _rounded(one, other), _rounded(other, one)
        if math.isnan(one) or math.isnan(other):
            return None
    return (one > other) - (one < other)


def _rounded(number: float, other: float) -> float:
    """An integer as a double, unless the double beside it is out of its type's range."""
    if type(number) is float:
        return number
    low, high = (0, UINT_MAX) if type(number) is Uint else (INT_MIN, INT_MAX)
    return float(number) if low <= other <= float(high) else number


def compare(one: Value, other: Value) -> int:
    """-1, 0 or 1 for values of the same type that have an order, and for numbers. Raises EvaluationError."""
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


# ---------------------------------------------------------------- as text


def digits(number: float) -> str:
    """Shortest digits without an exponent."""
    return format(decimal.Decimal(repr(number)), "f").removesuffix(".0")


def general(number: float) -> str:
    """As Go's %g: an exponent below -4, or from 6 on, is written out."""
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
    """A value in an error's text."""
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
