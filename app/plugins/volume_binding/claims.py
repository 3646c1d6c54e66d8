"""A pod's claims: bound, to be bound or provisioned for the pod, or not usable."""

import msgspec

from app.model.claims import (
    WAIT_FOR_FIRST_CONSUMER,
    claim_missing,
    claim_name,
    class_of_claim,
    foreign_claim,
    fully_bound,
    requested_storage,
)
from app.model.objects import Volume
from app.model.pod import Pod, PodTemplate
from app.model.quantity import QuantityError
from app.model.status import Code, Status, unresolvable
from app.model.storage import PersistentVolumeClaim, StorageClass
from app.state.assume_cache import ClaimCache
from app.state.cluster import Cluster

ERR_REASON_UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

_LOST = "Lost"


class Delayed(msgspec.Struct, frozen=True):
    """An unbound claim that waits for its first consumer. ``size``: requested nano-bytes, None without a request."""

    claim: PersistentVolumeClaim
    storage_class: StorageClass
    size: int | None


class PodClaims(msgspec.Struct, frozen=True):
    """The claims of a pod's volumes, one entry per volume."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[Delayed, ...]


def has_claims(template: PodTemplate) -> bool:
    """Whether pods of this template have claims."""
    return any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None
        for volume in template.volumes
    )


class ClaimReader:
    """Looks up and sorts the claims of pods."""

    def __init__(self, cluster: Cluster, claims: ClaimCache) -> None:
        self._cluster = cluster
        self._cache = claims

    def read(self, pod: Pod) -> PodClaims | Status:
        """The pod's claims, or why no node is feasible."""
        for volume in pod.template.volumes:
            problem = self._problem(pod, volume)
            if problem is not None:
                return unresolvable(problem)
        bound, delayed, immediate = [], [], False
        for volume in pod.template.volumes:
            claim = self._cache.get(claim_name(pod, volume) or "", pod.namespace)
            if claim is None:
                continue
            if fully_bound(claim):
                bound.append(claim)
                continue
            waiting = self._delayed(claim)
            if isinstance(waiting, Status):
                return waiting
            if waiting is None:
                immediate = True
            else:
                delayed.append(waiting)
        if immediate:
            return unresolvable(ERR_REASON_UNBOUND_IMMEDIATE)
        return PodClaims(tuple(bound), tuple(delayed))

    def _problem(self, pod: Pod, volume: Volume) -> str | None:
        """The error of a volume's claim; None if there is no error or no claim."""
        name = claim_name(pod, volume)
        if name is None:
            return None
        claim = self._cluster.claims.get(name, pod.namespace)
        if claim is None:
            if volume.ephemeral is None:
                return claim_missing(name)
            return (
                "waiting for ephemeral volume controller to create the "
                f'persistentvolumeclaim "{name}"'
            )
        if claim.status.phase == _LOST:
            return (
                f'persistentvolumeclaim "{name}" bound to non-existent '
                f'persistentvolume "{claim.spec.volume_name}"'
            )
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{name}" is being deleted'
        return foreign_claim(pod, volume, claim)

    def _delayed(self, claim: PersistentVolumeClaim) -> Delayed | Status | None:
        """The claim if it waits for its first consumer; None if it should have been bound before."""
        name = class_of_claim(claim)
        storage_class = self._cluster.storage_classes.get(name)
        if storage_class is None:
            return None
        mode = storage_class.volume_binding_mode
        if mode is None:
            return Status(Code.Error, (f'VolumeBindingMode not set for StorageClass "{name}"',))
        if mode != WAIT_FOR_FIRST_CONSUMER or claim.spec.volume_name:
            return None
        try:
            return Delayed(claim, storage_class, requested_storage(claim))
        except QuantityError as error:
            return Status(Code.Error, (f'persistentvolumeclaim "{claim.key}": {error}',))
