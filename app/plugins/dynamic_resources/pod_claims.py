"""Which claims a pod has, and what its reservations and owners say.

See docs/spec/plugins/dynamic-resources.md#preenqueue.
"""

from collections.abc import Iterable

import msgspec

from app.model.devices import FINALIZER, AllocationResult, ConsumerReference, ResourceClaim
from app.model.objects import PodResourceClaim
from app.model.pod import Pod
from app.state.devices.claims import ResourceClaims


class ClaimProblem(Exception):  # noqa: N818 - no fault of ours: the pod has to wait
    """A claim of a pod is missing or not to be used; the text is kube-scheduler's."""


def claims_of(pod: Pod, known: ResourceClaims) -> list[ResourceClaim]:
    """The claims that the pod's spec names or that were made for it, each once, in order. Raises ClaimProblem.

    An entry for which it was decided that no claim is needed has none.
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
        if entry.resource_claim_name is None and not _controlled_by(claim, pod):
            raise ClaimProblem(
                f"ResourceClaim {claim.key} was not created for Pod {pod.key} (Pod is not owner)"
            )
        found[claim.uid] = claim
    return list(found.values())


def _name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """The name of the claim behind an entry, None for none."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    if entry.resource_claim_template_name is None:
        raise ClaimProblem(
            f'pod "{pod.key}", spec.resourceClaim "{entry.name}": none of the supported fields are set'
        )
    for status in pod.claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name
    raise ClaimProblem(f'pod "{pod.key}": ResourceClaim not created yet')


def _controlled_by(claim: ResourceClaim, pod: Pod) -> bool:
    owners = claim.metadata.owner_references or ()
    return any(owner.controller and owner.uid == pod.uid for owner in owners)


def is_reserved_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the pod is among the consumers of a claim."""
    return any(consumer.uid == pod.uid for consumer in claim.status.reserved_for or ())


def consumer(pod: Pod) -> ConsumerReference:
    """The pod as a consumer."""
    return ConsumerReference(resource="pods", name=pod.name, uid=pod.uid)


def has_finalizer(claim: ResourceClaim) -> bool:
    """Whether the claim is kept while it is allocated."""
    return FINALIZER in (claim.metadata.finalizers or ())


def allocations(claims: Iterable[ResourceClaim]) -> list[AllocationResult]:
    """The allocations that claims have."""
    return [claim.status.allocation for claim in claims if claim.status.allocation is not None]


def with_requests(claim: ResourceClaim, requests: tuple[object, ...]) -> ResourceClaim:
    """The claim with these requests for devices."""
    devices = msgspec.structs.replace(claim.spec.devices, requests=requests)
    return msgspec.structs.replace(claim, spec=msgspec.structs.replace(claim.spec, devices=devices))
