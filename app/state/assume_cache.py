"""Caches of objects that include changes which this process has decided or written, before the watch shows them.

See docs/spec/plugins/volume-binding.md#assumed-objects.

An assumed object replaces the stored one until the watch shows a version that supersedes it.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from app.model.claims import not_found
from app.model.objects import Named
from app.model.status import SchedulingError
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.state.lister import Follower, Lister, notify

T = TypeVar("T", bound=Named)


class AssumeCache(Generic[T]):
    """The objects of one kind, assumed versions in place of stored ones. ``kind``: plural name, for messages."""

    def __init__(self, lister: Lister[T], kind: str) -> None:
        self._lister = lister
        self._kind = kind
        self._assumed: dict[tuple[str, str], T] = {}
        self._followers: list[Follower[T]] = []
        lister.follow(self._changed)

    def follow(self, follower: Follower[T]) -> None:
        """Calls ``follower(old, new)`` after every change of what ``get`` returns, from now on."""
        self._followers.append(follower)

    def __iter__(self) -> Iterator[T]:
        """All objects that ``get`` can return."""
        for stored in self._lister:
            yield self._assumed.get((stored.namespace, stored.name), stored)

    def get(self, name: str, namespace: str = "") -> T | None:
        """The assumed object, or the stored one, or None."""
        return self._assumed.get((namespace, name)) or self._lister.get(name, namespace)

    def current(self, name: str, namespace: str = "") -> T | None:
        """The stored object, even if another one is assumed, or None."""
        return self._lister.get(name, namespace)

    def stored(self, obj: T) -> T:
        """The stored object. Raises SchedulingError if it does not exist."""
        stored = self._lister.get(obj.name, obj.namespace)
        if stored is None:
            raise SchedulingError(not_found(self._kind, obj.key))
        return stored

    def in_sync(self, obj: T) -> T:
        """The stored object. Raises SchedulingError if it is missing or has another version than ``obj``."""
        stored = self.stored(obj)
        if stored.resource_version != obj.resource_version:
            raise SchedulingError(
                f'"{obj.key}" is out of sync '
                f"(stored: {stored.resource_version}, assume: {obj.resource_version})"
            )
        return stored

    def assume(self, obj: T) -> None:
        """Replaces the stored object, which must have the same resource version. Raises SchedulingError."""
        self.in_sync(obj)
        self._put(obj)

    def restore(self, obj: T) -> None:
        """Removes this assumed object, unless a later version or another assumed object has replaced it."""
        if self._assumed.get((obj.namespace, obj.name)) is obj:
            del self._assumed[obj.namespace, obj.name]
            self._replaced(obj, self.get(obj.name, obj.namespace))

    def _put(self, obj: T) -> None:
        before = self.get(obj.name, obj.namespace)
        self._assumed[obj.namespace, obj.name] = obj
        self._replaced(before, obj)

    def _supersedes(self, stored: T, assumed: T) -> bool:
        """Whether a version from the watch replaces the assumed one."""
        return stored.resource_version != assumed.resource_version

    def _changed(self, old: T | None, new: T | None) -> None:
        """Handles a change of a stored object."""
        changed = new or old
        if changed is None:
            return
        key = (changed.namespace, changed.name)
        assumed = self._assumed.get(key)
        if assumed is None:
            self._replaced(old, new)
        elif new is None or self._supersedes(new, assumed):
            del self._assumed[key]
            self._replaced(assumed, new)

    def _replaced(self, old: T | None, new: T | None) -> None:
        notify(self._followers, old, new)


class ClaimCache(AssumeCache[PersistentVolumeClaim]):
    """PersistentVolumeClaims; assumed ones have the node for which a volume will be provisioned."""

    def __init__(self, lister: Lister[PersistentVolumeClaim]) -> None:
        super().__init__(lister, "persistentvolumeclaims")


class VolumeCache(AssumeCache[PersistentVolume]):
    """PersistentVolumes; assumed ones have the claim to which they will be bound."""

    def __init__(self, lister: Lister[PersistentVolume]) -> None:
        super().__init__(lister, "persistentvolumes")


class AssumedVolumes(msgspec.Struct, frozen=True):
    """Both caches of a cluster, shared by all profiles."""

    volumes: VolumeCache
    claims: ClaimCache
