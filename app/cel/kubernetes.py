"""Functions of Kubernetes' types: quantities, semantic versions, addresses and networks (KEP-2876)."""

import math

from app.cel.addresses import Address, Network
from app.cel.basics import INT_MAX
from app.cel.declarations import Overload, declare
from app.cel.errors import EvaluationError
from app.cel.quantities import Quantity
from app.cel.versions import Semver


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
    try:
        base = float(quantity.unscaled)
        return base * 10.0**quantity.scale if quantity.scale else base
    except OverflowError:
        return math.inf if quantity.unscaled > 0 else -math.inf


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


def _covers(network: Network, other: Network) -> bool:
    return network.bits <= other.bits and network.covers(other.address)


OVERLOADS: list[Overload] = declare(
    {
        "quantity(string): Quantity": Quantity.parse,
        "isQuantity(string): bool": lambda it: _is(Quantity, it),
        "sign(Quantity): int": _sign,
        "Quantity.isGreaterThan(Quantity): bool": lambda one, other: one.compare(other) > 0,
        "Quantity.isLessThan(Quantity): bool": lambda one, other: one.compare(other) < 0,
        "Quantity.compareTo(Quantity): int": Quantity.compare,
        "Quantity.asApproximateFloat(): double": _as_double,
        "Quantity.asInteger(): int": _as_integer,
        "Quantity.isInteger(): bool": lambda it: it.whole() is not None,
        "Quantity.add(Quantity): Quantity": Quantity.plus,
        "Quantity.add(int): Quantity": lambda one, other: one.plus(Quantity(other)),
        "Quantity.sub(Quantity): Quantity": lambda one, other: one.plus(other, -1),
        "Quantity.sub(int): Quantity": lambda one, other: one.plus(Quantity(other), -1),
        "semver(string): Semver": _semver,
        "semver(string, bool): Semver": _semver,
        "isSemver(string): bool": _is_semver,
        "isSemver(string, bool): bool": _is_semver,
        "Semver.isGreaterThan(Semver): bool": lambda one, other: one.compare(other) > 0,
        "Semver.isLessThan(Semver): bool": lambda one, other: one.compare(other) < 0,
        "Semver.compareTo(Semver): int": Semver.compare,
        "Semver.major(): int": lambda it: _part(it.major),
        "Semver.minor(): int": lambda it: _part(it.minor),
        "Semver.patch(): int": lambda it: _part(it.patch),
        "ip(string): IP": Address.parse,
        "isIP(string): bool": lambda it: _is(Address, it),
        "ip.isCanonical(string): bool": lambda it: str(Address.parse(it)) == it,
        "string(IP): string": str,
        "IP.family(): int": lambda it: it.ip.version,
        "IP.isUnspecified(): bool": lambda it: it.ip.is_unspecified,
        "IP.isLoopback(): bool": lambda it: it.ip.is_loopback,
        "IP.isLinkLocalMulticast(): bool": _is_link_local_multicast,
        "IP.isLinkLocalUnicast(): bool": lambda it: it.ip.is_link_local,
        "IP.isGlobalUnicast(): bool": _is_global_unicast,
        "cidr(string): CIDR": Network.parse,
        "isCIDR(string): bool": lambda it: _is(Network, it),
        "string(CIDR): string": str,
        "CIDR.containsIP(string): bool": lambda it, text: it.covers(Address.parse(text)),
        "CIDR.containsIP(IP): bool": Network.covers,
        "CIDR.containsCIDR(string): bool": lambda it, text: _covers(it, Network.parse(text)),
        "CIDR.containsCIDR(CIDR): bool": _covers,
        "CIDR.ip(): IP": lambda it: it.address,
        "CIDR.prefixLength(): int": lambda it: it.bits,
        "CIDR.masked(): CIDR": Network.masked,
    }
)
