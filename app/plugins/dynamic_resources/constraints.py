"""Constraints on the devices of a claim: equal attributes, or distinct ones (KEP-4381, KEP-5075).

What a constraint remembers while devices come and go is what kube-scheduler's remembers, no more: the distinct values by
request, so that of several devices for one request only the one that came last counts, and none once it has gone.
"""

from typing import Final, Protocol

from app.model.devices import Device, DeviceAttribute, DeviceConstraint

#: Type and value of an attribute, equal where the attributes are; None where there is none.
Value = tuple[str, str | int] | None

#: Of a type that this version does not know: equal to nothing, distinct from nothing.
UNKNOWN: Final = ("", 0)


def value_of(attribute: DeviceAttribute | None) -> Value:
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


def look_up(device: Device, driver: str, name: str) -> Value:
    """The value of the attribute with this full name. The driver's own may be listed without its domain."""
    attributes = device.attributes or {}
    if name in attributes:
        return value_of(attributes[name])
    domain, slash, own = name.partition("/")
    return value_of(attributes.get(own)) if slash and domain == driver else None


class Constraint(Protocol):
    """Of one claim, while devices for it are sought."""

    def add(self, request: int, value: Value) -> bool:
        """Takes a device with this value in for a request, unless that breaks the constraint."""

    def remove(self, request: int) -> None:
        """A device that was taken in for a request has gone."""


class MatchAttribute:
    """All devices have the attribute, with the same value."""

    __slots__ = ("_count", "_value")

    def __init__(self) -> None:
        self._count = 0
        self._value: Value = None

    def add(self, _request: int, value: Value) -> bool:
        """See Constraint."""
        if value is None or (self._count and (value != self._value or value == UNKNOWN)):
            return False
        self._value = value
        self._count += 1
        return True

    def remove(self, _request: int) -> None:
        """See Constraint."""
        self._count -= 1


class DistinctAttribute:
    """All devices have the attribute, each with another value."""

    __slots__ = ("_count", "_values")

    def __init__(self) -> None:
        self._count = 0
        self._values: dict[int, Value] = {}

    def add(self, request: int, value: Value) -> bool:
        """See Constraint."""
        if value is None:
            return False
        if self._count and self._values and (value == UNKNOWN or value in self._values.values()):
            return False
        self._values[request] = value
        self._count += 1
        return True

    def remove(self, request: int) -> None:
        """See Constraint."""
        self._values.pop(request, None)
        self._count -= 1


def attribute_of(constraint: DeviceConstraint) -> str | None:
    """The full name of the attribute that it is about; None if it is of a kind that this version does not know."""
    if constraint.match_attribute is not None:
        return constraint.match_attribute
    return constraint.distinct_attribute


def start(constraint: DeviceConstraint) -> Constraint:
    """The constraint before any device."""
    return DistinctAttribute() if constraint.match_attribute is None else MatchAttribute()
