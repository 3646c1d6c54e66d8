"""What Kubernetes refuses in an expression that is well typed: literals that cannot be right."""

from collections.abc import Callable, Iterator
from typing import Any

from app.cel import regexes, standard, strings
from app.cel.errors import EvaluationError, Issue
from app.cel.syntax import Call, ListLiteral, Literal, MapLiteral, Node, children
from app.cel.types import DURATION, NULL, TIMESTAMP, TYPE, Type


def validate(tree: Node) -> list[Issue]:
    """All that is wrong."""
    return [
        issue for node, formatted in _walk(tree) for issue in _validate(node, formatted=formatted)
    ]


def _validate(node: Node, *, formatted: bool) -> Iterator[Issue]:
    match node:
        case Call(
            function="duration" | "timestamp" | "matches", arguments=[Literal() as literal, *_]
        ):
            if not _right(node.function, literal):
                yield Issue(literal.offset, f"invalid {node.function} argument")
        case Call(
            function="format",
            target=Literal(value=str() as template),
            arguments=[ListLiteral() as arguments],
        ):
            yield from _format(node, template, arguments.elements)
        case ListLiteral() if not formatted:
            yield from _alike(
                (it, place in node.optionals) for place, it in enumerate(node.elements)
            )
        case MapLiteral() if not formatted:
            yield from _alike(((key, False) for key, _, _ in node.entries), every=True)
            yield from _alike(((value, it) for _, value, it in node.entries), every=True)


_PARSERS: dict[str, Callable[[Any], object]] = {
    "duration": standard.duration_of,
    "timestamp": standard.timestamp_of,
    "matches": regexes.compiled,
}


def _right(function: str, literal: Literal) -> bool:
    parse = _PARSERS[function]
    if type(literal.value) is int:
        parse = standard.duration_of_int if function == "duration" else standard.timestamp_of_int
    try:
        parse(literal.value)
    except EvaluationError:
        return False
    return True


def _alike(elements: Iterator[tuple[Node, bool]], *, every: bool = False) -> Iterator[Issue]:
    """Elements must have one type; only the first that has not is named, or every one."""
    common: Type | None = None
    for node, optional in elements:
        found = node.type
        if optional and found.parameters:
            found = found.parameters[0]
        if common is None:
            common = found
        elif found != common:
            yield Issue(node.offset, f"expected type '{common}' but found '{found}'")
            if not every:
                return


class _MisfitError(Exception):
    """An argument of format() that its clause is not for."""

    def __init__(self, node: Node, complaint: str) -> None:
        super().__init__(complaint)
        self.issue = Issue(node.offset, f"{strings.FORMATTING}{complaint}{node.type.name}")


_NAMED = (DURATION.name, NULL.name, TIMESTAMP.name, TYPE.name)
_BASIC = ("bool", "bytes", "double", "int", "string", "uint")
_CLAUSES: dict[str, tuple[frozenset[str], str]] = {
    "s": (frozenset({*_BASIC, "list", "map", *_NAMED}), strings.STRING_CLAUSE),
    "d": (frozenset({"int", "uint"}), strings.DECIMAL_CLAUSE),
    "f": (frozenset({"double", "string"}), strings.FIXED_CLAUSE),
    "e": (frozenset({"double", "string"}), strings.SCIENTIFIC_CLAUSE),
    "b": (frozenset({"int", "uint", "bool"}), strings.BINARY_CLAUSE),
    "x": (frozenset({"int", "uint", "string", "bytes"}), strings.HEX_CLAUSE),
    "X": (frozenset({"int", "uint", "string", "bytes"}), strings.HEX_CLAUSE),
    "o": (frozenset({"int", "uint"}), strings.OCTAL_CLAUSE),
}


def _format(node: Call, template: str, arguments: list[Node]) -> Iterator[Issue]:
    """A template must have a clause that suits for every argument."""
    used = 0

    def check(place: int, letter: str, _precision: int) -> str:
        nonlocal used
        used = place + 1
        _suits(letter, arguments[place])
        return ""

    try:
        strings.interpolate(template, len(arguments), check)
    except _MisfitError as error:
        yield error.issue
    except EvaluationError as error:
        yield Issue(node.offset, str(error))
    else:
        if used < len(arguments):
            yield Issue(
                node.offset,
                "too many arguments supplied to string.format "
                f"(expected {used}, got {len(arguments)})",
            )


def _suits(letter: str, argument: Node) -> None:
    names, complaint = _CLAUSES[letter]
    if argument.type.kind != "dyn" and argument.type.name not in names:
        raise _MisfitError(argument, complaint)
    if letter == "s" and isinstance(argument, ListLiteral | MapLiteral):
        for it in children(argument):
            _suits(letter, it)


def _walk(node: Node, *, formatted: bool = False) -> Iterator[tuple[Node, bool]]:
    """All nodes, and whether they are within the arguments (or the target) of format()."""
    yield node, formatted
    inside = formatted or (isinstance(node, Call) and node.function == "format")
    for it in children(node):
        yield from _walk(it, formatted=inside)
