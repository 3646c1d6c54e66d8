"""Selectors of devices (KEP-4381): CEL expressions that say of one device whether it will do.

An expression sees ``device.driver``, ``device.attributes`` and ``device.capacity``, both by domain and name, and
``device.allowMultipleAllocations``. Names without a domain have that of the driver. A domain that the device has nothing of
is empty, a name that it does not have an error. This module is light: the language is loaded with the first expression.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from app.cel.errors import CompileError, EvaluationAborted, EvaluationError
from app.model.devices import Device

if TYPE_CHECKING:
    from app.cel.program import Program
    from app.cel.values import Map


class SelectorError(Exception):
    """A selector that cannot be compiled (``compiling``), or has no answer for a device. The text is kube-scheduler's."""

    def __init__(self, text: str, *, compiling: bool) -> None:
        super().__init__(text)
        self.compiling: Final = compiling


def compile_error(expression: str) -> str | None:
    """Why an expression cannot be a selector, or None."""
    from app.cel.program import Program  # noqa: PLC0415 - see above

    try:
        Program(expression)
    except CompileError as error:
        return str(error)
    return None


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
        from app.cel.program import Program  # noqa: PLC0415 - see above

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

    def _evaluate(self, program: "Program", kind: int) -> bool | str:
        from app.cel.program import view  # noqa: PLC0415 - see above

        driver, device, seen = self._views[kind]
        try:
            if seen is None:
                seen = view(driver, device)
                self._views[kind] = driver, device, seen
            return program.run(seen)[0]
        except (EvaluationError, EvaluationAborted) as error:
            return str(error)


@dataclass(frozen=True, slots=True)
class _Answers:
    """Of an expression, by kind of device: whether it will do, or the text of the error."""

    program: "Program | None"
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
