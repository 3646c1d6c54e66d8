"""Pods that wait for an event, filed so that an event finds those it may help and touches no other.

Pods of one template that were rejected by the same plugins are siblings; they are filed together, and every group of
siblings is listed under what can wake it.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Final

from app.model.pod import PodTemplate
from app.state.queue.pod_heap import PodHeap
from app.state.queue.queued_pod import QueuedPod

#: Template, all rejectors, the pending ones among them, and the gating plugin.
GroupKey = tuple[PodTemplate, frozenset[str], frozenset[str], str]


class Siblings:
    """Waiting pods that share their template, the plugins that rejected them, and the one that gates them."""

    __slots__ = ("gating_plugin", "key", "pods", "rejectors", "template", "wakers")

    def __init__(self, key: GroupKey) -> None:
        self.key: Final = key
        self.template, self.rejectors, _, self.gating_plugin = key
        #: By uid, in the order in which they came.
        self.pods: Final[dict[str, QueuedPod]] = {}
        #: What the group is listed under.
        self.wakers: tuple[Hashable, ...] = ()

    @property
    def profile(self) -> str:
        """The scheduler name that the pods ask for."""
        return self.template.spec.scheduler_name


def group_key(queued: QueuedPod) -> GroupKey:
    """What a pod has in common with its siblings."""
    return (
        queued.pod.template,
        frozenset(queued.rejectors),
        frozenset(queued.pending_plugins),
        queued.gating_plugin,
    )


class WaitingPool:
    """Pods filed by group, and groups by what can wake them."""

    def __init__(self, wakers: Callable[[Siblings], Iterable[Hashable]]) -> None:
        """Args: ``wakers`` names what a new group is to be listed under."""
        self._wakers: Final = wakers
        self._groups: Final[dict[GroupKey, Siblings]] = {}
        self._woken_by: Final[dict[Hashable, dict[Siblings, None]]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[QueuedPod]:
        """The pods, group by group."""
        return (queued for group in self._groups.values() for queued in group.pods.values())

    @property
    def groups(self) -> Collection[Siblings]:
        """All groups, oldest first."""
        return self._groups.values()

    def woken_by(self, waker: Hashable) -> Collection[Siblings]:
        """The groups listed under ``waker``, oldest first."""
        return self._woken_by.get(waker, ())

    def add(self, queued: QueuedPod) -> None:
        """Files a pod."""
        key = group_key(queued)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._list(Siblings(key))
        group.pods[queued.pod.uid] = queued
        queued.group = group
        self._length += 1

    def remove(self, queued: QueuedPod) -> None:
        """Takes a pod out."""
        group: Siblings = queued.group
        queued.group = None
        del group.pods[queued.pod.uid]
        self._length -= 1
        if not group.pods:
            self._unlist(group)

    def refresh(self, queued: QueuedPod) -> None:
        """Files a pod that has changed where it now belongs."""
        if queued.group.key != group_key(queued):
            self.remove(queued)
            self.add(queued)

    def _list(self, group: Siblings) -> Siblings:
        group.wakers = tuple(self._wakers(group))
        for waker in group.wakers:
            self._woken_by.setdefault(waker, {})[group] = None
        return group

    def _unlist(self, group: Siblings) -> None:
        del self._groups[group.key]
        for waker in group.wakers:
            listed = self._woken_by[waker]
            del listed[group]
            if not listed:
                del self._woken_by[waker]


class UnschedulablePods(WaitingPool):
    """The pool of pods that some plugin rejected; knows who has waited longest."""

    def __init__(
        self, wakers: Callable[[Siblings], Iterable[Hashable]], tickets: Iterator[int]
    ) -> None:
        """Args: see WaitingPool and PodHeap."""
        super().__init__(wakers)
        self._by_age: Final = PodHeap(lambda queued: queued.timestamp, tickets)

    def add(self, queued: QueuedPod) -> None:
        """Files a pod."""
        super().add(queued)
        self._by_age.add(queued)

    def remove(self, queued: QueuedPod) -> None:
        """Takes a pod out."""
        super().remove(queued)
        self._by_age.remove(queued)

    def oldest(self) -> QueuedPod | None:
        """The pod with the earliest timestamp."""
        return self._by_age.peek()
