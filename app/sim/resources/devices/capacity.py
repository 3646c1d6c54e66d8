"""How the capacity of a device may be shared (KEP-5075)."""

from itertools import pairwise
from typing import Any, Final

from app.model.quantity import parse, whole
from app.sim.errors import Cause, forbidden_value, invalid_value, required
from app.sim.resources.devices.checks import anything, distinct, each
from app.sim.store import Object

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
