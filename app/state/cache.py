"""The cache of nodes and of pods that are bound or assumed (kube-scheduler's cache).

States of a pod (docs/spec/cache.md#pod-states)::

            assume               add (the watch confirms)
    Initial ------> Assumed ---------------------------> Added --> update
       |  ^            |                                  ^  |
       |  +--- forget -+                                  |  | remove
       +------------------------- add --------------------+  v
                                                          Deleted

An assumed pod does not expire: it stays until it is confirmed, forgotten or removed. A pod may arrive before its node
and stay after it; the node table then keeps a row without a Node object, which is never feasible.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from app.model.objects import Node
from app.model.pod import Pod
from app.state.columns.resources import offered_by, requested_by
from app.state.table import NodeTable


class CacheError(Exception):
    """An operation that the pod's state does not allow; the text is kube-scheduler's."""


def _refusal(pod: Pod, why: str) -> CacheError:
    return CacheError(f"pod {pod.uid}({pod.key}) {why}")


class CacheStatistics(msgspec.Struct, frozen=True):
    """The number of objects in the cache."""

    nodes: int
    pods: int
    assumed_pods: int
    #: Assumed pods whose binding was written but is not yet confirmed by the watch.
    unconfirmed_pods: int


class Cache:
    """The node table and the state of each pod in it."""

    def __init__(self, table: NodeTable) -> None:
        self.table: Final = table
        self._pods: dict[str, Pod] = {}
        self._assumed: set[str] = set()
        self._bound: set[str] = set()

    # ------------------------------------------------------------ nodes

    def set_node(self, node: Node) -> None:
        """Adds or updates a node."""
        self.table.set_node(node)

    def remove_node(self, name: str) -> None:
        """Removes a node. Raises CacheError if it is unknown."""
        row = self.table.row_of.get(name)
        if row is None or self.table.nodes[row] is None:
            raise CacheError(f"node {name} is not found")
        self.table.remove_node(name)

    # ------------------------------------------------------------ pods

    def get(self, uid: str) -> Pod | None:
        """The assumed or added pod; None if it is unknown."""
        return self._pods.get(uid)

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod is assumed and not yet confirmed."""
        return uid in self._assumed

    def assumed_pods(self) -> Iterator[Pod]:
        """The pods that are assumed and not yet confirmed."""
        return (self._pods[uid] for uid in self._assumed)

    @property
    def assumes_any(self) -> bool:
        """Whether any pod is assumed."""
        return bool(self._assumed)

    def assume(self, pod: Pod) -> None:
        """Adds a pod, with its node name set, before it is bound. Raises CacheError."""
        self._need_uid(pod)
        if pod.uid in self._pods:
            raise _refusal(pod, "is in the cache, so can't be assumed")
        self.table.add_pod(pod)
        self._pods[pod.uid] = pod
        self._assumed.add(pod.uid)

    def update_assumed(self, pod: Pod) -> Pod:
        """Updates an assumed pod; returns it with the assumed node. Raises CacheError, and what ``add`` raises."""
        known = self._pods.get(pod.uid)
        if known is None or pod.uid not in self._assumed:
            raise _refusal(pod, "is not assumed, so cannot be updated")
        assumed = pod.on(known.node_name)
        self._put(known, assumed)
        return assumed

    def finish_binding(self, uid: str) -> None:
        """Records that the binding of an assumed pod was written."""
        if uid in self._assumed:
            self._bound.add(uid)

    def forget(self, pod: Pod) -> None:
        """Removes an assumed pod; does nothing if it is unknown. Raises CacheError."""
        self._need_uid(pod)
        known = self._pods.get(pod.uid)
        if known is None:
            return
        if known.node_name != pod.node_name:
            raise _refusal(pod, f"was assumed on {pod.node_name} but assigned to {known.node_name}")
        if pod.uid not in self._assumed:
            raise _refusal(pod, "wasn't assumed so cannot be forgotten")
        self._drop(known)

    def add(self, pod: Pod) -> None:
        """Adds a pod that the watch shows as bound, or confirms an assumed one. Raises CacheError.

        If the table cannot add the pod, only its resources are counted and the table's exception is raised.
        """
        self._need_uid(pod)
        known = self._pods.get(pod.uid)
        if known is not None and pod.uid not in self._assumed:
            raise _refusal(pod, "was already in added state")
        self._assumed.discard(pod.uid)
        self._bound.discard(pod.uid)
        self._put(known, pod)

    def add_many(self, pods: Iterable[Pod]) -> list[tuple[Pod, Exception]]:
        """Adds many pods. Returns those for which ``add`` would raise, with the exceptions."""
        problems: list[tuple[Pod, Exception]] = []
        unknown: list[Pod] = []
        for pod in pods:
            if pod.uid and pod.uid not in self._pods:
                self._pods[pod.uid] = pod
                unknown.append(pod)
                continue
            try:
                self.add(pod)
            except Exception as problem:  # noqa: BLE001 - it is returned
                problems.append((pod, problem))
        failed = self.table.add_pods(unknown)
        for pod, _ in failed:
            del self._pods[pod.uid]
            self._put_room(pod)
        return problems + failed

    def update(self, pod: Pod) -> None:
        """Updates a bound pod. Raises CacheError, and what ``add`` raises."""
        self._need_uid(pod)
        known = self._pods.get(pod.uid)
        if known is None:
            raise _refusal(pod, "is not added to scheduler cache, so cannot be updated")
        if pod.uid in self._assumed:
            raise CacheError(f"assumed pod {pod.uid}({pod.key}) should not be updated")
        self._put(known, pod)

    def remove(self, pod: Pod) -> None:
        """Removes a deleted pod, assumed or added. Raises CacheError."""
        self._need_uid(pod)
        known = self._pods.get(pod.uid)
        if known is None:
            raise _refusal(pod, "is not found in scheduler cache, so cannot be removed from it")
        self._drop(known)

    def _need_uid(self, pod: Pod) -> None:
        if not pod.uid:
            raise CacheError("cannot get cache key for pod with empty UID")

    def _put(self, known: Pod | None, pod: Pod) -> None:
        """Replaces ``known`` (None: nothing) by a new version of the pod in the table."""
        try:
            if known is None:
                self.table.add_pod(pod)
            elif known.node_name == pod.node_name:
                self.table.replace_pod(known, pod)
            else:
                self.table.remove_pod(known)
                self.table.add_pod(pod)
        except Exception:
            self._pods.pop(pod.uid, None)
            self._put_room(pod)
            raise
        self._pods[pod.uid] = pod

    def _put_room(self, pod: Pod) -> None:
        """Counts only the pod's resources; nothing if the table raises again."""
        room = pod.room()
        with suppress(Exception):
            self.table.add_pod(room)
            self._pods[pod.uid] = room

    def _drop(self, known: Pod) -> None:
        del self._pods[known.uid]
        self._assumed.discard(known.uid)
        self._bound.discard(known.uid)
        self.table.remove_pod(known)

    # ------------------------------------------------------------ looking

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def statistics(self) -> CacheStatistics:
        """Counts for metrics and the debugger; ``nodes`` includes deleted nodes that still have pods."""
        return CacheStatistics(
            nodes=len(self.table.row_of),
            pods=len(self._pods),
            assumed_pods=len(self._assumed),
            unconfirmed_pods=len(self._bound),
        )

    def dump(self, nominated: Callable[[str], Sequence[Pod]] = lambda _name: ()) -> Iterator[str]:
        """Every node with its pods and nominated pods, as text (docs/spec/cache.md#debugger)."""
        for name, row in sorted(self.table.row_of.items()):
            yield self._dump_node(name, row, nominated(name))

    def _dump_node(self, name: str, row: int, nominated: Sequence[Pod]) -> str:
        node, pods = self.table.nodes[row], self.table.pods[row].values()
        lines = [
            f"Node name: {name}",
            f"Deleted: {str(node is None).lower()}",
            f"Requested Resources: {requested_by(pods)}",
            f"Allocatable Resources: {offered_by(node) if node else {}}",
            f"Scheduled Pods(number: {len(pods)}):",
            *(describe(pod) for pod in pods),
        ]
        if nominated:
            lines.append(f"Nominated Pods(number: {len(nominated)}):")
            lines += map(describe, nominated)
        return "\n".join(lines)


def describe(pod: Pod) -> str:
    """One line about a pod, as in kube-scheduler's debugger."""
    return (
        f"name: {pod.name}, namespace: {pod.namespace}, uid: {pod.uid}, phase: {pod.phase}, "
        f"nominated node: {pod.nominated_node_name}"
    )
