"""How functions are declared: by signatures such as ``string.split(string, int): list<string>``.

What stands before the last dot is the type of a method's target, or part of a function's name (``sets.contains``). Types with
one capital letter are parameters.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.cel import types
from app.cel.types import Type
from app.cel.values import Value

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
_SIGNATURE = re.compile(r"(.*?)\(([^()]*)\): (.*)")


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. ``arguments`` of a method begin with its target; ``key`` is the signature without result.

    ``call`` is given values of these types where ``guarded``, and checks them itself otherwise. Overloads without
    ``call`` are the planner's own (``&&``, ``orValue``).
    """

    name: str
    key: str
    arguments: tuple[Type, ...]
    result: Type
    call: Callable[..., Value] | None
    method: bool
    guarded: bool


def declare(
    functions: Mapping[str, Callable[..., Value] | None], *, guarded: bool = True
) -> list[Overload]:
    """The overloads of a table of signatures."""
    return [_overload(signature, call, guarded=guarded) for signature, call in functions.items()]


def declare_each(
    pattern: str, kinds: str, call: Callable[..., Value] | None, *, guarded: bool = True
) -> list[Overload]:
    """A signature for several types, each in the place of ``$``."""
    return declare({pattern.replace("$", kind): call for kind in kinds.split()}, guarded=guarded)


def _overload(signature: str, call: Callable[..., Value] | None, *, guarded: bool) -> Overload:
    match = _SIGNATURE.fullmatch(signature)
    if match is None:
        raise ValueError(f"no signature: {signature}")
    target, _, name = match[1].rpartition(".")
    arguments = [parse(it) for it in _split(match[2])]
    method = target in _TYPES or target.endswith(">")
    if method:
        arguments.insert(0, parse(target))
    else:
        name = match[1]
    key = signature[: match.end(2) + 1]
    return Overload(name, key, tuple(arguments), parse(match[3]), call, method, guarded)


def parse(text: str) -> Type:
    """A type by its name."""
    name, _, inner = text.partition("<")
    if inner:
        return _GENERIC[name](*(parse(it) for it in _split(inner[:-1])))
    return types.parameter(name) if len(name) == 1 else _TYPES[name]


def _split(text: str) -> list[str]:
    """At the commas that are not within a type."""
    parts: list[str] = []
    depth = 0
    for part in text.split(", ") if text else ():
        if depth:
            parts[-1] += f", {part}"
        else:
            parts.append(part)
        depth += part.count("<") - part.count(">")
    return parts
