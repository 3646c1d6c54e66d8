"""Who controls what."""

from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]
OwnerKey = tuple[str, str, str]
"""(kind, namespace, name)."""


def key_of(value: Object) -> OwnerKey:
    """What owner references are compared by: uids of dumps may be gone."""
    metadata = value["metadata"]
    return value["kind"], metadata["namespace"], metadata["name"]


def controller_of(value: Object) -> OwnerKey | None:
    """Who controls an object."""
    metadata = value["metadata"]
    owners: Iterable[Object] = metadata.get("ownerReferences", ())
    for owner in owners:
        if owner.get("controller"):
            return owner["kind"], metadata.get("namespace") or "default", owner["name"]
    return None


def owner_reference(value: Object) -> Object:
    """What an object's parts name it by."""
    names = {name: value["metadata"][name] for name in ("name", "uid")}
    types = {name: value[name] for name in ("apiVersion", "kind")}
    return types | names | {"controller": True, "blockOwnerDeletion": True}
