"""ResourceQuotas: what objects use, and whether there is room for another one.

LimitRanges: defaults and bounds of containers.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.model.quantity import QuantityError, binary, parse
from app.sim.errors import Cause, forbidden, invalid_value
from app.sim.lookup import Lookup
from app.sim.objects import has_ended
from app.sim.resources.kinds import LIMIT_RANGES, PODS, RESOURCE_QUOTAS, Kind
from app.sim.resources.strategy import KindStrategy, WithoutStatus
from app.sim.store import Object, ObjectStore, Record, StoreChange

_NANO: Final = 10**9
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_COUNTED: Final = (
    "pods",
    "services",
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
)
"""Resources that can be counted by their bare name, and not only as ``count/NAME``."""

_Usage = dict[str, int]
"""resource -> amount in nano-units."""


class ResourceQuotaStrategy(KindStrategy):
    """A quota has amounts, and scopes that are known by their names."""

    def mistakes(self, value: Object) -> list[Cause]:
        spec = value.setdefault("spec", {})
        causes = _amount_mistakes("spec.hard", spec.get("hard", {}))
        scopes, selector = spec.get("scopes", []), spec.get("scopeSelector", {})
        if not isinstance(scopes, list) or not all(isinstance(each, str) for each in scopes):
            causes.append(invalid_value("spec.scopes", str(scopes), "must be a list of names"))
        expressions = selector.get("matchExpressions", []) if isinstance(selector, dict) else None
        if not _are_objects(expressions) or not all(
            isinstance(each.get("values", []), list) for each in expressions or ()
        ):
            detail = "must have a list of expressions"
            causes.append(invalid_value("spec.scopeSelector", str(selector), detail))
        return causes


class LimitRangeStrategy(WithoutStatus):
    """A limit range has amounts for each type of object."""

    def mistakes(self, value: Object) -> list[Cause]:
        limits = value.get("spec", {}).get("limits", [])
        if not _are_objects(limits):
            return [invalid_value("spec.limits", str(limits), "must be a list of limits")]
        causes: list[Cause] = []
        for index, limit in enumerate(limits):
            for name in ("default", "defaultRequest", "max", "min"):
                causes += _amount_mistakes(f"spec.limits[{index}].{name}", limit.get(name, {}))
        return causes


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _amount_mistakes(field: str, amounts: Any) -> list[Cause]:
    if not isinstance(amounts, dict):
        return [invalid_value(field, str(amounts), "must be a map of quantities")]
    causes = []
    for name, text in amounts.items():
        try:
            parse(str(text))
        except QuantityError as error:
            causes.append(invalid_value(f"{field}[{name}]", str(text), str(error)))
    return causes


def charge(resource: str, value: Object) -> _Usage:
    """What an object uses of quotas. Of one that has an unexpected form only the object itself is counted."""
    amounts: _Usage = {f"count/{resource}": _NANO}
    if resource in _COUNTED:
        amounts[resource] = _NANO
    try:
        if resource == PODS.storage:
            return {} if has_ended(value) else amounts | _pod_charge(value["spec"])
        if resource == "persistentvolumeclaims":
            requests = (value["spec"].get("resources") or {}).get("requests") or {}
            amounts["requests.storage"] = _amount(requests.get("storage", "0"))
        elif resource == "services":
            type_ = value["spec"].get("type")
            ports = len(value["spec"].get("ports") or ()) * _NANO
            amounts["services.loadbalancers"] = _NANO if type_ == "LoadBalancer" else 0
            amounts["services.nodeports"] = ports if type_ in ("NodePort", "LoadBalancer") else 0
    except (AttributeError, KeyError, TypeError):
        pass
    return amounts


def _pod_charge(spec: Object) -> _Usage:
    amounts: _Usage = {}
    for field in ("requests", "limits"):
        total: _Usage = {}
        for container in spec.get("containers") or ():
            for name, amount in _resources(container, field).items():
                total[name] = total.get(name, 0) + amount
        for container in spec.get("initContainers") or ():
            for name, amount in _resources(container, field).items():
                total[name] = max(total.get(name, 0), amount)
        for name, amount in total.items():
            amounts[f"{field}.{name}"] = amount
            if field == "requests" and name in _COMPUTE:
                amounts[name] = amount
    return amounts


def _resources(container: Object, field: str) -> _Usage:
    given = (container.get("resources") or {}).get(field) or {}
    return {name: _amount(text) for name, text in given.items()}


def _amount(text: Any) -> int:
    try:
        return parse(str(text))
    except QuantityError:
        return 0


class QuotaUse:
    """What the objects in each namespace use of its quotas, kept up to date with every write."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._totals: dict[str, dict[str, _Usage]] = {}
        """namespace -> name of a quota -> resource that it limits -> amount in nano-units."""
        store.follow(self._on_change)

    def of(self, quota: Record) -> _Usage:
        """What is used of a quota that is stored."""
        return self._totals[quota.namespace][quota.name]

    def _on_change(self, change: StoreChange) -> None:
        if change.resource == RESOURCE_QUOTAS.storage:
            self._on_quota(change)
        totals = self._totals.get(change.key[0])
        if totals is None:
            return
        previous = None if change.previous is None else change.previous.value
        value = None if change.type == "DELETED" else change.record.value
        for name, total in totals.items():
            quota = self._store[RESOURCE_QUOTAS.storage].records[change.key[0], name].value
            _add(total, quota, change.resource, previous, sign=-1)
            _add(total, quota, change.resource, value, sign=1)

    def _on_quota(self, change: StoreChange) -> None:
        """Counts what there is when a quota is new or limits something else.

        The change itself is counted afterwards.
        """
        namespace, name = change.key
        before = None if change.previous is None else change.previous.value
        if change.type == "DELETED":
            totals = self._totals[namespace]
            del totals[name]
            if not totals:
                del self._totals[namespace]
        elif before is None or before["spec"] != change.record.value["spec"]:
            hard = change.record.value["spec"].get("hard") or {}
            total = self._totals.setdefault(namespace, {})[name] = dict.fromkeys(hard, 0)
            for resource, collection in self._store.items():
                for record in collection.ordered(namespace=namespace):
                    if record is not change.record:
                        _add(total, change.record.value, resource, record.value, sign=1)
            _add(total, change.record.value, change.resource, before, sign=1)


