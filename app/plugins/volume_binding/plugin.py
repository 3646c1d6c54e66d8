"""The VolumeBinding plugin: extension points and queueing hints.

Most pods have no claims: the modules that do the work are loaded for the first pod that has some.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from app.framework.handle import Effects, Handle
from app.framework.interface import CycleState, Need, Verdicts, changed, on_event
from app.model.claims import not_found, used_by
from app.model.cluster_event import Action, Resource
from app.model.features import Rule
from app.model.pod import Pod, PodTemplate
from app.model.status import SKIP, SUCCESS, Code, SchedulingError, Status, unresolvable
from app.model.storage import CSIDriver, CSIStorageCapacity, StorageClass
from app.plugins.args import VolumeBindingArgs
from app.plugins.helpers.csi.nodes import migrated_plugins
from app.plugins.volume_binding.claims import ClaimReader, PodClaims, has_claims
from app.state.columns.arrays import Int64
from app.state.queue.hints import EventRegistration
from app.state.view import View

if TYPE_CHECKING:
    from app.plugins.volume_binding.finding import VolumeFinder
    from app.plugins.volume_binding.reservation import Reservation, Waiter
    from app.plugins.volume_binding.scoring import StorageScorer

_CLAIMS: Final = "VolumeBinding/claims"
_RESERVATION: Final = "VolumeBinding/reservation"


class VolumeBinding:
    """Filters nodes by a pod's claims, and binds the claims that wait for it before the pod is bound."""

    NAME: ClassVar[str] = "VolumeBinding"
    NEEDS: ClassVar[Mapping[str, Need]] = dict.fromkeys(
        ("filter", "reserve", "preBind"), Need("preFilter", "not found")
    )

    def __init__(self, args: VolumeBindingArgs | None, handle: Handle) -> None:
        given = args or VolumeBindingArgs()
        self._timeout: Final = given.bind_timeout_seconds
        #: The shape of the scores; None without the feature gate StorageCapacityScoring.
        self._shape: Final = given.shape if Rule.StorageScores in handle.features.rules else None
        caches = handle.cluster.assumed
        self._table = handle.table
        self._cluster: Final = handle.cluster
        self._caches = caches
        self._reader = ClaimReader(handle.cluster, caches.claims)
        #: The number of errors in Filter (``predicate``), Reserve (``assume``) and PreBind (``bind``).
        self.stage_errors: Final[Counter[str]] = Counter()

    @functools.cached_property
    def _finder(self) -> "VolumeFinder":
        from app.plugins.volume_binding.finding import VolumeFinder  # noqa: PLC0415 - see above

        return VolumeFinder(self._table, self._cluster, self._caches)

    @functools.cached_property
    def _waiter(self) -> "Waiter":
        from app.plugins.volume_binding.reservation import Waiter  # noqa: PLC0415 - see above

        return Waiter(self._table, self._finder, self._caches, self._timeout)

    @functools.cached_property
    def _scorer(self) -> "StorageScorer | None":
        from app.plugins.volume_binding.scoring import StorageScorer  # noqa: PLC0415 - see above

        return None if self._shape is None else StorageScorer(self._shape)

    # ------------------------------------------------------------ finding nodes

    def concerns(self, template: PodTemplate) -> bool:
        """True for pods with claims."""
        return has_claims(template)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Skips pods without claims; rejects those whose claims are missing, invalid or should be bound already."""
        if not has_claims(pod.template):
            return SKIP
        claims = self._reader.read(pod)
        if isinstance(claims, Status):
            return claims
        state.write(_CLAIMS, claims)
        return SUCCESS

    def filter(self, state: CycleState, _pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows that cannot reach the bound volumes, or where the others cannot be bound or provisioned."""
        claims: PodClaims | None = state.get(_CLAIMS)
        if claims is None:
            return None
        plan = self._finder.plan(view, claims)
        self.stage_errors["predicate"] += bool(plan.fault)
        return plan.verdicts()

    def pre_score(self, state: CycleState, _pod: Pod, _view: View) -> Status:
        """Skips pods without claims that wait, and all without the feature gate StorageCapacityScoring."""
        claims: PodClaims | None = state.get(_CLAIMS)
        if self._shape is None or claims is None or not claims.delayed:
            return SKIP
        return SUCCESS

    def score(self, state: CycleState, _pod: Pod, view: View) -> Int64:
        """int64[n], 0 to 100: how little of the storage would be used."""
        claims: PodClaims | None = state.get(_CLAIMS)
        if claims is None or self._scorer is None:
            return np.zeros(view.n, np.int64)
        plan = self._finder.plan(view, claims)
        return self._scorer.scores(plan, view, self._finder.provisioning)

    # ------------------------------------------------------------ binding claims

    def reserve(self, state: CycleState, _pod: Pod, node_name: str) -> Status:
        """Chooses volumes for the node and assumes them."""
        claims: PodClaims | None = state.get(_CLAIMS)
        if claims is None or not claims.delayed:
            return SUCCESS
        row = self._table.row_of.get(node_name)
        if row is None:
            return Status(Code.Error, (not_found("node", node_name),))
        plan = self._finder.plan(View(self._table, np.array([row], np.intp)), claims)
        problems = int(plan.problems[0])
        if plan.fault:
            return Status(Code.Error, plan.text(problems))
        if problems:
            return unresolvable(*plan.text(problems))
        from app.plugins.volume_binding.reservation import reserve  # noqa: PLC0415 - see above

        try:
            state.write(_RESERVATION, reserve(plan, node_name, self._caches))
        except SchedulingError as error:
            self.stage_errors["assume"] += 1
            return Status(Code.Error, (str(error),))
        return SUCCESS

    def unreserve(self, state: CycleState, _pod: Pod, _node_name: str) -> None:
        """Restores what was assumed and not written."""
        reservation: Reservation | None = state.get(_RESERVATION)
        if reservation is not None:
            from app.plugins.volume_binding.reservation import release  # noqa: PLC0415 - see above

            release(reservation, self._caches)
            state.write(_RESERVATION, None)

    def reserved(self, state: CycleState) -> Mapping[str, frozenset[str]]:
        """The volume that is reserved for each claim, by namespace/name; nothing for a claim to be provisioned."""
        reservation: Reservation | None = state.get(_RESERVATION)
        if reservation is None:
            return {}
        found = {step.claim.key: frozenset[str]() for step in reservation.provisions}
        return found | {
            step.claim.key: frozenset({step.stored.name}) for step in reservation.bindings
        }

    def pre_bind_pre_flight(self, state: CycleState, _pod: Pod, node_name: str) -> Status:
        """Skip if nothing was reserved."""
        reservation: Reservation | None = state.get(_RESERVATION)
        if reservation is None:
            return SKIP
        if reservation.node_name != node_name:
            return Status(Code.Error, (f'no pod volume found for node "{node_name}"',))
        return SUCCESS

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, effects: Effects
    ) -> Status:
        """Writes the reservation and waits until all claims are bound."""
        flight = self.pre_bind_pre_flight(state, pod, node_name)
        if flight.code is Code.Skip:
            return SUCCESS
        if not flight.ok:
            return flight
        reservation: Reservation = state.read(_RESERVATION)
        from app.plugins.volume_binding.reservation import write  # noqa: PLC0415 - see above

        context = ""
        try:
            await write(reservation, effects)
            context = "binding volumes: "
            await self._waiter.wait_bound(pod, reservation, effects)
        except SchedulingError as error:
            self.stage_errors["bind"] += 1
            return Status(Code.Error, (f"{context}{error}",))
        return SUCCESS

    # ------------------------------------------------------------ queueing

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Events of claims, volumes, classes, CSI objects and nodes."""
        change = Action.Add | Action.Update
        return (
            on_event(Resource.StorageClass, change, changed(_topologies), template_only=True),
            on_event(Resource.PersistentVolumeClaim, change, lambda pod, _, new: used_by(pod, new)),
            on_event(Resource.PersistentVolume, change),
            on_event(Resource.Node, Action.Add | Action.UpdateNodeLabel),
            on_event(Resource.CSINode, change, changed(migrated_plugins), template_only=True),
            on_event(Resource.CSIDriver, Action.Update, _capacity_ignored, template_only=True),
            on_event(Resource.CSIStorageCapacity, change, _capacity_grown, template_only=True),
        )


def _topologies(storage_class: StorageClass) -> list[tuple[object, ...]]:
    """allowedTopologies in comparable form; absent and empty lists are equal."""
    return [term.match_label_expressions or () for term in storage_class.allowed_topologies or ()]


def _capacity_ignored(pod: Pod, old: CSIDriver, new: CSIDriver) -> bool:
    """Queue if the driver of an inline volume of this pod no longer reports capacity."""
    switched_off = bool(old.spec.storage_capacity) and not new.spec.storage_capacity
    return switched_off and any(
        volume.csi is not None and volume.csi.driver == new.name for volume in pod.template.volumes
    )


def _capacity_grown(_pod: Pod, old: CSIStorageCapacity | None, new: CSIStorageCapacity) -> bool:
    if old is None:
        return True
    from app.plugins.volume_binding.provisioning import volume_limit  # noqa: PLC0415 - see above

    before, after = volume_limit(old), volume_limit(new)
    return after is not None and (before is None or after > before)
