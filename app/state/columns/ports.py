"""Host ports in use, by row (docs/spec/matching.md#host-ports).

Uses are counted: if two pods on one node have the same port (bound by hand, for example), the port is free when the
last one is removed. kube-scheduler frees it with the first one.
"""

from collections.abc import Collection, Iterable

from app.model.pod import HostPort
from app.state.columns.volumes import count_use

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - Kubernetes' text for "every address"; no socket is bound


def conflicts(wanted: HostPort, used: HostPort) -> bool:
    """Whether two host ports conflict: same protocol and port, and the same address or either has every address."""
    return (
        wanted.port == used.port
        and wanted.protocol == used.protocol
        and (ANY_ADDRESS in {wanted.ip, used.ip} or wanted.ip == used.ip)
    )


class HostPorts:
    """The rows on which a host port is in use: ``(protocol, port) -> address -> row -> number of uses``."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, int], dict[str, dict[int, int]]] = {}

    def add(self, row: int, ports: Iterable[HostPort]) -> None:
        """Marks ports as in use on a row."""
        for port in ports:
            by_ip = self._claims.setdefault((port.protocol, port.port), {})
            count_use(by_ip, port.ip, row, 1)

    def remove(self, row: int, ports: Iterable[HostPort]) -> None:
        """Removes one use of each port on a row; they must be in use there."""
        for port in ports:
            by_ip = self._claims[port.protocol, port.port]
            count_use(by_ip, port.ip, row, -1)
            if not by_ip:
                del self._claims[port.protocol, port.port]

    def claimed_rows(self, ports: Iterable[HostPort]) -> list[Collection[int]]:
        """The rows on which any of ``ports`` is in use: several collections, which may overlap, with fast lookup."""
        claimed: list[Collection[int]] = []
        for port in ports:
            by_ip = self._claims.get((port.protocol, port.port), {})
            addresses = by_ip if port.ip == ANY_ADDRESS else {ANY_ADDRESS, port.ip}
            claimed += [by_ip[address].keys() for address in addresses if address in by_ip]
        return claimed
