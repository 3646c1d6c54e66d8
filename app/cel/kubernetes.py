"""Types and functions of Kubernetes: quantities, semantic versions, addresses and networks (KEP-2876)."""

from app.cel.addresses import Address, Network
from app.cel.basics import INT_MAX
from app.cel.declarations import Overload, function, method
from app.cel.errors import EvaluationError
from app.cel.quantities import Quantity
from app.cel.types import ANY, BOOL, DOUBLE, INT, STRING, map_of, named, opaque
from app.cel.versions import Semver

QUANTITY = named("kubernetes.Quantity")
SEMVER = named("kubernetes.Semver")
DEVICE = named("kubernetes.DRADevice")
IP = opaque("net.IP")
CIDR = opaque("net.CIDR")

DEVICE_FIELDS = {
    "driver": STRING,
    "attributes": map_of(STRING, map_of(STRING, ANY)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    "allowMultipleAllocations": BOOL,
}


def _is(parse: type[Quantity | Address | Network], text: str) -> bool:
    try:
        parse.parse(text)
    except EvaluationError:
        return False
    return True


# ---------------------------------------------------------------- quantities


def _as_integer(quantity: Quantity) -> int:
    amount = quantity.whole()
    if amount is None:
        raise EvaluationError("cannot convert value to integer")
    return amount


def _as_double(quantity: Quantity) -> float:
    base = float(quantity.unscaled)
    return base * 10.0**quantity.scale if quantity.scale else base


def _sign(quantity: Quantity) -> int:
    return (quantity.unscaled > 0) - (quantity.unscaled < 0)


# ---------------------------------------------------------------- versions


def _semver(text: str, normalize: bool = False) -> Semver:
    return Semver.normalized(text) if normalize else Semver(text)


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        _semver(text, normalize)
    except EvaluationError:
        return False
    return True


def _part(number: int) -> int:
    return number if number <= INT_MAX else number - 2**64


# ---------------------------------------------------------------- addresses


def _is_global_unicast(address: Address) -> bool:
    ip = address.ip
    if ip.version == 4 and str(ip) == "255.255.255.255":
        return False
    return not (ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local)


def _is_link_local_multicast(address: Address) -> bool:
    packed = address.ip.packed
    if address.ip.version == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 2


def _contains_network(network: Network, other: Network) -> bool:
    return network.bits <= other.bits and network.covers(other.address)


OVERLOADS: list[Overload] = [
    function("quantity", "string_to_quantity", (STRING,), QUANTITY, Quantity.parse),
    function("isQuantity", "is_quantity_string", (STRING,), BOOL, lambda it: _is(Quantity, it)),
    function("sign", "quantity_sign", (QUANTITY,), INT, _sign),
    method(
        "isGreaterThan",
        "quantity_is_greater_than",
        (QUANTITY, QUANTITY),
        BOOL,
        lambda one, other: one.compare(other) > 0,
    ),
    method(
        "isLessThan",
        "quantity_is_less_than",
        (QUANTITY, QUANTITY),
        BOOL,
        lambda one, other: one.compare(other) < 0,
    ),
    method("compareTo", "quantity_compare_to", (QUANTITY, QUANTITY), INT, Quantity.compare),
    method("asApproximateFloat", "quantity_get_float", (QUANTITY,), DOUBLE, _as_double),
    method("asInteger", "quantity_get_int", (QUANTITY,), INT, _as_integer),
    method(
        "isInteger", "quantity_is_integer", (QUANTITY,), BOOL, lambda it: it.whole() is not None
    ),
    method("add", "quantity_add", (QUANTITY, QUANTITY), QUANTITY, Quantity.plus),
    method(
        "add",
        "quantity_add_int",
        (QUANTITY, INT),
        QUANTITY,
        lambda one, other: one.plus(Quantity(other)),
    ),
    method(
        "sub",
        "quantity_sub",
        (QUANTITY, QUANTITY),
        QUANTITY,
        lambda one, other: one.plus(other, -1),
    ),
    method(
        "sub",
        "quantity_sub_int",
        (QUANTITY, INT),
        QUANTITY,
        lambda one, other: one.plus(Quantity(other), -1),
    ),
    function("semver", "string_to_semver", (STRING,), SEMVER, _semver),
    function("semver", "string_bool_to_semver", (STRING, BOOL), SEMVER, _semver),
    function("isSemver", "is_semver_string", (STRING,), BOOL, _is_semver),
    function("isSemver", "is_semver_string_bool", (STRING, BOOL), BOOL, _is_semver),
    method(
        "isGreaterThan",
        "semver_is_greater_than",
        (SEMVER, SEMVER),
        BOOL,
        lambda one, other: one.compare(other) > 0,
    ),
    method(
        "isLessThan",
        "semver_is_less_than",
        (SEMVER, SEMVER),
        BOOL,
        lambda one, other: one.compare(other) < 0,
    ),
    method("compareTo", "semver_compare_to", (SEMVER, SEMVER), INT, Semver.compare),
    method("major", "semver_major", (SEMVER,), INT, lambda it: _part(it.major)),
    method("minor", "semver_minor", (SEMVER,), INT, lambda it: _part(it.minor)),
    method("patch", "semver_patch", (SEMVER,), INT, lambda it: _part(it.patch)),
    function("ip", "string_to_ip", (STRING,), IP, Address.parse),
    function("isIP", "is_ip", (STRING,), BOOL, lambda it: _is(Address, it)),
    function(
        "ip.isCanonical",
        "ip_is_canonical",
        (STRING,),
        BOOL,
        lambda it: str(Address.parse(it)) == it,
    ),
    function("string", "ip_to_string", (IP,), STRING, str),
    method("family", "ip_family", (IP,), INT, lambda it: it.ip.version),
    method("isUnspecified", "ip_is_unspecified", (IP,), BOOL, lambda it: it.ip.is_unspecified),
    method("isLoopback", "ip_is_loopback", (IP,), BOOL, lambda it: it.ip.is_loopback),
    method(
        "isLinkLocalMulticast",
        "ip_is_link_local_multicast",
        (IP,),
        BOOL,
        _is_link_local_multicast,
    ),
    method(
        "isLinkLocalUnicast",
        "ip_is_link_local_unicast",
        (IP,),
        BOOL,
        lambda it: it.ip.is_link_local,
    ),
    method("isGlobalUnicast", "ip_is_global_unicast", (IP,), BOOL, _is_global_unicast),
    function("cidr", "string_to_cidr", (STRING,), CIDR, Network.parse),
    function("isCIDR", "is_cidr", (STRING,), BOOL, lambda it: _is(Network, it)),
    function("string", "cidr_to_string", (CIDR,), STRING, str),
    method(
        "containsIP",
        "cidr_contains_ip_string",
        (CIDR, STRING),
        BOOL,
        lambda it, text: it.covers(Address.parse(text)),
    ),
    method("containsIP", "cidr_contains_ip_ip", (CIDR, IP), BOOL, Network.covers),
    method(
        "containsCIDR",
        "cidr_contains_cidr_string",
        (CIDR, STRING),
        BOOL,
        lambda it, text: _contains_network(it, Network.parse(text)),
    ),
    method("containsCIDR", "cidr_contains_cidr", (CIDR, CIDR), BOOL, _contains_network),
    method("ip", "cidr_ip", (CIDR,), IP, lambda it: it.address),
    method("prefixLength", "cidr_prefix_length", (CIDR,), INT, lambda it: it.bits),
    method("masked", "cidr_masked", (CIDR,), CIDR, Network.masked),
]
