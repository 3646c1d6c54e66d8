"""CSI migration: translates in-tree volumes to volumes of the CSI drivers that replaced the in-tree plugins.

kube-scheduler counts an in-tree disk against the limit of the CSI driver that serves it, by the handle that the
driver would give it. On nodes that have migrated, it checks an in-tree volume's zones by the driver's topology label
(docs/spec/plugins/node-volume-limits.md#filter, docs/spec/plugins/volume-binding.md#filter; KEP-625).
"""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from app.model.objects import NodeSelector, NodeSelectorTerm, Volume
from app.model.selectors import Requirement
from app.model.storage import PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"

#: Separates the zones in the label of a volume in several zones.
MULTI_ZONE_DELIMITER: Final = "__"

_UNSPECIFIED: Final = "UNSPECIFIED"
_EBS_VOLUME = re.compile(r"vol-[^/]*")


class TranslationError(ValueError):
    """An in-tree volume that cannot be translated; the text is Kubernetes'."""


class InTreePlugin(msgspec.Struct, frozen=True):
    """An in-tree volume plugin, the CSI driver that replaced it, and the driver's zone label ("" if it has none)."""

    name: str
    driver: str
    topology_key: str = ""


AWS_EBS: Final = InTreePlugin(
    "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"
)
GCE_PD: Final = InTreePlugin(
    "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"
)
CINDER: Final = InTreePlugin(
    "kubernetes.io/cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"
)
AZURE_DISK: Final = InTreePlugin("kubernetes.io/azure-disk", "disk.csi.azure.com")
PORTWORX: Final = InTreePlugin("kubernetes.io/portworx-volume", "pxd.portworx.com")

_DRIVER_OF: Final = {p.name: p.driver for p in (AWS_EBS, GCE_PD, CINDER, AZURE_DISK, PORTWORX)}
#: In-tree provisioners that the scheduler does not treat as migrated: their volumes are not counted.
_NOT_COUNTED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})

Source = Volume | PersistentVolumeSpec


def plugin_of(source: Source) -> InTreePlugin | None:
    """The migrated in-tree plugin of a pod's volume or a PersistentVolume; None for other sources."""
    if source.aws_elastic_block_store is not None:
        return AWS_EBS
    if source.gce_persistent_disk is not None:
        return GCE_PD
    if source.cinder is not None:
        return CINDER
    if source.azure_disk is not None:
        return AZURE_DISK
    if source.portworx_volume is not None:
        return PORTWORX
    return None


def driver_of_provisioner(provisioner: str) -> str:
    """The CSI driver for a class's provisioner; empty if its volumes do not count against a driver's limit."""
    if provisioner in _NOT_COUNTED:
        return ""
    return _DRIVER_OF.get(provisioner, provisioner)


# ---------------------------------------------------------------- handles


def inline_handle(volume: Volume) -> str:
    """The CSI volume handle of an in-tree disk in a pod's spec. Raises TranslationError."""
    disk = volume.gce_persistent_disk
    if disk is not None:
        return _gce_handle(disk.pd_name, ())
    return _handle(volume)


def volume_handle(volume: PersistentVolume) -> str:
    """The CSI volume handle of an in-tree PersistentVolume. Raises TranslationError."""
    disk = volume.spec.gce_persistent_disk
    if disk is not None:
        zones = volume.labels.get(BETA_ZONE) or volume.labels.get(ZONE, "")
        return _gce_handle(disk.pd_name, zones.split(MULTI_ZONE_DELIMITER) if zones else ())
    return _handle(volume.spec)


def _handle(source: Source) -> str:
    if source.aws_elastic_block_store is not None:
        return _ebs_handle(source.aws_elastic_block_store.volume_id)
    if source.cinder is not None:
        return source.cinder.volume_id
    if source.portworx_volume is not None:
        return source.portworx_volume.volume_id
    if source.azure_disk is not None:
        kind = source.azure_disk.kind
        if kind is not None and kind.lower() != "managed":
            raise TranslationError(f"kind({kind}) is not supported in csi migration")
        return source.azure_disk.disk_uri
    raise TranslationError("not an in-tree volume that a CSI driver has taken over")


