"""Finds existing volumes for unbound claims: for every row the smallest one that is large enough.

The rules are those of Kubernetes' volume binder
(docs/spec/plugins/volume-binding.md#choice-of-a-volume). If a volume's claimRef is the claim, no other volume is
used; rows that cannot reach it get none. Claims of one pod do not use the same volume on the same row.
"""

import bisect
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from app.model.claims import ClaimKey, bound_to, class_of_claim, class_of_volume, storage_of
from app.model.quantity import QuantityError, whole
from app.model.requests import LARGEST
from app.model.selectors import Selector, SelectorError, compile_selector
from app.model.status import SchedulingError
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.plugins.volume_binding.claims import Delayed
from app.plugins.volume_binding.volume_topology import (
    NOWHERE,
    Ranks,
    Topologies,
    reachable,
    topology_of,
)
from app.state.assume_cache import VolumeCache
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask
from app.state.view import View

_FILESYSTEM: Final = "Filesystem"
_AVAILABLE: Final = "Available"
#: The number of unused traits that are kept.
_SPARE_TRAITS: Final = 64

_Numbers = npt.NDArray[np.int32]


class Traits(msgspec.Struct, frozen=True):
    """The properties of a volume or a claim other than size, topology and labels; few differ within a class."""

    mode: str
    attributes_class: str
    access_modes: frozenset[str]

    @classmethod
    def of(cls, obj: PersistentVolume | PersistentVolumeClaim) -> "Traits":
        """The traits of a volume, or those that a claim requests."""
        spec = obj.spec
        return cls(
            mode=_FILESYSTEM if spec.volume_mode is None else spec.volume_mode,
            attributes_class=spec.volume_attributes_class_name or "",
            access_modes=frozenset(spec.access_modes or ()),
        )

    def same_kind(self, other: "Traits") -> bool:
        """Whether mode and attributes class are the same."""
        return (self.mode, self.attributes_class) == (other.mode, other.attributes_class)

    def suits(self, wanted: "Traits") -> bool:
        """Whether a volume with these traits is suitable for a claim with these traits."""
        return self.same_kind(wanted) and self.access_modes >= wanted.access_modes


def capacity_of(volume: PersistentVolume) -> int:
    """Nano-bytes; -1, less than any request, if invalid."""
    try:
        return storage_of(volume.spec.capacity) or 0
    except QuantityError:
        return -1


def in_bytes(nanos: int) -> int:
    """Whole bytes of an amount, from 0 to the most that is scored with."""
    return max(0, min(LARGEST, whole(nanos)))


def smallest_first(volume: PersistentVolume) -> tuple[int, str]:
    """Sort key: by size, then by name."""
    return capacity_of(volume), volume.name


