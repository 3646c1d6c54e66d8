"""The ResourceClaims of a pod: which they are, and what one scheduling attempt knows about them.

See docs/spec/plugins/dynamic-resources.md#preenqueue.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from app.model.devices import FINALIZER, AllocationResult, ConsumerReference, ResourceClaim
from app.model.objects import PodResourceClaim
from app.model.pod import Pod
from app.model.pod_groups import PodGroup
from app.model.requests import Amounts
from app.plugins.dynamic_resources.budget import Budget
from app.state.columns.arrays import Rows
from app.state.devices import ResourceClaims

if TYPE_CHECKING:
    from app.plugins.dynamic_resources.allocator import AllocatorResult
    from app.plugins.dynamic_resources.extended_resources import RequestMapping
    from app.plugins.helpers.node_selector import NodeSelectorMatcher

_UNSUPPORTED: Final = "none of the supported fields are set"


class ClaimProblem(Exception):  # noqa: N818 - not an error: the pod has to wait
    """A claim of a pod is missing or must not be used. The text is kube-scheduler's."""


def claims_of(pod: Pod, known: ResourceClaims, *, shared: bool = False) -> list[ResourceClaim]:
    """The claims that the pod names or that were created for it, each once, in the order of the spec. Raises
    ClaimProblem.

    Entries of the spec that need no claim, by the pod's status, are left out. If claims are ``shared``, one may have
    been created for the pod's group.
    """
    found: dict[str, ResourceClaim] = {}
    for entry in pod.spec.resource_claims or ():
        name = _name(pod, entry)
        if name is None:
            continue
        claim = known.get(name, pod.namespace)
        if claim is None:
            raise ClaimProblem(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimProblem(f'resourceclaim "{name}" is being deleted')
        if entry.resource_claim_name is None and claim.controller_uid != pod.uid:
            _check_owner(claim, pod, shared=shared)
        found[claim.uid] = claim
    return list(found.values())


def _check_owner(claim: ResourceClaim, pod: Pod, *, shared: bool) -> None:
    """Raises ClaimProblem for a claim that was not created for the pod's group, which is known by its name only."""
    group = pod.pod_group_name if shared else ""
    if group and is_for_group(claim, group):
        return
    why = f"neither Pod nor PodGroup {group} is the owner" if group else "Pod is not owner"
    raise ClaimProblem(f"ResourceClaim {claim.key} was not created for Pod {pod.key} ({why})")


def is_for_group(claim: ResourceClaim, name: str) -> bool:
    """Whether a claim was created for a PodGroup of this name."""
    owner = claim.controller
    return (
        owner is not None
        and owner.kind == "PodGroup"
        and owner.name == name
        and owner.api_version.startswith(f"{PodGroup.GROUP}/")
    )


def shared_by_group(pod: Pod, group: PodGroup, claims: Sequence[ResourceClaim]) -> frozenset[int]:
    """The indexes of the pod's claims that are its group's: the group has the same entry. Raises ClaimProblem."""
    entries = group.spec.resource_claims or ()
    for entry in entries:
        if entry.resource_claim_name is None and entry.resource_claim_template_name is None:
            raise ClaimProblem(f"PodGroup {group.key} claim {entry.name}: {_UNSUPPORTED}")
    names = {_name(pod, entry) for entry in pod.spec.resource_claims or () if entry in entries}
    return frozenset(at for at, claim in enumerate(claims) if claim.name in names)


def claim_names(group: PodGroup) -> dict[str, bool]:
    """The names of a group's claims that are known, each with whether it was created for the group."""
    names: dict[str, bool] = {}
    made = {each.name: each for each in group.status.resource_claim_statuses or ()}
    for entry in group.spec.resource_claims or ():
        if entry.resource_claim_name is not None:
            names[entry.resource_claim_name] = False
        elif entry.name in made and (name := made[entry.name].resource_claim_name) is not None:
            names[name] = True
    return names


def _name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """The name of an entry's claim, or None if it needs none. Raises ClaimProblem."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    if entry.resource_claim_template_name is None:
        raise ClaimProblem(f'pod "{pod.key}", spec.resourceClaim "{entry.name}": {_UNSUPPORTED}')
    for status in pod.claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    raise ClaimProblem(f'pod "{pod.key}": ResourceClaim not created yet')


def is_reserved_for(claim: ResourceClaim, user: Pod | PodGroup) -> bool:
    """Whether a pod or a group is a consumer of the claim."""
    return any(consumer.uid == user.uid for consumer in claim.status.reserved_for or ())


def consumer(user: Pod | PodGroup) -> ConsumerReference:
    """A pod or a group as a consumer of a claim."""
    if isinstance(user, PodGroup):
        return ConsumerReference(PodGroup.GROUP, "podgroups", user.name, user.uid)
    return ConsumerReference(resource="pods", name=user.name, uid=user.uid)


def has_finalizer(claim: ResourceClaim) -> bool:
    """Whether the claim has the finalizer of allocated claims."""
    return FINALIZER in (claim.metadata.finalizers or ())


def allocations(claims: Iterable[ResourceClaim]) -> list[AllocationResult]:
    """The allocations of the claims that have one."""
    return [claim.status.allocation for claim in claims if claim.status.allocation is not None]


def with_requests(claim: ResourceClaim, requests: tuple[object, ...]) -> ResourceClaim:
    """The claim with other device requests."""
    devices = msgspec.structs.replace(claim.spec.devices, requests=requests)
    return msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, devices=devices))


# ---------------------------------------------------------------- one attempt


class NodeAllocations:
    """What can be allocated on some rows.

    ``wanted`` has the claims that are allocated, by their index among the pod's claims. The claim for extended
    resources is as these nodes need it; ``mappings`` says which container needs which of its requests.
    """

    def __init__(
        self,
        rows: Rows,
        result: "AllocatorResult",
        wanted: Mapping[int, ResourceClaim],
        mappings: Sequence["RequestMapping"],
    ) -> None:
        self.rows: Final = rows
        self.result: Final = result
        self.wanted: Final = wanted
        self.mappings: Final = mappings


class ClaimReservation:
    """What is allocated to the pod's claims on the chosen node, by the claims' indexes, before all of it is written."""

    def __init__(
        self,
        allocations: Mapping[int, AllocationResult],
        claims: Mapping[int, ResourceClaim],
        mappings: Sequence["RequestMapping"],
    ) -> None:
        self.allocations: Final = allocations
        #: The claims as the node needs them.
        self.claims: Final = claims
        self.mappings: Final = mappings
        #: The uids under which the devices are in flight.
        self.in_flight: Final[set[str]] = set()
        #: Indexes of the claims of which a write has begun and its outcome is not known.
        self.begun: Final[set[int]] = set()


class PodResourceClaims:
    """The claims of a pod in one attempt, from PreFilter to PreBind."""

    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        *,
        extended: ResourceClaim | None,
        resources: Amounts,
        selectors: Mapping[int, "NodeSelectorMatcher"],
        shared: Mapping[int, AllocationResult],
        user: Pod,
        group: PodGroup | None,
        of_group: Collection[int],
        budget: Budget,
    ) -> None:
        """``extended`` is the claim for ``resources``, the extended resources that the pod requests.

        ``selectors`` match the nodes that reach the allocated claims, by the claim's index. ``shared`` has the
        allocations in flight for other pods of the pod's group. ``user`` is the pod, ``group`` the one with which it
        may share claims, and ``of_group`` are the indexes of those that it does share.
        """
        #: The claims of the spec, then the one for extended resources. Replaced by newer versions when they are
        #: written.
        self.claims: Final = [*claims, *([] if extended is None else [extended])]
        #: The index of the claim for extended resources.
        self.extended_at: Final = None if extended is None else len(claims)
        self.resources: Final = resources
        self.selectors: Final = selectors
        self.shared: Final = shared
        self._user: Final = user
        self._group: Final = group
        self._of_group: Final = of_group
        self.budget: Final = budget
        #: Indexes of allocated claims because of which a node was rejected.
        self.unavailable: Final[set[int]] = set()
        #: What Filter found, the latest last.
        self.found: Final[list[NodeAllocations]] = []
        self.reservation: ClaimReservation | None = None
        #: Whether PostFilter has freed a claim.
        self.freed = False
        self._reasons: Final[dict[str, int]] = {}

    @property
    def extended(self) -> ResourceClaim | None:
        """The claim for extended resources."""
        return None if self.extended_at is None else self.claims[self.extended_at]

    @property
    def to_allocate(self) -> dict[int, ResourceClaim]:
        """The claims of the spec without an allocation, by index."""
        return {
            at: claim
            for at, claim in enumerate(self.claims)
            if at != self.extended_at and self.allocation(at) is None
        }

    def consumer(self, at: int) -> ConsumerReference:
        """The one for which a claim is to be reserved: the pod, or the group whose claim it is."""
        group = self._group
        return consumer(self._user if group is None or at not in self._of_group else group)

    def may_use(self, claim: ResourceClaim) -> bool:
        """Whether a version of one of the claims is reserved for the pod, or for its group."""
        group = self._group
        return is_reserved_for(claim, self._user) or (
            group is not None and is_reserved_for(claim, group)
        )

    def allocation(self, at: int) -> AllocationResult | None:
        """The allocation of a claim, written or in flight."""
        return self.claims[at].status.allocation or self.shared.get(at)

    def reason_number(self, text: str) -> int:
        """The number of a reason, the same in all verdicts about the pod."""
        return self._reasons.setdefault(text, len(self._reasons))

    def reason(self, number: int) -> tuple[str, ...]:
        """The reason with a number."""
        return (list(self._reasons)[number],)

    def found_on(self, row: int) -> tuple[NodeAllocations, int] | None:
        """The latest allocations that were found for a row, and the row's position among their rows."""
        for found in reversed(self.found):
            position = np.flatnonzero(found.rows == row)
            if len(position):
                return found, int(position[0])
        return None
