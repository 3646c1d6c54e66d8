"""Properties of PersistentVolumeClaims and PersistentVolumes: names, classes, sizes, and which is bound to which.

Used by the volume plugins and their indexes (docs/spec/plugins/volume-binding.md).
"""

from collections.abc import Iterator
from typing import Final

from app.model.objects import Resources, Volume
from app.model.pod import Pod
from app.model.quantity import parse
from app.model.storage import PersistentVolume, PersistentVolumeClaim

#: ``volumeBindingMode`` of classes whose claims are bound once a pod needs them.
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"

#: Annotation of a claim whose binding is finished; any value.
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
#: Annotation of a volume whose claimRef was set by a controller, not by its owner.
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
#: Annotation of a claim that is to be provisioned for a node: the node's name.
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"

_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_STORAGE: Final = "storage"

#: (namespace, name) of a claim.
ClaimKey = tuple[str, str]


def not_found(resource: str, name: str) -> str:
    """The error text of Kubernetes' listers for an object that does not exist."""
    return f'{resource} "{name}" not found'


def claim_missing(name: str) -> str:
    """``not_found`` of a claim."""
    return not_found("persistentvolumeclaim", name)


def claim_name(pod: Pod, volume: Volume) -> str | None:
    """The name of a volume's claim, including that of a generic ephemeral volume; None if it has none."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    if volume.ephemeral is not None:
        return f"{pod.name}-{volume.name}"
    return None


def claim_keys(pod: Pod) -> Iterator[ClaimKey]:
    """The claims of all of a pod's volumes, one entry per volume."""
    for volume in pod.template.volumes:
        name = claim_name(pod, volume)
        if name is not None:
            yield pod.namespace, name


def named_by(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume of the pod names this claim; generic ephemeral volumes do not count."""
    return claim.namespace == pod.namespace and claim.name in pod.template.claim_names


def used_by(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume of the pod uses this claim, generic ephemeral volumes included."""
    return (claim.namespace, claim.name) in claim_keys(pod)


def foreign_claim(pod: Pod, volume: Volume, claim: PersistentVolumeClaim) -> str | None:
    """The error if the pod does not control the claim of its ephemeral volume; None otherwise."""
    if volume.ephemeral is None or claim.controller_uid == pod.uid:
        return None
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    """The storage class of a claim, empty for none; the beta annotation takes precedence."""
    return claim.annotations.get(_BETA_CLASS, claim.spec.storage_class_name or "")


def class_of_volume(volume: PersistentVolume) -> str:
    """The storage class of a volume, empty for none; the beta annotation takes precedence."""
    return volume.annotations.get(_BETA_CLASS, volume.spec.storage_class_name)


def fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim names a volume and the binding is finished."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.annotations


def requested_storage(claim: PersistentVolumeClaim) -> int | None:
    """The requested nano-bytes of a claim; None without a request. Raises QuantityError."""
    resources = claim.spec.resources
    return storage_of(resources.requests if resources is not None else None)


def storage_of(amounts: Resources | None) -> int | None:
    """The ``storage`` entry in nano-bytes; None if there is none. Raises QuantityError."""
    amount = (amounts or {}).get(_STORAGE)
    return None if amount is None else parse(amount)


def bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume's claimRef is this claim; without a uid in the claimRef the name decides."""
    reference = volume.spec.claim_ref
    return (
        reference is not None
        and reference.name == claim.name
        and reference.namespace == claim.namespace
        and reference.uid in {"", claim.uid}
    )
