"""The changes around the moment at which a pod was decided: applied ones, which can be undone, and those to come.

A scheduler decides a pod some time before its binding shows, and bindings of several pods are written side by side. So the
table at the moment of the decision differs from the table at the moment of the binding: pods that were decided earlier may
be bound later, and changes that were seen before the binding may have come after the decision. A Timeline holds changes
back for a while, so that later bindings are known, and can undo those that were applied lately.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from app.model.claims import SELECTED_NODE, claim_keys, claim_name, fully_bound
from app.model.objects import Node, PodCondition
from app.model.pod import Pod
from app.model.storage import PersistentVolumeClaim
from app.state.scheduler_state import Change, Command, ReportProblem, SchedulerState
from app.tools.shadow.preparation import Preparation, preparation

T = TypeVar("T")

#: Seconds by which watches of different kinds may differ, on a busy machine.
_SKEW: Final = 1.0
#: The condition that a scheduler gives to the pods that it evicts.
EVICTED: Final = PodCondition(
    type="DisruptionTarget", status="True", reason="PreemptionByScheduler"
)
#: Changes to come that are looked at, in number and in seconds after the first one: more than outcomes are held back.
_NEAR: Final = 2000
_NEAR_SECONDS: Final = 1.0
#: Seconds after which a decision whose binding waits for something is taken to have failed, if nothing shows.
_LONGEST_BINDING: Final = 660.0
#: Pods without a node that are remembered; the oldest are forgotten first.
_REMEMBERED: Final = 100_000


class Outcome(NamedTuple):
    """What a change shows of the decision on a pod."""

    #: The pod before the outcome.
    pod: Pod
    #: The chosen or nominated node; empty if there is none.
    node: str
    #: The message of the condition if the pod was refused, else None.
    message: str | None = None
    #: The number and the time of the entry with which the pod entered the queue; 0 if it was tried before, or unknown.
    queued: int = 0
    queued_at: float = 0.0
    #: Whether the pod is not bound yet, because its binding waits for volumes or devices.
    early: bool = False


class Entry(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A change from a watch."""

    #: Ascending in the order of arrival.
    number: int
    #: When it arrived, in seconds.
    at: float
    change: Change
    outcome: Outcome | None
    #: The object that changes.
    key: tuple[type, str]
    #: The node that the change concerns; empty if there is none.
    node_name: str
    #: Whether the change shows a decision for a node: a binding or a nomination.
    places: bool
    #: Whether the change shows that a scheduler evicts a pod with a node.
    evicts: bool
    #: What the change chooses for a claim; None if it chooses nothing.
    prepares: Preparation | None
    #: The number of the entry with which the pod of the outcome entered the queue, and its priority; 0 if that is not known.
    queued: int
    priority: int


def _entry(number: int, at: float, change: Change, outcome: Outcome | None) -> Entry:
    kind, old, new = change
    either = new or old
    node = either.name if kind is Node else either.node_name if kind is Pod else ""
    return Entry(
        number=number,
        at=at,
        change=change,
        outcome=outcome,
        key=(kind, either.key),
        node_name=node,
        places=outcome is not None and bool(outcome.node),
        evicts=is_eviction(change),
        prepares=preparation(change),
        queued=0 if outcome is None else outcome.queued,
        priority=0 if outcome is None else outcome.pod.priority,
    )


def precedes(one: Entry, other: Entry) -> bool | None:
    """Whether the pod of one outcome was decided before that of the other; None if the queue does not tell.

    Pods that wait together are tried by priority, then in the order in which they entered the queue.
    """
    if not one.queued or not other.queued:
        return None
    if one.priority >= other.priority and one.queued < other.queued:
        return True
    if other.priority >= one.priority and other.queued < one.queued:
        return False
    return None


def may_be_later(change: Entry, outcome: Outcome) -> bool:
    """Whether an applied change may have come after the decision that ``outcome`` shows.

    That decision came after the pod had entered the queue. Changes of other kinds arrive by other watches, at other times.
    """
    if not outcome.queued:
        return True
    if change.change.kind is Pod:
        return change.number > outcome.queued
    return change.at > outcome.queued_at - _SKEW


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


def _is_given_up(old: Pod, new: Pod) -> bool:
    """Whether a change of a pod shows that the decision on it has failed: its nomination has gone, or its condition says so."""
    if old.nominated_node_name and not new.nominated_node_name:
        return True
    before, after = old.condition("PodScheduled"), new.condition("PodScheduled")
    return after is not None and after.status == "False" and before != after