def _ebs_handle(volume_id: str) -> str:
    """``vol-1`` from either ``vol-1`` or ``aws://zone/vol-1``."""
    if not volume_id.startswith("aws://"):
        return volume_id
    handle = unquote(urlsplit(volume_id).path).strip("/")
    if _EBS_VOLUME.fullmatch(handle) is None:
        raise TranslationError(
            "failed to translate Kubernetes ID to EBS Volume ID "
            f"Invalid format for AWS volume ({volume_id})"
        )
    return handle


def _gce_handle(disk: str, zones: Iterable[str]) -> str:
    zones = tuple(zones)
    if len(zones) > 1:
        return f"projects/{_UNSPECIFIED}/regions/{_gce_region(zones)}/disks/{disk}"
    zone = zones[0] if zones else _UNSPECIFIED
    return f"projects/{_UNSPECIFIED}/zones/{zone}/disks/{disk}"


def _gce_region(zones: Iterable[str]) -> str:
    """``us-central1`` from ``us-central1-a`` and its neighbours."""
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise TranslationError(
                "failed to get region from zones: zone in unexpected format, "
                f"expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        listed = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{listed}]"
        )
    return regions.pop()


# ---------------------------------------------------------------- topology


def migrated(volume: PersistentVolume) -> PersistentVolume:
    """An in-tree volume with the node affinity that its CSI driver would give it. Raises TranslationError.

    The zone label in the affinity is replaced by the driver's; without one, the zones of the volume's label are
    added. A beta region label is replaced by its current name.
    """
    plugin = plugin_of(volume.spec)
    if plugin is None:
        return volume
    volume_handle(volume)
    if not plugin.topology_key:
        return volume
    affinity = volume.spec.node_affinity
    terms = (
        affinity.required.node_selector_terms if affinity and affinity.required else None
    ) or ()
    zone, region = _labels_in_use(volume, terms)
    if _has_values(terms, zone):
        terms = _renamed(terms, zone, plugin.topology_key)
    elif zone in volume.labels:
        terms = _restricted(terms, plugin.topology_key, volume.labels[zone])
    if region == BETA_REGION and _has_values(terms, BETA_REGION):
        terms = _renamed(terms, BETA_REGION, REGION)
    if not terms:
        return volume
    spec = msgspec.structs.replace(
        volume.spec, node_affinity=VolumeNodeAffinity(NodeSelector(tuple(terms)))
    )
    return msgspec.structs.replace(volume, spec=spec)


def _labels_in_use(
    volume: PersistentVolume, terms: tuple[NodeSelectorTerm, ...]
) -> tuple[str, str]:
    """The zone and region labels of a volume: affinity before labels, current names before beta names."""
    keys = {r.key for term in terms for r in term.match_expressions or ()}
    for present in (keys, volume.labels):
        if ZONE in present:
            return ZONE, REGION
        if BETA_ZONE in present:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _has_values(terms: tuple[NodeSelectorTerm, ...], key: str) -> bool:
    return any(r.key == key and r.values for term in terms for r in term.match_expressions or ())


def _renamed(
    terms: tuple[NodeSelectorTerm, ...], old: str, new: str
) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        NodeSelectorTerm(
            tuple(
                Requirement(new, r.operator, r.values) if r.key == old else r
                for r in term.match_expressions or ()
            ),
            term.match_fields,
        )
        for term in terms
    )


def _restricted(
    terms: tuple[NodeSelectorTerm, ...], key: str, label: str
) -> tuple[NodeSelectorTerm, ...]:
    zones = sorted({zone.strip() for zone in label.split(MULTI_ZONE_DELIMITER)} - {""})
    if not zones:
        return terms
    within = Requirement(key, "In", tuple(zones))
    return tuple(
        NodeSelectorTerm((*(term.match_expressions or ()), within), term.match_fields)
        for term in terms or (NodeSelectorTerm(),)
    )
