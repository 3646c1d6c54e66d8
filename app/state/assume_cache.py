"""Volumes and claims as they will be once what was decided about them is written (spec: plugins.md 2.12).

An assumed object stands in for the stored one only while both have the same resource version; any later version from the
watch drops it. Writing an assumed object is somebody else's job.
"""

import bisect
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from app.model.claims import ClaimKey, class_of_volume, not_found, storage_of
from app.model.objects import Named, NodeSelector, PersistentVolume, PersistentVolumeClaim
from app.model.quantity import QuantityError
from app.model.status import SchedulingError
from app.state.cluster import Cluster, Lister

T = TypeVar("T", bound=Named)

_FILESYSTEM: Final = "Filesystem"
_AVAILABLE: Final = "Available"


class AssumeCache(Generic[T]):
    """Objects of one kind, assumed ones in place of stored ones. ``kind``: the plural, for messages."""

    def __init__(self, lister: Lister[T], kind: str) -> None:
        self._lister = lister
        self._kind = kind
        self._assumed: dict[tuple[str, str], T] = {}
        lister.follow(self._changed)

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
        """``get`` answers ``new`` where it answered ``old``."""


class ClaimCache(AssumeCache[PersistentVolumeClaim]):
    """Claims, with the node assumed that they are to be provisioned for."""

    def __init__(self, lister: Lister[PersistentVolumeClaim]) -> None:
        super().__init__(lister, "persistentvolumeclaims")


# ---------------------------------------------------------------- volumes by class


@dataclasses.dataclass(frozen=True, slots=True)
class Traits:
    """What a volume is like besides its size, place and labels; few differ within a class."""

    mode: str
    attributes_class: str
    access_modes: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Candidate:
    """A volume that a claim may be bound to. ``capacity``: nano-bytes, -1 if it cannot be read."""

    volume: PersistentVolume
    capacity: int
    traits: Traits

    @property
    def affinity(self) -> NodeSelector | None:
        """Which nodes can reach the volume; None for all."""
        affinity = self.volume.spec.node_affinity
        return None if affinity is None else affinity.required

    @property
    def order(self) -> tuple[int, str]:
        """Smallest first; among equals by name."""
        return self.capacity, self.volume.name


def candidate_of(volume: PersistentVolume) -> Candidate:
    """What matching needs to know of a volume."""
    spec = volume.spec
    try:
        capacity = storage_of(spec.capacity) or 0
    except QuantityError:
        capacity = -1
    traits = Traits(
        mode=_FILESYSTEM if spec.volume_mode is None else spec.volume_mode,
        attributes_class=spec.volume_attributes_class_name or "",
        access_modes=frozenset(spec.access_modes or ()),
    )
    return Candidate(volume, capacity, traits)


_ORDER: Final[Callable[[Candidate], tuple[int, str]]] = lambda candidate: candidate.order  # noqa: E731 - a sort key


class ClassVolumes:
    """The volumes of one storage class that can still be bound.

    ``free``: available ones that no claim has, smallest first; ``reserved``: names of the others by the claim they are
    for, whether bound to it already or not.
    """

    def __init__(self) -> None:
        self.free: list[Candidate] = []
        self.reserved: dict[ClaimKey, tuple[str, ...]] = {}

    def put(self, volume: PersistentVolume) -> None:
        """Adds a volume."""
        reference = volume.spec.claim_ref
        if reference is not None:
            key = (reference.namespace, reference.name)
            self.reserved[key] = (*self.reserved.get(key, ()), volume.name)
        elif _is_free(volume):
            bisect.insort(self.free, candidate_of(volume), key=_ORDER)

    def drop(self, volume: PersistentVolume) -> None:
        """Removes a volume as it was added."""
        reference = volume.spec.claim_ref
        if reference is not None:
            key = (reference.namespace, reference.name)
            names = tuple(name for name in self.reserved.get(key, ()) if name != volume.name)
            if names:
                self.reserved[key] = names
            else:
                self.reserved.pop(key, None)
        elif _is_free(volume):
            position = bisect.bisect_left(self.free, candidate_of(volume).order, key=_ORDER)
            del self.free[position]

    def reserved_for(self, claim: PersistentVolumeClaim) -> Sequence[str]:
        """Names of the volumes whose claimRef has this claim's name, whatever uid it has."""
        return self.reserved.get((claim.namespace, claim.name), ())


def _is_free(volume: PersistentVolume) -> bool:
    return volume.status.phase == _AVAILABLE and volume.metadata.deletion_timestamp is None


class VolumeCache(AssumeCache[PersistentVolume]):
    """PersistentVolumes, with the claims assumed that they are to be bound to, and by storage class."""

    def __init__(self, lister: Lister[PersistentVolume]) -> None:
        super().__init__(lister, "persistentvolumes")
        self._by_class: defaultdict[str, ClassVolumes] | None = None

    def of_class(self, name: str) -> ClassVolumes:
        """The volumes of a storage class, assumed ones as assumed; kept by class from the first question on."""
        if self._by_class is None:
            self._by_class = defaultdict(ClassVolumes)
            for stored in self._lister:
                volume = self.get(stored.name) or stored
                self._by_class[class_of_volume(volume)].put(volume)
        return self._by_class[name]

    def _replaced(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if self._by_class is None:
            return
        if old is not None:
            self._by_class[class_of_volume(old)].drop(old)
        if new is not None:
            self._by_class[class_of_volume(new)].put(new)


@dataclasses.dataclass(frozen=True, slots=True)
class AssumedVolumes:
    """Both caches of a cluster, shared by the profiles so that none gives away what another has assumed."""

    volumes: VolumeCache
    claims: ClaimCache


def assumed_volumes(cluster: Cluster) -> AssumedVolumes:
    """The one pair of caches of a cluster, made when first asked for."""
    if cluster.assumed is None:
        cluster.assumed = AssumedVolumes(VolumeCache(cluster.volumes), ClaimCache(cluster.claims))
    return cluster.assumed
