"""What a change from a watch shows of a decision, and the pods whose decisions do not show yet.

A pod waits from its arrival, or from its last refusal, until an outcome shows: its binding; PodScheduled=False; or, if
its binding waits for a volume or a device, its nomination or the node in its claim.
"""

import enum
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

import msgspec

from app.model.claims import SELECTED_NODE, claim_name
from app.model.objects import PodCondition
from app.model.pod import Pod
from app.model.storage import PersistentVolumeClaim
from app.state.scheduler_state import Change, SchedulerState

T = TypeVar("T")

#: The condition that a scheduler gives to the pods that it evicts.
EVICTED: Final = PodCondition(
    type="DisruptionTarget", status="True", reason="PreemptionByScheduler"
)
#: Seconds in the queue after which a pod is no longer expected to be decided before one that was queued later. The
#: longest backoff of kube-scheduler is 10 s: a pod that is tried at all shows an outcome within twice that.
_PATIENCE: Final = 20.0
#: Pods without a node that are remembered; the oldest are forgotten first. 20 times the largest number of pods that a
#: cluster of 5000 nodes is tested with at once.
_REMEMBERED: Final = 100_000
#: Seconds without an outcome although a pod waits, after which the scheduler may have been started: kube-scheduler
#: needs a second to list a cluster, and a standby waits for a lease of 15 s.
_SILENCE: Final = 1.0
#: Outcomes of a backlog from which its order is found: the first time at so many, then at twice as many each time, up
#: to the last.
_ENOUGH: Final = 16
_MOST: Final = 1024


#: Of a pod: its place in the order in which pods that wait together and have one priority are tried.
QueuePosition = tuple[int, str]


class Order(enum.Enum):
    """The order in which pods of one priority are tried that waited when a scheduler showed an outcome after a
    silence."""

    ARRIVAL = enum.auto()
    """The scheduler was only slow."""
    NAME = enum.auto()
    """It has listed the pods, and they entered its queue in the order of the list: by namespace and name."""
    UNKNOWN = enum.auto()
    """It has listed them, and they entered its queue in any order, as with kube-scheduler since it streams lists
    (client-go's reflector keeps what was streamed in a map). Only the outcomes tell."""


class Backlog(msgspec.Struct, eq=False):
    """The pods that waited when a scheduler showed an outcome after a silence: it may have just started."""

    #: The number of the outcome that ended the silence.
    number: int
    order: Order = Order.ARRIVAL
    #: Of the outcomes so far, in the order of arrival: priority (negative), the number of the arrival, and
    #: namespace/name.
    shown: list[tuple[int, int, str]] = []
    #: The number of outcomes at which the order is looked at next.
    next_look: int = _ENOUGH

    def add(self, outcome: "PodOutcome") -> bool:
        """An outcome of one of the pods has arrived. Returns whether that changes the order."""
        if len(self.shown) >= _MOST or outcome.retried or not outcome.queued:
            return False
        self.shown.append((-outcome.pod.priority, outcome.queued, outcome.pod.key))
        if len(self.shown) < self.next_look:
            return False
        self.next_look *= 2
        before, self.order = self.order, self._likely_order()
        return before is not self.order

    def _likely_order(self) -> Order:
        by_arrival, by_name = self._disorder(1), self._disorder(2)
        # In any order an outcome is a third of their number away from its place, on average; half of that is no order.
        if min(by_arrival, by_name) > len(self.shown) ** 2 / 6:
            return Order.UNKNOWN
        return Order.NAME if by_name < by_arrival else Order.ARRIVAL

    def _disorder(self, field: int) -> int:
        """How many places the outcomes are from the order by priority and a field, in all."""
        shown = self.shown
        order = sorted(range(len(shown)), key=lambda n: (shown[n][0], shown[n][field]))
        return sum(abs(place - at) for place, at in enumerate(order))


class PodOutcome(NamedTuple):
    """What a change shows of the decision on a pod."""

    #: The pod before the outcome.
    pod: Pod
    #: The chosen or nominated node; empty if there is none.
    node: str
    #: The message of the condition if the pod was refused, else None.
    message: str | None = None
    #: The number and the time of the change with which the pod entered the queue, or its last refusal showed; 0 if
    #: neither was seen.
    queued: int = 0
    queued_at: float = 0.0
    #: Whether the pod was refused before: it may have been out of the queue for a while.
    retried: bool = False
    #: Whether the pod is not bound yet, because its binding waits for volumes or devices.
    early: bool = False
    #: The backlog that the pod belongs to.
    backlog: Backlog | None = None

    @property
    def place(self) -> QueuePosition | None:
        """The place in the queue; None if it is not known."""
        return _place(self.queued, self.pod.key, self.backlog)

    @property
    def was_queued(self) -> bool:
        """Whether the pod was in the queue from its place on until it was decided, as far as is known."""
        return (self.queued > 0 and not self.retried) or _was_listed(self.backlog)

    @property
    def is_unordered(self) -> bool:
        """Whether only the bindings of the pods that waited with this one tell the order."""
        return self.backlog is not None and self.backlog.order is Order.UNKNOWN


