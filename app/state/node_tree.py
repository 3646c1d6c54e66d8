"""The node tree: node names grouped by zone and read out zone by zone in turn (spec: plugins.md 5.3)."""

from collections.abc import Iterator, Mapping
from typing import Final

_ZONE_LABELS: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION_LABELS: Final = (
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/region",
)


def zone_key(labels: Mapping[str, str]) -> str:
    """Region and zone of a node in one text; empty where it has neither."""
    zone = next((labels[key] for key in _ZONE_LABELS if key in labels), "")
    region = next((labels[key] for key in _REGION_LABELS if key in labels), "")
    return f"{region}:\x00:{zone}" if zone or region else ""


class NodeTree:
    """Node names by zone, zones in the order they were first seen."""

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._zone_of)

    def put(self, name: str, labels: Mapping[str, str]) -> None:
        """Adds a node, or moves it to the end of its new zone if that has changed."""
        zone = zone_key(labels)
        if self._zone_of.get(name) == zone:
            return
        self.remove(name)
        self._zones.setdefault(zone, {})[name] = None
        self._zone_of[name] = zone

    def remove(self, name: str) -> None:
        """Forgets a node; one that is not there is no error."""
        zone = self._zone_of.pop(name, None)
        if zone is None:
            return
        del self._zones[zone][name]
        if not self._zones[zone]:
            del self._zones[zone]

    def __iter__(self) -> Iterator[str]:
        """Names, one of each zone in turn."""
        pending = [iter(names) for names in self._zones.values()]
        while pending:
            still = []
            for names in pending:
                name = next(names, None)
                if name is not None:
                    yield name
                    still.append(names)
            pending = still
