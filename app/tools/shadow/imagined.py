"""A cluster in which a configuration's own placements add up (``--world mine``), beside the one that it follows.

Pods, nodes and all other objects come and go as they do in the real cluster. Only the nodes of pods differ: a pod is decided
here when the outcome of its first decision shows in the real cluster, so neither cluster's scheduler is ahead of the other. A pod
that waits here is tried again by the rules of the queue, and whenever the real cluster's scheduler decides on it. Among equally
good nodes a pod gets the one that it has in the real cluster, so that the clusters differ only where the configurations do.

A pod that is evicted here terminates for as long as the victims of the real cluster's scheduler do. Then it waits again: it takes the
place of the pod that its controller would create. Without a controller it is gone. A pod that the real cluster's scheduler evicts
leaves here as well, because its controller creates another one there.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
import numpy as np

from app.cycle.attempt import Attempt, NoNodesError, Unfit, best
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Effects, Eviction
from app.framework.runner import Framework
from app.model.objects import Node
from app.model.pod import Pod
from app.plugins.default_preemption.importance import loss
from app.state.columns.arrays import Rows
from app.state.queue.queued_pod import ACTIVE, QueuedPod
from app.state.scheduler_state import Change, SchedulerState
from app.tools.shadow.comparison import WAIT_BOUNDS, Comparison, Figures, Shape, figures
from app.tools.shadow.judge import in_pauses, pause
from app.tools.shadow.outcomes import EVICTED, is_eviction
from app.wire.extender_v1 import Victims

#: Seconds after which a pod leaves that the real cluster's scheduler has evicted, so that the outcome of its preemptor shows before;
#: and after another pod is bound to its node there.
_VICTIM_SECONDS: Final = 5.0
_REPLACED_SECONDS: Final = 0.1
#: Seconds for which victims terminate, before the real cluster has shown it; the share of each victim in their mean.
_TERMINATION_SECONDS: Final = 1.0
_LATEST: Final = 0.2
#: The time of deletion of a pod that is evicted here; only its presence is used.
_NOW: Final = "now"
#: The number of shapes that a comparison uses: those of most pods.
_SHAPES: Final = 8


class ImaginedWorld(NamedTuple):
    """A state with a queue that pods are popped from, and the frameworks by scheduler name."""

    state: SchedulerState
    frameworks: Mapping[str, Framework]


class _Victim(msgspec.Struct):
    """A pod with a node that is being evicted, in one of the clusters or both."""

    pod: Pod
    #: When the real cluster's scheduler has evicted it; None if it has not.
    there_since: float | None = None
    #: Its node in the real cluster, if it has been evicted there.
    node_there: str = ""
    is_evicted_here: bool = False
    #: When it leaves its node here.
    due: float = math.inf


class _Side:
    """What is counted in one of the clusters since the last comparison, and when its waiting pods began to wait."""

    def __init__(self) -> None:
        #: By uid: since when the pod waits for a node, in seconds.
        self.since: Final[dict[str, float]] = {}
        #: Waiting times: the number in each bucket of WAIT_BOUNDS.
        self.waits: Counter[int] = Counter()
        self.evicted = 0

    def bound(self, uid: str, now: float) -> None:
        """A pod has got a node."""
        began = self.since.pop(uid, None)
        if began is not None:
            self.waits[bisect_left(WAIT_BOUNDS, max(now - began, 0.0))] += 1

    def figures(self, state: SchedulerState, shapes: list[Shape]) -> Figures:
        """The figures of a cluster; counting starts again."""
        waits, self.waits = self.waits, Counter()
        evicted, self.evicted = self.evicted, 0
        return figures(state.table, shapes, waiting=len(self.since), waits=waits, preempted=evicted)


class ImaginedCluster:
    """Takes over the changes of a real cluster, except for the nodes that its scheduler chose."""

    def __init__(
        self,
        world: ImaginedWorld,
        theirs: SchedulerState,
        rng: np.random.Generator,
        *,
        follows: Callable[[Pod], bool] = lambda _: False,
    ) -> None:
        """``theirs``: the state of the real cluster, to which a change is applied before it is taken here.

        ``follows``: whether a pod gets the node that it has in the real cluster, because it cannot be decided here.
        """
        self.state: Final = world.state
        self._frameworks: Final = world.frameworks
        self._theirs: Final = theirs
        self._rng: Final = rng
        self._follows: Final = follows
        #: By uid: the pods on which the real cluster's scheduler has shown no decision.
        self._undecided: Final[dict[str, Pod]] = {}
        #: By namespace/name.
        self._victims: Final[dict[str, _Victim]] = {}
        self._termination = _TERMINATION_SECONDS
        #: The number of the real cluster's pods by their requests.
        self._shapes: Final[Counter[tuple[tuple[str, int], ...]]] = Counter()
        self._there: Final = _Side()
        self._here: Final = _Side()
        #: The latest time that a change or ``decide`` had, in seconds. Does not go back.
        self._now = 0.0

    # ------------------------------------------------------------ what happens in the real cluster

    def fill(self, kind: type, objects: Mapping[str, Any], now: float) -> None:
        """Takes the objects of the first list of a kind, by namespace/name."""
        if kind is Pod:
            placed = {key: pod for key, pod in objects.items() if pod.node_name}
            for pod in placed.values():
                self._count_shape(pod, 1)
            self.state.apply_new(Pod, placed, now)
            for key, pod in objects.items():
                if key not in placed:
                    self.take(Change(Pod, None, pod), now)
        else:
            self.state.apply_new(kind, objects, now)

    def take(self, change: Change, now: float, *, refused: bool = False) -> None:
        """Takes a change of the real cluster. ``refused``: it shows that the pod was tried and got no node.

        Changes in the queue take effect with ``decide``.
        """
        self._now = max(self._now, now)
        if change.kind is Pod:
            self._take_pod(change, refused=refused)
        elif change.kind is Node and change.new is None and change.old is not None:
            self._take_lost_node(change)
        else:
            self._apply(change)

    def _take_pod(self, change: Change, *, refused: bool) -> None:
        _, old, new = change
        if old is not None:
            self._count_shape(old, -1)
        if new is not None:
            self._count_shape(new, 1)
        if is_eviction(change):
            self._evicted_there(change.new)
        self._take_version(old, new, refused=refused)

    def _take_version(self, old: Pod | None, new: Pod | None, *, refused: bool) -> None:
        either = new or old
        assert either is not None  # noqa: S101 - a change has one of them
        victim = self._victims.get(either.key)
        if victim is not None:
            if victim.pod.uid == either.uid:
                if new is None:
                    self._victim_gone_there(victim)
                return
            self._leave(victim.pod)
        if new is None:
            self._leave(either)
            return
        if new.node_name:
            self._there.bound(new.uid, self._now)
            if old is not None and not old.node_name:
                self._replaced_there(new)
        here = self._known(new)
        if new.uid in self._undecided:
            self._decided(new) if refused or new.node_name else self._wait_for_decision(new)
        elif here is not None:
            node = here.node_name if self.state.responsible_for(new) else new.node_name
            self._apply(Change(Pod, here, _placed(new, node, here.nominated_node_name)))
            if not node and new.node_name:
                self._end_evictions(here.nominated_node_name)
            if not node and (refused or new.node_name):
                self.state.activate((new,), self._now)
        elif old is None:
            self._come(new)
        # Otherwise the pod has left this cluster before.

    def _evicted_there(self, pod: Pod) -> None:
        self._there.evicted += 1
        here = self._known(pod)
        if here is not None and here.node_name:
            victim = self._victims.setdefault(pod.key, _Victim(here))
            victim.there_since, victim.due = self._now, math.inf
            victim.node_there = pod.node_name

    def _replaced_there(self, pod: Pod) -> None:
        """A pod has got a node in the real cluster: most likely for it those of lower priority were evicted there."""
        for victim in self._victims.values():
            if victim.node_there == pod.node_name and victim.pod.priority < pod.priority:
                victim.due = min(victim.due, self._now + _REPLACED_SECONDS)

    def _victim_gone_there(self, victim: _Victim) -> None:
        if victim.there_since is not None:
            took = self._now - victim.there_since
            self._termination += (took - self._termination) * _LATEST
        if victim.is_evicted_here or victim.there_since is None:
            self._leave(victim.pod)
        else:
            victim.due = self._now + _VICTIM_SECONDS

    def _come(self, pod: Pod) -> None:
        if pod.node_name or not self.state.responsible_for(pod):
            self._apply(Change(Pod, None, pod))
            return
        self._wait_for_decision(pod)
        refused = pod.condition("PodScheduled") is not None and not pod.spec.scheduling_gates
        if refused:  # before it was seen
            self._decided(pod)

    def _wait_for_decision(self, pod: Pod) -> None:
        self._undecided[pod.uid] = pod
        if not pod.spec.scheduling_gates:
            for side in (self._there, self._here):
                side.since.setdefault(pod.uid, self._now)

    def _decided(self, pod: Pod) -> None:
        """The real cluster's scheduler has decided on a pod for the first time."""
        if not self._follows(pod):
            del self._undecided[pod.uid]
            self._apply(Change(Pod, None, _placed(pod, "")))
        elif pod.node_name:
            del self._undecided[pod.uid]
            self._apply(Change(Pod, None, pod))
            self._here.bound(pod.uid, self._now)
        else:
            self._undecided[pod.uid] = pod

    def _leave(self, pod: Pod) -> None:
        self._victims.pop(pod.key, None)
        self._undecided.pop(pod.uid, None)
        for side in (self._there, self._here):
            side.since.pop(pod.uid, None)
        here = self._known(pod)
        if here is not None:
            self._apply(Change(Pod, here, None))

    def _take_lost_node(self, change: Change) -> None:
        """The pods of a node that has gone start again, unless the real cluster had them there: they will go there as well."""
        name = change.old.name
        pods = list(self.state.table.pods_on(name))
        self._apply(change)
        for pod in pods:
            if self._node_there(pod) != name and self.state.responsible_for(pod):
                self._restart(pod)

    def _restart(self, pod: Pod) -> None:
        """A pod loses its node, and waits again if it has a controller."""
        self._victims.pop(pod.key, None)
        latest = self._in_real_cluster(pod)
        self._apply(Change(Pod, pod, None))
        if latest is not None and pod.owner is not None and self.state.responsible_for(pod):
            self._here.since[pod.uid] = self._now
            self._apply(Change(Pod, None, _placed(latest, "")))

    def _apply(self, change: Change) -> None:
        # The real cluster's state reports the objects that cannot be handled.
        self.state.apply(change, self._now)

    def _known(self, pod: Pod) -> Pod | None:
        known = self.state.pods.get(pod.key)
        return known if known is not None and known.uid == pod.uid else None

    def _in_real_cluster(self, pod: Pod) -> Pod | None:
        known = self._theirs.pods.get(pod.key)
        return known if known is not None and known.uid == pod.uid else None

    def _node_there(self, pod: Pod) -> str:
        known = self._in_real_cluster(pod)
        return "" if known is None else known.node_name

    def _count_shape(self, pod: Pod, sign: int) -> None:
        if not self.state.responsible_for(pod):
            return
        shape = tuple(sorted(pod.template.request.items()))
        self._shapes[shape] += sign
        if not self._shapes[shape]:
            del self._shapes[shape]

    # ------------------------------------------------------------ decisions

    def decide(self, now: float, *, early: int = 0) -> Generator[None, None, None]:
        """Tries the pods whose turn it is. Pauses after each.

        ``early``: how many pods may be tried before their backoff has ended, as by a scheduler that has nothing else to do.
        """
        self._now = max(self._now, now)
        for victim in list(self._victims.values()):
            if victim.due <= self._now:
                self._end(victim)
        self.state.flush(self._now)
        while (queued := self.state.peek()) is not None:
            if queued.place is not ACTIVE:
                early -= 1
                if early < 0:
                    return
            self.state.pop(self._now)
            yield from self._try(queued)
            yield

    def _try(self, queued: QueuedPod) -> Generator[None, None, None]:
        pod = queued.pod
        if pod.terminating:
            self.state.drop(pod)
            return
        attempt = Attempt(
            self._frameworks[pod.spec.scheduler_name],
            self.state.table,
            pod,
            nominated=self.state.nominated_for,
            rng=self._rng,
            nominated_node=self.state.nominator.node_of(pod.uid),
            latest=self.state.latest,
        )
        try:
            self._bind(queued, self._choose(attempt, attempt.find()))
        except Unfit as unfit:
            yield from self._unfit(queued, attempt, unfit.diagnosis)
        except NoNodesError:
            self._fail(queued)
        except Exception:
            self._fail(queued)
            raise

    def _choose(self, attempt: Attempt, rows: Rows) -> str:
        table = self.state.table
        if len(rows) == 1:
            return str(table.names[rows[0]])
        totals = attempt.rank(rows)
        there = self._node_there(attempt.pod)
        row = table.row_of.get(there, -1)
        at = int(np.searchsorted(rows, row))
        if at < len(rows) and rows[at] == row and totals[at] == totals.max():
            return there
        return str(table.names[rows[best(totals, self._rng)]])

    def _bind(self, queued: QueuedPod, node: str) -> None:
        pod = self.state.latest(queued.pod)
        self._apply(Change(Pod, pod, _placed(pod, node)))
        self.state.done(pod.uid)
        self._here.bound(pod.uid, self._now)

    def _fail(self, queued: QueuedPod) -> None:
        queued.reject()
        self.state.fail(queued, self._now, nominated_node="")

    def _unfit(
        self, queued: QueuedPod, attempt: Attempt, diagnosis: Diagnosis
    ) -> Generator[None, None, None]:
        there = self._in_real_cluster(attempt.pod)
        preempting = _Preempting(
            "" if there is None else there.nominated_node_name or there.node_name
        )
        queued.reject(diagnosis.unschedulable_plugins, diagnosis.pending_plugins)
        nominated: str | None = ""
        try:
            result = yield from in_pauses(
                attempt.framework.commit.post_filter(
                    attempt.state, attempt.pod, diagnosis, cast("Effects", preempting)
                )
            )
            if result is not None:
                nominated = result.nominated_node
        finally:
            failure = self.state.fail(queued, self._now, nominated_node=nominated)
        if failure.requeued:
            self._nominate(failure.pod, nominated, preempting.victims)

    def _nominate(self, pod: Pod, node: str | None, victims: Sequence[Pod]) -> None:
        """Gives a waiting pod this nomination (None: the one it has), and evicts pods for it."""
        if node is not None and node != pod.nominated_node_name:
            before, pod = pod, _nominated(pod, node)
            self._apply(Change(Pod, before, pod))
        if not victims:
            return
        for other in self.state.nominator.pods_on(pod.nominated_node_name):
            if other.priority < pod.priority:
                self._apply(Change(Pod, other, _nominated(other, "")))
        # If it has its node in the real cluster, its victims are gone there.
        at_once = bool(self._node_there(pod))
        for victim in victims:
            self._evict(victim, at_once=at_once)
        if at_once:
            self.state.activate((pod,), self._now)

    def _evict(self, pod: Pod, *, at_once: bool) -> None:
        here = self._known(pod)
        if here is None or not here.node_name or here.terminating:
            return
        self._here.evicted += 1
        terminating = msgspec.structs.replace(
            here, deletion_timestamp=_NOW, conditions=(*here.conditions, EVICTED)
        )
        self._apply(Change(Pod, here, terminating))
        victim = self._victims.setdefault(pod.key, _Victim(here))
        victim.pod, victim.is_evicted_here = terminating, True
        if at_once:
            self._end(victim)
        elif victim.there_since is None:
            victim.due = self._now + self._termination
        elif victim.due < math.inf:
            victim.due = self._now

    def _end_evictions(self, node: str) -> None:
        """Those here on a node end: the real cluster has a node for the pod that is nominated."""
        for victim in list(self._victims.values()):
            if victim.is_evicted_here and victim.pod.node_name == node:
                self._end(victim)

    def _end(self, victim: _Victim) -> None:
        """A victim leaves its node."""
        if victim.there_since is None:
            self._restart(victim.pod)
        else:
            self._leave(victim.pod)

    # ------------------------------------------------------------ comparison

    def compare(self, at: float) -> Comparison:
        """Compares the clusters as they are now, and what was counted since the last time.

        ``at``: in seconds since the epoch.
        """
        common = self._shapes.most_common(_SHAPES)
        shapes = [Shape(requests=dict(shape), pods=count) for shape, count in common]
        return Comparison(
            at=at,
            shapes=shapes,
            theirs=self._there.figures(self._theirs, shapes),
            mine=self._here.figures(self.state, shapes),
        )