def _place(queued: int, key: str, backlog: Backlog | None) -> QueuePosition | None:
    if backlog is not None and _was_listed(backlog):
        return backlog.number, key if backlog.order is Order.NAME else ""
    return (queued, "") if queued else None


def _was_listed(backlog: Backlog | None) -> bool:
    return backlog is not None and backlog.order is not Order.ARRIVAL


class _Waiting(msgspec.Struct):
    """What is known of a pod without a node."""

    key: str
    queued: int
    at: float
    priority: int
    retried: bool = False
    #: The chosen node, for a pod whose binding waits for volumes or devices.
    node: str = ""
    backlog: Backlog | None = None

    @property
    def place(self) -> QueuePosition:
        return _place(self.queued, self.key, self.backlog) or (0, "")


class Outcomes:
    """Finds the outcomes among the changes, in the order of arrival."""

    def __init__(self, state: SchedulerState) -> None:
        self._state: Final = state
        #: By uid: the pods that have arrived since the beginning and have no node.
        self._waiting: Final[dict[str, _Waiting]] = {}
        #: Place and uid of those of them for which later outcomes are held back, in the order of the queue.
        self._awaited: list[tuple[QueuePosition, str]] = []
        #: By namespace/name of a claim: the pod without a node that uses it.
        self._users: Final[dict[str, Pod]] = {}
        #: When the last outcome arrived, in seconds.
        self._last_at = 0.0
        self._backlog: Backlog | None = None
        #: Counts how often places have changed.
        self.reordered = 0

    def of(self, change: Change, number: int, now: float) -> PodOutcome | None:
        """What the change with this number shows; None if it shows no decision."""
        outcome = None
        if change.kind is Pod:
            outcome = self._of_pod(change.old, change.new, number, now)
        elif change.kind is PersistentVolumeClaim:
            outcome = self._of_claim(change.old, change.new)
        if outcome is None:
            return None
        reordered = self._ends_silence(outcome, now)
        if reordered:
            self._backlog = Backlog(number)
            for known in self._waiting.values():
                known.backlog = self._backlog
            outcome = outcome._replace(backlog=self._backlog)
        self._last_at = now
        if outcome.backlog is not None and outcome.backlog.add(outcome):
            reordered = True
        if reordered:
            self.reordered += 1
            self._awaited = sorted((self._waiting[uid].place, uid) for _, uid in self._awaited)
        return outcome

    def _ends_silence(self, outcome: PodOutcome, now: float) -> bool:
        """Whether pods waited although the scheduler showed no outcome for a while."""
        since = max(outcome.queued_at, self._last_at)
        return outcome.queued > 0 and not outcome.retried and now - since > _SILENCE

    def _of_pod(
        self, old: Pod | None, new: Pod | None, number: int, now: float
    ) -> PodOutcome | None:
        if new is None or new.node_name:
            uid = (new or old).uid  # type: ignore[union-attr]  # a change has one of them
            known = self._take(uid)
            if old is None or old.node_name or not self._state.responsible_for(old):
                return None
            self._forget_claims(old)
            if new is None or (known is not None and known.node == new.node_name):
                return None
            return self._outcome(old, new.node_name, None, known)
        if not self._state.responsible_for(new):
            return None
        for volume in new.template.volumes:
            name = claim_name(new, volume)
            if name is not None:
                _remember(self._users, f"{new.namespace}/{name}", new)
        message = None if old is None else _refusal(old, new)
        if old is not None and message is not None:
            known = self._take(new.uid)
            self._wait(new.uid, _Waiting(new.key, number, now, new.priority, retried=True))
            return self._outcome(old, new.nominated_node_name, message, known)
        if old is not None and _is_nominated(old, new):
            return self._of_early(old, new.nominated_node_name)
        if old is not None and is_given_up(old, new):
            self._take(new.uid)
        elif not new.spec.scheduling_gates and (old is None or old.spec.scheduling_gates):
            self._wait(new.uid, _Waiting(new.key, number, now, new.priority))
        return None

    def _of_claim(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> PodOutcome | None:
        """The decision on a pod that is bound only when its volume is there: its claim names the node."""
        if old is None or new is None:
            return None
        node = new.annotations.get(SELECTED_NODE, "")
        pod = self._users.get(new.key)
        if not node or pod is None or old.annotations.get(SELECTED_NODE):
            return None
        return self._of_early(pod, node)

    def _of_early(self, pod: Pod, node: str) -> PodOutcome | None:
        """The decision on a pod whose binding waits for something; None if it is known already."""
        known = self._waiting.get(pod.uid)
        if known is None:
            known = _Waiting(pod.key, 0, 0.0, pod.priority, backlog=self._backlog)
            _remember(self._waiting, pod.uid, known)
        if known.node:
            return None
        known.node = node
        self._await_no_longer(pod.uid, known)
        return self._outcome(pod, node, None, known)._replace(early=True)

    def _outcome(
        self, pod: Pod, node: str, message: str | None, known: _Waiting | None
    ) -> PodOutcome:
        if known is None:  # it waited before the timeline began
            return PodOutcome(pod, node, message, backlog=self._backlog)
        return PodOutcome(
            pod, node, message, known.queued, known.at, known.retried, backlog=known.backlog
        )

    def _wait(self, uid: str, known: _Waiting) -> None:
        if uid in self._waiting:  # its arrival was seen before, and is listed again
            return
        forgotten = _remember(self._waiting, uid, known)
        if forgotten is not None:
            self._await_no_longer(*forgotten)
        if not known.retried:
            insort(self._awaited, (known.place, uid))

    def _take(self, uid: str) -> _Waiting | None:
        known = self._waiting.pop(uid, None)
        if known is not None:
            self._await_no_longer(uid, known)
        return known

    def _await_no_longer(self, uid: str, known: _Waiting) -> None:
        at = bisect_left(self._awaited, (known.place, uid))
        if at < len(self._awaited) and self._awaited[at][1] == uid:
            del self._awaited[at]

    def _forget_claims(self, pod: Pod) -> None:
        for volume in pod.template.volumes:
            self._users.pop(f"{pod.namespace}/{claim_name(pod, volume)}", None)

    # ------------------------------------------------------------ outcomes to come

    def awaits_earlier(self, outcome: PodOutcome) -> bool:
        """Whether pods that were decided before this one, by the order in the queue, show no outcome yet."""
        return next(self._earlier(outcome), None) is not None

    def stop_awaiting(self, outcome: PodOutcome) -> None:
        """An outcome was held back long enough: the pods for which it waited hold back no other one."""
        for uid in list(self._earlier(outcome)):
            self._await_no_longer(uid, self._waiting[uid])

    def _earlier(self, outcome: PodOutcome) -> Iterator[str]:
        place = outcome.place
        if place is None or not outcome.was_queued:
            return
        for awaited, uid in self._awaited:
            if awaited >= place:
                return
            known = self._waiting[uid]
            is_patient = _was_listed(known.backlog) or known.at > outcome.queued_at - _PATIENCE
            if known.priority >= outcome.pod.priority and is_patient:
                yield uid


def _remember(known: dict[str, T], key: str, value: T) -> tuple[str, T] | None:
    """Adds to what is remembered. Returns what is forgotten for it."""
    known[key] = value
    if len(known) <= _REMEMBERED:
        return None
    oldest = next(iter(known))
    return oldest, known.pop(oldest)


def precedes(one: PodOutcome, other: PodOutcome) -> bool | None:
    """Whether a pod was decided before another one; None if the queue does not tell.

    Pods that wait together are tried by priority, then in the order in which they entered the queue. A pod that was
    refused enters it once more, at the time of the refusal (docs/spec/queue.md), but it is tried only after its
    backoff: it may be later than pods that came after it.
    """
    first, second = one.place, other.place
    if first is None or second is None:
        return None
    mine, theirs = one.pod.priority, other.pod.priority
    if one.was_queued and (first < second if mine == theirs else first <= second and mine > theirs):
        return True
    if other.was_queued and (
        second < first if mine == theirs else second <= first and theirs > mine
    ):
        return False
    return None


def is_eviction(change: Change) -> bool:
    """Whether a change shows that a scheduler evicts a pod with a node."""
    kind, old, new = change
    if kind is not Pod or old is None or new is None or not new.node_name:
        return False
    condition = new.condition(EVICTED.type)
    return (
        condition is not None
        and condition.reason == EVICTED.reason
        and condition.status == EVICTED.status
        and old.condition(EVICTED.type) is None
    )


def ends_waiting(old: Pod | None, new: Pod | None) -> bool:
    """Whether a change of a pod whose binding waits for something shows how that ended."""
    if new is None or new.node_name:
        return True
    return old is not None and (_refusal(old, new) is not None or is_given_up(old, new))


def _refusal(old: Pod, new: Pod) -> str | None:
    """The message of a failed attempt that a change of a pod shows: another message, or a nomination."""
    before, after = old.condition("PodScheduled"), new.condition("PodScheduled")
    if after is None or after.status != "False" or after.reason != "Unschedulable":
        return None
    if before is None or before.message != after.message:
        return after.message
    return after.message if _is_nominated(old, new) and not _prepares(new) else None


def _is_nominated(old: Pod, new: Pod) -> bool:
    """Whether a change of a pod nominates it to a node."""
    nominated = new.nominated_node_name
    return bool(nominated) and nominated != old.nominated_node_name


def is_given_up(old: Pod, new: Pod) -> bool:
    """Whether a change of a pod shows that the decision on it has failed: its nomination has gone, or its condition
    says so."""
    if old.nominated_node_name and not new.nominated_node_name:
        return True
    before, after = old.condition("PodScheduled"), new.condition("PodScheduled")
    return after is not None and after.status == "False" and before != after


def _prepares(pod: Pod) -> bool:
    """Whether something may have to be prepared before the pod is bound. kube-scheduler then nominates its node
    first."""
    return bool(pod.template.volumes or pod.spec.resource_claims)
