"""Capacity of devices: what a request takes of it, and whether that fits (KEP-5075).

Every device has its capacities judged, shared by several claims or not. A request that names a capacity which the device
does not have cannot be served by it. Of each capacity the device has, the request takes what it asks for, rounded up as the
capacity's policy says; where it asks for nothing, the policy's default, and without one all there is. What breaks the
policy even then does not fit, nor does what is more than is left.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from app.model import quantity
from app.model.devices import CapacityPolicy, CapacityRange, DeviceCapacity, Quantity
from app.model.quantity import NANO, whole

#: Nano-units by name of the capacity.
Amounts = Mapping[str, int]


class Amount(NamedTuple):
    """Nano-units, and the quantity that says so best."""

    nanos: int
    text: str

    @classmethod
    def of(cls, value: Quantity) -> "Amount":
        """As somebody has written it. One that cannot be read, which API servers do not accept, is 0."""
        try:
            return cls(quantity.parse(value), quantity.canonical(value))
        except quantity.QuantityError:
            return cls(0, "0")


def _optional(value: Quantity | None) -> Amount | None:
    return None if value is None else Amount.of(value)


class _Range:
    """CapacityRequestPolicyRange. Steps are counted in whole units from the least."""

    __slots__ = ("_least", "_most", "_step")

    def __init__(self, limits: CapacityRange) -> None:
        self._least = _optional(limits.min)
        self._most = _optional(limits.max)
        step = None if limits.step is None else whole(Amount.of(limits.step).nanos)
        self._step = step or None

    def _beyond_step(self, nanos: int) -> int:
        """How many whole units lie between the last step and this; 0 where every amount will do."""
        if self._step is None:
            return 0
        least = 0 if self._least is None else whole(self._least.nanos)
        return (whole(nanos) - least) % self._step

    def rounded(self, asked: Amount) -> Amount:
        if self._least is None:
            return asked
        if asked.nanos < self._least.nanos:
            return self._least
        if self._step is None:
            return asked
        beyond = self._beyond_step(asked.nanos)
        units = whole(asked.nanos) + (self._step - beyond if beyond else 0)
        return Amount(units * NANO, quantity.binary(units * NANO))

    def allows(self, nanos: int) -> bool:
        if self._most is not None and nanos > self._most.nanos:
            return False
        return not self._beyond_step(nanos)


class _Values:
    """The amounts that can be had, ascending."""

    __slots__ = ("_values",)

    def __init__(self, values: tuple[Quantity, ...]) -> None:
        self._values = tuple(map(Amount.of, values))

    def rounded(self, asked: Amount) -> Amount:
        return next((value for value in self._values if asked.nanos <= value.nanos), asked)

    def allows(self, nanos: int) -> bool:
        return any(value.nanos == nanos for value in self._values)


class Capacity:
    """A device's capacity of one name."""

    __slots__ = ("_default", "_rule", "_whole", "limit")

    def __init__(self, capacity: DeviceCapacity) -> None:
        policy = capacity.request_policy or CapacityPolicy()
        self._whole = Amount.of(capacity.value)
        #: All there is, in nano-units.
        self.limit: Final = self._whole.nanos
        self._default = _optional(policy.default)
        self._rule: _Range | _Values | None = None
        if policy.valid_range is not None:
            self._rule = _Range(policy.valid_range)
        elif policy.valid_values:
            self._rule = _Values(policy.valid_values)

    def taken(self, asked: Quantity | None) -> Amount | None:
        """What a request takes that asks for so much; None if the policy does not allow it."""
        amount = self._taken(asked)
        if self._default is not None and amount.nanos == self._default.nanos:
            return amount
        return amount if self._rule is None or self._rule.allows(amount.nanos) else None

    def _taken(self, asked: Quantity | None) -> Amount:
        if asked is None:
            return self._whole if self._default is None else self._default
        amount = Amount.of(asked)
        return amount if self._rule is None else self._rule.rounded(amount)


class Capacities:
    """The capacities of a device, in the order of their names."""

    __slots__ = ("_by_name", "limits", "names")

    def __init__(self, capacity: Mapping[str, DeviceCapacity] | None) -> None:
        self._by_name = {name: Capacity(one) for name, one in sorted((capacity or {}).items())}
        self.names: Final = tuple(self._by_name)
        #: Nano-units by position in ``names``.
        self.limits: Final = tuple([one.limit for one in self._by_name.values()])

    def taken(self, asked: Mapping[str, Quantity] | None) -> tuple[Amount, ...] | None:
        """What a request takes by position in ``names``; None if the device cannot serve it."""
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

    def in_use(self, used: Amounts | None) -> tuple[int, ...] | None:
        """Amounts by position in ``names``; None for None."""
        return None if used is None else tuple([used.get(name, 0) for name in self.names])
