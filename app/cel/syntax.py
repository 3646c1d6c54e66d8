"""Syntax trees of expressions.

The checker writes into the tree the type of each node and the declaration that each name refers to.
"""

from dataclasses import dataclass, field

from app.cel.types import ERROR, Type
from app.cel.values import Value


@dataclass(slots=True, eq=False)
class Expr:
    """Any expression. ``offset`` is the place that errors report, in characters: that of its operator or opening
    bracket."""

    offset: int
    type: Type = field(default=ERROR, init=False)


@dataclass(slots=True, eq=False)
class Literal(Expr):
    """A constant of a basic type."""

    value: Value


@dataclass(slots=True, eq=False)
class Ident(Expr):
    """A variable, or the name of a type. A leading dot means the outermost scope.

    The checker sets ``variable`` to the declaration, or ``type_name``.
    """

    name: str
    variable: "Variable | None" = field(default=None, init=False)
    type_name: str | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Select(Expr):
    """``operand.name``; ``optional`` for ``operand.?name``, ``test`` for ``has(operand.name)``.

    The checker sets ``ident`` if the whole is a qualified name.
    """

    operand: Expr
    name: str
    optional: bool = False
    test: bool = False
    ident: Ident | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Call(Expr):
    """A call of a function, an operator (``_+_``) or, with a target, a method.

    The checker sets ``overloads`` to the keys of the overloads that are possible.
    """

    function: str
    arguments: list[Expr]
    target: Expr | None = None
    overloads: tuple[str, ...] = field(default=(), init=False)


@dataclass(slots=True, eq=False)
class ListLiteral(Expr):
    """``[a, ?b]``: ``optionals`` are the positions with a question mark."""

    elements: list[Expr]
    optionals: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapLiteral(Expr):
    """``{k: v, ?k: v}``: entries are (key, value, optional)."""

    entries: list[tuple[Expr, Expr, bool]]


@dataclass(slots=True, eq=False)
class Message(Expr):
    """``Name{field: value}``. The checker refuses it: Kubernetes has no such type."""

    name: str
    values: list[Expr]


@dataclass(slots=True, eq=False)
class Variable:
    """A variable. ``slot`` is its index in a frame, -1 if it is not that of a comprehension or a bind."""

    name: str
    type: Type
    slot: int = -1


@dataclass(slots=True, eq=False)
class Bind(Expr):
    """``cel.bind(name, value, body)``: the value is computed when the body first reads it."""

    name: str
    value: Expr
    body: Expr
    variable: Variable | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Fold(Expr):
    """A comprehension, which all(), exists(), map() and the like expand to.

    The accumulator starts as ``initial``. For each element of ``range`` it becomes ``step``, as long as ``condition``
    is not false. The value is ``result``. One name is bound to the element (of a map: the key), two names to index and
    element (of a map: key and value). The checker sets ``variables``: the accumulator, then the iteration variables.
    """

    range: Expr
    names: tuple[str, ...]
    initial: Expr
    condition: Expr
    step: Expr
    result: Expr
    variables: tuple[Variable, ...] = field(default=(), init=False)


def children(node: Expr) -> list[Expr]:
    """The direct children of a node."""
    match node:
        case Select():
            return [] if node.ident else [node.operand]
        case Call():
            return [node.target, *node.arguments] if node.target else node.arguments
        case ListLiteral():
            return node.elements
        case MapLiteral():
            return [it for key, value, _ in node.entries for it in (key, value)]
        case Bind():
            return [node.value, node.body]
        case Fold():
            return [node.range, node.initial, node.condition, node.step, node.result]
    return []