class VolumesByClass:
    """The volumes of one storage class.

    ``free``: available ones without a claimRef, smallest first. ``reserved``: names of those with a claimRef, by claim.
    """

    def __init__(self, topologies: Topologies, traits: dict[Traits, int]) -> None:
        """``topologies`` and ``traits`` have the numbers, which all classes share."""
        self.free: Final[list[PersistentVolume]] = []
        self.reserved: Final[dict[ClaimKey, tuple[str, ...]]] = {}
        self._order: list[tuple[int, str]] = []
        self._topologies = topologies
        self._traits = traits
        #: The numbers of each free volume's topology and traits, once used.
        self._columns: tuple[_Numbers, _Numbers] | None = None
        #: The size of each free volume in bytes, once used.
        self._sizes: Int64 | None = None

    @property
    def empty(self) -> bool:
        """Whether there is no volume."""
        return not self.free and not self.reserved

    def put(self, volume: PersistentVolume) -> None:
        """Adds a volume."""
        reference = volume.spec.claim_ref
        if reference is not None:
            key = (reference.namespace, reference.name)
            self.reserved[key] = (*self.reserved.get(key, ()), volume.name)
        elif _is_free(volume):
            order = smallest_first(volume)
            position = bisect.bisect(self._order, order)
            self._order.insert(position, order)
            self.free.insert(position, volume)
            self._sizes = None
            if self._columns is not None:
                topologies, traits = self._columns
                topology, trait = self._number(volume)
                self._columns = (
                    np.insert(topologies, position, topology),
                    np.insert(traits, position, trait),
                )

    def drop(self, volume: PersistentVolume) -> None:
        """Removes a volume, in the version that was added."""
        reference = volume.spec.claim_ref
        if reference is not None:
            key = (reference.namespace, reference.name)
            names = tuple(name for name in self.reserved.pop(key, ()) if name != volume.name)
            if names:
                self.reserved[key] = names
        elif _is_free(volume):
            position = bisect.bisect_left(self._order, smallest_first(volume))
            del self._order[position], self.free[position]
            self._sizes = None
            if self._columns is not None:
                topologies, traits = self._columns
                self._columns = np.delete(topologies, position), np.delete(traits, position)

    def _number(self, volume: PersistentVolume) -> tuple[int, int]:
        affinity = volume.spec.node_affinity
        topology = topology_of(None if affinity is None else affinity.required)
        trait = self._traits.setdefault(Traits.of(volume), len(self._traits))
        return self._topologies.number(topology), trait

    def sizes(self) -> Int64:
        """int64[k]: bytes of the free volumes, smallest first."""
        if self._sizes is None:
            self._sizes = np.array([in_bytes(size) for size, _ in self._order], np.int64)
        return self._sizes

    def renumber(self, topologies: Topologies, traits: dict[Traits, int]) -> None:
        """Replaces the numbers of topologies and traits."""
        self._topologies, self._traits, self._columns = topologies, traits, None

    def _numbered(self) -> tuple[_Numbers, _Numbers]:
        if self._columns is None:
            pairs = np.array([self._number(v) for v in self.free], np.int32).reshape(-1, 2)
            self._columns = pairs[:, 0].copy(), pairs[:, 1].copy()
        return self._columns

    def suitable(self, size: int, wanted: Traits) -> npt.NDArray[np.intp]:
        """Positions of the free volumes of at least ``size`` nano-bytes with suitable traits, ascending."""
        start = bisect.bisect_left(self._order, (size, ""))
        _, traits = self._numbered()
        suits = np.array([have.suits(wanted) for have in self._traits], bool)
        return start + np.flatnonzero(suits[traits[start:]])

    def nearest(self, view: View, chosen: npt.NDArray[np.intp], depth: int) -> Ranks:
        """int32[depth, n]: the first ``depth`` of the ``chosen`` free volumes that each row can reach, by position."""
        topologies, _ = self._numbered()
        at = topologies[chosen]
        order = np.argsort(at, kind="stable")
        sorted_at = at[order]
        first = np.searchsorted(sorted_at, sorted_at)
        level = np.arange(len(order)) - first
        keep = level < depth
        ranks = np.full((depth, len(self._topologies)), NOWHERE)
        ranks[level[keep], sorted_at[keep]] = chosen[order[keep]]
        return self._topologies.spread(view, ranks)


def _is_free(volume: PersistentVolume) -> bool:
    return volume.status.phase == _AVAILABLE and volume.metadata.deletion_timestamp is None


class UnboundVolumes:
    """All volumes, with assumed changes, by storage class; a class is built at its first use."""

    def __init__(self, volumes: VolumeCache) -> None:
        self._volumes = volumes
        self._topologies = Topologies()
        self._traits: dict[Traits, int] = {}
        self._classes: dict[str, VolumesByClass] | None = None
        #: The number of free volumes of all classes.
        self._free = 0

    def of_class(self, name: str) -> VolumesByClass:
        """The volumes of a class; the first use sorts all volumes by class."""
        if self._classes is None:
            self._classes = {}
            for volume in self._volumes:
                self._changed(None, volume)
            self._volumes.follow(self._changed)
        return self._classes.get(name) or VolumesByClass(self._topologies, self._traits)

    def _changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if self._classes is None:
            return
        for volume, there in ((old, False), (new, True)):
            if volume is not None:
                self._move(self._classes, volume, there=there)
        if (
            self._topologies.is_wasteful(self._free)
            or len(self._traits) > _SPARE_TRAITS + 2 * self._free
        ):
            self._topologies, self._traits = Topologies(), {}
            for unbound in self._classes.values():
                unbound.renumber(self._topologies, self._traits)

    def _move(
        self, classes: dict[str, VolumesByClass], volume: PersistentVolume, *, there: bool
    ) -> None:
        """Adds a volume to its class, or removes it."""
        name = class_of_volume(volume)
        unbound = classes.get(name)
        if unbound is None:
            unbound = classes[name] = VolumesByClass(self._topologies, self._traits)
        before = len(unbound.free)
        if there:
            unbound.put(volume)
        else:
            unbound.drop(volume)
        self._free += len(unbound.free) - before
        if unbound.empty:
            del classes[name]

    def named(self, names: Iterable[str]) -> Sequence[PersistentVolume]:
        """The volumes with these names that are not terminating, smallest first."""
        found = [self._volumes.get(name) for name in names]
        kept = [v for v in found if v is not None and v.metadata.deletion_timestamp is None]
        return sorted(kept, key=smallest_first)


#: int32[n]: number of the volume chosen on each row (see CandidateVolumes), NOTHING where there is none.
Picks = npt.NDArray[np.int32]
NOTHING: Final = np.int32(-1)


