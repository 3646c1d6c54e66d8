"""The cluster events of an update of a pod or a node (docs/spec/cluster-events.md#events-of-a-pod-update)."""

from collections.abc import Callable, Sequence
from typing import Final

from app.model import quantity
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import Node, Resources
from app.model.pod import Pod


def pod_update_events(old: Pod, new: Pod) -> list[ClusterEvent]:
    """The events of a pod's update; the general Update if there is no particular one."""
    kind = Resource.AssignedPod if new.node_name else Resource.UnschedulablePod
    actions = [action for action, happened in _POD_CHANGES if happened(old, new)]
    return [ClusterEvent(kind, action) for action in actions or (Action.Update,)]


def node_update_events(old: Node, new: Node) -> list[ClusterEvent]:
    """The events of a node's update; empty if nothing relevant to scheduling has changed."""
    return [
        ClusterEvent(Resource.Node, action)
        for action, happened in _NODE_CHANGES
        if happened(old, new)
    ]


def _pod_scaled_down(old: Pod, new: Pod) -> bool:
    if old.resources is new.resources:
        return False
    now = dict(new.resources.requested)
    return any(now.get(name, -1) < amount for name, amount in old.resources.requested)


def _allocatable_changed(old: Node, new: Node) -> bool:
    before, after = old.status.allocatable or {}, new.status.allocatable or {}
    return before != after and _amounts(before) != _amounts(after)


def _amounts(resources: Resources) -> dict[str, int | str]:
    """The exact amounts, so that ``1`` equals ``1000m``; text that is not a quantity is kept."""
    amounts: dict[str, int | str] = {}
    for name, text in resources.items():
        try:
            amounts[name] = quantity.parse(text)
        except quantity.QuantityError:
            amounts[name] = str(text)
    return amounts


def _conditions(node: Node) -> dict[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions or ()}


_POD_CHANGES: Final[Sequence[tuple[Action, Callable[[Pod, Pod], bool]]]] = (
    (
        Action.UpdatePodLabel,
        lambda old, new: old.labels is not new.labels and dict(old.labels) != dict(new.labels),
    ),
    (Action.UpdatePodScaleDown, _pod_scaled_down),
    (
        Action.UpdatePodSchedulingGatesEliminated,
        lambda old, new: bool(old.spec.scheduling_gates) and not new.spec.scheduling_gates,
    ),
    (  # tolerations can only be added, so comparing their number is enough
        Action.UpdatePodToleration,
        lambda old, new: len(old.spec.tolerations or ()) != len(new.spec.tolerations or ()),
    ),
    (
        Action.UpdatePodGeneratedResourceClaim,
        lambda old, new: (
            old.claim_statuses != new.claim_statuses
            or old.extended_claim_status != new.extended_claim_status
        ),
    ),
)

_NODE_CHANGES: Final[Sequence[tuple[Action, Callable[[Node, Node], bool]]]] = (
    (
        Action.UpdateNodeTaint,
        lambda old, new: old.spec.unschedulable and not new.spec.unschedulable,
    ),
    (Action.UpdateNodeAllocatable, _allocatable_changed),
    (Action.UpdateNodeLabel, lambda old, new: old.labels != new.labels),
    (
        Action.UpdateNodeTaint,
        lambda old, new: (old.spec.taints or ()) != (new.spec.taints or ()),
    ),
    (Action.UpdateNodeCondition, lambda old, new: _conditions(old) != _conditions(new)),
    (Action.UpdateNodeAnnotation, lambda old, new: old.annotations != new.annotations),
    (
        Action.UpdateNodeDeclaredFeature,
        lambda old, new: (
            (old.status.declared_features or ()) != (new.status.declared_features or ())
        ),
    ),
)
