"""The claims and in-tree disks that the pods on each row use, for VolumeRestrictions.

Pods without volumes cost nothing, others a few dict entries per volume
(docs/spec/plugins/volume-restrictions.md).
"""

from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import TypeVar

import msgspec

from app.model.claims import ClaimKey
from app.model.objects import Volume
from app.model.pod import Pod

K = TypeVar("K", bound=Hashable)

#: The number of uses by row; rows without a use are absent.
Uses = dict[int, int]
#: The identity of a disk: its kind and its name within the kind.
DiskKey = tuple[str, ...]


class Disk(msgspec.Struct, frozen=True):
    """A disk in a pod's spec that pods on one node can share only if all of them mount it read-only.

    Two disks are the same if they have a key in common: an RBD image has one key per monitor, others have one key.
    """

    keys: frozenset[DiskKey]
    read_only: bool = False

    def clashes(self, other: "Disk") -> bool:
        """Whether pods with these disks cannot be on one node."""
        return not (self.read_only and other.read_only) and not self.keys.isdisjoint(other.keys)


def disks_of(volumes: Iterable[Volume]) -> Iterator[Disk]:
    """The disks among a pod's volumes: GCE PD, EBS (never shared), iSCSI and RBD."""
    for volume in volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            yield Disk(frozenset({("gce", gce.pd_name)}), gce.read_only)
        elif (ebs := volume.aws_elastic_block_store) is not None:
            yield Disk(frozenset({("ebs", ebs.volume_id)}))
        elif (iscsi := volume.iscsi) is not None:
            yield Disk(frozenset({("iscsi", iscsi.iqn)}), iscsi.read_only)
        elif (rbd := volume.rbd) is not None:
            keys = {("rbd", monitor, rbd.pool, rbd.image) for monitor in rbd.monitors or ()}
            yield Disk(frozenset(keys), rbd.read_only)


def count_use(uses: dict[K, Uses], key: K, row: int, step: int) -> None:
    """Adds ``step`` to the uses of ``key`` on a row. Raises KeyError if it would remove more than there are."""
    if step > 0:
        rows = uses.setdefault(key, {})
        rows[row] = rows.get(row, 0) + step
        return
    rows = uses[key]
    left = rows[row] + step
    if left < 0:
        raise KeyError(key)
    if left:
        rows[row] = left
    else:
        del rows[row]
    if not rows:
        del uses[key]


class VolumeIndex:
    """Claims and disks in use, by row."""

    def __init__(self) -> None:
        self._claims: dict[ClaimKey, Uses] = {}
        self._disk_uses: dict[DiskKey, Uses] = {}
        self._disk_writers: dict[DiskKey, Uses] = {}

    def add(self, pod: Pod, row: int) -> None:
        self._count(pod, row, 1)

    def remove(self, pod: Pod, row: int) -> None:
        self._count(pod, row, -1)

    def _count(self, pod: Pod, row: int, step: int) -> None:
        if not pod.template.volumes:
            return
        for name in pod.template.claim_names:
            count_use(self._claims, (pod.namespace, name), row, step)
        for disk in disks_of(pod.template.volumes):
            for key in disk.keys:
                count_use(self._disk_uses, key, row, step)
                if not disk.read_only:
                    count_use(self._disk_writers, key, row, step)

    def grow(self, capacity: int) -> None:
        """Does nothing: there are no arrays by row."""

    def claim_rows(self, key: ClaimKey) -> Collection[int]:
        """The rows with pods whose volumes name this claim (generic ephemeral volumes do not)."""
        return self._claims.get(key, {}).keys()

    def disk_rows(self, disk: Disk) -> set[int]:
        """The rows on which the present pods exclude a pod with this disk."""
        uses = self._disk_writers if disk.read_only else self._disk_uses
        return {row for key in disk.keys for row in uses.get(key, ())}
