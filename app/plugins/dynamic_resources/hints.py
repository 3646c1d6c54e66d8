"""What may help pods that wait because of their claims (docs/spec/plugins/dynamic-resources.md#events)."""

from collections.abc import Collection, Iterable
from typing import Final

from app.framework.interface import EventRegistration, QueueingHint
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.devices import ResourceClaim
from app.model.pod import Pod, PodTemplate
from app.plugins.dynamic_resources.pod_claims import ClaimProblem, claims_of
from app.state.devices.claims import ResourceClaims

_CHANGE: Final = Action.Add | Action.Update


class Hints:
    """Hints about claims and pods."""

    def __init__(self, known: ResourceClaims) -> None:
        self._known: Final = known

    def registrations(self) -> Iterable[EventRegistration]:
        """Everything that claims are allocated by, and nodes."""
        nodes = Action.Add | Action.UpdateNodeLabel | Action.UpdateNodeAllocatable
        return (
            EventRegistration(ClusterEvent(Resource.Node, nodes)),
            EventRegistration(
                ClusterEvent(Resource.ResourceClaim, _CHANGE),
                self.after_claim_changed,
                narrow=pods_of_claim,
            ),
            EventRegistration(
                ClusterEvent(Resource.Pod, Action.UpdatePodGeneratedResourceClaim),
                self.after_pod_changed,
            ),
            EventRegistration(ClusterEvent(Resource.DeviceClass, _CHANGE)),
            EventRegistration(ClusterEvent(Resource.ResourceSlice, _CHANGE)),
        )

    def after_claim_changed(self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim) -> bool:
        """Any devices were freed, or a claim of this pod has come or changed its status; the pod has all its claims."""
        try:
            claims = claims_of(pod, self._known)
        except ClaimProblem:
            return QueueingHint.SKIP
        if old is None:
            return any(claim.uid == new.uid for claim in claims)
        if _freed(old, new):
            return QueueingHint.QUEUE
        return old.status != new.status and any(claim.uid == new.uid for claim in claims)

    def after_pod_changed(self, pod: Pod, _old: Pod | None, new: Pod) -> bool:
        """All claims of this very pod are there."""
        if new.uid != pod.uid:
            return QueueingHint.SKIP
        try:
            claims_of(new, self._known)
        except ClaimProblem:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE


def pods_of_claim(
    template: PodTemplate, old: ResourceClaim | None, new: ResourceClaim
) -> Collection[str] | None:
    """Any pod if devices were freed or the template names the claim; else none but the one it was made for."""
    entries = template.spec.resource_claims or ()
    if _freed(old, new) or any(entry.resource_claim_name == new.name for entry in entries):
        return None
    return [owner.uid for owner in new.metadata.owner_references or () if owner.controller]


def _freed(old: ResourceClaim | None, new: ResourceClaim) -> bool:
    return old is not None and old.status.allocation is not None and new.status.allocation is None
