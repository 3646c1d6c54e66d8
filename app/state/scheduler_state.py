"""The scheduler's state: cache, queue, nominator and listers, which only the methods of SchedulerState change.

Watches report changes: ``apply`` updates the state and moves the pods that a change may help
(docs/spec/cluster-events.md#pod-changes). It returns commands for what the shell has to do. Scheduling attempts report
their results with ``assume``, ``forget``, ``fail`` and ``done``. A pod is always in exactly one place: waiting in the
queue, in flight, assumed, bound, or gone.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from app.model.cluster_event import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_DELETE,
    ClusterEvent,
    Resource,
    action_of,
)
from app.model.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from app.model.objects import Named, Node
from app.model.pod import Pod
from app.model.pod_groups import GroupKey, LabelledPodGroup, PodGroup, group_of
from app.model.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from app.state.cache import Cache, CacheError
from app.state.cluster import Cluster
from app.state.lister import Lister
from app.state.nominations import Nominations, PodsByRow
from app.state.queue.active_queue import Admits
from app.state.queue.queued_pod import QueuedPod
from app.state.queue.scheduling_queue import AlreadyQueuedError, SchedulingQueue
from app.state.queue.update_events import node_update_events, pod_update_events

#: The kinds besides pods and nodes whose changes wake pods.
RESOURCES: Final[Mapping[type[Named], Resource]] = {
    PersistentVolume: Resource.PersistentVolume,
    PersistentVolumeClaim: Resource.PersistentVolumeClaim,
    StorageClass: Resource.StorageClass,
    CSINode: Resource.CSINode,
    CSIDriver: Resource.CSIDriver,
    CSIStorageCapacity: Resource.CSIStorageCapacity,
    VolumeAttachment: Resource.VolumeAttachment,
    ResourceClaim: Resource.ResourceClaim,
    ResourceSlice: Resource.ResourceSlice,
    DeviceClass: Resource.DeviceClass,
    DeviceTaintRule: Resource.DeviceTaintRule,
    PodGroup: Resource.PodGroup,
    LabelledPodGroup: Resource.PodGroup,
}


class Change(NamedTuple):
    """A change of one object; ``old`` is None for an addition, ``new`` for a deletion."""

    kind: type
    old: Any
    new: Any


class AbandonPod(msgspec.Struct, frozen=True):
    """An assumed pod is being deleted or is gone: its Permit wait must end."""

    uid: str


class ClearNomination(msgspec.Struct, frozen=True):
    """A waiting pod has lost its nomination, which its status must no longer name."""

    pod: Pod


class ReportProblem(msgspec.Struct, frozen=True):
    """An inconsistency that must be logged."""

    text: str


class RefusedObject(msgspec.Struct, frozen=True):
    """An object that could not be handled. It is not in the state, except for a bound pod's resources."""

    key: str
    error: Exception


Command = AbandonPod | ClearNomination | ReportProblem | RefusedObject


class Failure(msgspec.Struct, frozen=True):
    """The pod after a failed attempt: its latest version, and whether the failure is reported (event and condition).

    ``nominated_node``: as for ``fail``, and "" if the pod may have no nomination.
    """

    pod: Pod
    report: bool
    nominated_node: str | None


def _nothing() -> None:
    pass


