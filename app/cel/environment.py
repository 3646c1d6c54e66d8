"""What expressions may name: functions, types, and the fields of a device."""

from app.cel import kubernetes, lists, standard, strings
from app.cel.declarations import Overload
from app.cel.syntax import Variable
from app.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    parameter,
    type_of,
)

_A, _B = parameter("A"), parameter("B")
VARIABLES = {"device": Variable("device", kubernetes.DEVICE)}
FIELDS: dict[str, dict[str, Type]] = {kubernetes.DEVICE.name: kubernetes.DEVICE_FIELDS}
FIELDLESS = frozenset({kubernetes.QUANTITY.name, kubernetes.SEMVER.name})
"""Types that have methods only."""
TYPES: dict[str, Type] = {
    it.name: it
    for it in (
        BOOL,
        BYTES,
        DOUBLE,
        DURATION,
        INT,
        list_of(_A),
        map_of(_A, _B),
        NULL,
        STRING,
        TIMESTAMP,
        UINT,
        optional_of(_A),
        kubernetes.IP,
        kubernetes.CIDR,
        type_of(_A),
    )
}
"""Names that stand for types."""


def _functions() -> dict[str, tuple[Overload, ...]]:
    found: dict[str, list[Overload]] = {}
    for module in (standard, lists, strings, kubernetes):
        for overload in module.OVERLOADS:
            found.setdefault(overload.name, []).append(overload)
    return {name: tuple(overloads) for name, overloads in found.items()}


FUNCTIONS = _functions()
_FORMATS = (
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
    "named",
)
ABSENT = frozenset({"url", "isURL", *(f"format.{it}" for it in _FORMATS)})
"""Functions of Kubernetes that are not built."""
