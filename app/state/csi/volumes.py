"""CSI volumes: which one stands behind a claim or an in-tree disk (docs/spec/plugins/node-volume-limits.md#filter)."""

from collections.abc import Iterator
from typing import NamedTuple

from app.model.claims import claim_name, class_of_claim
from app.model.csi_migration import (
    TranslationError,
    driver_of_provisioner,
    inline_handle,
    plugin_of,
    volume_handle,
)
from app.model.objects import (
    PersistentVolume,
    PersistentVolumeClaim,
    Volume,
    VolumeAttachment,
)
from app.model.pod import Pod
from app.state.cluster import Cluster

#: Begins the handle that stands for a volume yet to be made; no driver gives handles like it.
_PENDING = "\0"


class CsiVolume(NamedTuple):
    """A volume of a CSI driver."""

    driver: str
    handle: str


def inline_volume(volume: Volume) -> CsiVolume | None:
    """The CSI volume behind a migrated in-tree disk that a pod names itself. Raises TranslationError."""
    plugin = plugin_of(volume)
    return None if plugin is None else CsiVolume(plugin.driver, inline_handle(volume))


def inline_fault(volume: Volume, problem: TranslationError) -> str:
    """Why a pod's own in-tree disk cannot be counted."""
    return f"converting volume({volume.name}) from inline to csi: {problem}"


class VolumeResolver:
    """Finds CSI volumes in the cluster as it is now."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of_claim(self, claim: PersistentVolumeClaim) -> CsiVolume | None:
        """The volume behind a claim; None if it does not count against any driver."""
        bound = self._cluster.volumes.get(claim.spec.volume_name)
        found = self._to_be_made(claim) if bound is None else _of_volume(bound)
        return found if found is not None and found.driver and found.handle else None

    def _to_be_made(self, claim: PersistentVolumeClaim) -> CsiVolume | None:
        """A claim without a volume counts as one more of its class's driver."""
        storage_class = self._cluster.storage_classes.get(class_of_claim(claim))
        if storage_class is None:
            return None
        driver = driver_of_provisioner(storage_class.provisioner)
        return CsiVolume(driver, f"{_PENDING}{claim.key}")

    def of_attachment(self, attachment: VolumeAttachment) -> CsiVolume | None:
        """The volume that an attachment holds on its node; None if it does not count."""
        spec = attachment.spec
        volume = self._cluster.volumes.get(spec.source.persistent_volume_name or "")
        if not spec.attacher or volume is None or volume.spec.csi is None:
            return None
        return CsiVolume(spec.attacher, volume.spec.csi.volume_handle)

    def of_pod(self, pod: Pod) -> Iterator[CsiVolume]:
        """The volumes that a pod on a node counts for, one entry per use; what cannot be found is left out."""
        for volume in pod.template.volumes:
            found = self._of_pod_volume(pod, volume)
            if found is not None:
                yield found

    def _of_pod_volume(self, pod: Pod, volume: Volume) -> CsiVolume | None:
        name = claim_name(pod, volume)
        if name is not None:
            claim = self._cluster.claims.get(name, pod.namespace)
            return None if claim is None else self.of_claim(claim)
        try:
            return inline_volume(volume)
        except TranslationError:
            return None


def _of_volume(volume: PersistentVolume) -> CsiVolume | None:
    if volume.spec.csi is not None:
        return CsiVolume(volume.spec.csi.driver, volume.spec.csi.volume_handle)
    plugin = plugin_of(volume.spec)
    try:
        return None if plugin is None else CsiVolume(plugin.driver, volume_handle(volume))
    except TranslationError:
        return None
