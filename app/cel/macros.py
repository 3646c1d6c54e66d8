"""Macros: calls that the parser replaces by longer expressions.

The quantifiers absorb errors as ``&&`` and ``||`` do: all() is false if it is false for one element, even if others
fail.
"""

from collections.abc import Callable

from app.cel.errors import SyntaxIssue
from app.cel.syntax import Bind, Call, Expr, Fold, Ident, ListLiteral, Literal, MapLiteral, Select

RESULT = "@result"
"""The accumulator's name, which no expression can use."""


def expand(offset: int, name: str, target: Expr | None, arguments: list[Expr]) -> Expr | None:
    """The expansion of a call, or None if the call is not a macro. Raises SyntaxIssue."""
    if target is None:
        return _has(offset, arguments[0]) if (name, len(arguments)) == ("has", 1) else None
    macro = _MACROS.get((name, len(arguments)))
    return macro(offset, target, arguments) if macro is not None else None


def _has(offset: int, argument: Expr) -> Expr:
    if not isinstance(argument, Select) or argument.optional:
        raise SyntaxIssue(argument.offset, "invalid argument to has() macro")
    return Select(offset, argument.operand, argument.name, test=True)


# ---------------------------------------------------------------- comprehensions

_Step = tuple[Expr, Expr, Expr, Expr]
"""Of a Fold: initial, condition, step, result."""


def _all(at: int, predicate: Expr) -> _Step:
    going = Call(at, "@not_strictly_false", [Ident(at, RESULT)])
    return Literal(at, True), going, Call(at, "_&&_", [Ident(at, RESULT), predicate]), _result(at)


def _exists(at: int, predicate: Expr) -> _Step:
    going = Call(at, "@not_strictly_false", [Call(at, "!_", [Ident(at, RESULT)])])
    return Literal(at, False), going, Call(at, "_||_", [Ident(at, RESULT), predicate]), _result(at)


def _exists_one(at: int, predicate: Expr) -> _Step:
    more = Call(at, "_+_", [Ident(at, RESULT), Literal(at, 1)])
    step = Call(at, "_?_:_", [predicate, more, Ident(at, RESULT)])
    return Literal(at, 0), Literal(at, True), step, Call(at, "_==_", [_result(at), Literal(at, 1)])


def _collect(at: int, element: Expr, predicate: Expr | None) -> _Step:
    step: Expr = Call(at, "_+_", [Ident(at, RESULT), ListLiteral(at, [element])])
    return ListLiteral(at, []), Literal(at, True), _filtered(at, step, predicate), _result(at)


def _insert(at: int, entry: list[Expr], predicate: Expr | None) -> _Step:
    step: Expr = Call(at, "cel.@mapInsert", [Ident(at, RESULT), *entry])
    return MapLiteral(at, []), Literal(at, True), _filtered(at, step, predicate), _result(at)


def _filtered(at: int, step: Expr, predicate: Expr | None) -> Expr:
    return step if predicate is None else Call(at, "_?_:_", [predicate, step, Ident(at, RESULT)])


def _result(at: int) -> Expr:
    return Ident(at, RESULT)


def _name(argument: Expr, complaint: str) -> str:
    if not isinstance(argument, Ident):
        raise SyntaxIssue(argument.offset, complaint)
    if argument.name in {RESULT, "__result__"}:
        raise SyntaxIssue(argument.offset, "iteration variable overwrites accumulator variable")
    return argument.name


def _quantifier(build: Callable[[int, Expr], _Step]) -> "_Macro":
    """``range.all(x, predicate)`` and ``range.all(i, x, predicate)``."""

    def macro(at: int, target: Expr, arguments: list[Expr]) -> Expr:
        names = tuple(_name(it, "argument must be a simple name") for it in arguments[:-1])
        _distinct(names, arguments)
        return Fold(at, target, names, *build(at, arguments[-1]))

    return macro


def _distinct(names: tuple[str, ...], arguments: list[Expr]) -> None:
    if len(set(names)) < len(names):
        raise SyntaxIssue(arguments[1].offset, f"duplicate variable name: {names[0]}")


