"""Finds existing volumes for unbound claims: for every row the smallest one that is large enough.

The rules are those of Kubernetes' volume binder
(docs/spec/plugins/volume-binding.md#choice-of-a-volume). If a volume's claimRef is the claim, no other volume is
used; rows that cannot reach it get none. Claims of one pod do not use the same volume on the same row.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from app.model.claims import bound_to, class_of_claim
from app.model.objects import PersistentVolume, PersistentVolumeClaim
from app.model.selectors import Selector, SelectorError, compile_selector
from app.model.status import SchedulingError
from app.plugins.volume_binding.claims import Delayed
from app.plugins.volume_binding.unbound_volumes import (
    Traits,
    UnboundVolumes,
    VolumesByClass,
    capacity_of,
)
from app.plugins.volume_binding.volume_topology import NOWHERE, reachable
from app.state.assume_cache import VolumeCache
from app.state.columns.labels import Mask
from app.state.view import View

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
