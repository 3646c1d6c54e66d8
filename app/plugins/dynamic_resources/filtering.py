"""Filter: where a pod's claims can be used, and where they can be allocated.

See docs/spec/plugins/dynamic-resources.md#filter.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from app.framework.interface import Clock, Verdicts
from app.model.devices import ResourceClaim
from app.model.pod import Pod
from app.model.status import Code
from app.plugins.dynamic_resources import conditions
from app.plugins.dynamic_resources.allocator import (
    CANNOT,
    ERROR,
    FAILED,
    TIMED_OUT,
    Allocator,
    Found,
)
from app.plugins.dynamic_resources.attempt import PodDevices, Search
from app.plugins.dynamic_resources.extended import (
    RequestMapping,
    is_unwritten,
    requests_for,
)
from app.plugins.dynamic_resources.pod_claims import with_requests
from app.state.columns.labels import Mask
from app.state.columns.resources import Int64
from app.state.devices.classes import ClassesByResource
from app.state.table import NodeTable
from app.state.view import Rows, View

ERR_REASON_CANNOT_ALLOCATE: Final = "cannot allocate all claims"
ERR_REASON_NOT_AVAILABLE: Final = "resourceclaim not available on the node"
ERR_REASON_STALE: Final = "cannot schedule extended resource claim"
ERR_REASON_CANNOT_FIT: Final = "cannot fit resource"


class _Part(NamedTuple):
    """Rows with the same claims to allocate."""

    where: Mask
    wanted: dict[int, ResourceClaim]
    mappings: tuple[RequestMapping, ...]


class _Judgement:
    """Verdicts in the making: the first against a row counts."""

    def __init__(self, devices: PodDevices, n: int) -> None:
        self._devices: Final = devices
        self.codes: Final = np.zeros(n, np.int8)
        self.reasons: Final = np.zeros(n, np.int32)

    def fine(self) -> Mask:
        """bool[n]: the rows that nothing is held against so far."""
        mask: Mask = self.codes == 0
        return mask

    def reject(
        self, where: Mask, text: str, code: Code = Code.UnschedulableAndUnresolvable
    ) -> None:
        where = where & (self.codes == 0)
        if where.any():
            self.codes[where] = code
            self.reasons[where] = self._devices.number(text)

    def verdicts(self) -> Verdicts | None:
        if not self.codes.any():
            return None
        return Verdicts(self.codes, self.reasons, self._devices.text)


class Finder:
    """Judges nodes."""

    def __init__(
        self,
        table: NodeTable,
        classes: ClassesByResource,
        allocator: Allocator,
        clock: Clock,
        binding_timeout: float,
    ) -> None:
        self._table: Final = table
        self._classes: Final = classes
        self._allocator: Final = allocator
        self._clock: Final = clock
        self._binding_timeout: Final = binding_timeout

    def judge(self, devices: PodDevices, pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows, and keeps in ``devices`` what can be allocated on the others."""
        judgement = _Judgement(devices, view.n)
        here: Mask = self._table.exists[view.rows]
        parts = [_Part(here, devices.to_allocate, ())]
        idle = np.zeros(view.n, bool)
        extended = devices.extended
        if extended is not None:
            if not is_unwritten(extended):
                judgement.reject(here, ERR_REASON_STALE)
                return judgement.verdicts()
            parts, idle = self._by_resources(judgement, devices, pod, view, here)
        for part in parts:
            if part.wanted:
                self._allocate(judgement, devices, view, part)
        self._check_allocated(judgement, devices, view, here & ~idle)
        return judgement.verdicts()

    # ------------------------------------------------------------ extended resources

    def _by_resources(
        self, judgement: _Judgement, devices: PodDevices, pod: Pod, view: View, here: Mask
    ) -> tuple[list[_Part], Mask]:
        """Rows by the extended resources that must come from devices there, and those where nothing is to be done."""
        lacking = np.zeros(view.n, np.int64)
        behind: list[str] = []
        for name in devices.resources:
            absent = view.allocatable(name) == 0
            if self._classes.get(name) is None:
                judgement.reject(here & absent, ERR_REASON_CANNOT_FIT)
            else:
                lacking |= absent.astype(np.int64) << len(behind)
                behind.append(name)
        parts = list(self._parts(devices, pod, lacking, behind, judgement.fine() & here))
        idle = (lacking == 0) & (devices.extended_at == 0)
        return parts, idle

    def _parts(
        self,
        devices: PodDevices,
        pod: Pod,
        lacking: Int64,
        behind: list[str],
        where: Mask,
    ) -> Iterator[_Part]:
        extended, at = devices.extended, devices.extended_at
        if extended is None or at is None:
            return
        for bits in np.unique(lacking[where]).tolist():
            names = [name for bit, name in enumerate(behind) if bits >> bit & 1]
            found = requests_for(pod.template, names, self._classes)
            wanted = devices.to_allocate
            if names:
                wanted[at] = with_requests(extended, found.requests)
            yield _Part(where & (lacking == bits), wanted, found.mappings)

    # ------------------------------------------------------------ claims

    def _allocate(
        self, judgement: _Judgement, devices: PodDevices, view: View, part: _Part
    ) -> None:
        positions = np.flatnonzero(part.where)
        if not len(positions):
            return
        rows = view.rows[positions]
        found = self._allocator.search(rows, list(part.wanted.values()), devices.budget)
        devices.remember(Search(rows, found, part.wanted, part.mappings))
        if found.codes.any():
            self._tell(judgement, view, positions, found)

    def _tell(
        self,
        judgement: _Judgement,
        view: View,
        positions: Rows,
        found: Found,
    ) -> None:
        """Turns the search's answers into verdicts."""

        def where(chosen: Mask) -> Mask:
            mask = np.zeros(view.n, bool)
            mask[positions[chosen]] = True
            return mask

        judgement.reject(where(found.codes == CANNOT), ERR_REASON_CANNOT_ALLOCATE)
        late = found.codes == TIMED_OUT
        if late.any():
            name = self._table.names[view.rows[positions[late.argmax()]]]
            text = f"node {name}: timed out trying to allocate devices"
            judgement.reject(where(late), text, Code.Error)
        faulty = (found.codes == ERROR) | (found.codes == FAILED)
        for kind in np.unique(found.kinds[faulty]).tolist():
            chosen = faulty & (found.kinds == kind)
            fatal = found.codes[chosen.argmax()] == ERROR
            code = Code.Error if fatal else Code.UnschedulableAndUnresolvable
            judgement.reject(where(chosen), found.text(kind), code)

    def _check_allocated(
        self, judgement: _Judgement, devices: PodDevices, view: View, where: Mask
    ) -> None:
        """What is allocated must be within reach, and not have failed or waited for too long to become ready."""
        fine = judgement.fine() & where
        for at, claim in enumerate(devices.claims):
            if claim.status.allocation is None:
                continue
            away = np.full(view.n, self._given_up(claim))
            selector = devices.selectors.get(at)
            if selector is not None:
                away |= ~selector.matches(view)
            if (away & fine).any():
                devices.unavailable.add(at)
                judgement.reject(away & fine, ERR_REASON_NOT_AVAILABLE)

    def _given_up(self, claim: ResourceClaim) -> bool:
        try:
            return not conditions.ready(claim) and conditions.timed_out(
                claim, self._clock.wall(), self._binding_timeout
            )
        except conditions.BindingFailed:
            return True
