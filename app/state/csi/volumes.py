"""Determines the CSI volume of a claim or an in-tree disk (docs/spec/plugins/node-volume-limits.md#filter)."""

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

#: Prefix of the handle of a volume that is not provisioned yet; no driver uses it.
_PENDING = "\0"


class CsiVolume(NamedTuple):
    """A volume of a CSI driver."""

    driver: str
    handle: str


def inline_volume(volume: Volume) -> CsiVolume | None:
    """The CSI volume of a migrated in-tree disk in a pod's spec. Raises TranslationError."""
    plugin = plugin_of(volume)
    return None if plugin is None else CsiVolume(plugin.driver, inline_handle(volume))


def inline_fault(volume: Volume, problem: TranslationError) -> str:
    """The error text for an in-tree disk in a pod's spec that cannot be translated."""
    return f"converting volume({volume.name}) from inline to csi: {problem}"


class VolumeResolver:
    """Determines CSI volumes from the present objects."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of_claim(self, claim: PersistentVolumeClaim) -> CsiVolume | None:
        """The volume of a claim; None if it does not count against a driver's limit."""
        bound = self._cluster.volumes.get(claim.spec.volume_name)
        found = self._to_be_made(claim) if bound is None else _of_volume(bound)
        return found if found is not None and found.driver and found.handle else None

    def _to_be_made(self, claim: PersistentVolumeClaim) -> CsiVolume | None:
        """A claim without a volume counts as one volume of its class's driver."""
        storage_class = self._cluster.storage_classes.get(class_of_claim(claim))
        if storage_class is None:
            return None
        driver = driver_of_provisioner(storage_class.provisioner)
        return CsiVolume(driver, f"{_PENDING}{claim.key}")

    def of_attachment(self, attachment: VolumeAttachment) -> CsiVolume | None:
        """The volume of an attachment; None if it does not count."""
        spec = attachment.spec
        volume = self._cluster.volumes.get(spec.source.persistent_volume_name or "")
        if not spec.attacher or volume is None or volume.spec.csi is None:
            return None
        return CsiVolume(spec.attacher, volume.spec.csi.volume_handle)

    def of_pod(self, pod: Pod) -> Iterator[CsiVolume]:
        """The volumes of a pod on a node, one entry per use; unknown ones are left out."""
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
