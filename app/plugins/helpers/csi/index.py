"""CSI volumes in use on every row, and whether more would fit, for NodeVolumeLimits.

See docs/spec/plugins/node-volume-limits.md.

Pods name claims; the volume of a claim depends on the claim, its PersistentVolume and its StorageClass. The index
follows changes of all three and then moves the claim's uses to the other volume, so that no attempt has to loop over
pods.

It is created at the first use. After that an event costs one step per use of the changed object.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from app.model.claims import ClaimKey, claim_name, class_of_claim
from app.model.csi_migration import (
    TranslationError,
    driver_of_provisioner,
    inline_handle,
    plugin_of,
    volume_handle,
)
from app.model.objects import Volume
from app.model.pod import Pod
from app.model.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from app.plugins.helpers.csi.nodes import CsiNodes, RowNames
from app.state.cluster import Cluster
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask
from app.state.columns.sparse import SparseColumns
from app.state.columns.volumes import Uses, count_use
from app.state.table import NodeTable
from app.state.view import View

#: Prefix of the handle of a volume that is not provisioned yet; no driver uses it.
_PENDING = "\0"


class CsiVolume(msgspec.Struct, frozen=True):
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


class _VolumeResolver:
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


_NOBODY: Final[Uses] = {}


class _CsiCounts:
    """Volumes in use by pods or attached, by row."""

    def __init__(self, names: RowNames, capacity: int) -> None:
        self._names = names
        self._capacity = capacity
        self._uses: dict[CsiVolume, Uses] = {}
        #: The number of attachments of a volume, by node name.
        self._held: defaultdict[str, dict[CsiVolume, int]] = defaultdict(dict)
        #: By driver.
        self._counts = SparseColumns(capacity)

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self._capacity = capacity
        self._counts.grow(capacity)

    def use(self, volume: CsiVolume, row: int, step: int) -> None:
        """Adds ``step`` to the uses of a volume by pods on a row."""
        before = self._used(volume, row)
        count_use(self._uses, volume, row, step)
        if 0 in {before, before + step} and not self._held_on(row, volume):
            self._counts.add(volume.driver, row, 1 if step > 0 else -1)

    def hold(self, volume: CsiVolume, node_name: str, step: int) -> None:
        """Adds or removes an attachment of a volume to a node."""
        held = self._held[node_name]
        before = held.pop(volume, 0)
        if before + step:
            held[volume] = before + step
        elif not held:
            del self._held[node_name]
        row = self._names.row(node_name)
        if row is not None and 0 in {before, before + step} and not self._used(volume, row):
            self._counts.add(volume.driver, row, step)

    def sync(self, lost: Iterable[tuple[int, str]], found: Iterable[tuple[int, str]]) -> None:
        """Applies changes of the rows' node names (see RowNames.catch_up)."""
        for step, pairs in ((-1, lost), (1, found)):
            for row, name in pairs:
                for volume in self._held.get(name, ()):
                    if not self._used(volume, row):
                        self._counts.add(volume.driver, row, step)

    def _used(self, volume: CsiVolume, row: int) -> int:
        return self._uses.get(volume, _NOBODY).get(row, 0)

    def _held_on(self, row: int, volume: CsiVolume) -> bool:
        return volume in self._held.get(self._names.name(row), ())

    # ------------------------------------------------------------ questions

    def on(self, view: View, driver: str) -> Int64:
        """int64[n]: the number of volumes of a driver on each row, without dry-run changes."""
        counts = self._counts.get(driver)
        return np.zeros(view.n, np.int64) if counts is None else counts.at(view.rows)

    def unused(self, view: View, volumes: Collection[CsiVolume]) -> Int64:
        """int64[n]: the number of these volumes that no pod on the row uses, without dry-run changes."""
        fresh = np.full(self._capacity, len(volumes), np.int64)
        for volume in volumes:
            rows = self._uses.get(volume, _NOBODY)
            fresh[np.fromiter(rows, np.intp, len(rows))] -= 1
        return fresh[view.rows]

    def changes(
        self, view: View, shifts: Mapping[tuple[int, CsiVolume], int]
    ) -> Iterable[tuple[int, CsiVolume, int, bool]]:
        """The effect of a dry run: (position, volume, +1 or -1, whether the row's count changes too).

        ``shifts``: by position and volume, the change in the number of uses. A volume is reported if it gets its
        first use or loses its last.
        """
        for (position, volume), shift in shifts.items():
            row = int(view.rows[position])
            before = self._used(volume, row)
            if (before > 0) != (before + shift > 0):
                yield position, volume, 1 if shift > 0 else -1, not self._held_on(row, volume)