class SchedulerState:
    """Cache, queue, nominator and listers, updated together."""

    def __init__(
        self,
        *,
        cache: Cache,
        cluster: Cluster,
        pods: dict[str, Pod],
        queue: SchedulingQueue,
        profiles: Collection[str],
        notify: Callable[[], None] = _nothing,
    ) -> None:
        """``pods``: an empty mapping, which the queue's nominator reads.

        ``notify`` is called after every change that may have activated pods or started a backoff.
        """
        self.cache: Final = cache
        #: The node table.
        self.table: Final = cache.table
        self.cluster: Final = cluster
        #: Every pod as the watch last showed it, by namespace/name.
        self.pods: Final = pods
        #: Objects that could not be handled, by kind and key. Their next version counts as a new object.
        self._refused: Final[set[tuple[type, str]]] = set()
        self.queue: Final = queue
        self.nominator: Final = queue.nominator
        self._nominations: Final = Nominations(self.nominator, cache.table)
        self._profiles = frozenset(profiles)
        self._notify: Final = notify
        #: See ``arrivals``. Only nodes to which pods came while pods were assumed.
        self._arrivals: Final[dict[str, int]] = {}
        self._last_arrival = 0

    @property
    def changes(self) -> tuple[int, ...]:
        """Changes with everything that a decision depends on, besides the pod."""
        table = self.table
        return table.last_generation, table.layout, *table.surroundings, self.nominator.version

    def responsible_for(self, pod: Pod) -> bool:
        """Whether the pod's scheduler name is that of a profile."""
        return pod.template.spec.scheduler_name in self._profiles

    def is_unbound(self, pod: Pod) -> bool:
        """Whether, according to the watch, the pod with this uid exists and has no node."""
        return self._unbound(pod) is not None

    def latest(self, pod: Pod) -> Pod:
        """The latest version of the pod with this uid; ``pod`` itself if it is bound or gone."""
        return self._unbound(pod) or pod

    def needs_node(self, pod: Pod) -> bool:
        """Whether, according to the watch, the pod exists, has no node and is not being deleted."""
        current = self._unbound(pod)
        return current is not None and not current.terminating

    def _unbound(self, pod: Pod) -> Pod | None:
        current = self.pods.get(pod.key)
        if current is None or current.uid != pod.uid or current.node_name:
            return None
        return current

    # ------------------------------------------------------------ pods of other schedulers

    def arrivals(self, node_name: str) -> int:
        """A number that changes when a pod comes to a node, or grows there, that was not assumed there.

        It is followed only as long as any pod is assumed.
        """
        return self._arrivals.get(node_name, 0)

    def _arrived(self, pod: Pod) -> None:
        if not self.cache.assumes_any:
            self._arrivals.clear()
            return
        self._last_arrival += 1
        self._arrivals[pod.node_name] = self._last_arrival
        if len(self._arrivals) > 2 * self.table.node_count + 100:
            for name in self._arrivals.keys() - self.table.row_of.keys():
                del self._arrivals[name]

    # ------------------------------------------------------------ what happened

    def apply(self, change: Change, now: float) -> Sequence[Command]:
        """Applies one change from a watch. If that fails, the object is removed from the state (see RefusedObject)."""
        commands = self._apply(change, now)
        reduced = self.cluster.pod_groups.take_reduced() if self.cluster.pod_groups.watched else ()
        if reduced:
            commands = [*commands, *self._clear_nominations(reduced, now)]
        self._notify()
        return commands

    def _clear_nominations(self, groups: Iterable[GroupKey], now: float) -> list[Command]:
        """Clears the nominations of the pods of groups that are not complete: others may have the room."""
        return [
            self._clear_nomination(pod, node, now)
            for key in groups
            for pod in tuple(self.cluster.pod_groups.members(key).unscheduled.values())
            if (node := self.nominator.node_of(pod.uid))
        ]

    def _clear_nomination(self, pod: Pod, node: str, now: float) -> Command:
        self.nominator.add(pod, "")
        self._nomination_freed(pod, node, now)
        return ClearNomination(pod)

    def _may_be_nominated(self, pod: Pod) -> bool:
        """False for a pod that waits for its group to be complete."""
        groups = self.cluster.pod_groups
        key = groups.key_of(pod) if groups.watched else None
        return key is None or groups.is_complete(key)

    def _apply(self, change: Change, now: float) -> Sequence[Command]:
        if self._refused:
            change = self._after_refusal(change)
            if change.old is None and change.new is None:
                return ()
        try:
            if change.kind is Pod:
                return self._apply_pod(change.old, change.new, now)
            self.table.changes_around += 1
            if change.kind is Node:
                self._apply_node(change.old, change.new, now)
            else:
                self._apply_other(change, now)
        except CacheError as error:
            return (ReportProblem(str(error)),)
        except Exception as error:  # noqa: BLE001 - any exception concerns this object only
            return (self._refuse(change, error),)
        return ()

    def _after_refusal(self, change: Change) -> Change:
        """The change; an addition if the object's last version was refused."""
        key = (change.kind, (change.new or change.old).key)
        if key not in self._refused:
            return change
        self._refused.discard(key)
        return change._replace(old=None)

    def _refuse(self, change: Change, error: Exception) -> RefusedObject:
        """Removes the object of a change from the state, except for the resources of a bound pod."""
        either = change.new or change.old
        with suppress(Exception):
            if change.kind is Pod:
                self._take_out(either)
            elif change.kind is Node:
                self.cache.remove_node(either.name)
            else:
                self.cluster.lister(change.kind).remove(either)
        counted = change.kind is Pod and self.cache.get(either.uid) is not None
        if change.new is not None and not counted:
            self._refused.add((change.kind, either.key))
        return RefusedObject(either.key, error)

    def _take_out(self, pod: Pod) -> None:
        if self.cache.get(pod.uid) is None:
            self.pods.pop(pod.key, None)
            self.cluster.pod_groups.remove(pod)
        self.queue.delete(pod)

    def apply_new(self, kind: type, objects: Mapping[str, Any], now: float) -> Sequence[Command]:
        """Adds the objects of a list, by namespace/name, that were unknown before; the same as one change each."""
        if kind is Pod:
            commands = self._new_pods(objects, now)
        else:
            changes = (Change(kind, None, new) for new in objects.values())
            commands = [command for change in changes for command in self._apply(change, now)]
        self._notify()
        return commands

    def _new_pods(self, pods: Mapping[str, Pod], now: float) -> Sequence[Command]:
        """Adds the bound pods first, in one batch: after a start there are tens of thousands of them."""
        self.pods.update(pods)
        self._note_groups(pods.values())
        bound = [pod for pod in pods.values() if pod.node_name]
        commands: list[Command] = []
        for pod, problem in self.cache.add_many(bound):
            if isinstance(problem, CacheError):
                commands.append(ReportProblem(str(problem)))
            else:
                commands.append(self._refuse(Change(Pod, None, pod), problem))
        if self.cache.assumes_any:
            for pod in bound:
                self._arrived(pod)
        if self.queue.awaits_events:
            for pod in bound:
                self.queue.move_all(ASSIGNED_POD_ADD, None, pod, now)
        if len(bound) < len(pods):
            for pod in pods.values():
                if not pod.node_name and self.responsible_for(pod):
                    try:
                        self.queue.add(pod, now)
                    except Exception as error:  # noqa: BLE001 - as in ``_apply``
                        commands.append(self._refuse(Change(Pod, None, pod), error))
            self._wake_mates(pods, now)
        return commands

    def _wake_mates(self, pods: Mapping[str, Pod], now: float) -> None:
        """Moves the pods that came with an earlier part of the list and waited for these ones, their mates."""
        groups = self.cluster.pod_groups
        if not groups.watched:
            return
        last = {groups.key_of(pod): pod for pod in pods.values() if not pod.node_name}
        for key, pod in last.items():
            if key is not None and groups.is_complete(key):
                mates = groups.members(key).unscheduled.values()
                if any(mate.key not in pods for mate in mates):
                    self.queue.move_all(UNSCHEDULABLE_POD_ADD, None, pod, now)

    def _apply_pod(self, old: Pod | None, new: Pod | None, now: float) -> Sequence[Command]:
        if new is None:
            if old is None:
                return ()
            self.pods.pop(old.key, None)
            self.cluster.pod_groups.remove(old)
            return self._pod_deleted(old, now)
        self.pods[new.key] = new
        if self.cluster.pod_groups.watched:
            self._note_group(new)
        if old is None:
            self._pod_added(new, now)
            return ()
        return self._pod_updated(old, new, now)

    def _note_groups(self, pods: Iterable[Pod]) -> None:
        if self.cluster.pod_groups.watched:
            for pod in pods:
                self._note_group(pod)

    def _note_group(self, pod: Pod) -> None:
        groups = self.cluster.pod_groups
        if not groups.concerns(pod):
            return
        scheduled = bool(pod.node_name)
        if not scheduled and self.cache.is_assumed(pod.uid):
            # A pod that joins a group while it is assumed does not count there before it is bound.
            scheduled = groups.counts_as_scheduled(pod)
        if scheduled or self.responsible_for(pod):
            groups.put(pod, scheduled=scheduled)
        else:
            groups.remove(pod)

    def _pod_added(self, pod: Pod, now: float) -> None:
        if pod.node_name:
            self._arrived(pod)
            self.cache.add(pod)
            self.queue.move_all(ASSIGNED_POD_ADD, None, pod, now)
        elif self.responsible_for(pod):
            self.queue.add(pod, now)
            if self.cluster.pod_groups.key_of(pod) is not None:
                self.queue.move_all(UNSCHEDULABLE_POD_ADD, None, pod, now)

    def _pod_updated(self, old: Pod, new: Pod, now: float) -> Sequence[Command]:
        if self._leaves(old, new):
            commands = self._pod_deleted(old, now)
            self._pod_added(new, now)
            return commands
        if old.node_name:
            if new.resources != old.resources:
                self._arrived(new)
            self.cache.update(new)
            for event in pod_update_events(old, new):
                self.queue.move_all(event, old, new, now)
        elif new.node_name:
            self._pod_bound(old, new, now)
        elif self.responsible_for(new) and old.resource_version != new.resource_version:
            return self._waiting_pod_updated(old, new, now)
        return ()

    def _leaves(self, old: Pod, new: Pod) -> bool:
        """Whether an update removes the pod's node or gives it to another scheduler; API servers allow neither."""
        if new.node_name:
            return False
        return bool(old.node_name) or (self.responsible_for(old) and not self.responsible_for(new))

    def _pod_bound(self, old: Pod, new: Pod, now: float) -> None:
        assumed = self.cache.get(new.uid)
        if assumed is None or assumed.node_name != new.node_name:
            self._arrived(new)
        self.cache.add(new)
        if self.responsible_for(old):
            self.queue.delete(old)
        self.queue.move_all(ASSIGNED_POD_ADD, None, new, now)
        if assumed is not None:
            if assumed.node_name != new.node_name:
                # Another scheduler has bound it: the place where it was assumed is free.
                self.queue.move_all(ASSIGNED_POD_DELETE, assumed, None, now)
            self._relabelled(assumed, new, now)

    def _relabelled(self, assumed: Pod, new: Pod, now: float) -> None:
        """Moves pods whose terms and constraints matched the labels of an assumed pod, or match the new ones."""
        if new.labels is not assumed.labels:
            for event in pod_update_events(assumed, new):
                self.queue.move_all(event, assumed, new, now)

    def _waiting_pod_updated(self, old: Pod, new: Pod, now: float) -> Sequence[Command]:
        assumed = self.cache.get(new.uid) if self.cache.is_assumed(new.uid) else None
        if assumed is not None:
            if new.terminating and not old.terminating:
                return self._assumed_pod_deleted(new, now)
            if new.labels is not assumed.labels:
                self._relabelled(assumed, self.cache.update_assumed(new), now)
            return ()
        before = self.nominator.node_of(new.uid)
        self.queue.update(old, new, now)
        if old.spec.scheduling_gates and not new.spec.scheduling_gates:
            self._no_longer_held(new, now)
        commands: Sequence[Command] = ()
        if self.nominator.node_of(new.uid) and not self._may_be_nominated(new):
            if before:
                commands = (self._clear_nomination(new, before, now),)
            else:
                self.nominator.delete(new)  # the status names a node since before a restart
        if old.nominated_node_name and old.nominated_node_name != new.nominated_node_name:
            self._nomination_freed(old, old.nominated_node_name, now)
        return commands

    def _pod_deleted(self, pod: Pod, now: float) -> Sequence[Command]:
        if pod.node_name:
            known = self.cache.get(pod.uid)
            if known is not None:
                self.cache.remove(pod)
            self.queue.move_all(ASSIGNED_POD_DELETE, pod, None, now)
            missing = ReportProblem(f"pod {pod.key} was deleted but not in the cache")
            return () if known is not None else (missing,)
        if not self.responsible_for(pod):
            return ()
        node = self.nominator.node_of(pod.uid) or pod.nominated_node_name
        self.queue.delete(pod)
        if pod.spec.scheduling_gates:
            self._no_longer_held(pod, now)
        if self.cache.is_assumed(pod.uid):
            return self._assumed_pod_deleted(pod, now)
        if node:
            self._nomination_freed(pod, node, now)
        return ()

    def _no_longer_held(self, pod: Pod, now: float) -> None:
        """Moves the pods of a group that a gated pod may have held until now."""
        groups = self.cluster.pod_groups
        key = group_of(pod) if groups.watched else None
        if key is not None and groups.is_newer(key.kind) and not groups.is_held(key):
            for mate in groups.members(key).unscheduled.values():
                self.queue.move_all(UNSCHEDULABLE_POD_ADD, None, mate, now)
                return

    def _assumed_pod_deleted(self, pod: Pod, now: float) -> Sequence[Command]:
        assumed = self.cache.get(pod.uid)
        if assumed is None:
            return ()
        self._forget(assumed)
        self.queue.move_all(ASSIGNED_POD_DELETE, assumed, None, now)
        return (AbandonPod(pod.uid),)

    def _nomination_freed(self, pod: Pod, node: str, now: float) -> None:
        """Moves the pods that may fit since a pod is no longer nominated to this node."""
        if pod.nominated_node_name != node:  # it was never written
            pod = msgspec.structs.replace(pod, nominated_node_name=node)
        self.queue.move_all(
            ASSIGNED_POD_DELETE,
            pod,
            None,
            now,
            precheck=lambda other: other.priority <= pod.priority,
        )

    def _apply_node(self, old: Node | None, new: Node | None, now: float) -> None:
        if new is None:
            if old is not None:
                self.queue.move_all(NODE_DELETE, old, None, now)
                self.cache.remove_node(old.name)
        elif old is None:
            self.cache.set_node(new)
            self.queue.move_all(NODE_ADD, None, new, now)
        else:
            self.cache.set_node(new)
            for event in node_update_events(old, new):
                self.queue.move_all(event, old, new, now)

    def _apply_other(self, change: Change, now: float) -> None:
        lister: Lister[Named] = self.cluster.lister(change.kind)
        if change.new is None:
            lister.remove(change.old)
        else:
            lister.store(change.new)
        resource = RESOURCES.get(change.kind)
        if resource is not None:
            event = ClusterEvent(resource, action_of(change.old, change.new))
            self.queue.move_all(event, change.old, change.new, now)
            if resource is Resource.PodGroup and change.old is None and change.new is not None:
                # One that is made again may ask for less than the one for which its pods were rejected.
                key = GroupKey(change.kind, change.new.namespace, change.new.name)
                pods = tuple(self.cluster.pod_groups.members(key).unscheduled.values())
                self.queue.try_again(pods, event, now)

    # ------------------------------------------------------------ the queue's time

    @property
    def ready(self) -> bool:
        """Whether any pod is active."""
        return self.queue.ready

    def next_flush_time(self, now: float) -> float | None:
        """When ``flush`` has something to do; None if never."""
        return self.queue.next_flush_time(now)

    def flush(self, now: float) -> int:
        """Applies pending events and moves pods whose backoff or wait is over; returns the number of pods moved."""
        queue = self.queue
        return queue.continue_waking() + queue.flush_backoff(now) + queue.flush_unschedulable(now)

    def activate(self, pods: Iterable[Pod], now: float) -> int:
        """Activates pods whatever they wait for; returns how many (see SchedulingQueue.activate)."""
        activated = self.queue.activate(pods, now)
        self._notify()
        return activated

    def refresh_lanes(self, namespace: str) -> None:
        """Moves the active pods of a namespace to their lanes, which may have changed without a change of the pods."""
        self.queue.refresh_lanes(namespace)
        self._notify()

    # ------------------------------------------------------------ what a cycle decided

    def peek(self, admits: Admits | None = None) -> QueuedPod | None:
        """The pod that ``pop`` would return."""
        return self.queue.peek(admits)

    def pop(self, now: float, admits: Admits | None = None) -> QueuedPod | None:
        """The next pod to try, from an open lane; it is in flight until ``assume`` and ``done``, or ``fail``."""
        return self.queue.pop(now, admits)

    def pop_group(self, group: GroupKey, now: float) -> list[QueuedPod]:
        """The pods of a group that PreEnqueue admits, whatever else they wait for; they are in flight as after
        ``pop``."""
        return self.pop_pods(list(self.cluster.pod_groups.members(group).unscheduled), now)

    def pop_pods(self, uids: Iterable[str], now: float) -> list[QueuedPod]:
        """Certain pods that PreEnqueue admits, whatever else they wait for; they are in flight as after ``pop``."""
        return self.queue.pop_pods(uids, now)

    def nominate(self, pod: Pod, node_name: str) -> None:
        """Nominates a pod for a node, as a checkpoint says."""
        self.nominator.add(pod, node_name)

    def nominate_unqueued(self, pod: Pod, node_name: str) -> None:
        """Nominates a pod that is not to be tried here: a scheduler whose state this one follows does that."""
        self.pods[pod.key] = pod
        self.nominator.add(pod, node_name)

    def nominated_for(self, pod: Pod) -> PodsByRow:
        """The other nominated pods with at least this pod's priority, by row."""
        return self._nominations.concerning(pod)

    def assume(self, pod: Pod, node_name: str) -> Pod:
        """Adds a pod to the node chosen for it; returns the assumed pod. Raises CacheError."""
        assumed = pod.on(node_name)
        self.cache.assume(assumed)
        self.nominator.delete(pod)
        if self.cluster.pod_groups.watched:
            self.cluster.pod_groups.put(assumed, scheduled=True)
        return assumed

    def forget(self, assumed: Pod) -> Pod:
        """Removes an assumed pod; does nothing if it is confirmed or gone. Returns the version that was counted."""
        if not self.cache.is_assumed(assumed.uid):
            return assumed
        counted = self.cache.get(assumed.uid) or assumed
        self._forget(assumed)
        return counted

    def _forget(self, assumed: Pod) -> None:
        self.cache.forget(assumed)
        if self.cluster.pod_groups.watched and self.is_unbound(assumed):
            self.cluster.pod_groups.put(self.pods[assumed.key], scheduled=False)

    def freed(self, assumed: Pod, now: float, *, but: Collection[str] = ()) -> None:
        """Moves the pods that may fit after ``forget``, except those with uids ``but``."""
        precheck = (lambda other: other.uid not in but) if but else None
        self.queue.move_all(ASSIGNED_POD_DELETE, assumed, None, now, precheck=precheck)
        self._notify()

    def unscheduled_pod_gone(self, pod: Pod, now: float, *, among: Container[str]) -> None:
        """Moves those pods (uids) that may fit since a pod without a node has gone."""
        self.queue.move_all(
            UNSCHEDULABLE_POD_DELETE, pod, None, now, precheck=lambda other: other.uid in among
        )
        self._notify()

    def finish_binding(self, uid: str) -> None:
        """Records that the binding of an assumed pod was written."""
        self.cache.finish_binding(uid)

    def done(self, uid: str) -> None:
        """Ends the pod's time in flight and removes its nomination (docs/spec/queue.md#nominator)."""
        self.queue.done(uid)

    def drop(self, pod: Pod) -> None:
        """Ends the pod's time in flight and removes its nomination: it will not be tried
        (docs/spec/queue.md#nominator)."""
        self.nominator.delete(pod)
        self.queue.done(pod.uid)

    def fail(self, queued: QueuedPod, now: float, *, nominated_node: str | None) -> Failure:
        """Returns a pod to the queue after a failed attempt (``queued.reject`` was called), if it still waits.

        ``nominated_node``: None leaves the nomination, "" clears it, a name sets it.
        """
        failure = self._fail(queued, now, nominated_node)
        self._notify()
        return failure

    def _fail(self, queued: QueuedPod, now: float, nominated_node: str | None) -> Failure:
        pod = queued.pod
        current = self.pods.get(pod.key)
        if current is not None and current.uid != pod.uid:
            self.queue.done(pod.uid)
            return Failure(current, report=False, nominated_node=nominated_node)
        if current is None or current.node_name:
            self.queue.done(pod.uid)
            pod = current or pod
            return Failure(pod, report=True, nominated_node=nominated_node)
        queued.pod = current
        if not self._may_be_nominated(current):
            nominated_node = ""
        try:
            self.queue.add_unschedulable_if_not_present(queued, now)
        except AlreadyQueuedError:
            return Failure(current, report=True, nominated_node=nominated_node)
        before = self.nominator.node_of(current.uid)
        self.nominator.add(current, nominated_node)
        # A nomination that was written ends for others when the watch shows it.
        written = before == current.nominated_node_name
        if before and nominated_node not in {None, before} and not written:
            self._nomination_freed(current, before, now)
        return Failure(current, report=True, nominated_node=nominated_node)
