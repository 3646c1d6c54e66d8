"""ResourceSlices: the devices that drivers offer."""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from app.model.quantity import parse, whole
from app.sim.errors import Cause, forbidden_value, invalid_value, required, too_long
from app.sim.resources.devices.checks import (
    anything,
    binding_conditions,
    distinct,
    driver_name,
    each,
    entries,
    label,
    named,
    node_selector,
    one_of,
    pool_name,
    qualified_name,
    subdomain,
    taint,
)
from app.sim.store import Object

_MAX_DEVICES: Final = 128
_MAX_ADVANCED_DEVICES: Final = 64
"""Of a slice in which any device has taints or consumes counters."""
_MAX_COUNTER_SETS: Final = 8
_MAX_COUNTERS: Final = 32
_MAX_CONSUMPTIONS: Final = 2
_MAX_ATTRIBUTES: Final = 32
_MAX_TAINTS: Final = 16
_MAX_VALUE: Final = 64
_VALUES: Final = ("int", "bool", "string", "version")
_REACH: Final = ("nodeName", "nodeSelector", "allNodes")
_ONE_REACH: Final = (
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
)
_ONE_REACH_EACH: Final = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` "
    "is set to true in the ResourceSlice spec"
)

_NUMBER: Final = r"(0|[1-9]\d*)"
_PRERELEASE: Final = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = "[0-9a-zA-Z-]+"
_is_version: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?",
    re.ASCII,
).fullmatch


def set_slice_defaults(value: Object) -> None:
    """Sets the defaults of a ResourceSlice: amounts and the generation are zero."""
    spec = value.setdefault("spec", {})
    spec.setdefault("pool", {}).setdefault("generation", 0)
    for device in spec.get("devices", ()):
        _set_amounts(device.get("capacity", {}))
        for consumption in device.get("consumesCounters", ()):
            _set_amounts(consumption.get("counters", {}))
    for counter_set in spec.get("sharedCounters", ()):
        _set_amounts(counter_set.get("counters", {}))


def _set_amounts(amounts: Object) -> None:
    for amount in amounts.values():
        amount.setdefault("value", "0")


def slice_mistakes(value: Object) -> list[Cause]:
    """Checks a ResourceSlice."""
    spec = value.get("spec", {})
    causes = driver_name(spec.get("driver", ""), "spec.driver") + _pool(spec.get("pool", {}))
    causes += _reach(spec)
    if "sharedCounters" in spec and "devices" in spec:
        detail = "only one of `sharedCounters` or `devices` is allowed"
        causes.append(invalid_value("spec", "", detail))
    is_chosen_by_device = spec.get("perDeviceNodeSelection") is True

    def device(given: Object, path: str) -> list[Cause]:
        return _device(given, path, is_chosen_by_device=is_chosen_by_device)

    devices = spec.get("devices", ())
    is_advanced = any(each_.get("taints") or each_.get("consumesCounters") for each_ in devices)
    most = _MAX_ADVANCED_DEVICES if is_advanced else _MAX_DEVICES
    causes += distinct(devices, "spec.devices", device, key=named, most=most)
    return causes + distinct(
        spec.get("sharedCounters", ()),
        "spec.sharedCounters",
        _counter_set,
        key=named,
        most=_MAX_COUNTER_SETS,
    )


def _pool(pool: Object) -> list[Cause]:
    causes = pool_name(pool.get("name", ""), "spec.pool.name")
    count, generation = pool.get("resourceSliceCount", 0), pool.get("generation", 0)
    if count <= 0:
        path = "spec.pool.resourceSliceCount"
        causes.append(invalid_value(path, count, "must be greater than zero"))
    if generation < 0:
        detail = "must be greater than or equal to zero"
        causes.append(invalid_value("spec.pool.generation", generation, detail))
    return causes


def _reach(spec: Object) -> list[Cause]:
    """Checks the node selection of a slice."""
    causes = _reach_mistakes(
        spec, "spec", no_name="must be either unset or set to a non-empty string"
    )
    terms = spec.get("nodeSelector", {}).get("nodeSelectorTerms", [])
    if "nodeSelector" in spec and len(terms) != 1:
        detail = "must have exactly one node selector term"
        causes.append(invalid_value("spec.nodeSelector.nodeSelectorTerms", terms, detail))
    if spec.get("perDeviceNodeSelection") is False:
        detail = "must be either unset or set to true"
        causes.append(invalid_value("spec.perDeviceNodeSelection", False, detail))
    given = _given(spec, (*_REACH, "perDeviceNodeSelection"))
    several = f"{_ONE_REACH}, but multiple fields are set"
    return causes + one_of(given, "spec", none=_ONE_REACH, several=several)


def _reach_mistakes(value: Object, path: str, *, no_name: str) -> list[Cause]:
    causes = []
    if "nodeName" in value:
        name, where = value["nodeName"], f"{path}.nodeName"
        causes += subdomain(name, where) if name else [invalid_value(where, name, no_name)]
    if "nodeSelector" in value:
        causes += node_selector(value["nodeSelector"], f"{path}.nodeSelector")
    if value.get("allNodes") is False:
        detail = "must be either unset or set to true"
        causes.append(invalid_value(f"{path}.allNodes", False, detail))
    return causes


def _given(value: Object, fields: Iterable[str]) -> list[str]:
    """The fields that are set: a name, a selector, true."""
    return [field for field in fields if value.get(field) or field == "nodeSelector" in value]


# ---------------------------------------------------------------- devices


def _device(value: Object, path: str, *, is_chosen_by_device: bool) -> list[Cause]:
    causes = label(named(value), f"{path}.name")
    attributes, capacity = value.get("attributes", {}), value.get("capacity", {})
    count = len(attributes) + len(capacity)
    if count > _MAX_ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}"
        causes.append(invalid_value(path, count, detail))
    causes += entries(attributes, f"{path}.attributes", qualified_name, _attribute)
    check = shared_capacity if value.get("allowMultipleAllocations") else sole_capacity
    causes += entries(capacity, f"{path}.capacity", qualified_name, check)
    causes += each(value.get("taints", ()), f"{path}.taints", taint, most=_MAX_TAINTS)
    causes += distinct(
        value.get("consumesCounters", ()),
        f"{path}.consumesCounters",
        _consumption,
        key=_counter_set_of,
        most=_MAX_CONSUMPTIONS,
    )
    if is_chosen_by_device:
        causes += _reach_mistakes(value, path, no_name="must not be empty")
        given = _given(value, _REACH)
        causes += one_of(given, path, none=_ONE_REACH_EACH, several=_ONE_REACH_EACH)
    elif any(field in value for field in _REACH):
        detail = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` "
            "is set to true in the ResourceSlice spec"
        )
        causes.append(invalid_value(path, None, detail))
    return causes + binding_conditions(value, path)