class _Links:
    """Keys by the name of the object on which they depend; a single key is kept without a collection."""

    def __init__(self) -> None:
        self._by_name: dict[str, ClaimKey | set[ClaimKey]] = {}

    def put(self, name: str, key: ClaimKey) -> None:
        known = self._by_name.get(name)
        if known is None:
            self._by_name[name] = key
        elif isinstance(known, set):
            known.add(key)
        elif known != key:
            self._by_name[name] = {known, key}

    def drop(self, name: str, key: ClaimKey) -> None:
        known = self._by_name.get(name)
        if isinstance(known, set):
            known.discard(key)
        if known in (key, set()):
            del self._by_name[name]

    def of(self, name: str) -> tuple[ClaimKey, ...]:
        known = self._by_name.get(name)
        if known is None:
            return ()
        return tuple(known) if isinstance(known, set) else (known,)


class _Claim:
    """A claim in use by pods on rows, its present volume, and the names of the objects on which that depends."""

    __slots__ = ("class_name", "uses", "volume", "volume_name")

    def __init__(self) -> None:
        self.uses: Uses = {}
        self.volume: CsiVolume | None = None
        self.volume_name = ""
        self.class_name = ""


class CsiIndex:
    """CSI volumes by row. ``nodes``: the limits."""

    def __init__(self, table: NodeTable, cluster: Cluster) -> None:
        self.resolver = _VolumeResolver(cluster)
        self._cluster = cluster
        self._names = RowNames(table)
        self.nodes = CsiNodes(self._names, cluster.csi_nodes, table.capacity)
        self._counts = _CsiCounts(self._names, table.capacity)
        self._claims: dict[ClaimKey, _Claim] = {}
        self._by_volume = _Links()
        self._by_class = _Links()
        #: The node and volume of every attachment, and the attachments by PersistentVolume.
        self._attachments: dict[str, tuple[str, CsiVolume | None]] = {}
        self._attachments_of = _Links()
        for attachment in cluster.attachments:
            self._attachment_changed(None, attachment)
        cluster.claims.follow(self._claim_changed)
        cluster.volumes.follow(self._volume_changed)
        cluster.storage_classes.follow(self._class_changed)
        cluster.attachments.follow(self._attachment_changed)

    def sync(self) -> None:
        """Applies changes of the rows' node names; must be called before a query."""
        lost, found = self._names.catch_up()
        if lost or found:
            self._counts.sync(lost, found)
            self.nodes.sync(found)

    # ------------------------------------------------------------ pods

    def add(self, pod: Pod, row: int) -> None:
        self._count(pod, row, 1)

    def remove(self, pod: Pod, row: int) -> None:
        self._count(pod, row, -1)

    def grow(self, capacity: int) -> None:
        """Makes room for more rows."""
        self.nodes.grow(capacity)
        self._counts.grow(capacity)

    def _count(self, pod: Pod, row: int, step: int) -> None:
        for volume in pod.template.volumes:
            name = claim_name(pod, volume)
            if name is None:
                self._use_inline(volume, row, step)
            else:
                self._use_claim((pod.namespace, name), row, step)

    def _use_inline(self, volume: Volume, row: int, step: int) -> None:
        """A disk that cannot be translated does not count: such a pod must not exclude others from the node."""
        try:
            found = inline_volume(volume)
        except TranslationError:
            return
        if found is not None:
            self._counts.use(found, row, step)

    def _use_claim(self, key: ClaimKey, row: int, step: int) -> None:
        known = self._claims.get(key)
        if known is None:
            known = self._claims[key] = _Claim()
            self._resolve(key, known)
        count = known.uses.pop(row, 0) + step
        if count:
            known.uses[row] = count
        if known.volume is not None:
            self._counts.use(known.volume, row, step)
        if not known.uses:
            self._unlink(key, known)
            del self._claims[key]

    # ------------------------------------------------------------ what claims stand for

    def _resolve(self, key: ClaimKey, known: _Claim) -> None:
        """Determines the claim's volume again and moves the claim's uses to it."""
        self._unlink(key, known)
        namespace, name = key
        claim = self._cluster.claims.get(name, namespace)
        volume = None
        if claim is not None:
            volume = self.resolver.of_claim(claim)
            known.volume_name, known.class_name = claim.spec.volume_name, class_of_claim(claim)
            self._by_volume.put(known.volume_name, key)
            self._by_class.put(known.class_name, key)
        if volume != known.volume:
            before, known.volume = known.volume, volume
            for row, count in known.uses.items():
                if before is not None:
                    self._counts.use(before, row, -count)
                if volume is not None:
                    self._counts.use(volume, row, count)

    def _unlink(self, key: ClaimKey, known: _Claim) -> None:
        self._by_volume.drop(known.volume_name, key)
        self._by_class.drop(known.class_name, key)

    def _claim_changed(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        claim = new or old
        if claim is None:
            return
        key = (claim.namespace, claim.name)
        known = self._claims.get(key)
        if known is not None:
            self._resolve(key, known)

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        volume = new or old
        if volume is None:
            return
        for key in self._by_volume.of(volume.name):
            self._resolve(key, self._claims[key])
        for _, name in self._attachments_of.of(volume.name):
            attachment = self._cluster.attachments.get(name)
            self._attachment_changed(attachment, attachment)

    def _class_changed(self, old: StorageClass | None, new: StorageClass | None) -> None:
        changed = new or old
        if changed is not None:
            for key in self._by_class.of(changed.name):
                self._resolve(key, self._claims[key])

    def _attachment_changed(
        self, old: VolumeAttachment | None, new: VolumeAttachment | None
    ) -> None:
        if old is not None:
            self._attachments_of.drop(_source(old), ("", old.name))
            node_name, volume = self._attachments.pop(old.name, ("", None))
            if volume is not None:
                self._counts.hold(volume, node_name, -1)
        if new is not None:
            volume = self.resolver.of_attachment(new)
            self._attachments_of.put(_source(new), ("", new.name))
            self._attachments[new.name] = (new.spec.node_name, volume)
            if volume is not None:
                self._counts.hold(volume, new.spec.node_name, 1)

    # ------------------------------------------------------------ questions

    def overflow(self, view: View, wanted: Collection[CsiVolume]) -> Mask:
        """bool[n]: whether these distinct volumes of a new pod would exceed a driver's limit."""
        out = np.zeros(view.n, bool)
        limits = {v.driver: self.nodes.limit(v.driver, view.rows) for v in wanted}
        limited = {driver: limit for driver, limit in limits.items() if limit is not None}
        if not limited:
            return out
        counts = {driver: self._counts.on(view, driver) for driver in limited}
        fresh = {
            driver: self._counts.unused(view, [v for v in wanted if v.driver == driver])
            for driver in limited
        }
        self._imagine(view, wanted, counts, fresh)
        for driver, limit in limited.items():
            new = fresh[driver]
            out |= (new > 0) & (counts[driver] + new > limit)
        return out

    def _imagine(
        self,
        view: View,
        wanted: Collection[CsiVolume],
        counts: dict[str, Int64],
        fresh: dict[str, Int64],
    ) -> None:
        """Adds the view's dry-run changes to the counts, in place."""
        shifts: defaultdict[tuple[int, CsiVolume], int] = defaultdict(int)
        for position, pod, sign in view.changes():
            for volume in self.resolver.of_pod(pod):
                if volume.driver in counts:
                    shifts[position, volume] += sign
        for position, volume, step, counted in self._counts.changes(view, shifts):
            if counted:
                counts[volume.driver][position] += step
            if volume in wanted:
                fresh[volume.driver][position] -= step


def _source(attachment: VolumeAttachment) -> str:
    return attachment.spec.source.persistent_volume_name or ""


def csi_index(table: NodeTable, cluster: Cluster) -> CsiIndex:
    """The table's index of CSI volumes, synchronised; created at the first use."""
    index = table.index(CsiIndex, lambda: CsiIndex(table, cluster))
    index.sync()
    return index
