"""What Kubernetes refuses in an expression that is well typed: literals that cannot be right."""

from collections.abc import Iterator

from app.cel import regexes
from app.cel.errors import EvaluationError
from app.cel.issues import Issue
from app.cel.syntax import Call, ListLiteral, Literal, MapLiteral, Node, children
from app.cel.types import Type


def validate(node: Node) -> Iterator[Issue]:
    """All that is wrong."""
    match node:
        case Call(function="matches", arguments=[Literal(value=str() as pattern) as literal, *_]):
            try:
                regexes.compiled(pattern)
            except EvaluationError:
                yield Issue(literal.offset, "invalid matches argument")
        case ListLiteral():
            pairs = enumerate(node.elements)
            yield from _alike((it, place in node.optionals) for place, it in pairs)
        case MapLiteral():
            yield from _alike(((key, False) for key, _, _ in node.entries), every=True)
            yield from _alike(((value, it) for _, value, it in node.entries), every=True)
    for it in children(node):
        yield from validate(it)


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
