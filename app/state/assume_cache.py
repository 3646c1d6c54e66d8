"""Objects as they will be when the watch has shown what this process decides or writes.

See docs/spec/plugins/volume-binding.md#assumed-objects.

An assumed object replaces the stored one until the watch shows a version that supersedes it. The caches write nothing.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from app.model.claims import not_found
from app.model.objects import Named, PersistentVolume, PersistentVolumeClaim
from app.model.status import SchedulingError
from app.state.lister import Follower, Lister, notify

T = TypeVar("T", bound=Named)


class AssumeCache(Generic[T]):
    """Objects of one kind, with assumed ones in place of stored ones. ``kind`` is the plural, for messages."""

    def __init__(self, lister: Lister[T], kind: str) -> None:
        self._lister = lister
        self._kind = kind
        self._assumed: dict[tuple[str, str], T] = {}
        self._followers: list[Follower[T]] = []
        lister.follow(self._changed)

    def follow(self, follower: Follower[T]) -> None:
        """Calls ``follower(old, new)`` after every future change of what ``get`` returns."""
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
        """The object as the watch last showed it. Raises SchedulingError if it does not exist."""
        stored = self._lister.get(obj.name, obj.namespace)
        if stored is None:
            raise SchedulingError(not_found(self._kind, obj.key))
        return stored

    def in_sync(self, obj: T) -> T:
        """The stored object, which must have the same version. Raises SchedulingError if it has another or does not exist."""
        stored = self.stored(obj)
        if stored.resource_version != obj.resource_version:
            raise SchedulingError(
                f'"{obj.key}" is out of sync '
                f"(stored: {stored.resource_version}, assume: {obj.resource_version})"
            )
        return stored

    def assume(self, obj: T) -> None:
        """Replaces the stored object, which must have the same version. Raises SchedulingError."""
        self.in_sync(obj)
        self._put(obj, obj)

    def restore(self, obj: T) -> None:
        """Drops an assumed object, unless a later version or another assumed object has replaced it."""
        if self._assumed.get((obj.namespace, obj.name)) is obj:
            self._put(obj, None)

    def _put(self, obj: T, assumed: T | None) -> None:
        before = self.get(obj.name, obj.namespace)
        if assumed is None:
            del self._assumed[obj.namespace, obj.name]
        else:
            self._assumed[obj.namespace, obj.name] = assumed
        self._replaced(before, self.get(obj.name, obj.namespace))

    def _supersedes(self, stored: T, assumed: T) -> bool:
        """Whether a version that the watch shows ends the assumption."""
        return stored.resource_version != assumed.resource_version

    def _changed(self, old: T | None, new: T | None) -> None:
        """Applies a change of the stored objects."""
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
    """PersistentVolumeClaims, with the nodes assumed for which volumes are to be provisioned."""

    def __init__(self, lister: Lister[PersistentVolumeClaim]) -> None:
        super().__init__(lister, "persistentvolumeclaims")


class VolumeCache(AssumeCache[PersistentVolume]):
    """PersistentVolumes, with the claims assumed to which they are to be bound."""

    def __init__(self, lister: Lister[PersistentVolume]) -> None:
        super().__init__(lister, "persistentvolumes")


class AssumedVolumes(msgspec.Struct, frozen=True):
    """Both caches of a cluster, shared by all profiles."""

    volumes: VolumeCache
    claims: ClaimCache
