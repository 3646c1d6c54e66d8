"""Evaluates nodes for a pod's claims: whether volumes are reachable, and can be bound or provisioned."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from app.framework.interface import Verdicts
from app.model.claims import SELECTED_NODE
from app.model.csi_migration import TranslationError, migrated, plugin_of
from app.model.status import Code, SchedulingError
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.plugins.helpers.csi.index import csi_index
from app.plugins.volume_binding.claims import Delayed, PodClaims
from app.plugins.volume_binding.matching import Match, Matcher
from app.plugins.volume_binding.provisioning import Provisioning
from app.plugins.volume_binding.volume_topology import reachable
from app.state.assume_cache import AssumedVolumes
from app.state.cluster import Cluster
from app.state.columns.labels import Mask
from app.state.table import NodeTable
from app.state.view import View

ERR_REASON_NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
ERR_REASON_BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
ERR_REASON_NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
ERR_REASON_VOLUME_MISSING: Final = (
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
)

#: Reasons by bit of ``PodVolumes.problems``, in kube-scheduler's order.
_REASONS: Final = (
    ERR_REASON_NODE_CONFLICT,
    ERR_REASON_BIND_CONFLICT,
    ERR_REASON_NOT_ENOUGH_SPACE,
    ERR_REASON_VOLUME_MISSING,
)
NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, VOLUME_MISSING, FAULT = (
    1 << bit for bit in range(5)
)


class PodVolumes:
    """The bindings and provisions that a pod's claims need on each row of a view (kube-scheduler's PodVolumes).

    ``problems``: int32[n], bits of reasons, 0 for feasible rows; for FAULT, ``fault`` has the text.
    """

    def __init__(self, n: int) -> None:
        self.problems: npt.NDArray[np.int32] = np.zeros(n, np.int32)
        self.fault = ""
        self.matches: list[Match] = []
        #: What would be provisioned, and on which rows.
        self.to_provision: list[tuple[Delayed, Mask]] = []

    def mark(self, where: Mask, problem: int) -> None:
        """Records a problem on some rows."""
        self.problems[where] |= problem

    def fail(self, where: Mask, text: str) -> None:
        """Records an error on some rows."""
        self.fault = self.fault or text
        self.mark(where, FAULT)

    def match(self, matches: Sequence[Match]) -> None:
        """Records the volumes to which claims would be bound."""
        self.matches += matches

    def provision(self, wanted: Delayed, where: Mask) -> None:
        """Records the rows on which a volume would be provisioned for a claim."""
        self.to_provision.append((wanted, where))

    def bindings(self, position: int) -> Iterator[tuple[PersistentVolume, PersistentVolumeClaim]]:
        """The volumes to bind on a row, and the claims."""
        for match in self.matches:
            volume = match.volume(position)
            if volume is not None:
                yield volume, match.wanted.claim

    def provisions(self, position: int) -> Iterator[PersistentVolumeClaim]:
        """The claims to provision on a row."""
        return (wanted.claim for wanted, where in self.to_provision if where[position])

    def text(self, problems: int) -> tuple[str, ...]:
        """The reasons for a value of ``problems``."""
        if problems & FAULT:
            return (self.fault,)
        return tuple(reason for bit, reason in enumerate(_REASONS) if problems >> bit & 1)

    def verdicts(self) -> Verdicts | None:
        """The problems as a filter's verdicts."""
        if not self.problems.any():
            return None
        codes = np.zeros(len(self.problems), np.int8)
        codes[self.problems != 0] = Code.UnschedulableAndUnresolvable
        codes[self.problems & FAULT != 0] = Code.Error
        return Verdicts(codes, self.problems, self.text)


class VolumeFinder:
    """Evaluates the rows of views for the claims of a pod."""

    def __init__(self, table: NodeTable, cluster: Cluster, assumed: AssumedVolumes) -> None:
        self._table = table
        self._cluster = cluster
        self._volumes = assumed.volumes
        self._matcher = Matcher(assumed.volumes)
        self.provisioning: Final = Provisioning(cluster)

    def plan(self, view: View, claims: PodClaims) -> PodVolumes:
        """Evaluates every row of the view. Rows without a Node object never have an error."""
        plan = PodVolumes(view.n)
        self._check_bound(plan, view, claims.bound)
        if claims.delayed:
            self._plan_delayed(plan, view, claims.delayed)
        plan.problems[~self._table.exists[view.rows]] &= ~np.int32(FAULT)
        return plan

    # ------------------------------------------------------------ bound claims

    def _check_bound(
        self, plan: PodVolumes, view: View, claims: Sequence[PersistentVolumeClaim]
    ) -> None:
        """Checks that bound volumes are reachable; on each row the first claim that fails decides."""
        fine = np.ones(view.n, bool)
        for claim in claims:
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is None:
                plan.mark(fine, VOLUME_MISSING)
                return
            try:
                reach = self.reach(view, volume)
            except TranslationError as error:
                moved = self._moved(view, volume)
                plan.fail(fine & moved, f"could not translate pv: {error}")
                fine &= ~moved
                reach = reachable(view, volume)
            plan.mark(fine & ~reach, NODE_CONFLICT)
            fine &= reach

    def reach(self, view: View, volume: PersistentVolume) -> Mask:
        """bool[n]: whether nodes can reach a volume; on nodes with CSI migration, the translated volume. Raises
        TranslationError if a node has migrated and the volume cannot be translated.
        """
        reach = reachable(view, volume)
        if plugin_of(volume.spec) is None:
            return reach
        moved = self._moved(view, volume)
        return np.where(moved, reachable(view, migrated(volume)), reach) if moved.any() else reach

    def _moved(self, view: View, volume: PersistentVolume) -> Mask:
        """bool[n]: whether the volume's in-tree plugin is migrated to CSI on the node."""
        plugin = plugin_of(volume.spec)
        if plugin is None:
            return np.zeros(view.n, bool)
        return csi_index(self._table, self._cluster).nodes.migrated(plugin.name)[view.rows]

    # ------------------------------------------------------------ claims that wait

    def _plan_delayed(self, plan: PodVolumes, view: View, claims: Sequence[Delayed]) -> None:
        here = plan.problems & FAULT == 0
        selected = [c for c in claims if SELECTED_NODE in c.claim.annotations]
        others = [c for c in claims if SELECTED_NODE not in c.claim.annotations]
        for wanted in selected:
            row = self._table.row_of.get(wanted.claim.annotations[SELECTED_NODE], -1)
            plan.mark(here & (view.rows != row), BIND_CONFLICT)
            here &= view.rows == row
        if not here.any():
            return
        try:
            matches = self._matcher.match(view, others)
        except SchedulingError as error:
            plan.fail(here, str(error))
            return
        plan.match(matches)
        to_make = [(wanted, here) for wanted in selected]
        to_make += [(match.wanted, here & match.missing) for match in matches]
        self._plan_provisions(plan, view, to_make)

    def _plan_provisions(
        self, plan: PodVolumes, view: View, to_make: Sequence[tuple[Delayed, Mask]]
    ) -> None:
        """Checks that the remaining claims can be provisioned; on each row the first claim that fails decides."""
        fine = np.ones(view.n, bool)
        for wanted, needed in to_make:
            where = needed & fine
            if not where.any():
                continue
            impossible = where & ~self.provisioning.possible(view, wanted.storage_class)
            full = where & ~impossible & ~self.provisioning.room(view, wanted)
            plan.mark(impossible, BIND_CONFLICT)
            plan.mark(full, NOT_ENOUGH_SPACE)
            fine &= ~impossible & ~full
            plan.provision(wanted, where)
