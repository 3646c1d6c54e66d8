"""DynamicResources, as far as it goes: pods with resource claims are held back with a clear word.

Allocating devices is not built. A pod with claims must not be placed as if it had none, so it stays pending. For all other
pods the plugin behaves as kube-scheduler's does, whose PostFilter has a say in every message (spec: plugins.md 1.4, 2.20).
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from app.framework.diagnosis import Diagnosis
from app.framework.interface import (
    CycleState,
    Effects,
    EventRegistration,
    Handle,
    Need,
    PostFilterResult,
)
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.pod import Pod
from app.model.status import SKIP, Code, Status, unresolvable, unschedulable
from app.state.view import View

ERR_REASON_CLAIMS: Final = "pod has resource claims, which this scheduler cannot allocate yet"
ERR_REASON_NO_CLAIMS: Final = "no new claims to deallocate"


class DynamicResources:
    """Turns pods with resource claims down."""

    NAME: ClassVar[str] = "DynamicResources"
    NEEDS: ClassVar[Mapping[str, Need]] = dict.fromkeys(
        ("filter", "score", "reserve", "preBind"), Need("preFilter", "not found")
    )
    IDLE_AT: ClassVar[frozenset[str]] = frozenset({"preEnqueue", "filter", "reserve", "preBind"})

    def __init__(self, args: object, handle: Handle) -> None:
        """Arguments are accepted and have nothing to act on."""

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Skips pods without claims."""
        state.write(self.NAME, True)
        return unresolvable(ERR_REASON_CLAIMS) if pod.spec.resource_claims else SKIP

    async def post_filter(
        self, state: CycleState, _pod: Pod, _diagnosis: Diagnosis, _effects: Effects
    ) -> PostFilterResult:
        """Has nothing to free. Where PreFilter ended before this plugin's turn, kube-scheduler's words for that."""
        if state.get(self.NAME) is None:
            return PostFilterResult(Status(Code.Error, ("not found",)))
        return PostFilterResult(unschedulable(ERR_REASON_NO_CLAIMS))

    def score(self, _state: CycleState, _pod: Pod, _view: View) -> None:
        """Nothing for any node: only claims with a choice of devices would earn something."""

    def events_to_register(self) -> list[EventRegistration]:
        """Only a change of the pod itself could help, and a pod's claims never change."""
        return [
            EventRegistration(ClusterEvent(Resource.Pod, Action.UpdatePodGeneratedResourceClaim))
        ]
