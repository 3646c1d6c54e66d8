"""NodeName: a pod with spec.nodeName fits only the node of that name (docs/spec/plugins/node-name.md)."""

from collections.abc import Iterable
from typing import ClassVar, Final

from app.framework.interface import CycleState, NoArguments, NodeLocal, Verdicts, on_event, reject
from app.framework.optional import IgnoresOtherPods
from app.model.cluster_event import Action, Resource
from app.model.pod import Pod
from app.model.status import Code
from app.state.queue.hints import EventRegistration
from app.state.view import View

ERR_REASON: Final = "node(s) didn't match the requested node name"


class NodeName(NoArguments, NodeLocal, IgnoresOtherPods):
    """Compares spec.nodeName.

    NodeLocal although it reads the pod's node name: pods with a node name are bound and never scheduled. A caller
    that evaluates such a pod must not use the kept verdicts of its template.
    """

    NAME: ClassVar[str] = "NodeName"

    def filter(self, _state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Rejects all other rows."""
        if not pod.node_name:
            return None
        row = view.table.row_of.get(pod.node_name, -1)
        return reject(view.rows != row, Code.UnschedulableAndUnresolvable, ERR_REASON)

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Added nodes."""
        return (on_event(Resource.Node, Action.Add),)