def _prepares(pod: Pod) -> bool:
    """Whether something may have to be prepared before the pod is bound. kube-scheduler then nominates its node first."""
    return bool(pod.template.volumes or pod.spec.resource_claims)


#: A pod in the queue is no longer expected to be decided before one that was queued so many seconds later.
_PATIENCE: Final = 20.0


class _Waiting(msgspec.Struct):
    """What is known of a pod without a node."""

    queued: int
    at: float
    priority: int
    #: The chosen node, for a pod whose binding waits for volumes or devices.
    node: str = ""
    #: Whether an outcome was held back for it in vain.
    overdue: bool = False


class Timeline:
    """Applies changes to a state in order, undoes and repeats them."""

    def __init__(self, state: SchedulerState, *, window: float, limit: int) -> None:
        """``window``: seconds for which an applied change can be undone; ``limit``: the number of such changes."""
        self.state: Final = state
        self._window: Final = window
        #: Applied changes, oldest first.
        self.behind: Final[deque[Entry]] = deque()
        self._limit: Final = limit
        #: The same by number, and by object, then in the order of arrival.
        self._applied: Final[dict[int, Entry]] = {}
        self._of_object: Final[dict[tuple[type, str], list[Entry]]] = {}
        #: The decisions for a node among them, by number.
        self.placed: Final[dict[int, Entry]] = {}
        #: Those of ``behind`` and ``ahead`` that evict or prepare, in the order of arrival.
        self._effects: Final[dict[int, Entry]] = {}
        #: Changes that are not applied yet, oldest first.
        self.ahead: Final[deque[Entry]] = deque()
        self._number = 0
        #: By uid: the pods that have arrived since the timeline began and have no node.
        self._waiting: Final[dict[str, _Waiting]] = {}
        #: By namespace/name of a claim: the pod without a node that uses it.
        self._users: Final[dict[str, Pod]] = {}
        #: By uid: pods whose binding waits for something, and when they were put on their node; the oldest first.
        self._early: Final[dict[str, tuple[Pod, float]]] = {}
        #: By the number of an applied change that ended such a wait: the pod on its node.
        self._ended: Final[dict[int, Pod]] = {}

    def push(self, change: Change, now: float) -> None:
        """Adds a change that has arrived."""
        self._number += 1
        outcome = None
        if change.kind is Pod:
            outcome = self._of_pod(change.old, change.new, now)
        elif change.kind is PersistentVolumeClaim:
            outcome = self._of_claim(change.old, change.new)
        entry = _entry(self._number, now, change, outcome)
        self.ahead.append(entry)
        if entry.evicts or entry.prepares is not None:
            self._effects[entry.number] = entry

    def _of_pod(self, old: Pod | None, new: Pod | None, now: float) -> Outcome | None:
        if new is None or new.node_name:
            uid = (new or old).uid  # type: ignore[union-attr]  # a change has one of them
            known = self._waiting.pop(uid, None)
            if old is None or old.node_name or not self.state.responsible_for(old):
                return None
            self._forget_claims(old)
            if new is None or (known is not None and known.node == new.node_name):
                return None
            return _outcome(old, new.node_name, None, known)
        if not self.state.responsible_for(new):
            return None
        for volume in new.template.volumes:
            name = claim_name(new, volume)
            if name is not None:
                _remember(self._users, f"{new.namespace}/{name}", new)
        message = None if old is None else _refusal(old, new)
        if old is not None and message is not None:
            known = self._waiting.pop(new.uid, None)
            return _outcome(old, new.nominated_node_name, message, known)
        if old is not None and _is_nominated(old, new):
            return self._of_early(old, new.nominated_node_name)
        if old is not None and _is_given_up(old, new):
            self._waiting.pop(new.uid, None)
        elif not new.spec.scheduling_gates and (old is None or old.spec.scheduling_gates):
            _remember(self._waiting, new.uid, _Waiting(self._number, now, new.priority))
        return None

    def _of_claim(
        self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> Outcome | None:
        """The decision on a pod that is bound only when its volume is there: its claim names the node."""
        if old is None or new is None:
            return None
        node = new.annotations.get(SELECTED_NODE, "")
        pod = self._users.get(new.key)
        if not node or pod is None or old.annotations.get(SELECTED_NODE):
            return None
        return self._of_early(pod, node)

    def _of_early(self, pod: Pod, node: str) -> Outcome | None:
        """The decision on a pod whose binding waits for something; None if it is known already."""
        known = self._waiting.get(pod.uid)
        if known is None:
            known = _Waiting(0, 0.0, pod.priority)
            _remember(self._waiting, pod.uid, known)
        if known.node:
            return None
        known.node = node
        return Outcome(pod, node, None, known.queued, known.at, early=True)

    def _forget_claims(self, pod: Pod) -> None:
        for volume in pod.template.volumes:
            self._users.pop(f"{pod.namespace}/{claim_name(pod, volume)}", None)

    def awaits_earlier(self, entry: Entry) -> bool:
        """Whether pods that were decided before that of an outcome, by the order in the queue, show no outcome yet."""
        return next(self._earlier(entry), None) is not None

    def stop_awaiting(self, entry: Entry) -> None:
        """An outcome was held back long enough: the pods for which it waited hold back no other outcome."""
        for known in self._earlier(entry):
            known.overdue = True

    def _earlier(self, entry: Entry) -> Iterator[_Waiting]:
        outcome = entry.outcome
        if outcome is None or not outcome.queued:
            return
        for known in self._waiting.values():
            if known.queued > outcome.queued:
                return
            if (
                known.queued
                and not known.node
                and not known.overdue
                and known.priority >= outcome.pod.priority
                and known.at > outcome.queued_at - _PATIENCE
            ):
                yield known

    def awaits_preparation(self, entry: Entry) -> bool:
        """Whether it does not show yet what the claims of a pod get whose binding waits for them."""
        outcome = entry.outcome
        if outcome is None or not outcome.early or not self._has_open_claims(outcome.pod):
            return False
        return next(self.preparations(outcome.pod), None) is None

    def _has_open_claims(self, pod: Pod) -> bool:
        if pod.spec.resource_claims:
            return True
        found = (self.state.cluster.claims.get(name, space) for space, name in claim_keys(pod))
        return any(claim is not None and not fully_bound(claim) for claim in found)

    def near(self) -> Iterator[Entry]:
        """The changes to come that may concern the decision on the first one, oldest first."""
        for number, entry in enumerate(self.ahead):
            if number >= _NEAR or entry.at > self.ahead[0].at + _NEAR_SECONDS:
                return
            yield entry

    def later(self, number: int) -> Iterator[Entry]:
        """The applied changes that arrived after the one with this number, the last one first."""
        if self._number - number < len(self._applied):
            for each in range(self._number, number, -1):
                entry = self._applied.get(each)
                if entry is not None:
                    yield entry
        else:
            yield from (e for e in reversed(self.behind) if e.number > number)

    def last_at(self, moment: float, after: int) -> int:
        """The number of the last change that had arrived at a moment, or ``after`` if that one is later."""
        numbers = [e.number for e in self.near() if e.at <= moment]
        applied = next((e.number for e in self.later(after) if e.at <= moment), after)
        return max(applied, *numbers) if numbers else applied

    def preparations(self, pod: Pod) -> Iterator[Entry]:
        """The changes that choose something for a claim of the pod, applied or near, oldest first."""
        for entry in self._effects.values():
            chosen = entry.prepares
            if chosen is not None and chosen.concerns(pod) and not self._is_far(entry):
                yield entry

    def evictions(self, node: str, *, behind_only: bool = False) -> Iterator[Entry]:
        """The changes that show that a pod on the node is evicted, applied or near, oldest first."""
        for entry in self._effects.values():
            if entry.evicts and entry.node_name == node:
                if behind_only and entry.number not in self._applied:
                    continue
                if not self._is_far(entry):
                    yield entry

    def _is_far(self, entry: Entry) -> bool:
        """Whether a change is one to come that is not near."""
        return bool(self.ahead) and entry.at > self.ahead[0].at + _NEAR_SECONDS

    def put_in_order(self) -> None:
        """Brings the pod that was decided first to the front, if the next entry is an outcome and the queue tells.

        So few changes have to be moved for each decision. The changes of one object keep their order.
        """
        first = self.ahead[0]
        if first.outcome is None or not first.outcome.queued:
            return
        for entry in self.near():
            if entry.outcome is not None and entry.places and precedes(entry, first):
                first = entry
        if first is self.ahead[0]:
            return
        chosen = self._with_earlier([first])
        for entry in chosen:
            self.ahead.remove(entry)
        self.ahead.extendleft(reversed(chosen))

    def advance(self) -> Sequence[Command]:
        """Applies the next change; there must be one."""
        entry = self.ahead.popleft()
        self.behind.append(entry)
        self._applied[entry.number] = entry
        self._of_object.setdefault(entry.key, []).append(entry)
        if entry.places:
            self.placed[entry.number] = entry
        while len(self.behind) > self._limit or self.behind[0].at < entry.at - self._window:
            self._forget(self.behind.popleft())
        self._give_up(entry.at)
        return self._apply(entry)

    def _forget(self, entry: Entry) -> None:
        """An applied change can no longer be undone."""
        del self._applied[entry.number]
        self._effects.pop(entry.number, None)
        self.placed.pop(entry.number, None)
        known = self._of_object[entry.key]
        known.remove(entry)
        if not known:
            del self._of_object[entry.key]

    def _give_up(self, now: float) -> None:
        """Takes out pods that were put on a node so long ago that their binding must have failed."""
        while self._early:
            uid, (assumed, since) = next(iter(self._early.items()))
            if now < since + _LONGEST_BINDING:
                break
            del self._early[uid]
            self._take_out(assumed)

    @contextmanager
    def moved(self, undone: Iterable[Entry], pulled: Iterable[Entry]) -> Iterator[None]:
        """The state without some applied changes, and with some changes to come, for the length of the block.

        Later changes of the same objects are undone as well, and earlier ones are pulled as well.
        """
        back = self._with_later(undone)
        forward = self._with_earlier(pulled)
        for entry in reversed(back):
            self._undo(entry)
        for entry in forward:
            self._apply(entry)
        try:
            yield
        finally:
            for entry in reversed(forward):
                self._undo(entry)
            for entry in back:
                self._apply(entry)

    def _apply(self, entry: Entry) -> Sequence[Command]:
        """Applies a change. A pod whose binding waits for something is put on its node, or taken out if that has failed."""
        commands = self.state.apply(entry.change, entry.at)
        outcome = entry.outcome
        if outcome is not None and outcome.early:
            return [*commands, *self._put_on(outcome.pod, outcome.node, entry.at)]
        kind, old, new = entry.change
        uid = (new or old).uid if kind is Pod else ""
        if uid in self._early:
            bound = new is None or bool(new.node_name)
            if bound or (old is not None and (_refusal(old, new) or _is_given_up(old, new))):
                assumed, _ = self._early.pop(uid)
                self._ended[entry.number] = assumed
                if len(self._ended) > _NEAR:
                    del self._ended[next(iter(self._ended))]
                if not bound:
                    self._take_out(assumed)
        return commands

    def _undo(self, entry: Entry) -> None:
        kind, old, new = entry.change
        if entry.outcome is not None and entry.outcome.early:
            known = self._early.pop(entry.outcome.pod.uid, None)
            if known is not None:
                self._take_out(known[0])
        self.state.apply(Change(kind, new, old), entry.at)
        ended = self._ended.pop(entry.number, None)
        if ended is not None:
            self._put_on(ended, ended.node_name, entry.at)

    def _put_on(self, pod: Pod, node: str, now: float) -> Sequence[Command]:
        """Counts a pod on the node that was chosen for it."""
        if not self.state.is_unbound(pod) or self.state.cache.get(pod.uid) is not None:
            return ()
        try:
            assumed = self.state.assume(self.state.latest(pod), node)
        except Exception as error:  # noqa: BLE001 - any exception concerns this pod only
            return (ReportProblem(f"pod {pod.key} cannot be put on node {node}: {error}"),)
        self._early[pod.uid] = (assumed, now)
        return ()

    def _take_out(self, assumed: Pod) -> None:
        """Takes out a pod that was put on a node before its binding showed."""
        known = self.state.cache.get(assumed.uid)
        if known is not None and self.state.cache.is_assumed(assumed.uid):
            self.state.forget(known)

    def _with_later(self, chosen: Iterable[Entry]) -> list[Entry]:
        first: dict[tuple[type, str], int] = {}
        for entry in chosen:
            first[entry.key] = min(entry.number, first.get(entry.key, entry.number))
        found = [
            e
            for key, number in first.items()
            for e in self._of_object.get(key, ())
            if e.number >= number
        ]
        return sorted(found, key=lambda e: e.number)

    def _with_earlier(self, chosen: Iterable[Entry]) -> list[Entry]:
        last: dict[tuple[type, Any], int] = {}
        for entry in chosen:
            last[entry.key] = max(entry.number, last.get(entry.key, 0))
        if not last:
            return []
        return [e for e in self.near() if e.number <= last.get(e.key, 0)]


def _outcome(pod: Pod, node: str, message: str | None, known: _Waiting | None) -> Outcome:
    if known is None:
        return Outcome(pod, node, message)
    return Outcome(pod, node, message, known.queued, known.at)


def _remember(known: dict[str, T], key: str, value: T) -> None:
    known[key] = value
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]
