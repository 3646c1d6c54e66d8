"""Paths of resources: ``/apis/G/V/namespaces/NS/PLURAL/NAME/SUBRESOURCE``."""

from collections.abc import Mapping
from typing import NamedTuple

from app.sim.resources.kinds import BY_PATH, Kind


class ResourcePath(NamedTuple):
    """What a path of the API names."""

    kind: Kind
    namespace: str | None
    """Empty for cluster-scoped kinds; None for all namespaces."""
    name: str = ""
    """Empty for the collection."""
    subresource: str = ""


ByPath = Mapping[tuple[str, str, str], Kind]
"""(group, version, plural) -> kind."""


def parse_path(path: str, kinds: ByPath = BY_PATH) -> ResourcePath | None:
    """The resource that a path names, or None if there is no such resource."""
    root, _, rest = path[1:].partition("/")
    parts = rest.rstrip("/").split("/")
    if root == "api":
        group, version, segments = "", parts[0], parts[1:]
    elif root == "apis" and len(parts) > 1:
        group, version, segments = parts[0], parts[1], parts[2:]
    else:
        return None
    return _below(group, version, segments, kinds)


def _below(group: str, version: str, segments: list[str], kinds: ByPath) -> ResourcePath | None:
    namespace: str | None = None
    if segments[:1] == ["namespaces"] and len(segments) > 2:
        inner = kinds.get((group, version, segments[2]))
        if inner is not None and inner.namespaced:
            namespace, segments = segments[1], segments[2:]
    if not 1 <= len(segments) <= 3:
        return None
    kind = kinds.get((group, version, segments[0]))
    if kind is None:
        return None
    if not kind.namespaced:
        namespace = ""
    elif namespace is None and len(segments) > 1:
        return None
    return ResourcePath(kind, namespace, *segments[1:])
