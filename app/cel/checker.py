"""Infers the types in an expression and resolves its names.

It reports all mistakes, in kube-scheduler's words.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from app.cel.environment import ABSENT, FIELDLESS, FIELDS, FUNCTIONS, TYPES, VARIABLES
from app.cel.errors import EvaluationError, Issue
from app.cel.standard import compiled
from app.cel.syntax import (
    Bind,
    Call,
    Expr,
    Fold,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Message,
    Select,
    Variable,
    children,
)
from app.cel.types import (
    BOOL,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    Type,
    Unifier,
    general,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from app.cel.values import Uint

_LITERALS: dict[type, Type] = {
    bool: BOOL,
    int: INT,
    Uint: UINT,
    float: DOUBLE,
    str: STRING,
    type(None): NULL,
}


def check(tree: Expr) -> tuple[list[Issue], int]:
    """Writes types and declarations into the tree. Returns the mistakes, and the number of slots that its variables
    need."""
    checker = _Checker()
    checker.visit(tree)
    checker.settle()
    return checker.issues, checker.slots


class _Checker:
    __slots__ = ("_nodes", "_scopes", "_types", "issues", "slots")

    def __init__(self) -> None:
        self.issues: list[Issue] = []
        self.slots = 0
        self._types = Unifier()
        self._scopes: list[dict[str, Variable]] = []
        self._nodes: list[Expr] = []

    def settle(self) -> None:
        """Replaces type parameters that are still unknown by dyn."""
        for node in self._nodes:
            node.type = self._types.resolve(node.type, final=True)

    def _report(self, node: Expr, text: str) -> None:
        self.issues.append(Issue(node.offset, text))

    def _mismatch(self, node: Expr, expected: Type, actual: Type) -> None:
        self._report(node, f"expected type '{expected}' but found '{actual}'")

    def visit(self, node: Expr) -> Type:
        """Types a node and its children, and returns its type: ERROR after a mistake."""
        match node:
            case Literal():
                node.type = _LITERALS[type(node.value)]
            case Ident():
                node.type = self._ident(node)
            case Select():
                node.type = self._select(node)
            case Call():
                node.type = self._call(node)
            case ListLiteral():
                node.type = self._list(node)
            case MapLiteral():
                node.type = self._map(node)
            case Bind():
                node.type = self._bind(node)
            case Fold():
                node.type = self._fold(node)
            case Message():
                self._message(node)
        self._nodes.append(node)
        return node.type

    # ------------------------------------------------------------ names

    def _local(self, name: str) -> Variable | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _resolve(self, node: Ident) -> Type | None:
        """The type of a name, or None if it is not declared. Writes the declaration to the node."""
        node.variable = self._local(node.name) or VARIABLES.get(node.name.removeprefix("."))
        if node.variable is not None:
            return node.variable.type
        known = TYPES.get(node.name.removeprefix("."))
        if known is None:
            return None
        node.type_name = known.name
        return type_of(self._types.instantiate((known,))[0])

    def _ident(self, node: Ident) -> Type:
        found = self._resolve(node)
        if found is None:
            self._undeclared(node, node.name)
        return found or ERROR

    def _undeclared(self, node: Expr, name: str) -> None:
        if name in ABSENT:
            self._report(node, f"function '{name}' is not supported by aiokube-scheduler")
        else:
            self._report(node, f"undeclared reference to '{name}' (in container '')")

    def _message(self, node: Message) -> None:
        name = node.name.removeprefix(".")
        if name in TYPES or name in FIELDS or name in FIELDLESS:
            self._report(node, f"'{name}' is not a message type")
        else:
            self._undeclared(node, node.name)

    @contextmanager
    def _scope(self, *variables: Variable) -> Iterator[None]:
        for it in variables:
            it.slot = self.slots
            self.slots += 1
        self._scopes.append({it.name: it for it in variables})
        yield
        self._scopes.pop()

    # ------------------------------------------------------------ members

    def _select(self, node: Select) -> Type:
        path = None if node.test or node.optional else qualified(node)
        if path is not None and "." in path and self._local(path.partition(".")[0]) is None:
            ident = Ident(node.offset, path)
            found = self._resolve(ident)
            if found is not None:
                node.ident = ident
                self._nodes.append(ident)
                ident.type = found
                return found
        found = self._types.resolve(self._field(node))
        return BOOL if node.test else found

    def _field(self, node: Select) -> Type:
        operand = self._types.resolve(self.visit(node.operand))
        target = operand.parameters[0] if operand.optional else operand
        if target.kind == "map":
            found = target.parameters[1]
        elif target.name in FIELDS:
            found = FIELDS[target.name].get(node.name, ERROR)
            if found is ERROR:
                self._report(node, f"undefined field '{node.name}'")
        elif target.name in FIELDLESS:
            found = ERROR
            self._report(node, f"unexpected failed resolution of '{target.name}'")
        else:
            if target.kind == "param":
                self._types.fits(DYN, target)
            elif not target.dynamic and target.kind != "error":
                self._report(node, f"type '{target}' does not support field selection")
            found = DYN
        return optional_of(found) if operand.optional or node.optional else found

    # ------------------------------------------------------------ calls

    def _call(self, node: Call) -> Type:
        for it in node.arguments:
            self.visit(it)
        if node.target is not None:
            name = f"{qualified(node.target)}.{node.function}".removeprefix(".")
            if name in FUNCTIONS or name in ABSENT:
                node.function = name
                node.target = None
            else:
                self.visit(node.target)
        name = node.function.removeprefix(".")
        if name not in FUNCTIONS:
            self._undeclared(node, node.function)
            return ERROR
        node.function = name
        if name in {"_&&_", "_||_"}:
            return self._logic(node)
        return self._overload(node)

    def _logic(self, node: Call) -> Type:
        wrong = False
        for it in node.arguments:
            if not self._types.fits(it.type, BOOL):
                self._mismatch(it, BOOL, self._types.resolve(it.type))
                wrong = True
        return ERROR if wrong else BOOL

    def _overload(self, node: Call) -> Type:
        operands = [node.target, *node.arguments] if node.target else node.arguments
        given = tuple(it.type for it in operands)
        found: list[str] = []
        result: Type | None = None
        for it in FUNCTIONS[node.function]:
            if it.method != (node.target is not None):
                continue
            wanted = self._types.instantiate((it.result, *it.arguments))
            if not self._types.fit_all(given, wanted[1:]):
                continue
            found.append(it.key)
            returned = self._types.resolve(wanted[0])
            if result is None:
                result = returned
            elif not result.dynamic and returned != result:
                result = DYN
        node.overloads = tuple(found)
        if result is None:
            shown = [str(self._types.resolve(it, final=True)) for it in given]
            target = f"{shown.pop(0)}." if node.target else ""
            self._report(
                node,
                f"found no matching overload for '{node.function}' "
                f"applied to '{target}({', '.join(shown)})'",
            )
        return result or ERROR

    # ------------------------------------------------------------ literals

    def _join(self, before: Type | None, now: Type) -> Type:
        """The common type of a literal's elements, dyn if there is none. ``validate`` refuses mixed types."""
        if before is None:
            return now
        return general(before, now) if self._types.fits(before, now) else DYN

    def _element(self, node: Expr, *, optional: bool) -> Type:
        found = node.type
        if not optional:
            return found
        if found.optional:
            return found.parameters[0]
        if not found.dynamic:
            self._mismatch(node, optional_of(found), found)
        return found

    def _list(self, node: ListLiteral) -> Type:
        common: Type | None = None
        for place, it in enumerate(node.elements):
            self.visit(it)
            element = self._element(it, optional=place in node.optionals)
            common = self._join(common, element)
        return list_of(common or self._types.fresh())

    def _map(self, node: MapLiteral) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self._join(keys, self.visit(key))
            self.visit(value)
            values = self._join(values, self._element(value, optional=optional))
        return map_of(keys or self._types.fresh(), values or self._types.fresh())

    # ------------------------------------------------------------ variables

    def _bind(self, node: Bind) -> Type:
        node.variable = Variable(node.name, self.visit(node.value))
        with self._scope(node.variable):
            return self._types.resolve(self.visit(node.body))

    def _fold(self, node: Fold) -> Type:
        over = self._types.resolve(self.visit(node.range))
        accumulator = Variable("@result", self.visit(node.initial))
        names = self._iterated(node, over)
        with self._scope(accumulator):
            with self._scope(*names):
                self._expect(node.condition, BOOL)
                self._expect(node.step, accumulator.type)
            result = self.visit(node.result)
        node.variables = (accumulator, *names)
        return self._types.resolve(result)

    def _iterated(self, node: Fold, over: Type) -> list[Variable]:
        double = len(node.names) == 2
        if over.kind == "list":
            types = [INT, over.parameters[0]] if double else [over.parameters[0]]
        elif over.kind == "map":
            types = list(over.parameters) if double else [over.parameters[0]]
        elif over.kind in {"dyn", "error", "param"}:
            self._types.fits(DYN, over)
            types = [DYN] * len(node.names)
        else:
            self._report(
                node.range,
                f"expression of type '{over}' cannot be range of a comprehension "
                "(must be list, map, or dynamic)",
            )
            types = [ERROR] * len(node.names)
        return [Variable(name, it) for name, it in zip(node.names, types, strict=True)]

    def _expect(self, node: Expr, wanted: Type) -> None:
        found = self.visit(node)
        if not self._types.fits(found, wanted):
            self._mismatch(node, wanted, self._types.resolve(found))


def qualified(node: Expr) -> str | None:
    """The name ``a.b.c`` that a node spells, or None if it is something else."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test and not node.optional:
        parts.append(node.name)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(parts)])


# ---------------------------------------------------------------- validation of literals


def validate(node: Expr) -> Iterator[Issue]:
    """The mistakes that Kubernetes finds in a well-typed tree: invalid regular expressions, lists and maps of mixed
    types."""
    match node:
        case Call(function="matches", arguments=[Literal(value=str() as pattern) as literal, *_]):
            try:
                compiled(pattern)
            except EvaluationError:
                yield Issue(literal.offset, "invalid matches argument")
        case ListLiteral():
            pairs = enumerate(node.elements)
            yield from _mixed((it, place in node.optionals) for place, it in pairs)
        case MapLiteral():
            yield from _mixed(((key, False) for key, _, _ in node.entries), every=True)
            yield from _mixed(((value, it) for _, value, it in node.entries), every=True)
    for it in children(node):
        yield from validate(it)


def _mixed(elements: Iterator[tuple[Expr, bool]], *, every: bool = False) -> Iterator[Issue]:
    """Elements whose type differs from the first one's: the first of them, or ``every`` one. Pairs are (node,
    optional)."""
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
