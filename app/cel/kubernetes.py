"""Kubernetes' types and their functions: quantities, semantic versions, IP addresses and networks (KEP-2876)."""

import ipaddress
import math
import re
from collections.abc import Callable
from typing import Any, Final

from app.cel.errors import EvaluationError
from app.cel.types import INT_MAX, INT_MIN, UINT_MAX
from app.model.gotext import quote
from app.model.quantity import BINARY, cut_digits, decimal_exponent

# ---------------------------------------------------------------- quantities


class QuantityValue:
    """A quantity: ``unscaled`` times ten to the power of ``scale``.

    ``big`` is set if Kubernetes does not hold it as an int64, and therefore does not call it an integer. ``computed``
    is set for sums and differences: in Kubernetes ``x == sum`` is an error for them.
    """

    __slots__ = ("big", "computed", "scale", "unscaled")

    def __init__(
        self, unscaled: int, scale: int = 0, *, big: bool = False, computed: bool = False
    ) -> None:
        self.unscaled: Final = unscaled
        self.scale: Final = scale
        self.big: Final = big
        self.computed: Final = computed

    @classmethod
    def parse(cls, text: str) -> "QuantityValue":
        """Reads a quantity such as ``1.5Gi``. Raises EvaluationError with Kubernetes' words.

        Takes time linear in the length of the text. Digits after the 1000th are rounded up, exponents are cut at
        +-2000.
        """
        match = _QUANTITY.fullmatch(text)
        if match is None or not text:
            raise EvaluationError(
                "quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )
        sign, num, denom, suffix = match[1], match[2] or "0", match[3] or "", match[4]
        number, places, _ = cut_digits(num, denom, _MAX_DIGITS)
        number = -number if sign == "-" else number
        if suffix in BINARY:
            return cls._binary(number, len(num), max(0, places), BINARY[suffix])
        exponent = decimal_exponent(suffix)
        if exponent is None:
            raise EvaluationError("unable to parse quantity's suffix")
        scale = max(-_MAX_EXPONENT, min(_MAX_EXPONENT, exponent - places))
        if len(num) + len(denom) <= 18 and scale >= -9:
            return cls(number, scale)
        return cls._rounded(number, scale)

    @classmethod
    def _binary(cls, number: int, digits: int, places: int, exponent: int) -> "QuantityValue":
        amount = number << exponent
        precision = 15 - digits - int(exponent * 3 / 10) - 1
        if not places and precision >= 0 and abs(amount) <= INT_MAX:
            return cls(amount)
        if abs(amount) > INT_MAX * 10**places:
            return cls(INT_MAX if number > 0 else -INT_MAX, big=True)
        return cls._rounded(amount, -places)

    @classmethod
    def _rounded(cls, number: int, scale: int) -> "QuantityValue":
        """A quantity in units of 10^-9. Finer fractions are rounded away from zero."""
        if not number:
            return cls(0, big=True)
        power = scale + 9
        if power >= 0:
            return cls(number * 10**power, -9, big=True)
        nanos = -(-abs(number) // 10**-power)
        return cls(nanos if number > 0 else -nanos, -9, big=True)

    def at(self, scale: int) -> int:
        """The amount in units of ten to the power of ``scale``, which must not be coarser than its own."""
        return self.unscaled * int(10 ** (self.scale - scale))

    def compare(self, other: "QuantityValue") -> int:
        """-1, 0 or 1."""
        scale = min(self.scale, other.scale)
        mine, its = self.at(scale), other.at(scale)
        return (mine > its) - (mine < its)

    def plus(self, other: "QuantityValue", sign: int = 1) -> "QuantityValue":
        """The sum, or with a ``sign`` of -1 the difference."""
        if not (self.big or other.big):
            if not other.unscaled:
                return QuantityValue(self.unscaled, self.scale, computed=True)
            scale = min(self.scale, other.scale) if self.unscaled else other.scale
            total = (self.at(scale) if self.unscaled else 0) + sign * other.at(scale)
            return QuantityValue(total, scale, big=not INT_MIN <= total <= INT_MAX, computed=True)
        scale = min(self.scale, other.scale)
        return QuantityValue(
            self.at(scale) + sign * other.at(scale), scale, big=True, computed=True
        )

    def whole(self) -> int | None:
        """The amount as an int64; None for amounts that Kubernetes does not call integers."""
        if self.big or self.scale < 0:
            return None
        amount = self.at(0)
        return amount if INT_MIN <= amount <= INT_MAX else None


_MAX_DIGITS: Final = 1000
_MAX_EXPONENT: Final = 2000
# Possessive quantifiers: the pattern does not backtrack, so it takes linear time.
_QUANTITY: Final = re.compile(r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?[0-9]*+)")


def _as_integer(quantity: QuantityValue) -> int:
    amount = quantity.whole()
    if amount is None:
        raise EvaluationError("cannot convert value to integer")
    return amount


def _as_double(quantity: QuantityValue) -> float:
    try:
        base = float(quantity.unscaled)
        return base * 10.0**quantity.scale if quantity.scale else base
    except OverflowError:
        return math.inf if quantity.unscaled > 0 else -math.inf


# ---------------------------------------------------------------- versions


class Semver:
    """A semantic version (semver.org 2.0.0). Its build metadata is checked but not kept, because no function reads
    it."""

    __slots__ = ("major", "minor", "patch", "prerelease")

    def __init__(self, text: str) -> None:
        """Reads a version such as ``1.2.3-rc.1``. Raises EvaluationError."""
        if not text:
            raise EvaluationError("Version string empty")
        parts = text.split(".", 2)
        if len(parts) != 3:
            raise EvaluationError("No Major.Minor.Patch elements found")
        self.major: Final = _version_number("major", parts[0])
        self.minor: Final = _version_number("minor", parts[1])
        rest, _, build = parts[2].partition("+")
        patch, dash, prerelease = rest.partition("-")
        self.patch: Final = _version_number("patch", patch)
        self.prerelease: Final = (
            tuple(map(_prerelease, prerelease.split("."))) if dash else ()
        )  # numbers before words
        for it in build.split(".") if "+" in parts[2] else ():
            if not it:
                raise EvaluationError("Build meta data is empty")
            if not _ALPHANUM.fullmatch(it):
                raise EvaluationError(f"Invalid character(s) found in build meta data {quote(it)}")

    @classmethod
    def normalized(cls, text: str) -> "Semver":
        """Reads a version that may also look like ``v1``, ``1.2`` or ``01.2.3``. Raises EvaluationError."""
        parts = text.removeprefix("v").split(".", 2)
        for place, part in enumerate(parts):
            if len(part) > 1:
                stripped = part.lstrip("0")
                parts[place] = stripped if stripped[:1].isdecimal() else f"0{stripped}"
        if len(parts) < 3:
            if "+" in parts[-1] or "-" in parts[-1]:
                raise EvaluationError("short version cannot contain PreRelease/Build meta data")
            parts += ["0"] * (3 - len(parts))
        return cls(".".join(parts))

    def compare(self, other: "Semver") -> int:
        """-1, 0 or 1. A prerelease is before its release."""
        mine = (self.major, self.minor, self.patch, not self.prerelease, self.prerelease)
        its = (other.major, other.minor, other.patch, not other.prerelease, other.prerelease)
        return (mine > its) - (mine < its)


_ALPHANUM = re.compile(r"[0-9A-Za-z-]*")
_DIGITS = re.compile(r"[0-9]*")


def _version_number(name: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in {name} number {quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(
            f"{name.capitalize()} number must not contain leading zeroes {quote(text)}"
        )
    return _parse_uint(text)


def _prerelease(text: str) -> tuple[bool, int, str]:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise EvaluationError(
                f"Numeric PreRelease version must not contain leading zeroes {quote(text)}"
            )
        return False, _parse_uint(text), ""
    if not _ALPHANUM.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in prerelease {quote(text)}")
    return True, 0, text


def _parse_uint(text: str) -> int:
    if not text:
        raise EvaluationError('strconv.ParseUint: parsing "": invalid syntax')
    number = int(text) if len(text) <= 20 else UINT_MAX + 1
    if number > UINT_MAX:
        raise EvaluationError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return number


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


# ---------------------------------------------------------------- addresses and networks


class IPAddress:
    """An IP address (net.IP)."""

    __slots__ = ("ip",)

    def __init__(self, ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
        self.ip: Final = ip

    @classmethod
    def parse(cls, text: str) -> "IPAddress":
        """Reads an address. Raises EvaluationError, also for zones and for IPv4-mapped IPv6 addresses."""
        try:
            ip = ipaddress.ip_address(text)
        except ValueError as error:
            raise EvaluationError(
                f"IP Address {quote(text)} parse error during conversion from string: {error}"
            ) from None
        if isinstance(ip, ipaddress.IPv6Address):
            if ip.scope_id:
                raise EvaluationError(f"IP address {quote(text)} with zone value is not allowed")
            if ip.ipv4_mapped:
                raise EvaluationError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
        return cls(ip)

    def __len__(self) -> int:
        return self.ip.max_prefixlen // 8

    def __str__(self) -> str:
        return str(self.ip)


class Network:
    """A network (net.CIDR): an address and the length of a prefix in bits."""

    __slots__ = ("address", "bits")

    def __init__(self, address: IPAddress, bits: int) -> None:
        self.address: Final = address
        self.bits: Final = bits

    @classmethod
    def parse(cls, text: str) -> "Network":
        """Reads a network such as ``10.0.0.0/8``. Raises EvaluationError."""
        text, slash, bits = text.rpartition("/")
        try:
            address = IPAddress.parse(text)
        except EvaluationError as error:
            raise cls._wrong(str(error)) from None
        if not slash or not _BITS.fullmatch(bits) or int(bits) > address.ip.max_prefixlen:
            raise cls._wrong("bad prefix length")
        return cls(address, int(bits))

    @staticmethod
    def _wrong(why: str) -> EvaluationError:
        return EvaluationError(f"network address parse error during conversion from string: {why}")

    def masked(self) -> "Network":
        """The network with the bits after the prefix set to zero."""
        first = ipaddress.ip_network((self.address.ip, self.bits), strict=False).network_address
        return Network(IPAddress(first), self.bits)

    def covers(self, address: IPAddress) -> bool:
        """Whether an address is in the network."""
        network = ipaddress.ip_network((self.address.ip, self.bits), strict=False)
        return address.ip in network

    def __len__(self) -> int:
        return (self.bits + 7) // 8

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


_BITS = re.compile(r"0|[1-9][0-9]{0,2}")


def _is_global_unicast(address: IPAddress) -> bool:
    ip = address.ip
    if ip.version == 4 and str(ip) == "255.255.255.255":
        return False
    return not (ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local)


def _is_link_local_multicast(address: IPAddress) -> bool:
    packed = address.ip.packed
    if address.ip.version == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 2


def _covers(network: Network, other: Network) -> bool:
    return network.bits <= other.bits and network.covers(other.address)


# ---------------------------------------------------------------- functions


def _is(parse: type[QuantityValue | IPAddress | Network], text: str) -> bool:
    try:
        parse.parse(text)
    except EvaluationError:
        return False
    return True


TYPED: Final[dict[str, Callable[..., Any]]] = {
    "quantity(string): Quantity": QuantityValue.parse,
    "isQuantity(string): bool": lambda it: _is(QuantityValue, it),
    "sign(Quantity): int": lambda it: (it.unscaled > 0) - (it.unscaled < 0),
    "Quantity.isGreaterThan(Quantity): bool": lambda one, other: one.compare(other) > 0,
    "Quantity.isLessThan(Quantity): bool": lambda one, other: one.compare(other) < 0,
    "Quantity.compareTo(Quantity): int": QuantityValue.compare,
    "Quantity.asApproximateFloat(): double": _as_double,
    "Quantity.asInteger(): int": _as_integer,
    "Quantity.isInteger(): bool": lambda it: it.whole() is not None,
    "Quantity.add(Quantity): Quantity": QuantityValue.plus,
    "Quantity.add(int): Quantity": lambda one, other: one.plus(QuantityValue(other)),
    "Quantity.sub(Quantity): Quantity": lambda one, other: one.plus(other, -1),
    "Quantity.sub(int): Quantity": lambda one, other: one.plus(QuantityValue(other), -1),
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
    "ip(string): IP": IPAddress.parse,
    "isIP(string): bool": lambda it: _is(IPAddress, it),
    "ip.isCanonical(string): bool": lambda it: str(IPAddress.parse(it)) == it,
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
    "CIDR.containsIP(string): bool": lambda it, text: it.covers(IPAddress.parse(text)),
    "CIDR.containsIP(IP): bool": Network.covers,
    "CIDR.containsCIDR(string): bool": lambda it, text: _covers(it, Network.parse(text)),
    "CIDR.containsCIDR(CIDR): bool": _covers,
    "CIDR.ip(): IP": lambda it: it.address,
    "CIDR.prefixLength(): int": lambda it: it.bits,
    "CIDR.masked(): CIDR": Network.masked,
}
