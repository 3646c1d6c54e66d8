"""Waits until a pod's volumes are bound, by the volume controllers of the cluster.

Looked at once a second. What the API server holds counts, not what is assumed: another pod's cycle may assume things
meanwhile. Anything that cannot come right ends the wait, so that the pod is tried again.
"""

from typing import Final

import numpy as np

from app.framework.interface import Effects
from app.model.claims import SELECTED_NODE, fully_bound, not_found
from app.model.csi_migration import TranslationError
from app.model.objects import PersistentVolume
from app.model.pod import Pod
from app.model.status import SchedulingError
from app.plugins.volume_binding.finding import Finder
from app.plugins.volume_binding.reservation import Binding, Provision, Reservation
from app.state.assume_cache import AssumedVolumes
from app.state.table import NodeTable
from app.state.view import View

_POLL_SECONDS: Final = 1.0


class Waiter:
    """Waits for reservations. ``timeout_seconds``: how long for each; 0 for not at all."""

    def __init__(
        self, table: NodeTable, finder: Finder, caches: AssumedVolumes, timeout_seconds: float
    ) -> None:
        self._table = table
        self._finder = finder
        self._caches = caches
        self._timeout = timeout_seconds

    async def wait_bound(self, pod: Pod, reservation: Reservation, effects: Effects) -> None:
        """Returns once all claims are bound. Raises SchedulingError after the timeout, or if it cannot happen any more."""
        left = self._timeout
        while left > _POLL_SECONDS:
            await effects.sleep(_POLL_SECONDS)
            left -= _POLL_SECONDS
            if self.is_bound(pod, reservation):
                return
        await effects.sleep(left)
        raise SchedulingError("context deadline exceeded")

    def is_bound(self, pod: Pod, reservation: Reservation) -> bool:
        """Whether all claims are bound by now. Raises SchedulingError if they will not be."""
        view = self._node(pod, reservation.node_name)
        return all(self._binding_done(view, b) for b in reservation.bindings) and all(
            self._provision_done(view, p, reservation.node_name) for p in reservation.provisions
        )

    def _node(self, pod: Pod, node_name: str) -> View:
        """The node, as a view of one row, with the pod still assumed on it."""
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