def _add(total: _Usage, quota: Object, resource: str, value: Object | None, *, sign: int) -> None:
    """Adds what an object uses of a quota to ``total``, or subtracts it."""
    if value is not None and _in_scope(quota, resource, value):
        for name, amount in charge(resource, value).items():
            if name in total:
                total[name] += sign * amount


def _in_scope(quota: Object, resource: str, value: Object) -> bool:
    """Whether a quota with scopes counts an object. Such quotas count pods only."""
    scopes = [{"scopeName": name, "operator": "Exists"} for name in quota["spec"].get("scopes", ())]
    scopes += (quota["spec"].get("scopeSelector") or {}).get("matchExpressions") or ()
    if not scopes:
        return True
    return resource == PODS.storage and all(_matches(scope, value) for scope in scopes)


def _matches(scope: Mapping[str, Any], pod: Object) -> bool:
    name, spec = scope.get("scopeName"), pod.get("spec") or {}
    if name == "PriorityClass":
        given, values = spec.get("priorityClassName", ""), scope.get("values") or ()
        operator = scope.get("operator", "Exists")
        known = {"Exists": bool(given), "DoesNotExist": not given, "In": given in values}
        return known.get(operator, given not in values)
    best_effort = (pod.get("status") or {}).get("qosClass") == "BestEffort"
    ends = spec.get("activeDeadlineSeconds") is not None
    known = {
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
        "Terminating": ends,
        "NotTerminating": not ends,
    }
    return known.get(str(name), False)


