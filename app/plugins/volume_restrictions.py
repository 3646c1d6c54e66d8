"""VolumeRestrictions: disks that pods on one node cannot share, and claims that only one pod may use.

Source of the rules: kube-scheduler 1.36 (docs/spec/plugins/volume-restrictions.md; KEP-2485 for ReadWriteOncePod).
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import msgspec
import numpy as np

from app.framework.handle import Handle
from app.framework.interface import CycleState, Need, QueueingHint, Verdicts, on_event, reject_first
from app.model.claims import READ_WRITE_ONCE_POD, claim_missing, named_by
from app.model.cluster_event import Action, Resource
from app.model.pod import Pod, PodTemplate
from app.model.status import SKIP, SUCCESS, Code, Status, unresolvable
from app.state.columns.labels import Mask
from app.state.columns.volumes import Disk, disks_of
from app.state.queue.hints import EventRegistration
from app.state.view import View

ERR_REASON_DISK: Final = "node(s) had no available disk"
ERR_REASON_READ_WRITE_ONCE_POD: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod"
)

_KEY: Final = "VolumeRestrictions"


class _Wanted(msgspec.Struct, frozen=True):
    """A pod's disks, and the names of its ReadWriteOncePod claims with the number of their uses on all nodes."""

    disks: tuple[Disk, ...]
    claims: frozenset[str]
    conflicts: int


class VolumeRestrictions:
    """Rejects nodes on which the pod cannot share a volume."""

    NAME: ClassVar[str] = "VolumeRestrictions"
    NEEDS: ClassVar[Mapping[str, Need]] = {
        "filter": Need("preFilter", 'cannot read "PreFilterVolumeRestrictions" from cycleState'),
    }

    def __init__(self, _args: object, handle: Handle) -> None:
        """Takes no arguments."""
        self._table = handle.table
        self._claims = handle.cluster.claims

    def concerns(self, template: PodTemplate) -> bool:
        """True for pods with volumes."""
        return bool(template.volumes)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Skips pods without conflicts to check; rejects pods with missing claims."""
        exclusive = set()
        for name in pod.template.claim_names:
            claim = self._claims.get(name, pod.namespace)
            if claim is None:
                return unresolvable(claim_missing(name))
            if READ_WRITE_ONCE_POD in (claim.spec.access_modes or ()):
                exclusive.add(name)
        disks = tuple(disks_of(pod.template.volumes))
        conflicts = sum(self._in_use(pod.namespace, name) for name in exclusive)
        if not disks and not conflicts:
            return SKIP
        state.write(_KEY, _Wanted(disks, frozenset(exclusive), conflicts))
        return SUCCESS

    def _in_use(self, namespace: str, name: str) -> bool:
        exists = self._table.exists
        return any(exists[row] for row in self._table.volumes.claim_rows((namespace, name)))

    def filter(self, state: CycleState, _pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows with a conflicting disk, and every row while an exclusive claim is in use."""
        wanted: _Wanted = state.read(_KEY)
        return reject_first(
            (_disk_clashes(view, wanted.disks), Code.Unschedulable, ERR_REASON_DISK),
            (_claim_clashes(view, wanted), Code.Unschedulable, ERR_REASON_READ_WRITE_ONCE_POD),
        )

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Deleted pods, added nodes, added claims."""
        return (
            on_event(Resource.Pod, Action.Delete, _volume_freed),
            on_event(Resource.Node, Action.Add),
            on_event(
                Resource.PersistentVolumeClaim, Action.Add, lambda pod, _, new: named_by(pod, new)
            ),
        )


def _disk_clashes(view: View, disks: tuple[Disk, ...]) -> Mask:
    """bool[n]: whether a pod on the row has a conflicting disk."""
    taken = {row for disk in disks for row in view.table.volumes.disk_rows(disk)}
    mask = np.isin(view.rows, np.fromiter(taken, np.intp, len(taken)))
    if disks:
        for position in {
            p for p, other, _ in view.changes() if [*disks_of(other.template.volumes)]
        }:
            mask[position] = any(_clash(disks, other) for other in view.pods(position))
    return mask


def _clash(disks: Iterable[Disk], other: Pod) -> bool:
    """Whether a pod with these disks conflicts with the other pod on one node."""
    theirs = tuple(disks_of(other.template.volumes))
    return any(mine.clashes(disk) for mine in disks for disk in theirs)


def _claim_clashes(view: View, wanted: _Wanted) -> Mask:
    """bool[n]: whether an exclusive claim is in use; dry-run changes count for their row.

    As in kube-scheduler, pods of a dry run are counted by claim name alone, whatever their namespace.
    """
    conflicts = np.full(view.n, wanted.conflicts, np.int64)
    if wanted.claims:
        for position, other, sign in view.changes():
            shared = sum(name in wanted.claims for name in other.template.claim_names)
            conflicts[position] += sign * shared
    return conflicts > 0


def _volume_freed(pod: Pod, old: Pod, _new: None) -> bool:
    """Queue if a pod of the same namespace with a conflicting disk or a claim of this pod was deleted."""
    if old.namespace != pod.namespace:
        return QueueingHint.SKIP
    mine = pod.template
    return _clash(disks_of(mine.volumes), old) or not set(mine.claim_names).isdisjoint(
        old.template.claim_names
    )
