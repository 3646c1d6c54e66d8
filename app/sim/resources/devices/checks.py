"""Checks that several device kinds share. Each gets a value and its path, and returns what is wrong with it."""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from app.sim.errors import (
    Cause,
    duplicate_value,
    forbidden_value,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported_value,
)
from app.sim.resources.validation import label_key_mistakes, label_value_mistakes, name_mistakes
from app.sim.store import Object

_Check = Callable[[Any, str], list[Cause]]

_MAX_DRIVER_NAME: Final = 63
_MAX_POOL_NAME: Final = 253
_MAX_IDENTIFIER: Final = 32
_MAX_CONDITIONS: Final = 4
_MAX_PARAMETERS: Final = 10 * 1024
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_NOT_AN_IDENTIFIER: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    f"or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '{_IDENTIFIER}')"
)
EFFECTS: Final = ("NoExecute", "NoSchedule", "None")

_is_identifier: Final = re.compile(_IDENTIFIER).fullmatch
_encode: Final = msgspec.json.Encoder().encode


# ---------------------------------------------------------------- lists and maps


def each(items: Iterable[Any], path: str, check: _Check, *, most: int | None = None) -> list[Cause]:
    """Checks every item of a list, unless it is longer than ``most``."""
    items = list(items)
    if most is not None and len(items) > most:
        return [too_many(path, len(items), most)]
    return [cause for index, item in enumerate(items) for cause in check(item, f"{path}[{index}]")]


def distinct(
    items: Iterable[Any],
    path: str,
    check: _Check,
    *,
    key: Callable[[Any], Hashable],
    most: int | None = None,
    at: str = "",
) -> list[Cause]:
    """Checks every item of a list, and that no two have the same key, which is found ``at`` a path inside."""
    items = list(items)
    causes = each(items, path, check, most=most)
    if most is not None and len(items) > most:
        return causes
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        found = key(item)
        if found in seen:
            causes.append(duplicate_value(f"{path}[{index}]{at}", found))
        seen.add(found)
    return causes


def entries(
    items: Mapping[str, Any],
    path: str,
    check_key: _Check,
    check: _Check,
    *,
    most: int | None = None,
) -> list[Cause]:
    """Checks keys and values of a map, unless it is larger than ``most``."""
    if most is not None and len(items) > most:
        return [too_many(path, len(items), most)]
    causes = []
    for key in sorted(items):
        causes += check_key(key, path) + check(items[key], f"{path}[{key}]")
    return causes


def named(item: Object) -> str:
    """The key of most lists."""
    return str(item.get("name", ""))


def anything(_value: Any, _path: str) -> list[Cause]:
    """No mistakes."""
    return []


def itself(item: str) -> str:
    """The key of a list of texts."""
    return item


def one_of(fields: Sequence[str], path: str, *, none: str, several: str) -> list[Cause]:
    """Checks that exactly one of several fields is set; ``fields`` are those that are."""
    if not fields:
        return [required(path, none)]
    if len(fields) > 1:
        listed = ", ".join(f"`{field}`" for field in fields)
        return [invalid_value(path, f"{{{listed}}}", several)]
    return []


# ---------------------------------------------------------------- names


def label(name: str, path: str) -> list[Cause]:
    """A name of a device, a request or a counter: a DNS label."""
    return name_mistakes(path, name, single_label=True)


def subdomain(name: str, path: str) -> list[Cause]:
    """A name of an object: a DNS subdomain."""
    return name_mistakes(path, name, single_label=False)


def driver_name(name: str, path: str) -> list[Cause]:
    """A DNS subdomain in any case, and not long."""
    if not name:
        return [required(path)]
    causes = [too_long(path, _MAX_DRIVER_NAME)] if len(name) > _MAX_DRIVER_NAME else []
    return causes + [
        cause._replace(message=cause.message.replace(name.lower(), name, 1))
        for cause in subdomain(name.lower(), path)
    ]


def pool_name(name: str, path: str) -> list[Cause]:
    """DNS subdomains, with slashes between them."""
    if not name:
        return [required(path)]
    causes = [too_long(path, _MAX_POOL_NAME)] if len(name) > _MAX_POOL_NAME else []
    return causes + [cause for part in name.split("/") for cause in subdomain(part, path)]


def qualified_name(name: str, path: str) -> list[Cause]:
    """``NAME``, or ``DOMAIN/NAME``, of an attribute or a capacity."""
    parts = name.split("/")
    if len(parts) == 1:
        return _identifier(name, path)
    if len(parts) > 2:
        return []
    domain, identifier = parts
    causes = (
        driver_name(domain, path)
        if domain
        else [invalid_value(path, "", "the domain must not be empty")]
    )
    return causes + (
        _identifier(identifier, path)
        if identifier
        else [invalid_value(path, "", "the name must not be empty")]
    )


def fully_qualified_name(name: str, path: str) -> list[Cause]:
    """``DOMAIN/NAME``."""
    causes = qualified_name(name, path)
    if "/" not in name:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        causes.append(invalid_value(path, name, detail))
    return causes


def _identifier(name: str, path: str) -> list[Cause]:
    causes = [too_long(path, _MAX_IDENTIFIER)] if len(name) > _MAX_IDENTIFIER else []
    if not _is_identifier(name):
        causes.append(invalid_value(path, name, _NOT_AN_IDENTIFIER))
    return causes


# ---------------------------------------------------------------- parts


def taint(value: Object, path: str) -> list[Cause]:
    """A DeviceTaint."""
    causes = label_key_mistakes(f"{path}.key", value.get("key", ""))
    if value.get("value"):
        causes += label_value_mistakes(f"{path}.value", value["value"])
    if not value.get("effect"):
        causes.append(required(f"{path}.effect"))
    return causes + _effect(value, path)


