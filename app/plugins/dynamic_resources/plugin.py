"""The extension points of DynamicResources, and the queueing hints.

Most pods have no claims, and most clusters no pods with claims: the modules that do the work are loaded for the first
pod that has some.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from app.framework.diagnosis import Diagnosis
from app.framework.handle import Effects, Handle
from app.framework.interface import (
    MAY_PAUSE,
    CycleState,
    Need,
    PostFilterResult,
    QueueingHint,
    Verdicts,
)
from app.framework.optional import FreesClaims, SteadySkip, UndecidedOnly
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.devices import AllocationResult, ResourceClaim
from app.model.features import Rule
from app.model.pod import Pod, PodTemplate
from app.model.pod_groups import CLAIMS, PodGroup
from app.model.requests import Amounts
from app.model.status import (
    SKIP,
    SUCCESS,
    Code,
    SchedulingError,
    Status,
    unresolvable,
    unschedulable,
)
from app.plugins.args import DynamicResourcesArgs
from app.plugins.dynamic_resources.pod_claims import (
    ClaimProblem,
    ClaimReservation,
    PodResourceClaims,
    claims_of,
)
from app.state.columns.arrays import Int64
from app.state.devices import may_be_devices
from app.state.queue.hints import EventRegistration
from app.state.view import View
from app.wire.sanitize import is_emptied

if TYPE_CHECKING:
    from app.plugins.dynamic_resources.binding import ClaimBinder
    from app.plugins.dynamic_resources.extended_resources import RequestMapping
    from app.plugins.dynamic_resources.filtering import ClaimFilter

ERR_REASON_NO_CLAIMS: Final = "no new claims to deallocate"
NOT_HELPED: Final = "still not schedulable"

_UNKNOWN: Final = object()


class DynamicResources(SteadySkip, UndecidedOnly, FreesClaims):
    """Finds nodes with the devices that a pod's claims request, and allocates them before the pod is bound.

    PostFilter may deallocate a claim because of Filter's verdicts, so these must not include nodes that others reject.
    """

    NAME: ClassVar[str] = "DynamicResources"
    NEEDS: ClassVar[Mapping[str, Need]] = dict.fromkeys(
        ("filter", "score", "reserve", "preBind"), Need("preFilter", "not found")
    )

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        self._args: Final = args or DynamicResourcesArgs()
        self._handle: Final = handle
        self._tracker: Final = handle.cluster.devices
        self._shares: Final = CLAIMS in handle.features
        #: Created claims for extended resources, by outcome: ``success`` or ``failure``.
        self.claims_created: Final[Counter[str]] = Counter()
        #: Allocated devices with binding conditions that were waited for, by driver and outcome: ``success``,
        #: ``failure``, ``timeout`` or ``error``.
        self.conditions_awaited: Final[Counter[tuple[str, str]]] = Counter()

    @functools.cached_property
    def _filter(self) -> "ClaimFilter":
        from app.plugins.dynamic_resources.filtering import ClaimFilter  # noqa: PLC0415 - see above

        return ClaimFilter(self._args, self._handle)

    @functools.cached_property
    def _binder(self) -> "ClaimBinder":
        from app.plugins.dynamic_resources.binding import ClaimBinder  # noqa: PLC0415 - see above

        timeout = self._args.binding_timeout
        return ClaimBinder(self._tracker, timeout, self.claims_created, self.conditions_awaited)

    def _claims(self, state: CycleState) -> PodResourceClaims | None:
        """The pod's claims, or None if it has none."""
        claims: PodResourceClaims | None = state.get(self.NAME)
        return claims

    # ------------------------------------------------------------ choosing a node

    def pre_enqueue(self, pod: Pod) -> Status:
        """Rejects pods whose claims do not exist yet or were not created for them."""
        if not pod.template.spec.resource_claims:
            return SUCCESS
        try:
            claims_of(pod, self._tracker.claims, shared=self._shares)
        except ClaimProblem as problem:
            return unresolvable(str(problem))
        return SUCCESS

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Skips pods without claims. Rejects pods whose claims no node can serve."""
        state.write(self.NAME, None)
        resources = self._extended_resources(pod)
        if not pod.template.spec.resource_claims and not resources:
            return SKIP
        claims = self._filter.prepare(pod, resources)
        if isinstance(claims, Status):
            return claims
        state.write(self.NAME, claims)
        return SUCCESS

    def _extended_resources(self, pod: Pod) -> Amounts:
        """The extended resources that a pod requests, if a DeviceClass provides any of them, otherwise none
        (KEP-5004)."""
        classes = self._tracker.classes
        if not classes:
            return {}
        asked = pod.template.request.items()
        amounts = {name: amount for name, amount in asked if amount and may_be_devices(name)}
        return amounts if any(classes.get(name) is not None for name in amounts) else {}

    def filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows that do not reach the allocated devices, and those where the other claims cannot be
        allocated."""
        claims = self._claims(state)
        if claims is None:
            return None
        claims.budget.may_pause = state.get(MAY_PAUSE, False)
        return self._filter.judge(claims, pod, view)

    async def post_filter(
        self, state: CycleState, pod: Pod, _diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult:
        """Deallocates a claim because of which a node was rejected, if no other pod uses it.

        If PreFilter was not called for this plugin, the result is kube-scheduler's error for that.
        """
        if state.get(self.NAME, _UNKNOWN) is _UNKNOWN:
            return PostFilterResult(Status(Code.Error, ("not found",)))
        claims = self._claims(state)
        if claims is None:
            return PostFilterResult(unschedulable(*self._unhelpful(ERR_REASON_NO_CLAIMS)))
        try:
            done = await self._binder.free_one(claims, pod, effects)
        except SchedulingError as error:
            return PostFilterResult(Status(Code.Error, (str(error),)))
        claims.freed = bool(done)
        return PostFilterResult(unschedulable(*([done] if done else self._unhelpful(NOT_HELPED))))

    def shares_claims(self) -> bool:
        """Whether the feature gate is on."""
        return self._shares

    async def free_for_group(
        self, group: PodGroup, states: Iterable[CycleState], effects: Effects
    ) -> Status:
        """Frees one claim (see FreesClaims)."""
        of_pods = [self._claims(state) for state in states]
        if all(claims is not None and claims.freed for claims in of_pods):
            return SUCCESS
        try:
            return await self._binder.free_for_group(group, of_pods, effects)
        except SchedulingError as error:
            text = f'error in "{self.NAME}" PodGroupPostFilter plugins: {error}'
            return Status(Code.Error, (text,))

    def _unhelpful(self, text: str) -> tuple[str, ...]:
        """What is said when nothing could be freed: nothing from Kubernetes 1.37 on."""
        return () if Rule.QuietDevices in self._handle.features.rules else (text,)

    def score(self, state: CycleState, _pod: Pod, view: View) -> Int64 | None:
        """int64[n], 0 to 100: higher for earlier alternatives of requests. ``view`` has all feasible nodes."""
        claims = self._claims(state)
        if claims is None:
            return None
        from app.plugins.dynamic_resources.filtering import scores  # noqa: PLC0415 - see above

        return scores(claims, view)

    # ------------------------------------------------------------ allocating devices

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Marks the devices that Filter found on the node as allocated in flight."""
        claims = self._claims(state)
        if claims is None:
            return SUCCESS
        row = self._handle.table.row_of.get(node_name)
        found = None if row is None else claims.found_on(row)
        allocations = dict(claims.shared)
        wanted: Mapping[int, ResourceClaim] = {}
        mappings: Sequence[RequestMapping] = ()
        if found is not None:
            on_node, position = found
            wanted, mappings = on_node.wanted, on_node.mappings
            allocations.update(zip(wanted, on_node.result.results(position), strict=True))
        elif claims.to_allocate:
            return Status(Code.Error, ("claim allocation not found for node",))
        if not allocations:
            return SUCCESS
        if any(map(_is_incomplete, allocations.values())):
            return Status(Code.Error, ("parameters of devices are nested too deeply",))
        reservation = ClaimReservation(allocations, wanted, mappings)
        group = self._handle.cluster.pod_groups.key_of(pod)
        for at, allocation in allocations.items():
            uid = claims.claims[at].uid
            self._tracker.reserve(uid, allocation, group)
            reservation.in_flight.add(uid)
        claims.reservation = reservation
        return SUCCESS

    def unreserve(self, state: CycleState, _pod: Pod, _node_name: str) -> None:
        """Releases the devices in flight that were not written."""
        claims = self._claims(state)
        if claims is not None and claims.reservation is not None:
            for uid in claims.reservation.in_flight:
                self._tracker.release(uid)
            claims.reservation = None

    def reserved(self, state: CycleState) -> Mapping[str, frozenset[str]]:
        """The devices (``driver/pool/device``) that are reserved for each claim, by namespace/name."""
        claims = self._claims(state)
        if claims is None or claims.reservation is None:
            return {}
        allocations = claims.reservation.allocations
        return {claims.claims[at].key: each.device_names for at, each in allocations.items()}

    def pre_bind_pre_flight(self, state: CycleState, _pod: Pod, _node_name: str) -> Status:
        """Skips pods without claims."""
        return SKIP if self._claims(state) is None else SUCCESS

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, effects: Effects
    ) -> Status:
        """Writes allocations and reservations, and waits until the devices are ready."""
        claims = self._claims(state)
        if claims is None:
            return SUCCESS
        try:
            await self._binder.bind(claims, pod, node_name, effects)
        except SchedulingError as error:
            return Status(Code.Error, (str(error),))
        return SUCCESS

    async def undo_pre_bind(
        self, state: CycleState, pod: Pod, _node_name: str, effects: Effects
    ) -> None:
        """Removes the pod's reservations, and deletes the claim that was created for it."""
        claims = self._claims(state)
        if claims is not None:
            await self._binder.undo(claims, pod, effects)

    # ------------------------------------------------------------ queueing hints

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Changes of claims, classes, slices, nodes, and of pods' generated claims
        (docs/spec/plugins/dynamic-resources.md#events), and pods that release devices before their claims are
        written."""
        change = Action.Add | Action.Update
        nodes = Action.Add | Action.UpdateNodeLabel | Action.UpdateNodeAllocatable
        return (
            EventRegistration(ClusterEvent(Resource.Node, nodes)),
            EventRegistration(
                ClusterEvent(Resource.ResourceClaim, change),
                self._after_claim_changed,
                narrow=_pods_of_claim,
            ),
            *(
                EventRegistration(
                    ClusterEvent(Resource.ResourceClaim, Action.Delete),
                    _after_claim_gone,
                    template_only=True,
                )
                for _ in range(Rule.DeletedClaimsWake in self._handle.features.rules)
            ),
            EventRegistration(
                ClusterEvent(Resource.Pod, Action.UpdatePodGeneratedResourceClaim),
                self._after_pod_changed,
            ),
            EventRegistration(
                ClusterEvent(Resource.AssignedPod, Action.Delete),
                self._after_pod_gone,
                template_only=True,
            ),
            EventRegistration(ClusterEvent(Resource.DeviceClass, change)),
            EventRegistration(ClusterEvent(Resource.ResourceSlice, change)),
            *(
                EventRegistration(ClusterEvent(Resource.DeviceTaintRule, change | Action.Delete))
                for _ in range(Rule.DeviceTaintRules in self._handle.features.rules)
            ),
        )

    def _after_claim_changed(self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim) -> bool:
        """Queues a pod that has all its claims if devices were freed, or if one of its claims is new or changed its
        status."""
        try:
            claims = claims_of(pod, self._tracker.claims, shared=self._shares)
        except ClaimProblem:
            return QueueingHint.SKIP
        if old is None:
            return any(claim.uid == new.uid for claim in claims)
        if _freed(old, new):
            return QueueingHint.QUEUE
        return old.status != new.status and any(claim.uid == new.uid for claim in claims)

    def _after_pod_changed(self, pod: Pod, _old: Pod | None, new: Pod) -> bool:
        """Queues the pod that changed if it has all its claims now."""
        if new.uid != pod.uid:
            return QueueingHint.SKIP
        try:
            claims_of(new, self._tracker.claims, shared=self._shares)
        except ClaimProblem:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE

    def _after_pod_gone(self, _pod: Pod, old: Pod, _new: None) -> bool:
        """Queues if a pod had devices allocated in flight only: no change of a claim tells that they are free."""
        try:
            claims = claims_of(old, self._tracker.claims, shared=self._shares)
        except ClaimProblem:
            return QueueingHint.SKIP
        return any(claim.status.allocation is None for claim in claims) or bool(
            self._extended_resources(old)
        )


def _after_claim_gone(_pod: Pod, old: ResourceClaim, _new: None) -> bool:
    """Queues if the claim had devices."""
    return old.status.allocation is not None


def _pods_of_claim(
    template: PodTemplate, old: ResourceClaim | None, new: ResourceClaim
) -> Collection[str] | None:
    """None, for any pod, if devices were freed, or the template names the claim or may share it with its group;
    otherwise the uid of the claim's owner."""
    entries = template.spec.resource_claims or ()
    if _freed(old, new) or any(entry.resource_claim_name == new.name for entry in entries):
        return None
    owner = new.controller
    if owner is None:
        return []
    return None if entries and owner.kind == "PodGroup" else [owner.uid]


def _freed(old: ResourceClaim | None, new: ResourceClaim) -> bool:
    return old is not None and old.status.allocation is not None and new.status.allocation is None


def _is_incomplete(allocation: AllocationResult) -> bool:
    """Whether parameters for a driver were too deep to be read as they are: it must not get others."""
    return any(
        each.opaque is not None and is_emptied(bytes(each.opaque.parameters))
        for each in allocation.devices.config or ()
    )
