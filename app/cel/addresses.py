"""Addresses and networks."""

import ipaddress
import re
from typing import Final

from app.cel.basics import quote
from app.cel.errors import EvaluationError


class Address:
    """net.IP."""

    __slots__ = ("ip",)

    def __init__(self, ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
        self.ip: Final = ip

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Raises EvaluationError; zones and IPv4 addresses within IPv6 are not taken."""
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
    """net.CIDR: an address and the length of a prefix."""

    __slots__ = ("address", "bits")

    def __init__(self, address: Address, bits: int) -> None:
        self.address: Final = address
        self.bits: Final = bits

    @classmethod
    def parse(cls, text: str) -> "Network":
        """Raises EvaluationError."""
        text, slash, bits = text.rpartition("/")
        try:
            address = Address.parse(text)
        except EvaluationError as error:
            raise cls._wrong(str(error)) from None
        if not slash or not _BITS.fullmatch(bits) or int(bits) > address.ip.max_prefixlen:
            raise cls._wrong("bad prefix length")
        return cls(address, int(bits))

    @staticmethod
    def _wrong(why: str) -> EvaluationError:
        return EvaluationError(f"network address parse error during conversion from string: {why}")

    def masked(self) -> "Network":
        """The same network by its first address."""
        first = ipaddress.ip_network((self.address.ip, self.bits), strict=False).network_address
        return Network(Address(first), self.bits)

    def covers(self, address: Address) -> bool:
        """Whether an address is in the network."""
        network = ipaddress.ip_network((self.address.ip, self.bits), strict=False)
        return address.ip in network

    def __len__(self) -> int:
        return (self.bits + 7) // 8

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


_BITS = re.compile(r"0|[1-9][0-9]{0,2}")
