"""VolumeZone: a volume with zone or region labels can only be used on nodes of that zone or region.

Source of the rules: kube-scheduler 1.36 (docs/spec/plugins/volume-zone.md).
"""

from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec
import numpy as np

from app.framework.handle import Handle
from app.framework.interface import CycleState, Verdicts, changed, on_event, reject
from app.model.claims import (
    WAIT_FOR_FIRST_CONSUMER,
    claim_missing,
    class_of_claim,
    named_by,
    not_found,
)
from app.model.cluster_event import Action, Resource
from app.model.csi_migration import BETA_REGION, BETA_ZONE, MULTI_ZONE_DELIMITER, REGION, ZONE
from app.model.pod import Pod, PodTemplate
from app.model.status import SKIP, SUCCESS, Code, Status, unresolvable
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.state.columns.labels import MISSING, Mask
from app.state.queue.hints import EventRegistration
from app.state.view import View

ERR_REASON: Final = "node(s) had no available volume zone"

_KEY: Final = "VolumeZone"
#: The labels that are compared, in this order.
_LABELS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
#: Beta label -> its current name.
_SUCCESSOR: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class ZoneRequirement(msgspec.Struct, frozen=True):
    """A label that nodes must have, with one of these values."""

    key: str
    values: frozenset[str]


def zone_requirements(volume: PersistentVolume) -> list[ZoneRequirement]:
    """The requirements of a volume's zone and region labels; a label with an empty entry requires nothing."""
    found = []
    for key in _LABELS:
        label = volume.labels.get(key)
        if label is not None:
            values = frozenset(value.strip() for value in label.split(MULTI_ZONE_DELIMITER))
            if "" not in values:
                found.append(ZoneRequirement(key, values))
    return found


class VolumeZone:
    """Rejects nodes outside the zones and regions of the pod's bound volumes."""

    NAME: ClassVar[str] = "VolumeZone"

    def __init__(self, _args: object, handle: Handle) -> None:
        """Takes no arguments."""
        self._claims = handle.cluster.claims
        self._volumes = handle.cluster.volumes
        self._classes = handle.cluster.storage_classes

    def concerns(self, template: PodTemplate) -> bool:
        """True for pods with claims."""
        return bool(template.claim_names)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Collects the requirements of the pod's bound volumes; skips pods without any."""
        requirements = self._demands(pod)
        if isinstance(requirements, Status):
            return requirements
        if not requirements:
            return SKIP
        state.write(_KEY, requirements)
        return SUCCESS

    def _demands(self, pod: Pod) -> set[ZoneRequirement] | Status:
        requirements: set[ZoneRequirement] = set()
        for name in pod.template.claim_names:
            found = self._behind_claim(pod, name)
            if isinstance(found, Status):
                return found
            requirements.update(found)
        return requirements

    def _behind_claim(self, pod: Pod, name: str) -> Iterable[ZoneRequirement] | Status:
        if not name:
            return unresolvable("PersistentVolumeClaim had no name")
        claim = self._claims.get(name, pod.namespace)
        if claim is None:
            return unresolvable(claim_missing(name))
        if not claim.spec.volume_name:
            return self._unbound(claim)
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is None:
            return unresolvable(not_found("persistentvolume", claim.spec.volume_name))
        return zone_requirements(volume)

    def _unbound(self, claim: PersistentVolumeClaim) -> Iterable[ZoneRequirement] | Status:
        """Nothing, for a claim that waits for its first consumer; any other should be bound by now."""
        class_name = class_of_claim(claim)
        if not class_name:
            return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
        storage_class = self._classes.get(class_name)
        if storage_class is None:
            return unresolvable(not_found("storageclass.storage.k8s.io", class_name))
        mode = storage_class.volume_binding_mode
        if mode is None:
            return unresolvable(f'VolumeBindingMode not set for StorageClass "{class_name}"')
        if mode != WAIT_FOR_FIRST_CONSUMER:
            return unresolvable("PersistentVolume had no name")
        return ()

    def filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows outside the volumes' zones; nodes with no zone or region label at all are let be.

        PreFilter may be disabled.
        """
        requirements: set[ZoneRequirement] | Status | None = state.get(_KEY)
        if requirements is None:
            requirements = self._demands(pod)
        if isinstance(requirements, Status):
            return reject(np.ones(view.n, bool), requirements.code, requirements.message)
        labelled = np.zeros(view.n, bool)
        for key in _LABELS:
            labelled |= view.label(key)[1] != MISSING
        fits = np.ones(view.n, bool)
        for requirement in requirements:
            fits &= _within(view, requirement)
        return reject(labelled & ~fits, Code.UnschedulableAndUnresolvable, ERR_REASON)

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Classes that wait for consumers, nodes, claims and volumes."""
        change = Action.Add | Action.Update
        return (
            on_event(
                Resource.StorageClass,
                Action.Add,
                lambda _pod, _old, new: new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER,
                template_only=True,
            ),
            on_event(Resource.Node, Action.Add | Action.UpdateNodeLabel),
            on_event(
                Resource.PersistentVolumeClaim, change, lambda pod, _, new: named_by(pod, new)
            ),
            on_event(
                Resource.PersistentVolume, change, changed(zone_requirements), template_only=True
            ),
        )


def _within(view: View, requirement: ZoneRequirement) -> Mask:
    """bool[n]: whether the node's label, or where a beta label is missing today's, has one of the values."""
    column, codes = view.label(requirement.key)
    wanted = tuple(sorted(requirement.values))
    fits = column.truth("In", wanted)[codes]
    successor = _SUCCESSOR.get(requirement.key)
    if successor is not None:
        other, other_codes = view.label(successor)
        fits = np.where(codes == MISSING, other.truth("In", wanted)[other_codes], fits)
    return fits