def _attribute(value: Object, path: str) -> list[Cause]:
    causes = [
        too_long(f"{path}.{name}", _MAX_VALUE)
        for name in ("string", "version")
        if len(value.get(name, "")) > _MAX_VALUE
    ]
    if "version" in value and not _is_version(value["version"]):
        detail = "must be a string compatible with semver.org spec 2.0.0"
        causes.insert(0, invalid_value(f"{path}.version", value["version"], detail))
    if sum(name in value for name in _VALUES) != 1:
        found = {name: value[name] for name in _VALUES if name in value} or ""
        causes.append(invalid_value(path, found, "exactly one value must be specified"))
    return causes


# ---------------------------------------------------------------- counters


def _counter_set(value: Object, path: str) -> list[Cause]:
    name = named(value)
    return (label(name, f"{path}.name") if name else [required(f"{path}.name")]) + _counters(
        value, path
    )


def _counter_set_of(value: Object) -> str:
    return str(value.get("counterSet", ""))


def _consumption(value: Object, path: str) -> list[Cause]:
    name, where = _counter_set_of(value), f"{path}.counterSet"
    return (label(name, where) if name else [required(where)]) + _counters(value, path)


def _counters(value: Object, path: str) -> list[Cause]:
    counters = value.get("counters")
    if not counters:
        return [required(f"{path}.counters")]
    return entries(counters, f"{path}.counters", label, _counter, most=_MAX_COUNTERS)


def _counter(value: Object, _path: str) -> list[Cause]:
    parse(value["value"])
    return []


# ---------------------------------------------------------------- updates