def _map(at: int, target: Expr, arguments: list[Expr]) -> Expr:
    name = _name(arguments[0], "argument is not an identifier")
    predicate = arguments[1] if len(arguments) == 3 else None
    return Fold(at, target, (name,), *_collect(at, arguments[-1], predicate))


def _filter(at: int, target: Expr, arguments: list[Expr]) -> Expr:
    name = _name(arguments[0], "argument is not an identifier")
    element = Ident(arguments[0].offset, name)
    return Fold(at, target, (name,), *_collect(at, element, arguments[1]))


def _transform(build: Callable[[int, str, Expr, Expr | None], _Step]) -> "_Macro":
    """``range.transformList(i, x, predicate, element)``; the predicate is optional."""

    def macro(at: int, target: Expr, arguments: list[Expr]) -> Expr:
        names = tuple(_name(it, "argument must be a simple name") for it in arguments[:2])
        _distinct(names, arguments)
        predicate = arguments[2] if len(arguments) == 4 else None
        return Fold(at, target, names, *build(at, names[0], arguments[-1], predicate))

    return macro


# ---------------------------------------------------------------- bindings


def _bind(at: int, target: Expr, arguments: list[Expr]) -> Expr | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    if not isinstance(arguments[0], Ident):
        raise SyntaxIssue(
            arguments[0].offset, "cel.bind() variable names must be simple identifiers"
        )
    return Bind(at, arguments[0].name, arguments[1], arguments[2])


def _opt_map(function: str) -> "_Macro":
    """``optional.optMap(x, value)``: ``value`` with ``x`` bound to the content of the optional, if it has one."""

    def macro(at: int, target: Expr, arguments: list[Expr]) -> Expr:
        if not isinstance(arguments[0], Ident):
            raise SyntaxIssue(
                arguments[0].offset, f"{function}() variable name must be a simple identifier"
            )
        held: Expr = Bind(at, arguments[0].name, Call(at, "value", [], target), arguments[1])
        if function == "optMap":
            held = Call(at, "optional.of", [held])
        there = Call(at, "hasValue", [], target)
        return Call(at, "_?_:_", [there, held, Call(at, "optional.none", [])])

    return macro


def _sort_by(at: int, target: Expr, arguments: list[Expr]) -> Expr:
    if isinstance(target, Literal | MapLiteral):
        raise SyntaxIssue(
            target.offset,
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
        )
    sorted_list = "@__sortBy_input__"
    keys = _map(at, Ident(at, sorted_list), arguments)
    body = Call(at, "@sortByAssociatedKeys", [keys], Ident(at, sorted_list))
    return Bind(at, sorted_list, target, body)


_Macro = Callable[[int, Expr, list[Expr]], Expr | None]
_MACROS: dict[tuple[str, int], _Macro] = {
    ("all", 2): _quantifier(_all),
    ("all", 3): _quantifier(_all),
    ("exists", 2): _quantifier(_exists),
    ("exists", 3): _quantifier(_exists),
    ("exists_one", 2): _quantifier(_exists_one),
    ("exists_one", 3): _quantifier(_exists_one),
    ("existsOne", 3): _quantifier(_exists_one),
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    **dict.fromkeys(
        (("transformList", 3), ("transformList", 4)),
        _transform(lambda at, _, element, predicate: _collect(at, element, predicate)),
    ),
    **dict.fromkeys(
        (("transformMap", 3), ("transformMap", 4)),
        _transform(lambda at, key, it, predicate: _insert(at, [Ident(at, key), it], predicate)),
    ),
    **dict.fromkeys(
        (("transformMapEntry", 3), ("transformMapEntry", 4)),
        _transform(lambda at, _, entry, predicate: _insert(at, [entry], predicate)),
    ),
    ("bind", 3): _bind,
    ("optMap", 2): _opt_map("optMap"),
    ("optFlatMap", 2): _opt_map("optFlatMap"),
    ("sortBy", 2): _sort_by,
}
