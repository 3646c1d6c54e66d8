"""PreFilter, Filter and Score for pods with claims: where the claims can be used and allocated, and how well.

See docs/spec/plugins/dynamic-resources.md#filter.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from app.cel.devices import Selectors
from app.framework.handle import Handle
from app.framework.interface import Verdicts, default_normalize
from app.model.devices import MAX_ALTERNATIVES, AllocationResult, DeviceRequest, ResourceClaim
from app.model.features import Rule
from app.model.pod import Pod
from app.model.pod_groups import CLAIMS, PodGroup
from app.model.requests import Amounts
from app.model.status import SKIP, Code, Status, unresolvable
from app.plugins.args import DynamicResourcesArgs
from app.plugins.dynamic_resources.allocator import (
    CANNOT,
    ERROR,
    FAILED,
    TIMED_OUT,
    Allocator,
    AllocatorResult,
)
from app.plugins.dynamic_resources.budget import Budget
from app.plugins.dynamic_resources.conditions import BindingFailed, ready, timed_out
from app.plugins.dynamic_resources.extended_resources import (
    RequestMapping,
    is_unwritten,
    requests_for,
    unwritten_claim,
)
from app.plugins.dynamic_resources.pod_claims import (
    ClaimProblem,
    NodeAllocations,
    PodResourceClaims,
    claims_of,
    shared_by_group,
    with_requests,
)
from app.plugins.helpers.node_selector import (
    NodeSelectorMatcher,
    UnreadableTermsError,
    compile_node_selector,
)
from app.state.columns.arrays import Int64, Rows
from app.state.columns.labels import Mask
from app.state.view import View

ERR_REASON_CANNOT_ALLOCATE: Final = "cannot allocate all claims"
ERR_REASON_NOT_AVAILABLE: Final = "resourceclaim not available on the node"
ERR_REASON_STALE: Final = "cannot schedule extended resource claim"
ERR_REASON_CANNOT_FIT: Final = "cannot fit resource"

_SEPARATOR: Final = "/"


class _Part(NamedTuple):
    """Rows on which the same claims have to be allocated; ``positions`` (intp[k], ascending) are theirs in the view."""

    positions: Rows
    wanted: dict[int, ResourceClaim]
    mappings: tuple[RequestMapping, ...]


class _RowVerdicts:
    """Collects the verdicts of one Filter call. The first one against a row counts."""

    def __init__(self, pod_claims: PodResourceClaims, n: int) -> None:
        self._pod_claims: Final = pod_claims
        self.codes: Final = np.zeros(n, np.int8)
        self.reasons: Final = np.zeros(n, np.int32)

    def accepted(self) -> Mask:
        """bool[n]: the rows that are not rejected so far."""
        mask: Mask = self.codes == 0
        return mask

    def reject(
        self, positions: Rows, text: str, code: Code = Code.UnschedulableAndUnresolvable
    ) -> None:
        positions = positions[self.codes[positions] == 0]
        if len(positions):
            self.codes[positions] = code
            self.reasons[positions] = self._pod_claims.reason_number(text)

    def verdicts(self) -> Verdicts | None:
        if not self.codes.any():
            return None
        return Verdicts(self.codes, self.reasons, self._pod_claims.reason)


class ClaimFilter:
    """PreFilter, Filter and Score of pods with claims. Created for the first such pod: it keeps columns for all
    nodes."""

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        cluster, rng = handle.cluster, handle.rng
        self._table: Final = handle.table
        self._clock: Final = handle.clock
        self._args: Final = args
        self._tracker: Final = cluster.devices
        self._groups: Final = cluster.pod_groups
        self._shares: Final = CLAIMS in handle.features
        self._classes: Final = cluster.device_classes
        self._allocator: Final = Allocator(
            handle.table,
            cluster.tainted_slices
            if Rule.DeviceTaintRules in handle.features.rules
            else cluster.resource_slices,
            cluster.device_classes,
            cluster.devices.allocated,
            Selectors(),
            share_id=lambda: str(uuid.UUID(bytes=rng.bytes(16), version=4)),
            rules=handle.features.rules,
        )

    # ------------------------------------------------------------ PreFilter

    def prepare(self, pod: Pod, resources: Amounts) -> PodResourceClaims | Status:
        """The pod's claims, with that for its extended ``resources``, or the reason why no node can serve them."""
        mates: PodGroup | None = None
        of_group: frozenset[int] = frozenset()
        try:
            claims = claims_of(pod, self._tracker.claims, shared=self._shares)
            if self._shares and claims:
                mates = self._pod_group(pod)
            if mates is not None:
                of_group = shared_by_group(pod, mates, claims)
        except ClaimProblem as problem:
            return unresolvable(str(problem))
        extended = None
        if resources:
            known = self._tracker.claims.for_extended_resources(pod.uid)
            extended = known or unwritten_claim(pod)
        elif not claims:
            return SKIP
        selectors: dict[int, NodeSelectorMatcher] = {}
        shared: dict[int, AllocationResult] = {}
        group = self._groups.key_of(pod)
        for at, claim in enumerate(claims):
            allocation = claim.status.allocation
            pending = self._tracker.in_flight(claim.uid) if allocation is None else None
            if pending is not None and group is not None and pending.group == group:
                allocation = shared[at] = pending.allocation
            else:
                status = self._check(claim)
                if status is not None:
                    return status
            if allocation is not None and allocation.node_selector is not None:
                selectors[at] = compile_node_selector(allocation.node_selector)
                if selectors[at].errors:
                    text = str(UnreadableTermsError(selectors[at].errors))
                    return Status(Code.Error, (text,))
        return PodResourceClaims(
            claims,
            extended=extended,
            resources=resources,
            selectors=selectors,
            shared=shared,
            user=pod,
            group=mates,
            of_group=of_group,
            budget=Budget(self._clock, self._args.filter_timeout),
        )

    def _pod_group(self, pod: Pod) -> PodGroup | None:
        """The group whose claims a pod shares; None for a pod without one. Raises ClaimProblem."""
        key = self._groups.key_of(pod)
        if key is None or key.kind is not PodGroup:
            return None
        group = self._groups.get(key)
        if not isinstance(group, PodGroup):
            raise ClaimProblem(f'podgroup.{PodGroup.GROUP} "{key.name}" not found')
        return group

    def _check(self, claim: ResourceClaim) -> Status | None:
        """Why a claim without an allocation cannot be allocated on any node; None if it may be."""
        if claim.status.allocation is not None:
            return None
        if self._tracker.in_flight(claim.uid) is not None:
            return unresolvable(f"resource claim {claim.key} is in the process of being allocated")
        for request in claim.spec.devices.requests or ():
            named = _classes_of(request)
            if not named:
                return unresolvable(
                    f"resource claim {claim.key}, request {request.name}: unknown request type"
                )
            for name, device_class in named:
                if not device_class:
                    return Status(Code.Error, (f"request {name}: unsupported request type",))
                if self._classes.get(device_class) is None:
                    return unresolvable(
                        f"request {name}: device class {device_class} does not exist"
                    )
        return None

    # ------------------------------------------------------------ Filter

    def judge(self, pod_claims: PodResourceClaims, pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows, and keeps in ``pod_claims`` what can be allocated on the others. None rejects no row."""
        verdicts = _RowVerdicts(pod_claims, view.n)
        exist: Mask = self._table.exists[view.rows]
        parts = [_Part(np.flatnonzero(exist), pod_claims.to_allocate, ())]
        idle = np.zeros(view.n, bool)
        extended = pod_claims.extended
        if extended is not None:
            if not is_unwritten(extended):
                verdicts.reject(np.flatnonzero(exist), ERR_REASON_STALE)
                return verdicts.verdicts()
            parts, idle = self._by_resources(verdicts, pod_claims, pod, view, exist)
        for part in parts:
            if part.wanted:
                self._allocate(verdicts, pod_claims, view, part)
        self._check_allocated(verdicts, pod_claims, view, exist & ~idle)
        return verdicts.verdicts()

    def _by_resources(
        self,
        verdicts: _RowVerdicts,
        pod_claims: PodResourceClaims,
        pod: Pod,
        view: View,
        exist: Mask,
    ) -> tuple[list[_Part], Mask]:
        """Divides the rows by the extended resources that devices have to provide there.

        Also returns bool[n]: the rows whose nodes advertise all the resources themselves, if the pod has no other
        claims.
        """
        lacking: list[Mask] = []
        with_class: list[str] = []
        for name in pod_claims.resources:
            absent = view.allocatable(name) == 0
            if self._tracker.classes.get(name) is None:
                verdicts.reject(np.flatnonzero(exist & absent), ERR_REASON_CANNOT_FIT)
            else:
                lacking.append(absent)
                with_class.append(name)
        rows = np.flatnonzero(verdicts.accepted() & exist)
        parts = list(self._parts(pod_claims, pod, lacking, with_class, rows))
        idle = np.full(view.n, pod_claims.extended_at == 0)
        for absent in lacking:
            idle &= ~absent
        return parts, idle

    def _parts(
        self,
        pod_claims: PodResourceClaims,
        pod: Pod,
        lacking: Sequence[Mask],
        with_class: list[str],
        rows: Rows,
    ) -> Iterator[_Part]:
        extended, at = pod_claims.extended, pod_claims.extended_at
        if extended is None or at is None or not len(rows):
            return
        masks = [np.zeros(len(rows), bool), *[mask[rows] for mask in lacking]]
        packed = np.packbits(np.array(masks), axis=0)
        patterns, pattern_of, counts = np.unique(
            packed, axis=1, return_inverse=True, return_counts=True
        )
        by_pattern = np.split(
            rows[pattern_of.ravel().argsort(kind="stable")], np.cumsum(counts)[:-1]
        )
        for number, (_, *bits) in enumerate(np.unpackbits(patterns, axis=0).T.tolist()):
            names = [name for bit, name in zip(bits, with_class, strict=False) if bit]
            found = requests_for(pod.template, names, self._tracker.classes)
            wanted = pod_claims.to_allocate
            if names:
                wanted[at] = with_requests(extended, found.requests)
            yield _Part(by_pattern[number], wanted, found.mappings)

    def _allocate(
        self, verdicts: _RowVerdicts, pod_claims: PodResourceClaims, view: View, part: _Part
    ) -> None:
        positions = part.positions
        if not len(positions):
            return
        rows = view.rows[positions]
        result = self._allocator.search(rows, list(part.wanted.values()), pod_claims.budget)
        pod_claims.found.append(NodeAllocations(rows, result, part.wanted, part.mappings))
        if result.codes.any():
            self._reject_failed(verdicts, view, positions, result)

    def _reject_failed(
        self, verdicts: _RowVerdicts, view: View, positions: Rows, result: AllocatorResult
    ) -> None:
        """Rejects the rows on which nothing was allocated. ``positions`` are those of the result's rows in the view."""
        verdicts.reject(positions[result.codes == CANNOT], ERR_REASON_CANNOT_ALLOCATE)
        late = result.codes == TIMED_OUT
        if late.any():
            name = self._table.names[view.rows[positions[late.argmax()]]]
            text = f"node {name}: timed out trying to allocate devices"
            verdicts.reject(positions[late], text, Code.Error)
        failed = (result.codes == ERROR) | (result.codes == FAILED)
        for kind in np.unique(result.kinds[failed]).tolist():
            chosen = failed & (result.kinds == kind)
            fatal = result.codes[chosen.argmax()] == ERROR
            code = Code.Error if fatal else Code.UnschedulableAndUnresolvable
            verdicts.reject(positions[chosen], result.text(kind), code)

    def _check_allocated(
        self, verdicts: _RowVerdicts, pod_claims: PodResourceClaims, view: View, where: Mask
    ) -> None:
        """Rejects rows that do not reach allocated devices, and all rows if devices failed or were not ready in
        time."""
        accepted = verdicts.accepted() & where
        for at, claim in enumerate(pod_claims.claims):
            if pod_claims.allocation(at) is None:
                continue
            unusable = np.full(view.n, at not in pod_claims.shared and self._cannot_be_bound(claim))
            selector = pod_claims.selectors.get(at)
            if selector is not None:
                unusable |= ~selector.matches(view)
            positions = np.flatnonzero(unusable & accepted)
            if len(positions):
                pod_claims.unavailable.add(at)
                verdicts.reject(positions, ERR_REASON_NOT_AVAILABLE)

    def _cannot_be_bound(self, claim: ResourceClaim) -> bool:
        try:
            return not ready(claim) and timed_out(
                claim, self._clock.wall(), self._args.binding_timeout
            )
        except BindingFailed:
            return True


def _classes_of(request: DeviceRequest) -> list[tuple[str, str]]:
    """(request, class) of a request, or of each of its alternatives; empty for a request of an unknown kind."""
    if request.exactly is not None:
        return [(request.name, request.exactly.device_class_name)]
    return [
        (f"{request.name}{_SEPARATOR}{alternative.name}", alternative.device_class_name)
        for alternative in request.first_available or ()
    ]


# ---------------------------------------------------------------- Score


def scores(pod_claims: PodResourceClaims, view: View) -> Int64 | None:
    """int64[n], 0 to 100: higher for earlier alternatives of requests (KEP-4816).

    None if no claim has alternatives, or nothing has to be allocated.
    """
    if not pod_claims.found or not any(map(_has_alternatives, pod_claims.claims)):
        return None
    fixed = sum(
        _points(claim, allocation)
        for at, claim in enumerate(pod_claims.claims)
        if (allocation := pod_claims.allocation(at)) is not None
    )
    by_row = np.zeros(view.table.size, np.int64)
    for found in pod_claims.found:
        result = found.result
        points = np.zeros(int(result.kinds.max(initial=0)) + 1, np.int64)
        for kind in np.unique(result.kinds[result.codes == 0]).tolist():
            allocated = zip(found.wanted.values(), result.sample(kind), strict=True)
            points[kind] = fixed + sum(_points(claim, each) for claim, each in allocated)
        by_row[found.rows] = points[result.kinds]
    return default_normalize(by_row[view.rows])


def _has_alternatives(claim: ResourceClaim) -> bool:
    return any(request.first_available for request in claim.spec.devices.requests or ())


def _points(claim: ResourceClaim, allocation: AllocationResult) -> int:
    """MAX_ALTERNATIVES for each request that got its first alternative, one less for the second, and so on."""
    taken = _alternatives(result.request for result in allocation.devices.results or ())
    return sum(
        MAX_ALTERNATIVES - place
        for request in claim.spec.devices.requests or ()
        for place, alternative in enumerate(request.first_available or ())
        if f"{request.name}{_SEPARATOR}{alternative.name}" in taken
    )


def _alternatives(names: Iterable[str]) -> set[str]:
    """The names that are those of alternatives."""
    return {name for name in names if name.count(_SEPARATOR) == 1}
