"""Which changes may help a pod that hard spread constraints rejected.

See docs/spec/plugins/pod-topology-spread.md#events.
"""

from collections.abc import Iterable

from app.framework.interface import EventRegistration, QueueingHint
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import Node
from app.model.pod import Pod
from app.model.selectors import Labels, SelectorError
from app.plugins.pod_topology_spread.constraints import (
    HARD,
    Constraints,
    ConstraintSource,
)

_POD_ACTIONS = Action.Add | Action.UpdatePodLabel | Action.UpdatePodToleration | Action.Delete
_NODE_ACTIONS = Action.Add | Action.Delete | Action.UpdateNodeLabel | Action.UpdateNodeTaint


def registrations(source: ConstraintSource) -> Iterable[EventRegistration]:
    """The events, with hints that know the pods' constraints."""
    hints = _Hints(source)
    return (
        EventRegistration(ClusterEvent(Resource.Pod, _POD_ACTIONS), hints.after_pod_change),
        EventRegistration(
            ClusterEvent(Resource.Node, _NODE_ACTIONS),
            hints.after_node_change,
            template_only=not source.defaults_filter,
        ),
    )


class _Hints:
    def __init__(self, source: ConstraintSource) -> None:
        self._source = source

    def after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        """Whether a pod that counts for ``pod`` came, went or changed sides."""
        if not all(_involved(other, pod) for other in (old, new) if other is not None):
            return QueueingHint.SKIP
        constraints = self._constraints(pod)
        if constraints is None:
            return QueueingHint.QUEUE
        if old is not None and new is not None:
            return _after_update(pod, constraints, old, new)
        changed = new if old is None else old
        return changed is not None and any(c.selector.matches(changed.labels) for c in constraints)

    def after_node_change(self, pod: Pod, old: Node | None, new: Node | None) -> bool:
        """Whether a node that counts for ``pod`` came, went, changed domains or changed its taints."""
        constraints = self._constraints(pod)
        if constraints is None:
            return QueueingHint.QUEUE
        had = old is not None and _has_all_keys(old.labels, constraints)
        has = new is not None and _has_all_keys(new.labels, constraints)
        if old is None or new is None:
            return had or has
        return had != has or (has and _domain_or_taints_changed(constraints, old, new))

    def _constraints(self, pod: Pod) -> Constraints | None:
        """The pod's hard constraints; None if they cannot be read."""
        try:
            return self._source.of(pod, HARD)
        except SelectorError:
            return None


def _involved(changed: Pod, pod: Pod) -> bool:
    """Whether a change of ``changed`` can concern ``pod``: it is the pod itself, or placed and in the same namespace."""
    if changed.uid == pod.uid:
        return True
    placed = changed.node_name or changed.nominated_node_name
    return bool(placed) and changed.namespace == pod.namespace


def _after_update(pod: Pod, constraints: Constraints, old: Pod, new: Pod) -> bool:
    tolerates_other = (old.spec.tolerations or ()) != (new.spec.tolerations or ())
    if pod.uid == new.uid and tolerates_other and any(c.honor_taints for c in constraints):
        return QueueingHint.QUEUE
    return any(
        c.selector.matches(old.labels) != c.selector.matches(new.labels) for c in constraints
    )


def _has_all_keys(labels: Labels, constraints: Constraints) -> bool:
    return all(c.topology_key in labels for c in constraints)


def _domain_or_taints_changed(constraints: Constraints, old: Node, new: Node) -> bool:
    return (old.spec.taints or ()) != (new.spec.taints or ()) or any(
        old.labels.get(c.topology_key) != new.labels.get(c.topology_key) for c in constraints
    )
