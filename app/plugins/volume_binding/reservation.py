"""Reserves volumes and claims for a pod: assumes them, writes them, waits until they are bound, or restores them."""

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np

from app.framework.handle import Effects
from app.model.claims import BOUND_BY_CONTROLLER, SELECTED_NODE, bound_to, fully_bound, not_found
from app.model.csi_migration import TranslationError
from app.model.objects import Named
from app.model.pod import Pod
from app.model.status import SchedulingError
from app.model.storage import ObjectReference, PersistentVolume, PersistentVolumeClaim
from app.plugins.volume_binding.finding import PodVolumes, VolumeFinder
from app.state.assume_cache import AssumeCache, AssumedVolumes
from app.state.table import NodeTable
from app.state.view import View

_CLAIM = "PersistentVolumeClaim"

T = TypeVar("T", bound=Named)

Changes = Mapping[str, Any]


class _Step(msgspec.Struct, Generic[T]):
    """A volume to bind to a claim, or a claim to provision for a node.

    ``stored``: the present object; ``assumed``: the changed one; ``changes``: the merge patch to write, None for none.
    ``mine``: whether it was assumed for this pod; ``written``: whether the API server has accepted the changes.
    """

    stored: T
    assumed: T
    claim: PersistentVolumeClaim
    changes: Changes | None
    mine: bool = False
    written: bool = False

    def release(self, cache: AssumeCache[T]) -> None:
        """Restores what was assumed and not written."""
        if self.mine and not self.written:
            cache.restore(self.assumed)


Binding = _Step[PersistentVolume]
Provision = _Step[PersistentVolumeClaim]


class Reservation(msgspec.Struct):
    """The bindings and provisions of one pod."""

    node_name: str
    bindings: list[Binding] = msgspec.field(default_factory=list)
    provisions: list[Provision] = msgspec.field(default_factory=list)


def reserve(plan: PodVolumes, node_name: str, caches: AssumedVolumes) -> Reservation:
    """Assumes what a plan for one row needs, all or nothing. Raises SchedulingError."""
    reservation = Reservation(node_name)
    bindings = list(plan.bindings(0))
    claims = {claim.key: claim for claim in plan.provisions(0)}
    try:
        for volume, claim in bindings:
            binding = _binding(caches.volumes.in_sync(volume), claim)
            current = caches.volumes.get(volume.name)
            if binding.changes is not None and not _binds(current, claim):
                caches.volumes.assume(binding.assumed)
                binding.mine = True
            reservation.bindings.append(binding)
        for claim in claims.values():
            provision = _provision(caches.claims.in_sync(claim), node_name)
            known = caches.claims.get(claim.name, claim.namespace)
            if provision.changes is not None and _selected_node(known) != node_name:
                caches.claims.assume(provision.assumed)
                provision.mine = True
            reservation.provisions.append(provision)
    except SchedulingError:
        release(reservation, caches)
        raise
    return reservation


def release(reservation: Reservation, caches: AssumedVolumes) -> None:
    """Restores what was assumed and not written. What was written stays assumed until the watch shows it."""
    for binding in reservation.bindings:
        binding.release(caches.volumes)
    for provision in reservation.provisions:
        provision.release(caches.claims)


async def write(reservation: Reservation, effects: Effects) -> None:
    """Writes volumes, then claims, one by one. Raises SchedulingError at the first failure."""
    for binding in reservation.bindings:
        if binding.changes is not None:
            await effects.update_volume(binding.stored, binding.changes)
            binding.written = True
    for provision in reservation.provisions:
        if provision.changes is not None:
            await effects.update_claim(provision.stored, provision.changes)
            provision.written = True


def _binds(volume: PersistentVolume | None, claim: PersistentVolumeClaim) -> bool:
    """Whether the claimRef is the claim, including its uid."""
    reference = volume.spec.claim_ref if volume is not None else None
    return reference is not None and (reference.namespace, reference.name, reference.uid) == (
        claim.namespace,
        claim.name,
        claim.uid,
    )


def _selected_node(claim: PersistentVolumeClaim | None) -> str | None:
    return None if claim is None else claim.annotations.get(SELECTED_NODE)


