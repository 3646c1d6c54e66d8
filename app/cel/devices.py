"""Selectors of devices (KEP-4381): CEL expressions that say of one device whether it will do.

An expression sees ``device.driver``, ``device.attributes`` and ``device.capacity``, both by domain and name, and
``device.allowMultipleAllocations``. Names without a domain have that of the driver. A domain that the device has nothing of
is empty, a name that it does not have an error.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from app.cel import costs
from app.cel.checker import check
from app.cel.errors import CompileError, CostLimitExceeded, EvaluationError, SyntaxIssue, display
from app.cel.parser import parse
from app.cel.planner import Evaluate, Run, plan
from app.cel.quantities import Quantity
from app.cel.types import ANY, BOOL
from app.cel.validation import validate
from app.cel.values import DomainMap, Map, Value, type_name
from app.cel.versions import Semver
from app.model.devices import Device, DeviceAttribute
from app.model.devices import Quantity as JsonQuantity

_TOO_DEEP = "expression recursion limit exceeded: 250"


class SelectorError(Exception):
    """A selector that cannot be compiled (``compiling``), or has no answer for a device. The text is kube-scheduler's."""

    def __init__(self, text: str, *, compiling: bool) -> None:
        super().__init__(text)
        self.compiling: Final = compiling


class Program:
    """A compiled expression."""

    __slots__ = ("_evaluate", "_slots")

    def __init__(self, expression: str) -> None:
        """Raises CompileError."""
        try:
            self._evaluate, self._slots = _compiled(expression)
        except RecursionError:
            raise CompileError(f"compilation failed: {_TOO_DEEP}") from None

    def run(self, device: Map) -> tuple[bool, int]:
        """The answer for a device, and what it cost. Raises EvaluationError and CostLimitExceeded."""
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


def _compiled(expression: str) -> tuple[Evaluate, int]:
    try:
        tree = parse(expression)
    except SyntaxIssue as error:
        raise CompileError(f"compilation failed: {display(expression, [error.issue])}") from None
    issues, slots = check(tree)
    issues = issues or validate(tree)
    if issues:
        raise CompileError(f"compilation failed: {display(expression, issues)}")
    if tree.type not in {BOOL, ANY}:
        raise CompileError(f"must evaluate to bool or the unknown type, not {tree.type}")
    return plan(tree).evaluate, slots


def _not_bool(value: Value) -> str:
    name = type_name(value)
    reasons = {
        "int": "unsupported type conversion from 'int' to bool",
        "string": "unsupported native conversion from string to 'bool'",
        "kubernetes.Semver": "type conversion error from 'Semver' to 'bool'",
    }
    reason = reasons.get(name, f"type conversion error from '{name}' to 'bool'")
    return f"CEL result of type {name} could not be converted to bool: {reason}"


def compile_error(expression: str) -> str | None:
    """Why an expression cannot be a selector, or None."""
    try:
        Program(expression)
    except CompileError as error:
        return str(error)
    return None


# ---------------------------------------------------------------- devices


def view(driver: str, device: Device) -> Map:
    """What expressions see of a device. Raises EvaluationError for attributes that nobody can read."""
    attributes = (device.attributes or {}).items()
    capacity = (device.capacity or {}).items()
    return Map(
        {
            "driver": driver,
            "allowMultipleAllocations": bool(device.allow_multiple_allocations),
            "attributes": _by_domain(
                driver, {name: _attribute(name, it) for name, it in attributes}
            ),
            "capacity": _by_domain(driver, {name: _amount(it.value) for name, it in capacity}),
        }
    )


def _by_domain(driver: str, values: dict[str, Value]) -> DomainMap:
    domains: dict[str, Map] = {}
    for qualified, value in values.items():
        domain, slash, name = qualified.partition("/")
        if not slash:
            domain, name = driver, qualified
        domains.setdefault(domain, Map()).entries[name] = value
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
        return Semver(attribute.version)
    except EvaluationError as error:
        raise EvaluationError(f"attribute {name}: parse semantic version: {error}") from None


def _amount(value: JsonQuantity) -> Quantity:
    return Quantity.parse(str(value))


class Selectors:
    """Compiles expressions once, and asks each of them once about devices that look alike.

    Keeps up to ``limit`` expressions, those that were used last, and their answers for up to ``devices`` devices.
    """

    __slots__ = ("_answers", "_devices", "_kinds", "_limit", "_seen", "_views")

    def __init__(self, limit: int = 1024, devices: int = 65536) -> None:
        self._limit = limit
        self._devices = devices
        self._answers: OrderedDict[str, _Answers] = OrderedDict()
        self._seen: dict[int, tuple[Device, str, int]] = {}
        self._kinds: dict[Hashable, int] = {}
        self._views: list[tuple[str, Device, Map | None]] = []

    def matches(self, expression: str, driver: str, device: Device) -> bool:
        """Whether a device will do. Raises SelectorError."""
        answers = self._answers.get(expression)
        if answers is None:
            answers = self._compile(expression)
        else:
            self._answers.move_to_end(expression)
        if answers.program is None:
            raise SelectorError(answers.mistake, compiling=True)
        kind = self._kind(driver, device)
        answer = answers.known.get(kind)
        if answer is None:
            answer = answers.known[kind] = self._evaluate(answers.program, kind)
        if type(answer) is bool:
            return answer
        raise SelectorError(str(answer), compiling=False)

    def _compile(self, expression: str) -> "_Answers":
        try:
            answers = _Answers(Program(expression))
        except CompileError as error:
            answers = _Answers(None, mistake=str(error))
        self._answers[expression] = answers
        if len(self._answers) > self._limit:
            self._answers.popitem(last=False)
        return answers

    def _kind(self, driver: str, device: Device) -> int:
        """A number that devices share of which expressions see the same."""
        seen = self._seen.get(id(device))
        if seen is not None and seen[0] is device and seen[1] == driver:
            return seen[2]
        if len(self._seen) >= self._devices:
            self._forget()
        key = _seen_of(driver, device)
        kind = self._kinds.setdefault(key, len(self._views))
        if kind == len(self._views):
            self._views.append((driver, device, None))
        self._seen[id(device)] = device, driver, kind
        return kind

    def _forget(self) -> None:
        self._seen.clear()
        self._kinds.clear()
        self._views.clear()
        for answers in self._answers.values():
            answers.known.clear()

    def _evaluate(self, program: Program, kind: int) -> bool | str:
        driver, device, seen = self._views[kind]
        try:
            if seen is None:
                seen = view(driver, device)
                self._views[kind] = driver, device, seen
            return program.run(seen)[0]
        except (EvaluationError, CostLimitExceeded) as error:
            return str(error)


@dataclass(frozen=True, slots=True)
class _Answers:
    """Of an expression, by kind of device: whether it will do, or the text of the error."""

    program: Program | None
    mistake: str = ""
    known: dict[int, bool | str] = field(default_factory=dict)


def _seen_of(driver: str, device: Device) -> Hashable:
    """All of a device that expressions can see."""
    attributes, capacity = device.attributes or {}, device.capacity or {}
    return (
        driver,
        bool(device.allow_multiple_allocations),
        frozenset(attributes.items()),
        frozenset((name, str(it.value)) for name, it in capacity.items()),
    )
