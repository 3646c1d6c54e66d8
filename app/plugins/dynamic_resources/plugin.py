"""DynamicResources' extension points."""

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from app.framework.args import DynamicResourcesArgs
from app.framework.diagnosis import Diagnosis
from app.framework.interface import (
    CycleState,
    Effects,
    EventRegistration,
    Handle,
    Need,
    PostFilterResult,
    Verdicts,
)
from app.model.pod import Pod
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
from app.plugins.dynamic_resources.figures import Figures
from app.plugins.dynamic_resources.hints import Hints
from app.plugins.dynamic_resources.pod_claims import ClaimProblem, claims_of
from app.state.columns.resources import Int64
from app.state.devices.classes import may_be_devices
from app.state.view import View

if TYPE_CHECKING:
    from app.plugins.dynamic_resources.attempt import PodDevices
    from app.plugins.dynamic_resources.work import ClaimWork

ERR_REASON_NO_CLAIMS: Final = "no new claims to deallocate"

_UNKNOWN: Final = object()


class DynamicResources:
    """Finds nodes with the devices that a pod's claims ask for, and gives them to the claims before the pod is bound."""

    NAME: ClassVar[str] = "DynamicResources"
    NEEDS: ClassVar[Mapping[str, Need]] = dict.fromkeys(
        ("filter", "score", "reserve", "preBind"), Need("preFilter", "not found")
    )

    #: A claim may be freed for what Filter says, which must not be said of nodes that are out of the question anyhow.
    UNDECIDED_ONLY: ClassVar[bool] = True

    def __init__(self, args: DynamicResourcesArgs | None, handle: Handle) -> None:
        self._args: Final = args or DynamicResourcesArgs()
        self._handle: Final = handle
        self._tracker: Final = handle.cluster.devices
        self._hints: Final = Hints(self._tracker.claims)
        self.figures: Final = Figures()

    @functools.cached_property
    def _work(self) -> "ClaimWork":
        from app.plugins.dynamic_resources.work import ClaimWork  # noqa: PLC0415 - most clusters never need it

        return ClaimWork(self._args, self._handle, self.figures)

    def _devices(self, state: CycleState) -> "PodDevices | None":
        """The pod's claims; None where it has none."""
        devices: PodDevices | None = state.get(self.NAME)
        return devices

    # ------------------------------------------------------------ which pods

    def pre_enqueue(self, pod: Pod) -> Status:
        """Keeps pods out whose claims are not there yet, or not theirs."""
        if not pod.spec.resource_claims:
            return SUCCESS
        try:
            claims_of(pod, self._tracker.claims)
        except ClaimProblem as problem:
            return unresolvable(str(problem))
        return SUCCESS

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Skips pods without claims; refuses those whose claims cannot be used or allocated anywhere."""
        state.write(self.NAME, None)
        resources = self._extended_resources(pod)
        if not pod.spec.resource_claims and not resources:
            return SKIP
        found = self._work.prepare(pod, resources)
        if isinstance(found, Status):
            return found
        state.write(self.NAME, found)
        return SUCCESS

    def _extended_resources(self, pod: Pod) -> Amounts:
        """The extended resources that a pod asks for, if a class stands behind any of them; else nothing (KEP-5004)."""
        classes = self._tracker.classes
        if not classes:
            return {}
        asked = pod.template.request.items()
        amounts = {name: amount for name, amount in asked if amount and may_be_devices(name)}
        return amounts if any(classes.get(name) is not None for name in amounts) else {}

    # ------------------------------------------------------------ which nodes

    def filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows that what is allocated cannot be used from, and those where the rest cannot be allocated."""
        devices = self._devices(state)
        return None if devices is None else self._work.judge(devices, pod, view)

    async def post_filter(
        self, state: CycleState, pod: Pod, _diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult:
        """Frees the devices of a claim that kept a node from being chosen, if nobody else uses it.

        Where PreFilter ended before this plugin's turn, kube-scheduler's words for that.
        """
        if state.get(self.NAME, _UNKNOWN) is _UNKNOWN:
            return PostFilterResult(Status(Code.Error, ("not found",)))
        devices = self._devices(state)
        if devices is None:
            return PostFilterResult(unschedulable(ERR_REASON_NO_CLAIMS))
        try:
            done = await self._work.free(devices, pod, effects)
        except SchedulingError as error:
            return PostFilterResult(Status(Code.Error, (str(error),)))
        return PostFilterResult(unschedulable(done))

    def score(self, state: CycleState, _pod: Pod, view: View) -> Int64 | None:
        """int64[n], 0 to 100: the better, the earlier the alternatives that are available. ``view`` has all feasible nodes."""
        devices = self._devices(state)
        return None if devices is None else self._work.scores(devices, view)

    # ------------------------------------------------------------ giving devices to claims

    def reserve(self, state: CycleState, _pod: Pod, node_name: str) -> Status:
        """Sets the devices aside that were found on the node."""
        devices = self._devices(state)
        return SUCCESS if devices is None else self._work.reserve(devices, node_name)

    def unreserve(self, state: CycleState, _pod: Pod, _node_name: str) -> None:
        """Gives back what was set aside and not written."""
        devices = self._devices(state)
        if devices is not None:
            self._work.unreserve(devices)

    def pre_bind_pre_flight(self, state: CycleState, _pod: Pod, _node_name: str) -> Status:
        """Skip for pods without claims."""
        return SKIP if self._devices(state) is None else SUCCESS

    async def pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, effects: Effects
    ) -> Status:
        """Writes allocations and reservations, and waits until the devices are ready."""
        devices = self._devices(state)
        if devices is None:
            return SUCCESS
        try:
            await self._work.bind(devices, pod, node_name, effects)
        except SchedulingError as error:
            return Status(Code.Error, (str(error),))
        return SUCCESS

    async def undo_pre_bind(
        self, state: CycleState, pod: Pod, _node_name: str, effects: Effects
    ) -> None:
        """Takes the pod's reservations back, and the claim that was made for it."""
        devices = self._devices(state)
        if devices is not None:
            await self._work.undo(devices, pod, effects)

    # ------------------------------------------------------------ queueing

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Claims, classes, slices and nodes."""
        return self._hints.registrations()
