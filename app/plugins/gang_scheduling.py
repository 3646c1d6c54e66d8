"""GangScheduling: keeps the pods of a gang out of the queue until enough of them exist.

Source: docs/spec/pod-groups.md#gangscheduling.
kube-scheduler's plugin also has Permit, which counts the pods with a node; here the cycle of a group does that
(app.scheduler.group_cycle).
"""

from collections.abc import Collection, Iterable
from typing import ClassVar, Final

from app.framework.handle import Handle
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.pod import Pod
from app.model.pod_groups import AnyPodGroup, GroupKey
from app.model.status import SUCCESS, Status, unresolvable
from app.state.queue.hints import EventRegistration

ERR_NO_GROUP: Final = 'waiting for pods\'s pod group "{}" to appear in scheduling queue'
#: Of Kubernetes 1.37: its texts say nothing of the other pods.
ERR_HELD: Final = "waiting for pods of the pod group that have scheduling gates"
ERR_TOO_FEW: Final = "waiting for minCount pods from a gang to appear in scheduling queue"


class GangScheduling:
    """Rejects pods at PreEnqueue whose PodGroup does not exist, has fewer pods than its gang needs, or is held by a
    gated pod."""

    NAME: ClassVar[str] = "GangScheduling"
    IDLE_AT: ClassVar[frozenset[str]] = frozenset({"permit"})

    def __init__(self, _args: object, handle: Handle) -> None:
        self._groups: Final = handle.cluster.pod_groups

    def pre_enqueue(self, pod: Pod) -> Status:
        """Success for pods without a group."""
        key = self._groups.key_of(pod)
        if key is None:
            return SUCCESS
        group = self._groups.get(key)
        if group is None:
            return unresolvable(ERR_NO_GROUP.format(key.name))
        if not self._groups.is_complete(key):
            return unresolvable(ERR_TOO_FEW)
        return unresolvable(ERR_HELD) if self._groups.is_held(key) else SUCCESS

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Another pod of the group, and the group itself."""
        return (
            EventRegistration(
                ClusterEvent(Resource.Pod, Action.Add),
                self._after_pod,
                narrow=lambda _template, _old, new: self._mates(self._groups.key_of(new)),
            ),
            EventRegistration(
                ClusterEvent(Resource.PodGroup, Action.Add | Action.Update),
                self._after_group,
                narrow=lambda _template, _old, new: self._mates(_key(new)),
            ),
        )

    def _after_pod(self, pod: Pod, _old: Pod | None, new: Pod) -> bool:
        return pod.uid in self._mates(self._groups.key_of(new))

    def _after_group(self, pod: Pod, _old: AnyPodGroup | None, new: AnyPodGroup) -> bool:
        return pod.uid in self._mates(_key(new))

    def _mates(self, key: GroupKey | None) -> Collection[str]:
        """The uids of the pods that wait in a group, none if it has too few pods, or is held."""
        if key is None or not self._groups.is_complete(key) or self._groups.is_held(key):
            return ()
        return self._groups.members(key).unscheduled.keys()


def _key(group: AnyPodGroup) -> GroupKey:
    return GroupKey(type(group), group.namespace, group.name)
