"""Device selectors (KEP-4381): CEL expressions that accept or refuse a device.

An expression sees ``device.driver``, ``device.attributes`` and ``device.capacity`` (both by domain and name), and
``device.allowMultipleAllocations``. A name without a domain belongs to the driver's domain. A domain without entries
is an empty map; a name that the device does not have is an error. This module loads the rest of ``app.cel`` when it
compiles the first expression.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from app.cel.errors import (
    CompileError,
    EvaluationAborted,
    EvaluationError,
    EvaluationExpired,
)
from app.model.devices import Device

if TYPE_CHECKING:
    from app.cel.program import FieldPath, Program


class DeviceSelectorError(Exception):
    """A selector that cannot be compiled (``compiling``), or fails for a device. The text is kube-scheduler's."""

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


#: Characters that are kept of what is wrong with an expression. Each issue comes with a whole line of it.
_MAX_MISTAKE: Final = 16 * 1024
#: Characters of an expression: API servers accept no longer ones.
MAX_LENGTH: Final = 10 * 1024


class Selectors:
    """Compiles each expression once, and evaluates it once for all devices that do not differ in what it reads.

    Keeps the ``limit`` expressions that were used last, and at most ``answers`` results.
    """

    __slots__ = ("_answers", "_expressions", "_limit", "_maximum", "_readable")

    def __init__(self, limit: int = 1024, answers: int = 2**18) -> None:
        self._limit = limit
        self._maximum = answers
        self._answers = 0
        self._expressions: OrderedDict[str, _Expression] = OrderedDict()
        #: Devices with valid attributes, by their id(), as long as they exist.
        self._readable: WeakValueDictionary[int, Device] = WeakValueDictionary()

    def matches(
        self,
        expression: str,
        driver: str,
        device: Device,
        expired: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Whether the expression accepts a device; False for one that cannot be read. Raises DeviceSelectorError.

        ``expired`` tells whether there is no time left. Raises EvaluationExpired then, unless the answer is known.
        """
        compiled = self._expressions.get(expression)
        if compiled is None:
            _check(expired)
            compiled = self._compile(expression)
        else:
            self._expressions.move_to_end(expression)
        if compiled.program is None:
            raise DeviceSelectorError(compiled.mistake, compiling=True)
        if self._readable.get(id(device)) is not device and not self._read(device):
            return False
        look, known = compiled.of(driver)
        seen = look(device)
        answer = known.get(seen)
        if answer is None:
            _check(expired)
            answer = _evaluate(compiled.program, driver, device, expired)
            if self._answers >= self._maximum:
                self._forget()
            self._answers += 1
            known[seen] = answer
        if type(answer) is bool:
            return answer
        raise DeviceSelectorError(str(answer), compiling=False)

    def _compile(self, expression: str) -> "_Expression":
        from app.cel.program import Program  # noqa: PLC0415 - see above

        if len(expression) > MAX_LENGTH:
            compiled = _Expression(None, f"compilation failed: longer than {MAX_LENGTH} characters")
        else:
            try:
                compiled = _Expression(Program(expression))
            except CompileError as error:
                compiled = _Expression(None, str(error)[:_MAX_MISTAKE])
        self._expressions[expression] = compiled
        if len(self._expressions) > self._limit:
            self._expressions.popitem(last=False)
        return compiled

    def _forget(self) -> None:
        for it in self._expressions.values():
            it.forget()
        self._answers = 0

    def _read(self, device: Device) -> bool:
        """Whether all attributes and capacities can be read. No expression accepts a device without that, so it hurts
        no other.

        API servers accept no such device; in kube-scheduler it fails every pod that comes across it.
        """
        from app.cel.program import view  # noqa: PLC0415 - see above

        try:
            view("", device)
        except EvaluationError:
            return False
        self._readable[id(device)] = device
        return True


_Look = Callable[[Device], Hashable]
"""Returns what an expression reads of a device, as a key."""


class _Expression:
    """A compiled expression, or the mistake in it, with its results by driver."""

    __slots__ = ("_drivers", "mistake", "program")

    def __init__(self, program: "Program | None", mistake: str = "") -> None:
        self.program = program
        self.mistake = mistake
        self._drivers: dict[str, tuple[_Look, dict[Hashable, bool | str]]] = {}

    def of(self, driver: str) -> tuple[_Look, dict[Hashable, bool | str]]:
        """For devices of a driver: the function that gives their keys, and the known results by key (of errors the
        text)."""
        found = self._drivers.get(driver)
        if found is None:
            reads = self.program.reads if self.program is not None else None
            look = _look_at_all if reads is None else _look_at(driver, reads)
            found = self._drivers[driver] = look, {}
        return found

    def forget(self) -> None:
        """Drops the results."""
        self._drivers.clear()


def _check(expired: Callable[[], bool]) -> None:
    if expired():
        raise EvaluationExpired


def _evaluate(
    program: "Program", driver: str, device: Device, expired: Callable[[], bool]
) -> bool | str:
    from app.cel.program import view  # noqa: PLC0415 - see above

    try:
        return program.run(view(driver, device), expired)[0]
    except EvaluationExpired:
        raise
    except (EvaluationError, EvaluationAborted) as error:
        return str(error)


def _look_at_all(device: Device) -> Hashable:
    attributes, capacity = device.attributes or {}, device.capacity or {}
    return (
        bool(device.allow_multiple_allocations),
        frozenset(attributes.items()),
        frozenset((name, str(it.value)) for name, it in capacity.items()),
    )


def _look_at(driver: str, reads: "frozenset[FieldPath]") -> _Look:
    """A function that returns the values that are read, and the presence of domains."""
    attributes, capacity = _names(driver, "attributes", reads), _names(driver, "capacity", reads)
    domains = [path for path in reads if len(path) == 2]

    def look(device: Device) -> Hashable:
        values = device.attributes or {}
        amounts = device.capacity or {}
        seen: list[Hashable] = [device.allow_multiple_allocations]
        seen += [values.get(name) for name in attributes]
        for name in capacity:
            amount = amounts.get(name)
            seen.append(None if amount is None else str(amount.value))
        for field, domain in domains:
            present = values if field == "attributes" else amounts
            seen.append(any(_domain(name, driver) == (domain or driver) for name in present))
        return tuple(seen)

    return look


def _names(driver: str, field: str, reads: "frozenset[FieldPath]") -> list[str]:
    """The names, as devices may spell them, that are read of a field. Names in the driver's domain may omit it."""
    names: list[str] = []
    for path in reads:
        if len(path) == 3 and path[0] == field:
            domain = driver if path[1] is None else path[1]
            names.append(f"{domain}/{path[2]}")
            if domain == driver:
                names.append(str(path[2]))
    return names


def _domain(name: str, driver: str) -> str:
    domain, slash, _ = name.partition("/")
    return domain if slash else driver
