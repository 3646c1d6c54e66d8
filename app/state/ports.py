"""Host ports in use, by row (spec: plugins.md 2.0).

As in kube-scheduler the set of a node is not counted: of two equal entries, the first that goes frees the port.
"""

from collections.abc import Iterable

from app.model.pod import HostPort

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - how Kubernetes writes "every address"; nothing is bound here


def conflicts(wanted: HostPort, used: HostPort) -> bool:
    """Whether two claims collide: same protocol and port, and the same address or either is every address."""
    return (
        wanted.port == used.port
        and wanted.protocol == used.protocol
        and (ANY_ADDRESS in {wanted.ip, used.ip} or wanted.ip == used.ip)
    )


class HostPorts:
    """Which rows have a host port in use: ``(protocol, port) -> address -> rows``."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], dict[str, set[int]]] = {}

    def add(self, row: int, ports: Iterable[HostPort]) -> None:
        """Marks ports as in use on a row."""
        for port in ports:
            by_ip = self._rows.setdefault((port.protocol, port.port), {})
            by_ip.setdefault(port.ip, set()).add(row)

    def remove(self, row: int, ports: Iterable[HostPort]) -> None:
        """Frees ports on a row."""
        for port in ports:
            by_ip = self._rows.get((port.protocol, port.port), {})
            rows = by_ip.get(port.ip, set())
            rows.discard(row)
            if not rows:
                by_ip.pop(port.ip, None)

    def conflicting_rows(self, ports: Iterable[HostPort]) -> set[int]:
        """The rows on which any of ``ports`` is taken."""
        rows: set[int] = set()
        for port in ports:
            by_ip = self._rows.get((port.protocol, port.port), {})
            addresses = by_ip if port.ip == ANY_ADDRESS else (ANY_ADDRESS, port.ip)
            for address in addresses:
                rows |= by_ip.get(address, set())
        return rows