def toleration(value: Object, path: str) -> list[Cause]:
    """A DeviceToleration; defaults are set."""
    causes = label_key_mistakes(f"{path}.key", value["key"]) if value.get("key") else []
    operator, text = value.get("operator", ""), value.get("value", "")
    if operator == "Exists" and text:
        causes.append(invalid_value(f"{path}.value", text, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        causes += label_value_mistakes(f"{path}.value", text)
    elif operator != "Exists":
        known = ("Equal", "Exists")
        causes.append(unsupported_value(f"{path}.operator", f'"{operator}"', known))
    return causes + _effect(value, path)


def _effect(value: Object, path: str) -> list[Cause]:
    effect = value.get("effect")
    if not effect or effect in EFFECTS:
        return []
    return [unsupported_value(f"{path}.effect", f'"{effect}"', EFFECTS)]


def opaque(value: Object, path: str) -> list[Cause]:
    """The configuration of a driver: in a claim, a class or an allocation."""
    given = value.get("opaque")
    if given is None:
        return [required(f"{path}.opaque")]
    causes = driver_name(given.get("driver", ""), f"{path}.opaque.driver")
    return causes + raw_object(given.get("parameters"), f"{path}.opaque.parameters")


def raw_object(value: object, path: str) -> list[Cause]:
    """An object of any kind, not too large."""
    if value is None:
        return [required(path)]
    if len(_encode(value)) > _MAX_PARAMETERS:
        return [too_long(path, _MAX_PARAMETERS)]
    if not isinstance(value, dict):
        return [invalid_value(path, "<value omitted>", "must be a valid JSON object")]
    return []


def binding_conditions(value: Object, path: str) -> list[Cause]:
    """bindingConditions and bindingFailureConditions, of a device or a result: both or none, and nothing twice."""
    wanted, failing = (
        value.get(name) or [] for name in ("bindingConditions", "bindingFailureConditions")
    )
    wanted_path, failing_path = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    causes = []
    for names, where in ((wanted, wanted_path), (failing, failing_path)):
        causes += each(names, where, _label_key, most=_MAX_CONDITIONS)
    causes += distinct(wanted, wanted_path, anything, key=itself)
    causes += distinct(failing, failing_path, anything, key=itself)
    causes += [
        invalid_value(
            f"{failing_path}[{index}]",
            name,
            "bindingFailureConditions must not overlap with bindingConditions",
        )
        for index, name in enumerate(failing)
        if name in wanted
    ]
    if failing and not wanted:
        detail = "bindingConditions are required to use bindingFailureConditions"
        causes.append(invalid_value(wanted_path, wanted or None, detail))
    if wanted and not failing:
        detail = "bindingFailureConditions are required to use bindingConditions"
        causes.append(invalid_value(failing_path, failing or None, detail))
    return causes


def _label_key(name: str, path: str) -> list[Cause]:
    return label_key_mistakes(path, name)


# ---------------------------------------------------------------- node selectors


def node_selector(value: Object, path: str) -> list[Cause]:
    """A NodeSelector."""
    terms = value.get("nodeSelectorTerms") or []
    if not terms:
        detail = "must have at least one node selector term"
        return [required(f"{path}.nodeSelectorTerms", detail)]
    return each(terms, f"{path}.nodeSelectorTerms", _term)


def _term(value: Object, path: str) -> list[Cause]:
    causes = each(value.get("matchExpressions") or (), f"{path}.matchExpressions", _expression)
    return causes + each(value.get("matchFields") or (), f"{path}.matchFields", _field)


def _expression(value: Object, path: str) -> list[Cause]:
    operator, values = value.get("operator", ""), value.get("values") or []
    causes = []
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            causes.append(required(f"{path}.values", detail))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden_value(f"{path}.values", detail))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            causes.append(required(f"{path}.values", detail))
    else:
        causes.append(_not_an_operator(operator, path))
    causes += label_key_mistakes(f"{path}.key", value.get("key", ""))
    for index, text in enumerate(values):
        causes += label_value_mistakes(f"{path}.values[{index}]", text)
    return causes


def _field(value: Object, path: str) -> list[Cause]:
    operator, values = value.get("operator", ""), value.get("values") or []
    causes = []
    if operator not in ("In", "NotIn"):
        causes.append(_not_an_operator(operator, path))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        causes.append(required(f"{path}.values", detail))
    if value.get("key") != "metadata.name":
        detail = "not a valid field selector key"
        return [*causes, invalid_value(f"{path}.key", value.get("key", ""), detail)]
    return causes + each(values, f"{path}.values", subdomain)


def _not_an_operator(operator: str, path: str) -> Cause:
    return invalid_value(f"{path}.operator", operator, "not a valid selector operator")


def text(value: Any) -> str:
    """The value, which must be a text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"a text is expected, not {value!r}")
    return value


def union(value: Object, path: str, *members: str) -> list[Cause]:
    """Checks that exactly one member is set."""
    found = [name for name in members if value.get(name) is not None]
    listed = ", ".join(f"`{name}`" for name in members)
    if not found:
        return [invalid_value(path, "", f"must specify one of: {listed}")]
    if len(found) > 1:
        told = f"{{{', '.join(found)}}}"
        return [invalid_value(path, told, f"must specify exactly one of: {listed}")]
    return []


def named_by(
    value: Object, path: str, name: str, check: Callable[[str, str], list[Cause]]
) -> list[Cause]:
    """Checks a name that is required."""
    given = text(value.get(name, ""))
    return check(given, f"{path}.{name}") if given else [required(f"{path}.{name}")]
