"""NodeUnschedulable: rejects cordoned nodes, unless the pod tolerates it (docs/spec/plugins/node-unschedulable.md)."""

from collections.abc import Iterable
from typing import ClassVar, Final

import numpy as np

from app.framework.interface import (
    CycleState,
    NoArguments,
    NodeLocal,
    QueueingHint,
    Verdicts,
    on_event,
    reject,
)
from app.framework.optional import IgnoresOtherPods
from app.model.cluster_event import Action, Resource
from app.model.objects import Node
from app.model.pod import Pod
from app.model.status import Code
from app.plugins.helpers.tolerations import UNSCHEDULABLE_TAINT, tolerated
from app.state.queue.hints import EventRegistration
from app.state.view import View

ERR_REASON: Final = "node(s) were unschedulable"


class NodeUnschedulable(NoArguments, NodeLocal, IgnoresOtherPods):
    """Rejects nodes whose spec.unschedulable is set."""

    NAME: ClassVar[str] = "NodeUnschedulable"

    def filter(self, _state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Rejects cordoned rows as unresolvable."""
        cordoned = view.unschedulable()
        if not np.count_nonzero(cordoned) or _tolerates_cordon(pod):
            return None
        return reject(cordoned, Code.UnschedulableAndUnresolvable, ERR_REASON)

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Nodes that become schedulable, and new tolerations of the pod."""
        node = Action.Add | Action.UpdateNodeTaint
        return (
            on_event(Resource.Node, node, _became_schedulable, template_only=True),
            on_event(Resource.Pod, Action.UpdatePodToleration, _now_tolerates),
        )


def _tolerates_cordon(pod: Pod) -> bool:
    return tolerated(UNSCHEDULABLE_TAINT, pod.spec.tolerations or ())


def _became_schedulable(_pod: Pod, old: Node | None, new: Node) -> bool:
    if new.spec.unschedulable or (old is not None and not old.spec.unschedulable):
        return QueueingHint.SKIP
    return QueueingHint.QUEUE


def _now_tolerates(pod: Pod, _old: Pod, new: Pod) -> bool:
    return new.uid == pod.uid and _tolerates_cordon(new)
