"""Volumes and claims as they will be once what was decided about them is written.

See docs/spec/plugins/volume-binding.md#assumed-objects.

An assumed object stands in for the stored one only while both have the same resource version; any later version from the
watch drops it. Writing an assumed object is somebody else's job.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from app.model.claims import not_found
from app.model.objects import Named, PersistentVolume, PersistentVolumeClaim
from app.model.status import SchedulingError
from app.state.lister import Follower, Lister

T = TypeVar("T", bound=Named)


class AssumeCache(Generic[T]):
    """Objects of one kind, assumed ones in place of stored ones. ``kind``: the plural, for messages."""

    def __init__(self, lister: Lister[T], kind: str) -> None:
        self._lister = lister
        self._kind = kind
        self._assumed: dict[tuple[str, str], T] = {}
        self._followers: list[Follower[T]] = []
        lister.follow(self._changed)

    def follow(self, follower: Follower[T]) -> None:
        """Calls ``follower(old, new)`` after every change of what ``get`` answers from now on."""
        self._followers.append(follower)

    def __iter__(self) -> Iterator[T]:
        """Everything that ``get`` can answer."""
        for stored in self._lister:
            yield self._assumed.get((stored.namespace, stored.name), stored)

    def get(self, name: str, namespace: str = "") -> T | None:
        """The assumed object, else the stored one, else None."""
        return self._assumed.get((namespace, name)) or self._lister.get(name, namespace)

    def current(self, name: str, namespace: str = "") -> T | None:
        """The stored object whatever is assumed, or None."""
        return self._lister.get(name, namespace)

    def stored(self, obj: T) -> T:
        """The object as the API server last sent it. Raises SchedulingError if it is gone."""
        stored = self._lister.get(obj.name, obj.namespace)
        if stored is None:
            raise SchedulingError(not_found(self._kind, obj.key))
        return stored

    def in_sync(self, obj: T) -> T:
        """The stored object, if it has this one's version. Raises SchedulingError if it has another or is gone."""
        stored = self.stored(obj)
        if stored.resource_version != obj.resource_version:
            raise SchedulingError(
                f'"{obj.key}" is out of sync '
                f"(stored: {stored.resource_version}, assume: {obj.resource_version})"
            )
        return stored

    def assume(self, obj: T) -> None:
        """Lets an object stand in for the stored one of the same version. Raises SchedulingError."""
        self.in_sync(obj)
        self._put(obj, obj)

    def restore(self, obj: T) -> None:
        """Takes back an assumption; one that a later version or another assumption has replaced is left alone."""
        if self._assumed.get((obj.namespace, obj.name)) is obj:
            self._put(obj, None)

    def _put(self, obj: T, assumed: T | None) -> None:
        before = self.get(obj.name, obj.namespace)
        if assumed is None:
            del self._assumed[obj.namespace, obj.name]
        else:
            self._assumed[obj.namespace, obj.name] = assumed
        self._replaced(before, self.get(obj.name, obj.namespace))

    def _changed(self, old: T | None, new: T | None) -> None:
        """The lister has a change: an assumed object of another version is out."""
        changed = new or old
        if changed is None:
            return
        key = (changed.namespace, changed.name)
        assumed = self._assumed.get(key)
        if assumed is None:
            self._replaced(old, new)
        elif new is None or new.resource_version != assumed.resource_version:
            del self._assumed[key]
            self._replaced(assumed, new)

    def _replaced(self, old: T | None, new: T | None) -> None:
        for follower in self._followers:
            follower(old, new)


class ClaimCache(AssumeCache[PersistentVolumeClaim]):
    """Claims, with the node assumed that they are to be provisioned for."""

    def __init__(self, lister: Lister[PersistentVolumeClaim]) -> None:
        super().__init__(lister, "persistentvolumeclaims")


class VolumeCache(AssumeCache[PersistentVolume]):
    """PersistentVolumes, with the claims assumed that they are to be bound to."""

    def __init__(self, lister: Lister[PersistentVolume]) -> None:
        super().__init__(lister, "persistentvolumes")


class AssumedVolumes(msgspec.Struct, frozen=True):
    """Both caches of a cluster, shared by the profiles so that none gives away what another has assumed."""

    volumes: VolumeCache
    claims: ClaimCache
