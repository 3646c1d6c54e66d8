"""Compiled expressions: their evaluation for a device, and the attributes that they read."""

import functools
from collections.abc import Callable

from app.cel import costs
from app.cel.checker import check, validate
from app.cel.costs import Run
from app.cel.errors import (
    CompileError,
    CostLimitExceeded,
    EvaluationError,
    SyntaxIssue,
    display,
)
from app.cel.kubernetes import QuantityValue, Semver
from app.cel.parser import parse
from app.cel.planner import Evaluate, plan
from app.cel.syntax import Bind, Call, Expr, Ident, Literal, Select, Variable, children
from app.cel.types import ANY, BOOL
from app.cel.values import DomainMap, Map, NameMap, Value, type_name
from app.model.devices import Device, DeviceAttribute

FieldPath = tuple[str | None, ...]
"""A path below ``device``: field, domain, name. A domain of None is the driver's name."""
_MAPS = frozenset({"attributes", "capacity"})
_TOO_DEEP = "expression recursion limit exceeded: 250"


class Program:
    """A compiled expression. ``reads`` is what its result depends on, see the function ``reads``."""

    __slots__ = ("_evaluate", "_slots", "reads")

    def __init__(self, expression: str) -> None:
        """Compiles the expression. Raises CompileError."""
        try:
            self._evaluate, self._slots, self.reads = _compiled(expression)
        except RecursionError:
            raise CompileError(f"compilation failed: {_TOO_DEEP}") from None

    def run(self, device: Map, expired: Callable[[], bool] = lambda: False) -> tuple[bool, int]:
        """The result for a device, and its cost. Raises EvaluationError and EvaluationAborted.

        ``expired`` is asked about every millisecond whether there is no time left.
        """
        run = Run(device, self._slots, expired)
        try:
            value = self._evaluate(run)
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None
        if run.cost > costs.LIMIT:
            raise CostLimitExceeded
        if type(value) is not bool:
            raise EvaluationError(_not_bool(value))
        return value, run.cost


def _compiled(expression: str) -> tuple[Evaluate, int, frozenset[FieldPath] | None]:
    try:
        tree = parse(expression)
    except SyntaxIssue as error:
        raise CompileError(f"compilation failed: {display(expression, [error.issue])}") from None
    issues, slots = check(tree)
    issues = issues or list(validate(tree))
    if issues:
        raise CompileError(f"compilation failed: {display(expression, issues)}")
    if tree.type not in {BOOL, ANY}:
        raise CompileError(f"must evaluate to bool or the unknown type, not {tree.type.runtime}")
    return plan(tree).evaluate, slots, reads(tree)


def _not_bool(value: Value) -> str:
    name = type_name(value)
    reasons = {
        "double": "type conversion error from Double to 'bool'",
        "int": "unsupported type conversion from 'int' to bool",
        "string": "unsupported native conversion from string to 'bool'",
        "kubernetes.Semver": "type conversion error from 'Semver' to 'bool'",
    }
    reason = reasons.get(name, f"type conversion error from '{name}' to 'bool'")
    return f"CEL result of type {name} could not be converted to bool: {reason}"


# ---------------------------------------------------------------- what an expression reads


class _Everything(Exception):  # noqa: N818 - it says what is read
    """The expression reads more than single attributes and capacities."""


def reads(tree: Expr) -> frozenset[FieldPath] | None:
    """What the result of a checked expression depends on; None means everything.

    Paths of three parts (field, domain, name) are values, paths of two (field, domain) the presence of any value in a
    domain. Devices that do not differ in them have the same result.
    """
    found: set[FieldPath] = set()
    try:
        _visit(tree, found, {})
    except _Everything:
        return None
    return frozenset(found)


def _visit(node: Expr, found: set[FieldPath], names: dict[Variable | None, FieldPath]) -> None:
    path = _path(node, names)
    if path is not None:
        _read(path, found)
        return
    if isinstance(node, Call) and node.function == "@in" and isinstance(node.arguments[0], Literal):
        inside, name = _path(node.arguments[1], names), node.arguments[0].value
        if inside and inside[0] in _MAPS and len(inside) < 3 and isinstance(name, str):
            found.add((*inside, name))
            return
    if isinstance(node, Bind):
        bound = _path(node.value, names)
        if bound is not None and len(bound) == 1 and bound[0] in _MAPS:
            raise _Everything  # the result can depend on whether the device has any
        if bound is not None:
            _visit(node.body, found, names | {node.variable: bound})
            return
    for it in children(node):
        _visit(it, found, names)


def _read(path: FieldPath, found: set[FieldPath]) -> None:
    """Adds a path whose value is used. The value of a map is everything in it."""
    if not path or (path[0] in _MAPS and len(path) < 3):
        raise _Everything
    found.add(path)


def _path(node: Expr, names: dict[Variable | None, FieldPath]) -> FieldPath | None:
    """The path that a chain of members leads to, or None if the node is something else or leaves the device."""
    if isinstance(node, Ident):
        if node.variable is not None and node.variable.slot < 0:
            return ()
        return names.get(node.variable)
    if isinstance(node, Select) and node.ident is None:
        return _longer(_path(node.operand, names), node.name)
    if isinstance(node, Call) and node.function in {"_[_]", "_[?_]"}:
        key = node.arguments[1]
        inside = _path(node.arguments[0], names)
        if isinstance(key, Literal) and isinstance(key.value, str):
            return _longer(inside, key.value)
        if _path(key, names) == ("driver",):
            return _longer(inside, None)
    return None


def _longer(path: FieldPath | None, key: str | None) -> FieldPath | None:
    if path is None or len(path) == 3 or (path and path[0] not in _MAPS):
        return None
    return (*path, key) if key is not None or len(path) == 1 else None


# ---------------------------------------------------------------- devices


def view(driver: str, device: Device) -> Map:
    """A device as expressions see it. Raises EvaluationError, see ``attributes``."""
    capacity = (device.capacity or {}).items()
    return Map(
        {
            "driver": driver,
            "allowMultipleAllocations": bool(device.allow_multiple_allocations),
            "attributes": _by_domain(driver, attributes(device)),
            "capacity": _by_domain(
                driver, {name: QuantityValue.parse(str(it.value)) for name, it in capacity}
            ),
        }
    )


def attributes(device: Device) -> dict[str, Value]:
    """The attributes of a device by their names in the slice. Raises EvaluationError if one has no readable value."""
    return {name: _attribute(name, it) for name, it in (device.attributes or {}).items()}


def _by_domain(driver: str, values: dict[str, Value]) -> DomainMap:
    domains: dict[str, NameMap] = {}
    for qualified, value in values.items():
        domain, slash, name = qualified.partition("/")
        if not slash:
            domain, name = driver, qualified
        domains.setdefault(domain, NameMap()).entries[name] = value
    return DomainMap(dict(domains))


def _attribute(name: str, attribute: DeviceAttribute) -> Value:
    if attribute.integer is not None:
        return attribute.integer
    if attribute.boolean is not None:
        return attribute.boolean
    if attribute.string is not None:
        return attribute.string
    if attribute.version is None:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    try:
        return _version(attribute.version)
    except EvaluationError as error:
        raise EvaluationError(f"attribute {name}: parse semantic version: {error}") from None


_version = functools.lru_cache(maxsize=4096)(Semver)