def admit_quota(api: Lookup, use: QuotaUse, kind: Kind, value: Object) -> None:
    """Checks that a new object fits into the quotas of its namespace. Raises 403."""
    namespace, name = value["metadata"]["namespace"], value["metadata"]["name"]
    for record in api.store[RESOURCE_QUOTAS.storage].ordered(namespace=namespace):
        quota = record.value
        hard = {key: _amount(text) for key, text in (quota["spec"].get("hard") or {}).items()}
        asked = {key: amount for key, amount in charge(kind.storage, value).items() if key in hard}
        if not _in_scope(quota, kind.storage, value):
            continue
        missing = _unspecified(hard, value) if kind is PODS else ""
        if missing:
            raise forbidden(kind, name, f"failed quota: {record.name}: must specify {missing}")
        if not any(asked.values()):
            continue
        present = use.of(record)
        exceeded = [key for key in sorted(asked) if present[key] + asked[key] > hard[key]]
        if exceeded:
            parts = {"requested": asked, "used": present, "limited": hard}
            told = ", ".join(
                f"{part}: {','.join(f'{key}={binary(amounts[key])}' for key in exceeded)}"
                for part, amounts in parts.items()
            )
            raise forbidden(kind, name, f"exceeded quota: {record.name}, {told}")


def _unspecified(hard: Mapping[str, int], pod: Object) -> str:
    """The computing resources that a quota limits and a container does not name."""
    found = []
    for resource in sorted(hard):
        field, _, name = resource.rpartition(".")
        if name not in _COMPUTE or field not in ("", "requests", "limits"):
            continue
        lacking = [
            container["name"]
            for container in pod["spec"].get("containers") or ()
            if name not in _resources(container, field or "requests")
        ]
        if lacking:
            found.append(f"{resource} for: {','.join(lacking)}")
    return "; ".join(found)


def quota_status(use: QuotaUse, quota: Record) -> Object:
    """The status of a quota that is stored."""
    return {
        "hard": quota.value["spec"].get("hard") or {},
        "used": {resource: binary(amount) for resource, amount in use.of(quota).items()},
    }


# ---------------------------------------------------------------- LimitRanges


def admit_limits(pod: Object, api: Lookup) -> None:
    """Sets the default resources of containers, and checks their bounds. Raises 403."""
    collection = api.store[LIMIT_RANGES.storage]
    if not collection.records:
        return
    for record in collection.ordered(namespace=pod["metadata"]["namespace"]):
        for limit in record.value.get("spec", {}).get("limits") or ():
            if limit.get("type") == "Container":
                for field in ("initContainers", "containers"):
                    for container in pod["spec"].get(field) or ():
                        _apply_limit(pod, container, limit)


def _apply_limit(pod: Object, container: Object, limit: Mapping[str, Any]) -> None:
    resources = container.setdefault("resources", {})
    limits = {**(limit.get("default") or {}), **(resources.get("limits") or {})}
    given = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    requests = {**(limit.get("default") or {}), **(limit.get("defaultRequest") or {}), **given}
    if limits:
        resources["limits"] = limits
    if requests:
        resources["requests"] = requests
    for name, text in (limit.get("max") or {}).items():
        asked = limits.get(name, requests.get(name))
        if asked is None or _amount(asked) > _amount(text):
            found = "no limit is specified" if asked is None else f"limit is {asked}"
            why = f"maximum {name} usage per Container is {text}, but {found}"
            raise forbidden(PODS, pod["metadata"]["name"], why)
    for name, text in (limit.get("min") or {}).items():
        asked = requests.get(name)
        if asked is None or _amount(asked) < _amount(text):
            found = "no request is specified" if asked is None else f"request is {asked}"
            why = f"minimum {name} usage per Container is {text}, but {found}"
            raise forbidden(PODS, pod["metadata"]["name"], why)
