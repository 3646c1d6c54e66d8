"""Compiled expressions, and what they see of a device."""

import functools

from app.cel import costs
from app.cel.checker import check
from app.cel.errors import CompileError, CostLimitExceeded, EvaluationError
from app.cel.issues import SyntaxIssue, display
from app.cel.parser import parse
from app.cel.planner import Evaluate, Run, plan
from app.cel.quantities import Quantity
from app.cel.reads import Path, reads
from app.cel.types import ANY, BOOL
from app.cel.validation import validate
from app.cel.values import DomainMap, Map, NameMap, Value, type_name
from app.cel.versions import Semver
from app.model.devices import Device, DeviceAttribute

_TOO_DEEP = "expression recursion limit exceeded: 250"


class Program:
    """A compiled expression. ``reads`` is what its answer depends on (see ``reads.reads``)."""

    __slots__ = ("_evaluate", "_slots", "reads")

    def __init__(self, expression: str) -> None:
        """Raises CompileError."""
        try:
            self._evaluate, self._slots, self.reads = _compiled(expression)
        except RecursionError:
            raise CompileError(f"compilation failed: {_TOO_DEEP}") from None

    def run(self, device: Map) -> tuple[bool, int]:
        """The answer for a device, and what it cost. Raises EvaluationError and EvaluationAborted."""
        run = Run(device, self._slots)
        try:
            value = self._evaluate(run)
        except RecursionError:
            raise EvaluationError(_TOO_DEEP) from None
        if run.cost > costs.LIMIT:
            raise CostLimitExceeded
        if type(value) is not bool:
            raise EvaluationError(_not_bool(value))
        return value, run.cost


def _compiled(expression: str) -> tuple[Evaluate, int, frozenset[Path] | None]:
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


# ---------------------------------------------------------------- devices


def view(driver: str, device: Device) -> Map:
    """What expressions see of a device. Raises EvaluationError, see ``attributes``."""
    capacity = (device.capacity or {}).items()
    return Map(
        {
            "driver": driver,
            "allowMultipleAllocations": bool(device.allow_multiple_allocations),
            "attributes": _by_domain(driver, attributes(device)),
            "capacity": _by_domain(
                driver, {name: Quantity.parse(str(it.value)) for name, it in capacity}
            ),
        }
    )


def attributes(device: Device) -> dict[str, Value]:
    """The attributes of a device, by the names that it gives them. Raises EvaluationError for those that nobody can read."""
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
