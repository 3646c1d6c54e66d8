"""TopologyPlacementGenerator: one placement for each value of the label that a pod group names.

Source: docs/spec/pod-groups.md#topology-aware-placement.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

from app.framework.handle import Handle
from app.framework.interface import on_event
from app.framework.placements import Placements
from app.model.cluster_event import Action, Resource
from app.model.gotext import quote
from app.model.objects import Node
from app.model.pod import Pod
from app.model.pod_groups import GroupKey
from app.model.status import SchedulingError
from app.state.queue.hints import EventRegistration

NOT_FOUND: Final = "podgroup.scheduling.k8s.io {} not found"
_NO_DOMAIN: Final = "cannot determine domain for already scheduled pods: {}"


class TopologyPlacementGenerator:
    """Generates the placements of a group from its topology constraint and the nodes of its pods that have one."""

    NAME: ClassVar[str] = "TopologyPlacementGenerator"

    def __init__(self, _args: object, handle: Handle) -> None:
        self._groups: Final = handle.cluster.pod_groups
        self._table: Final = handle.table

    def generate_placements(self, key: GroupKey) -> Placements | None:
        """None for a group without a constraint. Raises SchedulingError."""
        group = self._groups.get(key)
        if group is None:
            raise SchedulingError(NOT_FOUND.format(quote(key.name)))
        label = group.topology_key
        if not label:
            return None
        return Placements.by_label(self._table, label, self._domain(key, label))

    def _domain(self, key: GroupKey, label: str) -> str | None:
        """The value of the label on the nodes of the group's pods; None if none has a node. Raises SchedulingError."""
        domain: str | None = None
        for pod in self._groups.members(key).scheduled.values():
            value = self._value(pod, label)
            if domain is not None and domain != value:
                text = f"more than 1 domain found for pod group: {domain}, {value}"
                raise SchedulingError(_NO_DOMAIN.format(text))
            domain = value
        return domain

    def _value(self, pod: Pod, label: str) -> str:
        row = self._table.row_of.get(pod.node_name)
        node = None if row is None else self._table.nodes[row]
        if node is None:
            text = f"getting node for pod {pod.key}: nodeinfo not found for node name {quote(pod.node_name)}"
            raise SchedulingError(_NO_DOMAIN.format(text))
        value = node.labels.get(label)
        if value is None:
            text = f"no topology domain found for pod {pod.key}"
            raise SchedulingError(_NO_DOMAIN.format(text))
        return value

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Nodes that join a placement."""
        return (on_event(Resource.Node, Action.Add | Action.UpdateNodeLabel, self._node_joins),)

    def _node_joins(self, pod: Pod, old: Node | None, new: Node) -> bool:
        key = self._groups.key_of(pod)
        group = None if key is None else self._groups.get(key)
        label = "" if group is None else group.topology_key
        value = new.labels.get(label)
        return value is not None and (old is None or old.labels.get(label) != value)
