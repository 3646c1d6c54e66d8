"""The status of a ResourceClaim: what a scheduler, drivers and the claim controller may write."""

import ipaddress
import re
from typing import Final
from uuid import UUID

from app.model.devices import MAX_RESERVED_FOR, MAX_RESULTS
from app.sim.errors import (
    Cause,
    forbidden_value,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported_value,
)
from app.sim.objects import is_being_deleted
from app.sim.resources.devices.checks import (
    binding_conditions,
    distinct,
    driver_name,
    each,
    itself,
    label,
    node_selector,
    opaque,
    pool_name,
    raw_object,
)
from app.sim.resources.devices.requests import (
    MAX_CONFIGURATIONS,
    RequestNames,
    reference,
    reference_list,
    request_names,
)
from app.sim.resources.validation import label_key_mistakes
from app.sim.store import Object

DeviceKey = tuple[str, str, str, str]
"""(driver, pool, device, share)."""

_MAX_CONDITIONS: Final = 8
_MAX_ADDRESSES: Final = 16
_MAX_REASON: Final = 1024
_MAX_MESSAGE: Final = 32 * 1024
_MAX_INTERFACE: Final = 256
_MAX_HARDWARE: Final = 128
_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_NOT_A_REASON: Final = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  "
    f"or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
)

_is_reason: Final = re.compile(_REASON).fullmatch


def results_of(status: Object) -> list[Object]:
    """The devices that are allocated."""
    allocation: Object = status.get("allocation") or {}
    results: list[Object] = allocation.get("devices", {}).get("results", [])
    return results


def device_key(value: Object) -> DeviceKey:
    """The key of a device, or of a share of one, in a result or a driver's status."""
    return (
        value.get("driver", ""),
        value.get("pool", ""),
        value.get("device", ""),
        value.get("shareID", ""),
    )


def drop_freed_devices(status: Object, old: Object) -> None:
    """Removes, in place, the drivers' statuses of devices that are no longer allocated."""
    freed = {device_key(result) for result in results_of(old)}
    freed -= {device_key(result) for result in results_of(status)}
    kept = [device for device in status.pop("devices", ()) if device_key(device) not in freed]
    if kept:
        status["devices"] = kept


def status_mistakes(claim: Object, old: Object) -> list[Cause]:
    """Checks a changed status. Reservations need an allocation, which is written or removed as a whole."""
    status, before = claim["status"], old.get("status", {})
    consumers = status.get("reservedFor", ())
    causes = distinct(consumers, "status.reservedFor", _consumer, key=_uid, most=MAX_RESERVED_FOR)
    allocated = {device_key(result) for result in results_of(status)}

    def device(value: Object, path: str) -> list[Cause]:
        return _device(value, path, allocated)

    causes += distinct(status.get("devices", ()), "status.devices", device, key=device_key)
    if consumers and "allocation" not in status:
        detail = "may not be specified when `allocated` is not set"
        causes.append(forbidden_value("status.reservedFor", detail))
    elif is_being_deleted(claim):
        known = before.get("reservedFor", ())
        if any(consumer not in known for consumer in consumers):
            detail = (
                "new entries may not be added while `deallocationRequested` or "
                "`deletionTimestamp` are set"
            )
            causes.append(forbidden_value("status.reservedFor", detail))
    if "allocation" not in status:
        return causes
    allocation, path = status["allocation"], "status.allocation"
    if "allocation" not in before:
        return causes + _allocation(allocation, path, request_names(claim["spec"]["devices"]))
    if allocation != before["allocation"]:
        causes.append(invalid_value(path, allocation, "field is immutable"))
    return causes


def _consumer(value: Object, path: str) -> list[Cause]:
    return [
        required(f"{path}.{part}") for part in ("resource", "name", "uid") if not value.get(part)
    ]


def _uid(consumer: Object) -> str:
    return str(consumer.get("uid", ""))


# ---------------------------------------------------------------- allocations


def _allocation(value: Object, path: str, names: RequestNames) -> list[Cause]:
    devices = value.get("devices", {})

    def result(given: Object, where: str) -> list[Cause]:
        return _result(given, where, names)

    def configuration(given: Object, where: str) -> list[Cause]:
        return (
            _source(given.get("source", ""), f"{where}.source")
            + reference_list(given, where, names)
            + opaque(given, where)
        )

    causes = each(devices.get("results", ()), f"{path}.devices.results", result, most=MAX_RESULTS)
    causes += each(
        devices.get("config", ()),
        f"{path}.devices.config",
        configuration,
        most=2 * MAX_CONFIGURATIONS,  # of the class and of the claim
    )
    if "nodeSelector" in value:
        causes += node_selector(value["nodeSelector"], f"{path}.nodeSelector")
    return causes