class _Preempting:
    """The effects of a preemption: keeps the victims. Of equally good nodes the one of the real cluster is taken."""

    def __init__(self, node_there: str) -> None:
        self._node_there: Final = node_there
        self.victims: tuple[Pod, ...] = ()

    def asks_about_victims(self, _pod: Pod) -> bool:
        return bool(self._node_there)

    async def agree_on_victims(
        self, _pod: Pod, candidates: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        there = candidates.get(self._node_there)
        if there is None or loss(there) != min(map(loss, candidates.values())):
            return candidates
        return {self._node_there: there}

    def evict(self, eviction: Eviction) -> None:
        self.victims = eviction.victims

    async def sleep(self, _seconds: float) -> None:
        await pause()


def _placed(pod: Pod, node: str, nominated: str = "") -> Pod:
    """A version of a pod with this node and this nominated node; empty for none."""
    if pod.node_name == node and pod.nominated_node_name == nominated:
        return pod
    return msgspec.structs.replace(pod, node_name=node, nominated_node_name=nominated)


def _nominated(pod: Pod, node: str) -> Pod:
    """A newer version of a pod with this nominated node, empty for none."""
    return msgspec.structs.replace(
        pod, nominated_node_name=node, resource_version=f"{pod.resource_version}, {node}"
    )
