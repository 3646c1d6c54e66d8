"""The nominated pods: pods for which a node is reserved before they are bound (docs/spec/queue.md#nominator).

A nomination is made in memory first and then written to the pod's status. While the two differ, memory counts.
"""

import enum
import itertools
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec

from app.model.pod import Pod

#: The number of nodes for which the last change of their nominated pods is kept.
MAX_CHANGES: Final = 1024


class NominatingMode(enum.Enum):
    """Whether an attempt changes the pod's nomination."""

    Noop = 0
    Override = 1


# Members of an enum are slow to look up by name.
_NOOP: Final = NominatingMode.Noop
_OVERRIDE: Final = NominatingMode.Override


class NominatingInfo(msgspec.Struct, frozen=True):
    """How an attempt changes the pod's nomination.

    Override sets it to ``nominated_node_name`` (empty: clears it), Noop leaves it as the pod's status has it.
    """

    mode: NominatingMode
    nominated_node_name: str = ""


NOOP: Final = NominatingInfo(_NOOP)


def nominate(node_name: str) -> NominatingInfo:
    """Nominates the pod to ``node_name``; an empty name clears its nomination."""
    return NominatingInfo(_OVERRIDE, node_name)


class Nominator:
    """The nominated pods by node, in the order in which they were nominated. Every operation is O(1)."""

    def __init__(self, is_waiting: Callable[[Pod], bool]) -> None:
        """``is_waiting``: whether, according to the watch, a pod exists and has no node."""
        self._is_waiting: Final = is_waiting
        self._node_of: Final[dict[str, str]] = {}
        self._pods_on: Final[dict[str, dict[str, Pod]]] = {}
        #: Number of the last change. ``_changed_at``: the same by node, latest last; without those up to
        #: ``_forgotten``.
        self.version = 0
        self._changed_at: Final[dict[str, int]] = {}
        self._forgotten = 0

    def add(self, pod: Pod, info: NominatingInfo = NOOP) -> None:
        """Replaces the pod's nomination according to ``info``.

        With Noop the pod's status decides; if it names no node, nothing is kept. A deleted or bound pod loses its
        nomination. A cleared nomination (Override without node) is kept as such.
        """
        self.delete(pod)
        override = info.mode is _OVERRIDE
        node_name = info.nominated_node_name if override else pod.nominated_node_name
        if not (override or node_name) or not self._is_waiting(pod):
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
        info = NOOP
        if old.nominated_node_name == new.nominated_node_name:
            known = self._node_of.get(old.uid)
            if known is not None:
                info = nominate(known)
            elif not new.nominated_node_name:
                return
        self.delete(old)
        self.add(new, info)

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

    def changed_since(self, version: int) -> Iterator[str] | None:
        """The nodes whose nominated pods have changed after ``version``; None if this is no longer known."""
        if version < self._forgotten:
            return None
        changes = self._changed_at
        return itertools.takewhile(lambda name: changes[name] > version, reversed(changes))

    def nominated_nodes(self) -> Collection[str]:
        """The names of the nodes with nominated pods; a live view."""
        return self._pods_on.keys()
