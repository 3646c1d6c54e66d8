"""Which pods are promised to which node before they are bound there (docs/spec/queue.md#nominator).

A nomination is made in memory first and written to the pod's status afterwards, so the two may differ for a while; the
nominator is what counts.
"""

import enum
import itertools
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec

from app.model.pod import Pod

#: For so many nodes it is remembered when their nominated pods last changed.
MAX_CHANGES: Final = 1024


class NominatingMode(enum.Enum):
    """Whether a nomination is to be changed."""

    Noop = 0
    Override = 1


# Members of an enum are slow to look up by name.
_NOOP: Final = NominatingMode.Noop
_OVERRIDE: Final = NominatingMode.Override


class NominatingInfo(msgspec.Struct, frozen=True):
    """What an attempt says about the pod's nomination.

    Override sets it to ``nominated_node_name`` (empty: clears it), Noop leaves it as the pod's status has it.
    """

    mode: NominatingMode
    nominated_node_name: str = ""


NOOP: Final = NominatingInfo(_NOOP)


def nominate(node_name: str) -> NominatingInfo:
    """Promises ``node_name`` to the pod; with an empty one takes a nomination back."""
    return NominatingInfo(_OVERRIDE, node_name)


class Nominator:
    """The nominated pods by node, in the order in which they were nominated. Every operation is O(1)."""

    def __init__(self, is_waiting: Callable[[Pod], bool]) -> None:
        """Args: ``is_waiting`` tells whether the pod, by what the watch knows, still exists and has no node."""
        self._is_waiting: Final = is_waiting
        self._node_of: Final[dict[str, str]] = {}
        self._pods_on: Final[dict[str, dict[str, Pod]]] = {}
        #: Number of the last change, and by node that of its last one, the latest last; those up to ``_forgotten`` are not kept.
        self.version = 0
        self._changed_at: Final[dict[str, int]] = {}
        self._forgotten = 0

    def add(self, pod: Pod, info: NominatingInfo = NOOP) -> None:
        """Nominates a pod as ``info`` says, in place of any nomination it had.

        With Noop the pod's own status decides, and nothing is kept if that names no node. A pod that is gone or bound
        loses its nomination. A cleared nomination (Override with no node) is remembered as such.
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
        """Follows an update of a pod.

        The new status decides if it names another node than the old one. Else the update tells nothing about nominations,
        and what was nominated in memory stays: the status is to follow it.
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
        """Forgets a pod's nomination, if it has one."""
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
        """The node a pod is nominated to; empty if its nomination was cleared, None if there never was one."""
        return self._node_of.get(uid)

    def pods_on(self, node_name: str) -> list[Pod]:
        """The pods nominated to a node, in the order of their nomination."""
        return list(self._pods_on.get(node_name, {}).values())

    def changed_since(self, version: int) -> Iterator[str] | None:
        """The names of the nodes whose nominated pods have changed after ``version``; None if that is too long ago."""
        if version < self._forgotten:
            return None
        changes = self._changed_at
        return itertools.takewhile(lambda name: changes[name] > version, reversed(changes))

    def nominated_nodes(self) -> Collection[str]:
        """The names of the nodes that pods are nominated to; a view that follows later changes."""
        return self._pods_on.keys()