def _result(value: Object, path: str, names: RequestNames) -> list[Cause]:
    driver, pool, device, share = device_key(value)
    causes = reference(value.get("request", ""), f"{path}.request", names)
    causes += driver_name(driver, f"{path}.driver") + pool_name(pool, f"{path}.pool")
    causes += label(device, f"{path}.device") + binding_conditions(value, path)
    return causes + _share(value, share, path)


def _share(value: Object, share: str, path: str) -> list[Cause]:
    if "shareID" not in value:
        return []
    try:
        normal = str(UUID(share))
    except ValueError:
        detail = f"error validating uid: invalid UUID length: {len(share)}"
        return [invalid_value(f"{path}.shareID", share, detail)]
    if normal == share:
        return []
    detail = (
        "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` "
        "with lowercase hexadecimal characters"
    )
    return [invalid_value(f"{path}.shareID", share, detail)]


def _source(source: str, path: str) -> list[Cause]:
    known = ("FromClaim", "FromClass")
    if not source:
        return [required(path)]
    return [] if source in known else [unsupported_value(path, f'"{source}"', known)]


# ---------------------------------------------------------------- what drivers say


def _device(value: Object, path: str, allocated: set[DeviceKey]) -> list[Cause]:
    driver, pool, device, share = key = device_key(value)
    causes = driver_name(driver, f"{path}.driver") + pool_name(pool, f"{path}.pool")
    causes += label(device, f"{path}.device") + _share(value, share, path)
    if key not in allocated:
        shown = "/".join(filter(None, key))
        causes.append(invalid_value(path, shown, "must be an allocated device in the claim"))
    conditions, where = value.get("conditions", ()), f"{path}.conditions"
    if len(conditions) > _MAX_CONDITIONS:
        causes.append(too_many(where, len(conditions), _MAX_CONDITIONS))
    causes += distinct(conditions, where, condition, key=condition_type, at=".type")
    if value.get("data") is not None:
        causes += raw_object(value["data"], f"{path}.data")
    return causes + _network(value.get("networkData") or {}, f"{path}.networkData")


def condition_type(value: Object) -> str:
    """The key of a list of conditions."""
    return str(value.get("type", ""))


def condition(value: Object, path: str) -> list[Cause]:
    """A Condition of metav1."""
    causes = label_key_mistakes(f"{path}.type", condition_type(value))
    status, reason = value.get("status", ""), value.get("reason", "")
    if status not in _STATUSES:
        causes.append(unsupported_value(f"{path}.status", f'"{status}"', _STATUSES))
    if value.get("observedGeneration", 0) < 0:
        generation, detail = value["observedGeneration"], "must be greater than or equal to zero"
        causes.append(invalid_value(f"{path}.observedGeneration", generation, detail))
    if not value.get("lastTransitionTime"):
        causes.append(required(f"{path}.lastTransitionTime"))
    if not reason:
        causes.append(required(f"{path}.reason"))
    elif not _is_reason(reason):
        causes.append(invalid_value(f"{path}.reason", reason, _NOT_A_REASON))
    if len(reason) > _MAX_REASON:
        causes.append(too_long(f"{path}.reason", _MAX_REASON))
    if len(value.get("message", "")) > _MAX_MESSAGE:
        causes.append(too_long(f"{path}.message", _MAX_MESSAGE))
    return causes


def _network(value: Object, path: str) -> list[Cause]:
    limits = {"interfaceName": _MAX_INTERFACE, "hardwareAddress": _MAX_HARDWARE}
    causes = [
        too_long(f"{path}.{name}", limit)
        for name, limit in limits.items()
        if len(value.get(name, "")) > limit
    ]
    return causes + distinct(
        value.get("ips", ()), f"{path}.ips", _address, key=itself, most=_MAX_ADDRESSES
    )


def _address(text: str, path: str) -> list[Cause]:
    try:
        normal = str(ipaddress.ip_interface(text)) if "/" in text else None
    except ValueError:
        normal = None
    if normal is None:
        detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        return [invalid_value(path, text, detail)]
    return (
        []
        if normal == text
        else [invalid_value(path, text, f'must be in canonical form ("{normal}")')]
    )
