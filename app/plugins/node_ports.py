"""NodePorts: a host port can be used once per node and address (docs/spec/plugins/node-ports.md)."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import numpy as np

from app.framework.interface import (
    CycleState,
    Need,
    NoArguments,
    NodeLocal,
    Verdicts,
    on_event,
    reject,
)
from app.framework.optional import IgnoresOtherPods
from app.model.cluster_event import Action, Resource
from app.model.pod import Pod
from app.model.status import SKIP, SUCCESS, Code, Status
from app.state.columns.ports import conflicts
from app.state.queue.hints import EventRegistration
from app.state.view import View

ERR_REASON: Final = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(NoArguments, NodeLocal, IgnoresOtherPods):
    """Rejects nodes on which a host port of the pod is in use."""

    NAME: ClassVar[str] = "NodePorts"
    NEEDS: ClassVar[Mapping[str, Need]] = {
        "filter": Need("preFilter", 'reading "PreFilterNodePorts" from cycleState: not found'),
    }

    def pre_filter(self, _state: CycleState, pod: Pod) -> Status:
        """Skips pods without host ports."""
        return SUCCESS if pod.template.host_ports else SKIP

    def filter(self, _state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows with a conflicting port; preemption may help."""
        taken = view.port_conflicts(pod.template.host_ports)
        return reject(taken, Code.Unschedulable, ERR_REASON) if np.count_nonzero(taken) else None

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Deleted pods, and added nodes."""
        return (
            on_event(Resource.Pod, Action.Delete, _freed_a_port, template_only=True),
            on_event(Resource.Node, Action.Add),
        )


def _freed_a_port(pod: Pod, old: Pod, _new: object) -> bool:
    if not (old.node_name or old.nominated_node_name):
        return False
    wanted, used = pod.template.host_ports, old.template.host_ports
    return any(conflicts(one, other) for one in wanted for other in used)
