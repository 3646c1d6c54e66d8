"""Maintenance: a node with a certain annotation gets no new pods."""

from collections.abc import Iterable

from aiokube_scheduler.framework.api import (
    Action,
    ClusterEvent,
    CycleState,
    EventRegistration,
    Handle,
    Node,
    NodeFilter,
    NodeInfo,
    PluginArgs,
    Pod,
    Resource,
    NodeLocal,
    Status,
    unresolvable,
)


class MaintenanceArgs(PluginArgs, frozen=True):
    """``annotation``: the key that marks a node; what it says is told to whoever asks why a pod waits."""

    annotation: str = "example.com/maintenance"


class Maintenance(NodeLocal, NodeFilter):
    """Looks at one node at a time."""

    NAME = "Maintenance"

    def __init__(self, args: object, handle: Handle) -> None:
        self._annotation = MaintenanceArgs.read(args).annotation

    def filter_node(self, state: CycleState, pod: Pod, info: NodeInfo) -> Status | None:
        """Rejects nodes in maintenance."""
        why = info.node.annotations.get(self._annotation)
        return None if why is None else unresolvable(f"node(s) were in maintenance ({why})")

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Nodes that come, or whose annotations change."""
        event = ClusterEvent(Resource.Node, Action.Add | Action.UpdateNodeAnnotation)
        yield EventRegistration(event, self._is_back, template_only=True)

    def _is_back(self, _pod: Pod, old: Node | None, new: Node) -> bool:
        """Whether a node has come out of maintenance, or is new and not in it."""
        was_out = old is None or self._annotation in old.annotations
        return was_out and self._annotation not in new.annotations
