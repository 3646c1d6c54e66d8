"""Device requests of claims, templates and classes."""

import functools
from collections.abc import Iterator, Mapping
from typing import Final

from app.cel.devices import compile_error
from app.model.devices import MAX_ALTERNATIVES, MAX_RESULTS
from app.model.quantity import parse
from app.sim.errors import Cause, invalid_value, required, too_long, unsupported_value
from app.sim.resources.devices.checks import (
    distinct,
    each,
    fully_qualified_name,
    itself,
    label,
    named,
    opaque,
    subdomain,
    toleration,
)
from app.sim.store import Object

MAX_CONFIGURATIONS: Final = 32
_MAX_SELECTORS: Final = 32
_MAX_CONSTRAINTS: Final = 32
_MAX_EXPRESSION: Final = 10 * 1024
_ONE_KIND: Final = "exactly one of `exactly` or `firstAvailable` is required"
_NO_SUCH_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)

RequestNames = Mapping[str, set[str]]
"""Request -> the names of its alternatives."""


def set_claim_defaults(claim: Object) -> None:
    """Sets the defaults of a ResourceClaim: counts of requests, operators of tolerations."""
    _set_request_defaults(claim.setdefault("spec", {}))
    allocation = claim.get("status", {}).get("allocation")
    if allocation is not None:
        for result in allocation.setdefault("devices", {}).get("results", ()):
            _set_toleration_defaults(result)


def set_template_defaults(template: Object) -> None:
    """Sets the defaults of a ResourceClaimTemplate."""
    spec = template.setdefault("spec", {})
    spec.setdefault("metadata", {})
    _set_request_defaults(spec.setdefault("spec", {}))


def _set_request_defaults(spec: Object) -> None:
    spec.setdefault("devices", {})
    for wish in _wishes(spec):
        if not wish.get("allocationMode"):
            wish["allocationMode"] = "ExactCount"
        if wish["allocationMode"] == "ExactCount" and not wish.get("count"):
            wish["count"] = 1
        _set_toleration_defaults(wish)


def _set_toleration_defaults(value: Object) -> None:
    for toleration_ in value.get("tolerations", ()):
        if not toleration_.get("operator"):
            toleration_["operator"] = "Equal"


def _wishes(spec: Object) -> Iterator[Object]:
    """What each request, or each of its alternatives, wants."""
    for request in spec.get("devices", {}).get("requests", ()):
        if "exactly" in request:
            yield request["exactly"]
        yield from request.get("firstAvailable", ())


def request_names(devices: Object) -> RequestNames:
    """What constraints, configurations and results may refer to."""
    return {
        named(request): {named(alternative) for alternative in request.get("firstAvailable", ())}
        for request in devices.get("requests", ())
    }


def spec_mistakes(spec: Object, path: str) -> list[Cause]:
    """Checks a ResourceClaimSpec; defaults are set."""
    devices, path = spec.get("devices", {}), f"{path}.devices"
    names = request_names(devices)

    def constraint(value: Object, where: str) -> list[Cause]:
        return _constraint(value, where, names)

    def configuration(value: Object, where: str) -> list[Cause]:
        return reference_list(value, where, names) + opaque(value, where)

    causes = distinct(
        devices.get("requests", ()), f"{path}.requests", _request, key=named, most=MAX_RESULTS
    )
    causes += each(
        devices.get("constraints", ()),
        f"{path}.constraints",
        constraint,
        most=_MAX_CONSTRAINTS,
    )
    return causes + each(
        devices.get("config", ()), f"{path}.config", configuration, most=MAX_CONFIGURATIONS
    )


def _request(value: Object, path: str) -> list[Cause]:
    causes = label(named(value), f"{path}.name")
    exactly, alternatives = value.get("exactly"), value.get("firstAvailable") or []
    if exactly is None and not alternatives:
        return [*causes, required(path, _ONE_KIND)]
    if exactly is not None and alternatives:
        detail = f"{_ONE_KIND}, but multiple fields are set"
        return [*causes, invalid_value(path, None, detail)]
    if exactly is not None:
        return causes + _wish(exactly, f"{path}.exactly")
    return causes + distinct(
        alternatives, f"{path}.firstAvailable", _alternative, key=named, most=MAX_ALTERNATIVES
    )


def _alternative(value: Object, path: str) -> list[Cause]:
    return label(named(value), f"{path}.name") + _wish(value, path)


def _wish(value: Object, path: str) -> list[Cause]:
    class_name = value.get("deviceClassName", "")
    class_path = f"{path}.deviceClassName"
    causes = subdomain(class_name, class_path) if class_name else [required(class_path)]
    causes += selector_mistakes(value.get("selectors", ()), f"{path}.selectors")
    mode, count = value["allocationMode"], value.get("count", 0)
    if mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        causes.append(invalid_value(f"{path}.count", count, detail))
    elif mode == "ExactCount" and count <= 0:
        causes.append(invalid_value(f"{path}.count", count, "must be greater than zero"))
    elif mode not in ("All", "ExactCount"):
        known = ("All", "ExactCount")
        causes.append(unsupported_value(f"{path}.allocationMode", f'"{mode}"', known))
    for amount in value.get("capacity", {}).get("requests", {}).values():
        parse(amount)
    return causes + each(value.get("tolerations", ()), f"{path}.tolerations", toleration)


def selector_mistakes(selectors: list[Object], path: str) -> list[Cause]:
    """Checks DeviceSelectors of a request or a class."""
    return each(selectors, path, _selector, most=_MAX_SELECTORS)


def _selector(value: Object, path: str) -> list[Cause]:
    if value.get("cel") is None:
        return [required(f"{path}.cel")]
    path, expression = f"{path}.cel.expression", value["cel"].get("expression", "")
    if len(expression) > _MAX_EXPRESSION:
        return [too_long(path, _MAX_EXPRESSION)]
    problem = _problem(expression)
    return [invalid_value(path, expression, problem)] if problem is not None else []


@functools.lru_cache(maxsize=1024)
def _problem(expression: str) -> str | None:
    """The mistake in a selector. Cached, because claims from one template have the same selectors."""
    return compile_error(expression)


def _constraint(value: Object, path: str, names: RequestNames) -> list[Cause]:
    causes = reference_list(value, path, names)
    for name in ("matchAttribute", "distinctAttribute"):
        if name in value:
            return causes + fully_qualified_name(value[name], f"{path}.{name}")
    detail = (
        'exactly one of "matchAttribute" or "distinctAttribute" is required, '
        "but multiple fields are set"
    )
    return [*causes, required(path, detail)]


def reference_list(value: Object, path: str, names: RequestNames) -> list[Cause]:
    """Checks the ``requests`` of a constraint or a configuration."""

    def refers(name: str, where: str) -> list[Cause]:
        return reference(name, where, names)

    return distinct(
        value.get("requests", ()), f"{path}.requests", refers, key=itself, most=MAX_RESULTS
    )


def reference(name: str, path: str, names: RequestNames) -> list[Cause]:
    """Checks that ``REQUEST`` or ``REQUEST/ALTERNATIVE`` exists."""
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid_value(path, name, _NO_SUCH_REQUEST)]
    causes = [cause for part in parts for cause in label(part, path)]
    if not set(parts[1:]) <= names.get(parts[0], set()) or parts[0] not in names:
        causes.append(invalid_value(path, name, _NO_SUCH_REQUEST))
    return causes
