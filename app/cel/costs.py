"""The cost of an evaluation, in the units of Kubernetes' limit (KEP-2876).

Reading a variable or a member costs 1, a list 10, a map 30. A function costs 1, or an amount that grows with its
arguments.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from app.cel.errors import CostLimitExceeded, EvaluationExpired
from app.cel.kubernetes import IPAddress, Network, QuantityValue, Semver
from app.cel.values import Map, Value, is_list, size

LIMIT = 10_000
"""The limit for one evaluation: up to 15 ms. Kubernetes' own (CELSelectorExpressionMaxCost) is a hundred times that."""
MAX_LENGTH = 10 * LIMIT
"""Characters in a computed string; a computed list has at most LIMIT elements. More counts as CostLimitExceeded."""
MEMBER, LIST, MAP = 1, 10, 30
#: Units of cost between two looks at the time: about a millisecond.
_LOOK: Final = 1000


class Meter:
    """The cost so far."""

    __slots__ = ("cost",)

    def __init__(self) -> None:
        self.cost = 0


class Run(Meter):
    """One evaluation: the device, the variables, and the cost so far.

    ``pause``: the cost beyond which ``look`` is to be called. ``expired``: whether there is no time left.
    """

    __slots__ = ("_expired", "device", "frame", "pause")

    def __init__(
        self, device: Map, slots: int, expired: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__()
        self.device: Final = device
        self.frame: Final[list[Value]] = [None] * slots
        self.pause = _LOOK
        self._expired: Final = expired

    def look(self) -> None:
        """Raises CostLimitExceeded and EvaluationExpired."""
        if self.cost > LIMIT:
            raise CostLimitExceeded
        if self._expired():
            raise EvaluationExpired
        self.pause = min(LIMIT, self.cost + _LOOK)


Cost = Callable[[Sequence[Value], Value], int]
"""The cost of a call, from its arguments (whose types may be wrong) and its result."""


def extent(value: Value) -> int:
    """The size of a value, 1 if it has none."""
    length = len(value) if isinstance(value, IPAddress | Network) else size(value)
    return 1 if length is None else length


def _read(factor: float) -> Cost:
    """The cost of reading the first argument."""
    return lambda arguments, _: math.ceil(extent(arguments[0]) * factor)


def _written(_: Sequence[Value], result: Value) -> int:
    return math.ceil(extent(result) * 0.2)


def equality(one: Value, other: Value) -> int:
    """The cost of ``==``."""
    if isinstance(one, QuantityValue | Semver | IPAddress | Network):
        return 1
    return math.ceil(min(extent(one), extent(other)) * 0.1)


def inequality(one: Value, other: Value) -> int:
    """The cost of ``!=``."""
    return math.ceil(min(extent(one), extent(other)) * 0.1)


def _matched(arguments: Sequence[Value], _: Value) -> int:
    return math.ceil((1 + extent(arguments[0])) * 0.1) * math.ceil(extent(arguments[1]) * 0.25)


def _traversal(value: Value) -> int:
    if isinstance(value, str):
        return int(len(value.encode()) * 0.1)
    if is_list(value):
        return sum(map(_traversal, value))
    if isinstance(value, Map):
        return sum(_traversal(key) + _traversal(it) for key, it in value.items())
    return 1


def _crossed(factor: int) -> Cost:
    return lambda arguments, _: 1 + extent(arguments[0]) * extent(arguments[1]) * factor


def _produced(_: Sequence[Value], result: Value) -> int:
    return extent(result) + 1 + LIST


def _flattened(arguments: Sequence[Value], _: Value) -> int:
    depth = arguments[1] if len(arguments) == 2 and type(arguments[1]) is int else 1
    return extent(arguments[0]) * depth + 1 + LIST


def _sorted_by(place: int) -> Cost:
    def cost(arguments: Sequence[Value], _: Value) -> int:
        values = arguments[place]
        factor = 2.1 if is_list(values) and values and isinstance(values[0], str) else 2.0
        return int(extent(values) ** 2 * factor) + 1 + LIST

    return cost


def _contained(*, network: bool = False, parsed: bool = False) -> Cost:
    """The cost of containsIP and containsCIDR (``network``), with an argument that may have to be ``parsed``."""

    def cost(arguments: Sequence[Value], _: Value) -> int:
        units = math.ceil(2 * extent(arguments[0]) * 0.1)
        if network:
            units += math.ceil(extent(arguments[0]) * 0.1) + 1
        return units + (math.ceil(extent(arguments[1]) * 0.1) if parsed else 0)

    return cost


_FUNCTIONS: dict[str, Cost] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), lambda it, _: _traversal(it[0])
    ),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _read(0.1)),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _read(0.1)),
    **dict.fromkeys(("cidr", "isIP", "isCIDR"), _read(0.1)),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _read(0.2)),
    "join": _written,
    **dict.fromkeys(("find", "findAll"), _matched),
    "containsIP": _contained(),
    "containsCIDR": _contained(network=True),
}
_SIGNATURES: dict[str, Cost] = {
    "string.startsWith(string)": _read(0.1),
    "string.endsWith(string)": _read(0.1),
    "string.contains(string)": lambda it, _: (
        math.ceil(extent(it[0]) * 0.1) * math.ceil(extent(it[1]) * 0.1)
    ),
    "string.matches(string)": _matched,
    "ip(string)": _read(0.1),
    "CIDR.containsIP(string)": _contained(parsed=True),
    "CIDR.containsCIDR(string)": _contained(network=True, parsed=True),
    "@in(A, list<A>)": lambda arguments, _: extent(arguments[1]),
    **{
        f"_{sign}_(string, string)": lambda it, _: inequality(it[0], it[1])
        for sign in ("<", "<=", ">", ">=")
    },
    "_+_(string, string)": lambda it, _: math.ceil((extent(it[0]) + extent(it[1])) * 0.1),
    "sets.contains(list<T>, list<T>)": _crossed(1),
    "sets.intersects(list<T>, list<T>)": _crossed(1),
    "sets.equivalent(list<T>, list<T>)": _crossed(2),
    "list<T>.slice(int, int)": _produced,
    "lists.range(int)": _produced,
    "list<T>.reverse()": _produced,
    "list<list<T>>.flatten()": _flattened,
    "list<dyn>.flatten(int)": _flattened,
    "list<T>.distinct()": _sorted_by(0),
    **{
        signature: cost
        for kind in ("int", "uint", "double", "bool", "string")
        for signature, cost in (
            (f"list<{kind}>.sort()", _sorted_by(0)),
            (f"list<T>.@sortByAssociatedKeys(list<{kind}>)", _sorted_by(1)),
        )
    },
}
_BY_RESULT = frozenset({_written, _produced})
"""Costs that depend on the result. The others are counted, and compared with the limit, before the call."""


def charge(run: Meter, cost: Cost, call: Callable[..., Value], values: list[Value]) -> Value:
    """Calls a function and counts its cost. Raises CostLimitExceeded, instead of the call if possible."""
    if cost in _BY_RESULT:
        result = call(*values)
        run.cost += cost(values, result)
        return result
    run.cost += cost(values, None)
    if run.cost > LIMIT:
        raise CostLimitExceeded
    return call(*values)


def of_call(name: str, overloads: tuple[str, ...]) -> Cost | None:
    """The cost function of a call, or None if it costs 1. ``overloads`` are the keys that the checker left open."""
    overload = overloads[0] if len(overloads) == 1 else ""
    return _SIGNATURES.get(overload) or _FUNCTIONS.get(name)
