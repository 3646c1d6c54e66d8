"""The pods of each pod group, and which of them have a node (kube-scheduler's pod group state).

SchedulerState keeps this up to date. A group is known as long as it has a pod, whether its PodGroup exists or not.
"""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from app.model import pod_groups_v1alpha2
from app.model.pod import Pod
from app.model.pod_groups import AnyPodGroup, GroupKey, LabelledPodGroup, PodGroup, group_of
from app.state.lister import Lister


class GroupMembers:
    """The pods of a group, by uid."""

    __slots__ = ("gated", "scheduled", "unscheduled")

    def __init__(self) -> None:
        #: Those of ``unscheduled`` with scheduling gates.
        self.gated: Final[set[str]] = set()
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
        #: By uid: the group in which a pod is counted, which is one at a time. All pods of the queue that have a group
        #: are in it. Read-only.
        self.counted_in: Final[dict[str, GroupKey]] = {}
        #: How many pods each group that exists needs (see AnyPodGroup.min_count).
        self._min_counts: Final[dict[GroupKey, int | None]] = {}
        #: Groups whose object has changed or gone, or that have lost a pod, since ``take_reduced``.
        self._reduced: Final[set[GroupKey]] = set()
        for kind, lister in self.listers.items():
            lister.follow(functools.partial(self._note_group, kind))
        #: Whether topology constraints count (the feature gate TopologyAwareWorkloadScheduling).
        self.topology = False
        #: Whether groups have a preemption policy of their own (the feature gate PodGroupPreemptionPolicy).
        self.policies = False
        #: Whether any kind of groups is watched.
        self.watched = False
        #: The gate with which ``preempt_whole`` was called; None if it was not.
        self.whole_gate: bool | None = None
        #: The groups of which all pods are evicted, or none; with ``preempted_whole`` only. ``units_epoch`` changes
        #: with it.
        self._units: Final[set[GroupKey]] = set()
        self.units_epoch = 0

    def watch(self, kind: type[Any], served: Callable[[], str]) -> None:
        """Groups of this kind count from now on, while the API server serves the kind.

        ``served`` returns the path at which it does, such as ``/apis/scheduling.k8s.io/v1beta1/podgroups``, or ``""``.
        """
        self._served[kind] = served
        self.watched = True

    def preempt_whole(self, *, gate: bool = True) -> None:
        """Preemption sees groups as a whole from now on; without its ``gate`` only in a version that has none for it.

        No group may exist yet.
        """
        self.whole_gate = gate
        self.listers[PodGroup].follow(self._note_unit)

    def follow(self, other: "PodGroups") -> None:
        """From now on preemption and topology constraints are as in ``other`` now. No group may exist yet."""
        self.topology, self.policies = other.topology, other.policies
        if other.whole_gate is not None:
            self.preempt_whole(gate=other.whole_gate)

    @property
    def preempted_whole(self) -> bool:
        """Whether preemption sees groups as a whole: by its gate, or in the versions of Kubernetes 1.37."""
        return bool(self.whole_gate) or self.is_newer(PodGroup)

    def is_newer(self, kind: type[AnyPodGroup]) -> bool:
        """Whether a kind is that of scheduling.k8s.io in a version of Kubernetes 1.37."""
        path = self.path_of(kind) if kind is PodGroup else ""
        return bool(path) and not pod_groups_v1alpha2.is_served_at(path)

    def _note_unit(self, old: PodGroup | None, new: PodGroup | None) -> None:
        group = new or old
        if group is None:
            return
        key = GroupKey(PodGroup, group.namespace, group.name)
        whole = new is not None and new.disrupted_whole and self.preempted_whole
        if whole == (key in self._units):
            return
        if whole:
            self._units.add(key)
        else:
            self._units.discard(key)
        self.units_epoch += 1

    @property
    def any_units(self) -> bool:
        """Whether there is any group of which all pods are evicted, or none."""
        return bool(self._units)

    def unit_of(self, pod: Pod) -> GroupKey | None:
        """The group with which a pod is evicted; None for a pod that is evicted alone."""
        if not self._units:
            return None
        key = self.key_of(pod)
        return key if key in self._units else None

    def key_of(self, pod: Pod) -> GroupKey | None:
        """The group of a pod as it is now; None if it has none, or the API server does not have its kind."""
        if not self.watched:
            return None
        key = self.counted_in.get(pod.uid) or group_of(pod)
        return key if key is not None and self.path_of(key.kind) else None

    def has(self, key: GroupKey, pod: Pod) -> bool:
        """Whether a pod is counted in this group."""
        return self.counted_in.get(pod.uid) == key

    def get(self, key: GroupKey) -> AnyPodGroup | None:
        """The object of a group; None if it does not exist."""
        group: AnyPodGroup | None = self.listers[key.kind].get(key.name, key.namespace)
        return group

    def is_complete(self, key: GroupKey) -> bool:
        """Whether a group exists and has as many pods, with or without a node, as it needs."""
        return self._suffice(key, len(self.members(key)))

    def is_held(self, key: GroupKey) -> bool:
        """Whether a pod with a scheduling gate holds the whole group, as in the versions of Kubernetes 1.37."""
        return bool(self.members(key).gated) and self.is_newer(key.kind)

    def is_scheduled(self, key: GroupKey, more: int = 0) -> bool:
        """Whether a group exists and has as many pods with a node, and ``more`` without, as it needs."""
        return self._suffice(key, len(self.members(key).scheduled) + more)

    def missing(self, key: GroupKey) -> int:
        """How many pods of a group, at least one, still have to get a node."""
        return max(1, self.min_count(key) - len(self.members(key).scheduled))

    def min_count(self, key: GroupKey) -> int:
        """How many pods of a group, at least one, run together."""
        return self._min_counts.get(key) or 1

    def _suffice(self, key: GroupKey, pods: int) -> bool:
        if key not in self._min_counts:
            return False
        needed = self._min_counts[key]
        return needed is None or pods >= needed

    def take_reduced(self) -> list[GroupKey]:
        """The groups that may have become incomplete since the last call."""
        if not self._reduced:
            return []
        reduced = [key for key in self._reduced if self.path_of(key.kind)]
        self._reduced.clear()
        return [key for key in reduced if not self.is_complete(key)]

    def _note_group(
        self, kind: type[AnyPodGroup], old: AnyPodGroup | None, new: AnyPodGroup | None
    ) -> None:
        group = new or old
        if group is None:
            return
        key = GroupKey(kind, group.namespace, group.name)
        if new is None:
            self._min_counts.pop(key, None)
        else:
            self._min_counts[key] = new.min_count
        if old is not None and kind in self._served:
            self._reduced.add(key)

    def priority_of(self, key: GroupKey, pod: Pod) -> int:
        """The priority with which a group preempts for one of its pods: its own, or that of its least important waiting
        pod."""
        group = self.get(key)
        if group is not None and group.priority is not None:
            return group.priority
        waiting = self.members(key).unscheduled.values()
        return min((each.priority for each in waiting), default=pod.priority)

    def path_of(self, kind: type[AnyPodGroup]) -> str:
        """The path at which the API server serves a kind; empty if it does not."""
        served = self._served.get(kind)
        return "" if served is None else served()

    @property
    def kinds(self) -> Iterable[type[AnyPodGroup]]:
        """The kinds that are watched."""
        return self._served.keys()

    @property
    def count(self) -> int:
        """How many groups exist."""
        return sum(map(len, self.listers.values()))

    def members(self, key: GroupKey) -> GroupMembers:
        """The pods of a group; none if it is unknown."""
        members = self._members.get(key)
        return GroupMembers() if members is None else members

    def groups(self) -> Collection[GroupKey]:
        """All groups with pods."""
        return self._members.keys()

    # ------------------------------------------------------------ what SchedulerState reports

    def concerns(self, pod: Pod) -> bool:
        """Whether a pod is counted in a group, or names one."""
        return pod.uid in self.counted_in or group_of(pod) is not None

    def counts_as_scheduled(self, pod: Pod) -> bool:
        """Whether the group that a pod names counts it as scheduled now."""
        key = group_of(pod)
        return key is not None and pod.uid in self.members(key).scheduled

    def put(self, pod: Pod, *, scheduled: bool) -> None:
        """A pod came, changed, or got or lost its node."""
        key = self._tracked(pod)
        if self.counted_in.get(pod.uid, key) != key:
            self.remove(pod)
        if key is None:
            return
        self.counted_in[pod.uid] = key
        members = self._members.get(key)
        if members is None:
            members = self._members[key] = GroupMembers()
        to, other = members.unscheduled, members.scheduled
        if scheduled:
            to, other = other, to
        other.pop(pod.uid, None)
        to[pod.uid] = pod
        if pod.template.spec.scheduling_gates and not scheduled:
            members.gated.add(pod.uid)
        else:
            members.gated.discard(pod.uid)

    def remove(self, pod: Pod) -> None:
        """A pod has gone, or left its group."""
        key = self.counted_in.pop(pod.uid, None)
        if key is None:
            return
        members = self._members[key]
        members.unscheduled.pop(pod.uid, None)
        members.scheduled.pop(pod.uid, None)
        members.gated.discard(pod.uid)
        self._reduced.add(key)
        if not len(members):
            del self._members[key]

    def _tracked(self, pod: Pod) -> GroupKey | None:
        key = group_of(pod)
        return key if key is not None and key.kind in self._served else None