class CandidateVolumes:
    """The volumes of one class from which the claims of one pod choose.

    Volumes are numbered: the free ones, smallest first, then those reserved for the pod's claims.
    """

    def __init__(self, unbound: VolumesByClass) -> None:
        self.unbound: Final = unbound
        self._reserved: list[PersistentVolume] = []
        #: The choices of earlier claims.
        self.taken: list[Picks] = []

    def volume(self, number: int) -> PersistentVolume:
        """The volume with this number."""
        free = self.unbound.free
        return free[number] if number < len(free) else self._reserved[number - len(free)]

    def number(self, volume: PersistentVolume) -> int:
        """The number of a reserved volume; new ones are added."""
        for number, known in enumerate(self._reserved, len(self.unbound.free)):
            if known is volume:
                return number
        self._reserved.append(volume)
        return len(self.unbound.free) + len(self._reserved) - 1

    def sizes(self) -> Int64:
        """int64[k]: bytes of the volumes, by number."""
        reserved = [in_bytes(capacity_of(volume)) for volume in self._reserved]
        return np.concatenate((self.unbound.sizes(), np.array(reserved, np.int64)))

    def is_taken(self, number: int | Picks, n: int) -> Mask:
        """bool[n]: whether an earlier claim of the pod has chosen this volume on the row."""
        mask = np.zeros(n, bool)
        for picks in self.taken:
            mask |= picks == number
        return mask


class Match:
    """The volume chosen for a claim on each row."""

    __slots__ = ("_picks", "_pool", "wanted")

    def __init__(self, wanted: Delayed, pool: CandidateVolumes, picks: Picks) -> None:
        self.wanted: Final = wanted
        self._picks = picks
        self._pool = pool

    @property
    def missing(self) -> Mask:
        """bool[n]: whether there is no volume for the claim."""
        mask: Mask = self._picks == NOTHING
        return mask

    def sizes(self) -> Int64:
        """int64[n]: bytes of the volume chosen on each row; 0 where there is none."""
        sizes: Int64 = np.append(self._pool.sizes(), np.int64(0))[self._picks]
        return sizes

    def volume(self, position: int) -> PersistentVolume | None:
        """The volume chosen at a position of the view, None if there is none."""
        pick = int(self._picks[position])
        return None if pick == NOTHING else self._pool.volume(pick)


class Matcher:
    """Chooses existing volumes for claims."""

    def __init__(self, volumes: VolumeCache) -> None:
        self._unbound = UnboundVolumes(volumes)

    def match(self, view: View, claims: Sequence[Delayed]) -> list[Match]:
        """Chooses for each claim in turn, smallest first. Raises SchedulingError for a claim with an invalid
        selector."""
        pools: dict[str, CandidateVolumes] = {}
        matches = []
        for wanted in sorted(claims, key=lambda delayed: delayed.size or 0):
            name = class_of_claim(wanted.claim)
            pool = pools.get(name)
            if pool is None:
                pool = pools[name] = CandidateVolumes(self._unbound.of_class(name))
            picks = self._choose(view, wanted, pool)
            pool.taken.append(picks)
            matches.append(Match(wanted, pool, picks))
        return matches

    def _choose(self, view: View, wanted: Delayed, pool: CandidateVolumes) -> Picks:
        selector = _selector(wanted.claim)
        picks = np.full(view.n, NOTHING)
        undecided = self._choose_reserved(view, wanted, pool, picks)
        suitable = pool.unbound.suitable(wanted.size or 0, Traits.of(wanted.claim))
        if selector is not None:
            free = pool.unbound.free
            suitable = suitable[[selector.matches(free[p].labels) for p in suitable.tolist()]]
        if len(suitable) and undecided.any():
            for ranks in pool.unbound.nearest(view, suitable, len(pool.taken) + 1):
                here = undecided & (ranks != NOWHERE) & ~pool.is_taken(ranks, view.n)
                picks[here] = ranks[here]
                undecided &= ~here
        return picks

    def _choose_reserved(
        self, view: View, wanted: Delayed, pool: CandidateVolumes, picks: Picks
    ) -> Mask:
        """Fills in volumes that are reserved for the claim; bool[n]: the rows on which another volume may be chosen."""
        undecided = np.ones(view.n, bool)
        claim, traits = wanted.claim, Traits.of(wanted.claim)
        names = pool.unbound.reserved.get((claim.namespace, claim.name), ())
        for volume in self._unbound.named(names):
            if (
                bound_to(volume, claim)
                and capacity_of(volume) >= (wanted.size or 0)
                and Traits.of(volume).same_kind(traits)
            ):
                number = pool.number(volume)
                here = undecided & ~pool.is_taken(number, view.n)
                picks[here & reachable(view, volume)] = number
                undecided &= ~here
        return undecided


def _selector(claim: PersistentVolumeClaim) -> Selector | None:
    if claim.spec.selector is None:
        return None
    try:
        return compile_selector(claim.spec.selector)
    except SelectorError as error:
        raise SchedulingError(
            f"error creating internal label selector for claim: {claim.key}: {error}"
        ) from error
