"""Types of expressions, and type inference for the checker.

``dyn`` and ``any`` fit every type. Attributes of devices have type ``any``, because their types are known only at run
time. The types of overloads have parameters (``list(A)``), which a ``Unifier`` infers.
"""

from dataclasses import dataclass, field
from typing import Literal

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1
"""Bounds of int and uint."""

_Kind = Literal[
    "any", "basic", "dyn", "error", "list", "map", "named", "null", "opaque", "param", "type"
]


@dataclass(frozen=True, slots=True)
class Type:
    """``kind`` groups types that the checker treats alike. ``name`` is the name that values of the type have at run
    time.

    ``ground``: whether no type parameter is in it. Types of nested lists are compared and resolved at each level, so
    values that depend on a whole type are computed once.
    """

    kind: _Kind
    name: str
    parameters: tuple["Type", ...] = ()
    ground: bool = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ground = self.kind != "param" and all(it.ground for it in self.parameters)
        object.__setattr__(self, "ground", ground)
        object.__setattr__(self, "_hash", hash((self.kind, self.name, self.parameters)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        name = _DISPLAYED.get(self.name, self.name)
        if not self.parameters:
            return name
        return f"{name}({', '.join(str(it) for it in self.parameters)})"

    @property
    def runtime(self) -> str:
        """The type's name in errors at run time."""
        if not self.parameters:
            return self.name
        return f"{self.name}({', '.join(it.runtime for it in self.parameters)})"

    @property
    def dynamic(self) -> bool:
        """Whether the type is known only at run time."""
        return self.kind in {"dyn", "any"}

    @property
    def optional(self) -> bool:
        """Whether this is ``optional_type(T)``."""
        return self.kind == "opaque" and self.name == "optional_type"


BOOL = Type("basic", "bool")
BYTES = Type("basic", "bytes")
"""No value has this type. The checker infers it for the sum of operands of unknown type, as Kubernetes' checker
does."""
DOUBLE = Type("basic", "double")
INT = Type("basic", "int")
STRING = Type("basic", "string")
UINT = Type("basic", "uint")
NULL = Type("null", "null_type")
DYN = Type("dyn", "dyn")
ANY = Type("any", "google.protobuf.Any")
ERROR = Type("error", "error")
TYPE = Type("type", "type")
_DISPLAYED = {
    ANY.name: "any",
    ERROR.name: "!error!",
    NULL.name: "null",
}


def list_of(element: Type) -> Type:
    """``list(element)``."""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """``map(key, value)``."""
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    """``optional_type(value)``."""
    return Type("opaque", "optional_type", (value,))


def type_of(value: Type) -> Type:
    """``type(value)``: the type of a type's name."""
    return Type("type", "type", (value,))


def parameter(name: str) -> Type:
    """A type parameter."""
    return Type("param", name)


def named(name: str) -> Type:
    """A Kubernetes type with fields or methods."""
    return Type("named", name)


def opaque(name: str) -> Type:
    """A Kubernetes type with methods only."""
    return Type("opaque", name)


def _covers(known: Type, other: Type) -> bool:
    """Whether ``known`` is ``other``, or less specific."""
    if known.dynamic or known.kind == "param":
        return True
    if other.dynamic or other.kind == "param" or known.kind != other.kind:
        return False
    if known.kind == "type":
        return True
    if known.kind in {"opaque", "list", "map"}:
        return (
            known.name == other.name
            and len(known.parameters) == len(other.parameters)
            and all(map(_covers, known.parameters, other.parameters))
        )
    return known == other


def general(one: Type, other: Type) -> Type:
    """The less specific of two types that fit each other."""
    return one if _covers(one, other) else other


class Unifier:
    """Infers type parameters from the types that they have to match."""

    __slots__ = ("_count", "_known", "_replaced")

    def __init__(self) -> None:
        self._known: dict[Type, Type] = {}
        #: What was known of the parameters that the current call has bound, in order.
        self._replaced: list[tuple[Type, Type | None]] = []
        self._count = 0

    def fresh(self) -> Type:
        """A new parameter."""
        self._count += 1
        return parameter(f"_var{self._count - 1}")

    def instantiate(self, types: tuple[Type, ...]) -> tuple[Type, ...]:
        """The types of an overload, with new parameters in place of its own."""
        names: dict[Type, Type] = {}
        return tuple(self._rename(it, names) for it in types)

    def _rename(self, it: Type, names: dict[Type, Type]) -> Type:
        if it.ground:
            return it
        if it.kind == "param":
            if it not in names:
                names[it] = self.fresh()
            return names[it]
        return Type(it.kind, it.name, tuple(self._rename(p, names) for p in it.parameters))

    def resolve(self, it: Type, *, final: bool = False) -> Type:
        """The type with its known parameters replaced. ``final`` replaces the others by ``dyn``."""
        while it.kind == "param" and it in self._known:
            it = self._known[it]
        if it.ground:
            return it
        if it.kind == "param":
            return DYN if final else it
        return Type(it.kind, it.name, tuple(self.resolve(p, final=final) for p in it.parameters))

    def fits(self, given: Type, wanted: Type) -> bool:
        """Whether a value of type ``given`` can be used as a ``wanted``; if so, keeps the parameters inferred from
        it."""
        return self.fit_all((given,), (wanted,))

    def fit_all(self, given: tuple[Type, ...], wanted: tuple[Type, ...]) -> bool:
        """``fits`` for a list of arguments. If one does not fit, no inferred parameter is kept."""
        self._replaced.clear()
        if len(given) == len(wanted) and all(map(self._fit, given, wanted)):
            return True
        for param, before in reversed(self._replaced):
            if before is None:
                del self._known[param]
            else:
                self._known[param] = before
        return False

    def _fit(self, given: Type, wanted: Type) -> bool:
        if wanted.kind == "param":
            fits, settled = self._bind(given, wanted)
            if fits or settled:
                return fits
        if given.kind == "param":
            return self._bind(wanted, given)[0]
        if given.dynamic or wanted.dynamic or "error" in {given.kind, wanted.kind}:
            return True
        if given.kind == "null":
            return _nullable(wanted)
        if wanted.kind == "null":
            return _nullable(given)
        if given.kind == "type":
            return wanted.kind == "type"
        if given.kind in {"opaque", "list", "map"}:
            return (
                given.kind == wanted.kind
                and given.name == wanted.name
                and len(given.parameters) == len(wanted.parameters)
                and all(map(self._fit, given.parameters, wanted.parameters))
            )
        return given == wanted

    def _bind(self, it: Type, param: Type) -> tuple[bool, bool]:
        """Binds a parameter to a type: whether that is possible, and whether it was bound before."""
        if it == param:
            return True, True
        known = self._known.get(param)
        if known is None:
            if not self._free(param, it):
                return False, False
            self._keep(param, it)
            return True, False
        if it == known:
            return True, True
        if not self._fit(it, known):
            return False, True
        common = general(it, known)
        if self._free(param, common):
            self._keep(param, common)
        return True, True

    def _keep(self, param: Type, it: Type) -> None:
        self._replaced.append((param, self._known.get(param)))
        self._known[param] = it

    def _free(self, param: Type, within: Type) -> bool:
        """Whether a type does not contain the parameter (the occurs check)."""
        if within.ground:
            return True
        if within == param:
            return False
        if within.kind == "param":
            known = self._known.get(within)
            return known is None or self._free(param, known)
        return all(self._free(param, it) for it in within.parameters)


def _nullable(it: Type) -> bool:
    return it.kind in {"opaque", "named", "null"}
