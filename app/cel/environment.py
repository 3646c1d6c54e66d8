"""What expressions may name: functions, types, and the fields of a device."""

from app.cel import kubernetes, lists, standard, strings
from app.cel.declarations import CIDR, DEVICE, IP, QUANTITY, SEMVER, Overload, parse
from app.cel.syntax import Variable
from app.cel.types import NULL, Type

VARIABLES = {"device": Variable("device", DEVICE)}
FIELDS: dict[str, dict[str, Type]] = {
    DEVICE.name: {
        "driver": parse("string"),
        "attributes": parse("map<string, map<string, any>>"),
        "capacity": parse("map<string, map<string, Quantity>>"),
        "allowMultipleAllocations": parse("bool"),
    }
}
FIELDLESS = frozenset({QUANTITY.name, SEMVER.name})
"""Types that have methods only."""
TYPES: dict[str, Type] = {
    it.name: it
    for it in (
        *map(parse, ("bool", "double", "int", "string", "uint", "list<A>", "map<A, B>")),
        *(NULL, parse("optional<A>"), IP, CIDR, parse("type<A>")),
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
ABSENT = frozenset({"bytes", "duration", "format", "isURL", "strings.quote", "timestamp", "url"})
"""Functions of Kubernetes that are not built: of times, bytes and URLs, and such as make texts for people."""
