"""Finds volumes that exist already for claims that wait: for every node the smallest that will do.

The rules are those of binding a claim to a volume anywhere in Kubernetes (spec: plugins.md 2.12, "PV choice"). A volume
whose claimRef is the claim is the only choice where it can be reached from, and no other is taken where it cannot. Claims
of one pod do not take the same volume on the same node.
"""

import bisect
from collections.abc import Iterator, Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from app.framework.plugins.volume_binding.claims import Delayed
from app.framework.plugins.volume_binding.reach import (
    NOWHERE,
    Place,
    first_reachable,
    place_of,
    reach_of,
)
from app.model.claims import bound_to, class_of_claim
from app.model.objects import PersistentVolume, PersistentVolumeClaim
from app.model.selectors import Selector, SelectorError, compile_selector
from app.model.status import SchedulingError
from app.state.assume_cache import Candidate, ClassVolumes, Traits, VolumeCache, candidate_of
from app.state.labels import Mask
from app.state.view import View

#: int32[n]: position of the volume chosen on each row, NOTHING where there is none.
Picks = npt.NDArray[np.int32]
NOTHING: Final = np.int32(-1)


class Pool:
    """The volumes of one class while the claims of one pod choose among them.

    ``volumes`` are first the free ones, smallest first, then those reserved for the pod's own claims.
    """

    def __init__(self, volumes: ClassVolumes) -> None:
        self._volumes = volumes
        self.free: Final = volumes.free
        self._reserved: list[PersistentVolume] = []
        #: What earlier claims have chosen.
        self.taken: list[Picks] = []

    def volume(self, number: int) -> PersistentVolume:
        """The volume that a pick stands for."""
        free = len(self.free)
        return self.free[number].volume if number < free else self._reserved[number - free]

    def first_of(self, size: int) -> int:
        """Position of the smallest free volume with at least ``size`` nano-bytes."""
        return bisect.bisect_left(self.free, size, key=lambda candidate: candidate.capacity)

    def reserved_for(self, claim: PersistentVolumeClaim) -> Sequence[str]:
        """Names of the volumes whose claimRef has this claim's name."""
        return self._volumes.reserved_for(claim)

    def number(self, volume: PersistentVolume) -> int:
        """The pick that stands for a reserved volume."""
        for number, known in enumerate(self._reserved, len(self.free)):
            if known is volume:
                return number
        self._reserved.append(volume)
        return len(self.free) + len(self._reserved) - 1

    def is_taken(self, number: int | Picks, n: int) -> Mask:
        """bool[n]: whether an earlier claim of the pod has chosen this on the row."""
        mask = np.zeros(n, bool)
        for picks in self.taken:
            mask |= picks == number
        return mask


class Match:
    """What a claim would be bound to on each row."""

    __slots__ = ("_picks", "_pool", "wanted")

    def __init__(self, wanted: Delayed, pool: Pool, picks: Picks) -> None:
        self.wanted: Final = wanted
        self._picks = picks
        self._pool = pool

    @property
    def missing(self) -> Mask:
        """bool[n]: where there is no volume for the claim."""
        mask: Mask = self._picks == NOTHING
        return mask

    def volume(self, position: int) -> PersistentVolume | None:
        """The volume chosen at a position of the view, None if there is none."""
        pick = int(self._picks[position])
        return None if pick == NOTHING else self._pool.volume(pick)


class Matcher:
    """Chooses existing volumes for claims."""

    def __init__(self, volumes: VolumeCache) -> None:
        self._volumes = volumes
        self._places: WeakKeyDictionary[Candidate, Place] = WeakKeyDictionary()

    def match(self, view: View, claims: Sequence[Delayed]) -> list[Match]:
        """Chooses for each claim in turn, the smallest first. Raises SchedulingError for a claim that cannot be read."""
        pools: dict[str, Pool] = {}
        matches = []
        for wanted in sorted(claims, key=lambda delayed: delayed.size or 0):
            name = class_of_claim(wanted.claim)
            pool = pools.get(name)
            if pool is None:
                pool = pools[name] = Pool(self._volumes.of_class(name))
            picks = self._choose(view, wanted, pool)
            pool.taken.append(picks)
            matches.append(Match(wanted, pool, picks))
        return matches

    def _choose(self, view: View, wanted: Delayed, pool: Pool) -> Picks:
        selector = _selector(wanted.claim)
        picks = np.full(view.n, NOTHING)
        undecided = self._choose_reserved(view, wanted, pool, picks)
        if undecided.any():
            depth = len(pool.taken) + 1
            things = self._suitable(wanted, pool, selector)
            for ranks in first_reachable(view, things, depth):
                here = undecided & (ranks != NOWHERE) & ~pool.is_taken(ranks, view.n)
                picks[here] = ranks[here]
                undecided &= ~here
        return picks

    def _choose_reserved(self, view: View, wanted: Delayed, pool: Pool, picks: Picks) -> Mask:
        """Fills in volumes reserved for the claim; bool[n]: the rows where none has been looked at."""
        undecided = np.ones(view.n, bool)
        for volume in self._reserved(wanted, pool):
            number = pool.number(volume)
            here = undecided & ~pool.is_taken(number, view.n)
            picks[here & reach_of(view, volume)] = number
            undecided &= ~here
        return undecided

    def _reserved(self, wanted: Delayed, pool: Pool) -> list[PersistentVolume]:
        claim = wanted.claim
        found = []
        for name in pool.reserved_for(claim):
            volume = self._volumes.get(name)
            if volume is None or volume.metadata.deletion_timestamp is not None:
                continue
            candidate = candidate_of(volume)
            if (
                bound_to(volume, claim)
                and candidate.capacity >= (wanted.size or 0)
                and _same_kind(claim, candidate.traits)
            ):
                found.append(candidate)
        return [candidate.volume for candidate in sorted(found, key=lambda c: c.order)]

    def _suitable(
        self, wanted: Delayed, pool: Pool, selector: Selector | None
    ) -> Iterator[tuple[int, Place]]:
        """(rank, place) of the free volumes that would do for a claim, smallest first."""
        size = wanted.size or 0
        verdicts: dict[Traits, bool] = {}
        start = pool.first_of(size)
        for rank, candidate in enumerate(pool.free[start:], start):
            suits = verdicts.get(candidate.traits)
            if suits is None:
                suits = verdicts[candidate.traits] = _suits(wanted.claim, candidate.traits)
            if suits and (selector is None or selector.matches(candidate.volume.labels)):
                yield rank, self._place(candidate)

    def _place(self, candidate: Candidate) -> Place:
        place = self._places.get(candidate)
        if place is None:
            place = self._places[candidate] = place_of(candidate.affinity)
        return place


def _selector(claim: PersistentVolumeClaim) -> Selector | None:
    if claim.spec.selector is None:
        return None
    try:
        return compile_selector(claim.spec.selector)
    except SelectorError as error:
        raise SchedulingError(
            f"error creating internal label selector for claim: {claim.key}: {error}"
        ) from error


def _same_kind(claim: PersistentVolumeClaim, traits: Traits) -> bool:
    spec = claim.spec
    mode = "Filesystem" if spec.volume_mode is None else spec.volume_mode
    return (
        mode == traits.mode and (spec.volume_attributes_class_name or "") == traits.attributes_class
    )


def _suits(claim: PersistentVolumeClaim, traits: Traits) -> bool:
    modes = claim.spec.access_modes or ()
    return _same_kind(claim, traits) and traits.access_modes.issuperset(modes)
