"""The pods of each pod group, and which of them have a node (kube-scheduler's pod group state).

SchedulerState keeps this up to date. A group is known as long as it has a pod, whether its PodGroup exists or not.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from app.model.pod import Pod
from app.model.pod_groups import AnyPodGroup, GroupKey, LabelledPodGroup, PodGroup, group_of
from app.state.lister import Lister


class GroupMembers:
    """The pods of a group, by uid."""

    __slots__ = ("scheduled", "unscheduled")

    def __init__(self) -> None:
        #: Pods without a node, for which a profile is responsible.
        self.unscheduled: Final[dict[str, Pod]] = {}
        #: Pods that are assumed or bound.
        self.scheduled: Final[dict[str, Pod]] = {}

    def __len__(self) -> int:
        return len(self.unscheduled) + len(self.scheduled)


class PodGroups:
    """Groups with their members. Nothing is a group until ``watch`` names its kind."""

    def __init__(self) -> None:
        self.listers: Final[Mapping[type[AnyPodGroup], Lister[Any]]] = {
            PodGroup: Lister[PodGroup](),
            LabelledPodGroup: Lister[LabelledPodGroup](),
        }
        self._served: dict[type[AnyPodGroup], Callable[[], str]] = {}
        self._members: Final[dict[GroupKey, GroupMembers]] = {}
        #: Whether any kind of groups is watched.
        self.watched = False

    def watch(self, kind: type[Any], served: Callable[[], str]) -> None:
        """Groups of this kind count from now on, while the API server serves the kind.

        ``served`` returns the path at which it does, such as ``/apis/scheduling.k8s.io/v1beta1/podgroups``, or ``""``.
        """
        self._served[kind] = served
        self.watched = True

    def key_of(self, pod: Pod) -> GroupKey | None:
        """The group of a pod; None if it has none, or the API server does not have its kind."""
        key = group_of(pod)
        return key if key is not None and self.path_of(key.kind) else None

    def get(self, key: GroupKey) -> AnyPodGroup | None:
        """The object of a group; None if it does not exist."""
        group: AnyPodGroup | None = self.listers[key.kind].get(key.name, key.namespace)
        return group

    def path_of(self, kind: type[AnyPodGroup]) -> str:
        """The path at which the API server serves a kind; empty if it does not."""
        served = self._served.get(kind)
        return "" if served is None else served()

    @property
    def count(self) -> int:
        """How many groups exist."""
        return sum(map(len, self.listers.values()))

    def members(self, key: GroupKey) -> GroupMembers:
        """The pods of a group; none if it is unknown."""
        return self._members.get(key) or GroupMembers()

    def groups(self) -> Collection[GroupKey]:
        """All groups with pods."""
        return self._members.keys()

    # ------------------------------------------------------------ what SchedulerState reports

    def put(self, pod: Pod, *, scheduled: bool) -> None:
        """A pod came, changed, or got or lost its node."""
        key = self._tracked(pod)
        if key is None:
            return
        members = self._members.get(key)
        if members is None:
            members = self._members[key] = GroupMembers()
        to, other = members.unscheduled, members.scheduled
        if scheduled:
            to, other = other, to
        other.pop(pod.uid, None)
        to[pod.uid] = pod

    def remove(self, pod: Pod) -> None:
        """A pod has gone, or left its group."""
        key = self._tracked(pod)
        members = None if key is None else self._members.get(key)
        if key is None or members is None:
            return
        members.unscheduled.pop(pod.uid, None)
        members.scheduled.pop(pod.uid, None)
        if not len(members):
            del self._members[key]

    def _tracked(self, pod: Pod) -> GroupKey | None:
        key = group_of(pod)
        return key if key is not None and key.kind in self._served else None
