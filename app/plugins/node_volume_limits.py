"""NodeVolumeLimits: limits the CSI volumes on a node as its CSINode says.

Source of the rules: kube-scheduler 1.36 (docs/spec/plugins/node-volume-limits.md).
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

from app.framework.handle import Handle
from app.framework.interface import CycleState, QueueingHint, Verdicts, on_event, reject_first
from app.model.claims import claim_missing, claim_name, foreign_claim, used_by
from app.model.cluster_event import Action, Resource
from app.model.csi_migration import TranslationError, plugin_of
from app.model.features import Rule
from app.model.objects import Volume
from app.model.pod import Pod, PodTemplate
from app.model.status import SKIP, SUCCESS, Code, Status, unresolvable
from app.model.storage import CSINode, VolumeAttachment
from app.plugins.helpers.csi.index import (
    CsiIndex,
    CsiVolume,
    csi_index,
    inline_fault,
    inline_volume,
)
from app.plugins.helpers.csi.nodes import driver_limits
from app.state.columns.labels import Mask
from app.state.queue.hints import EventRegistration
from app.state.view import View

ERR_REASON: Final = "node(s) exceed max volume count"
MISSING_DRIVER: Final = "{} CSI driver is not installed on the node"


class NodeVolumeLimits:
    """Counts CSI volumes and migrated in-tree volumes against each node's limits."""

    NAME: ClassVar[str] = "NodeVolumeLimits"

    def __init__(self, _args: object, handle: Handle) -> None:
        """Takes no arguments."""
        self._table = handle.table
        self._cluster = handle.cluster
        self._requires_drivers = Rule.MissingDriver in handle.features.rules

    def concerns(self, template: PodTemplate) -> bool:
        """True for pods with volumes that may count."""
        return any(map(_counts, template.volumes))

    def pre_filter(self, _state: CycleState, pod: Pod) -> Status:
        """Skips pods without volumes that may count."""
        return SUCCESS if self.concerns(pod.template) else SKIP

    def filter(self, _state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows on which a driver's limit would be exceeded."""
        index = csi_index(self._table, self._cluster)
        wanted = self._wanted(pod, index, migrated=True)
        if isinstance(wanted, Status):
            return self._refuse(pod, view, index, wanted)
        if not wanted:
            return None
        overflow = (index.overflow(view, wanted), Code.Unschedulable, ERR_REASON)
        if not self._requires_drivers:
            return reject_first(overflow)
        return reject_first(*self._without_driver(view, wanted, index), overflow)

    def _without_driver(
        self, view: View, wanted: set[CsiVolume], index: CsiIndex
    ) -> Iterator[tuple[Mask, Code, str]]:
        """The rows without a driver of the pod's volumes whose CSIDriver asks for it."""
        for name in sorted({volume.driver for volume in wanted}):
            driver = self._cluster.csi_drivers.get(name)
            if driver is not None and driver.spec.prevent_pod_scheduling_if_missing:
                missing = index.nodes.missing(name, view.rows)
                yield missing, Code.Unschedulable, MISSING_DRIVER.format(name)

    def _refuse(self, pod: Pod, view: View, index: CsiIndex, status: Status) -> Verdicts | None:
        """The verdicts if the pod's volumes are unknown; in-tree disks are only read on nodes with a CSINode."""
        exists = self._table.exists[view.rows]
        present = index.nodes.present[view.rows]
        without = self._wanted(pod, index, migrated=False)
        cases = [(exists & present, status.code, status.message)]
        if isinstance(without, Status):
            cases.append((exists & ~present, without.code, without.message))
        return reject_first(*cases)

    def _wanted(self, pod: Pod, index: CsiIndex, *, migrated: bool) -> set[CsiVolume] | Status:
        """The pod's volumes, or why they cannot be determined."""
        wanted = set()
        for volume in pod.template.volumes:
            name = claim_name(pod, volume)
            if name is not None:
                found = self._behind_claim(pod, volume, name, index)
            else:
                found = _inline(volume) if migrated else None
            if isinstance(found, Status):
                return found
            if found is not None:
                wanted.add(found)
        return wanted

    def _behind_claim(
        self, pod: Pod, volume: Volume, name: str, index: CsiIndex
    ) -> CsiVolume | Status | None:
        if not name:
            return Status(Code.Error, ("PersistentVolumeClaim had no name",))
        claim = self._cluster.claims.get(name, pod.namespace)
        if claim is None:
            return unresolvable(f"looking up PVC {pod.namespace}/{name}: {claim_missing(name)}")
        fault = foreign_claim(pod, volume, claim)
        if fault is not None:
            return Status(Code.Error, (fault,))
        return index.resolver.of_claim(claim)

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Changed CSINodes, deleted pods, added claims, deleted VolumeAttachments."""
        return (
            on_event(Resource.CSINode, Action.Add),
            on_event(Resource.CSINode, Action.Update, _limit_raised, template_only=True),
            on_event(Resource.Pod, Action.Delete, _volumes_freed, template_only=True),
            on_event(
                Resource.PersistentVolumeClaim, Action.Add, lambda pod, _, new: used_by(pod, new)
            ),
            on_event(Resource.VolumeAttachment, Action.Delete, _detached, template_only=True),
        )


def _counts(volume: Volume) -> bool:
    """Whether a volume may count against a driver's limit."""
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or plugin_of(volume) is not None
    )


def _inline(volume: Volume) -> CsiVolume | Status | None:
    try:
        return inline_volume(volume)
    except TranslationError as problem:
        return Status(Code.Error, (inline_fault(volume, problem),))


def _limit_raised(_pod: Pod, old: CSINode, new: CSINode) -> bool:
    """Queue if a driver's limit on a node was raised; no limit counts as 0."""
    before, after = driver_limits(old), driver_limits(new)
    return any(limit > before.get(driver, 0) for driver, limit in after.items())


def _volumes_freed(_pod: Pod, old: Pod, _new: None) -> bool:
    """Queue if a pod with volumes that may count has left its node or nomination."""
    placed = bool(old.node_name or old.nominated_node_name)
    return placed and any(map(_counts, old.template.volumes))


def _detached(pod: Pod, old: VolumeAttachment, _new: None) -> bool:
    """Queue if a volume was detached whose driver may be that of this pod's volumes; not for ephemeral volumes."""
    for volume in pod.template.volumes:
        if volume.persistent_volume_claim is not None:
            return QueueingHint.QUEUE
        found = _inline(volume)
        if isinstance(found, Status) or (found is not None and found.driver == old.spec.attacher):
            return QueueingHint.QUEUE
    return QueueingHint.SKIP
