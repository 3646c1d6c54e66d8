"""Constraints that the devices of an allocation have to keep together: their attributes, and the counters that they
share.

An attribute constraint demands equal or distinct attributes of a claim's devices (KEP-4381, KEP-5075). As in
kube-scheduler 1.36, a distinct constraint remembers one value per request: of several devices for one request only the
last one counts, and none once one of them is removed. From 1.37 on it remembers the value of each device.

Counters are shared by the partitions of a device (KEP-4815). As in kube-scheduler 1.36, pools of the same name have one
account, whatever their driver. What is left of it is taken from the first of these pools from which a device is
tried; counters that the account does not have are not limited. From 1.37 on each pool has an account of its own.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping
from typing import Final, Protocol

from app.model.devices import Device, DeviceAttribute, DeviceConstraint
from app.plugins.dynamic_resources.pools import Consumption, CounterName

#: Type and value of an attribute; None if the device does not have it.
AttributeValue = tuple[str, str | int] | None

#: An attribute of an unknown type, which is neither equal to nor distinct from any other.
UNKNOWN: Final = ("", 0)


def value_of(attribute: DeviceAttribute | None) -> AttributeValue:
    """The value of an attribute."""
    if attribute is None:
        return None
    if attribute.string is not None:
        return ("string", attribute.string)
    if attribute.integer is not None:
        return ("int", attribute.integer)
    if attribute.boolean is not None:
        return ("bool", attribute.boolean)
    if attribute.version is not None:
        return ("version", attribute.version)
    return UNKNOWN


def look_up(device: Device, driver: str, name: str) -> AttributeValue:
    """The value of the attribute with this full name. Devices may list the driver's own attributes without the
    domain."""
    attributes = device.attributes or {}
    if name in attributes:
        return value_of(attributes[name])
    domain, slash, own = name.partition("/")
    return value_of(attributes.get(own)) if slash and domain == driver else None


class AttributeConstraint(Protocol):
    """The state of a constraint during the search for a claim's devices."""

    def add(self, request: int, value: AttributeValue) -> bool:
        """Adds a device with this value for a request. False, and no change, if that violates the constraint."""

    def remove(self, request: int) -> None:
        """Removes a device that was added for a request."""


class MatchAttribute:
    """All devices have the attribute, with the same value."""

    __slots__ = ("_count", "_value")

    def __init__(self) -> None:
        self._count = 0
        self._value: AttributeValue = None

    def add(self, _request: int, value: AttributeValue) -> bool:
        if value is None or (self._count and (value != self._value or value == UNKNOWN)):
            return False
        self._value = value
        self._count += 1
        return True

    def remove(self, _request: int) -> None:
        self._count -= 1


class DistinctAttribute:
    """All devices have the attribute, each with a different value."""

    __slots__ = ("_count", "_values")

    def __init__(self) -> None:
        self._count = 0
        self._values: dict[int, AttributeValue] = {}

    def add(self, request: int, value: AttributeValue) -> bool:
        if value is None:
            return False
        if self._count and self._values and (value == UNKNOWN or value in self._values.values()):
            return False
        self._values[request] = value
        self._count += 1
        return True

    def remove(self, request: int) -> None:
        self._values.pop(request, None)
        self._count -= 1


class EachDistinct:
    """As DistinctAttribute by the rules of Kubernetes 1.37: the values of all devices count, in the order they came.

    As there, a value of another type than an earlier one is not compared with the rest.
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: Final[list[tuple[str, str | int]]] = []

    def add(self, _request: int, value: AttributeValue) -> bool:
        if value is None:
            return False
        for known in self._values:
            if known in {UNKNOWN, value}:
                return False
            if known[0] != value[0]:
                break
        self._values.append(value)
        return True

    def remove(self, _request: int) -> None:
        self._values.pop()


def attribute_of(constraint: DeviceConstraint) -> str | None:
    """The full name of a constraint's attribute; None for a constraint of an unknown kind."""
    if constraint.match_attribute is not None:
        return constraint.match_attribute
    return constraint.distinct_attribute


def start(constraint: DeviceConstraint, *, each_distinct: bool) -> AttributeConstraint:
    """The state of a constraint before the first device. ``each_distinct``: the rule of Kubernetes 1.37."""
    if constraint.match_attribute is not None:
        return MatchAttribute()
    return EachDistinct() if each_distinct else DistinctAttribute()


# ---------------------------------------------------------------- counters


class _Account:
    __slots__ = ("consumed", "exhausted", "left")

    def __init__(self, left: Mapping[CounterName, int]) -> None:
        self.left: Final = left
        #: Set if more than the whole of a counter is allocated: then nothing more can be.
        self.exhausted: Final = any(amount < 0 for amount in left.values())
        self.consumed: Final[defaultdict[CounterName, int]] = defaultdict(int)

    def suffices(self, name: CounterName) -> bool:
        return name not in self.left or self.consumed[name] <= self.left[name]


class SharedCounters:
    """What a search consumes of shared counters, in addition to what is in use: by the key of an account."""

    __slots__ = ("_accounts",)

    def __init__(self) -> None:
        self._accounts: Final[dict[Hashable, _Account]] = {}

    def consume(
        self, pool: Hashable, consumes: Consumption, left: Mapping[CounterName, int]
    ) -> bool:
        """Consumes counters for a device of a pool. False, and no change, if not enough is left.

        ``left`` has the amounts that were left before the search, in nano-units.
        """
        account = self._accounts.get(pool)
        if account is None:
            account = self._accounts[pool] = _Account(left)
        if account.exhausted:
            return False
        for name, amount in consumes:
            account.consumed[name] += amount
        if all(account.suffices(name) for name, _ in consumes):
            return True
        self.release(pool, consumes)
        return False

    def release(self, pool: Hashable, consumes: Consumption) -> None:
        """Gives back what a device consumed."""
        consumed = self._accounts[pool].consumed
        for name, amount in consumes:
            consumed[name] -= amount
