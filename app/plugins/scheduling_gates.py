"""SchedulingGates: keeps pods with scheduling gates out of the queue (docs/spec/plugins/scheduling-gates.md)."""

from collections.abc import Iterable
from typing import ClassVar, Final

from app.framework.interface import NoArguments, on_event, own_update
from app.model.cluster_event import Action, Resource
from app.model.pod import Pod
from app.model.status import SUCCESS, Status, unresolvable
from app.state.queue.hints import EventRegistration

ERR_REASON: Final = "waiting for scheduling gates: [{}]"


class SchedulingGates(NoArguments):
    """Rejects pods at PreEnqueue while spec.schedulingGates is not empty."""

    NAME: ClassVar[str] = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status:
        """Success for pods without gates."""
        gates = pod.template.spec.scheduling_gates
        if not gates:
            return SUCCESS
        return unresolvable(ERR_REASON.format(" ".join(gate.name for gate in gates)))

    def events_to_register(self) -> Iterable[EventRegistration]:
        """The removal of the pod's last gate."""
        return (on_event(Resource.Pod, Action.UpdatePodSchedulingGatesEliminated, own_update),)