def _binding(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Binding:
    """Binds a volume to a claim; an annotation marks that a controller did it."""
    spec, annotations = volume.spec, volume.metadata.annotations
    changes: dict[str, Any] = {}
    if not bound_to(volume, claim) and BOUND_BY_CONTROLLER not in volume.annotations:
        annotations = {**volume.annotations, BOUND_BY_CONTROLLER: "yes"}
        changes["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
    if not _binds(volume, claim):
        reference = ObjectReference(_CLAIM, claim.namespace, claim.name, claim.uid)
        spec = msgspec.structs.replace(spec, claim_ref=reference)
        changes["spec"] = {"claimRef": _reference(claim)}
    if not changes:
        return Binding(volume, volume, claim, None)
    metadata = msgspec.structs.replace(volume.metadata, annotations=annotations)
    assumed = msgspec.structs.replace(volume, metadata=metadata, spec=spec)
    return Binding(volume, assumed, claim, changes)


def _reference(claim: PersistentVolumeClaim) -> Changes:
    return {
        "apiVersion": "v1",
        "kind": _CLAIM,
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.resource_version,
    }


def _provision(claim: PersistentVolumeClaim, node_name: str) -> Provision:
    if _selected_node(claim) == node_name:
        return Provision(claim, claim, claim, None)
    chosen = {SELECTED_NODE: node_name}
    metadata = msgspec.structs.replace(claim.metadata, annotations={**claim.annotations, **chosen})
    assumed = msgspec.structs.replace(claim, metadata=metadata)
    return Provision(claim, assumed, claim, {"metadata": {"annotations": chosen}})


_POLL_SECONDS: Final = 1.0


class Waiter:
    """Waits until reservations are bound. ``timeout_seconds``: for each reservation; 0 for no waiting."""

    def __init__(
        self, table: NodeTable, finder: VolumeFinder, caches: AssumedVolumes, timeout_seconds: float
    ) -> None:
        self._table = table
        self._finder = finder
        self._caches = caches
        self._timeout = timeout_seconds

    async def wait_bound(self, pod: Pod, reservation: Reservation, effects: Effects) -> None:
        """Returns when all claims are bound. Raises SchedulingError after the timeout, or if they cannot be."""
        left = self._timeout
        while left > _POLL_SECONDS:
            await effects.sleep(_POLL_SECONDS)
            left -= _POLL_SECONDS
            if self.is_bound(pod, reservation):
                return
        await effects.sleep(left)
        raise SchedulingError("context deadline exceeded")

    def is_bound(self, pod: Pod, reservation: Reservation) -> bool:
        """Whether all claims are bound. Raises SchedulingError if they cannot be bound any more."""
        view = self._node(pod, reservation.node_name)
        return all(self._binding_done(view, b) for b in reservation.bindings) and all(
            self._provision_done(view, p, reservation.node_name) for p in reservation.provisions
        )

    def _node(self, pod: Pod, node_name: str) -> View:
        """The pod's node as a view of one row."""
        row = self._table.row_of.get(node_name)
        if row is None or not self._table.exists[row]:
            raise SchedulingError(
                f'failed to get node "{node_name}": {not_found("node", node_name)}'
            )
        if pod.uid not in self._table.pods[row]:
            raise SchedulingError(f"pod does not exist any more: {not_found('pod', pod.name)}")
        return View(self._table, np.array([row], np.intp))

    def _binding_done(self, view: View, binding: Binding) -> bool:
        try:
            volume = self._caches.volumes.stored(binding.stored)
            claim = self._caches.claims.stored(binding.claim)
        except SchedulingError as error:
            raise SchedulingError(f"failed to check binding: {error}") from error
        if binding.written and volume.resource_version == binding.stored.resource_version:
            return False
        self._check_reach(view, volume, "failed to translate pv to csi: ")
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            raise SchedulingError(f'ClaimRef got reset for pv "{volume.name}"')
        return fully_bound(claim)

    def _provision_done(self, view: View, provision: Provision, node_name: str) -> bool:
        try:
            claim = self._caches.claims.stored(provision.stored)
        except SchedulingError as error:
            raise SchedulingError(f"failed to check provisioning pvc: {error}") from error
        if provision.written and claim.resource_version == provision.stored.resource_version:
            return False
        if claim.metadata.annotations is None:
            raise SchedulingError(f'selectedNode annotation reset for PVC "{claim.name}"')
        if claim.annotations.get(SELECTED_NODE) != node_name:
            raise SchedulingError(f'provisioning failed for PVC "{claim.name}"')
        if claim.spec.volume_name:
            volume = self._caches.volumes.current(claim.spec.volume_name)
            if volume is None:
                return False
            self._check_reach(view, volume, "")
        return fully_bound(claim)

    def _check_reach(self, view: View, volume: PersistentVolume, context: str) -> None:
        try:
            reach = self._finder.reach(view, volume)
        except TranslationError as error:
            raise SchedulingError(f"{context}could not translate pv: {error}") from error
        if not reach[0]:
            raise SchedulingError(
                f'pv "{volume.name}" node affinity doesn\'t match node "{view.names()[0]}": '
                "no matching NodeSelectorTerms"
            )
