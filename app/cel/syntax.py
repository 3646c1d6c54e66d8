"""Syntax trees. The checker writes the type of every node, and what names mean, into the tree.

``offset`` is the place that errors name: that of the operator or the opening bracket, as Kubernetes counts it.
"""

from dataclasses import dataclass, field

from app.cel.types import ERROR, Type
from app.cel.values import Value


@dataclass(slots=True, eq=False)
class Node:
    """Any expression."""

    offset: int
    type: Type = field(default=ERROR, init=False)


@dataclass(slots=True, eq=False)
class Literal(Node):
    """A constant of a basic type."""

    value: Value


@dataclass(slots=True, eq=False)
class Ident(Node):
    """A variable, or the name of a type: then ``type_name`` is set by the checker. A leading dot means the outermost scope.

    ``variable`` is the declaration that the checker found.
    """

    name: str
    variable: "Variable | None" = field(default=None, init=False)
    type_name: str | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Select(Node):
    """``operand.name``; ``optional`` for ``operand.?name``, ``test`` for ``has(operand.name)``.

    ``ident`` is what the checker puts in the place of a select that is a qualified name.
    """

    operand: Node
    name: str
    optional: bool = False
    test: bool = False
    ident: Ident | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Call(Node):
    """A function, an operator (``_+_``) or, with a target, a method.

    ``overloads`` are the identifiers of those that the checker found possible.
    """

    function: str
    arguments: list[Node]
    target: Node | None = None
    overloads: tuple[str, ...] = field(default=(), init=False)


@dataclass(slots=True, eq=False)
class ListLiteral(Node):
    """``[a, ?b]``: ``optionals`` are the positions with a question mark."""

    elements: list[Node]
    optionals: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapLiteral(Node):
    """``{k: v, ?k: v}``: entries are (key, value, optional)."""

    entries: list[tuple[Node, Node, bool]]


@dataclass(slots=True, eq=False)
class Message(Node):
    """``Name{field: value}``: no type of Kubernetes' can be made like this."""

    name: str
    values: list[Node]


@dataclass(slots=True, eq=False)
class Variable:
    """A variable of a comprehension or a bind; one outside of them has no slot. ``slot`` is its place in a frame."""

    name: str
    type: Type
    slot: int = -1


@dataclass(slots=True, eq=False)
class Bind(Node):
    """``cel.bind(name, value, body)``: the value is computed when the body first asks for it."""

    name: str
    value: Node
    body: Node
    variable: Variable | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Fold(Node):
    """A comprehension: what all(), exists(), map() and their like stand for.

    ``accumulator`` starts as ``initial``; for each element (and index, or key and value, with a second name) it becomes
    ``step`` while ``condition`` is not false. The value is ``result``. ``variables`` are the accumulator and the one or two
    iteration variables.
    """

    range: Node
    names: tuple[str, ...]
    initial: Node
    condition: Node
    step: Node
    result: Node
    variables: tuple[Variable, ...] = field(default=(), init=False)


def children(node: Node) -> list[Node]:
    """The parts of a node."""
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