def slice_update_mistakes(value: Object, old: Object) -> list[Cause]:
    """Driver, pool and node of a slice are immutable."""
    new, before = value.get("spec", {}), old["spec"]
    found = {
        "spec.pool.name": (new.get("pool", {}).get("name", ""), before["pool"]["name"]),
        "spec.driver": (new.get("driver", ""), before["driver"]),
        "spec.nodeName": (new.get("nodeName"), before.get("nodeName")),
    }
    return [
        invalid_value(path, given, "field is immutable")
        for path, (given, kept) in found.items()
        if given != kept
    ]


_MAX_VALUES: Final = 10


def shared_capacity(value: Object, path: str) -> list[Cause]:
    """Checks a capacity of a device that may be allocated several times."""
    total, policy = value["value"], value.get("requestPolicy")
    parse(total)
    return _policy(total, policy, f"{path}.requestPolicy") if policy is not None else []


def sole_capacity(value: Object, path: str) -> list[Cause]:
    """Checks a capacity of a device that is allocated as a whole."""
    parse(value["value"])
    if "requestPolicy" not in value:
        return []
    return [forbidden_value(f"{path}.requestPolicy", "allowMultipleAllocations must be true")]


def _policy(total: Any, policy: Object, path: str) -> list[Cause]:
    values, range_ = policy.get("validValues") or [], policy.get("validRange") or {}
    if values and range_:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden_value(path, detail)]
    if not values and "validRange" not in policy:
        return []
    name = "validValues" if values else "validRange"
    if "default" not in policy:
        return [required(f"{path}.default", f"required when {name} is defined")]
    if values:
        return _values(policy["default"], total, values, f"{path}.validValues")
    return _range(policy["default"], total, range_, f"{path}.validRange")


def _values(default: Any, total: Any, values: list[Any], path: str) -> list[Cause]:
    causes = [
        invalid_value(
            f"{path}[{index + 1}]", str(after), "values must be sorted in ascending order"
        )
        for index, (before, after) in enumerate(pairwise(values))
        if parse(before) > parse(after)
    ]

    def option(value: Any, where: str) -> list[Cause]:
        if parse(value) <= parse(total):
            return []
        detail = f"option is larger than capacity value: {total}"
        return [invalid_value(where, str(value), detail)]

    causes += each(values, path, option, most=_MAX_VALUES)
    if len(values) <= _MAX_VALUES:
        causes += distinct(values, path, anything, key=_key)
    if len(values) > _MAX_VALUES or parse(default) not in map(parse, values):
        detail = "default value is not valid according to the requestPolicy"
        causes.append(invalid_value(path, str(default), detail))
    return causes


def _key(value: Any) -> str:
    return str(whole(parse(value)))


def _range(default: Any, total: Any, range_: Object, path: str) -> list[Cause]:
    """Checks that minimum <= default <= maximum <= the whole, and that they are whole steps from the minimum."""
    if "min" not in range_:
        return [required(f"{path}.min", "required when validRange is defined")]
    least, most, step = range_["min"], range_.get("max"), range_.get("step")
    rules = [
        ("min", least, parse(least) > parse(total), f"min is larger than capacity value: {total}"),
        ("min", default, parse(default) < parse(least), f"default is less than min: {least}"),
    ]
    if most is not None:
        beyond = f"max is larger than capacity value: {total}"
        rules += [
            ("max", least, parse(least) > parse(most), f"min is larger than max: {most}"),
            ("max", most, parse(most) > parse(total), beyond),
            ("max", default, parse(default) > parse(most), f"default is more than max: {most}"),
        ]
    if step is not None:
        reach = parse(least) + parse(step)
        beyond = f"one step {whole(reach)} is larger than capacity value: {total}"
        rules.append(("step", step, reach > parse(total), beyond))
        uneven = f"value is not a multiple of a given step ({step}) from ({least})"
        rules += [
            ("step", value, not _is_stepped(value, least, step), uneven)
            for value in (default, most)
            if value is not None
        ]
    return [
        invalid_value(f"{path}.{name}", str(value), detail)
        for name, value, is_wrong, detail in rules
        if is_wrong
    ]


def _is_stepped(value: Any, least: Any, step: Any) -> bool:
    distance = whole(parse(value)) - whole(parse(least))
    return distance % whole(parse(step)) == 0
