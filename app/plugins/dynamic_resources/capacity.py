"""Capacity of devices, and how much of it a request consumes (KEP-5075).

The rules hold for all devices, shared by several claims or not. A device cannot serve a request that names a capacity
which the device does not have. Of each capacity of the device the request consumes the amount that it asks for,
rounded up by the capacity's policy. If it asks for none, it consumes the policy's default, or everything if there is
no default. An amount that the policy does not allow, or that is more than what is left, does not fit.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from app.model import quantity
from app.model.devices import CapacityPolicy, CapacityRange, DeviceCapacity
from app.model.gotext import quote
from app.model.objects import Quantity
from app.model.quantity import NANO, whole

#: The largest amount in whole units that kube-scheduler can count.
_MOST: Final = 2**63 - 1
_NOT_ROUNDED: Final = "capacity request cannot be represented in the device's range arithmetic"
_NEGATIVE: Final = "capacity value is negative"


class CapacityAmount(NamedTuple):
    """An amount in nano-units, and the quantity that is written for it."""

    nanos: int
    text: str

    @classmethod
    def of(cls, value: Quantity) -> "CapacityAmount":
        """Reads a quantity. One that cannot be read, which API servers do not accept, is 0."""
        try:
            return cls(quantity.parse(value), quantity.canonical(value))
        except quantity.QuantityError:
            return cls(0, "0")


def _optional(value: Quantity | None) -> CapacityAmount | None:
    return None if value is None else CapacityAmount.of(value)


class _Range:
    """A CapacityRequestPolicyRange. Steps are counted in whole units from the least amount."""

    __slots__ = ("_least", "_most", "_step")

    def __init__(self, limits: CapacityRange) -> None:
        self._least = _optional(limits.min)
        self._most = _optional(limits.max)
        step = None if limits.step is None else whole(CapacityAmount.of(limits.step).nanos)
        self._step = step or None

    def _beyond_step(self, nanos: int) -> int:
        """The number of whole units after the last step; 0 if there are no steps."""
        if self._step is None:
            return 0
        least = 0 if self._least is None else whole(self._least.nanos)
        return (whole(nanos) - least) % self._step

    def rounded(self, asked: CapacityAmount) -> CapacityAmount:
        if self._least is None:
            return asked
        if asked.nanos < self._least.nanos:
            return self._least
        if self._step is None:
            return asked
        beyond = self._beyond_step(asked.nanos)
        units = whole(asked.nanos) + (self._step - beyond if beyond else 0)
        return CapacityAmount(units * NANO, quantity.binary(units * NANO))

    def fault(self, asked: CapacityAmount) -> str:
        """Why an amount cannot be rounded within 64 bits; empty if it can."""
        if self._least is None or self._step is None or asked.nanos < self._least.nanos:
            return ""
        if asked.nanos > _MOST * NANO:
            return f"{_NOT_ROUNDED}: request {asked.text} exceeds MaxInt64"
        if self._least.nanos >= 0 and whole(self.rounded(asked).nanos) > _MOST:
            return (
                f"{_NOT_ROUNDED}: rounding request {asked.text} up to the next step passes MaxInt64"
            )
        return ""

    def allows(self, nanos: int) -> bool:
        if self._most is not None and nanos > self._most.nanos:
            return False
        return not self._beyond_step(nanos)


class _Values:
    """The valid amounts of a policy, ascending."""

    __slots__ = ("_values",)

    def __init__(self, values: tuple[Quantity, ...]) -> None:
        self._values = tuple(map(CapacityAmount.of, values))

    def rounded(self, asked: CapacityAmount) -> CapacityAmount:
        return next((value for value in self._values if asked.nanos <= value.nanos), asked)

    def allows(self, nanos: int) -> bool:
        return any(value.nanos == nanos for value in self._values)


class Capacity:
    """One named capacity of a device."""

    __slots__ = ("_default", "_rule", "_whole", "limit")

    def __init__(self, capacity: DeviceCapacity) -> None:
        policy = capacity.request_policy or CapacityPolicy()
        self._whole = CapacityAmount.of(capacity.value)
        #: The whole capacity in nano-units.
        self.limit: Final = self._whole.nanos
        self._default = _optional(policy.default)
        self._rule: _Range | _Values | None = None
        if policy.valid_range is not None:
            self._rule = _Range(policy.valid_range)
        elif policy.valid_values:
            self._rule = _Values(policy.valid_values)

    def taken(self, asked: Quantity | None) -> CapacityAmount | None:
        """What a request for this amount consumes; None if the policy does not allow it."""
        amount = self._taken(asked)
        if self._default is not None and amount.nanos == self._default.nanos:
            return amount
        return amount if self._rule is None or self._rule.allows(amount.nanos) else None

    def fault(self, asked: Quantity | None) -> str:
        """Why a request for this amount is an error; empty if it is none."""
        if asked is not None and isinstance(self._rule, _Range):
            text = self._rule.fault(CapacityAmount.of(asked))
            if text:
                return text
        return _NEGATIVE if self._taken(asked).nanos < 0 else ""

    def _taken(self, asked: Quantity | None) -> CapacityAmount:
        if asked is None:
            return self._whole if self._default is None else self._default
        amount = CapacityAmount.of(asked)
        return amount if self._rule is None else self._rule.rounded(amount)


class DeviceCapacities:
    """The capacities of a device, in the order of their names."""

    __slots__ = ("_by_name", "limits", "names")

    def __init__(self, capacity: Mapping[str, DeviceCapacity] | None) -> None:
        self._by_name = {name: Capacity(one) for name, one in sorted((capacity or {}).items())}
        self.names: Final = tuple(self._by_name)
        #: Nano-units by position in ``names``.
        self.limits: Final = tuple([one.limit for one in self._by_name.values()])

    def taken(self, asked: Mapping[str, Quantity] | None) -> tuple[CapacityAmount, ...] | None:
        """What a request consumes, by position in ``names``; None if the device cannot serve it."""
        wanted = asked or {}
        if not wanted.keys() <= self._by_name.keys():
            return None
        amounts = []
        for name, capacity in self._by_name.items():
            amount = capacity.taken(wanted.get(name))
            if amount is None:
                return None
            amounts.append(amount)
        return tuple(amounts)

    def fault(self, asked: Mapping[str, Quantity] | None) -> str:
        """Why a request is an error for this device; empty if it is none (see Rule.CapacityErrors)."""
        wanted = asked or {}
        if not wanted.keys() <= self._by_name.keys():
            return ""
        for name, capacity in self._by_name.items():
            text = capacity.fault(wanted.get(name))
            if text:
                return f"capacity {quote(name)}: {text}"
        return ""

    def in_use(self, used: Mapping[str, int]) -> tuple[int, ...]:
        """Amounts by position in ``names``, from amounts by name; both in nano-units."""
        return tuple([used.get(name, 0) for name in self.names])
