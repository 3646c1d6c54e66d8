"""The nominated pods: pods for which a node is reserved before they are bound (docs/spec/queue.md#nominator).

A nomination is made in memory first and then written to the pod's status. While the two differ, memory counts.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from app.model.pod import Pod

#: The number of nodes for which the last change of their nominated pods is kept.
MAX_CHANGES: Final = 1024


class Nominator:
    """The nominated pods by node, in the order in which they were nominated. Every operation is O(1)."""

    def __init__(self, pods: Mapping[str, Pod] | None = None) -> None:
        """``pods``: every pod as the watch last showed it, by namespace/name; None: any pod may be nominated."""
        self._pods: Final = pods
        self._node_of: Final[dict[str, str]] = {}
        self._pods_on: Final[dict[str, dict[str, Pod]]] = {}
        #: Number of the last change. ``_changed_at``: the same by node, latest last; without those up to
        #: ``_forgotten``.
        self.version = 0
        self._changed_at: Final[dict[str, int]] = {}
        self._forgotten = 0

    def add(self, pod: Pod, node_name: str | None = None) -> None:
        """Replaces the pod's nomination by ``node_name``; empty clears it, which is kept as such.

        None: the pod's status decides; if it names no node, nothing is kept. A deleted or bound pod loses its
        nomination.
        """
        self.delete(pod)
        if node_name is None:
            node_name = pod.nominated_node_name or None
        if node_name is None or not self._is_waiting(pod):
            return
        self._node_of[pod.uid] = node_name
        if node_name:
            self._pods_on.setdefault(node_name, {})[pod.uid] = pod
            self._note_change(node_name)

    def update(self, old: Pod, new: Pod) -> None:
        """Handles an update of a pod.

        If the nominated node in the status has changed, the new status decides. Otherwise the nomination in memory
        stays.
        """
        node_name = None
        if old.nominated_node_name == new.nominated_node_name:
            node_name = self._node_of.get(old.uid)
            if node_name is None and not new.nominated_node_name:
                return
        self.delete(old)
        self.add(new, node_name)

    def delete(self, pod: Pod) -> None:
        """Removes a pod's nomination, if it has one."""
        node_name = self._node_of.pop(pod.uid, "")
        if not node_name:
            return
        pods = self._pods_on[node_name]
        del pods[pod.uid]
        if not pods:
            del self._pods_on[node_name]
        self._note_change(node_name)

    def _is_waiting(self, pod: Pod) -> bool:
        """Whether, according to the watch, the pod with this uid exists and has no node."""
        if self._pods is None:
            return True
        current = self._pods.get(pod.key)
        return current is not None and current.uid == pod.uid and not current.node_name

    def _note_change(self, node_name: str) -> None:
        self.version += 1
        self._changed_at.pop(node_name, None)
        self._changed_at[node_name] = self.version
        if len(self._changed_at) > MAX_CHANGES:
            self._forgotten = self._changed_at.pop(next(iter(self._changed_at)))

    def node_of(self, uid: str) -> str | None:
        """The node to which a pod is nominated; empty if its nomination was cleared, None if it had none."""
        return self._node_of.get(uid)

    def pods_on(self, node_name: str) -> list[Pod]:
        """The pods nominated to a node, in the order of their nomination."""
        return list(self._pods_on.get(node_name, {}).values())

    def all_nominations(self) -> Iterator[tuple[Pod, str]]:
        """All nominated pods with their nodes."""
        for node_name, pods in self._pods_on.items():
            for pod in pods.values():
                yield pod, node_name

    def changed_since(self, version: int) -> Iterator[str] | None:
        """The nodes whose nominated pods have changed after ``version``; None if this is no longer known."""
        if version < self._forgotten:
            return None
        changes = self._changed_at
        return itertools.takewhile(lambda name: changes[name] > version, reversed(changes))

    def nominated_nodes(self) -> Collection[str]:
        """The names of the nodes with nominated pods; a live view."""
        return self._pods_on.keys()
