"""SchedulingGates: keeps pods with scheduling gates out of the queue (docs/spec/plugins/scheduling-gates.md)."""

from collections.abc import Iterable
from typing import ClassVar, Final

from app.framework.interface import EventRegistration, Handle
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.pod import Pod
from app.model.status import SUCCESS, Status, unresolvable

ERR_REASON: Final = "waiting for scheduling gates: [{}]"


class SchedulingGates:
    """Rejects pods at PreEnqueue while spec.schedulingGates is not empty."""

    NAME: ClassVar[str] = "SchedulingGates"

    def __init__(self, args: object, handle: Handle) -> None:
        """Takes no arguments."""

    def pre_enqueue(self, pod: Pod) -> Status:
        """Success for pods without gates."""
        gates = pod.spec.scheduling_gates
        if not gates:
            return SUCCESS
        return unresolvable(ERR_REASON.format(" ".join(gate.name for gate in gates)))

    def events_to_register(self) -> Iterable[EventRegistration]:
        """The removal of the pod's last gate."""
        event = ClusterEvent(Resource.Pod, Action.UpdatePodSchedulingGatesEliminated)
        return (EventRegistration(event, _own_gates_gone),)


def _own_gates_gone(pod: Pod, _old: Pod, new: Pod) -> bool:
    return new.uid == pod.uid
