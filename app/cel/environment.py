"""What expressions can name: variables, fields, types, and functions with their overloads.

Functions are declared by signatures such as ``string.split(string, int): list<string>``. The text before the last dot
is the type of a method's target, or a part of the function's name (``sets.contains``). Types of one capital letter are
parameters.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.cel import extensions, kubernetes, standard, types
from app.cel.errors import EvaluationError
from app.cel.standard import Signatures
from app.cel.syntax import Call, Expr, Variable
from app.cel.types import Type
from app.cel.values import NO_OVERLOAD, Value, type_name

# ---------------------------------------------------------------- types by their names

QUANTITY = types.named("kubernetes.Quantity")
SEMVER = types.named("kubernetes.Semver")
DEVICE = types.named("kubernetes.DRADevice")
IP = types.opaque("net.IP")
CIDR = types.opaque("net.CIDR")

_TYPES = {
    "any": types.ANY,
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "dyn": types.DYN,
    "int": types.INT,
    "string": types.STRING,
    "uint": types.UINT,
    "Quantity": QUANTITY,
    "Semver": SEMVER,
    "IP": IP,
    "CIDR": CIDR,
}
_GENERIC: dict[str, Callable[..., Type]] = {
    "list": types.list_of,
    "map": types.map_of,
    "optional": types.optional_of,
    "type": types.type_of,
}


def _type(text: str) -> Type:
    name, _, inner = text.partition("<")
    if inner:
        return _GENERIC[name](*_types(inner[:-1]))
    return types.parameter(name) if len(name) == 1 else _TYPES[name]


def _types(text: str) -> list[Type]:
    """The types of a list, split at the commas that are not inside a type."""
    parts: list[str] = []
    depth = 0
    for part in text.split(", ") if text else ():
        if depth:
            parts[-1] += f", {part}"
        else:
            parts.append(part)
        depth += part.count("<") - part.count(">")
    return list(map(_type, parts))


# ---------------------------------------------------------------- names

VARIABLES = {"device": Variable("device", DEVICE)}
FIELDS: dict[str, dict[str, Type]] = {
    DEVICE.name: {
        "driver": _type("string"),
        "attributes": _type("map<string, map<string, any>>"),
        "capacity": _type("map<string, map<string, Quantity>>"),
        "allowMultipleAllocations": _type("bool"),
    }
}
FIELDLESS = frozenset({QUANTITY.name, SEMVER.name})
"""Types that have methods only."""
TYPES: dict[str, Type] = {
    it.name: it
    for it in (
        *map(_type, ("bool", "double", "int", "string", "uint", "list<A>", "map<A, B>")),
        *(types.NULL, _type("optional<A>"), IP, CIDR, _type("type<A>")),
    )
}
"""Names of types."""


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. ``key`` is the signature without the result.

    The first of a method's ``arguments`` is its target. ``call`` is None if the planner implements the function. If
    ``typed``, it must only be called with values of these types; otherwise it checks them itself.
    """

    name: str
    key: str
    arguments: tuple[Type, ...]
    result: Type
    call: Callable[..., Value] | None
    method: bool
    typed: bool


_SIGNATURE: Final = re.compile(r"(.*?)\(([^()]*)\): (.*)")


def _overload(signature: str, call: Callable[..., Value] | None, *, typed: bool) -> Overload:
    match = _SIGNATURE.fullmatch(signature)
    if match is None:
        raise ValueError(f"no signature: {signature}")
    name, arguments = match[1], _types(match[2])
    target, _, method_name = name.rpartition(".")
    method = target in _TYPES or target.endswith(">")
    if method:
        name = method_name
        arguments.insert(0, _type(target))
    key = signature[: match.end(2) + 1]
    return Overload(name, key, tuple(arguments), _type(match[3]), call, method, typed)


def _functions() -> dict[str, tuple[Overload, ...]]:
    found: dict[str, list[Overload]] = {}

    def declare(functions: Signatures, *, typed: bool) -> None:
        for signature, call in functions.items():
            overload = _overload(signature, call, typed=typed)
            found.setdefault(overload.name, []).append(overload)

    declare(standard.UNTYPED, typed=False)
    declare(standard.TYPED, typed=True)
    declare(extensions.UNTYPED, typed=False)
    declare(extensions.TYPED, typed=True)
    declare(kubernetes.TYPED, typed=True)
    return {name: tuple(overloads) for name, overloads in found.items()}


FUNCTIONS = _functions()
ABSENT = frozenset({"bytes", "duration", "format", "isURL", "strings.quote", "timestamp", "url"})
"""Kubernetes' functions that are not implemented: those of times, bytes and URLs, and those that format text."""


# ---------------------------------------------------------------- overloads of a call


def choose_overload(node: Call, operands: Sequence[Expr]) -> Callable[..., Value]:
    """The function that a checked call means. It chooses between overloads at run time if the checker left several
    open."""
    overloads = FUNCTIONS[node.function]
    candidates = [it for it in overloads if it.key in node.overloads]
    first = candidates[0]
    if first.call is not None and not first.typed:
        return first.call
    if len(candidates) > 1 or first.call is None:
        return _choosing(
            node.function, [it for it in overloads if len(it.arguments) == len(operands)]
        )
    if any(_open(it.type) for it in operands):
        return _choosing(node.function, candidates)
    return first.call


def _choosing(name: str, candidates: list[Overload]) -> Callable[..., Value]:
    def call(*values: Value) -> Value:
        for it in candidates:
            if it.call is not None and all(map(_accepts, it.arguments, values)):
                return it.call(*values)
        raise EvaluationError(f"{NO_OVERLOAD}: {name}({', '.join(map(type_name, values))})")

    return call


def _open(it: Type) -> bool:
    """Whether values of a type have to be checked: they can be null if it is an optional or a Kubernetes type."""
    return it.kind not in {"basic", "list", "map", "type"} or any(map(_open, it.parameters))


def _accepts(it: Type, value: Value) -> bool:
    """Whether a value has a type. Of lists and maps only the first element is checked."""
    if it.dynamic or it.kind == "param":
        return True
    if type_name(value) != it.name:
        return False
    if it.kind == "list" and value:
        return _accepts(it.parameters[0], value[0])
    if it.kind == "map" and len(value):
        return all(map(_accepts, it.parameters, next(iter(value.items()))))
    return True
